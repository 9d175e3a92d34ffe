"""What an event's report descriptors ask for, made of samples of what the site draws. Pure.

Version 3 has no opt-in and no opt-out: a report is the only answer. A value that was not measured
is said to be missing (``DATA_QUALITY``), and never 0. Energy is what power was measured for; of an
interval that was not seen nearly whole, none is told.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gridaware.control.ports import FeedTelemetry
from gridaware.domain.event import EventState, GridEvent
from gridaware.feeds.openadr3.objects import Json
from gridaware.feeds.openadr3.reading import EventReading
from gridaware.feeds.openadr3.requests import ReportRequest

__all__ = ["SUPPORTED", "Due", "EventReports", "answerable", "operating_state"]

SUPPORTED = (
    "USAGE",
    "DEMAND",
    "BASELINE",
    "OPERATING_STATE",
    "LOAD_SHED_DELTA_AVAILABLE",
    "DATA_QUALITY",
)
GAP_SECONDS = 5.0
"""Samples further apart leave a hole."""
WHOLE = 0.95
"""Of an interval, for its energy."""
HALF = 0.5
"""Of an interval, for its mean power, which is then an estimate."""
INTERVALS_AT_MOST = 1000
_ENERGY, _POWER = "KWH", "KW"


@dataclass(frozen=True, slots=True)
class Due:
    """One report that is due."""

    event: EventReading
    requests: tuple[ReportRequest, ...]
    intervals: tuple[Json, ...]

    @property
    def name(self) -> str:
        """The same for the same intervals, whenever it is sent."""
        kinds = "-".join(request.payload_type for request in self.requests)
        start = self.intervals[0]["intervalPeriod"]["start"]
        return f"{self.event.event_id}-{start}-{kinds}"

    @property
    def descriptors(self) -> list[Json]:
        """What its payloads are."""
        return [
            {
                "payloadType": each.payload_type,
                **({"readingType": each.reading_type} if each.reading_type else {}),
                **({"units": each.units} if each.units else {}),
            }
            for each in self.requests
        ]


@dataclass(slots=True)
class _Interval:
    """What was seen of one interval."""

    number: int
    start: datetime
    end: datetime
    seen_seconds: float = 0.0
    joules: float = 0.0
    peak_watts: float = -math.inf
    least_watts: float = math.inf
    last_watts: float | None = None
    guessed: bool = False
    bad: bool = False
    shed: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Sum and number of what could be given up."""
    baseline_watts: float | None = None
    state: str = "NORMAL"

    @property
    def share(self) -> float:
        """How much of it was seen."""
        return self.seen_seconds / max((self.end - self.start).total_seconds(), 1e-6)

    @property
    def quality(self) -> str:
        """In the specification's words."""
        if self.share < HALF:
            return "MISSING"
        if self.bad:
            return "BAD"
        return "OK" if self.share >= WHOLE and not self.guessed else "ESTIMATED"


class EventReports:
    """The reports of one event, sample by sample.

    Args:
        reading: the event; may be replaced by a later reading of it.
        interval_seconds: length of an interval where the event does not say one.
    """

    def __init__(self, reading: EventReading, interval_seconds: float) -> None:
        self.reading = reading
        self._length = timedelta(seconds=interval_seconds)
        self._current: _Interval | None = None
        self._last: FeedTelemetry | None = None
        self._done: list[_Interval] = []
        self._sent: dict[ReportRequest, tuple[int, int]] = {}
        """(reports, intervals closed when the last was sent) of each request."""
        self._closed = 0
        self._first: datetime | None = None

    def take(self, sample: FeedTelemetry, mine: Sequence[GridEvent]) -> list[Due]:
        """Take one sample; returns the reports that became due.

        Args:
            sample: the site at an instant.
            mine: the grid events that this event became.
        """
        self._first = self._first or sample.at
        span = self._span(sample.at)
        current = self._current
        if current is not None and span != (current.start, current.end):
            self._integrate(current, sample, current.end)
            self._done.append(current)
            del self._done[:-INTERVALS_AT_MOST]
            self._closed += 1
            self._current = current = None
            due = self._due(over=self._over(sample.at))
        else:
            due = []
        if span is not None:
            if current is None:
                self._current = current = _Interval(self._closed, *span)
            self._integrate(current, sample, sample.at)
            self._note(current, sample, mine)
        self._last = sample
        return due

    # ------------------------------------------------------------------------------------------

    def _windows(self) -> list[tuple[datetime, datetime | None]]:
        found = sorted(
            {(part.start, part.end) for part in self.reading.parts},
            key=lambda w: (w[0], w[1] is None, w[1] or w[0]),
        )
        if found:
            return found
        start = self.reading.start or self._first
        return [] if start is None else [(start, self.reading.end)]

    def _span(self, at: datetime) -> tuple[datetime, datetime] | None:
        """The interval of a report that holds ``at``."""
        for start, end in self._windows():
            if start <= at and (end is None or at < end):
                whole = all(each.report_intervals == "INTERVALS" for each in self._requests())
                if end is not None and whole:
                    return start, end
                begin = start + self._length * ((at - start) // self._length)
                until = begin + self._length
                return begin, until if end is None else min(until, end)
        return None

    def _over(self, at: datetime) -> bool:
        ends = [end for _, end in self._windows()]
        return all(end is not None and end <= at for end in ends)

    def _requests(self) -> Iterator[ReportRequest]:
        return (each for each in self.reading.requests if answerable(each))

    def _due(self, *, over: bool) -> list[Due]:
        """Requests that ask for the same intervals now share a report."""
        groups: dict[tuple[int, ...], list[ReportRequest]] = {}
        for request in self._requests():
            reports, at = self._sent.get(request, (0, 0))
            if 0 <= request.repeat <= reports or not self._is_time(request, at, over=over):
                continue
            count = self._closed - at
            if request.interval_count >= 0:
                count = request.interval_count
            self._sent[request] = (reports + 1, self._closed)
            chosen = self._done[-count:] if count else []
            groups.setdefault(tuple(each.number for each in chosen), []).append(request)
        due = []
        for numbers, requests in groups.items():
            chosen = [each for each in self._done if each.number in set(numbers)]
            intervals = tuple(_interval(each, requests) for each in chosen)
            if intervals:
                due.append(Due(self.reading, tuple(requests), intervals))
        return due

    def _is_time(self, request: ReportRequest, sent_at: int, *, over: bool) -> bool:
        if sent_at == 0 and request.start_interval >= 0:
            return self._closed > request.start_interval
        if request.frequency > 0:
            return self._closed - sent_at >= request.frequency or over
        endless = any(end is None for _, end in self._windows())
        return over or endless or request.frequency == 0

    def _integrate(self, interval: _Interval, sample: FeedTelemetry, until: datetime) -> None:
        """Count the time since the last sample, at the power that it said."""
        last = self._last
        if last is None or last.site_watts is None:
            return
        begin = max(last.at, interval.start)
        seconds = (min(until, interval.end) - begin).total_seconds()
        if seconds <= 0 or sample.seconds - last.seconds > GAP_SECONDS:
            return
        interval.seen_seconds += seconds
        interval.joules += last.site_watts * seconds

    def _note(self, interval: _Interval, sample: FeedTelemetry, mine: Sequence[GridEvent]) -> None:
        watts = sample.site_watts
        if watts is not None:
            interval.peak_watts = max(interval.peak_watts, watts)
            interval.least_watts = min(interval.least_watts, watts)
            interval.last_watts = watts
            interval.guessed |= sample.quality != "good"
            interval.bad |= sample.quality == "suspect"
        if sample.flexible_watts is not None:
            interval.shed[0] += sample.flexible_watts
            interval.shed[1] += 1
        for event in mine:
            if event.reference is not None:
                interval.baseline_watts = event.reference.watts
        interval.state = operating_state(sample, mine)


def operating_state(sample: FeedTelemetry, mine: Sequence[GridEvent]) -> str:
    """Our state in the specification's words.

    A site that does not act, or a person who has opted out, says so whether work runs or not.
    """
    running = sample.flexible_watts is None or sample.flexible_watts > 0
    out = [event for event in mine if event.state is EventState.OPTED_OUT or event.opted_out_by]
    if not sample.act or (mine and len(out) == len(mine)):
        return "RUNNING_OPTED_OUT" if running else "IDLE_OPTED_OUT"
    if any(event.state.acting for event in mine):
        return "RUNNING_CURTAILED"
    if any(event.state is EventState.FAILED for event in mine):
        return "ERROR"
    return "RUNNING_NORMAL" if running else "NORMAL"


def answerable(request: ReportRequest) -> bool:
    """Whether we have what it asks for, in the unit that it asks for."""
    units = {"USAGE": (_ENERGY,), "BASELINE": (_POWER, _ENERGY)}.get(
        request.payload_type, (_POWER,)
    )
    plain = request.payload_type in {"OPERATING_STATE", "DATA_QUALITY"}
    known = request.payload_type in SUPPORTED and request.historical
    return known and (plain or request.units is None or request.units.upper() in units)


def _interval(seen: _Interval, requests: Sequence[ReportRequest]) -> Json:
    payloads: list[Json] = []
    missing = False
    for request in requests:
        value = _value(seen, request)
        if value is None:
            missing = True
        else:
            payloads.append({"type": request.payload_type, "values": [value]})
    asked = any(request.payload_type == "DATA_QUALITY" for request in requests)
    if not asked and (missing or seen.quality != "OK"):
        quality = "MISSING" if missing else seen.quality
        payloads.append({"type": "DATA_QUALITY", "values": [quality]})
    seconds = (seen.end - seen.start).total_seconds()
    return {
        "id": seen.number,
        "intervalPeriod": {
            "start": seen.start.isoformat().replace("+00:00", "Z"),
            "duration": f"PT{seconds:g}S" if seconds < 1e6 else f"PT{seconds:.0f}S",
        },
        "payloads": payloads,
    }


def _value(seen: _Interval, request: ReportRequest) -> float | str | None:
    kind = request.payload_type
    if kind == "OPERATING_STATE":
        return seen.state
    if kind == "DATA_QUALITY":
        return seen.quality
    if kind == "LOAD_SHED_DELTA_AVAILABLE":
        return _kilo(seen.shed[0] / seen.shed[1]) if seen.shed[1] else None
    if kind == "BASELINE":
        return _baseline(seen, request)
    if kind == "USAGE":
        return _kilo(seen.joules / 3600) if seen.share >= WHOLE else None
    return _demand(seen, request) if seen.share >= HALF else None


def _demand(seen: _Interval, request: ReportRequest) -> float | None:
    mean = seen.joules / seen.seen_seconds
    by_type: Mapping[str, float | None] = {
        "PEAK": seen.peak_watts,
        "MAX": seen.peak_watts,
        "MIN": seen.least_watts,
        "DIRECT_READ": seen.last_watts,
    }
    found = by_type.get((request.reading_type or "MEAN").upper(), mean)
    return None if found is None or not math.isfinite(found) else _kilo(found)


def _baseline(seen: _Interval, request: ReportRequest) -> float | None:
    if seen.baseline_watts is None:
        return None
    if (request.units or _POWER).upper() == _ENERGY:
        hours = (seen.end - seen.start).total_seconds() / 3600
        return _kilo(seen.baseline_watts * hours)
    return _kilo(seen.baseline_watts)


def _kilo(value: float) -> float:
    return round(value / 1000, 6)
