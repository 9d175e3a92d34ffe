"""What ``grid.powerstate.status.v1`` says: the whole state of every power feed, as it is. Pure.

Only the whole site is metered: with several power feeds each is told its share of the site's draw,
by what it may draw, so that all comply where the site does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from gridaware.control.ports import FeedTelemetry
from gridaware.domain.event import EventState
from gridaware.feeds.dsx.book import Book
from gridaware.feeds.dsx.pieces import name_of
from gridaware.feeds.dsx.settings import PowerFeed
from gridaware.feeds.dsx.timeline import Load, Segment, site_asks

__all__ = ["Phase", "SiteView", "phase_of", "rfc3339", "snapshot", "transitions"]

TOLERANCE = 1.005
"""Of a limit, before it counts as broken: half a percent, as meters have."""

Phase = str
"""``rest``, ``down``, ``hold`` or ``up``."""

_TRANSITIONS: Mapping[tuple[Phase, Phase], tuple[str, ...]] = {
    ("rest", "down"): ("start_ramp_down",),
    ("hold", "down"): ("start_ramp_down",),
    ("up", "down"): ("start_ramp_down",),
    ("down", "hold"): ("end_ramp_down",),
    ("rest", "hold"): ("start_ramp_down", "end_ramp_down"),
    ("up", "hold"): ("start_ramp_down", "end_ramp_down"),
    ("down", "up"): ("start_ramp_up",),
    ("hold", "up"): ("start_ramp_up",),
    ("rest", "up"): ("start_ramp_up",),
    ("up", "rest"): ("end_ramp_up",),
    ("down", "rest"): ("start_ramp_up", "end_ramp_up"),
    ("hold", "rest"): ("start_ramp_up", "end_ramp_up"),
}


@dataclass(frozen=True, slots=True)
class SiteView:
    """What is known of the site beside the schedule."""

    at: datetime
    load_watts: float
    telemetry: FeedTelemetry

    @property
    def phase(self) -> Phase:
        """Where it is in carrying out what is asked."""
        return phase_of(self.telemetry)


def phase_of(telemetry: FeedTelemetry) -> Phase:
    """Where the site is in carrying out the feed's events."""
    states = {event.state for event in telemetry.events}
    for state, phase in (
        (EventState.RAMPING_DOWN, "down"),
        (EventState.HOLDING, "hold"),
        (EventState.RAMPING_UP, "up"),
    ):
        if state in states:
            return phase
    return "rest"


def transitions(before: Phase, after: Phase) -> tuple[str, ...]:
    """What happened between two looks, in the schema's words, in order."""
    return _TRANSITIONS.get((before, after), ())


def snapshot(
    book: Book, feeds: Mapping[str, PowerFeed], view: SiteView, trigger: str
) -> dict[str, object]:
    """The data of a status.

    Args:
        book: the schedule.
        feeds: the power feeds.
        view: the site.
        trigger: why it is told, in the schema's words (``target_set``, ``periodic``, …).
    """
    limits = {tag: _limit_watts(_ruling(book, tag, view.at), feed) for tag, feed in feeds.items()}
    whole = sum(limits.values())
    enforced = _enforced(book, feeds, view)
    return {
        "snapshot_time": rfc3339(view.at),
        "feeds": {
            tag: _state(
                book, tag, feed, view, trigger,
                load_watts=view.load_watts * limits[tag] / whole, enforced=enforced,
            )
            for tag, feed in feeds.items()
        },
    }  # fmt: skip


def rfc3339(when: datetime) -> str:
    """``when`` with a ``Z``."""
    return when.isoformat().replace("+00:00", "Z")


def _state(
    book: Book,
    tag: str,
    feed: PowerFeed,
    view: SiteView,
    trigger: str,
    *,
    load_watts: float,
    enforced: bool,
) -> dict[str, object]:
    rules = _ruling(book, tag, view.at)
    started = [
        event.started_at
        for event in view.telemetry.events
        if event.started_at is not None
        and (event.state.acting or event.state is EventState.RAMPING_UP)
    ]
    limited = rules is not None and rules.watts is not None
    most_kw = feed.default_kw if feed.most_kw is None else feed.most_kw
    return {
        "metadata": {
            "power_minimum": _kilowatts(feed.least_kw * 1e3),
            "power_maximum": _kilowatts(most_kw * 1e3),
            "default_constraint": _kilowatts(feed.default_kw * 1e3),
        },
        "targets": [
            _target(segment, active=enforced and segment.covers(view.at))
            for segment in book.timelines.get(tag, ())
            if segment.load.watts is not None and (segment.end is None or segment.end > view.at)
        ],
        "calculated_load": _kilowatts(load_watts),
        "in_flight": view.phase in {"down", "up"},
        "event": trigger,
        "power_event_start_time": rfc3339(min(started)) if started else None,
        "compliant": not limited or load_watts <= TOLERANCE * _limit_watts(rules, feed),
    }


def _target(segment: Segment, *, active: bool) -> dict[str, object]:
    load = segment.load
    interval = {"start_time": rfc3339(segment.start)}
    if segment.end is not None:
        interval["end_time"] = rfc3339(segment.end)
    return {
        "active": active,
        "load_constraint": {"value": load.value, "unit": load.unit},
        "interval": interval,
        "strategy": {"best_effort": load.best_effort},
        "correlation_id": load.correlation_id,
    }


def _enforced(book: Book, feeds: Mapping[str, PowerFeed], view: SiteView) -> bool:
    """Whether control carries out what is asked now: not where it was opted out of, or refused."""
    acting = {event.source_id for event in view.telemetry.events if event.state.acting}
    defaults = {tag: feed.default_kw * 1e3 for tag, feed in feeds.items()}
    return any(
        name_of(ask) in acting
        for ask in site_asks(book.timelines, defaults)
        if ask.start <= view.at and (ask.end is None or view.at < ask.end)
    )


def _ruling(book: Book, tag: str, at: datetime) -> Load | None:
    covering = (s.load for s in book.timelines.get(tag, ()) if s.covers(at))
    return next(covering, None)


def _limit_watts(load: Load | None, feed: PowerFeed) -> float:
    return feed.default_kw * 1e3 if load is None or load.watts is None else load.watts


def _kilowatts(watts: float) -> dict[str, object]:
    return {"value": watts / 1e3, "unit": "kilowatt"}
