"""A master's limits, written straight at the outstation; the wire has tests of its own."""

import json
from typing import Any

from feed_rigs.base import Rig, Said
from gridaware.domain.errors import InvalidInput
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds.runner import RunningFeed


class Dnp3Rig(Rig):
    kind = "dnp3"
    meant = TargetSpec(Quantity.LIMIT_WATTS, 100e3)
    is_pushed = True
    asks_for_anything = False
    numbers_revisions = False
    begins_at_once = True
    tells_unasked = True

    def settings(self) -> dict[str, object]:
        return {"neutral_kw": 1000.0, "limit_minutes": 60.0}

    def open(self) -> RunningFeed:
        running = super().open()
        self.names: dict[str, str] = {}
        self.last: Said | None = None
        feed: Any = running.feed
        feed._emit = self.signals.append
        return running

    def name_of(self, signal: Signal) -> str:
        return self.names[signal.source_id + f"/{signal.revision}"]

    def say(self, *events: Said) -> None:
        feed: Any = self.running.feed
        for event in events:
            if event == self.last:
                continue  # what is written once more is another writing: see the kind's own tests
            self.last = event
            feed.command_limit(100.0, select=False)
            said = self.signals[-1]
            self.names[said.source_id + f"/{said.revision}"] = event.name

    def say_raw(self, message: bytes) -> None:
        feed: Any = self.running.feed
        try:
            value = float(json.loads(message))
        except (ValueError, TypeError, RecursionError):
            value = float("nan")
        refusal = feed.command_limit(value, select=False)
        assert refusal is not None
        # The master is answered; what dnp3py cannot read never comes here.
        self.running.refused(InvalidInput("number-not-finite", refusal.value), "")

    def heard(self) -> list[Signal]:
        return self.signals
