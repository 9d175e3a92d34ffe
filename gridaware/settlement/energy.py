"""Energy of one device over one window, with method, coverage and an error band.

The band is what the figure may be off by, in joules either way. Its terms:

* **ends**: the window begins and ends between two samples. The counter only rises, so the truth
  lies between its two values and no further from either than the peak power allows; and what it
  shows may be one refresh old (more while it stands still), and a sample's time slightly off.
* **restart**: between the last value of one epoch and the first of the next only zero and the
  peak power (1.25 times the larger of limit and reading) bound what was drawn.
* **interpolation**: where power was integrated, half the difference of two neighbouring readings
  times their distance.
* **gaps**: seconds without any reading, at the peak power.

**Not** in the band is the gain of the sensor itself, which nobody can know from the inside: NVML
documents ±5 % (:data:`SENSOR_GAIN_UNKNOWN`; arXiv 2312.02741). It is stated beside the figure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum

from gridaware.domain.errors import InvalidInput
from gridaware.settlement.counter import CounterRules, CounterWalk, Flag, Increment, PowerSample

__all__ = ["SENSOR_GAIN_UNKNOWN", "Energy", "EnergyMethod", "device_energy", "method_of"]

SENSOR_GAIN_UNKNOWN = 0.05
"""Relative gain error of a board's own sensor, outside every band."""


class EnergyMethod(StrEnum):
    """How an energy figure came about."""

    COUNTER = "counter"
    INTEGRATED = "integrated"
    ESTIMATED = "estimated"
    """From a model or from the other side of a gap; never from a reading of its own."""
    MIXED = "mixed"
    NONE = "none"
    """There was nothing to measure."""


@dataclass(frozen=True, slots=True)
class Energy:
    """An energy figure that says how it came about and how far to trust it."""

    joules: float
    method: EnergyMethod
    coverage: float
    """Share of the window with readings, 0 to 1."""
    band_joules: float
    """The truth lies within ± this, up to the sensor's own gain."""
    readings: int
    flags: tuple[Flag, ...] = ()
    resets: int = 0
    integral_joules: float | None = None
    """The same window from power alone, as a cross-check; None where power was not known."""

    @property
    def kwh(self) -> float:
        """The same in kilowatt-hours."""
        return self.joules / 3.6e6


def device_energy(
    samples: Iterable[PowerSample],
    start_seconds: float,
    end_seconds: float,
    rules: CounterRules | None = None,
) -> Energy:
    """Energy of one device over ``[start, end)``.

    Args:
        samples: in time order, beginning before and ending after the window where possible:
            outside them the window counts as a gap.
        start_seconds: on the samples' own clock.
        end_seconds: after the start.
        rules: how the counter is judged.

    Raises:
        InvalidInput: the window is empty or runs backwards.
    """
    if not end_seconds > start_seconds:
        raise InvalidInput("window-empty", "an energy window must end after it starts")
    rules = rules or CounterRules()
    walk = CounterWalk(rules)
    kept = [inc for inc in map(walk.step, samples) if inc is not None]
    inside = [
        inc
        for inc in kept
        if inc.after.at_seconds > start_seconds and inc.before.at_seconds < end_seconds
    ]
    parts = [_part(inc, _cut(inc, start_seconds, end_seconds, rules), rules) for inc in inside]
    covered = fsum(p.seconds for p in parts if p.known)
    seconds = end_seconds - start_seconds
    peak = max((inc.peak_watts for inc in inside), default=0.0)
    band = fsum(p.band_joules for p in parts) + peak * max(seconds - covered, 0.0)
    if inside:
        band += _end_slack(inside[0], parts[0].cut.start, parts[0].cut.spent_before, rules)
        band += _end_slack(inside[-1], parts[-1].cut.end, parts[-1].cut.spent_by_end, rules)
    flags = _flags(inside, parts, band, seconds - covered > 1e-9)
    return Energy(
        joules=fsum(p.joules for p in parts),
        method=method_of(
            counter_seconds=fsum(p.seconds for p in parts if p.known and p.by_counter),
            integrated_seconds=fsum(p.seconds for p in parts if p.known and not p.by_counter),
        ),
        coverage=min(covered / seconds, 1.0),
        band_joules=band,
        readings=len(inside) + 1 if inside else 0,
        flags=flags,
        resets=sum(inc.flag is Flag.COUNTER_RESET for inc in inside),
        integral_joules=_cross_check(parts),
    )


def method_of(*, counter_seconds: float, integrated_seconds: float) -> EnergyMethod:
    """The one word for a figure that came about in these two ways."""
    if counter_seconds > 0 and integrated_seconds > 0:
        return EnergyMethod.MIXED
    if counter_seconds > 0:
        return EnergyMethod.COUNTER
    return EnergyMethod.INTEGRATED if integrated_seconds > 0 else EnergyMethod.ESTIMATED


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where a window cuts an increment, and what was drawn by there."""

    start: float
    end: float
    spent_before: float
    spent_by_end: float


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of an increment that lies in the window."""

    cut: _Cut
    seconds: float
    joules: float
    integral_joules: float | None
    known: bool
    by_counter: bool
    band_joules: float


def _cut(inc: Increment, start: float, end: float, rules: CounterRules) -> _Cut:
    """Cut an increment at the ends of a window.

    A window ends where work begins or ends, so power steps there: outside it is what was read on
    that side, and what the counter shows beyond that was drawn inside. A job shorter than the
    distance of two samples is found that way. Where power alone is known it changes in a straight
    line.
    """
    a, b, joules = inc.before.at_seconds, inc.after.at_seconds, inc.joules
    low, high = max(start, a), min(end, b)
    first, last = inc.before.watts, inc.after.watts
    if not inc.by_counter or first is None or last is None:
        return _Cut(low, high, _share(inc, low) * joules, _share(inc, high) * joules)
    before, after = first * (low - a), last * (b - high)
    if low > a and high < b:
        scale = 1.0
    else:
        expected = before + after + (last if low > a else first) * (high - low)
        scale = joules / expected if expected > 0 else 1.0
        scale = min(max(scale, 1 - rules.disagree), 1 + rules.disagree)
    spent = min(scale * before, joules)
    return _Cut(low, high, spent, max(joules - scale * after, spent))


def _part(inc: Increment, cut: _Cut, rules: CounterRules) -> _Part:
    seconds = cut.end - cut.start
    joules = cut.spent_by_end - cut.spent_before
    integral = None
    if inc.integral_joules is not None:
        integral = inc.integral_joules * (_share(inc, cut.end) - _share(inc, cut.start))
    if inc.hard:
        band = max(joules, inc.peak_watts * (seconds + rules.refresh_seconds) - joules)
    else:
        band = inc.band_joules * seconds / inc.seconds
    return _Part(cut, seconds, joules, integral, inc.known, inc.by_counter, band)


def _share(inc: Increment, at: float) -> float:
    """Share of the increment drawn by ``at``, were its power a straight line."""
    x = (at - inc.before.at_seconds) / inc.seconds
    first, last = inc.before.watts, inc.after.watts
    if first is None or last is None or first + last <= 0:
        return x
    return (first * x + (last - first) * x * x / 2) / ((first + last) / 2)


def _end_slack(inc: Increment, at: float, spent: float, rules: CounterRules) -> float:
    """How far the energy drawn by ``at`` may lie from its estimate ``spent``, either way.

    The true total at a sample lies between what the counter shows and that plus the peak power
    for as long as it may have been stale. Both neighbours of ``at`` give such bounds; the tighter
    ones hold.
    """
    peak = inc.peak_watts
    if not inc.by_counter:
        return peak * (rules.refresh_seconds + rules.stamp_seconds)
    passed, left = at - inc.before.at_seconds, inc.after.at_seconds - at
    coming = inc.joules - spent
    up_before = peak * (inc.frozen_before + rules.refresh_seconds) - inc.ahead_before
    up_after = peak * (inc.frozen_after + rules.refresh_seconds) - inc.ahead_after
    low = max(-spent - inc.ahead_before, coming - inc.ahead_after - peak * left)
    high = min(coming + up_after, up_before + peak * passed - spent)
    return max(abs(low), abs(high)) + peak * rules.stamp_seconds


def _cross_check(parts: Sequence[_Part]) -> float | None:
    known = [p.integral_joules for p in parts if p.integral_joules is not None]
    return fsum(known) if known else None


def _flags(
    inside: Sequence[Increment], parts: Sequence[_Part], band: float, gap: bool
) -> tuple[Flag, ...]:
    found = {inc.flag for inc in inside if inc.flag is not None}
    if gap:
        found.add(Flag.READINGS_MISSING)
    both = [p for p in parts if p.by_counter and p.integral_joules is not None]
    counted = fsum(p.joules for p in both)
    integrated = fsum(p.integral_joules or 0.0 for p in both)
    if disagrees(counted, integrated, band):
        found.add(Flag.COUNTER_DISAGREES)
    return tuple(sorted(found))


def disagrees(
    counted_joules: float, integrated_joules: float, band_joules: float, tolerance: float = 0.10
) -> bool:
    """Whether counter and integral differ by more than both the tolerance and the band."""
    difference = abs(counted_joules - integrated_joules)
    return difference > band_joules and difference > tolerance * max(
        counted_joules, integrated_joules
    )
