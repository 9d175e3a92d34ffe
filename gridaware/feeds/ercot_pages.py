"""ERCOT's dashboard pages: grid conditions, frequency, prices, demand and its forecast. Pure.

The pages are undocumented JSON, and deviate: ``prc_value`` is "18,983" or 13885; offsets in texts
are wrong around clock changes, 02:00 comes twice, hours are called 25, rows are doubled or have no
length. So instants are read from the epoch where there is one, doubled instants count once, and
hours are never counted by their name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import instant
from gridaware.feeds.page_values import epoch, number, rows, short_text

__all__ = [
    "Conditions",
    "Demand",
    "Frequency",
    "Price",
    "read_conditions",
    "read_demand",
    "read_frequency",
    "read_prices",
]

PRC_MEGAWATTS_AT_MOST = 100_000.0
DEMAND_MEGAWATTS = (1_000.0, 500_000.0)
PRICE_AT_MOST = 20_000.0
"""Four times the system-wide offer cap of $5,000/MWh, either side of zero."""
HERTZ = (55.0, 65.0)
PRICE_INTERVAL = timedelta(minutes=15)
HOUR = timedelta(hours=1)
_STAMP = re.compile(r"(.*[0-9])([+-][0-9]{2}):?([0-9]{2})")


@dataclass(frozen=True, slots=True)
class Conditions:
    """The state of the grid; None = the page does not say, or says something absurd."""

    at: datetime
    state: str
    """ERCOT's own word in lower case, such as ``normal``."""
    title: str
    note: str
    eea_level: int | None
    """Energy Emergency Alert: 0 (none) to 3 (load is shed)."""
    prc_megawatts: float | None
    """Physical Responsive Capability."""


@dataclass(frozen=True, slots=True)
class Frequency:
    """The newest frequency, a minute or two old as a rule."""

    at: datetime
    hertz: float


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one interval at a settlement point, in $/MWh."""

    start: datetime
    end: datetime
    per_megawatt_hour: float


@dataclass(frozen=True, slots=True)
class Demand:
    """What is used of the grid, as published at one instant."""

    at: datetime
    """The page's own time."""
    actual: tuple[tuple[datetime, float], ...]
    """(instant, MW), in order: of the present day, every five minutes."""
    forecast: tuple[tuple[datetime, float], ...]
    """(instant, MW), in order: of what is left of the day, and by the hour of the days after it."""


def read_conditions(page: Mapping[str, Any]) -> Conditions:
    """The page ``daily-prc.json``.

    Raises:
        InvalidInput: it is not that page, or has no time.
    """
    now = page.get("current_condition")
    if not isinstance(now, dict):
        raise InvalidInput("page-value", "there is no current_condition")
    level = _optional(now.get("eea_level"), "eea_level")
    if level is not None and level not in {0, 1, 2, 3}:
        raise InvalidInput("page-value", f"eea_level is {level:g}")
    prc = _optional(now.get("prc_value"), "prc_value")
    if prc is not None and not 0 < prc <= PRC_MEGAWATTS_AT_MOST:
        prc = None  # a gap in their data shows as 0: no grid runs without any reserve
    return Conditions(
        epoch(now["datetime"], "datetime") if "datetime" in now else _updated(page),
        short_text(now.get("state"), 40).lower(),
        short_text(now.get("title")),
        short_text(now.get("condition_note"), 240),
        None if level is None else int(level),
        prc,
    )


def read_frequency(page: Mapping[str, Any]) -> Frequency:
    """The newest row of ``ancillary-services.json`` or ``dc-tie-flows.json``.

    Raises:
        InvalidInput: there is none.
    """
    found = {
        at: value
        for at, value in _series(rows(page, "data"), "currentFrequency")
        if HERTZ[0] <= value <= HERTZ[1]
    }
    if not found:
        raise InvalidInput("page-value", "there is no currentFrequency")
    newest = max(found)
    return Frequency(newest, found[newest])


def read_prices(page: Mapping[str, Any], point: str) -> tuple[Price, ...]:
    """Real-time prices of a settlement point in ``system-wide-prices.json``, in order.

    Their instants end the intervals of 15 minutes.

    Raises:
        InvalidInput: there is none.
    """
    found = {
        at: value
        for at, value in _series(rows(page, "rtSppData"), point)
        if abs(value) <= PRICE_AT_MOST
    }
    if not found:
        raise InvalidInput("page-value", f"there is no price of {point}")
    return tuple(Price(end - PRICE_INTERVAL, end, found[end]) for end in sorted(found))


def read_demand(page: Mapping[str, Any]) -> Demand:
    """The page ``supply-demand.json``: demand so far, and the load that is expected.

    ``data`` is of the present day, what is left of it marked ``forecast``; ``forecast`` is of the
    days after it, by the hour.

    Raises:
        InvalidInput: it is not that page.
    """
    today = rows(page, "data")
    is_forecast = [row.get("forecast") in (1, True, "1") for row in today]
    actual = [row for row, ahead in zip(today, is_forecast, strict=True) if not ahead]
    rest = [row for row, ahead in zip(today, is_forecast, strict=True) if ahead]
    later = _series(rows(page, "forecast"), "forecastedDemand")
    return Demand(
        _updated(page),
        _in_bounds(_series(actual, "demand")),
        _in_bounds((*_series(rest, "demand"), *later)),
    )


def _in_bounds(series: Iterable[tuple[datetime, float]]) -> tuple[tuple[datetime, float], ...]:
    least, most = DEMAND_MEGAWATTS
    return tuple(sorted({at: mw for at, mw in series if least <= mw <= most}.items()))


def _series(found: Iterable[Mapping[str, Any]], key: str) -> Iterator[tuple[datetime, float]]:
    """Instants and values; a row without either is a gap."""
    for row in found:
        if row.get(key) is None:
            continue
        try:
            yield _row_time(row), number(row[key], key)
        except InvalidInput:
            continue


def _row_time(row: Mapping[str, Any]) -> datetime:
    """By the epoch, under either name; the text with its doubtful offset only where there is none.

    Raises:
        InvalidInput: there is neither.
    """
    for name in ("epoch", "interval"):
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 1e9:
            return epoch(value, name)
    return _stamp(row.get("timestamp"))


def _updated(page: Mapping[str, Any]) -> datetime:
    return _stamp(page.get("lastUpdated"))


def _stamp(value: object) -> datetime:
    """An instant such as "2026-06-28 00:00:05-0500".

    Raises:
        InvalidInput: it is none.
    """
    match = _STAMP.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidInput("page-value", "there is no time with an offset")
    return instant(f"{match[1]}{match[2]}:{match[3]}", "timestamp").astimezone(UTC)


def _optional(value: object, name: str) -> float | None:
    return None if value is None or value == "" else number(value, name)
