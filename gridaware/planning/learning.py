"""A job's own curve: its class's curve, moved to what the job was seen to draw and do.

A job that draws less than its class is not slowed by a cap above its own draw, so the class curve
is shrunk in cap and power alike, about the idle power; throughput follows. At caps at which the
job has been seen, what was seen replaces the class; between them the correction is interpolated.
Only there is the curve measured; everywhere else it has the quality of the class.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gridaware.domain.curve import Curve, CurveQuality

__all__ = ["CurveLearner", "SeenPoint"]

SAME_CAP_SHARE = 0.015
"""Caps closer than this are one point."""
SLOWEST_GAIN = 0.05
"""Weight of one more sample once many were seen: the mean follows a job that changes."""
OUTLIER = 3.0
"""A sample counts as at most this many typical deviations from the mean."""
NEWS = 0.003
"""A mean that moved by less than this share is no reason to make a curve anew."""
MOST_POINTS = 12
TRUSTED_SAMPLES = 5
"""Samples from which a point is believed."""
BINDS = 0.9
"""A job that draws this share of what its class does at a cap may simply be held by the cap.

Sensors differ by 5 % from GPU to GPU (arXiv 2312.02741) and curves by a few per cent: taken for
cool, a GPU would get its found limit back in the middle of an event.
"""


@dataclass(frozen=True, slots=True)
class SeenPoint:
    """What one GPU of the job drew and what the job did at one cap."""

    cap_watts: float
    power_watts: float
    power_deviation_watts: float
    steps_per_second: float
    """0 where no step rate was known."""
    rate_deviation: float
    samples: int

    def absorb(self, power_watts: float, steps_per_second: float | None) -> "SeenPoint":
        """The point after one more sample; outliers are clipped."""
        gain = max(1.0 / (self.samples + 1), SLOWEST_GAIN)
        young = self.samples < TRUSTED_SAMPLES
        power, power_spread = _robust(
            self.power_watts, self.power_deviation_watts, power_watts, gain, young
        )
        rate, rate_spread = self.steps_per_second, self.rate_deviation
        if steps_per_second is not None and steps_per_second > 0:
            if rate > 0:
                rate, rate_spread = _robust(rate, rate_spread, steps_per_second, gain, young)
            else:
                rate = steps_per_second
        return SeenPoint(self.cap_watts, power, power_spread, rate, rate_spread, self.samples + 1)


@dataclass(frozen=True, slots=True)
class CurveLearner:
    """What is known of one job. A value: observing gives a new learner."""

    points: tuple[SeenPoint, ...] = ()
    """By cap, rising."""

    def observe(
        self, cap_watts: float, power_watts: float, steps_per_second: float | None = None
    ) -> "CurveLearner":
        """The learner after one settled sample of one GPU under a cap.

        Args:
            cap_watts: in force for long enough that the draw has settled.
            power_watts: mean over the job's GPUs.
            steps_per_second: of the job, where it is known.
        """
        if not (power_watts > 0 and cap_watts > 0):
            return self
        index = self._index(cap_watts)
        if index is None:
            point = SeenPoint(cap_watts, power_watts, 0.0, steps_per_second or 0.0, 0.0, 1)
            points = sorted((*self.points, point), key=lambda seen: seen.cap_watts)
            if len(points) > MOST_POINTS:  # the least seen goes, never the newest
                points.remove(min((p for p in points if p is not point), key=lambda p: p.samples))
            return CurveLearner(tuple(points))
        after = self.points[index].absorb(power_watts, steps_per_second)
        return replace(self, points=(*self.points[:index], after, *self.points[index + 1 :]))

    def differs(self, other: "CurveLearner") -> bool:
        """Whether a curve made from ``other`` is out of date: a point is new, or moved visibly."""
        if len(self.points) != len(other.points):
            return True
        return any(
            mine.cap_watts != theirs.cap_watts
            or (mine.samples >= TRUSTED_SAMPLES) != (theirs.samples >= TRUSTED_SAMPLES)
            or abs(mine.power_watts - theirs.power_watts) > NEWS * theirs.power_watts
            or abs(mine.steps_per_second - theirs.steps_per_second) > NEWS * theirs.steps_per_second
            for mine, theirs in zip(self.points, other.points, strict=True)
        )

    def quality_at(self, cap_watts: float, of_class: CurveQuality) -> CurveQuality:
        """``measured`` at a cap that was seen often enough, else the quality of the class."""
        index = self._index(cap_watts)
        seen = index is not None and self.points[index].samples >= TRUSTED_SAMPLES
        return "measured" if seen else of_class

    def curve(self, of_class: Curve, found_watts: float) -> Curve:
        """The job's curve.

        Args:
            of_class: the curve of its class on its GPU.
            found_watts: the limit at which it counts as uncapped.
        """
        trusted = [point for point in self.points if point.samples >= TRUSTED_SAMPLES]
        if not trusted:
            return of_class
        # A few readings at a higher cap show heat that many at a lower one cannot.
        gain = max(_gain(of_class, point) for point in (trusted[-1], self.points[-1]))
        scaled = _shrunk(of_class, gain)
        reference = self.reference_rate(scaled, found_watts)
        caps = sorted({*scaled.cap_watts, *(point.cap_watts for point in trusted)})
        power_fix = _correction(
            [(p.cap_watts, p.power_watts / scaled.power_at(p.cap_watts)) for p in trusted]
        )
        rate_fix = _correction(
            [
                (p.cap_watts, p.steps_per_second / reference / scaled.throughput_at(p.cap_watts))
                for p in trusted
                if reference > 0 and p.steps_per_second > 0
            ]
        )
        power = _never_falling([scaled.power_at(cap) * power_fix(cap) for cap in caps])
        work = _never_falling([scaled.throughput_at(cap) * rate_fix(cap) for cap in caps])
        return Curve(
            cap_watts=tuple(caps),
            power_watts=tuple(power),
            throughput=tuple(min(share / work[-1], 1.0) for share in work),
            idle_watts=min(of_class.idle_watts, power[0]),
            quality="measured" if self._spans(trusted, found_watts) else of_class.quality,
            source=f"{of_class.source}, moved to its own draw",
        )

    def reference_rate(self, curve: Curve, found_watts: float) -> float:
        """Steps a second when uncapped; 0 where no step was seen.

        Measured at the highest cap seen; if that is below the found limit, raised by what the
        curve says the cap costs, which is then an assumption.
        """
        for point in reversed(self.points):
            if point.steps_per_second > 0:
                share = curve.throughput_at(point.cap_watts) / curve.throughput_at(found_watts)
                return point.steps_per_second / max(share, 1e-6)
        return 0.0

    def _index(self, cap_watts: float) -> int | None:
        for index, point in enumerate(self.points):
            if abs(point.cap_watts - cap_watts) <= SAME_CAP_SHARE * cap_watts:
                return index
        return None

    def _spans(self, trusted: list[SeenPoint], found_watts: float) -> bool:
        """Seen both uncapped and capped: the part between is no longer the class's word alone."""
        top = trusted[-1].cap_watts >= (1 - SAME_CAP_SHARE) * found_watts
        return top and len(trusted) >= 2


def _robust(
    mean: float, deviation: float, sample: float, gain: float, young: bool
) -> tuple[float, float]:
    """Mean and mean deviation after one more sample, which is clipped unless they are young."""
    step = sample - mean
    if not young:
        bound = max(OUTLIER * deviation, 0.005 * mean)
        step = min(max(step, -bound), bound)
    return mean + gain * step, deviation + gain * (abs(step) - deviation)


def _shrunk(curve: Curve, gain: float) -> Curve:
    """The curve with caps and power scaled about the idle power."""
    idle = curve.idle_watts
    return replace(
        curve,
        cap_watts=tuple(idle + gain * (cap - idle) for cap in curve.cap_watts),
        power_watts=tuple(idle + gain * (watts - idle) for watts in curve.power_watts),
    )


def _gain(curve: Curve, seen: SeenPoint) -> float:
    """How hot the job is beside its class, from what it drew at the highest cap seen."""
    expected = curve.power_at(seen.cap_watts)
    uncapped = seen.cap_watts >= curve.cap_watts[-1] * (1 - SAME_CAP_SHARE)
    if not uncapped and seen.power_watts >= BINDS * expected:
        return 1.0  # held by the cap: how hot it would be without is not seen
    low, high = 0.02, 1.5
    for _ in range(24):  # draw at that cap rises with the gain
        middle = (low + high) / 2
        if _shrunk_power(curve, middle, seen.cap_watts) < seen.power_watts:
            low = middle
        else:
            high = middle
    return high


def _shrunk_power(curve: Curve, gain: float, cap_watts: float) -> float:
    idle = curve.idle_watts
    return idle + gain * (curve.power_at(idle + (cap_watts - idle) / gain) - idle)


def _correction(points: list[tuple[float, float]]) -> Callable[[float], float]:
    """Factor by cap: what was seen over what the curve says, a straight line between."""
    if not points:
        return lambda _cap: 1.0
    if len(points) == 1:
        return lambda _cap: points[0][1]
    caps = tuple(cap for cap, _ in points)
    factors = tuple(factor for _, factor in points)
    line = Curve(caps, factors, factors, 0.0)
    return line.power_at


def _never_falling(values: list[float]) -> list[float]:
    """Each value, or the largest before it."""
    highest = values[0]
    result = []
    for value in values:
        highest = max(highest, value)
        result.append(highest)
    return result
