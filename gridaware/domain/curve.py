"""Cap-to-throughput curves: what one GPU of a job draws and does at each cap."""

from bisect import bisect_right
from dataclasses import dataclass

from gridaware.domain.errors import InvalidInput

__all__ = ["Curve", "CurveQuality"]

CurveQuality = str
"""``measured`` (learned from this job), ``fitted`` (public data of this model and class) or
``assumed`` (nothing better was known)."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Piecewise linear in the cap; flat beyond its ends.

    All tuples have one length K >= 2; ``cap_watts`` rises strictly, the other two never fall.
    """

    cap_watts: tuple[float, ...]
    power_watts: tuple[float, ...]
    """Mean draw of one GPU at that cap, (K,) watts."""
    throughput: tuple[float, ...]
    """Relative to uncapped, (K,) 0 to 1; the last is 1."""
    idle_watts: float
    """Draw of one GPU while the job is paused and gone."""
    quality: CurveQuality = "assumed"
    source: str = ""

    def __post_init__(self) -> None:
        if not (len(self.cap_watts) == len(self.power_watts) == len(self.throughput) >= 2):
            raise InvalidInput("curve-shape", "a curve needs three rows of one length, 2 or more")
        if any(a >= b for a, b in zip(self.cap_watts, self.cap_watts[1:], strict=False)):
            raise InvalidInput("curve-caps", "the caps of a curve must rise strictly")

    def power_at(self, cap_watts: float) -> float:
        """Mean draw in watts of one GPU under a cap."""
        return _interpolate(self.cap_watts, self.power_watts, cap_watts)

    def throughput_at(self, cap_watts: float) -> float:
        """Relative throughput under a cap, 0 to 1."""
        return _interpolate(self.cap_watts, self.throughput, cap_watts)


def _interpolate(xs: tuple[float, ...], ys: tuple[float, ...], x: float) -> float:
    if x <= xs[0]:
        return ys[0]
    if x >= xs[-1]:
        return ys[-1]
    i = bisect_right(xs, x)
    share = (x - xs[i - 1]) / (xs[i] - xs[i - 1])
    return ys[i - 1] + share * (ys[i] - ys[i - 1])
