"""AMD GPUs through AMD SMI's Python interface (``amdsmi``), behind the driver port.

What is particular here, and why:

* ``amdsmi`` is imported only where ``libamd_smi.so`` is: without it the wheel fails to import, and
  takes ``import ray`` down with it wherever both are installed (notes §6, case 37).
* Power caps are microwatts, and the device takes whole watts. The range is what the cap's info
  says; a guest of a virtual machine reads and sets nothing.
* A cap may be accepted and change nothing (ROCm), or switch the limit off (LACT#207): what stands
  is always read back, and :mod:`gridaware.node.capwatch` compares it with the draw.
* The energy counter is ticks times a resolution, and freezes on some parts (ROCm/amdsmi#38): one
  that stands still while power flows is not believed.
* ``libamd_smi`` before ROCm 7.2 is not thread-safe: its calls are made one after another, and one
  that waits for another longer than a call may take is reported as hung.
* Of a partitioned or two-die GPU only the part that has a power cap can be limited; the others
  answer "not supported" and stay uncapped, and nothing is counted twice.

Sources: AMD SMI Python API reference and ``amdsmi.h`` (ROCm 6.3 to 7.2).
"""

import contextlib
import ctypes
import math
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from gridaware.clock import Clock, SystemClock
from gridaware.devices.amd_errors import NOT_FOUND, NOT_INIT, NOT_SUPPORTED, error_of
from gridaware.devices.kernel import driver_load
from gridaware.devices.options import absolute_path, check_names
from gridaware.devices.readings import Counters, LastGood
from gridaware.domain.errors import (
    DeviceError,
    DeviceHung,
    DeviceNoPermission,
    DeviceNotSupported,
    DriverGone,
    Unavailable,
)
from gridaware.domain.fleet import LimitRange
from gridaware.domain.reading import Boundary, EnergyReading, Method, Reading

__all__ = ["OPTIONS", "TESTED", "AmdDriver", "AmdGpu", "open_driver"]

OPTIONS: Final[Mapping[str, str]] = {
    "library": "absolute path of `libamd_smi.so`; default: below `/opt/rocm`",
    "package": "absolute path of the folder that holds the package `amdsmi`, such as "
    "`/opt/rocm/share/amd_smi`; default: what is installed beside gridaware",
}
LIBRARY: Final = "libamd_smi.so"
TESTED: Final = (
    "an imitation of AMD SMI's Python interface, and once by hand the real one (amdsmi 7.0.2) over "
    "a stub of its library; no AMD GPU has been driven yet"
)
MODULE: Final = Path("/sys/module/amdgpu")
SENSOR: Final = 0
"""The package's power sensor; others cap parts of it."""
THREAD_SAFE: Final = (26, 2)
"""AMD SMI of ROCm 7.2."""
CALL_SECONDS: Final = 0.9
"""A call waits no longer than this for another one: the agent gives up on a call after 1 s."""
LEAST_SHARE: Final = 0.3
"""Of the default cap: below it throughput collapses (notes §4.2)."""
LEAST_CREDIBLE_WATTS: Final = 10.0
"""A greatest cap below this is one in watts that was taken for microwatts (a host's library)."""


@dataclass(slots=True)
class AmdGpu:
    """Who a GPU is."""

    gpu_id: str
    index: int
    model: str


def open_driver(options: Mapping[str, str]) -> "AmdDriver":
    """The AMD driver of this machine; nothing is initialised before :meth:`AmdDriver.open`.

    Args:
        options: see ``OPTIONS``. A privileged agent gives both paths: what the environment finds
            could be anyone's.

    Raises:
        ConfigError: an option is unknown, or a path is not absolute.
        Unavailable: ``amd-library-missing`` (``amdsmi`` was then not imported) or
            ``amd-client-missing``.
    """
    check_names(options, OPTIONS, "amd")
    given = options.get("library")
    library = _library() if given is None else absolute_path(given, "library", "amd")
    if library is None:
        raise Unavailable("amd-library-missing", f"there is no {LIBRARY} below /opt/rocm")
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        message = f"{library} cannot be loaded: {error}"
        raise Unavailable("amd-library-missing", message) from error
    # Where the Python interface looks for the library first.
    os.environ["ROCM_HOME"] = str(library.parent.parent)
    package = options.get("package")
    folders = [] if package is None else [str(absolute_path(package, "package", "amd"))]
    try:
        sys.path[:0] = folders
        amdsmi = import_module("amdsmi")
    except (ImportError, KeyError, OSError, AttributeError) as error:
        # The wheel looks its library up in a table of its own and fails with a KeyError.
        message = f"the package amdsmi cannot be imported: {error!r}"
        raise Unavailable("amd-client-missing", message) from error
    finally:
        del sys.path[: len(folders)]
    return AmdDriver(amdsmi, SystemClock())


class AmdDriver:
    """The driver port on AMD SMI.

    Args:
        amdsmi: the module of AMD SMI's Python interface.
        clock: stamps the readings.
        module: folder of the loaded kernel module; its inode is new with each load.
    """

    boundary = "gpu"

    def __init__(self, amdsmi: Any, clock: Clock, *, module: Path = MODULE) -> None:
        self._amdsmi = amdsmi
        self._clock = clock
        self._module = module
        self._pid = 0
        self._one_at_a_time: threading.Lock | None = None
        self._forget()

    def _forget(self) -> None:
        self._handles: dict[str, Any] = {}
        self._epoch = ""
        self._power = LastGood(self._clock)
        self._counters = Counters(self._clock)

    # -- the driver as a whole -----------------------------------------------------------------

    def open(self) -> None:
        """Initialise AMD SMI in this process and find its GPUs; anew where it was open already."""
        self.close()
        self._one_at_a_time = threading.Lock()
        flag = self._amdsmi.AmdSmiInitFlags.INIT_AMD_GPUS
        self._call("amdsmi_init", flag)
        self._pid = os.getpid()
        with contextlib.suppress(DeviceNotSupported):
            version = self._call("amdsmi_get_lib_version")
            if (version.get("major", 0), version.get("minor", 0)) >= THREAD_SAFE:
                self._one_at_a_time = None
        self.gpus()
        self._epoch = self._load()

    def close(self) -> None:
        """Shut AMD SMI down where it is open in this process. Limits stay as they are."""
        if self._pid == os.getpid():
            with contextlib.suppress(DriverGone):
                self._call("amdsmi_shut_down")
        self._pid = 0
        self._forget()

    def epoch(self) -> str:
        """Boot, driver version, and which load of the kernel module this is."""
        return self._load()

    def _load(self) -> str:
        version = ""
        for handle in self._handles.values():
            with contextlib.suppress(DeviceNotSupported):
                info = self._call("amdsmi_get_gpu_driver_info", handle)
                version = str(info.get("driver_version", ""))
                break
        return driver_load(self._module, version)

    def gpus(self) -> Sequence[AmdGpu]:
        """Every GPU that answers, in HIP's order; one that does not never hides the others.

        HIP's order is what jobs (and Ray) number GPUs by; before ROCm 6.4 nothing tells it, and it
        is the library's own.
        """
        self._attached("amdsmi_get_processor_handles")
        found: dict[str, AmdGpu] = {}
        handles = self._call("amdsmi_get_processor_handles")
        for index, handle in enumerate(sorted(handles, key=self._hip_number)):
            try:
                gpu_id = str(self._call("amdsmi_get_gpu_device_uuid", handle))
                model = self._model(handle)
            except DriverGone:
                raise
            except DeviceError:
                continue
            if gpu_id not in found:
                self._handles[gpu_id] = handle
                found[gpu_id] = AmdGpu(gpu_id, index, model)
        return tuple(found.values())

    def _hip_number(self, handle: Any) -> float:
        try:
            number = _number(self._call("amdsmi_get_gpu_enumeration_info", handle).get("hip_id"))
        except DriverGone:
            raise
        except DeviceError:
            number = None
        return math.inf if number is None else number

    def _model(self, handle: Any) -> str:
        """The name is decoration: a GPU without one is still a GPU."""
        try:
            return str(self._call("amdsmi_get_gpu_asic_info", handle).get("market_name", ""))
        except (DeviceNotSupported, UnicodeDecodeError):
            return "AMD GPU"

    # -- limits --------------------------------------------------------------------------------

    def can_set(self, gpu_id: str) -> bool:
        """Whether this process may change the limit; found out by writing the one that stands."""
        try:
            self.set_limit_watts(gpu_id, self.requested_limit_watts(gpu_id))
        except (DeviceNoPermission, DeviceNotSupported):
            return False
        return True

    def limit_range(self, gpu_id: str) -> LimitRange:
        """Limits the GPU accepts, as its cap's info says.

        A board that names no least cap (0) gets one: near 0 a cap holds nothing or switches the
        limit off, and so deep pausing does more. A lower cap that stands already is no error.
        """
        cap = self._cap(gpu_id)
        least, greatest = self._watts(cap, "min_power_cap"), self._watts(cap, "max_power_cap")
        if greatest < LEAST_CREDIBLE_WATTS or least > greatest:
            raise DeviceNotSupported(
                "device-not-supported",
                f"GPU {gpu_id}: a power cap of {least:g} to {greatest:g} W is not credible",
                gpu_id=gpu_id,
            )
        told = _number(cap.get("default_power_cap"))
        default = greatest if told is None else told / 1e6
        if least == 0:
            least = min(LEAST_SHARE * default, self._watts(cap, "power_cap"))
        return LimitRange(least, greatest, default)

    def requested_limit_watts(self, gpu_id: str) -> float:
        """The limit last asked for by anyone on this host."""
        return self._watts(self._cap(gpu_id), "power_cap")

    def enforced_limit_watts(self, gpu_id: str) -> float:
        """The limit in force. AMD SMI shows one limit only: a BMC's own is not seen here."""
        return self.requested_limit_watts(gpu_id)

    def set_limit_watts(self, gpu_id: str, watts: float) -> None:
        """Ask for a limit, in whole watts: the firmware takes no finer one."""
        limits = self.limit_range(gpu_id)
        if not limits.least_watts <= watts <= limits.greatest_watts:  # NaN has no microwatts
            raise error_of(17, f"set {watts} W", gpu_id)
        whole = int(limits.clamp(round(watts)))
        self._ask(gpu_id, "amdsmi_set_power_cap", SENSOR, whole * 1_000_000)

    def _cap(self, gpu_id: str) -> Mapping[str, Any]:
        cap: Mapping[str, Any] = self._ask(gpu_id, "amdsmi_get_power_cap_info")
        return cap

    def _watts(self, cap: Mapping[str, Any], name: str) -> float:
        microwatts = _number(cap.get(name))
        if microwatts is None:
            raise DeviceNotSupported("device-not-supported", f"its cap's info has no {name}")
        return microwatts / 1e6

    # -- readings ------------------------------------------------------------------------------

    def power_watts(self, gpu_id: str) -> Reading:
        """Socket power: the present one (MI300 and later), else the firmware's average."""
        info = self._ask(gpu_id, "amdsmi_get_power_info")
        for name, method in (
            ("current_socket_power", Method.INSTANT),
            ("average_socket_power", Method.AVERAGED),
            ("socket_power", Method.AVERAGED),
        ):
            watts = _number(info.get(name))
            if watts is not None:
                greatest = self.limit_range(gpu_id).greatest_watts
                return self._power.reading(gpu_id, watts, greatest, Boundary.GPU, method)
        raise error_of(NOT_SUPPORTED, "amdsmi_get_power_info", gpu_id)

    def energy_joules(self, gpu_id: str) -> EnergyReading:
        """The energy counter: ticks times their size in microjoules."""
        count = self._ask(gpu_id, "amdsmi_get_energy_count")
        # Named "power" before ROCm 6.
        ticks = _number(count.get("energy_accumulator", count.get("power")))
        microjoules = _number(count.get("counter_resolution"))
        if ticks is None or not microjoules:
            raise error_of(NOT_SUPPORTED, "amdsmi_get_energy_count", gpu_id)
        return self._counters.reading(
            gpu_id,
            ticks * microjoules / 1e6,
            self._epoch,
            Boundary.GPU,
            watts=self._power.watts(gpu_id),
        )

    def processes(self, gpu_id: str) -> tuple[int, ...]:
        """Host pids with memory on the GPU; the driver also lists some that merely know it."""
        found = self._ask(gpu_id, "amdsmi_get_gpu_process_list")
        return tuple(
            int(process["pid"])
            for process in found
            if _number(process.get("memory_usage", {}).get("vram_mem")) != 0.0
        )

    def cap_binds(self, gpu_id: str) -> bool | None:
        """Whether package power tracking holds the clocks down; None where it is not told."""
        try:
            status = self._ask(gpu_id, "amdsmi_get_violation_status")
        except DeviceNotSupported:
            return None
        active = status.get("active_ppt_pwr")
        return bool(active) if isinstance(active, bool) or _number(active) is not None else None

    # -- how AMD SMI is asked ------------------------------------------------------------------

    def _ask(self, gpu_id: str, call: str, *arguments: Any) -> Any:
        self._attached(call)
        handle = self._handles.get(gpu_id)
        if handle is None:
            raise error_of(NOT_FOUND, call, gpu_id)
        return self._call(call, handle, *arguments, gpu_id=gpu_id)

    def _attached(self, call: str) -> None:
        """A forked child inherits nothing of what its parent initialised."""
        if self._pid != os.getpid():
            raise error_of(NOT_INIT, call)
        if self._epoch and self._module.exists() and _changed(self._epoch, self._module):
            raise DriverGone("driver-reloaded", f"driver: the amdgpu module was reloaded ({call})")

    def _call(self, call: str, *arguments: Any, gpu_id: str | None = None) -> Any:
        function = getattr(self._amdsmi, call, None)
        if function is None:
            raise error_of(5, call, gpu_id)
        with self._turn(call):
            try:
                return function(*arguments)
            except self._amdsmi.AmdSmiLibraryException as error:
                raise error_of(int(error.get_error_code()), call, gpu_id) from error
            except self._amdsmi.AmdSmiException as error:
                raise DeviceError("device-error", f"driver: {call}: {error}") from error

    @contextlib.contextmanager
    def _turn(self, call: str) -> Iterator[None]:
        """Alone, where the library is not thread-safe."""
        lock = self._one_at_a_time
        if lock is None:
            yield
            return
        if not lock.acquire(timeout=CALL_SECONDS):
            raise DeviceHung("device-hung", f"driver: another call does not return ({call})")
        try:
            yield
        finally:
            lock.release()


def _changed(epoch: str, module: Path) -> bool:
    """Whether ``module`` is another load than the one that ``epoch`` names."""
    return epoch.rpartition("/")[2] != str(module.stat().st_ino)


def _library() -> Path | None:
    """Of the newest ROCm that is installed."""
    for folder in (Path("/opt/rocm"), *sorted(Path("/opt").glob("rocm-*"), reverse=True)):
        if (folder / "lib" / LIBRARY).exists():
            return folder / "lib" / LIBRARY
    return None


def _number(value: object) -> float | None:
    """A number that the device gave; text ("N/A") and the largest unsigned values mean none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value in _LARGEST:
        return None
    return float(value)


_LARGEST: Final = frozenset((1 << bits) - 1 for bits in (16, 32, 64))
"""How AMD SMI writes "not supported" into a field."""
