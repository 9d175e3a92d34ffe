"""AMD SMI status codes in gridaware's words (``amdsmi_status_t`` of AMD SMI's ``amdsmi.h``)."""

from typing import Final

from gridaware.domain.errors import (
    DeviceError,
    DeviceHung,
    DeviceLost,
    DeviceNoPermission,
    DeviceNotSupported,
    DeviceOutOfRange,
    DriverGone,
)

__all__ = ["NOT_FOUND", "NOT_INIT", "NOT_SUPPORTED", "error_of"]

NOT_SUPPORTED: Final = 2
NOT_FOUND: Final = 31
NOT_INIT: Final = 32

_LACKS = (DeviceNotSupported, "device-not-supported", "the device lacks this")
_REFUSES = (DeviceOutOfRange, "device-out-of-range", "the device refuses this value")
_WORDS: Final[dict[int, tuple[type[DeviceError], str, str]]] = {
    1: _REFUSES,
    NOT_SUPPORTED: _LACKS,
    3: _LACKS,
    4: (DriverGone, "driver-library-missing", "a library of ROCm is not there"),
    5: (DeviceNotSupported, "driver-function-missing", "this driver is too old for it"),
    8: (DeviceHung, "device-timeout", "the driver gave up waiting"),
    9: (DeviceHung, "device-timeout", "the driver wants to be asked again"),
    10: (DeviceNoPermission, "device-no-permission", "needs root"),
    17: _REFUSES,
    30: (DeviceHung, "device-timeout", "the device is busy"),
    NOT_FOUND: (DeviceLost, "device-lost", "the device is not there"),
    NOT_INIT: (DriverGone, "driver-uninitialised", "the library is not initialised"),
    34: (DriverGone, "driver-not-loaded", "the amdgpu driver is not loaded"),
    40: _LACKS,
    52: _LACKS,
}


def error_of(code: int, call: str, gpu_id: str | None = None) -> DeviceError:
    """The error for an AMD SMI status other than 0; a code that is not listed is a plain one."""
    kind, name, words = _WORDS.get(code, (DeviceError, "device-error", f"AMD SMI code {code}"))
    subject = f"GPU {gpu_id}" if gpu_id else "driver"
    return kind(name, f"{subject}: {words} ({call})", gpu_id=gpu_id, call=call, amdsmi_code=code)
