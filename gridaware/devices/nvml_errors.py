"""NVML return codes in gridaware's words.

The table is the error policy of a long-lived agent: each code says what the agent may do next.

=====================  ==================================================================
``DriverGone``         end this process; a fresh one is started, ever more rarely. Never 0 W
``DeviceLost``         stop counting on that GPU, and on its power; the others go on
``DeviceResetRequired``  quarantine: no write until a fresh process could write again
``DeviceHung``         leave it alone until it answers
``DeviceNoPermission``  read only; jobs on it give watts by pausing; asked again later
``DeviceNotSupported``  that one thing is left out, and not asked again
``DeviceOutOfRange``   the value is refused; never clamped
``DeviceError``        told once, tried again ever more rarely
=====================  ==================================================================
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

__all__ = [
    "FUNCTION_NOT_FOUND",
    "GONE",
    "INVALID_ARGUMENT",
    "LOST",
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "OPERATING_SYSTEM",
    "UNINITIALIZED",
    "UNKNOWN",
    "error_of",
]

UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
GONE: Final = 9
FUNCTION_NOT_FOUND: Final = 13
LOST: Final = 15
OPERATING_SYSTEM: Final = 17
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
    FUNCTION_NOT_FOUND: (
        DeviceNotSupported,
        "driver-function-missing",
        "this driver is too old for it",
    ),
    14: (DeviceError, "device-inforom", "its inforom is corrupted"),
    LOST: (DeviceLost, "device-lost", "fell off the bus"),
    16: (DeviceResetRequired, "device-reset-required", "must be reset"),
    OPERATING_SYSTEM: (DeviceError, "device-blocked", "the operating system blocks it"),
    18: (DriverGone, "driver-version-mismatch", "library and kernel driver differ in version"),
    19: (DeviceResetRequired, "device-in-use", "is held by something that must be drained"),
    20: (DeviceError, "device-no-memory", "the driver has no memory left"),
    21: (DeviceError, "device-no-data", "there is no reading"),
    22: (DeviceNotSupported, "device-not-supported", "the device lacks this"),
    23: (DeviceError, "device-no-memory", "the driver has no resources left"),
    24: (DeviceOutOfRange, "device-out-of-range", "the device has no such clock"),
    25: (
        DeviceNotSupported,
        "driver-function-missing",
        "this driver knows no such form of it",
    ),
    26: (DeviceNotSupported, "driver-function-missing", "this driver has given it up"),
    27: (DeviceError, "device-not-ready", "is not ready yet"),
    28: (DeviceLost, "device-lost", "the device is not there"),
    29: (DeviceError, "device-invalid-state", "is in no state for it"),
    30: (DeviceNotSupported, "device-not-supported", "the device lacks this"),
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
