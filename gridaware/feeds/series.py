"""A quantity over time: what is known of each interval, in order and without overlap. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from gridaware.domain.advisory import AdvisoryQuality

__all__ = ["POINTS_AT_MOST", "Beliefs", "Point", "covering", "tidy", "within"]

POINTS_AT_MOST = 36_000
"""Quarter-hours of a year."""
SPIKE_RATIO = 3.0
"""A reading this many times above or below the usual one is doubted at first."""
NEAR = 0.25
RECENT_AT_MOST = 8
RECENT_AT_LEAST = 3


@dataclass(frozen=True, slots=True)
class Point:
    """One interval."""

    start: datetime
    """UTC, as is the end."""
    end: datetime
    value: float
    quality: AdvisoryQuality


def tidy(points: Iterable[Point]) -> list[Point]:
    """Points in order of time, none over another.

    Publishers repeat rows, and on days on which clocks change some have no length: those are left
    out. Of two rows of one start the later one listed holds; a row that runs into the next one ends
    where that begins.
    """
    by_start = {point.start: point for point in points if point.end > point.start}
    found = [by_start[start] for start in sorted(by_start)]
    return [
        replace(point, end=min(point.end, after.start)) for point, after in pairwise(found)
    ] + found[-1:]


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Which readings of a meter-like source are believed.

    One that leaps by :data:`SPIKE_RATIO` is doubted until a second one says nearly the same: a
    false value now and then is a known fault of public sources (45 g/kWh every 45 minutes where
    some 400 were true). Prices are never judged so: those do leap.
    """

    recent: tuple[float, ...] = ()
    doubted: float | None = None

    def take(self, value: float) -> "tuple[Beliefs, bool]":
        """What is believed after one more reading, and whether that one is."""
        usual = median(self.recent) if len(self.recent) >= RECENT_AT_LEAST else None
        if usual is None or usual / SPIKE_RATIO <= value <= usual * SPIKE_RATIO or usual <= 0:
            return Beliefs((*self.recent, value)[-RECENT_AT_MOST:]), True
        again = self.doubted is not None and abs(value - self.doubted) <= NEAR * abs(self.doubted)
        if again:
            return Beliefs((value,)), True
        return replace(self, doubted=value), False


def covering(points: Sequence[Point], at: datetime) -> Point | None:
    """What is known of an instant; None = nothing."""
    return next((point for point in points if point.start <= at < point.end), None)


def within(points: Sequence[Point], now: datetime, horizon: timedelta) -> list[Point]:
    """The points that are not over, and begin within the horizon."""
    return [point for point in points if point.end > now and point.start <= now + horizon]
