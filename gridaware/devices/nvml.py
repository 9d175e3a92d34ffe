"""NVIDIA GPUs through nvidia-ml-py (``pynvml``), behind the driver port.

What is particular here, and why:

* Identity is the UUID; NVML's order changes between boots and is not CUDA's.
* Power for control is field 186 (instantaneous) where the GPU has it. The plain call is a 1 s
  average on Ampere and later except GA100, and is labelled so.
* On GH200 power and limits answer at module scope only (CPU included): probed once for each GPU.
* The energy counter starts anew with each load of the driver and each reset of a GPU. A decrease is
  a new epoch, never a negative amount.
* With MIG the board is what is read and limited: its slices have no power of their own.
* A limit below ours that a BMC sets shows in the enforced limit alone: it is reported, not fought.
* Persistence mode, workload profiles and power smoothing are read and told, never changed.
* Xids are heard as they happen; a GPU that dies without one is found by asking.

How NVML is asked: :mod:`~gridaware.devices.nvml_calls`; what its codes mean:
:mod:`~gridaware.devices.nvml_errors`; clock locks: :mod:`~gridaware.devices.nvml_clocks`; slices,
profiles, smoothing: :mod:`~gridaware.devices.nvml_board`; what Xids ask for:
:mod:`~gridaware.devices.nvml_xid`.
"""

import contextlib
import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gridaware.clock import Clock, SystemClock
from gridaware.control.ports import Incident
from gridaware.devices.nvml_board import read_board
from gridaware.devices.nvml_calls import NvmlCalls
from gridaware.devices.nvml_clocks import NvmlClocks, parse_lock
from gridaware.devices.nvml_errors import INVALID_ARGUMENT, error_of
from gridaware.devices.nvml_xid import NvmlXids
from gridaware.devices.options import check_names
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceNoPermission,
    DeviceNotSupported,
    DriverGone,
    Unavailable,
)
from gridaware.domain.fleet import BoardState, LimitRange
from gridaware.domain.reading import Boundary, EnergyReading, Method, Quality, Reading

__all__ = ["OPTIONS", "TESTED", "NvmlDriver", "NvmlGpu", "open_driver"]

OPTIONS: Final[Mapping[str, str]] = {
    "library": "absolute path of `libnvidia-ml.so.1`; default: what the loader finds",
    "locked_clocks_mhz": "the clock lock that the site sets itself, `LEAST,GREATEST` in MHz; NVML "
    "cannot tell, and giving back goes to it; default: clocks are found unlocked",
}
TESTED: Final = (
    "the real nvidia-ml-py over a virtual `libnvidia-ml.so.1`, with nvitop, gpustat and Ray as "
    "outside witnesses; no NVIDIA GPU has been driven yet, and `tests/live/check_gpu.py` is for one"
)

SONAME: Final = "libnvidia-ml.so.1"
POWER_AVERAGE: Final = 185
POWER_INSTANT: Final = 186
LEAST_LIMIT: Final = 187
GREATEST_LIMIT: Final = 188
DEFAULT_LIMIT: Final = 189
ENFORCED_LIMIT: Final = 190
REQUESTED_LIMIT: Final = 192
SCOPE_GPU: Final = 0
SCOPE_MODULE: Final = 1
SW_POWER_CAP: Final = 0x4
GA100: Final = (8, 0)
IDENTIFY_SECONDS: Final = 1.0
"""A GPU that does not say who it is for this long is left out."""
IMPLAUSIBLE_WATTS: Final = 1.0
IMPLAUSIBLE_SHARE: Final = 1.5
"""Less than so many watts, or more than this share of the greatest limit, is a broken sensor."""
BLANK_MILLIJOULES: Final = 0x7FFFFFFFFFFFFFF0
"""DCGM's "no value" of 64 bits and its kin: no counter stands there."""


@dataclass(slots=True)
class NvmlGpu:
    """Who a GPU is."""

    gpu_id: str
    index: int
    model: str


def open_driver(options: Mapping[str, str]) -> "NvmlDriver":
    """The NVML driver of this machine; nothing is initialised before :meth:`NvmlDriver.open`.

    Args:
        options: see ``OPTIONS``. A privileged agent gives the library's path: what
            ``LD_LIBRARY_PATH`` finds could be anyone's.

    Raises:
        ConfigError: an option is unknown, or the path is not absolute.
        Unavailable: the library or nvidia-ml-py is not installed.
    """
    check_names(options, OPTIONS, "nvml")
    path = options.get("library", SONAME)
    if "library" in options and not Path(path).is_absolute():
        raise ConfigError("nvml-library-path", f"library must be an absolute path, not {path!r}")
    lock = options.get("locked_clocks_mhz")
    found_mhz = None if lock is None else parse_lock(lock)
    try:
        import pynvml
    except ImportError as error:
        raise Unavailable("nvml-client-missing", "nvidia-ml-py is not installed") from error
    try:
        # Loaded first, this is what nvidia-ml-py then finds by its soname.
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise Unavailable("nvml-library-missing", f"{path} cannot be loaded: {error}") from error
    return NvmlDriver(pynvml, SystemClock(), found_mhz=found_mhz)


class NvmlDriver(NvmlClocks):
    """The driver port on NVML, with clock locks and the state of its boards.

    Args:
        nvml: the module ``pynvml`` of nvidia-ml-py.
        clock: stamps the readings.
        module: folder of the loaded kernel module; its inode is new with each load.
        found_mhz: the clock lock that the site sets itself.
    """

    def __init__(
        self,
        nvml: Any,
        clock: Clock,
        *,
        module: Path = Path("/sys/module/nvidia"),
        found_mhz: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(NvmlCalls(nvml), found_mhz)
        self._nvml = nvml
        self._clock = clock
        self._module = module
        self._xids = NvmlXids(self._calls)
        self._forget()

    def _forget(self) -> None:
        self._steps = {}
        self._scopes: dict[str, int] = {}
        self._ranges: dict[str, LimitRange] = {}
        self._last_watts: dict[str, Reading] = {}
        self._last_joules: dict[str, EnergyReading] = {}
        self._faults: tuple[tuple[str, str], ...] = ()

    # -- the driver as a whole -----------------------------------------------------------------

    def open(self) -> None:
        """Initialise NVML in this process; anew where it was open already."""
        self._forget()
        self._calls.open()

    def close(self) -> None:
        """Shut NVML down, as often as it was initialised. Limits stay as they are."""
        self._forget()
        self._calls.close()

    @property
    def boundary(self) -> str:
        """``module`` once a GPU has shown that it answers at module scope only."""
        return "module" if SCOPE_MODULE in self._scopes.values() else "gpu"

    def epoch(self) -> str:
        """Boot, driver version, and which load of the kernel module this is.

        Entries of sysfs take a fresh inode number each time they are made, so the module's folder
        tells two loads of one driver apart.
        """
        version = self._calls.driver("nvmlSystemGetDriverVersion")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        load = self._module.stat().st_ino if self._module.exists() else 0
        return f"{boot}/{version}/{load}"

    def gpus(self) -> Sequence[NvmlGpu]:
        """Every GPU that answers, in driver order.

        Each is asked on a thread of its own: one that refuses, or whose call never returns, hides
        no other.
        """
        found: dict[int, NvmlGpu | DeviceError] = {}
        asking = [
            threading.Thread(target=self._identify, args=(index, found), daemon=True)
            for index in range(self._calls.driver("nvmlDeviceGetCount"))
        ]
        for thread in asking:
            thread.start()
        until = self._clock.monotonic_seconds() + IDENTIFY_SECONDS
        for thread in asking:
            thread.join(max(0.0, until - self._clock.monotonic_seconds()))
        answers = dict(found)  # a late one comes too late
        for answer in answers.values():
            if isinstance(answer, DriverGone):
                raise answer
        self._faults = tuple(
            ("gpu-missing", f"GPU {index} does not say who it is: {answers.get(index, 'silence')}")
            for index in range(len(asking))
            if not isinstance(answers.get(index), NvmlGpu)
        )
        ordered = (answers[index] for index in sorted(answers))
        return [answer for answer in ordered if isinstance(answer, NvmlGpu)]

    def faults(self) -> Sequence[tuple[str, str]]:
        """GPUs that the driver counts and that did not say who they are: a fresh child may see."""
        return self._faults

    def _identify(self, index: int, found: dict[int, NvmlGpu | DeviceError]) -> None:
        try:
            handle = self._calls.driver("nvmlDeviceGetHandleByIndex", index)
            gpu_id = self._calls.driver("nvmlDeviceGetUUID", handle)
            found[index] = NvmlGpu(gpu_id, index, self._model(handle))
            self._calls.know(gpu_id, handle)
            with contextlib.suppress(DeviceError):
                self._scope(gpu_id)
        except DeviceError as error:
            found[index] = error

    def _model(self, handle: Any) -> str:
        """The name is decoration: it may be no text (R555), or not to be had."""
        try:
            return str(self._calls.driver("nvmlDeviceGetName", handle))
        except UnicodeDecodeError as error:
            return error.object.decode(errors="replace")
        except DriverGone:
            raise
        except DeviceError:
            return "unknown"

    # -- limits --------------------------------------------------------------------------------

    def can_set(self, gpu_id: str) -> bool:
        """Whether this process may change the limit.

        Found out by writing the limit that stands already: whether NVML looks at permission or at
        range first is not documented, so an out-of-range probe could mislead. Where what stands is
        no legal limit any more, the first write will tell.
        """
        try:
            limits, standing = self.limit_range(gpu_id), self.requested_limit_watts(gpu_id)
            if limits.least_watts <= standing <= limits.greatest_watts:
                self.set_limit_watts(gpu_id, standing)
        except (DeviceNoPermission, DeviceNotSupported):
            return False
        return True

    def limit_range(self, gpu_id: str) -> LimitRange:
        """Limits the GPU accepts."""
        if gpu_id not in self._ranges:
            if self._scope(gpu_id) == SCOPE_MODULE:
                least = self._field(gpu_id, LEAST_LIMIT)
                greatest = self._field(gpu_id, GREATEST_LIMIT)
                default = self._field(gpu_id, DEFAULT_LIMIT)
            else:
                least, greatest = self._calls.ask(
                    gpu_id, "nvmlDeviceGetPowerManagementLimitConstraints"
                )
                default = self._calls.ask(gpu_id, "nvmlDeviceGetPowerManagementDefaultLimit")
            self._ranges[gpu_id] = LimitRange(least / 1000, greatest / 1000, default / 1000)
        return self._ranges[gpu_id]

    def requested_limit_watts(self, gpu_id: str) -> float:
        """The limit last asked for by anyone on this host."""
        if self._scope(gpu_id) == SCOPE_MODULE:
            return self._field(gpu_id, REQUESTED_LIMIT) / 1000
        return float(self._calls.ask(gpu_id, "nvmlDeviceGetPowerManagementLimit")) / 1000

    def enforced_limit_watts(self, gpu_id: str) -> float:
        """The limit in force: the least of every limiter."""
        if self._scope(gpu_id) == SCOPE_MODULE:
            return self._field(gpu_id, ENFORCED_LIMIT) / 1000
        return float(self._calls.ask(gpu_id, "nvmlDeviceGetEnforcedPowerLimit")) / 1000

    def set_limit_watts(self, gpu_id: str, watts: float) -> None:
        """Ask for a limit; NVML refuses what is out of range and never clamps."""
        limits = self.limit_range(gpu_id)
        if not limits.least_watts <= watts <= limits.greatest_watts:  # NaN has no milliwatts
            raise error_of(INVALID_ARGUMENT, f"set {watts} W", gpu_id)
        milliwatts = round(watts * 1000)
        if self._scope(gpu_id) == SCOPE_MODULE:
            self._set_module_limit(gpu_id, milliwatts)
        else:
            self._calls.ask(gpu_id, "nvmlDeviceSetPowerManagementLimit", milliwatts)

    def _set_module_limit(self, gpu_id: str, milliwatts: int) -> None:
        """nvidia-ml-py's own wrapper of this call drops the return code (13.615.71)."""
        value = self._nvml.c_nvmlPowerValue_v2_t()
        value.version = self._nvml.nvmlPowerValue_v2
        value.powerScope = SCOPE_MODULE
        value.powerValueMw = milliwatts

        def write(handle: Any) -> None:
            library = self._nvml.nvmlLib
            code = library.nvmlDeviceSetPowerManagementLimit_v2(handle, ctypes.byref(value))
            if code:
                raise self._nvml.NVMLError(code)

        self._calls.attempt(gpu_id, "nvmlDeviceSetPowerManagementLimit_v2", write)

    def board_state(self, gpu_id: str) -> BoardState:
        """Persistence, slices, profiles, smoothing."""
        return read_board(self._calls, gpu_id, self.limit_range(gpu_id).default_watts)

    def watch(self, gpu_id: str) -> None:
        """Hear of this GPU's Xids from now on."""
        self._xids.watch(gpu_id)

    def incident(self, gpu_id: str, seconds: float) -> Incident | None:
        """The next Xid that a person should know of; None = none came in time."""
        return self._xids.incident(gpu_id, seconds)

    # -- readings ------------------------------------------------------------------------------

    def power_watts(self, gpu_id: str) -> Reading:
        """Power now. An implausible value is replaced by the last good one, and says so."""
        milliwatts, method = self._power(gpu_id)
        greatest = self.limit_range(gpu_id).greatest_watts
        if not IMPLAUSIBLE_WATTS <= milliwatts / 1000 < IMPLAUSIBLE_SHARE * greatest:
            return self._held(gpu_id, milliwatts / 1000)
        reading = Reading(milliwatts / 1000, self._clock.wall(), self._boundary_of(gpu_id), method)
        self._last_watts[gpu_id] = reading
        return reading

    def _power(self, gpu_id: str) -> tuple[float, Method]:
        try:
            return self._field(gpu_id, POWER_INSTANT), Method.INSTANT
        except DeviceNotSupported:
            if self._scope(gpu_id) == SCOPE_MODULE:
                return self._field(gpu_id, POWER_AVERAGE), Method.AVERAGED
        milliwatts = float(self._calls.ask(gpu_id, "nvmlDeviceGetPowerUsage"))
        capability = tuple(self._calls.ask(gpu_id, "nvmlDeviceGetCudaComputeCapability"))
        return milliwatts, Method.INSTANT if capability <= GA100 else Method.AVERAGED

    def _held(self, gpu_id: str, watts: float) -> Reading:
        last = self._last_watts.get(gpu_id)
        if last is None:
            raise DeviceError(
                "power-implausible", f"GPU {gpu_id}: shows {watts} W", gpu_id=gpu_id, watts=watts
            )
        return Reading(last.watts, last.at, last.boundary, last.method, Quality.HELD)

    def energy_joules(self, gpu_id: str) -> EnergyReading:
        """The energy counter, in an epoch of its own after each decrease."""
        millijoules = self._calls.ask(gpu_id, "nvmlDeviceGetTotalEnergyConsumption")
        if millijoules >= BLANK_MILLIJOULES:
            raise DeviceError(
                "energy-implausible", f"GPU {gpu_id}: the counter shows {millijoules} mJ"
            )
        joules = millijoules / 1000
        last = self._last_joules.get(gpu_id)
        if last is None:
            epoch = self.epoch()
        elif joules < last.joules:
            epoch = f"{self.epoch()}@{self._clock.boot_seconds():.3f}"
        else:
            epoch = last.epoch
        reading = EnergyReading(joules, epoch, self._clock.wall(), self._boundary_of(gpu_id))
        self._last_joules[gpu_id] = reading
        return reading

    def processes(self, gpu_id: str) -> tuple[int, ...]:
        """Host pids with a compute context on the GPU."""
        found = self._calls.ask(gpu_id, "nvmlDeviceGetComputeRunningProcesses")
        return tuple(int(process.pid) for process in found)

    def cap_binds(self, gpu_id: str) -> bool | None:
        """Whether the software power cap holds the clocks down; None where the GPU cannot say."""
        for call in (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ):
            try:
                return bool(self._calls.ask(gpu_id, call) & SW_POWER_CAP)
            except DeviceNotSupported:
                continue
        return None

    def _boundary_of(self, gpu_id: str) -> Boundary:
        return Boundary.MODULE if self._scope(gpu_id) == SCOPE_MODULE else Boundary.GPU

    # -- how NVML is asked ---------------------------------------------------------------------

    def _probe_scope(self, gpu_id: str) -> int:
        try:
            self._calls.ask(gpu_id, "nvmlDeviceGetPowerUsage")
        except DeviceNotSupported:
            try:
                self._field(gpu_id, POWER_INSTANT, SCOPE_MODULE)
            except DeviceNotSupported:
                return SCOPE_GPU
            return SCOPE_MODULE
        return SCOPE_GPU

    def _scope(self, gpu_id: str) -> int:
        """Of its power and limits; found out once, in the thread that asks for them."""
        if gpu_id not in self._scopes:
            self._scopes[gpu_id] = self._probe_scope(gpu_id)
        return self._scopes[gpu_id]

    def _field(self, gpu_id: str, field: int, scope: int | None = None) -> float:
        """A field value; milliwatts for every field that is asked here."""
        return self._calls.field(gpu_id, field, self._scope(gpu_id) if scope is None else scope)
