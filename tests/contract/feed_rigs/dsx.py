"""A sender of signed load targets; the broker between is left out, and has tests of its own."""

import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from feed_rigs.base import NOW, Rig, Said
from gridaware.clock import ManualClock
from gridaware.domain.signal import Signal
from gridaware.feeds.mqtt import MqttMessage
from gridaware.feeds.runner import RunningFeed
from gridaware.sim.grid.dsx import Isv, load_target

FIRST = (10, 50)
"""Minutes after 14:00Z: of two targets for one time the newer would replace the older."""


class Link:
    """Takes the place of a connection: what is said is heard at once."""

    def serve(self, _topics: Any, on_message: Callable[[MqttMessage], None], *_: Any) -> None:
        self.say = on_message


class DsxRig(Rig):
    kind = "dsx"
    is_pushed = True
    asks_for_anything = False
    numbers_revisions = False
    says_priority = False
    begins_at_once = True
    """A target begins at the earliest when it was said: what is past is past."""

    def __init__(self, clock: ManualClock, folder: Path) -> None:
        self.isv = Isv("acme-energy", clock)
        key = folder / "isv.pem"
        key.write_text(self.isv.public_pem)
        key.chmod(0o600)
        self.messages: dict[Said, bytes] = {}
        self.names: dict[str, str] = {}
        super().__init__(clock, folder)

    def settings(self) -> dict[str, object]:
        return {
            "url": "mqtt://127.0.0.1:1",
            "isv_id": "acme-energy",
            "agent_id": "site-7",
            "feeds": {"main-a": {"default_kw": 6000.0}},
            "keys": {"isv-1": f"file:{self.folder / 'isv.pem'}"},
        }

    def open(self) -> RunningFeed:
        running = super().open()
        self.link = Link()
        feed: Any = running.feed
        feed._link = self.link
        feed.listen(self.signals.append, lambda: None)
        return running

    def name_of(self, signal: Signal) -> str:
        return self.names[signal.source_id[:36]]

    def say(self, *events: Said) -> None:
        for event in events:
            if event not in self.messages:
                count = len(self.messages)
                begin, end = FIRST if count == 0 else (48 + 2 * count, 50 + 2 * count)
                said = str(uuid.uuid4())
                self.names[said] = event.name
                start, stop = (
                    (NOW + timedelta(minutes=m)).isoformat().replace("+00:00", "Z")
                    for m in (begin, end)
                )
                target = load_target(4000, start=start, end=stop, tags=["main-a"])
                self.messages[event] = self.isv.message([target], id=said)
            self.say_raw(self.messages[event])

    def say_raw(self, message: bytes) -> None:
        self.link.say(MqttMessage(self.isv.topic, message, retained=False))

    def heard(self) -> list[Signal]:
        return self.signals
