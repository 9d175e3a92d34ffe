"""A scripted VTN of OpenADR 2.0b, and the levels of SIMPLE."""

import re
import weakref
from collections import deque
from datetime import datetime
from pathlib import Path

from feed_rigs.base import Rig, Said
from gridaware.clock import ManualClock
from gridaware.control.ports import FeedReport
from gridaware.domain.errors import GridawareError
from gridaware.domain.event import Clocks, EventState, GridEvent
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds.kind import Polls
from gridaware.sim.grid.vtn2 import DrEvent, DrSignal, Vtn2


def decided(signal: Signal, status: str, at: datetime) -> FeedReport:
    """What control tells the feed about one of its signals."""
    assert signal.request is not None
    event = GridEvent(
        event_id=f"grid.{signal.source_id}",
        feed_id="grid",
        programme_id="p",
        source_id=signal.source_id,
        revision=signal.revision,
        request=signal.request,
        state=EventState.SCHEDULED,
        reason="Accepted",
        received_at=signal.received_at,
        state_since=signal.received_at,
        clocks=Clocks(signal.received_seconds),
    )
    return FeedReport(event, status, at)


class OpenAdr2bRig(Rig):
    kind = "openadr2b"
    meant = TargetSpec(Quantity.REDUCTION_FRACTION, 0.25)  # the second level
    asks_for_anything = False
    numbers_revisions = False
    orders_words = True
    tells_unasked = True

    def __init__(self, clock: ManualClock, folder: Path) -> None:
        self.vtn = Vtn2()
        weakref.finalize(self, self.vtn.close)
        self.standing: dict[str, DrEvent] = {}
        super().__init__(clock, folder)

    def settings(self) -> dict[str, object]:
        return {"vtn_url": self.vtn.url}

    def name_of(self, signal: Signal) -> str:
        found = re.search("<ei:eventID>(.*?)</ei:eventID>", signal.raw)
        assert found is not None
        return found[1]

    def say(self, *events: Said) -> None:
        for event in events:
            start = "2026-11-30T08:10:00-06:00"
            self.standing[event.name] = DrEvent(
                event.name, start, modification=event.revision, priority=2
            )
        self.vtn.say(*self.standing.values())

    def say_older(self, event: Said) -> None:
        signals = [DrSignal(intervals=[("PT1H", 1)])]
        self.vtn.say(DrEvent(event.name, "2026-11-30T08:10:00-06:00", signals=signals, priority=2))

    def say_raw(self, message: bytes) -> None:
        feed = self.running.feed
        assert isinstance(feed, Polls)
        for kind in ("oadrPoll", "oadrRequestEvent"):
            self.vtn.replies[kind] = deque([message])
        try:
            feed.poll()
        except GridawareError as error:
            self.running.refused(error, "")
        self.vtn.replies.clear()
