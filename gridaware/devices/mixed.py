"""Several drivers as one: a node whose GPUs are of different vendors.

Each part is named in the options, and each of its own options by the part's name and a dot::

    driver:
      module: gridaware.devices.mixed
      options:
        nvidia: gridaware.devices.nvml
        nvidia.library: /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
        amd: gridaware.devices.amd
        amd.library: /opt/rocm/lib/libamd_smi.so

* Parts are opened side by side. One that fails, or does not return in time, is left out: its GPUs
  are absent and :meth:`MixedDriver.faults` says why, the others work. The agent then tries a fresh
  driver child now and then, which opens every part anew.
* A part that goes away later answers "lost" for its GPUs alone, until a fresh child sees it again.
* A GPU belongs to the first part that names it; a part never takes another's.
* Boundaries are each GPU's own: a module of one part stands beside the boards of another.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final, TypeVar, cast

from gridaware.clock import Clock, SystemClock
from gridaware.control.ports import (
    Boards,
    ClockLocks,
    Driver,
    GpuIdentity,
    Incident,
    Incidents,
    Paced,
    Parts,
)
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceLost,
    DeviceNotSupported,
    DriverGone,
    GridawareError,
)
from gridaware.domain.fleet import BoardState, ClockRange, LimitRange, Pace
from gridaware.domain.reading import Boundary, EnergyReading, Reading

__all__ = ["OPTIONS", "TESTED", "MixedDriver", "MixedGpu", "open_driver"]

OPEN_SECONDS: Final = 6.0
"""Of the 10 s that the agent gives a driver child to be ready."""
OWN: Final = "gridaware.devices.mixed"
OPTIONS: Final[Mapping[str, str]] = {
    "NAME": "import path of a driver: a part of that name",
    "NAME.OPTION": "an option of that part",
}
TESTED: Final = "parts of two vendors, virtual and imitated"

Answer = TypeVar("Answer")


@dataclass(slots=True)
class MixedGpu:
    """Who a GPU is. ``index`` counts over all parts, in their order."""

    gpu_id: str
    index: int
    model: str


def open_driver(options: Mapping[str, str]) -> "MixedDriver":
    """One driver of several parts; none of them is opened yet.

    Args:
        options: ``NAME`` → import path of a driver module, ``NAME.OPTION`` → an option of it.

    Raises:
        ConfigError: there is no part, an option belongs to none, a module is no driver, or a part
            does not take its options.
    """
    modules = {name: path for name, path in options.items() if "." not in name}
    if not modules:
        raise ConfigError("mixed-options", "mixed: name at least one part, such as nvidia")
    own: dict[str, dict[str, str]] = {name: {} for name in modules}
    for key, value in options.items():
        name, dot, option = key.partition(".")
        if not dot:
            continue
        if name not in own or not option:
            raise ConfigError("mixed-options", f"mixed: the option {key!r} belongs to no part")
        own[name][option] = value
    parts = {}
    broken: dict[str, GridawareError] = {}
    for name, path in modules.items():
        try:
            parts[name] = _load(path, own[name])
        except ConfigError:
            raise
        except GridawareError as error:
            broken[name] = error  # its library is not installed: the others do without
    return MixedDriver(parts, SystemClock(), broken)


def _load(path: str, options: Mapping[str, str]) -> Driver:
    try:
        make = import_module(path).open_driver if path != OWN else None
    except (ImportError, AttributeError) as error:
        raise ConfigError("driver-import", f"mixed: cannot use {path}: {error}") from error
    if make is None:
        raise ConfigError("mixed-options", "mixed: a part cannot be mixed itself")
    return cast("Driver", make(options))


class MixedDriver:
    """The driver port on several drivers, with everything that any of them has besides.

    Args:
        parts: by name, none of them opened.
        clock: for the time that opening may take.
        broken: parts that could not even be made, and why.
        open_seconds: how long opening may take.
    """

    def __init__(
        self,
        parts: Mapping[str, Driver],
        clock: Clock,
        broken: Mapping[str, GridawareError] | None = None,
        *,
        open_seconds: float = OPEN_SECONDS,
    ) -> None:
        self.boundary = Boundary.GPU.value
        self._configured = dict(parts)
        self._clock = clock
        self._broken = dict(broken or {})
        self._open_seconds = open_seconds
        self._forget()

    def _forget(self) -> None:
        self._live: dict[str, Driver] = {}
        self._owners: dict[str, tuple[str, Driver]] = {}
        self._faults: list[tuple[str, str]] = []
        self._open = False

    # -- the driver as a whole -----------------------------------------------------------------

    def open(self) -> None:
        """Open every part, each on a thread of its own.

        Raises:
            DriverGone: ``driver-parts``; not one of them could be opened.
        """
        self.close()
        attempts = {name: _Attempt(driver) for name, driver in self._configured.items()}
        until = self._clock.monotonic_seconds() + self._open_seconds
        for name, error in self._broken.items():
            self._faults.append((error.code, f"{name}: {error.message}"))
        for name, attempt in attempts.items():
            attempt.done.wait(max(0.0, until - self._clock.monotonic_seconds()))
            failure = attempt.failure()
            if failure is None:
                self._live[name] = attempt.driver
            else:
                self._faults.append((failure[0], f"{name}: {failure[1]}"))
        if not self._live:
            words = "; ".join(message for _, message in self._faults)
            raise DriverGone("driver-parts", f"no part of the driver can be opened: {words}")
        self._open = True
        self.gpus()
        bounds = [driver.boundary for driver in self._live.values()]
        self.boundary = next((b for b in bounds if b != Boundary.GPU), bounds[0])

    def close(self) -> None:
        """Close every part that is open. Limits stay as they are."""
        for driver in self._live.values():
            driver.close()
        self._forget()

    def faults(self) -> Sequence[tuple[str, str]]:
        """Parts that are not there, GPUs that two parts name, and what parts miss of their own."""
        own = [
            (code, f"{name}: {words}")
            for name, part in self._live.items()
            if isinstance(part, Parts)
            for code, words in part.faults()
        ]
        return (*self._faults, *own)

    def epoch(self) -> str:
        """The epoch of every part that is there."""
        self._attached()
        return ";".join(f"{name}={_epoch(driver)}" for name, driver in self._live.items())

    def gpus(self) -> Sequence[GpuIdentity]:
        """The GPUs of every part, part by part; one that fails never hides the others.

        Raises:
            DriverGone: every part fails.
        """
        self._attached()
        found: list[MixedGpu] = []
        owners: dict[str, tuple[str, Driver]] = {}
        failed = 0
        for name, driver in self._live.items():
            try:
                named = driver.gpus()
            except DeviceError as error:
                self._note(error.code, f"{name}: {error.message}")
                failed += 1
                continue
            for gpu in named:
                if gpu.gpu_id in owners:
                    first = owners[gpu.gpu_id][0]
                    self._note("gpu-twice", f"{name}: {gpu.gpu_id} is driven by {first} already")
                    continue
                owners[gpu.gpu_id] = (name, driver)
                found.append(MixedGpu(gpu.gpu_id, len(found), gpu.model))
        self._owners.update(owners)
        if failed == len(self._live):
            raise DriverGone("driver-parts", "no part of the driver names its GPUs")
        return found

    def _note(self, code: str, words: str) -> None:
        if (code, words) not in self._faults:
            self._faults.append((code, words))

    # -- each GPU, by its own part -------------------------------------------------------------

    def can_set(self, gpu_id: str) -> bool:
        """Whether this process may change the GPU's limit."""
        return self._ask(gpu_id, lambda part: part.can_set(gpu_id))

    def limit_range(self, gpu_id: str) -> LimitRange:
        """Limits the GPU accepts."""
        return self._ask(gpu_id, lambda part: part.limit_range(gpu_id))

    def requested_limit_watts(self, gpu_id: str) -> float:
        """The limit last asked for by anyone on this host."""
        return self._ask(gpu_id, lambda part: part.requested_limit_watts(gpu_id))

    def enforced_limit_watts(self, gpu_id: str) -> float:
        """The limit in force."""
        return self._ask(gpu_id, lambda part: part.enforced_limit_watts(gpu_id))

    def set_limit_watts(self, gpu_id: str, watts: float) -> None:
        """Ask for a limit; out of range is refused, never clamped."""
        self._ask(gpu_id, lambda part: part.set_limit_watts(gpu_id, watts))

    def power_watts(self, gpu_id: str) -> Reading:
        """Power now, at the GPU's own boundary."""
        return self._ask(gpu_id, lambda part: part.power_watts(gpu_id))

    def energy_joules(self, gpu_id: str) -> EnergyReading:
        """The energy counter."""
        return self._ask(gpu_id, lambda part: part.energy_joules(gpu_id))

    def processes(self, gpu_id: str) -> tuple[int, ...]:
        """Host pids with a compute context on the GPU."""
        return self._ask(gpu_id, lambda part: part.processes(gpu_id))

    def cap_binds(self, gpu_id: str) -> bool | None:
        """Whether the power cap holds the clocks down."""
        return self._ask(gpu_id, lambda part: part.cap_binds(gpu_id))

    def pace(self, gpu_id: str) -> Pace:
        """How fast its part is."""
        return self._ask(
            gpu_id, lambda part: part.pace(gpu_id) if isinstance(part, Paced) else Pace()
        )

    def board_state(self, gpu_id: str) -> BoardState:
        """What its part can say of it."""
        return self._ask(
            gpu_id,
            lambda part: part.board_state(gpu_id) if isinstance(part, Boards) else BoardState(),
        )

    def clock_range(self, gpu_id: str) -> ClockRange:
        """What its clocks can be locked to."""
        return self._ask(gpu_id, lambda part: _locks(part, gpu_id).clock_range(gpu_id))

    def lock_clocks(self, gpu_id: str, most_mhz: float) -> None:
        """Keep the clocks at or below ``most_mhz``."""
        self._ask(gpu_id, lambda part: _locks(part, gpu_id).lock_clocks(gpu_id, most_mhz))

    def unlock_clocks(self, gpu_id: str) -> None:
        """Give back the found lock."""
        self._ask(gpu_id, lambda part: _locks(part, gpu_id).unlock_clocks(gpu_id))

    def clock_mhz(self, gpu_id: str) -> float:
        """The clock now."""
        return self._ask(gpu_id, lambda part: _locks(part, gpu_id).clock_mhz(gpu_id))

    def watch(self, gpu_id: str) -> None:
        """Hear of the errors that the GPU reports by itself, if its part can."""
        self._ask(gpu_id, lambda part: _reporter(part, gpu_id).watch(gpu_id))

    def incident(self, gpu_id: str, seconds: float) -> Incident | None:
        """The next error that the GPU has reported."""
        return self._ask(gpu_id, lambda part: _reporter(part, gpu_id).incident(gpu_id, seconds))

    # -- how parts are asked -------------------------------------------------------------------

    def _attached(self) -> None:
        if not self._open:
            raise DriverGone("driver-uninitialised", "driver: it is not open")

    def _ask(self, gpu_id: str, ask: Callable[[Driver], Answer]) -> Answer:
        """A part that went away takes its own GPUs with it, and not the process."""
        self._attached()
        if gpu_id not in self._owners:
            raise DeviceLost("device-lost", f"GPU {gpu_id}: not there", gpu_id=gpu_id)
        name, part = self._owners[gpu_id]
        try:
            return ask(part)
        except DriverGone as error:
            if len(self._live) == 1:
                raise  # nobody else is held up
            raise DeviceLost(
                "driver-part-gone", f"GPU {gpu_id}: {name}: {error.message}", gpu_id=gpu_id
            ) from error


class _Attempt:
    """Opening one part."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.done = threading.Event()
        self._error: GridawareError | None = None
        threading.Thread(target=self._run, name="open", daemon=True).start()

    def failure(self) -> tuple[str, str] | None:
        """Why it did not work, as code and words; None = it did."""
        if not self.done.is_set():
            return "driver-slow", "did not open in time"
        return None if self._error is None else (self._error.code, self._error.message)

    def _run(self) -> None:
        try:
            self.driver.open()
        except GridawareError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - a fault in one part is not the others'
            self._error = DriverGone("driver-failed", repr(error))
        finally:
            self.done.set()


def _epoch(driver: Driver) -> str:
    try:
        return driver.epoch()
    except DeviceError:
        return "gone"  # and so are its GPUs, until a fresh child opens it


def _locks(part: Driver, gpu_id: str) -> ClockLocks:
    if not isinstance(part, ClockLocks):
        raise DeviceNotSupported("device-not-supported", f"GPU {gpu_id}: has no clock lock")
    return part


def _reporter(part: Driver, gpu_id: str) -> Incidents:
    if not isinstance(part, Incidents):
        raise DeviceNotSupported("device-not-supported", f"GPU {gpu_id}: reports no errors")
    return part
