"""Power over time as an exact piecewise function: integrals, means and coverage, gaps included.

Times are seconds as floats on one clock: UTC seconds (``datetime.timestamp()``) where people will
read the result, monotonic seconds where we count durations. Between two neighbouring times the
power is either *held* at the first value (limits, targets) or *linear* (samples), or it is a gap:
nothing is known, and nothing is invented. Sums use :func:`math.fsum`, so the integral over a
window is the correctly rounded sum of its pieces.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from gridaware.domain.errors import InvalidInput

__all__ = ["Shape", "StepSeries", "Stretch"]


class Shape(StrEnum):
    """What happens between two neighbouring times."""

    HELD = "held"
    LINEAR = "linear"


class Stretch(NamedTuple):
    """What a series says about one window."""

    start_seconds: float
    end_seconds: float
    joules: float
    """Over the covered part alone."""
    covered_seconds: float

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.end_seconds - self.start_seconds

    @property
    def coverage(self) -> float:
        """Share of the window that is not a gap, 0 to 1."""
        return self.covered_seconds / self.seconds if self.seconds > 0 else 0.0

    @property
    def mean_watts(self) -> float | None:
        """Mean over the covered part; None where all of it is a gap."""
        return self.joules / self.covered_seconds if self.covered_seconds > 0 else None


@dataclass(frozen=True, slots=True)
class StepSeries:
    """Piecewise power. Build it with :meth:`sampled`, :meth:`held` or :meth:`constant`."""

    times: tuple[float, ...]
    """Strictly rising seconds, (K,)."""
    watts: tuple[float, ...]
    """Value at each time, (K,)."""
    known: tuple[bool, ...]
    """Whether the piece from time i to time i + 1 is known, (K - 1,)."""
    shape: Shape = Shape.LINEAR

    def __post_init__(self) -> None:
        if len(self.times) != len(self.watts) or len(self.known) != max(len(self.times) - 1, 0):
            raise InvalidInput("series-shape", "times, watts and known do not fit together")
        if not all(map(math.isfinite, self.times)) or not all(map(math.isfinite, self.watts)):
            raise InvalidInput("series-not-finite", "a series holds a value that is not a number")
        if any(a >= b for a, b in pairwise(self.times)):
            raise InvalidInput("series-order", "the times of a series must rise strictly")

    @classmethod
    def sampled(
        cls, samples: Iterable[tuple[float, float]], max_gap_seconds: float = math.inf
    ) -> "StepSeries":
        """Linear between (seconds, watts) samples, unless they lie further apart than the gap.

        Raises:
            InvalidInput: times do not rise strictly, or a value is not finite.
        """
        times, watts = _columns(samples)
        known = tuple(b - a <= max_gap_seconds for a, b in pairwise(times))
        return cls(times, watts, known, Shape.LINEAR)

    @classmethod
    def held(cls, steps: Iterable[tuple[float, float | None]], end_seconds: float) -> "StepSeries":
        """Steps of (seconds, watts), each held until the next and the last until ``end_seconds``.

        None watts open a gap. Steps at or after the end are left out.

        Raises:
            InvalidInput: times do not rise strictly, or a value is not finite.
        """
        kept = [(at, watts) for at, watts in steps if at < end_seconds]
        if not kept:
            return cls((), (), (), Shape.HELD)
        times = (*(at for at, _ in kept), end_seconds)
        filled = [0.0 if watts is None else watts for _, watts in kept]
        known = tuple(watts is not None for _, watts in kept)
        return cls(times, (*filled, filled[-1]), known, Shape.HELD)

    @classmethod
    def constant(cls, watts: float, start_seconds: float, end_seconds: float) -> "StepSeries":
        """One value over one window."""
        return cls.held([(start_seconds, watts)], end_seconds)

    def __len__(self) -> int:
        return len(self.times)

    def value_at(self, seconds: float) -> float | None:
        """Watts at one time; None in a gap and outside the series."""
        if not self.times or not self.times[0] <= seconds <= self.times[-1]:
            return None
        i = bisect_right(self.times, seconds) - 1
        if seconds == self.times[i] and (self.shape is Shape.LINEAR or i == len(self.known)):
            return self.watts[i]
        return self._piece_value(i, seconds) if self.known[i] else None

    def integral(self, start_seconds: float, end_seconds: float) -> Stretch:
        """Joules and coverage over ``[start, end)``."""
        joules: list[float] = []
        seconds: list[float] = []
        for piece in self._pieces(start_seconds, end_seconds):
            joules.append(piece.joules)
            seconds.append(piece.seconds)
        return Stretch(start_seconds, end_seconds, math.fsum(joules), math.fsum(seconds))

    def mean_watts(self, start_seconds: float, end_seconds: float) -> float | None:
        """Mean over the covered part of the window; None where all of it is a gap."""
        return self.integral(start_seconds, end_seconds).mean_watts

    def resample(self, edges: Sequence[float]) -> tuple[Stretch, ...]:
        """One stretch for each pair of neighbouring edges, such as settlement intervals."""
        return tuple(self.integral(a, b) for a, b in pairwise(edges))

    def highest_watts(self, start_seconds: float, end_seconds: float) -> float | None:
        """Highest value over the covered part of the window; None where all of it is a gap."""
        peaks = [max(p.from_watts, p.to_watts) for p in self._pieces(start_seconds, end_seconds)]
        return max(peaks, default=None)

    def seconds_above(self, limit_watts: float, start_seconds: float, end_seconds: float) -> float:
        """Seconds of the window spent strictly above a limit; crossings are exact."""
        return math.fsum(
            p.seconds_above(limit_watts) for p in self._pieces(start_seconds, end_seconds)
        )

    def readings_in(self, start_seconds: float, end_seconds: float) -> int:
        """Number of the series' own points in ``[start, end)``."""
        return bisect_left(self.times, end_seconds) - bisect_left(self.times, start_seconds)

    def _piece_value(self, i: int, seconds: float) -> float:
        if self.shape is Shape.HELD:
            return self.watts[i]
        share = (seconds - self.times[i]) / (self.times[i + 1] - self.times[i])
        return self.watts[i] + share * (self.watts[i + 1] - self.watts[i])

    def _pieces(self, start: float, end: float) -> Iterator["_Piece"]:
        first = max(bisect_right(self.times, start) - 1, 0)
        for i in range(first, len(self.known)):
            if self.times[i] >= end:
                return
            a, b = max(self.times[i], start), min(self.times[i + 1], end)
            if self.known[i] and b > a:
                yield _Piece(b - a, self._piece_value(i, a), self._piece_value(i, b))


class _Piece(NamedTuple):
    """A covered part of one piece, straight from one value to another."""

    seconds: float
    from_watts: float
    to_watts: float

    @property
    def joules(self) -> float:
        return self.seconds * (self.from_watts + self.to_watts) / 2

    def seconds_above(self, limit: float) -> float:
        low, high = sorted((self.from_watts, self.to_watts))
        if low > limit:
            return self.seconds
        if high <= limit:
            return 0.0
        return self.seconds * (high - limit) / (high - low)


def _columns(samples: Iterable[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    rows = tuple(samples)
    return tuple(at for at, _ in rows), tuple(watts for _, watts in rows)
