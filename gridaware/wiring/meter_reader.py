"""Reads the site meter on a thread of its own: a meter that hangs holds nothing up."""

import logging
import threading
from collections.abc import Callable
from importlib import import_module

from gridaware.clock import Clock
from gridaware.control.ports import Meter
from gridaware.domain.errors import ConfigError, GridawareError, Unavailable
from gridaware.domain.reading import EnergyReading, Reading

__all__ = ["MeterReader", "open_meter"]

DEVICE_SUM = "gridaware.devices.device_sum"
_log = logging.getLogger(__name__)
Heard = Callable[[Reading, EnergyReading | None, float], None]


def open_meter(module: str, options: dict[str, str]) -> Meter | None:
    """The meter that the settings name; None = the sum of devices, which needs no reading.

    Raises:
        ConfigError: there is no such module, or it has no ``open_meter``.
        Unavailable: the meter does not answer.
    """
    if module == DEVICE_SUM:
        return None
    try:
        meter: Meter = import_module(module).open_meter(options)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            "meter-module", f"{module} is no meter module: {error}", module=module
        ) from error
    return meter


class MeterReader:
    """Reads a meter at the pace that is asked for and hands each reading on."""

    def __init__(self, meter: Meter, clock: Clock, heard: Heard, hz: Callable[[], float]) -> None:
        self._meter = meter
        self._clock = clock
        self._heard = heard
        self._hz = hz
        self._stopping = threading.Event()
        self._silent = False
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more; a call that hangs is left behind."""
        self._stopping.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while not self._stopping.wait(0.5 / self._hz()):
            try:
                reading, energy = self._meter.read()
            except Unavailable as error:
                if not self._silent:
                    _log.warning("the site meter does not answer: %s", error)
                self._silent = True
            except GridawareError as error:
                _log.error("the site meter failed: %s", error)
                self._silent = True
            else:
                self._silent = False
                self._heard(reading, energy, self._clock.monotonic_seconds())
