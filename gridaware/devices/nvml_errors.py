"""NVML return codes in gridaware's words.

The table is the error policy of a long-lived agent: each code says what the agent may do next.
"""

from typing import Final

from gridaware.domain.errors import (
    DeviceError,
    DeviceHung,
    DeviceLost,
    DeviceNoPermission,
    DeviceNotSupported,
    DeviceOutOfRange,
    DeviceResetRequired,
    DriverGone,
)

__all__ = ["GONE", "LOST", "NOT_SUPPORTED", "UNINITIALIZED", "UNKNOWN", "error_of"]

UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
GONE: Final = 9
LOST: Final = 15
UNKNOWN: Final = 999

_WORDS: Final[dict[int, tuple[type[DeviceError], str, str]]] = {
    UNINITIALIZED: (DriverGone, "driver-uninitialised", "the library is not initialised"),
    INVALID_ARGUMENT: (DeviceOutOfRange, "device-out-of-range", "the device refuses this value"),
    NOT_SUPPORTED: (DeviceNotSupported, "device-not-supported", "the device lacks this"),
    NO_PERMISSION: (DeviceNoPermission, "device-no-permission", "needs root or CAP_SYS_ADMIN"),
    NOT_FOUND: (DeviceLost, "device-lost", "the device is not there"),
    8: (DeviceError, "device-insufficient-power", "its power cables are not right"),
    GONE: (DriverGone, "driver-not-loaded", "the driver is not loaded"),
    10: (DeviceHung, "device-timeout", "the driver gave up waiting"),
    11: (DeviceError, "device-irq", "the kernel has an interrupt problem with the GPU"),
    12: (DriverGone, "driver-library-missing", "libnvidia-ml.so.1 is not there"),
    13: (DeviceNotSupported, "driver-function-missing", "this driver is too old for it"),
    14: (DeviceError, "device-inforom", "its inforom is corrupted"),
    LOST: (DeviceLost, "device-lost", "fell off the bus"),
    16: (DeviceResetRequired, "device-reset-required", "must be reset"),
    18: (DriverGone, "driver-version-mismatch", "library and kernel driver differ in version"),
    19: (DeviceResetRequired, "device-in-use", "is held by something that must be drained"),
    28: (DeviceLost, "device-lost", "the device is not there"),
    UNKNOWN: (DeviceError, "device-unknown-error", "the driver reports an unknown error"),
}


def error_of(code: int, call: str, gpu_id: str | None = None) -> DeviceError:
    """The error for an NVML return code other than 0.

    ``DriverGone`` asks the process to be restarted, ``DeviceLost`` to stop counting on that GPU
    alone; a code that this table does not know is a plain ``DeviceError``.
    """
    kind, name, words = _WORDS.get(code, (DeviceError, "device-error", f"NVML code {code}"))
    subject = f"GPU {gpu_id}" if gpu_id else "driver"
    return kind(name, f"{subject}: {words} ({call})", gpu_id=gpu_id, call=call, nvml_code=code)
