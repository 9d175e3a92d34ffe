"""What a price or a carbon intensity asks for while it is beyond a threshold: past, now and ahead.

A series says what a quantity is from when to when, often for hours to come. Where it is beyond the
threshold there is a span, and a span is an event: announced before it begins, revised when the
forecast moves, and taken back only on evidence. What is not known (a series that ends, a gap, a
page that fails) is evidence of nothing: what stands then stays as it is, to its end.

An event keeps its name while the span it came from shifts, so that a new forecast revises it and
does not begin another beside it; once taken back it comes again under a new one. No event is
shorter than ``hold_minutes``.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from pydantic import Field, model_validator

from gridaware.domain.errors import Unavailable
from gridaware.domain.signal import Signal
from gridaware.feeds.conditions import Asking, Outage, beyond
from gridaware.feeds.ids import source_id
from gridaware.feeds.kind import FeedContext
from gridaware.feeds.series import Point, covering

__all__ = ["Asked", "Asks", "Span", "Threshold", "follow", "spans"]

ASKED_AT_MOST = 300
"""Of each threshold: those of sixteen still fit into a feed's memory."""
_EVER = datetime.min.replace(tzinfo=UTC)
NAMES_KEPT = timedelta(days=2)
"""What is over or was taken back does not begin again under its name: so long that is known."""


class Threshold(Asking):
    """One threshold, and what is asked for while the quantity is beyond it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")
    above: float | None = Field(default=None, ge=-1e6, le=1e6)
    below: float | None = Field(default=None, ge=-1e6, le=1e6)
    clear: float | None = Field(default=None, ge=-1e6, le=1e6)
    """Over only once it is back at this, or behind it; by default at the threshold itself."""
    join_minutes: float = Field(default=0.0, ge=0, le=1440)
    """Two spans with no more than this between them are one."""
    least_minutes: float = Field(default=0.0, ge=0, le=1440)
    """A span that is shorter asks for nothing."""
    hold_minutes: float = Field(default=15.0, ge=0, le=1440)
    """No event is shorter, and what has begun is not taken back sooner."""

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if (self.above is None) == (self.below is None):
            raise ValueError("give one of above and below")
        above, below, clear = self.above, self.below, self.clear
        if clear is not None and (
            (above is not None and clear > above) or (below is not None and clear < below)
        ):
            raise ValueError("clear lies on the wrong side of the threshold")
        return self

    def shown(self, value: float, *, stands: bool) -> bool:
        """Whether a value is beyond the threshold, or, once it was, not yet back."""
        limit = self.above if self.above is not None else self.below
        assert limit is not None
        return bool(beyond(value, limit, self.clear, below=self.below is not None, stands=stands))


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time beyond the threshold."""

    start: datetime
    end: datetime


def spans(
    points: Sequence[Point], rule: Threshold, standing: Sequence[Span] = (), now: datetime = _EVER
) -> list[Span]:
    """Where the quantity is beyond the threshold, by a series in order.

    ``standing`` is what was asked before and still stands: there the quantity must come back to
    ``clear``, also where the series begins anew with the present or its forecast wavers; and what
    is left of a long span is not too short.
    """
    found: list[Span] = []
    stands = False
    for point in points:
        stands = (stands and found[-1].end == point.start) or any(
            span.start <= max(point.start, now) < span.end for span in standing
        )
        shown = rule.shown(point.value, stands=stands)
        if shown and found and found[-1].end == point.start:
            found[-1] = replace(found[-1], end=point.end)
        elif shown:
            found.append(Span(point.start, point.end))
        stands = shown
    joined: list[Span] = []
    for span in found:
        if joined and span.start - joined[-1].end <= timedelta(minutes=rule.join_minutes):
            joined[-1] = replace(joined[-1], end=span.end)
        else:
            joined.append(span)
    least = timedelta(minutes=rule.least_minutes)
    first = joined[:1] if joined and joined[0].start == points[0].start else []
    past = [
        each.start for span in first for each in standing if each.start <= span.start < each.end
    ]
    return [
        span
        for span in joined
        if span.end - (min(past, default=span.start) if span in first else span.start) >= least
    ]


@dataclass(frozen=True, slots=True)
class Asked:
    """One event that a span became."""

    name: str
    start: datetime
    end: datetime
    revision: int = 0
    taken_back: bool = False

    def revised(self, start: datetime, end: datetime) -> "Asked":
        """The same event from and until other times; itself where nothing changes."""
        if (start, end, False) == (self.start, self.end, self.taken_back):
            return self
        return Asked(self.name, start, end, self.revision + 1)

    def withdrawn(self) -> "Asked":
        """The same event, taken back."""
        return replace(self, revision=self.revision + 1, taken_back=True)


def follow(
    before: Sequence[Asked], points: Sequence[Point], rule: Threshold, now: datetime
) -> list[Asked]:
    """What is asked after a fresh reading of the series. Pure.

    Args:
        before: what was asked before.
        points: the series, in order.
        rule: the threshold.
        now: by our clock.

    Returns:
        What stands; behind it what was taken back, so that what replaces an event is heard before
        that event ends, and what is over, for its name.
    """
    free = [each for each in before if each.end > now and not each.taken_back]
    closed = [each for each in before if each not in free and _kept_until(each) > now]
    used = {each.name for each in (*free, *closed)}
    after: list[Asked] = []
    found_spans = spans(points, rule, [Span(each.start, each.end) for each in free], now)
    for span in _held(found_spans, rule, free, now):
        found = next((each for each in free if _goes_on(each, span, rule, now)), None)
        if found is None:
            after.append(_new(span, rule, now, used))
        else:
            free.remove(found)
            after.append(_moved(found, span, points, now))
    after += [_over(each, points, rule, now) for each in free]
    standing = sorted((each for each in after if not each.taken_back), key=lambda e: e.start)
    closed += [each for each in after if each.taken_back]
    return [*standing, *sorted(closed, key=_kept_until, reverse=True)]


def _kept_until(asked: Asked) -> datetime:
    """Only a name without the moment of its announcement can be wanted again."""
    return asked.end + (NAMES_KEPT if asked.name.endswith("Z") else timedelta())


def _held(
    found: Sequence[Span], rule: Threshold, free: Sequence[Asked], now: datetime
) -> list[Span]:
    """The spans that are not over, none shorter than is held, none over the next."""
    begun = [each for each in free if each.start <= now]
    held: list[Span] = []
    for span in found:
        if span.end <= now:
            continue
        starts = [each.start for each in begun if _goes_on(each, span, rule, now)]
        start = min(starts, default=max(span.start, now))
        end = max(span.end, start + timedelta(minutes=rule.hold_minutes))
        if held and span.start <= held[-1].end:
            held[-1] = replace(held[-1], end=max(span.end, held[-1].end))
        else:
            held.append(Span(span.start, end))
    return held


def _goes_on(asked: Asked, span: Span, rule: Threshold, now: datetime) -> bool:
    """Whether a span is the one that an event came from, shifted."""
    if asked.start > now:
        return span.start < asked.end and span.end > asked.start
    return span.start <= max(now, _held_until(asked, rule)) and span.end > asked.start


def _new(span: Span, rule: Threshold, now: datetime, used: Collection[str]) -> Asked:
    name = f"{rule.name}-{span.start:%Y-%m-%dT%H.%MZ}"
    if name in used:
        name = source_id(f"{name}.{now:%d%H%M%S}")
    return Asked(name, max(span.start, now), span.end)


def _moved(asked: Asked, span: Span, points: Sequence[Point], now: datetime) -> Asked:
    start = asked.start if asked.start <= now else max(span.start, now)
    end = span.end
    if covering(points, end) is None:
        end = max(end, asked.end)  # the series ends there; the span may go on
    return asked.revised(start, end)


def _over(asked: Asked, points: Sequence[Point], rule: Threshold, now: datetime) -> Asked:
    """An event with no span any more."""
    known = covering(points, max(asked.start, now))
    if known is None or known.start <= now < asked.start:
        return asked  # that a value of the present may last says nothing of what is ahead
    if asked.start > now:
        return asked.withdrawn()
    held = _held_until(asked, rule)
    if held <= now:
        return asked.withdrawn()
    return asked.revised(asked.start, min(asked.end, held))


def _held_until(asked: Asked, rule: Threshold) -> datetime:
    return asked.start + timedelta(minutes=rule.hold_minutes)


class Asks:
    """The thresholds of one feed, and what each asked, kept over restarts. One thread at a time."""

    def __init__(
        self, context: FeedContext, rules: Sequence[Threshold], horizon: timedelta
    ) -> None:
        self._context = context
        self._rules = {rule.name: rule for rule in rules}
        self._horizon = horizon
        kept = context.memory.get("asked")
        self._asked = _kept(kept, self._rules) if isinstance(kept, dict) else {}
        self._outage = Outage()
        self._raw = ""

    def follow(self, points: Sequence[Point], raw: str) -> None:
        """Take a fresh reading of the series in."""
        now = self._context.clock.wall()
        near = [point for point in points if point.start <= now + self._horizon]
        self._raw = raw
        for name, rule in self._rules.items():
            asked = follow(self._asked.get(name, ()), near, rule, now)
            self._asked[name] = tuple(asked[:ASKED_AT_MOST])

    def signals(
        self, received_at: datetime, received_seconds: float, failure: Unavailable | None = None
    ) -> list[Signal]:
        """What stands now, and what was taken back; made durable before it is handed over.

        Args:
            received_at: when the series was asked for.
            received_seconds: the same, monotonic.
            failure: why there is no fresh reading.

        Raises:
            Unavailable: it cannot be made durable; or ``failure``, once what stands was said in a
                few polls, so that the feed is shown to be blind while that is held.
        """
        now = self._context.clock.wall()
        self._context.memory.put("asked", {n: _plain(each) for n, each in self._asked.items()})
        found = [
            Signal(
                self._context.feed_id,
                each.name,
                each.revision,
                received_at,
                received_seconds,
                None if each.taken_back else self._rules[name].request(each.start, each.end),
                self._raw,
            )
            for name, asked in self._asked.items()
            for each in asked
            if each.end > now
        ]
        self._outage.check(found, failure)
        return found

    def held(self) -> list[str]:
        """The names of what stands, for the one who is told that nothing fresh came."""
        now = self._context.clock.wall()
        return [
            each.name
            for asked in self._asked.values()
            for each in asked
            if each.start <= now < each.end and not each.taken_back
        ]


def _plain(asked: Sequence[Asked]) -> list[list[Any]]:
    return [
        [each.name, each.start.isoformat(), each.end.isoformat(), each.revision, each.taken_back]
        for each in asked
    ]


def _kept(kept: dict[str, Any], rules: dict[str, Threshold]) -> dict[str, tuple[Asked, ...]]:
    """What was kept of the thresholds that there still are; what is broken was never asked."""
    found: dict[str, tuple[Asked, ...]] = {}
    for name, asked in kept.items():
        try:
            if name in rules:
                found[name] = tuple(
                    Asked(str(each), _time(start), _time(end), int(revision), bool(taken))
                    for each, start, end, revision, taken in asked
                )
        except (TypeError, ValueError):
            continue
    return found


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
