"""NVIDIA GPUs through nvidia-ml-py (``pynvml``), behind the driver port.

What is particular here, and why:

* Identity is the UUID; NVML's order changes between boots and is not CUDA's.
* Power for control is field 186 (instantaneous) where the GPU has it. The plain call is a 1 s
  average on Ampere and later except GA100, and is labelled so.
* On GH200 power and limits answer at module scope only (CPU included): probed once for each GPU.
* The energy counter starts anew with each load of the driver and each reset of a GPU. A decrease is
  a new epoch, never a negative amount.
* A call that says NOT_SUPPORTED is not asked again, unless it has worked before: very fast polling
  makes it say so now and then.
* After a fork the library is not initialised any more, so handles are keyed by process.
"""

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from gridaware.clock import Clock, SystemClock
from gridaware.devices.nvml_errors import NOT_SUPPORTED, UNINITIALIZED, UNKNOWN, error_of
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceNoPermission,
    DeviceNotSupported,
    DriverGone,
    Unavailable,
)
from gridaware.domain.fleet import LimitRange
from gridaware.domain.reading import Boundary, EnergyReading, Method, Quality, Reading

__all__ = ["NvmlDriver", "NvmlGpu", "open_driver"]

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
IMPLAUSIBLE_SHARE: Final = 1.5
"""Of the greatest limit: more than that is a broken sensor, not power."""

Answer = TypeVar("Answer")


@dataclass(slots=True)
class NvmlGpu:
    """Who a GPU is."""

    gpu_id: str
    index: int
    model: str


def open_driver(options: Mapping[str, str]) -> "NvmlDriver":
    """The NVML driver of this machine; nothing is initialised before :meth:`NvmlDriver.open`.

    Args:
        options: ``library``, the absolute path of ``libnvidia-ml.so.1``. A privileged agent
            gives it: what ``LD_LIBRARY_PATH`` finds could be anyone's.

    Raises:
        ConfigError: an option is unknown, or the path is not absolute.
        Unavailable: the library or nvidia-ml-py is not installed.
    """
    if set(options) - {"library"}:
        odd = ", ".join(sorted(set(options) - {"library"}))
        raise ConfigError("nvml-options", f"the NVML driver does not know: {odd}")
    path = options.get("library", SONAME)
    if "library" in options and not Path(path).is_absolute():
        raise ConfigError("nvml-library-path", f"library must be an absolute path, not {path!r}")
    try:
        import pynvml
    except ImportError as error:
        raise Unavailable("nvml-client-missing", "nvidia-ml-py is not installed") from error
    try:
        # Loaded first, this is what nvidia-ml-py then finds by its soname.
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise Unavailable("nvml-library-missing", f"{path} cannot be loaded: {error}") from error
    return NvmlDriver(pynvml, SystemClock())


class NvmlDriver:
    """The driver port on NVML.

    Args:
        nvml: the module ``pynvml`` of nvidia-ml-py.
        clock: stamps the readings.
        module: folder of the loaded kernel module; its inode is new with each load.
    """

    boundary = "gpu"

    def __init__(
        self,
        nvml: Any,
        clock: Clock,
        *,
        module: Path = Path("/sys/module/nvidia"),
    ) -> None:
        self._nvml = nvml
        self._clock = clock
        self._module = module
        self._pid = 0
        self._initialised = 0
        self._forget()

    def _forget(self) -> None:
        self._handles: dict[str, Any] = {}
        self._scopes: dict[str, int] = {}
        self._lacking: set[tuple[str, str]] = set()
        self._worked: set[tuple[str, str]] = set()
        self._unknown: set[str] = set()
        self._ranges: dict[str, LimitRange] = {}
        self._last_watts: dict[str, Reading] = {}
        self._last_joules: dict[str, EnergyReading] = {}

    # -- the driver as a whole -----------------------------------------------------------------

    def open(self) -> None:
        """Initialise NVML in this process and find its GPUs; anew where it was open already."""
        self.close()
        self._initialise()
        for gpu in self.gpus():
            self._scopes[gpu.gpu_id] = self._probe_scope(gpu.gpu_id)
        modules = SCOPE_MODULE in self._scopes.values()
        self.boundary = "module" if modules else "gpu"

    def close(self) -> None:
        """Shut NVML down, as often as it was initialised. Limits stay as they are."""
        times = self._initialised if self._pid == os.getpid() else 0
        self._pid, self._initialised = 0, 0
        self._forget()
        for _ in range(times):
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError as error:
                if error.value == UNINITIALIZED:  # someone else shut it down already
                    return
                raise error_of(error.value, "nvmlShutdown") from error

    def epoch(self) -> str:
        """Boot, driver version, and which load of the kernel module this is.

        Entries of sysfs take a fresh inode number each time they are made, so the module's folder
        tells two loads of one driver apart.
        """
        version = self._driver("nvmlSystemGetDriverVersion")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        load = self._module.stat().st_ino if self._module.exists() else 0
        return f"{boot}/{version}/{load}"

    def gpus(self) -> Sequence[NvmlGpu]:
        """Every GPU that answers, in driver order; one that does not never hides the others."""
        found = []
        for index in range(self._driver("nvmlDeviceGetCount")):
            try:
                handle = self._driver("nvmlDeviceGetHandleByIndex", index)
                gpu_id = self._driver("nvmlDeviceGetUUID", handle)
                model = self._model(handle)
            except DriverGone:
                raise
            except DeviceError:
                continue
            self._handles[gpu_id] = handle
            found.append(NvmlGpu(gpu_id, index, model))
        return found

    def _model(self, handle: Any) -> str:
        """The name is decoration: some drivers put bytes into it that are no text."""
        try:
            return str(self._driver("nvmlDeviceGetName", handle))
        except UnicodeDecodeError as error:
            return error.object.decode(errors="replace")

    # -- limits --------------------------------------------------------------------------------

    def can_set(self, gpu_id: str) -> bool:
        """Whether this process may change the limit.

        Found out by writing the limit that stands already: whether NVML looks at permission or at
        range first is not documented, so an out-of-range probe could mislead.
        """
        try:
            self.set_limit_watts(gpu_id, self.requested_limit_watts(gpu_id))
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
                least, greatest = self._ask(gpu_id, "nvmlDeviceGetPowerManagementLimitConstraints")
                default = self._ask(gpu_id, "nvmlDeviceGetPowerManagementDefaultLimit")
            self._ranges[gpu_id] = LimitRange(least / 1000, greatest / 1000, default / 1000)
        return self._ranges[gpu_id]

    def requested_limit_watts(self, gpu_id: str) -> float:
        """The limit last asked for by anyone on this host."""
        if self._scope(gpu_id) == SCOPE_MODULE:
            return self._field(gpu_id, REQUESTED_LIMIT) / 1000
        return float(self._ask(gpu_id, "nvmlDeviceGetPowerManagementLimit")) / 1000

    def enforced_limit_watts(self, gpu_id: str) -> float:
        """The limit in force: the least of every limiter."""
        if self._scope(gpu_id) == SCOPE_MODULE:
            return self._field(gpu_id, ENFORCED_LIMIT) / 1000
        return float(self._ask(gpu_id, "nvmlDeviceGetEnforcedPowerLimit")) / 1000

    def set_limit_watts(self, gpu_id: str, watts: float) -> None:
        """Ask for a limit; NVML refuses what is out of range and never clamps."""
        limits = self.limit_range(gpu_id)
        if not limits.least_watts <= watts <= limits.greatest_watts:  # NaN has no milliwatts
            raise error_of(2, f"set {watts} W", gpu_id)
        milliwatts = round(watts * 1000)
        if self._scope(gpu_id) == SCOPE_MODULE:
            self._set_module_limit(gpu_id, milliwatts)
        else:
            self._ask(gpu_id, "nvmlDeviceSetPowerManagementLimit", milliwatts)

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

        self._try(gpu_id, "nvmlDeviceSetPowerManagementLimit_v2", write)

    # -- readings ------------------------------------------------------------------------------

    def power_watts(self, gpu_id: str) -> Reading:
        """Power now. An implausible value is replaced by the last good one, and says so."""
        milliwatts, method = self._power(gpu_id)
        greatest = self.limit_range(gpu_id).greatest_watts
        if not 0 < milliwatts / 1000 < IMPLAUSIBLE_SHARE * greatest:
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
        milliwatts = float(self._ask(gpu_id, "nvmlDeviceGetPowerUsage"))
        capability = tuple(self._ask(gpu_id, "nvmlDeviceGetCudaComputeCapability"))
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
        joules = self._ask(gpu_id, "nvmlDeviceGetTotalEnergyConsumption") / 1000
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
        found = self._ask(gpu_id, "nvmlDeviceGetComputeRunningProcesses")
        return tuple(int(process.pid) for process in found)

    def cap_binds(self, gpu_id: str) -> bool | None:
        """Whether the software power cap holds the clocks down; None where the GPU cannot say."""
        for call in (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ):
            try:
                return bool(self._ask(gpu_id, call) & SW_POWER_CAP)
            except DeviceNotSupported:
                continue
        return None

    def _boundary_of(self, gpu_id: str) -> Boundary:
        return Boundary.MODULE if self._scope(gpu_id) == SCOPE_MODULE else Boundary.GPU

    # -- how NVML is asked ---------------------------------------------------------------------

    def _probe_scope(self, gpu_id: str) -> int:
        try:
            self._ask(gpu_id, "nvmlDeviceGetPowerUsage")
        except DeviceNotSupported:
            try:
                self._field(gpu_id, POWER_INSTANT, SCOPE_MODULE)
            except DeviceNotSupported:
                return SCOPE_GPU
            return SCOPE_MODULE
        except DeviceError:
            return SCOPE_GPU
        return SCOPE_GPU

    def _scope(self, gpu_id: str) -> int:
        return self._scopes.get(gpu_id, SCOPE_GPU)

    def _field(self, gpu_id: str, field: int, scope: int | None = None) -> float:
        """A field value; milliwatts for every field that is asked here."""
        chosen = self._scope(gpu_id) if scope is None else scope

        def read(handle: Any) -> float:
            value = self._nvml.nvmlDeviceGetFieldValues(handle, [(field, chosen)])[0]
            if value.nvmlReturn:
                raise self._nvml.NVMLError(value.nvmlReturn)
            return float(value.value.uiVal)

        return self._try(gpu_id, f"field {field} of scope {chosen}", read)

    def _ask(self, gpu_id: str, call: str, *arguments: Any) -> Any:
        function = getattr(self._nvml, call, None)
        if function is None:
            raise error_of(13, call, gpu_id)
        return self._try(gpu_id, call, lambda handle: function(handle, *arguments))

    def _try(self, gpu_id: str, call: str, ask: Callable[[Any], Answer]) -> Answer:
        key = (gpu_id, call)
        if key in self._lacking:
            raise error_of(NOT_SUPPORTED, call, gpu_id)
        try:
            answer = self._twice(gpu_id, ask, transient=key in self._worked)
        except self._nvml.NVMLError as error:
            if error.value == NOT_SUPPORTED and key not in self._worked:
                self._lacking.add(key)
            raise self._translate(error.value, call, gpu_id) from error
        self._worked.add(key)
        self._unknown.discard(gpu_id)
        return answer

    def _twice(self, gpu_id: str, ask: Callable[[Any], Answer], *, transient: bool) -> Answer:
        """Ask, and once more where asking again is known to help."""
        try:
            return ask(self._handle(gpu_id))
        except self._nvml.NVMLError as error:
            if error.value == UNINITIALIZED:
                self._initialise()
            elif not (error.value == NOT_SUPPORTED and transient):
                raise
        return ask(self._handle(gpu_id))

    def _translate(self, code: int, call: str, gpu_id: str) -> DeviceError:
        if code == UNKNOWN:
            self._unknown.add(gpu_id)
            if self._unknown >= set(self._handles):
                # Not one GPU but the whole driver: a container that lost its device cgroup.
                return DriverGone("driver-unknown-error", f"driver: no GPU answers ({call})")
        return error_of(code, call, gpu_id)

    def _handle(self, gpu_id: str) -> Any:
        if self._pid != os.getpid():
            self._initialise()
        if gpu_id not in self._handles:
            self._handles[gpu_id] = self._nvml.nvmlDeviceGetHandleByUUID(gpu_id)
        return self._handles[gpu_id]

    def _initialise(self) -> None:
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise error_of(error.value, "nvmlInit") from error
        # A forked child inherits nothing of what its parent initialised.
        self._initialised = self._initialised + 1 if self._pid == os.getpid() else 1
        self._pid = os.getpid()
        self._handles = {}

    def _driver(self, call: str, *arguments: Any) -> Any:
        if self._pid != os.getpid():
            self._initialise()
        try:
            return getattr(self._nvml, call)(*arguments)
        except self._nvml.NVMLError as error:
            raise error_of(error.value, call) from error
