"""The virtual site meter, as the window shows it."""

from collections.abc import Mapping
from pathlib import Path

from gridaware.clock import Clock, SystemClock
from gridaware.domain.errors import ConfigError, Unavailable
from gridaware.domain.reading import Boundary, EnergyReading, Method, Reading
from gridaware.sim.window import Window

__all__ = ["SimMeter", "open_meter"]

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


class SimMeter:
    """Reads the site registers. Power is refreshed every 100 ms; accuracy class 0.2."""

    def __init__(self, window: Window, clock: Clock) -> None:
        self._window = window
        self._clock = clock

    def read(self) -> tuple[Reading, EnergyReading | None]:
        """Power now and the energy counter, at the site boundary.

        Raises:
            Unavailable: the meter does not answer, or the plant stands still.
        """
        header = self._window.header
        age = self._clock.monotonic_seconds() - header.plant_seconds
        if header.meter_fault or age > STALE_SECONDS:
            raise Unavailable("meter-silent", "the site meter does not answer", age_seconds=age)
        at = self._clock.wall()
        power = Reading(header.meter_watts, at, Boundary.SITE, Method.METER)
        epoch = f"plant-{header.plant_pid}-{header.plant_epoch}"
        return power, EnergyReading(header.meter_joules, epoch, at, Boundary.SITE)
