"""A sender of limits on a topic; the broker between is left out, and has tests of its own."""

import json
from collections.abc import Callable
from typing import Any

from feed_rigs.base import Rig, Said
from gridaware.domain.signal import Signal
from gridaware.feeds.mqtt import MqttMessage
from gridaware.feeds.runner import RunningFeed


class Link:
    """Takes the place of a connection: what is said is heard at once."""

    def serve(self, _topics: Any, on_message: Callable[[MqttMessage], None], *_: Any) -> None:
        self.say = on_message


class PlainMqttRig(Rig):
    kind = "mqtt"
    is_pushed = True
    numbers_revisions = False
    orders_words = True
    says_priority = False

    def settings(self) -> dict[str, object]:
        return {"url": "mqtt://127.0.0.1:1", "topic": "grid/limit"}

    def open(self) -> RunningFeed:
        running = super().open()
        self.link, self.names, self.sequence = Link(), dict[str, str](), 0
        self.last: Said | None = None
        feed: Any = running.feed
        feed._link = self.link
        feed.listen(self.signals.append, lambda: None)
        return running

    def name_of(self, signal: Signal) -> str:
        return self.names[signal.raw]

    def say(self, *events: Said) -> None:
        for event in events:
            self.sequence += event != self.last  # who repeats itself says the same number
            self.last = event
            said = {
                "sequence": self.sequence,
                "start": "2026-11-30T08:10:00-06:00",
                "valid_until": "2026-11-30T15:10:00Z",
                "kind": event.kind,
                event.key: event.value,
            }
            text = json.dumps(said)
            self.names[text] = event.name
            self.say_raw(text.encode())

    def say_older(self, event: Said) -> None:
        now, self.sequence = self.sequence, self.sequence - 2
        self.say(event)
        self.sequence = now

    def say_raw(self, message: bytes) -> None:
        self.link.say(MqttMessage("grid/limit", message, retained=False))

    def heard(self) -> list[Signal]:
        return self.signals
