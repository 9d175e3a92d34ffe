"""How a GPU follows its power cap in time, and what its sensors make of its power.

Pure arrays over all GPUs of a site: no registers, no clock.

The step response is that of a V100 (GridPilot E2, 200 Hz): a lower cap takes hold after about
10 ms with a time constant of 20 ms and undershoots to 7 % below the cap; a higher cap does nothing
for about 105 ms, then the clock rises in two steps. Half of a fall is reached after 21 ms, 95 %
after 42 ms; 63 % of a rise after 155 ms, 95 % after 300 ms. No public step response of a later GPU
is known, so every other model uses the same numbers, **assumed**. So are the time constant of a
clock lock and the clocks of a board (its published boost clock; steps of 15 MHz).
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BOARDS", "Board", "Boxcar", "Regulation", "Smoother", "wave_mean"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

FALL_DEAD_SECONDS: Final = 0.010
FALL_TIME_CONSTANT_SECONDS: Final = 0.020
UNDERSHOOT_SHARE: Final = 0.10
"""Of the set-point; what shows is 6 % below the settled power, as the fall itself lags."""
UNDERSHOOT_DECAY_SECONDS: Final = 0.15
RISE_DEAD_SECONDS: Final = 0.105
RISE_SECOND_STEP_SECONDS: Final = 0.263
RISE_FIRST_SHARE: Final = 0.69
"""(1462 - 1327) / (1522 - 1327) MHz: the first of the two clock steps."""
RISE_TIME_CONSTANT_SECONDS: Final = 0.020
LOCK_TIME_CONSTANT_SECONDS: Final = 0.020
SENSOR_WINDOW_SECONDS: Final = 0.025
"""What a part-time sensor sees of each of its periods (arXiv 2312.02741)."""
SETTLED_SECONDS: Final = 1.0
"""After that long without a change every GPU sits at its set-point."""


@dataclass(frozen=True, slots=True)
class Board:
    """What the driver says of a GPU model, and how its sensor behaves."""

    model: str
    capability: int
    memory_gib: int
    refresh_seconds: float
    """Period of the power sensor (V100 measured at 20.3 ms; 100 ms later: arXiv 2312.02741)."""
    averaged: bool
    """Whether the plain power call is a 1 s average (Ampere and later, but not GA100)."""
    dynamics_basis: str
    clocks_mhz: tuple[int, int, int]
    """Least and greatest SM clock, and the memory clock."""
    energy_counter: bool = True


BOARDS: Final = {
    "a100-400": Board("NVIDIA A100-SXM4-40GB", 80, 40, 0.1, False, "assumed", (210, 1410, 1215)),
    "a40-300": Board("NVIDIA A40", 86, 48, 0.1, True, "assumed", (210, 1740, 7251)),
    "b200-1000": Board("NVIDIA B200", 100, 180, 0.1, True, "assumed", (120, 1965, 3996)),
    "h100-700": Board("NVIDIA H100 80GB HBM3", 90, 80, 0.1, True, "assumed", (210, 1980, 2619)),
    "h200-700": Board("NVIDIA H200", 90, 141, 0.1, True, "assumed", (210, 1980, 3201)),
    "p100-250": Board(
        "Tesla P100-PCIE-16GB", 60, 16, 0.02, False, "assumed", (544, 1324, 715), False
    ),
    "rtx6000-260": Board("Quadro RTX 6000", 75, 24, 0.02, False, "assumed", (300, 2100, 7001)),
    "v100-250": Board("Tesla V100-PCIE-16GB", 70, 16, 0.02, False, "measured", (135, 1380, 877)),
}
"""By the name of the GPU class in ``configs/curves``."""


class Regulation:
    """The level, in watts, at which each GPU's power controller holds it.

    A GPU that the cap does not touch is held at its demand: the level is the lesser of both.
    """

    def __init__(self, level_watts: Floats) -> None:
        self.level_watts = level_watts.copy()
        self._target = level_watts.copy()
        self._start = level_watts.copy()
        self._since = np.full(level_watts.shape, -np.inf)

    def aim(self, target_watts: Floats, now: float) -> bool:
        """Hold each GPU at a new level from ``now`` on; whether anything changed."""
        changed = target_watts != self._target
        if not changed.any():
            return False
        # A rise on top of a rise that is still under way keeps its dead time: only its end moves.
        rising = (self._target > self._start) & (now - self._since < RISE_SECOND_STEP_SECONDS)
        anew = changed & ~(rising & (target_watts > self.level_watts))
        self._start = np.where(anew, self.level_watts, self._start)
        self._since = np.where(anew, now, self._since)
        self._target = np.where(changed, target_watts, self._target)
        return True

    def jump(self, which: NDArray[np.bool_]) -> None:
        """Put those GPUs at their target without any dynamics: nothing runs there to regulate."""
        self.level_watts = np.where(which, self._target, self.level_watts)
        self._start = np.where(which, self._target, self._start)
        self._since = np.where(which, -np.inf, self._since)

    def advance(self, now: float, seconds: float) -> None:
        """Let ``seconds`` pass from ``now``; exact for steps much below a time constant."""
        elapsed = now + seconds - self._since
        falling = self._target < self._start
        dead = np.where(falling, FALL_DEAD_SECONDS, RISE_DEAD_SECONDS)
        decay = np.exp(-np.maximum(elapsed - dead, 0) / UNDERSHOOT_DECAY_SECONDS)
        fall = self._target * (1 - UNDERSHOOT_SHARE * decay)
        partly = self._start + RISE_FIRST_SHARE * (self._target - self._start)
        rise = np.where(elapsed < RISE_SECOND_STEP_SECONDS, partly, self._target)
        goal = np.where(falling, fall, rise)
        # Only the part of the step after the dead time moves anything.
        moving = np.clip(elapsed - dead, 0, seconds)
        constant = np.where(falling, FALL_TIME_CONSTANT_SECONDS, RISE_TIME_CONSTANT_SECONDS)
        self.level_watts = goal + (self.level_watts - goal) * np.exp(-moving / constant)
        settled = elapsed >= SETTLED_SECONDS
        self.level_watts = np.where(settled, self._target, self.level_watts)


class Smoother:
    """Power smoothing: a floor that outlasts the work, and ramps (Blackwell; NVML fields 251 on).

    Power follows what the work asks for by the ramps. Once that has been below the floor for the
    hysteresis, and not before, power goes below the floor, too.
    """

    def __init__(self, watts: Floats) -> None:
        self._watts = watts.copy()
        self._below_since = np.full(watts.shape, np.inf)
        self.moving = np.zeros(watts.shape, np.bool_)

    def advance(
        self,
        asked_watts: Floats,
        on: Flags,
        limits: tuple[Floats, Floats, Floats, Floats],
        now: float,
        seconds: float,
    ) -> Floats:
        """Watts at ``now``, ``seconds`` after the last call.

        Args:
            asked_watts: what the GPUs would draw without smoothing.
            on: which of them smooth.
            limits: floor (W), hysteresis (s), ramp down and ramp up (W/s), of each.
            now: seconds.
            seconds: since the last call.
        """
        if not on.any():
            self._watts, self.moving = asked_watts, on
            return asked_watts
        floor, hysteresis, down, up = limits
        below = on & (asked_watts < floor)
        self._below_since = np.where(below, np.minimum(self._below_since, now), np.inf)
        held = below & (now - self._below_since < hysteresis)
        goal = np.where(held, np.maximum(asked_watts, np.minimum(floor, self._watts)), asked_watts)
        ramped = np.clip(goal, self._watts - down * seconds, self._watts + up * seconds)
        self._watts = np.where(on, ramped, asked_watts)
        self.moving = on & ((self._watts != asked_watts) | held)
        return self._watts


def wave_mean(now: float, period_seconds: Floats, window_seconds: float) -> Floats:
    """Mean of a square wave of height +-1 over the window that ends ``now``; 0 without a period.

    The wave is +1 in the first half of each period, from time 0.
    """
    period = np.where(period_seconds > 0, period_seconds, 1.0)

    def integral(at: float) -> Floats:
        phase = at % period
        return np.minimum(phase, period - phase)

    if window_seconds > 0:
        mean = (integral(now) - integral(now - window_seconds)) / window_seconds
    else:
        mean = np.where(now % period < period / 2, 1.0, -1.0)
    return np.where(period_seconds > 0, mean, 0.0)


class Boxcar:
    """Average power over the last second, from an energy integral marked every 100 ms."""

    MARK_SECONDS: Final = 0.1
    MARKS: Final = 11

    def __init__(self, joules: Floats, watts: Floats, now: float) -> None:
        ages = np.arange(self.MARKS, 0, -1)[:, None] * self.MARK_SECONDS
        self._marks = joules - ages * watts
        self._times = now - ages[:, 0]
        self._next = now

    def advance(self, joules: Floats, watts: Floats, now: float) -> None:
        """Take the integral at ``now``; power was steady if more than one mark has passed."""
        due = math.floor((now - self._next) / self.MARK_SECONDS + 1e-9) + 1
        for back in range(min(due, self.MARKS) - 1, -1, -1):
            at = self._next + (due - 1 - back) * self.MARK_SECONDS
            self._marks = np.vstack((self._marks[1:], joules - (now - at) * watts))
            self._times = np.append(self._times[1:], at)
        self._next += due * self.MARK_SECONDS

    def average_watts(self, joules: Floats, now: float) -> Floats:
        """(N,) watts over the last second."""
        average: Floats = (joules - self._marks[0]) / (now - self._times[0])
        return average
