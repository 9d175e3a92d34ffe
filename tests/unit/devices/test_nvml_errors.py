"""The error policy of a long-lived agent, by NVIDIA's own names of the codes."""

import pynvml
import pytest

from gridaware.devices.nvml_errors import error_of
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

POLICY = {
    "UNINITIALIZED": DriverGone,
    "INVALID_ARGUMENT": DeviceOutOfRange,
    "NOT_SUPPORTED": DeviceNotSupported,
    "NO_PERMISSION": DeviceNoPermission,
    "NOT_FOUND": DeviceLost,
    "INSUFFICIENT_POWER": DeviceError,
    "DRIVER_NOT_LOADED": DriverGone,
    "TIMEOUT": DeviceHung,
    "LIBRARY_NOT_FOUND": DriverGone,
    "FUNCTION_NOT_FOUND": DeviceNotSupported,
    "GPU_IS_LOST": DeviceLost,
    "RESET_REQUIRED": DeviceResetRequired,
    "LIB_RM_VERSION_MISMATCH": DriverGone,
    "IN_USE": DeviceResetRequired,
    "GPU_NOT_FOUND": DeviceLost,
    "UNKNOWN": DeviceError,
}


@pytest.mark.parametrize("name", POLICY)
def test_each_code_says_what_the_agent_may_do_next(name):
    code = getattr(pynvml, f"NVML_ERROR_{name}")
    error = error_of(code, "nvmlDeviceGetPowerUsage", "GPU-1")
    assert type(error) is POLICY[name]
    assert error.facts == {
        "gpu_id": "GPU-1",
        "call": "nvmlDeviceGetPowerUsage",
        "nvml_code": code,
    }


def test_every_code_that_nvml_has_is_a_device_error():
    codes = {
        value
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") and isinstance(value, int)
    }
    assert len(codes) > 25
    for code in codes:
        error = error_of(code, "call")
        assert isinstance(error, DeviceError)
        assert str(error).startswith("driver: ")
