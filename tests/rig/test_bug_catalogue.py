"""Bugs that others had with NVIDIA GPUs, each a test of our driver over the real nvidia-ml-py.

The number in a name is that of the catalogue in the project's notes on power; the rest of the name
says where it was seen and what is right. Cases about AMD, Intel and RAPL stand with their drivers,
those that are about settlement or jobs alone in ``tests/unit``.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from gridaware.devices.nvml import open_driver
from gridaware.domain.errors import (
    DeviceError,
    DeviceLost,
    DeviceNotSupported,
    DriverGone,
)
from gridaware.domain.fleet import LimitRange
from gridaware.domain.reading import Boundary, Method, Quality
from gridaware.settlement.counter import Flag, PowerSample
from gridaware.settlement.energy import EnergyMethod, device_energy

pytestmark = pytest.mark.rig

PACKAGE = Path(__file__).parents[2] / "gridaware"


def sampled(bench, driver, gpu_id, seconds=20.0, hz=10.0):
    """What the driver shows of a GPU, as settlement takes it in."""
    samples = []
    for step in range(int(seconds * hz) + 1):
        try:
            energy = driver.energy_joules(gpu_id)
        except DeviceNotSupported:
            energy = None
        samples.append(
            PowerSample(
                step / hz,
                driver.power_watts(gpu_id).watts,
                None if energy is None else energy.joules,
                "" if energy is None else energy.epoch,
                driver.enforced_limit_watts(gpu_id),
            )
        )
        bench.after(1 / hz)
    return samples


def test_bug_01_codecarbon_1316_without_a_counter_power_is_integrated_and_it_is_said(
    make_bench, open_nvml
):
    bench, driver = make_bench("p100-250", 1), open_nvml()
    bench.work(0, "bert")
    bench.after(2.0)
    gpu = bench.window.gpu(0)
    before = gpu.true_joules
    samples = sampled(bench, driver, driver.gpus()[0].gpu_id)
    energy = device_energy(samples, 0.0, 20.0)
    assert energy.method is EnergyMethod.INTEGRATED
    assert Flag.COUNTER_MISSING in energy.flags
    true = (gpu.true_joules - before) * 20.0 / 20.1
    assert energy.joules == pytest.approx(true * gpu.power_gain, rel=0.01)


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetPersistenceMode",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetSupportedGraphicsClocks",
        "nvmlDeviceGetName",
    ],
)
def test_bug_02_codecarbon_608_what_is_not_supported_costs_that_one_thing_alone(
    make_bench, open_nvml, function
):
    bench = make_bench()
    gpu = bench.window.gpu(0)
    gpu.fault_call, gpu.error_code = function.encode(), pynvml.NVML_ERROR_NOT_SUPPORTED
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    driver.set_limit_watts(gpu_id, 300.0)
    assert driver.enforced_limit_watts(gpu_id) == 300.0
    assert driver.power_watts(gpu_id).watts > 0
    assert driver.board_state(gpu_id) is not None


def test_bug_03_codecarbon_309_a_counter_that_falls_is_a_new_epoch(make_bench, open_nvml):
    bench, driver = make_bench(gpus=1), open_nvml()
    gpu_id, gpu = driver.gpus()[0].gpu_id, bench.window.gpu(0)
    bench.work(0, "pretrain")
    samples = sampled(bench, driver, gpu_id, 10.0)
    before = gpu.energy_millijoules
    gpu.resets += 1
    later = [s._replace(at_seconds=s.at_seconds + 10.1) for s in sampled(bench, driver, gpu_id, 10)]
    assert gpu.energy_millijoules < before
    assert {sample.epoch for sample in samples} != {sample.epoch for sample in later}
    energy = device_energy([*samples, *later], 0.0, 20.0)
    assert energy.resets == 1
    assert Flag.COUNTER_RESET in energy.flags
    assert energy.joules == pytest.approx(20.0 * gpu.true_watts, rel=0.05)


def test_bug_04_codecarbon_838_a_fleet_may_hold_gpus_that_can_do_little(make_bench, open_nvml):
    bench = make_bench(gpus=3)
    old = bench.window.gpu(1)
    old.energy_unsupported = old.instant_unsupported = 1
    old.capability = 60
    driver = open_nvml()
    first, poor, last = (gpu.gpu_id for gpu in driver.gpus())
    with pytest.raises(DeviceNotSupported):
        driver.energy_joules(poor)
    assert driver.power_watts(poor).watts > 0
    for gpu_id in (first, last):
        assert driver.energy_joules(gpu_id).joules > 0
        assert driver.clock_range(gpu_id).greatest_mhz == 1980.0


def test_bug_08_zeus_181_counter_and_integral_are_held_against_each_other(make_bench, open_nvml):
    """A board whose counter runs at 187/327 of its power, the figures of the report."""
    bench, driver = make_bench(gpus=1), open_nvml()
    gpu_id, gpu = driver.gpus()[0].gpu_id, bench.window.gpu(0)
    samples = [
        s._replace(counter_joules=s.counter_joules * 187 / 327)
        for s in sampled(bench, driver, gpu_id)
    ]
    energy = device_energy(samples, 0.0, 20.0)
    assert Flag.COUNTER_DISAGREES in energy.flags
    honest = device_energy(sampled(bench, driver, gpu_id), 0.0, 20.0)
    assert Flag.COUNTER_DISAGREES not in honest.flags
    assert honest.joules == pytest.approx(20.0 * gpu.true_watts, rel=0.03)


def test_bug_09_zeus_172_a_module_is_labelled_wherever_its_numbers_go(make_bench, open_nvml):
    bench = make_bench(gpus=1)
    bench.window.gpu(0).module_scope = 1
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    assert driver.power_watts(gpu_id).boundary is Boundary.MODULE
    assert driver.energy_joules(gpu_id).boundary is Boundary.MODULE
    assert driver.boundary == "module"


def test_bug_10_zeus_45_control_reads_the_instant_and_billing_the_counter(make_bench, open_nvml):
    bench, driver = make_bench(gpus=1), open_nvml()
    gpu_id, gpu = driver.gpus()[0].gpu_id, bench.window.gpu(0)
    bench.work(0, "pretrain")
    bench.after(5.0)
    driver.set_limit_watts(gpu_id, 350.0)
    bench.after(0.3)
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    averaged = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
    reading = driver.power_watts(gpu_id)
    assert reading.method is Method.INSTANT
    assert reading.watts == pytest.approx(gpu.true_watts, rel=0.065)
    assert averaged > 1.3 * reading.watts, "the 1 s average still shows most of what was"


def test_bug_11_dcgm_exporter_317_the_power_of_a_sliced_board_is_counted_once(
    make_bench, open_nvml
):
    bench = make_bench()
    before = sum(power_of_all(open_nvml()))
    for which in (0, 1):
        bench.window.gpu(which).mig_slices = 7
    assert sum(power_of_all(open_nvml())) == pytest.approx(before)
    assert before == pytest.approx(2 * 95.0, rel=0.07)


def power_of_all(driver):
    return [driver.power_watts(gpu.gpu_id).watts for gpu in driver.gpus()]


def test_bug_12_dcgm_exporter_561_a_sliced_board_is_still_read_and_limited(make_bench, open_nvml):
    bench = make_bench(gpus=1)
    bench.window.gpu(0).mig_slices = 3
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    driver.set_limit_watts(gpu_id, 250.0)
    assert driver.enforced_limit_watts(gpu_id) == 250.0
    assert driver.power_watts(gpu_id).watts > 0
    assert driver.energy_joules(gpu_id).joules > 0


def test_bug_13_dcgm_exporter_464_metering_wakes_no_gpu(make_bench, open_nvml):
    bench, driver = make_bench(gpus=1), open_nvml()
    gpu_id, gpu = driver.gpus()[0].gpu_id, bench.window.gpu(0)
    idle_watts, idle_mhz = gpu.true_watts, gpu.clock_mhz
    sampled(bench, driver, gpu_id, 5.0)
    assert (gpu.true_watts, gpu.clock_mhz) == (idle_watts, idle_mhz)
    assert driver.processes(gpu_id) == (), "we hold no compute context"


def test_bug_15_slurm_job_exporter_55_a_slice_has_no_power_to_be_billed(make_bench, open_nvml):
    bench, driver = make_bench(gpus=1), open_nvml()
    bench.window.gpu(0).mig_slices = 2
    names = driver.board_state(driver.gpus()[0].gpu_id).slices
    for call in (driver.power_watts, driver.energy_joules, driver.enforced_limit_watts):
        for name in names:
            with pytest.raises(DeviceNotSupported):
                call(name)


@pytest.mark.parametrize("blank", [0x7FFFFFFFFFFFFFF0, 0x7FFFFFFFFFFFFFF1, 0x7FFFFFFFFFFFFFF3])
def test_bug_16_gpu_monitoring_tools_152_blank_values_are_no_readings(make_bench, open_nvml, blank):
    """DCGM's DCGM_INT64_BLANK and its kin; as 32 bits they are a power of 2 MW."""
    bench, driver = make_bench(gpus=1), open_nvml()
    gpu_id, gpu = driver.gpus()[0].gpu_id, bench.window.gpu(0)
    good = driver.power_watts(gpu_id)
    gpu.energy_millijoules = blank
    with pytest.raises(DeviceError) as caught:
        driver.energy_joules(gpu_id)
    assert caught.value.code == "energy-implausible"
    gpu.instant_watts = 0x7FFFFFF0 / 1000
    assert driver.power_watts(gpu_id).quality is Quality.HELD
    assert driver.power_watts(gpu_id).watts == good.watts


@pytest.mark.parametrize("name", [b"\xff\xfe\x00A100", b"NVIDIA \xc3\x28", b"\x80" * 40])
def test_bug_18_gpustat_170_a_name_of_garbage_hides_no_gpu(make_bench, open_nvml, name):
    bench = make_bench()
    bench.window.gpu(0).model = name
    assert len(open_nvml().gpus()) == 2


def test_bug_19_gpustat_144_a_limit_that_is_not_supported_leaves_the_rest(make_bench, open_nvml):
    bench = make_bench(gpus=1)
    gpu = bench.window.gpu(0)
    gpu.fault_call = b"nvmlDeviceGetPowerManagementLimit"
    gpu.error_code = pynvml.NVML_ERROR_NOT_SUPPORTED
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    assert driver.can_set(gpu_id) is False
    with pytest.raises(DeviceNotSupported):
        driver.requested_limit_watts(gpu_id)
    assert driver.enforced_limit_watts(gpu_id) == 700.0


def test_bug_20_nvitop_145_one_gpu_of_unknown_errors_is_one_gpu(make_bench, open_nvml):
    bench = make_bench(gpus=3)
    bench.window.gpu(1).error_code = pynvml.NVML_ERROR_UNKNOWN
    driver = open_nvml()
    assert [gpu.index for gpu in driver.gpus()] == [0, 2]
    assert all(watts > 0 for watts in power_of_all(driver))


def test_bug_21_nvidia_docker_1671_a_blind_driver_asks_for_a_new_process_and_sees_again(
    make_bench, open_nvml
):
    bench, driver = make_bench(), open_nvml()
    ids = [gpu.gpu_id for gpu in driver.gpus()]
    for which in (0, 1):
        bench.window.gpu(which).error_code = pynvml.NVML_ERROR_UNKNOWN
    for gpu_id in (*ids, ids[0]):
        with pytest.raises(DeviceError):
            driver.power_watts(gpu_id)
    with pytest.raises(DriverGone):
        driver.power_watts(ids[1])
    for which in (0, 1):
        bench.window.gpu(which).error_code = 0
    driver.open()
    assert all(watts > 0 for watts in power_of_all(driver))


def test_bug_22_nvidia_docker_495_missing_permission_is_known_before_anything_is_promised(
    make_bench, open_nvml
):
    bench, driver = make_bench(), open_nvml()
    bench.window.gpu(0).permission_denied = 1
    first, second = (gpu.gpu_id for gpu in driver.gpus())
    assert (driver.can_set(first), driver.can_set(second)) == (False, True)
    bench.window.gpu(0).permission_denied = 0
    assert driver.can_set(first) is True, "and it is seen when it comes back"


def test_bug_26_open_kernel_modules_483_a_limit_that_reads_back_may_still_do_nothing(
    make_bench, open_nvml
):
    """Read-back is no proof; power is. What shows it: draw above 1.1 x the limit after 2 s."""
    bench, driver = make_bench(gpus=1), open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    bench.work(0, "pretrain")
    bench.window.gpu(0).limits_ignored = 1
    driver.set_limit_watts(gpu_id, 300.0)
    bench.after(3.0)
    assert driver.enforced_limit_watts(gpu_id) == 300.0
    assert driver.power_watts(gpu_id).watts > 1.1 * 300.0
    assert driver.cap_binds(gpu_id) is not None


def test_bug_27_variorum_446_what_is_in_force_is_the_enforced_limit(make_bench, open_nvml):
    bench, driver = make_bench(gpus=1), open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    bench.window.gpu(0).out_of_band_watts = 500.0
    driver.set_limit_watts(gpu_id, 600.0)
    assert driver.requested_limit_watts(gpu_id) == 600.0
    assert driver.enforced_limit_watts(gpu_id) == 500.0
    driver.set_limit_watts(gpu_id, 450.0)
    assert driver.enforced_limit_watts(gpu_id) == 450.0


def test_bug_28_tensorflow_32881_a_reload_may_renumber_and_the_same_board_is_capped(
    make_bench, open_nvml
):
    bench, driver = make_bench(gpus=3), open_nvml()
    before = {gpu.gpu_id: gpu.index for gpu in driver.gpus()}
    node = bench.window.node(0)
    node.shuffle_on_reload = 1
    node.reload_requests += 1
    bench.after(0.1)
    with pytest.raises(DriverGone):
        driver.gpus()
    driver.open()
    after = {gpu.gpu_id: gpu.index for gpu in driver.gpus()}
    assert after.keys() == before.keys()
    assert all(after[gpu_id] != before[gpu_id] for gpu_id in before)
    wanted = next(iter(before))
    driver.set_limit_watts(wanted, 321.0)
    shown = [slot for slot in bench.window.gpus_of(0) if slot.requested_watts == 321.0]
    assert [slot.uuid.decode() for slot in shown] == [wanted]


def test_bug_29_cucascade_138_a_forked_child_shares_no_handle(make_bench, open_nvml):
    make_bench()
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    code = 1
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        try:
            try:
                pynvml.nvmlDeviceGetCount()
            except pynvml.NVMLError_Uninitialized:
                code = 0 if driver.power_watts(gpu_id).watts > 0 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert driver.power_watts(gpu_id).watts > 0


def test_bug_30_nvtop_95_after_an_unattended_upgrade_nothing_is_zero_watts(make_bench, open_nvml):
    bench, driver = make_bench(), open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    for which in (0, 1):
        bench.window.gpu(which).error_code = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    with pytest.raises(DriverGone) as caught:
        driver.power_watts(gpu_id)
    assert caught.value.code == "driver-version-mismatch"
    assert "version" in str(caught.value)


def test_bug_31_pai_949_nobody_parses_the_text_of_nvidia_smi():
    """Not a word of it is run or read by the package: advice for people may name it."""
    for path in PACKAGE.rglob("*.py"):
        if path.name.startswith("fixes") or path.name == "doctor_driver.py":
            continue
        words = [
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        assert not [word for word in words if word.strip() == "nvidia-smi"], path


@pytest.mark.parametrize("watts", [0.0, 0.0009, 0.6, 1051.0, 4.2e6])
def test_bug_32_mangohud_1656_garbage_is_held_and_not_believed(make_bench, open_nvml, watts):
    bench, driver = make_bench(gpus=1), open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    good = driver.power_watts(gpu_id)
    bench.window.gpu(0).instant_watts = watts
    held = driver.power_watts(gpu_id)
    assert (held.quality, held.watts, held.at) == (Quality.HELD, good.watts, good.at)


def test_bug_33_tirex_tracker_121_milliwatts_and_millijoules_become_watts_and_joules(
    make_bench, open_nvml
):
    """NVML's documents: power and limits in mW, energy in mJ."""
    bench, driver = make_bench(gpus=1), open_nvml()
    gpu_id, gpu = driver.gpus()[0].gpu_id, bench.window.gpu(0)
    gpu.energy_millijoules, gpu.instant_watts = 1_234_567, 123.456
    driver.set_limit_watts(gpu_id, 456.789)
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle) == 456_789
    assert driver.limit_range(gpu_id) == LimitRange(200.0, 700.0, 700.0)
    assert driver.energy_joules(gpu_id).joules == 1234.567
    assert driver.power_watts(gpu_id).watts == 123.456


def test_bug_34_amdsmi_38_a_counter_that_stands_still_under_power_is_seen(make_bench, open_nvml):
    bench, driver = make_bench(gpus=1), open_nvml()
    gpu_id, gpu = driver.gpus()[0].gpu_id, bench.window.gpu(0)
    bench.work(0, "pretrain")
    bench.after(2.0)
    frozen = driver.energy_joules(gpu_id).joules
    samples = [s._replace(counter_joules=frozen) for s in sampled(bench, driver, gpu_id)]
    energy = device_energy(samples, 0.0, 20.0)
    assert Flag.COUNTER_STUCK in energy.flags
    assert energy.joules == pytest.approx(20.0 * gpu.true_watts, rel=0.06)


def test_bug_37_nvsentinel_155_a_gpu_that_is_gone_without_a_word_is_found_by_asking(
    make_bench, open_nvml
):
    bench, driver = make_bench(), open_nvml()
    gone, there = (gpu.gpu_id for gpu in driver.gpus())
    bench.window.gpu(0).lost = 1
    with pytest.raises(DeviceLost):
        driver.power_watts(gone)
    assert [gpu.gpu_id for gpu in driver.gpus()] == [there]
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetHandleByIndex(0)


def test_bug_37_ray_needs_no_amd_library_beside_ours():
    """`import ray` dies where the amdsmi wheel is and ROCm is not: we bring no such wheel."""
    code = "import importlib.util as u, json; print(json.dumps(u.find_spec('amdsmi') is None))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) is True


def test_a_part_time_sensor_reads_a_job_in_step_with_it_wrong_and_the_counter_right(
    make_bench, open_nvml
):
    """arXiv 2312.02741: a quarter of the time is sampled, so a period of 100 ms is invisible."""
    bench, driver = make_bench(gpus=1), open_nvml()
    gpu_id, gpu = driver.gpus()[0].gpu_id, bench.window.gpu(0)
    bench.work(0, "finetune")
    bench.after(2.0)
    gpu.part_time, gpu.ripple_watts = 1, 100.0
    shares = {}
    for period in (0.1, 0.73):
        gpu.ripple_seconds = period
        samples = sampled(bench, driver, gpu_id)
        mean = sum(sample.watts for sample in samples) / len(samples)
        shares[period] = abs(mean / gpu.power_gain - gpu.true_watts) / 100.0
    assert shares[0.1] > 0.9, "every sample falls on the same side of the wave"
    assert shares[0.73] < 0.1
    energy = device_energy(samples, 0.0, 20.0)
    assert energy.joules / gpu.energy_gain == pytest.approx(20.0 * gpu.true_watts, rel=0.02)


def test_a_library_that_lacks_a_call_degrades_that_feature_alone(make_bench, library):
    """NVML_ERROR_FUNCTION_NOT_FOUND (13): an older driver under a newer client."""
    make_bench(gpus=1)

    class Older:
        def __getattr__(self, name):
            if name == "nvmlDeviceGetCurrentClocksEventReasons":
                raise AttributeError(name)
            return getattr(pynvml, name)

    from gridaware.clock import SystemClock
    from gridaware.devices.nvml import NvmlDriver

    open_driver({"library": str(library)})
    driver = NvmlDriver(Older(), SystemClock())
    driver.open()
    try:
        assert driver.cap_binds(driver.gpus()[0].gpu_id) is False, "by the older name of the call"
    finally:
        driver.close()
