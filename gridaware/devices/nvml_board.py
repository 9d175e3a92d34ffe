"""In which state an NVIDIA GPU is: persistence, MIG slices, workload profiles, power smoothing.

Only read: none of these is ever changed by gridaware. What a driver or a GPU does not know is left
out, call by call, since each came with another generation (MIG: Ampere; profiles and smoothing:
Blackwell).
"""

from collections.abc import Callable
from ctypes import byref
from typing import Any, Final, TypeVar

from gridaware.devices.nvml_calls import NvmlCalls
from gridaware.domain.errors import DeviceError, DriverGone
from gridaware.domain.fleet import BoardState, Smoothing

__all__ = ["read_board"]

SMOOTHING_ENABLED: Final = 251
PROFILE_FLOOR_PERCENT: Final = 260
PROFILE_RAMP_UP: Final = 261
PROFILE_RAMP_DOWN: Final = 262
PROFILE_HYSTERESIS: Final = 263
ACTIVE_PROFILE: Final = 264
OVERRIDE_BY: Final = 5
"""An administrator's override of field ``n`` is field ``n + 5``."""
NOT_OVERRIDDEN: Final = 0xFFFFFFFF
PRIMARY_FLOOR_WATTS: Final = 275
MIG_ENABLED: Final = 1
MOST_PROFILES: Final = 255

Answer = TypeVar("Answer")


def read_board(calls: NvmlCalls, gpu_id: str, default_watts: float) -> BoardState:
    """The state of one GPU. ``default_watts`` stands for its total module power."""
    persistence = _optional(lambda: calls.ask(gpu_id, "nvmlDeviceGetPersistenceMode"))
    return BoardState(
        persistence=None if persistence is None else bool(persistence),
        slices=_optional(lambda: _slices(calls, gpu_id)) or (),
        profiles=_optional(lambda: _profiles(calls, gpu_id)) or (),
        smoothing=_optional(lambda: _smoothing(calls, gpu_id, default_watts)),
    )


def _optional(ask: Callable[[], Answer]) -> Answer | None:
    try:
        return ask()
    except DriverGone:
        raise
    except DeviceError:
        return None


def _slices(calls: NvmlCalls, gpu_id: str) -> tuple[str, ...]:
    """UUIDs of the MIG devices. They share no digits with their board's (since R470)."""
    current, _pending = calls.ask(gpu_id, "nvmlDeviceGetMigMode")
    if current != MIG_ENABLED:
        return ()
    found = []
    for index in range(calls.ask(gpu_id, "nvmlDeviceGetMaxMigDeviceCount")):
        try:
            handle = calls.ask(gpu_id, "nvmlDeviceGetMigDeviceHandleByIndex", index)
            found.append(str(calls.driver("nvmlDeviceGetUUID", handle)))
        except DriverGone:
            raise
        except DeviceError:
            continue  # indices may have gaps
    return tuple(found)


def _profiles(calls: NvmlCalls, gpu_id: str) -> tuple[str, ...]:
    """Names of the workload power profiles that somebody has requested."""
    nvml = calls.nvml
    current = nvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
    calls.ask(gpu_id, "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", byref(current))
    names = _profile_names(nvml)
    mask = current.requestedProfilesMask.mask
    bits = [bit for bit in range(MOST_PROFILES) if mask[bit // 32] >> bit % 32 & 1]
    return tuple(names.get(bit, str(bit)) for bit in bits)


def _profile_names(nvml: Any) -> dict[int, str]:
    """In-band ids; those of the out-of-band interface are 3 higher."""
    prefix = "NVML_POWER_PROFILE_"
    words = {
        name.removeprefix(prefix): value
        for name, value in vars(nvml).items()
        if name.startswith(prefix)
    }
    return {
        value: word
        for word, value in words.items()
        if word != "MAX" and not word.startswith("OPERATION_")  # a count, and what to do with masks
    }


def _smoothing(calls: NvmlCalls, gpu_id: str, default_watts: float) -> Smoothing | None:
    """Power smoothing as it works now; None where it is switched off."""
    if not calls.field(gpu_id, SMOOTHING_ENABLED, 0):
        return None
    profile = int(calls.field(gpu_id, ACTIVE_PROFILE, 0))

    def parameter(field: int) -> float:
        override = _optional(lambda: calls.field(gpu_id, field + OVERRIDE_BY, 0))
        if override is not None and override != NOT_OVERRIDDEN:
            return override
        return calls.field(gpu_id, field, profile)

    floor = _optional(lambda: calls.field(gpu_id, PRIMARY_FLOOR_WATTS, 0))
    if floor is None:
        floor = parameter(PROFILE_FLOOR_PERCENT) / 100 * default_watts
    return Smoothing(
        floor_watts=floor,
        hysteresis_seconds=parameter(PROFILE_HYSTERESIS) / 1000,
        ramp_down_watts_per_second=parameter(PROFILE_RAMP_DOWN) / 1000,
        ramp_up_watts_per_second=parameter(PROFILE_RAMP_UP) / 1000,
    )
