"""A sender of signed load targets; the broker between is left out, and has tests of its own."""

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from feed_rigs.base import NOW, Rig, Said
from gridaware.clock import ManualClock
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds.mqtt import MqttMessage
from gridaware.feeds.runner import RunningFeed
from gridaware.sim.grid.dsx import Isv, load_target

FIRST = (10, 50)
"""Minutes after 14:00Z: of two targets for one time the newer would replace the older."""


def text_of(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


class Link:
    """Takes the place of a connection: what is said is heard at once."""

    def serve(self, _topics: Any, on_message: Callable[[MqttMessage], None], *_: Any) -> None:
        self.say = on_message


class DsxRig(Rig):
    kind = "dsx"
    meant = TargetSpec(Quantity.LIMIT_WATTS, 4e6)
    is_pushed = True
    asks_for_anything = False
    numbers_revisions = False
    orders_words = True
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

    def prepare(self, *events: Said) -> None:
        for event in events:
            if event not in self.messages:
                count = len(self.messages)
                times = FIRST if count == 0 else (48 + 2 * count, 50 + 2 * count)
                self.messages[event] = self.message(event, times)

    def message(self, event: Said, times: tuple[int, int], **otherwise: str) -> bytes:
        said = str(uuid.uuid4())
        self.names[said] = event.name
        start, stop = (text_of(NOW + timedelta(minutes=m)) for m in times)
        target = load_target(100 * event.value, start=start, end=stop, tags=["main-a"])
        return self.isv.message([target], id=said, **otherwise)

    def say(self, *events: Said) -> None:
        for event in events:
            self.prepare(event)
            self.say_raw(self.messages[event])

    def say_older(self, event: Said) -> None:
        before = text_of(NOW - timedelta(minutes=1))
        self.say_raw(self.message(event, FIRST, time=before))

    def say_raw(self, message: bytes) -> None:
        self.link.say(MqttMessage(self.isv.topic, message, retained=False))

    def heard(self) -> list[Signal]:
        return self.signals
