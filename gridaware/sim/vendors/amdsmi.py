"""An imitation of AMD SMI's Python module, on the registers of one virtual node.

Signatures, keys, units and status codes are those of the AMD SMI Python API reference (ROCm 6.3 to
7.2): caps in microwatts and taken in whole watts, power in watts, "N/A" for what a part does not
tell, energy in ticks. The GPUs behind it are whatever the window says.
"""

from enum import IntFlag
from typing import Final

from gridaware.sim.window import GpuSlot, LoadState, Window

__all__ = ["AmdSmi"]

NA: Final = "N/A"
TICK_MICROJOULES: Final = 15.259
NOT_SUPPORTED, NO_PERM, NOT_FOUND, NOT_INIT, NOT_LOADED, UNKNOWN = 2, 10, 31, 32, 34, 0xFFFFFFFF
_STATUS: Final = {
    1: NOT_INIT,
    2: 1,
    3: NOT_SUPPORTED,
    4: NO_PERM,
    6: NOT_FOUND,
    9: NOT_LOADED,
    10: 8,
    15: NOT_FOUND,
    18: NOT_LOADED,
    19: 30,
    28: NOT_FOUND,
}
"""What the window's error codes (NVML's) are in AMD SMI's words; any other is an unknown error."""


class _Handle:
    """A processor handle. It is of one initialisation, and worth nothing after it."""

    def __init__(self, slot: GpuSlot) -> None:
        self.slot = slot


class AmdSmi:
    """What ``import amdsmi`` would give.

    Args:
        window: the virtual site.
        node: which of its nodes.
        version: of the library, major and minor.
    """

    class AmdSmiInitFlags(IntFlag):
        """Which processors to open."""

        INIT_AMD_CPUS = 1
        INIT_AMD_GPUS = 2

    class AmdSmiException(Exception):
        """Root of the module's errors."""

    class AmdSmiLibraryException(AmdSmiException):
        """A status other than 0."""

        def __init__(self, err_code: int) -> None:
            super().__init__(err_code)
            self.err_code = abs(err_code)

        def get_error_code(self) -> int:
            """The status."""
            return self.err_code

    def __init__(self, window: Window, node: int = 0, version: tuple[int, int] = (26, 2)) -> None:
        self._window = window
        self._node = node
        self._version = version
        self._handles: list[_Handle] = []
        self._epoch: int | None = None
        self.frozen_ticks: int | None = None
        """A counter that stands still (ROCm/amdsmi#38)."""

    def amdsmi_init(self, flag: IntFlag = AmdSmiInitFlags.INIT_AMD_GPUS) -> None:
        """Open the library."""
        assert flag & self.AmdSmiInitFlags.INIT_AMD_GPUS
        if self._window.node(self._node).driver_gone:
            raise self.AmdSmiLibraryException(NOT_LOADED)
        self._epoch = self._window.node(self._node).driver_epoch
        self._handles = [_Handle(slot) for slot in self._window.gpus_of(self._node)]

    def amdsmi_shut_down(self) -> None:
        """Close it."""
        self._epoch, self._handles = None, []

    def amdsmi_get_lib_version(self) -> dict[str, object]:
        """Version of the library."""
        major, minor = self._version
        return {"major": major, "minor": minor, "release": 0, "build": f"{major}.{minor}.0"}

    def amdsmi_get_processor_handles(self) -> list[_Handle]:
        """Every GPU, lost ones too: what is lost shows when it is asked."""
        self._opened()
        return list(self._handles)

    def amdsmi_get_gpu_driver_info(self, handle: _Handle) -> dict[str, str]:
        """The kernel driver."""
        self._slot(handle)
        return {"driver_name": "amdgpu", "driver_version": "6.14.14", "driver_date": NA}

    def amdsmi_get_gpu_device_uuid(self, handle: _Handle) -> str:
        """The UUID."""
        return self._slot(handle).uuid.decode()

    def amdsmi_get_gpu_enumeration_info(self, handle: _Handle) -> dict[str, object]:
        """Its numbers in other libraries."""
        slot = self._slot(handle)
        return {"hip_id": slot.index, "hip_uuid": slot.uuid.decode(), "drm_render": 128}

    def amdsmi_get_gpu_asic_info(self, handle: _Handle) -> dict[str, object]:
        """What it is called."""
        slot = self._slot(handle)
        return {"market_name": slot.model.decode(errors="replace"), "vendor_id": 0x1002}

    def amdsmi_get_power_cap_info(self, handle: _Handle) -> dict[str, int]:
        """The power cap and its range, microwatts."""
        slot = self._slot(handle)
        return {
            "power_cap": round(slot.requested_watts * 1e6),
            "default_power_cap": round(slot.default_watts * 1e6),
            "dpm_cap": 0,
            "min_power_cap": round(slot.least_watts * 1e6),
            "max_power_cap": round(slot.greatest_watts * 1e6),
        }

    def amdsmi_set_power_cap(self, handle: _Handle, sensor_ind: int, cap: int) -> None:
        """Set the cap, microwatts; the firmware takes whole watts."""
        slot = self._slot(handle)
        if type(sensor_ind) is not int or type(cap) is not int:
            raise self.AmdSmiException("Invalid parameter")
        if slot.permission_denied:
            raise self.AmdSmiLibraryException(NO_PERM)
        if not slot.least_watts * 1e6 <= cap <= slot.greatest_watts * 1e6:
            raise self.AmdSmiLibraryException(1)
        slot.requested_watts = float(cap // 1_000_000)

    def amdsmi_get_power_info(self, handle: _Handle) -> dict[str, object]:
        """Socket power in whole watts: present on MI300 and later, averaged before."""
        slot = self._slot(handle)
        instant = not slot.instant_unsupported
        return {
            "socket_power": round(slot.instant_watts if instant else slot.average_watts),
            "current_socket_power": round(slot.instant_watts) if instant else NA,
            "average_socket_power": NA if instant else round(slot.average_watts),
            "power_limit": round(slot.requested_watts),
        }

    def amdsmi_get_energy_count(self, handle: _Handle) -> dict[str, float]:
        """The energy counter, in ticks of so many microjoules."""
        slot = self._slot(handle)
        if slot.energy_unsupported:
            raise self.AmdSmiLibraryException(NOT_SUPPORTED)
        ticks = round(slot.energy_millijoules * 1000 / TICK_MICROJOULES)
        return {
            "energy_accumulator": ticks if self.frozen_ticks is None else self.frozen_ticks,
            "counter_resolution": TICK_MICROJOULES,
            "timestamp": 0,
        }

    def amdsmi_get_gpu_process_list(self, handle: _Handle) -> list[dict[str, object]]:
        """Processes on it."""
        slot = self._slot(handle)
        return [
            {"name": NA, "pid": load.pid, "memory_usage": {"vram_mem": 1 << 30}}
            for load in slot.loads()
            if load.state == LoadState.ALIVE
        ]

    def amdsmi_get_violation_status(self, handle: _Handle) -> dict[str, object]:
        """Why its clocks are held down."""
        return {"active_ppt_pwr": bool(self._slot(handle).cap_binds), "active_socket_thrm": False}

    def _opened(self) -> None:
        node = self._window.node(self._node)
        if node.driver_gone:
            raise self.AmdSmiLibraryException(NOT_LOADED)
        if self._epoch is None or node.driver_epoch != self._epoch:
            raise self.AmdSmiLibraryException(NOT_INIT)

    def _slot(self, handle: _Handle) -> GpuSlot:
        self._opened()
        slot = handle.slot
        if slot.lost:
            raise self.AmdSmiLibraryException(NOT_FOUND)
        if slot.error_code:
            raise self.AmdSmiLibraryException(_STATUS.get(slot.error_code, UNKNOWN))
        return slot
