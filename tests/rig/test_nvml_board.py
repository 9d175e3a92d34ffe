"""Scopes, slices, clock locks, profiles, smoothing, persistence: each through nvidia-ml-py."""

import ctypes
import os
import subprocess
import sys

import pynvml
import pytest

from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceNotSupported,
    DeviceOutOfRange,
)
from gridaware.domain.fleet import Smoothing
from gridaware.domain.reading import Boundary

pytestmark = pytest.mark.rig


def test_a_clock_lock_holds_the_clock_and_gives_watts_that_no_legal_cap_can(make_bench, open_nvml):
    bench, driver = make_bench(gpus=1), open_nvml()
    gpu_id, gpu = driver.gpus()[0].gpu_id, bench.window.gpu(0)
    bench.work(0, "llm-decode")
    bench.after(2.0)
    free = gpu.true_watts
    driver.set_limit_watts(gpu_id, 400.0)
    bench.after(2.0)
    assert gpu.true_watts == pytest.approx(free), "decode draws less than most legal caps"
    assert driver.cap_binds(gpu_id) is False
    limits = driver.clock_range(gpu_id)
    assert (limits.least_mhz, limits.greatest_mhz) == (210.0, 1980.0)
    driver.lock_clocks(gpu_id, 1000.0)
    bench.after(2.0)
    assert gpu.locked_mhz == 990.0, "the greatest step of 15 MHz that is not above"
    assert driver.clock_mhz(gpu_id) == 990.0
    assert gpu.true_watts < 0.9 * free
    assert driver.cap_binds(gpu_id) is False
    driver.unlock_clocks(gpu_id)
    bench.after(2.0)
    assert gpu.true_watts == pytest.approx(free)


@pytest.mark.parametrize("mhz", [209.0, 1981.0, -1.0, float("nan"), float("inf")])
def test_a_lock_outside_the_clocks_of_the_gpu_is_refused(make_bench, open_nvml, mhz):
    bench, driver = make_bench(gpus=1), open_nvml()
    with pytest.raises(DeviceOutOfRange):
        driver.lock_clocks(driver.gpus()[0].gpu_id, mhz)
    assert bench.window.gpu(0).locked_mhz == 0.0


def test_a_pascal_has_no_clock_lock(make_bench, open_nvml):
    make_bench("p100-250", 1)
    driver = open_nvml()
    with pytest.raises(DeviceNotSupported):
        driver.clock_range(driver.gpus()[0].gpu_id)
    with pytest.raises(DeviceNotSupported):
        driver.lock_clocks(driver.gpus()[0].gpu_id, 1000.0)


def test_the_lock_that_a_site_sets_itself_bounds_ours_and_is_what_is_given_back(
    make_bench, open_nvml
):
    bench = make_bench(gpus=1)
    driver, gpu = open_nvml(locked_clocks_mhz="210,1410"), bench.window.gpu(0)
    gpu_id = driver.gpus()[0].gpu_id
    assert driver.clock_range(gpu_id).greatest_mhz == 1410.0
    with pytest.raises(DeviceOutOfRange):
        driver.lock_clocks(gpu_id, 1500.0)
    driver.lock_clocks(gpu_id, 900.0)
    driver.unlock_clocks(gpu_id)
    assert (gpu.locked_least_mhz, gpu.locked_mhz) == (210.0, 1410.0)


@pytest.mark.parametrize("text", ["", "1410", "1410,210", "210;1410", "0,1410", "a,b", "-1,5"])
def test_a_site_lock_that_is_none_is_refused(open_nvml, text):
    with pytest.raises(ConfigError):
        open_nvml(locked_clocks_mhz=text)


def test_a_module_is_set_with_its_scope_and_read_with_its_scope(make_bench, open_nvml):
    bench = make_bench()
    bench.window.gpu(0).module_scope = 1
    driver = open_nvml()
    module, plain = (gpu.gpu_id for gpu in driver.gpus())
    for gpu_id in (module, plain):
        driver.set_limit_watts(gpu_id, 444.0)
        assert driver.enforced_limit_watts(gpu_id) == 444.0
    assert driver.power_watts(module).boundary is Boundary.MODULE
    assert driver.energy_joules(module).boundary is Boundary.MODULE
    assert driver.power_watts(plain).boundary is Boundary.GPU
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, 500_000)


def test_a_board_in_mig_mode_names_its_slices_and_they_have_no_power(make_bench, open_nvml):
    bench, driver = make_bench(), open_nvml()
    bench.window.gpu(0).mig_slices = 4
    board = driver.gpus()[0].gpu_id
    names = driver.board_state(board).slices
    assert names == tuple(bench.window.gpu(0).slice_uuid(number) for number in (1, 2, 3, 4))
    assert all(name.startswith("MIG-") and board[4:12] not in name for name in names)
    slice_ = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(pynvml.nvmlDeviceGetHandleByIndex(0), 2)
    assert pynvml.nvmlDeviceGetUUID(slice_) == names[2]
    assert pynvml.nvmlDeviceIsMigDeviceHandle(slice_).value == 1
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(slice_)
    assert pynvml.nvmlDeviceGetUUID(parent) == board
    for call in (
        pynvml.nvmlDeviceGetPowerUsage,
        pynvml.nvmlDeviceGetTotalEnergyConsumption,
        pynvml.nvmlDeviceGetEnforcedPowerLimit,
    ):
        with pytest.raises(pynvml.NVMLError_NotSupported):
            call(slice_)
    assert driver.board_state(driver.gpus()[1].gpu_id).slices == ()


def test_a_slice_is_no_gpu_of_its_own_and_its_board_is_what_is_capped(make_bench, open_nvml):
    bench, driver = make_bench(), open_nvml()
    bench.window.gpu(0).mig_slices = 7
    assert len(driver.gpus()) == 2
    driver.set_limit_watts(driver.gpus()[0].gpu_id, 350.0)
    assert driver.enforced_limit_watts(driver.gpus()[0].gpu_id) == 350.0


def test_requested_workload_profiles_are_named(make_bench, open_nvml):
    bench, driver = make_bench("b200-1000", 1), open_nvml()
    gpu, gpu_id = bench.window.gpu(0), driver.gpus()[0].gpu_id
    assert driver.board_state(gpu_id).profiles == ()
    gpu.profiles_supported = (1 << 25) - 1
    driver.open()
    asked = pynvml.c_nvmlWorkloadPowerProfileRequestedProfiles_v1_t()
    for bit in (pynvml.NVML_POWER_PROFILE_MAX_Q, pynvml.NVML_POWER_PROFILE_LLM_TRAINING):
        asked.requestedProfilesMask.mask[0] |= 1 << bit
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(handle, ctypes.byref(asked))
    assert driver.board_state(gpu_id).profiles == ("MAX_Q", "LLM_TRAINING")
    pynvml.nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(handle, ctypes.byref(asked))
    assert driver.board_state(gpu_id).profiles == ()


def test_a_smoothing_floor_is_told_and_holds_power_after_the_job_has_left(make_bench, open_nvml):
    bench = make_bench("b200-1000", 1)
    gpu = bench.window.gpu(0)
    gpu.smoothing_floor_watts, gpu.smoothing_hysteresis_seconds = 500.0, 2.0
    gpu.smoothing_down_watts = gpu.smoothing_up_watts = 200.0
    gpu.smoothing = 1
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    assert driver.board_state(gpu_id).smoothing is None, "present and switched off"
    gpu.smoothing = 2
    smoothing = driver.board_state(gpu_id).smoothing
    assert smoothing == Smoothing(500.0, 2.0, 200.0, 200.0)
    bench.work(0, "pretrain")
    bench.after(20.0)
    busy = gpu.true_watts
    assert busy > 600.0
    gpu.load(0).leave()
    left_at = bench.physics.now_seconds
    idle = 0.11 * busy
    while gpu.true_watts > 500.0:
        bench.after(0.01)
    bench.after(0.01)
    assert gpu.true_watts == pytest.approx(500.0, abs=5.0), "held at the floor"
    while gpu.true_watts >= 490.0:
        bench.after(0.01)
    assert bench.physics.now_seconds - left_at == pytest.approx(2.0, abs=0.4)
    idle = driver_idle(bench)
    while gpu.true_watts > idle + 1.0:
        bench.after(0.01)
    took = bench.physics.now_seconds - left_at
    # Published: hysteresis, then the ramp; control must not credit the shed before.
    assert took == pytest.approx(smoothing.hysteresis_seconds + (500.0 - idle) / 200.0, abs=0.5)
    assert smoothing.credit_seconds(busy, idle) >= took - 0.1


def driver_idle(bench):
    """What the class draws at idle (configs/curves)."""
    from gridaware.wiring.curves import load_curves

    name = bench.window.gpu(0).model.decode()
    return load_curves().gpu(name).idle_watts


def test_without_smoothing_nothing_is_credited_late():
    smoothing = Smoothing(300.0, 1.5, 100.0, 50.0)
    assert smoothing.credit_seconds(200.0, 400.0) == 0.0
    assert smoothing.credit_seconds(700.0, 400.0) == 3.0  # above the floor: the ramp alone
    assert smoothing.credit_seconds(700.0, 200.0) == 6.5
    assert Smoothing(0.0, 0.0, 0.0, 0.0).credit_seconds(2.0, 1.0) == float("inf")


def test_without_persistence_the_last_client_takes_the_limits_with_it(make_bench, library):
    bench = make_bench(gpus=2)
    kept, lost = bench.window.gpu(0), bench.window.gpu(1)
    lost.persistence = 0
    code = (
        "import sys; from pynvml import *; nvmlInit()\n"
        "for i in (0, 1):\n"
        "    h = nvmlDeviceGetHandleByIndex(i)\n"
        "    nvmlDeviceSetPowerManagementLimit(h, 333000)\n"
        "    nvmlDeviceSetGpuLockedClocks(h, 210, 900)\n"
        "print('set', flush=True); sys.stdin.readline()\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **bench.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout.readline().strip() == "set"
    bench.after(1.0)
    assert (kept.requested_watts, lost.requested_watts) == (333.0, 333.0)
    client.kill()  # no farewell: the kernel closes what it had open
    client.communicate()
    bench.after(1.0)
    assert (kept.requested_watts, lost.requested_watts) == (333.0, 700.0)
    assert (kept.locked_mhz, lost.locked_mhz) == (900.0, 0.0)


def test_the_state_of_a_board_survives_calls_that_fail_one_by_one(make_bench, open_nvml):
    bench, driver = make_bench("b200-1000", 1), open_nvml()
    gpu, gpu_id = bench.window.gpu(0), driver.gpus()[0].gpu_id
    gpu.smoothing, gpu.mig_slices, gpu.profiles_supported = 2, 2, 7
    whole = driver.board_state(gpu_id)
    assert whole.persistence is True
    for function in (b"nvmlDeviceGetPersistenceMode", b"nvmlDeviceGetMigMode"):
        gpu.fault_call, gpu.error_code = function, 999
        part = driver.board_state(gpu_id)
        assert part != whole
        assert part.smoothing == whole.smoothing
        gpu.error_code = 0


def test_a_wedged_gpu_does_not_keep_the_others_from_being_named(make_site, open_nvml):
    site = make_site(gpus=3)
    site.window.gpu(1).fault_call = b"nvmlDeviceGetUUID"
    site.window.gpu(1).hang_seconds = 3.0
    driver = open_nvml()
    names = [site.window.gpu(which).uuid.decode() for which in (0, 2)]
    assert [gpu.gpu_id for gpu in driver.gpus()] == names
    site.window.gpu(1).hang_seconds = 0.0
    assert len(driver.gpus()) == 3


def test_an_unreadable_scope_is_asked_again_and_not_guessed(make_bench, open_nvml):
    bench = make_bench(gpus=1)
    gpu = bench.window.gpu(0)
    gpu.module_scope = 1
    gpu.fault_call, gpu.error_code = b"nvmlDeviceGetPowerUsage", 999
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    with pytest.raises(DeviceError):
        driver.requested_limit_watts(gpu_id)
    gpu.error_code = 0
    assert driver.requested_limit_watts(gpu_id) == 700.0
    assert driver.boundary == "module"
