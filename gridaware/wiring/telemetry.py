"""What feeds report back to the grid's side: a sample of the site about once a second."""

from datetime import datetime

from gridaware.clock import Clock
from gridaware.control.flexible import flexible_watts
from gridaware.control.ports import FeedTelemetry
from gridaware.control.state import State
from gridaware.domain.event import EventState, GridEvent
from gridaware.domain.reading import Quality
from gridaware.feeds.runner import FeedRunner
from gridaware.planning.model import CurveBook

__all__ = ["report_to_feeds"]


def report_to_feeds(feeds: FeedRunner, state: State, book: CurveBook, clock: Clock) -> None:
    """Hand a sample to every feed that reports; returns at once, and costs nothing without one."""
    reporting = feeds.reporting()
    if not reporting:
        return
    reading = state.reading
    seen = reading is not None and reading.quality is not Quality.MISSING
    site_watts = state.meter_watts if seen else None
    flexible = flexible_watts(state, book) if state.gpus else None
    for feed_id in reporting:
        feeds.report(
            feed_id,
            FeedTelemetry(
                at=clock.wall(),
                seconds=clock.monotonic_seconds(),
                site_watts=site_watts,
                quality="" if reading is None else reading.quality.value,
                flexible_watts=flexible,
                act=state.site.act,
                events=_events_of(state, feed_id, clock.wall()),
            ),
        )


def _events_of(state: State, feed_id: str, now: datetime) -> tuple[GridEvent, ...]:
    events = (track.event for track in state.events.values())
    return tuple(e for e in events if e.feed_id == feed_id and _goes_on(e, now))


def _goes_on(event: GridEvent, now: datetime) -> bool:
    if event.state is EventState.OPTED_OUT:
        return event.request.end is None or event.request.end > now
    return event.state.open or event.state is EventState.RAMPING_UP
