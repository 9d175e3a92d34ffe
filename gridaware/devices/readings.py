"""What a driver does with numbers before it shows them: are they power, does the counter count?

One object for each driver that is open, keyed by GPU; calls for different GPUs may come from
different threads, and each GPU has its own entry.
"""

import math
from dataclasses import dataclass
from typing import Final

from gridaware.clock import Clock
from gridaware.domain.errors import DeviceError
from gridaware.domain.reading import Boundary, EnergyReading, Method, Quality, Reading

__all__ = ["Counters", "LastGood"]

IMPLAUSIBLE_SHARE: Final = 1.5
"""Of the greatest limit: more than that is a broken sensor, not power (notes §6, case 32)."""
FROZEN_SECONDS: Final = 5.0
"""A counter that does not move this long while power flows counts nothing (case 34)."""
TRIAL_SECONDS: Final = 30.0
"""For so long a counter that froze must agree with power before it is believed again. Short beside
the freeze, so that accounting sees what the counter has missed and books the integral for it."""
TRIAL_SHARE: Final = 0.1
"""More than that between counter and integral is a disagreement (notes §1.2)."""
TRIAL_GAP_SECONDS: Final = 10.0
"""Between two readings further apart power is not integrated."""


class LastGood:
    """Power readings, each held against what its device can draw at all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[str, Reading] = {}
        self._watts: dict[str, float] = {}

    def reading(
        self,
        gpu_id: str,
        watts: float,
        greatest_watts: float,
        boundary: Boundary,
        method: Method,
    ) -> Reading:
        """``watts`` as a reading, or the last good one, and it says so.

        Raises:
            DeviceError: ``power-implausible``, and there is no good one yet.
        """
        good = 0 < watts < IMPLAUSIBLE_SHARE * greatest_watts  # false for NaN, too
        self._watts[gpu_id] = watts if good else 0.0
        if good:
            self._last[gpu_id] = Reading(watts, self._clock.wall(), boundary, method)
            return self._last[gpu_id]
        last = self._last.get(gpu_id)
        if last is None:
            raise DeviceError(
                "power-implausible", f"GPU {gpu_id}: shows {watts} W", gpu_id=gpu_id, watts=watts
            )
        return Reading(last.watts, last.at, last.boundary, last.method, Quality.HELD)

    def watts(self, gpu_id: str) -> float:
        """What it drew when it was last read; 0 where that was nothing, or no power at all."""
        return self._watts.get(gpu_id, 0.0)


@dataclass(slots=True)
class _Trial:
    """A counter that froze moves again: does it count what is drawn?"""

    begun_seconds: float
    begun_joules: float
    at_seconds: float
    watts: float
    drawn_joules: float = 0.0

    def goes_on(self, watts: float, now: float) -> bool:
        """Integrate up to now; False where power was not known meanwhile."""
        seconds = now - self.at_seconds
        self.drawn_joules += (self.watts + watts) / 2 * seconds
        known = min(self.watts, watts) > 0 and seconds <= TRIAL_GAP_SECONDS
        self.at_seconds, self.watts = now, watts
        return known

    def passed(self, joules: float, now: float) -> bool | None:
        """Whether it has counted what was drawn; None = it is too early to say."""
        if now - self.begun_seconds < TRIAL_SECONDS:
            return None
        counted = joules - self.begun_joules
        return abs(counted - self.drawn_joules) <= TRIAL_SHARE * self.drawn_joules


@dataclass(slots=True)
class _Count:
    joules: float
    epoch: str
    moved_seconds: float
    frozen: bool = False
    trial: _Trial | None = None


class Counters:
    """Energy counters: a decrease begins an epoch, and one that froze is not believed for a while.

    A counter that runs on after a freeze has lost what was drawn meanwhile, and nothing tells how
    much. So energy is integrated from power until the counter has agreed with it for
    ``TRIAL_SECONDS``; then it is believed again, in an epoch of its own.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    def reading(
        self, gpu_id: str, joules: float, epoch: str, boundary: Boundary, *, watts: float
    ) -> EnergyReading:
        """``joules`` as a reading of the counter.

        Args:
            gpu_id: whose counter.
            joules: what it shows.
            epoch: of the driver; a decrease under one adds the boot seconds at which it was seen.
            boundary: what it encloses.
            watts: what flows now, so that the counter must move; 0 = nothing, or nobody knows.

        Raises:
            DeviceError: ``energy-frozen``, or ``energy-absurd`` for what is no number.
        """
        if not 0 <= joules < math.inf:
            raise DeviceError("energy-absurd", f"GPU {gpu_id}: the counter shows {joules} J")
        now = self._clock.boot_seconds()
        count = self._counts.get(gpu_id)
        if count is None:
            count = self._counts[gpu_id] = _Count(joules, epoch, now)
        elif joules < count.joules:
            count.epoch = f"{epoch}@{now:.3f}"
            count.trial = None
        if count.frozen and _is_back(count, joules, watts, now):
            count.frozen, count.trial = False, None
            count.epoch = f"{epoch}@{now:.3f}"
        if joules != count.joules:
            count.joules, count.moved_seconds = joules, now
        elif watts > 0 and now - count.moved_seconds > FROZEN_SECONDS:
            count.frozen, count.trial = True, None
        if count.frozen:
            raise DeviceError(
                "energy-frozen",
                f"GPU {gpu_id}: draws power, and its energy counter stood still at {joules:g} J",
                gpu_id=gpu_id,
            )
        return EnergyReading(joules, count.epoch, self._clock.wall(), boundary)


def _is_back(count: _Count, joules: float, watts: float, now: float) -> bool:
    """Whether a counter that froze has agreed with power for long enough by now."""
    trial = count.trial
    if trial is None:
        if joules != count.joules:
            count.trial = _Trial(now, joules, now, watts)
        return False
    passed = trial.passed(joules, now) if trial.goes_on(watts, now) else False
    if passed is False:
        count.trial = _Trial(now, joules, now, watts)
    return passed is True
