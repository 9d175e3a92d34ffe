"""A tariff by time of use: what power costs by the site's wall clock, for days to come. Pure.

A tariff charges energy, or demand: the highest draw within the hours of a price. A site that pays
for both has two feeds.

Periods are wall times of local days. Where clocks change, a wall time means the first instant at
which the local clock shows it or has passed it, as in :mod:`gridaware.feeds.schedule`: the peak
hours keep their wall times, and the night is an hour shorter or longer.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Self
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from gridaware.domain.advisory import AdvisoryQuality
from gridaware.feeds.kind import FeedSettings
from gridaware.feeds.schedule import first_instant
from gridaware.feeds.series import Point
from gridaware.feeds.table import known_zone

__all__ = ["Tariff", "TariffPeriod", "tariff_series"]

_WALL = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"
_UNTIL = r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"
_DAY = timedelta(days=1)
SATURDAY = 5


class TariffPeriod(FeedSettings):
    """Hours of some days that have a price of their own."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}$")
    price: float = Field(ge=-1e6, le=1e6)
    """Per MWh, or per kW of demand."""
    begins: str = Field(default="00:00", pattern=_WALL)
    until: str = Field(default="24:00", pattern=_UNTIL)
    """A wall time that is not later than ``begins`` is one of the next day."""
    days: str = Field(default="all", pattern=r"^(all|weekdays|weekends)$")
    """Of the day on which it begins. A holiday counts as one of a weekend."""
    months: tuple[int, ...] = Field(default=tuple(range(1, 13)), min_length=1, max_length=12)

    @field_validator("months")
    @classmethod
    def _of_the_year(cls, months: tuple[int, ...]) -> tuple[int, ...]:
        if not set(months) <= set(range(1, 13)):
            raise ValueError("months are numbers from 1 to 12")
        return months


class Tariff(FeedSettings):
    """What power costs when."""

    charges: str = Field(default="energy", pattern=r"^(energy|demand)$")
    """What the prices are of: energy, per MWh; or demand, per kW of the highest draw."""
    timezone: str = Field(max_length=64)
    """IANA name of the zone whose wall clock counts, such as America/Los_Angeles."""
    otherwise: float = Field(ge=-1e6, le=1e6)
    """Per MWh, or per kW of demand, whenever no period holds."""
    periods: tuple[TariffPeriod, ...] = Field(min_length=1, max_length=64)
    """The first that holds at a moment says the price."""
    holidays: tuple[str, ...] = Field(default=(), max_length=400)
    """Days such as 2026-07-04."""

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        return known_zone(name)

    @model_validator(mode="after")
    def _dates(self) -> Self:
        for day in self.holidays:
            try:
                date.fromisoformat(day)
            except ValueError:
                raise ValueError(f"the holiday {day!r} is no day such as 2026-07-04") from None
        return self


def tariff_series(tariff: Tariff, now: datetime, horizon: timedelta) -> list[Point]:
    """The prices that hold now and begin within the horizon; equal neighbours are one."""
    zone = ZoneInfo(tariff.timezone)
    first = (now.astimezone(zone) - _DAY).date()
    last = ((now + horizon).astimezone(zone) + _DAY).date()
    days = [first + n * _DAY for n in range((last - first).days + 1)]
    holidays = {date.fromisoformat(day) for day in tariff.holidays}
    held = [
        (period, start, end)
        for period in tariff.periods
        for day in days
        if _holds(period, day, holidays)
        for start, end in _instants(period, day, zone)
    ]
    begin, end = (first_instant(datetime.combine(day, time()), zone) for day in (first, last))
    edges = sorted({begin, end, *(at for _, *both in held for at in both if begin <= at <= end)})
    found: list[Point] = []
    for start, until in pairwise(edges):
        price = next(
            (period.price for period, since, over in held if since <= start < over),
            tariff.otherwise,
        )
        if found and found[-1].value == price:
            found[-1] = Point(found[-1].start, until, price, AdvisoryQuality.PUBLISHED)
        else:
            found.append(Point(start, until, price, AdvisoryQuality.PUBLISHED))
    return found


def _holds(period: TariffPeriod, day: date, holidays: set[date]) -> bool:
    weekend = day.weekday() >= SATURDAY or day in holidays
    asked = {"all": True, "weekdays": not weekend, "weekends": weekend}[period.days]
    return asked and day.month in period.months


def _instants(
    period: TariffPeriod, day: date, zone: ZoneInfo
) -> Iterator[tuple[datetime, datetime]]:
    start = datetime.combine(day, time.fromisoformat(period.begins))
    if period.until == "24:00":
        end = datetime.combine(day + _DAY, time())
    else:
        end = datetime.combine(day, time.fromisoformat(period.until))
        end += _DAY if end <= start else timedelta()
    since, over = first_instant(start, zone), first_instant(end, zone)
    if over > since:
        yield since.astimezone(UTC), over.astimezone(UTC)
