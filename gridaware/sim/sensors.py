"""What the sensors of GPUs make of the power that they draw: gain, noise, age, averages.

Each sensor has a gain of its own and shows a value until its next refresh. The energy counter has
another gain, so counter and integral differ, as on real boards.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gridaware.sim.registers import Registers
from gridaware.sim.silicon import SENSOR_WINDOW_SECONDS, Board, Boxcar, wave_mean
from gridaware.sim.window import GpuSlot

__all__ = ["Sensors"]

Floats = NDArray[np.float64]

POWER_GAIN_SPREAD: Final = 0.05
"""Sensor gain of each GPU is uniform within +-5 % (arXiv 2312.02741)."""
ENERGY_GAIN_SPREAD: Final = 0.02
SENSOR_NOISE_SHARE: Final = 0.003
COUNTER_JITTER_SECONDS: Final = 0.002
"""The counter's last update is up to so much older than its refresh says."""
PART_TIME_SECONDS: Final = 0.1
"""Period of a part-time sensor."""


class Sensors:
    """The power sensor and the energy counter of every GPU.

    Args:
        registers: of the window.
        boards: of each GPU.
        random: for the gains; the noise comes from the caller's.
    """

    def __init__(
        self, registers: Registers, boards: list[Board], random: np.random.Generator
    ) -> None:
        count = len(boards)
        self._refresh = np.array([board.refresh_seconds for board in boards])
        self._averaged = np.array([board.averaged for board in boards])
        self._power_gain = 1 + POWER_GAIN_SPREAD * random.uniform(-1, 1, count)
        self._energy_gain = 1 + ENERGY_GAIN_SPREAD * random.uniform(-1, 1, count)
        registers.doubles(GpuSlot.power_gain)[:] = self._power_gain
        registers.doubles(GpuSlot.energy_gain)[:] = self._energy_gain
        self._instant = registers.doubles(GpuSlot.instant_watts)
        self._average = registers.doubles(GpuSlot.average_watts)
        self._millijoules = registers.integers(GpuSlot.energy_millijoules)
        self._ripple_watts = registers.doubles(GpuSlot.ripple_watts)
        self._ripple_seconds = registers.doubles(GpuSlot.ripple_seconds)
        self._part_time = registers.integers(GpuSlot.part_time)
        self._counter_base = np.zeros(count)
        self._boxcar: Boxcar | None = None

    def begin(self, joules: Floats, watts: Floats, now: float) -> None:
        """Power was steady until ``now``."""
        self._boxcar = Boxcar(joules, watts, now)

    def restart_counters(self, which: NDArray[np.bool_], joules: Floats) -> None:
        """The driver of those GPUs was loaded anew: they count from here."""
        self._counter_base = np.where(which, joules, self._counter_base)
        self._millijoules[which] = 0

    def advance(self, joules: Floats, watts: Floats, now: float) -> None:
        """Take the true energy and power at ``now``."""
        assert self._boxcar is not None
        self._boxcar.advance(joules, watts, now)

    def show(
        self,
        joules: Floats,
        watts: Floats,
        activity: Floats,
        span: tuple[float, float],
        random: np.random.Generator,
    ) -> None:
        """Refresh every sensor whose period has ended within ``span`` (from, to)."""
        since, now = span
        due = np.floor(now / self._refresh + 1e-9) > np.floor(since / self._refresh + 1e-9)
        if not due.any():
            return
        assert self._boxcar is not None
        noise = 1 + SENSOR_NOISE_SHARE * random.standard_normal(due.shape)
        ripple, ripple_of_second = self._ripples(activity, now)
        instant = (watts + ripple) * self._power_gain * noise
        # Real samples never repeat; some clients drop a sample that equals the last one.
        instant += np.where(np.abs(instant - self._instant) < 0.001, 0.002, 0.0)
        average = self._boxcar.average_watts(joules, now) + ripple_of_second
        average = average * self._power_gain
        average = np.where(self._averaged, average + 0.002 * (noise - 1), instant)
        stale = COUNTER_JITTER_SECONDS * random.random(due.shape)
        counted = (joules - self._counter_base - stale * watts) * self._energy_gain
        count = np.maximum((1000 * counted).astype(np.int64), self._millijoules)
        self._instant[due] = instant[due]
        self._average[due] = average[due]
        self._millijoules[due] = count[due]

    def _ripples(self, activity: Floats, now: float) -> tuple[Floats, Floats]:
        """What the waves of the jobs' steps add to a sample, and to the mean of a second."""
        if not self._ripple_watts.any():
            return np.zeros_like(activity), np.zeros_like(activity)
        period, part_time = self._ripple_seconds, self._part_time[:] != 0
        seen = [
            wave_mean(now - back * PART_TIME_SECONDS, period, SENSOR_WINDOW_SECONDS)
            for back in range(10)
        ]
        sample = np.where(part_time, seen[0], wave_mean(now, period, 0.0))
        second = np.where(part_time, np.mean(seen, axis=0), wave_mean(now, period, 1.0))
        height = self._ripple_watts * activity
        return height * sample, height * second
