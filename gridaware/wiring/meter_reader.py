"""Reads each meter of the site on a thread of its own: one that hangs holds nothing up."""

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from gridaware.clock import Clock
from gridaware.control.meters import MeterOrder, MeterSpec
from gridaware.control.ports import Meter
from gridaware.devices.metersum import SumMeter
from gridaware.domain.errors import ConfigError, GridawareError, Unavailable
from gridaware.domain.reading import EnergyReading, Reading
from gridaware.wiring.config import Settings
from gridaware.wiring.data import data_path
from gridaware.wiring.sections import DEVICE_SUM, MeterSection

__all__ = [
    "Heard",
    "MeterReader",
    "meter_order",
    "meter_readers",
    "open_meter",
    "open_section",
]

LONGEST_PACE_SECONDS = 60.0
_log = logging.getLogger(__name__)


class Heard(Protocol):
    """Who is told what came of reading."""

    def on_meter(
        self, name: str, reading: Reading, energy: EnergyReading | None, seconds: float
    ) -> None:
        """A meter was read."""
        ...

    def on_meter_failed(self, name: str, message: str) -> None:
        """A meter could not be read, and why."""
        ...


def open_meter(module: str, options: Mapping[str, str]) -> Meter:
    """The meter of a module, not dialled yet; a register map's bare name is one of ours.

    Raises:
        ConfigError: there is no such module, it has no ``open_meter``, or an option is wrong.
        Unavailable: it has to be there to be opened, and is not.
    """
    if "map" in options and not Path(options["map"]).is_absolute():
        options = {**options, "map": str(_own_map(options["map"]))}
    try:
        opened = import_module(module).open_meter(options)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            "meter-module", f"{module} is no meter module: {error}", module=module
        ) from error
    return cast("Meter", opened)


def open_section(section: MeterSection) -> Meter:
    """The meter that a section of the settings names, or the sum of its parts.

    Raises:
        ConfigError: as :func:`open_meter`.
        Unavailable: as :func:`open_meter`.
    """
    if not section.parts:
        return open_meter(section.module, section.options)
    return SumMeter([open_meter(part.module, part.options) for part in section.parts])


def _own_map(name: str) -> Path:
    folder = data_path("configs") / "meters"
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        raise ConfigError(
            "meter-map", f"no map is called {name!r}; there are {', '.join(known)}", name=name
        )
    return folder / f"{name}.yaml"


def meter_order(settings: Settings) -> MeterOrder:
    """The site's meters in the order in which they are believed."""
    specs = [
        MeterSpec(
            section.name,
            section.accuracy_share,
            section.stale_seconds,
            device_sum=section.module == DEVICE_SUM,
        )
        for section in settings.site.meters
    ]
    return MeterOrder(specs, rating_watts=settings.site.rating_watts)


def meter_readers(
    settings: Settings, clock: Clock, heard: Heard, hz: Callable[[], float]
) -> list["MeterReader"]:
    """One reader for each meter that has something to be read.

    Raises:
        ConfigError: a module or an option is wrong.
    """
    return [
        MeterReader(section.name, partial(open_section, section), clock, heard, hz)
        for section in settings.site.meters
        if section.module != DEVICE_SUM
    ]


class MeterReader:
    """Reads one meter at the pace that is asked for, and hands on what came of it."""

    def __init__(
        self,
        name: str,
        opens: Callable[[], Meter],
        clock: Clock,
        heard: Heard,
        hz: Callable[[], float],
    ) -> None:
        """Open it; one that is not there yet is opened later.

        Raises:
            ConfigError: the module or an option is wrong.
        """
        self.name = name
        self._open = opens
        self._clock = clock
        self._heard = heard
        self._hz = hz
        self._stopping = threading.Event()
        self._failing = False
        self._meter: Meter | None = None
        try:
            self._meter = self._open()
        except Unavailable as error:
            self._failed(error)
        self._thread = threading.Thread(target=self._run, name=f"meter-{name}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more; a call that hangs is left behind."""
        self._stopping.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_seconds()):
            try:
                if self._meter is None:
                    self._meter = self._open()
                reading, energy = self._meter.read()
            except GridawareError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - a driver's bug must not end the thread
                _log.exception("the driver of meter %s failed", self.name)
                self._heard.on_meter_failed(self.name, type(error).__name__)
            else:
                if self._failing:
                    _log.warning("meter %s answers again", self.name)
                self._failing = False
                self._heard.on_meter(self.name, reading, energy, self._clock.monotonic_seconds())
        if self._meter is not None:
            self._meter.close()

    def _pause_seconds(self) -> float:
        least = 0.0 if self._meter is None else min(self._meter.pace_seconds, LONGEST_PACE_SECONDS)
        return max(0.5 / self._hz(), least)

    def _failed(self, error: GridawareError) -> None:
        if not self._failing:
            _log.warning("meter %s is not read: %s", self.name, error)
        self._failing = True
        self._heard.on_meter_failed(self.name, error.message)
