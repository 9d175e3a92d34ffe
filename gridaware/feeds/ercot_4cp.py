"""``ercot_4cp``: days that are likely to be the Texas grid's peak of the month (4CP).

Nobody calls those days: each site forecasts them for itself, from ERCOT's published load forecast
(:mod:`gridaware.feeds.ercot_peaks` says how). A called day informs; where the settings say so, it
asks for something in the hours in which the peak falls.
"""

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Self
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from gridaware.domain.advisory import Advisory, AdvisoryQuality
from gridaware.domain.errors import ConfigError, InvalidInput
from gridaware.domain.eventjson import target_from_mapping
from gridaware.domain.signal import Signal
from gridaware.feeds.conditions import Asking, advisory_row
from gridaware.feeds.ercot import DASHBOARDS, dashboard_rate
from gridaware.feeds.ercot_pages import Demand, read_demand
from gridaware.feeds.ercot_peaks import DayRecord, HitRate, PeakDay, judge, read_history, replay
from gridaware.feeds.kind import (
    FEED_KINDS,
    Disposition,
    Feed,
    FeedContext,
    Parsed,
    ParsedRow,
    PolledSettings,
)
from gridaware.feeds.page_values import check_fresh, json_page, public_url, stale_reason
from gridaware.feeds.pages import page_of
from gridaware.feeds.plain_file import open_plain
from gridaware.feeds.schedule import first_instant

__all__ = ["Ercot4cp", "Ercot4cpSettings"]

TEXAS = ZoneInfo("America/Chicago")
PAGE = "supply-demand.json"
FORECAST = "the load forecast"
HISTORY_BYTES_AT_MOST = 4 << 20
AFTERNOON = frozenset(range(14, 20))
"""Hours of the day that must all be forecast before it is judged: the peak falls in them."""
EVENING_HOUR = 19
DAYS_KEPT = 400
_DAY = timedelta(days=1)


class PeakWindow(Asking):
    """What a called day asks for, and when."""

    start: str = Field(default="15:00", pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")
    """Wall time in Texas."""
    end: str = Field(default="18:00", pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")
    announce_days: int = Field(default=0, ge=0, le=6)
    """How many days ahead a called day is asked for: 0 = on the day itself."""

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.end <= self.start:
            raise ValueError("the window ends before it starts")
        return self

    def on(self, day: date) -> tuple[datetime, datetime]:
        """Its instants on a day."""
        start, end = (
            first_instant(datetime.combine(day, time.fromisoformat(wall)), TEXAS)
            for wall in (self.start, self.end)
        )
        return start, end


class Ercot4cpSettings(PolledSettings):
    """Settings of the peak days."""

    poll_seconds: float = Field(default=300.0, ge=25.0, le=3600)
    base_url: str = Field(default=DASHBOARDS, max_length=500)
    months: tuple[int, ...] = Field(default=(6, 7, 8, 9), min_length=1, max_length=12)
    """Whose peaks count; the rule is under revision (PUCT project 58484)."""
    margin_percent: float = Field(default=2.0, ge=0, le=50)
    """How far below what it has to beat a day's forecast is still called."""
    stale_seconds: float = Field(default=3600.0, ge=300, le=86_400)
    """A page older than that concludes nothing."""
    history_file: str | None = Field(default=None, max_length=1000)
    """A CSV of date, peak_mw, forecast_mw: gives the hit rate, and the month's peak so far."""
    acts: PeakWindow | None = None
    """None = a called day only informs."""

    @field_validator("base_url")
    @classmethod
    def _secure(cls, value: str) -> str:
        return public_url(value).rstrip("/")

    @field_validator("months")
    @classmethod
    def _months(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not set(value) <= set(range(1, 13)) or len(set(value)) != len(value):
            raise ValueError("months are 1 to 12, each once")
        return value


@FEED_KINDS.register("ercot_4cp")
class Ercot4cp(Feed[Ercot4cpSettings]):
    """Judges each day of the published load forecast."""

    settings_model = Ercot4cpSettings

    def __init__(self, context: FeedContext, settings: Ercot4cpSettings) -> None:
        super().__init__(context, settings)
        self._lock = threading.Lock()
        """A person's `feed test` may poll at the same moment."""
        self._history = _history(settings)
        self._rate = _rate(settings, self._history)
        base = settings.base_url
        self._page = page_of(context.clock, f"{base}/{PAGE}", dashboard_rate(PAGE, base))

    def poll(self) -> Sequence[Signal]:
        """The windows of called days.

        Raises:
            Unavailable: the forecast could not be read, or is old: nothing is concluded.
        """
        clock = self.context.clock
        with self._lock:
            received_at, received_seconds = clock.wall(), clock.monotonic_seconds()
            demand = self._page.read(lambda read: read_demand(json_page(read.body)))
            age = self.settings.stale_seconds
            check_fresh(demand.at, clock.wall(), age, FORECAST)
            judged = judged_days(demand, self._peaks(demand), self.settings)
            for day in judged:
                told = day_told(day, self._rate, self.context.feed_id, received_at)
                self.context.advise(told)
            return self._signals(judged, received_at, received_seconds)

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: Ercot4cpSettings | None) -> Parsed:
        """The page of supply and demand, from a file; a history is read where one is named.

        Raises:
            InvalidInput: it is not that page.
            ConfigError: the history cannot be read.
        """
        given = settings or Ercot4cpSettings()
        history = _history(given)
        rate = _rate(given, history)
        demand = read_demand(json_page(body))
        peaks = _known(history) | _daily(demand.actual)
        days = judged_days(demand, peaks, given)
        stale = stale_reason(demand.at, now, given.stale_seconds, FORECAST)
        return Parsed(tuple(_row(day, rate, given, now, stale) for day in days))

    # ------------------------------------------------------------------------------------------

    def _peaks(self, demand: Demand) -> dict[date, float]:
        """The highest load of each day that is known: of the history, and as it was seen.

        A day counts once it was seen into its evening: what was seen of a morning is no peak.
        """
        kept = self.context.memory.get("peaks")
        seen = {date.fromisoformat(day): float(mw) for day, mw in (kept or {}).items()}
        evenings = {
            local.date()
            for local in (at.astimezone(TEXAS) for at, _ in demand.actual)
            if local.hour >= EVENING_HOUR
        }
        for day, mw in _daily(demand.actual).items():
            if day in evenings:
                seen[day] = max(mw, seen.get(day, 0.0))
        newest = sorted(seen)[-DAYS_KEPT:]
        self.context.memory.put("peaks", {day.isoformat(): seen[day] for day in newest})
        return seen | _known(self._history)

    def _signals(
        self, judged: Sequence[PeakDay], received_at: datetime, received_seconds: float
    ) -> list[Signal]:
        window = self.settings.acts
        if window is None:
            return []
        now = self.context.clock.wall()
        calls: dict[str, list[Any]] = self.context.memory.get("calls") or {}
        last = now.astimezone(TEXAS).date() + window.announce_days * _DAY
        for day in judged:
            if day.day <= last:
                self._call(day, window, calls, now)
        calls = {key: call for key, call in calls.items() if _ends(key, window) > now}
        self.context.memory.put("calls", calls)
        return [
            Signal(
                self.context.feed_id,
                f"4cp-{key}" if number == 1 else f"4cp-{key}.{number}",
                0 if asks else 1,
                received_at,
                received_seconds,
                window.request(*window.on(date.fromisoformat(key))) if asks else None,
                said,
            )
            for key, (number, asks, said) in calls.items()
        ]

    def _call(
        self, day: PeakDay, window: PeakWindow, calls: dict[str, list[Any]], now: datetime
    ) -> None:
        """Ask for a called day; take it back before it begins alone, and well below the mark."""
        start, end = window.on(day.day)
        key = day.day.isoformat()
        number, asks, said = calls.get(key, [0, False, ""])
        well_below = day.ratio is not None and (
            day.ratio < 1 - 2 * self.settings.margin_percent / 100
        )
        if asks and well_below and now < start:
            calls[key] = [number, False, said]
        elif not asks and day.called and now < end:
            calls[key] = [number + 1, True, day_text(day, self._rate)]


def judged_days(
    demand: Demand, peaks: Mapping[date, float], settings: Ercot4cpSettings
) -> list[PeakDay]:
    """The days of the forecast, judged: this one and those to come, of the months that count."""
    today = demand.at.astimezone(TEXAS).date()
    points = [*demand.actual, *demand.forecast]
    hours: dict[date, set[int]] = {}
    for at, _ in points:
        local = at.astimezone(TEXAS)
        hours.setdefault(local.date(), set()).add(local.hour)
    forecasts = {
        day: mw
        for day, mw in _daily(points).items()
        if day >= today and day.month in settings.months and hours[day] >= AFTERNOON
    }
    past = {day: mw for day, mw in peaks.items() if day < today}
    return judge(forecasts, past, settings.margin_percent / 100)


def day_told(day: PeakDay, rate: HitRate | None, feed_id: str, now: datetime) -> Advisory:
    """What a judged day informs of."""
    start, end = (
        first_instant(datetime.combine(each, time()), TEXAS) for each in (day.day, day.day + _DAY)
    )
    probability = None if rate is None else rate.probability(day.called)
    return Advisory(
        feed_id,
        "ercot.4cp",
        "peak_day_probability",
        probability,
        "",
        day_text(day, rate),
        start,
        end,
        AdvisoryQuality.FORECAST,
        now,
    )


def day_text(day: PeakDay, rate: HitRate | None) -> str:
    """A judged day, in a sentence a person can check."""
    parts = [f"{'called' if day.called else 'not called'}: forecast {day.forecast_mw:,.0f} MW"]
    if day.month_peak_mw is None:
        parts.append("the month's peak so far is unknown")
    else:
        known = f"known of {day.days_known} of {day.day.day - 1} days"
        parts.append(f"the month's peak so far {day.month_peak_mw:,.0f} MW ({known})")
    if day.ahead_mw is not None:
        parts.append(f"the highest forecast of its other days {day.ahead_mw:,.0f} MW")
    if rate is None or rate.probability(day.called) is None:
        parts.append("hit rate unknown: no history")
    else:
        parts.append(
            f"in the history {rate.caught} of {rate.called} called days were the month's peak, "
            f"{rate.caught} of {rate.peaks} peaks were called"
        )
    return "; ".join(parts)


def _row(
    day: PeakDay, rate: HitRate | None, settings: Ercot4cpSettings, now: datetime, stale: str
) -> ParsedRow:
    told = day_told(day, rate, "file", now)
    value: float | str = "unknown" if told.value is None else round(told.value, 4)
    window = settings.acts
    early = window is not None and (
        day.day > now.astimezone(TEXAS).date() + window.announce_days * _DAY
    )
    if window is None or not day.called or early:
        shown = advisory_row(told)
        return ParsedRow(
            f"4cp-{day.day}", shown.start, shown.end, told.quantity, value,
            Disposition.ADVISORY, told.text,
        )  # fmt: skip
    start, end = window.on(day.day)
    refused = "over before it was heard" if end <= now else stale
    return ParsedRow(
        f"4cp-{day.day}",
        start,
        end,
        told.quantity,
        value,
        Disposition.REFUSED if refused else Disposition.ACT,
        refused or told.text,
        target_from_mapping(window.target),
    )


def _daily(points: Sequence[tuple[datetime, float]]) -> dict[date, float]:
    """The highest value of each day in Texas."""
    found: dict[date, float] = {}
    for at, mw in points:
        day = at.astimezone(TEXAS).date()
        found[day] = max(mw, found.get(day, mw))
    return found


def _known(history: Sequence[DayRecord]) -> dict[date, float]:
    return {record.day: record.peak_mw for record in history if record.peak_mw is not None}


def _ends(key: str, window: PeakWindow) -> datetime:
    return window.on(date.fromisoformat(key))[1].astimezone(UTC)


def _history(settings: Ercot4cpSettings) -> tuple[DayRecord, ...]:
    """The history that the settings name.

    Raises:
        ConfigError: it cannot be read.
    """
    if settings.history_file is None:
        return ()
    path = Path(settings.history_file)
    try:
        with open_plain(path) as file:
            body = file.read(HISTORY_BYTES_AT_MOST + 1)
        if len(body) > HISTORY_BYTES_AT_MOST:
            raise ConfigError("history-too-large", f"{path.name} has more than 4 MiB")
        return read_history(body)
    except OSError as error:
        raise ConfigError("history-unreadable", f"{path.name}: {error.strerror}") from None
    except InvalidInput as error:
        raise ConfigError(error.code, f"{path.name}: {error.message}") from None


def _rate(settings: Ercot4cpSettings, history: Sequence[DayRecord]) -> HitRate | None:
    if not history:
        return None
    return replay(history, settings.months, settings.margin_percent / 100)
