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


class LastGood:
    """Power readings, each held against what its device can draw at all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[str, Reading] = {}
        self._drawing: dict[str, bool] = {}

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
        self._drawing[gpu_id] = 0 < watts < IMPLAUSIBLE_SHARE * greatest_watts  # false for NaN, too
        if self._drawing[gpu_id]:
            self._last[gpu_id] = Reading(watts, self._clock.wall(), boundary, method)
            return self._last[gpu_id]
        last = self._last.get(gpu_id)
        if last is None:
            raise DeviceError(
                "power-implausible", f"GPU {gpu_id}: shows {watts} W", gpu_id=gpu_id, watts=watts
            )
        return Reading(last.watts, last.at, last.boundary, last.method, Quality.HELD)

    def drawing(self, gpu_id: str) -> bool:
        """Whether it drew power when it was last read."""
        return self._drawing.get(gpu_id, False)


@dataclass(slots=True)
class _Count:
    joules: float
    epoch: str
    moved_seconds: float
    frozen: bool = False


class Counters:
    """Energy counters: a decrease begins an epoch, and one that froze is not believed again.

    A counter that runs on after a freeze has lost what was drawn meanwhile, and nothing tells how
    much; so it stays out until the driver is opened anew, and energy is integrated instead.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    def reading(
        self, gpu_id: str, joules: float, epoch: str, boundary: Boundary, *, drawing: bool
    ) -> EnergyReading:
        """``joules`` as a reading of the counter.

        Args:
            gpu_id: whose counter.
            joules: what it shows.
            epoch: of the driver; a decrease under one adds the boot seconds at which it was seen.
            boundary: what it encloses.
            drawing: whether power flows, so that the counter must move.

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
        if joules != count.joules:
            count.joules, count.moved_seconds = joules, now
        elif drawing and now - count.moved_seconds > FROZEN_SECONDS:
            count.frozen = True
        if count.frozen:
            raise DeviceError(
                "energy-frozen",
                f"GPU {gpu_id}: draws power, and its energy counter stood still at {joules:g} J",
                gpu_id=gpu_id,
            )
        return EnergyReading(joules, count.epoch, self._clock.wall(), boundary)
