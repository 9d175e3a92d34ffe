"""The sample that feeds report back: what is missing is None, and never 0."""

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from gridaware.clock import ManualClock
from gridaware.control.ports import FeedTelemetry
from gridaware.control.state import EventTrack, State
from gridaware.domain.event import Clocks, EventState, GridEvent
from gridaware.domain.reading import Boundary, Method, Quality, Reading
from gridaware.domain.signal import EventRequest, Quantity, TargetSpec
from gridaware.wiring.telemetry import report_to_feeds

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Feeds:
    """Those that report, and what they got."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.taken: dict[str, FeedTelemetry] = {}

    def reporting(self) -> tuple[str, ...]:
        return self.names

    def report(self, feed_id: str, telemetry: FeedTelemetry) -> None:
        self.taken[feed_id] = telemetry


def event(feed: str, name: str, state: EventState) -> EventTrack:
    request = EventRequest(NOW, None, TargetSpec(Quantity.LIMIT_WATTS, 1.0))
    made = GridEvent(
        f"{feed}.{name}", feed, "p", name, 0, request, state, "", NOW, NOW, Clocks(0.0)
    )
    return EventTrack(made)


def sample(state: State, *feeds: str) -> dict[str, FeedTelemetry]:
    taken: Any = Feeds(*feeds)
    book: Any = SimpleNamespace()
    report_to_feeds(taken, state, book, ManualClock(NOW))
    result: dict[str, FeedTelemetry] = taken.taken
    return result


def test_a_site_nobody_reads_has_no_watts_rather_than_none_of_them() -> None:
    told = sample(State(), "vtn")["vtn"]
    assert (told.site_watts, told.flexible_watts, told.quality) == (None, None, "")


def test_a_missing_reading_is_missing_and_a_good_one_is_what_was_read() -> None:
    state = State()
    state.meter_watts = 84_000.0
    state.reading = Reading(84_000.0, NOW, Boundary.SITE, Method.METER)
    told = sample(state, "vtn")["vtn"]
    assert (told.site_watts, told.quality, told.at) == (84_000.0, "good", NOW)
    state.reading = replace(state.reading, quality=Quality.MISSING)
    assert sample(state, "vtn")["vtn"].site_watts is None


def test_each_feed_hears_of_its_own_events_that_go_on() -> None:
    state = State()
    tracks = [
        event("vtn", "a", EventState.HOLDING),
        event("vtn", "b", EventState.RAMPING_UP),
        event("vtn", "c", EventState.SETTLED),
        event("other", "d", EventState.SCHEDULED),
    ]
    state.events = {track.event.event_id: track for track in tracks}
    told = sample(state, "vtn", "other")
    assert [e.source_id for e in told["vtn"].events] == ["a", "b"]
    assert [e.source_id for e in told["other"].events] == ["d"]


def test_where_nobody_reports_nothing_is_computed() -> None:
    assert sample(State()) == {}
