"""What a rig is: one feed kind together with its grid side."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gridaware.clock import ManualClock
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds.kind import Polls
from gridaware.feeds.runner import RunningFeed

NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
SECRET = b"0123456789abcdef-contract"


@dataclass(frozen=True)
class Said:
    """One event as a grid operator means it: an hour from 14:10Z on."""

    name: str = "dr-1"
    revision: int = 0
    key: str = "reduce_percent"
    value: float = 40
    kind: str = "live"

    def body(self) -> dict[str, object]:
        return {
            "id": self.name,
            "revision": self.revision,
            "kind": self.kind,
            "start": "2026-11-30T08:10:00-06:00",
            "duration": "PT1H",
            "target": {self.key: self.value},
            "priority": 2,
        }


class Rig:
    """One kind with its grid side: ``say`` speaks, ``heard`` returns what control would get."""

    kind = ""
    meant = TargetSpec(Quantity.REDUCTION_FRACTION, 0.4)
    """What an event asks for as it is said by default."""
    asks_for_anything = True
    """Its grid side may ask for any target; else only for what the feed's settings say."""
    numbers_revisions = True
    """Its messages carry revision numbers; else changes are counted by us."""
    says_priority = True
    begins_at_once = False
    """Its messages have no start of their own: what is asked begins when it comes."""
    tells_unasked = False
    """It tells its grid side without a setting that says whom."""
    is_pushed = False
    """After a restart its grid side has to say everything again."""
    orders_words = False
    """Its messages say, by other than a revision, which of two is the newer."""

    def __init__(self, clock: ManualClock, folder: Path) -> None:
        self.clock = clock
        self.folder = folder
        self.signals: list[Signal] = []
        self.refused: list[tuple[str, str, str, str]] = []
        self.running = self.open()

    def name_of(self, signal: Signal) -> str:
        """What the grid side called it: the beginning of its source id, or else where to look."""
        return signal.source_id

    def settings(self) -> dict[str, object]:
        raise NotImplementedError

    def say(self, *events: Said) -> None:
        raise NotImplementedError

    def say_raw(self, message: bytes) -> None:
        """Say something that is no event."""
        raise NotImplementedError

    def prepare(self, *events: Said) -> None:
        """Decide when events are to be, where what is said first is to be first."""

    def say_older(self, event: Said) -> None:
        """Say something of the time of an event that is older than all that was said."""
        raise NotImplementedError

    def open(self) -> RunningFeed:
        spec = FeedSpec("grid", self.kind, "emergency", settings_json=json.dumps(self.settings()))
        return RunningFeed(spec, NOW, self.clock, lambda *what: self.refused.append(what))

    def restart(self) -> None:
        self.running = self.open()
        self.signals.clear()

    def heard(self) -> list[Signal]:
        if isinstance(self.running.feed, Polls):
            self.running.poll_once(self.signals.append)
        return self.signals
