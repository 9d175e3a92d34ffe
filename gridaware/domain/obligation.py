"""When a programme binds a site, and how much it may ask in all: hours, seasons and caps.

Both are written as people say them::

    May-Oct Mon-Fri 16:00-21:00        60 hours per year
    06:00-21:00                        12 hours per season Apr-May
    all hours                          10 events per month

Hours are those of the programme's own clock on the wall, so they move with daylight saving. A
window that ends at or before its beginning runs past midnight and belongs to the day on which it
began. A time that a change of the clock leaves out is read with the offset before the change; one
that comes twice begins a window the first time and ends it the second time. No calendar of
holidays is known here: where a programme rests on holidays, that is said beside its hours.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal

from gridaware.domain.errors import InvalidInput

__all__ = ["Cap", "CapUse", "Obligation", "Window", "cap_use"]

Period = Literal["day", "week", "month", "season", "year"]
Held = tuple[datetime, datetime | None]
"""When an event began to be served, and when it ended; None = it goes on."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_CLOCK = re.compile(r"([01]\d|2[0-4]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")
_CAP = re.compile(r"(\d+(?:\.\d+)?) (hour|event)s? per (day|week|month|season|year)(?: (\S+))?")
_WHOLE_DAY = 24 * 60
_LOOK_AHEAD = timedelta(days=366)
"""Every day of a week and every month has come by then."""


@dataclass(frozen=True, slots=True)
class Window:
    """Hours of a day, on some days of the week, in some months; local time."""

    start_minute: int
    """Of the local day, 0 to 1439."""
    end_minute: int
    """1 to 1440; at or before the start = on the next day."""
    days: tuple[int, ...] = ()
    """0 = Monday; () = every day."""
    months: tuple[int, ...] = ()
    """1 = January; () = all year."""

    @classmethod
    def of(cls, text: str) -> "Window":
        """Read ``[MONTHS] [DAYS] [HH:MM-HH:MM]`` or ``all hours``.

        Raises:
            InvalidInput: it is none (``obligation-hours``).
        """
        months: tuple[int, ...] = ()
        days: tuple[int, ...] = ()
        clock = (0, _WHOLE_DAY)
        words = [] if text == "all hours" else text.split()
        if not words and text != "all hours":
            raise _no_window(text)
        for word in words:
            found = _CLOCK.fullmatch(word)
            if found:
                clock = _minutes(found, text)
            elif word[:3] in _MONTHS and not (days or months):
                months = tuple(n + 1 for n in _range(word, _MONTHS, text))
            elif not days:
                days = _range(word, _DAYS, text)
            else:
                raise _no_window(text)
        return cls(*clock, days, months)

    def __str__(self) -> str:
        words = []
        if self.months:
            words.append(_named([m - 1 for m in self.months], _MONTHS))
        if self.days:
            words.append(_named(self.days, _DAYS))
        if (self.start_minute, self.end_minute) != (0, _WHOLE_DAY):
            words.append(f"{_clock(self.start_minute)}-{_clock(self.end_minute)}")
        return " ".join(words) or "all hours"

    def on(self, day: date, zone: tzinfo) -> tuple[datetime, datetime] | None:
        """Its beginning and end in UTC on a local day; None = it has none then."""
        if (self.days and day.weekday() not in self.days) or (
            self.months and day.month not in self.months
        ):
            return None
        over = day if self.end_minute > self.start_minute else day + timedelta(days=1)
        start = _instant(day, self.start_minute, zone, 0)
        first, second = (_instant(over, self.end_minute, zone, fold) for fold in (0, 1))
        return start, max(first, second)


@dataclass(frozen=True, slots=True)
class Obligation:
    """The hours in which a programme may call for what is owed."""

    time_zone: str
    windows: tuple[Window, ...]

    @classmethod
    def of(cls, time_zone: str, texts: Iterable[str]) -> "Obligation":
        """Read windows as they are written.

        Raises:
            InvalidInput: one of them is none (``obligation-hours``).
        """
        return cls(time_zone, tuple(Window.of(text) for text in texts))

    def spans(self, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Every window of the days that ``[start, end)`` touches, in UTC."""
        zone = _zone(self.time_zone)
        day = start.astimezone(zone).date() - timedelta(days=1)
        last = end.astimezone(zone).date()
        while day <= last:
            for window in self.windows:
                span = window.on(day, zone)
                if span is not None:
                    yield span
            day += timedelta(days=1)

    def covers(self, at: datetime) -> bool:
        """Whether an instant lies within its hours."""
        return any(a <= at < b for a, b in self.spans(at, at))

    def reaches(self, start: datetime, end: datetime | None) -> bool:
        """Whether any of an event's time is within its hours; one without an end gets there."""
        if end is None:
            return bool(self.windows)
        end = min(end, start + _LOOK_AHEAD)
        return any(a < end and start < b for a, b in self.spans(start, end))


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that a programme may ask in a period."""

    most: float
    unit: Literal["hour", "event"]
    per: Period
    months: tuple[int, ...] = ()
    """Only these months count; () = all."""

    @classmethod
    def of(cls, text: str) -> "Cap":
        """Read ``N hours|events per day|week|month|season|year [MONTHS]``.

        Raises:
            InvalidInput: it is none (``programme-cap``).
        """
        found = _CAP.fullmatch(text)
        if found is None or (found[3] == "season" and found[4] is None):
            raise InvalidInput(
                "programme-cap",
                f"{text!r} is no cap such as '60 hours per year' or '12 hours per season Apr-May'",
            )
        months = () if found[4] is None else tuple(n + 1 for n in _range(found[4], _MONTHS, text))
        return cls(float(found[1]), found[2], found[3], months)  # type: ignore[arg-type]

    def __str__(self) -> str:
        plural = "" if self.most == 1 else "s"
        months = f" {_named([m - 1 for m in self.months], _MONTHS)}" if self.months else ""
        return f"{self.most:g} {self.unit}{plural} per {self.per}{months}"

    def period(self, at: datetime, time_zone: str) -> tuple[datetime, datetime] | None:
        """The period that holds an instant, in UTC; None = the cap does not count then."""
        zone = _zone(time_zone)
        day = at.astimezone(zone).date()
        if self.months and day.month not in self.months:
            return None
        first, after = self._days(day)
        return _instant(first, 0, zone, 0), _instant(after, 0, zone, 0)

    def _days(self, day: date) -> tuple[date, date]:
        """Its first day, and the day after its last."""
        month = day.replace(day=1)
        match self.per:
            case "day":
                return day, day + timedelta(days=1)
            case "week":
                monday = day - timedelta(days=day.weekday())
                return monday, monday + timedelta(days=7)
            case "month":
                return month, _next_month(month)
            case "season":
                while _month_before(month).month in self.months and len(self.months) < 12:
                    month = _month_before(month)
                after = month
                while after.month in self.months and (after - month).days < 366:
                    after = _next_month(after)
                return month, after
            case _:
                return date(day.year, 1, 1), date(day.year + 1, 1, 1)


@dataclass(frozen=True, slots=True)
class CapUse:
    """How much of a cap has been asked for in the period that holds an instant."""

    cap: Cap
    start: datetime
    end: datetime
    used: float
    """Hours or events."""

    @property
    def left(self) -> float:
        """What may still be asked for, 0 at least."""
        return max(self.cap.most - self.used, 0.0)


def cap_use(cap: Cap, held: Sequence[Held], at: datetime, time_zone: str) -> CapUse | None:
    """What counts towards a cap until ``at``; None = it does not count at that time of the year.

    An event counts as one in the period in which it began, and its hours in the periods in which
    they lay; events that overlap count each for itself.
    """
    period = cap.period(at, time_zone)
    if period is None:
        return None
    start, end = period
    zone = _zone(time_zone)
    used = 0.0
    for began, ended in held:
        if cap.unit == "event":
            counts = not cap.months or began.astimezone(zone).month in cap.months
            used += start <= began < end and began <= at and counts
        else:
            used += _hours(cap, max(began, start), min(ended or at, end, at), zone)
    return CapUse(cap, start, end, used)


def _hours(cap: Cap, start: datetime, end: datetime, zone: tzinfo) -> float:
    """Hours between two instants that lie in the cap's months."""
    if end <= start:
        return 0.0
    if not cap.months:
        return (end - start) / timedelta(hours=1)
    seconds, day = timedelta(), start.astimezone(zone).date().replace(day=1)
    while (month := _instant(day, 0, zone, 0)) < end:
        after = _next_month(day)
        if day.month in cap.months:
            inside = min(end, _instant(after, 0, zone, 0)) - max(start, month)
            seconds += max(inside, timedelta())
        day = after
    return seconds / timedelta(hours=1)


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo  # the agent, which knows programmes too, never needs it

    return ZoneInfo(name)


def _instant(day: date, minute: int, zone: tzinfo, fold: int) -> datetime:
    if minute == _WHOLE_DAY:
        day, minute = day + timedelta(days=1), 0
    local = datetime.combine(day, time(minute // 60, minute % 60, fold=fold), zone)
    return local.astimezone(UTC)


def _next_month(first: date) -> date:
    return (first + timedelta(days=31)).replace(day=1)


def _month_before(first: date) -> date:
    return (first - timedelta(days=1)).replace(day=1)


def _range(word: str, names: Sequence[str], text: str) -> tuple[int, ...]:
    """``Dec-Mar`` as positions in ``names``, round the end where need be; commas join several."""
    positions: list[int] = []
    for part in word.split(","):
        first, dash, last = part.partition("-")
        if first not in names or (dash and last not in names):
            raise _no_window(text)
        a, b = names.index(first), names.index(last or first)
        positions += [(a + i) % len(names) for i in range((b - a) % len(names) + 1)]
    return tuple(dict.fromkeys(positions))


def _named(positions: Sequence[int], names: Sequence[str]) -> str:
    """Positions as :func:`_range` reads them."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and (runs[-1][-1] + 1) % len(names) == position:
            runs[-1].append(position)
        else:
            runs.append([position])
    return ",".join(
        names[run[0]] if len(run) == 1 else f"{names[run[0]]}-{names[run[-1]]}" for run in runs
    )


def _minutes(found: re.Match[str], text: str) -> tuple[int, int]:
    a, b, c, d = (int(group) for group in found.groups())
    start, end = 60 * a + b, 60 * c + d
    if start >= _WHOLE_DAY or not 0 <= end <= _WHOLE_DAY or start == end:
        raise _no_window(text)
    return start, end or _WHOLE_DAY


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _no_window(text: str) -> InvalidInput:
    return InvalidInput(
        "obligation-hours",
        f"{text!r} is no window such as 'Jun-Sep Mon-Fri 16:00-21:00' or 'all hours'",
    )
