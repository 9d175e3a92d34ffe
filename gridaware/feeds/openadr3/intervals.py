"""When each interval of an OpenADR 3 event holds (User Guide 7.3 and 7.4).

A period at the event is the default of every interval, and an interval's own overrides it field by
field. An interval without a start follows the one before it. ``event.duration`` repeats the list
until it is full, or cuts it off. A period without a length lasts until the next of its list starts,
or until it is taken back.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo

from gridaware.domain.errors import InvalidInput
from gridaware.feeds.kind import RefusedPart
from gridaware.feeds.openadr3.times import (
    NOW,
    Duration,
    Now,
    after,
    read_duration,
    read_start,
)

__all__ = ["Draw", "Interval", "Period", "Window", "read_interval", "read_period", "windows_of"]

Draw = Callable[[str], float]
"""A number of -1 to 1, uniformly drawn once per name and the same ever after."""
WINDOWS_AT_MOST = 1000
"""Of a repeated list; the later ones are unrolled as time goes on."""
NAME_AT_MOST = 40
AHEAD = timedelta(hours=48)
CYCLE_SECONDS_AT_LEAST = 60.0
SPREAD_AT_MOST = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Period:
    """An ``intervalPeriod``; None = not said."""

    start: datetime | Now | None = None
    duration: Duration | None = None
    spread: Duration | None = None
    """``randomizeStart``, without its sign."""

    @property
    def void(self) -> bool:
        """Whether it is the one that cancels: from the beginning of time, without any length."""
        return self.start is NOW and self.duration is not None and self.duration.zero


@dataclass(frozen=True, slots=True)
class Interval:
    """One entry of an event's list, read as far as its time goes."""

    position: int
    name: str
    """Its id where that is unique in its event, else its position."""
    period: Period | None
    payloads: Sequence[object]
    placeable: bool = True
    """Whether its own period can be read."""


@dataclass(frozen=True, slots=True)
class Window:
    """When one interval holds: half open, in UTC."""

    interval: Interval
    cycle: int
    """Which repetition of the list."""
    start: datetime
    end: datetime | None
    """None = until it is taken back."""
    immediate: bool
    """It starts when it is heard of."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """An interval relative to what it counts from, so that a repetition can be."""

    interval: Interval
    anchor: datetime
    elapsed: Duration
    length: Duration | None
    """None = none was said, or zero."""
    immediate: bool
    shift: timedelta


def read_period(value: object, where: str, zone: tzinfo | None) -> Period | None:
    """An ``intervalPeriod``, with null for what is absent.

    Raises:
        InvalidInput: ``period-malformed``, or a time or duration of it cannot be read.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidInput("period-malformed", f"the period of {where} is not an object")
    start, duration, spread = (value.get(k) for k in ("start", "duration", "randomizeStart"))
    read = Period(
        None if start is None else read_start(start, f"the start of {where}", zone),
        None if duration is None else read_duration(duration, f"the duration of {where}"),
        None
        if spread is None
        else read_duration(spread, f"the randomizeStart of {where}", signed=True),
    )
    return None if read == Period() else read


def read_interval(
    value: object, position: int, seen: set[str], zone: tzinfo | None
) -> tuple[Interval, RefusedPart | None]:
    """One entry of ``intervals``, and what of it cannot be read.

    Without a period that can be read it has no place in time, nor has what follows it; without
    payloads that can, it keeps its place.

    Args:
        value: the entry.
        position: its place in the list.
        seen: the names of those before it; its own is added.
        zone: of times that name none.
    """
    where = f"interval {position}"
    entry: Mapping[str, object] = value if isinstance(value, Mapping) else {}
    given, payloads = entry.get("id"), entry.get("payloads")
    name = str(given) if isinstance(given, str | int) and not isinstance(given, bool) else ""
    if not name or len(name) > NAME_AT_MOST or name in seen:
        name = f"p{position}"
    seen.add(name)
    fault = None
    try:
        if not isinstance(value, Mapping):
            raise InvalidInput("interval-malformed", "it is not an object")
        period = read_period(entry.get("intervalPeriod"), where, zone)
    except InvalidInput as error:
        fault = RefusedPart(where, error.code, error.message)
        return Interval(position, name, None, (), placeable=False), fault
    if payloads is not None and not isinstance(payloads, list):
        fault, payloads = RefusedPart(where, "interval-malformed", "its payloads are no list"), None
    return Interval(position, name, period, payloads or ()), fault


def windows_of(
    default: Period | None,
    intervals: Sequence[Interval],
    lasting: Duration | None,
    *,
    heard_at: datetime,
    now: datetime,
    draw: Draw,
) -> tuple[list[Window], list[RefusedPart]]:
    """When the intervals hold, and which of them have no place in time.

    Args:
        default: the event's own period.
        intervals: its list.
        lasting: ``event.duration``.
        heard_at: what "now" means: when the event was heard of first.
        now: a list that is repeated for ever is unrolled from here to 48 h ahead.
        draw: what moves starts by up to their ``randomizeStart``, either way.
    """
    placed, faults = _place(default or Period(), intervals, heard_at, draw)
    if lasting is None or lasting.zero or not placed:
        return [_window(each, 0, Duration()) for each in _closed(placed)], faults
    return list(_filled(_closed(placed), lasting, now)), faults


def _place(
    default: Period, intervals: Sequence[Interval], heard_at: datetime, draw: Draw
) -> tuple[list[_Placed], list[RefusedPart]]:
    placed: list[_Placed] = []
    faults: list[RefusedPart] = []
    before: _Placed | None = None
    shift = timedelta(0)
    for interval in intervals:
        own = interval.period or Period()
        spread = own.spread or (default.spread if interval.position == 0 else None)
        if not interval.placeable:
            before = None
            continue
        try:
            if spread is not None:
                shift = _shift(spread, heard_at, draw(interval.name))
            before = _placed(interval, default, before, heard_at, shift)
            placed.append(before)
        except InvalidInput as error:
            where = f"interval {interval.position}"
            faults.append(RefusedPart(where, error.code, error.message))
            before = None
    return placed, faults


def _placed(
    interval: Interval,
    default: Period,
    before: _Placed | None,
    heard_at: datetime,
    shift: timedelta,
) -> _Placed:
    own = interval.period or Period()
    start, length = own.start, own.duration
    if length is None:
        length = default.duration
    if length is not None and length.zero:
        length = None
    if interval.position == 0 and (start is None or start is NOW):
        start = default.start or start
        if start is None:
            raise InvalidInput("interval-no-start", "neither it nor the event has a start")
        if start is NOW:
            later = max(shift, timedelta(0))  # nobody can start before it was heard of
            return _Placed(interval, heard_at, Duration(), length, True, later)
    if isinstance(start, datetime):
        return _Placed(interval, start, Duration(), length, False, shift)
    if before is None or before.length is None or before.length.endless:
        raise InvalidInput("interval-follows-nothing", "what it follows has no end")
    elapsed = before.elapsed + before.length
    # A shift of its own moves it from where the one before would have ended unshifted.
    return _Placed(interval, before.anchor, elapsed, length, before.immediate, shift)


def _shift(spread: Duration, heard_at: datetime, drawn: float) -> timedelta:
    far = after(heard_at, spread)
    if far is None or far - heard_at > SPREAD_AT_MOST:
        raise InvalidInput("spread-absurd", "its randomizeStart is more than a week")
    return (far - heard_at) * max(-1.0, min(1.0, drawn if math.isfinite(drawn) else 0.0))


def _closed(placed: Sequence[_Placed]) -> list[_Placed]:
    """Each without a length lasts to the next start of the list, if there is one."""
    starts = sorted({_begin(each, Duration()) for each in placed})
    closed = []
    for each in placed:
        length = each.length
        if length is None:
            begin = _begin(each, Duration())
            later = next((start for start in starts if start > begin), None)
            length = (
                Duration(endless=True)
                if later is None
                else Duration(0, (later - begin).total_seconds())
            )
        closed.append(replace(each, length=length))
    return closed


def _begin(each: _Placed, ahead: Duration) -> datetime:
    at = after(each.anchor, each.elapsed + ahead)
    return datetime.max.replace(tzinfo=UTC) - SPREAD_AT_MOST if at is None else at


def _window(each: _Placed, cycle: int, ahead: Duration) -> Window:
    start = _begin(each, ahead)
    length = each.length or Duration()
    end = after(each.anchor, each.elapsed + ahead + length)
    if end is not None:
        end += each.shift
    return Window(each.interval, cycle, start + each.shift, end, each.immediate and cycle == 0)


def _filled(placed: Sequence[_Placed], lasting: Duration, now: datetime) -> Iterator[Window]:
    """The windows of a list that is cut off, or repeated, to last as long as its event."""
    first = placed[0]
    base = after(first.anchor, first.elapsed) or now
    limit = after(base, lasting)
    cycle = _cycle_of(placed)
    if cycle is None:
        yield from _cut((_window(each, 0, Duration()) for each in placed), limit)
        return
    repeats = after(base, cycle)
    once = repeats is None or (limit is not None and limit <= repeats)
    if once:
        yield from _cut((_window(each, 0, Duration()) for each in placed), limit)
        return
    longest = cycle.months * 31 * 86400 + cycle.seconds
    if longest < CYCLE_SECONDS_AT_LEAST:
        raise InvalidInput("cycle-short", "its intervals would be repeated within a minute")
    number = 0
    finite = limit is not None and (
        (limit - base).total_seconds() / longest * len(placed) <= WINDOWS_AT_MOST
    )
    until = limit if limit is not None and finite else now + AHEAD
    if not finite:
        number = max(0, int((now - base).total_seconds() // longest) - 1)
    made = 0
    while made < WINDOWS_AT_MOST:
        ahead = cycle * number
        begins = after(base, ahead)
        if begins is None or begins >= until or (limit is not None and begins >= limit):
            return
        number += 1
        windows = [_window(each, number - 1, ahead) for each in placed]
        if not finite and all(each.end is not None and each.end <= now for each in windows):
            continue
        made += len(windows)
        yield from _cut(windows, limit)


def _cycle_of(placed: Sequence[_Placed]) -> Duration | None:
    """How long the list takes once; None = it has no end, so nothing follows it."""
    ends = [each.elapsed + (each.length or Duration()) for each in placed]
    if any(end.endless for end in ends):
        return None
    if len({each.anchor for each in placed}) == 1:
        return ends[-1]
    base = _begin(placed[0], Duration())
    last = max(after(each.anchor, end) or base for each, end in zip(placed, ends, strict=True))
    return Duration(0, (last - base).total_seconds())


def _cut(windows: Iterator[Window] | Sequence[Window], limit: datetime | None) -> Iterator[Window]:
    for window in windows:
        if limit is None or (window.start < limit and (window.end or limit) < limit):
            yield window
        elif window.start < limit:
            yield replace(window, end=limit)
