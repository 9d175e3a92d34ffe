"""Every code that NVML knows, answered by one call or by all calls of a GPU, and what follows.

The policy stands here by NVIDIA's own names; the library is asked through nvidia-ml-py.
"""

import pynvml
import pytest

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

pytestmark = pytest.mark.rig

CODES = {
    name.removeprefix("NVML_ERROR_"): value
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
}
POLICY = {
    # the process is replaced
    "DRIVER_NOT_LOADED": DriverGone,
    "LIBRARY_NOT_FOUND": DriverGone,
    "LIB_RM_VERSION_MISMATCH": DriverGone,
    "UNINITIALIZED": DriverGone,  # once more after a new nvmlInit, then this
    # that GPU alone
    "GPU_IS_LOST": DeviceLost,
    "GPU_NOT_FOUND": DeviceLost,
    "NOT_FOUND": DeviceLost,
    "RESET_REQUIRED": DeviceResetRequired,
    "IN_USE": DeviceResetRequired,
    "TIMEOUT": DeviceHung,
    "NO_PERMISSION": DeviceNoPermission,
    # that one thing alone
    "NOT_SUPPORTED": DeviceNotSupported,
    "FUNCTION_NOT_FOUND": DeviceNotSupported,
    "ARGUMENT_VERSION_MISMATCH": DeviceNotSupported,
    "DEPRECATED": DeviceNotSupported,
    "VGPU_ECC_NOT_SUPPORTED": DeviceNotSupported,
    "RESET_TYPE_NOT_SUPPORTED": DeviceNotSupported,
    "INVALID_ARGUMENT": DeviceOutOfRange,
    "FREQ_NOT_SUPPORTED": DeviceOutOfRange,
    # told, and tried again
    "ALREADY_INITIALIZED": DeviceError,
    "INSUFFICIENT_SIZE": DeviceError,
    "INSUFFICIENT_POWER": DeviceError,
    "IRQ_ISSUE": DeviceError,
    "CORRUPTED_INFOROM": DeviceError,
    "OPERATING_SYSTEM": DeviceError,
    "MEMORY": DeviceError,
    "NO_DATA": DeviceError,
    "INSUFFICIENT_RESOURCES": DeviceError,
    "NOT_READY": DeviceError,
    "INVALID_STATE": DeviceError,
    "UNKNOWN": DeviceError,
}
CALLS = {
    "nvmlDeviceGetPowerManagementLimit": lambda driver, gpu: driver.requested_limit_watts(gpu),
    "nvmlDeviceGetEnforcedPowerLimit": lambda driver, gpu: driver.enforced_limit_watts(gpu),
    "nvmlDeviceSetPowerManagementLimit": lambda driver, gpu: driver.set_limit_watts(gpu, 400.0),
    "nvmlDeviceGetFieldValues": lambda driver, gpu: driver.power_watts(gpu),
    "nvmlDeviceGetTotalEnergyConsumption": lambda driver, gpu: driver.energy_joules(gpu),
    "nvmlDeviceGetComputeRunningProcesses_v3": lambda driver, gpu: driver.processes(gpu),
    "nvmlDeviceGetCurrentClocksEventReasons": lambda driver, gpu: driver.cap_binds(gpu),
    "nvmlDeviceSetGpuLockedClocks": lambda driver, gpu: driver.lock_clocks(gpu, 990.0),
    "nvmlDeviceResetGpuLockedClocks": lambda driver, gpu: driver.unlock_clocks(gpu),
}


def test_the_policy_names_every_code_that_nvml_has():
    assert set(POLICY) == set(CODES)


def worked(driver, gpu_id):
    """Ask everything once, so that NOT_SUPPORTED is a change of mind."""
    for call in CALLS.values():
        call(driver, gpu_id)


@pytest.mark.parametrize("name", POLICY)
def test_each_code_from_any_single_call_has_its_policy_and_leaves_the_other_gpu_alone(
    make_bench, open_nvml, name
):
    bench, driver = make_bench(), open_nvml()
    bad, good = (gpu.gpu_id for gpu in driver.gpus())
    worked(driver, bad)
    slot = bench.window.gpu(0)
    for function, call in CALLS.items():
        if function == "nvmlDeviceGetFieldValues" and POLICY[name] is DeviceNotSupported:
            continue  # a GPU without the field is read by its average instead
        if function == "nvmlDeviceGetCurrentClocksEventReasons" and (
            POLICY[name] is DeviceNotSupported
        ):
            continue  # it is asked under its older name
        slot.fault_call, slot.error_code = function.encode(), CODES[name]
        with pytest.raises(DeviceError) as caught:
            call(driver, bad)
        assert type(caught.value) is POLICY[name], function
        assert caught.value.facts["nvml_code"] == CODES[name]
        slot.error_code = 0
        call(driver, bad)  # and it goes on once the GPU does
        assert driver.power_watts(good).watts > 0
    assert bench.window.gpu(1).requested_watts == 700.0


@pytest.mark.parametrize("name", POLICY)
def test_each_code_when_the_driver_is_opened_ends_in_an_error_of_ours(make_bench, open_nvml, name):
    bench = make_bench()
    bench.window.node(0).fault_call = b"nvmlInit"
    bench.window.node(0).error_code = CODES[name]
    with pytest.raises(DeviceError) as caught:
        open_nvml()
    assert type(caught.value) is POLICY[name]
    bench.window.node(0).error_code = 0
    assert len(open_nvml().gpus()) == 2


def test_uninitialized_is_answered_by_a_new_init_and_is_no_error(make_bench, open_nvml):
    make_bench()
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    for _ in range(3):
        pynvml.nvmlShutdown()
        assert driver.power_watts(gpu_id).watts > 0


@pytest.mark.parametrize("name", ["UNKNOWN", "OPERATING_SYSTEM"])
def test_what_every_gpu_answers_is_the_drivers_own_fault(make_bench, open_nvml, name):
    bench, driver = make_bench(), open_nvml()
    ids = [gpu.gpu_id for gpu in driver.gpus()]
    for which in (0, 1):
        bench.window.gpu(which).error_code = CODES[name]
    gone = []
    for _ in range(2):
        for gpu_id in ids:
            with pytest.raises(DeviceError) as caught:
                driver.power_watts(gpu_id)
            gone.append(isinstance(caught.value, DriverGone))
    assert gone == [False, False, False, True], "once may be chance"


def test_the_virtual_library_has_nvidias_words_for_each_code():
    """Source: nvmlErrorString of nvidia-ml-py's own table of exception texts."""
    words = {code: str(pynvml.NVMLError(code)) for code in CODES.values()}
    assert len(set(words.values())) == len(words)
    assert "lost" in words[15].lower()
