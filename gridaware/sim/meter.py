"""The virtual site meter, as the window shows it."""

from collections.abc import Mapping
from enum import StrEnum
from math import nan
from pathlib import Path

from gridaware.clock import Clock, SystemClock
from gridaware.domain.errors import ConfigError, Unavailable
from gridaware.domain.reading import Boundary, EnergyReading, Method, Reading
from gridaware.sim.window import Window

__all__ = ["MeterFault", "SimMeter", "open_meter"]

STALE_SECONDS = 2.0
"""A plant that has not moved for so long is dead, and its last value says nothing."""


def open_meter(options: Mapping[str, str]) -> "SimMeter":
    """The site meter of a plant that runs as a process; ``options``: ``window`` (path).

    Raises:
        ConfigError: an option is unknown or missing.
        Unavailable: the window is not there.
    """
    if set(options) != {"window"}:
        raise ConfigError("sim-meter-options", "the simulated meter takes one option, window")
    return SimMeter(Window.open(Path(options["window"])), SystemClock())


class MeterFault(StrEnum):
    """How a meter fails."""

    NONE = "none"
    SILENT = "silent"
    STUCK = "stuck"
    """It repeats its last value."""
    GARBAGE = "garbage"
    PHASE_LOST = "phase-lost"
    """Two thirds of what it should show."""
    KILOWATTS = "kilowatts"
    """A thousandth of it."""


class SimMeter:
    """Reads the site registers. Power is refreshed every 100 ms.

    Args:
        window: the plant's.
        clock: of the world.
        gain: what it shows more than the plant's own meter, as a factor.
        accuracy_share: what it says of itself; the plant's own is class 0.2.
    """

    pace_seconds = 0.05

    def __init__(
        self, window: Window, clock: Clock, *, gain: float = 1.0, accuracy_share: float = 0.002
    ) -> None:
        self.fault = MeterFault.NONE
        self._window = window
        self._clock = clock
        self._gain = gain
        self._accuracy_share = accuracy_share
        self._stuck_watts = 0.0

    def read(self) -> tuple[Reading, EnergyReading | None]:
        """Power now and the energy counter, at the site boundary.

        Raises:
            Unavailable: the meter does not answer, or the plant stands still.
        """
        header = self._window.header
        age = self._clock.monotonic_seconds() - header.plant_seconds
        silent = self.fault is MeterFault.SILENT or (self._gain == 1.0 and header.meter_fault)
        if silent or age > STALE_SECONDS:
            raise Unavailable("meter-silent", "the site meter does not answer", age_seconds=age)
        at = self._clock.wall()
        watts = self._gain * header.meter_watts
        power = Reading(
            self._shown(watts),
            at,
            Boundary.SITE,
            Method.METER,
            accuracy_share=self._accuracy_share,
        )
        epoch = f"plant-{header.plant_pid}-{header.plant_epoch}"
        joules = self._gain * header.meter_joules
        return power, EnergyReading(joules, epoch, at, Boundary.SITE)

    def close(self) -> None:
        """Nothing is held open."""

    def _shown(self, watts: float) -> float:
        if self.fault is not MeterFault.STUCK:
            self._stuck_watts = watts
        return {
            MeterFault.STUCK: self._stuck_watts,
            MeterFault.GARBAGE: nan,
            MeterFault.PHASE_LOST: watts * 2 / 3,
            MeterFault.KILOWATTS: watts / 1000,
        }.get(self.fault, watts)
