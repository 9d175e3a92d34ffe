"""Which day is likely to be the grid's peak of the month, and how often that was right. Pure.

A method that can be checked by hand. A day is **called** when its forecast peak comes within a
margin of everything that it has to beat: the month's highest peak so far, and the highest forecast
of the days of the month still to come. Nothing else goes in: no weather, no model of the load.

How likely a called day is to be the month's peak is not guessed. It is counted, on a history of
daily peaks and forecasts, with the same rule; without a history it is unknown.
"""

import csv
import io
from calendar import monthrange
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from gridaware.domain.errors import InvalidInput
from gridaware.feeds.page_values import number

__all__ = ["DayRecord", "HitRate", "PeakDay", "judge", "read_history", "replay"]

ROWS_AT_MOST = 20_000
HORIZON_DAYS = 6
"""Days ahead for which ERCOT publishes a load forecast."""


@dataclass(frozen=True, slots=True)
class PeakDay:
    """One day of the forecast, judged."""

    day: date
    forecast_mw: float
    month_peak_mw: float | None
    """The highest peak of the month before that day, as far as it is known."""
    days_known: int
    """Of how many earlier days of the month the peak is known."""
    ahead_mw: float | None
    """The highest forecast of the month's days after it, as far as it is published."""
    called: bool
    ratio: float | None
    """Its forecast over the highest of the two; None = there is nothing to compare with."""


@dataclass(frozen=True, slots=True)
class DayRecord:
    """One day of a history."""

    day: date
    peak_mw: float | None
    forecast_mw: float | None
    """As it was published on the day, or the day before."""


@dataclass(frozen=True, slots=True)
class HitRate:
    """What the rule would have done in whole months of a history."""

    days: int
    called: int
    peaks: int
    """Months, each with one peak day."""
    caught: int
    """Peak days that were called."""

    def probability(self, called: bool) -> float | None:
        """The share of days with that verdict that were their month's peak; None = unknown."""
        hits, days = self.caught, self.called
        if not called:
            hits, days = self.peaks - self.caught, self.days - self.called
        return hits / days if days else None


def judge(
    forecasts: Mapping[date, float], peaks: Mapping[date, float], margin: float
) -> list[PeakDay]:
    """Judge every day of a forecast, in order.

    Args:
        forecasts: the highest load expected of each day, MW.
        peaks: the highest load of days past, MW.
        margin: how far below what it has to beat a day is still called, as a fraction.
    """
    judged = []
    for day in sorted(forecasts):
        before = [mw for d, mw in peaks.items() if _same_month(d, day) and d < day]
        ahead = [mw for d, mw in forecasts.items() if _same_month(d, day) and d > day]
        # Of two days to come the earlier one has to beat the later one, and the other way round.
        sooner = [mw for d, mw in forecasts.items() if _same_month(d, day) and d < day]
        rival = max([*before, *ahead, *sooner], default=None)
        ratio = None if rival is None else forecasts[day] / rival
        judged.append(
            PeakDay(
                day,
                forecasts[day],
                max(before, default=None),
                len(before),
                max([*ahead, *sooner], default=None),
                ratio is None or ratio >= 1 - margin,
                ratio,
            )
        )
    return judged


def replay(records: Sequence[DayRecord], months: Collection[int], margin: float) -> HitRate:
    """Count what the rule would have done on each day of the whole months of a history.

    The forecasts of the days ahead are those of the history too: they were made later than a real
    forecast of several days, and are better. So the rate is what the rule can reach, not less.
    A month counts only if every day of it has a peak and a forecast.
    """
    by_month: dict[tuple[int, int], dict[date, tuple[float, float]]] = {}
    for record in records:
        if (
            record.day.month in months
            and record.peak_mw is not None
            and record.forecast_mw is not None
        ):
            key = record.day.year, record.day.month
            by_month.setdefault(key, {})[record.day] = record.peak_mw, record.forecast_mw
    days = called = caught = peaks = 0
    for (year, month), found in by_month.items():
        if len(found) < monthrange(year, month)[1]:
            continue
        peaks += 1
        peak_day = max(sorted(found), key=lambda day: found[day][0])
        for day in found:
            days += 1
            known = {d: peak for d, (peak, _) in found.items() if d < day}
            span = [day + timedelta(days=n) for n in range(HORIZON_DAYS + 1)]
            expected = {d: found[d][1] for d in span if d in found}
            verdict = judge(expected, known, margin)[0].called
            called += verdict
            caught += verdict and day == peak_day
    return HitRate(days, called, peaks, caught)


def read_history(body: bytes) -> tuple[DayRecord, ...]:
    """A CSV with the columns ``date``, ``peak_mw`` and ``forecast_mw``; others are left alone.

    Raises:
        InvalidInput: ``history-row``, naming the line; ``history-header``.
    """
    try:
        lines = csv.DictReader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True)
        if not {"date", "peak_mw", "forecast_mw"} <= set(lines.fieldnames or ()):
            raise InvalidInput("history-header", "the columns are date, peak_mw and forecast_mw")
        found: dict[date, DayRecord] = {}
        for row in lines:
            record = _record(row, lines.line_num)
            if record.day in found:
                raise InvalidInput(
                    "history-row", f"line {lines.line_num}: {record.day} came before"
                )
            if len(found) >= ROWS_AT_MOST:
                raise InvalidInput("history-row", f"there are more than {ROWS_AT_MOST} days")
            found[record.day] = record
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidInput("history-row", f"the history is no CSV: {error}") from None
    return tuple(found[day] for day in sorted(found))


def _record(row: Mapping[str, str | None], line: int) -> DayRecord:
    def megawatts(name: str) -> float | None:
        text = (row[name] or "").strip()
        if not text:
            return None
        value = number(text, name)
        if not 0 < value < 1e6:
            raise InvalidInput("history-row", f"line {line}: {name} is {value:g} MW")
        return value

    try:
        day = date.fromisoformat((row["date"] or "").strip())
        return DayRecord(day, megawatts("peak_mw"), megawatts("forecast_mw"))
    except (ValueError, InvalidInput) as error:
        raise InvalidInput("history-row", f"line {line}: {error}") from None


def _same_month(one: date, other: date) -> bool:
    return (one.year, one.month) == (other.year, other.month)
