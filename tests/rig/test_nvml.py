"""The NVML driver over the real nvidia-ml-py, on the virtual library."""

import math
import os
import subprocess
import sys
import time

import pytest

from gridaware.devices.nvml import open_driver
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceLost,
    DeviceNotSupported,
    DeviceOutOfRange,
    DriverGone,
    Unavailable,
)
from gridaware.domain.reading import Boundary, Method, Quality

pytestmark = pytest.mark.rig


def test_every_gpu_is_known_by_its_uuid_with_its_limits(make_site, open_nvml):
    site = make_site(gpus=3)
    driver = open_nvml()
    gpus = driver.gpus()
    assert [gpu.gpu_id for gpu in gpus] == [site.window.gpu(w).uuid.decode() for w in range(3)]
    assert [gpu.index for gpu in gpus] == [0, 1, 2]
    assert gpus[0].model == "NVIDIA A100-SXM4-40GB"
    limits = driver.limit_range(gpus[0].gpu_id)
    assert (limits.least_watts, limits.greatest_watts, limits.default_watts) == (100, 400, 400)
    assert driver.can_set(gpus[0].gpu_id) is True
    assert driver.boundary == "gpu"


def test_a_cap_set_through_nvml_slows_a_job_and_shows_in_every_reading(
    make_site, open_nvml, make_job, eventually
):
    site = make_site()
    driver = open_nvml()
    gpu_id, truth = driver.gpus()[0].gpu_id, site.window.gpu(0)
    job = make_job(site, "pretrain", "0")
    eventually(lambda: truth.true_watts > 350)
    assert driver.cap_binds(gpu_id) is True  # this class would draw more than 400 W
    driver.set_limit_watts(gpu_id, 200.0)
    assert driver.requested_limit_watts(gpu_id) == 200.0
    assert driver.enforced_limit_watts(gpu_id) == 200.0
    eventually(lambda: truth.true_watts < 200)
    time.sleep(0.3)
    reading = driver.power_watts(gpu_id)
    assert (reading.method, reading.boundary) == (Method.INSTANT, Boundary.GPU)
    assert reading.watts == pytest.approx(truth.true_watts, rel=0.065)
    assert driver.processes(gpu_id) == (job.pid,)
    assert driver.processes(driver.gpus()[1].gpu_id) == ()
    for _ in range(20):
        job.stdout.readline()
    seconds = [float(job.stdout.readline()) for _ in range(10)]
    # The fit: an A100 pre-trains at 0.66 of its rate with half its power.
    assert sum(seconds) / 10 == pytest.approx(0.05 / 0.66, rel=0.06)


def test_the_energy_counter_is_the_plants_energy_times_its_gain(make_site, open_nvml, make_job):
    site = make_site()
    driver = open_nvml()
    gpu_id, truth = driver.gpus()[0].gpu_id, site.window.gpu(0)
    make_job(site, "finetune", "0")
    begin, true_begin = driver.energy_joules(gpu_id), truth.true_joules
    time.sleep(1.5)
    end, true_end = driver.energy_joules(gpu_id), truth.true_joules
    # Both ends may be one refresh (100 ms) old.
    counted = (end.joules - begin.joules) / truth.energy_gain
    assert counted == pytest.approx(true_end - true_begin, abs=2 * 0.1 * 400)
    assert end.epoch == begin.epoch


def test_a_limit_outside_the_constraints_is_refused(make_site, open_nvml):
    make_site()
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    for watts in (99.0, 401.0, math.nan):
        with pytest.raises(DeviceOutOfRange):
            driver.set_limit_watts(gpu_id, watts)
    assert driver.requested_limit_watts(gpu_id) == 400.0


def test_the_library_itself_refuses_and_never_clamps(make_site, open_nvml):
    import pynvml

    site = make_site()
    open_nvml()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for milliwatts in (99_999, 400_001):
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, milliwatts)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 123_456)
    assert site.window.gpu(0).requested_watts == 123.456


def test_a_foreign_lower_limit_is_seen_as_enforced(make_site, open_nvml):
    site = make_site()
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    site.window.gpu(0).out_of_band_watts = 250.0
    assert driver.requested_limit_watts(gpu_id) == 400.0
    assert driver.enforced_limit_watts(gpu_id) == 250.0


def test_without_permission_can_set_says_no_and_changes_nothing(make_site, open_nvml):
    site = make_site()
    driver = open_nvml()
    site.window.gpu(1).permission_denied = 1
    first, second = (gpu.gpu_id for gpu in driver.gpus())
    site.window.gpu(0).requested_watts = 333.0
    assert (driver.can_set(first), driver.can_set(second)) == (True, False)
    assert site.window.gpu(0).requested_watts == 333.0


def test_one_lost_gpu_leaves_the_others_alone(make_site, open_nvml):
    site = make_site(gpus=3)
    driver = open_nvml()
    ids = [gpu.gpu_id for gpu in driver.gpus()]
    site.window.gpu(1).lost = 1
    with pytest.raises(DeviceLost):
        driver.power_watts(ids[1])
    assert [gpu.gpu_id for gpu in driver.gpus()] == [ids[0], ids[2]]
    assert driver.power_watts(ids[2]).watts > 0


def test_one_gpu_with_unknown_errors_is_not_a_gone_driver_but_all_of_them_are(make_site, open_nvml):
    site = make_site()
    driver = open_nvml()
    first, second = (gpu.gpu_id for gpu in driver.gpus())
    site.window.gpu(0).error_code = 999
    for _ in range(3):
        with pytest.raises(DeviceError) as one:
            driver.power_watts(first)
        assert not isinstance(one.value, DriverGone)
    assert driver.power_watts(second).watts > 0
    site.window.gpu(1).error_code = 999
    with pytest.raises(DeviceError):
        driver.power_watts(second)
    with pytest.raises(DriverGone):
        driver.power_watts(second)


def test_a_reload_of_the_driver_is_gone_and_then_a_new_counter(make_site, open_nvml, eventually):
    site = make_site()
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    site.window.gpu(0).persistence = 0
    driver.set_limit_watts(gpu_id, 250.0)
    eventually(lambda: driver.energy_joules(gpu_id).joules > 10)
    before = driver.energy_joules(gpu_id)
    site.window.node(0).reload_requests += 1
    eventually(lambda: site.window.node(0).driver_epoch == 2)
    with pytest.raises(DriverGone):
        driver.power_watts(gpu_id)
    driver.open()
    assert driver.enforced_limit_watts(gpu_id) == 400.0
    assert driver.energy_joules(gpu_id).joules < before.joules


def test_a_counter_that_falls_begins_a_new_epoch(still_site, open_nvml):
    driver, gpu = open_nvml(), still_site.window.gpu(0)
    gpu_id = driver.gpus()[0].gpu_id
    gpu.energy_millijoules = 10**9
    before = driver.energy_joules(gpu_id)
    gpu.energy_millijoules = 5_500
    after = driver.energy_joules(gpu_id)
    assert (before.joules, after.joules) == (1e6, 5.5)
    assert after.epoch != before.epoch
    assert driver.energy_joules(gpu_id).epoch == after.epoch


def test_a_gpu_without_field_186_gives_the_average_and_says_so(make_site, open_nvml):
    site = make_site("h100-700", 1)
    site.window.gpu(0).instant_unsupported = 1
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    assert driver.power_watts(gpu_id).method is Method.AVERAGED
    site.window.gpu(0).instant_unsupported = 0  # asked once, not again
    assert driver.power_watts(gpu_id).method is Method.AVERAGED


def test_a_pascal_has_power_and_no_energy(make_site, open_nvml):
    make_site("p100-250", 1)
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    with pytest.raises(DeviceNotSupported):
        driver.energy_joules(gpu_id)
    assert driver.power_watts(gpu_id).watts > 0


def test_a_module_is_read_and_set_at_module_scope_and_labelled(make_site, open_nvml):
    site = make_site("h100-700", 1)
    site.window.gpu(0).module_scope = 1
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    assert driver.boundary == "module"
    assert driver.power_watts(gpu_id).boundary is Boundary.MODULE
    assert driver.can_set(gpu_id) is True
    driver.set_limit_watts(gpu_id, 500.0)
    assert driver.requested_limit_watts(gpu_id) == 500.0
    assert driver.enforced_limit_watts(gpu_id) == 500.0
    site.window.gpu(0).permission_denied = 1
    assert driver.can_set(gpu_id) is False


@pytest.mark.parametrize("garbage_watts", [0.0, 0.0004, 4e6])
def test_an_implausible_reading_holds_the_last_good_one(still_site, open_nvml, garbage_watts):
    driver, gpu = open_nvml(), still_site.window.gpu(0)
    gpu_id = driver.gpus()[0].gpu_id
    good = driver.power_watts(gpu_id)
    gpu.instant_watts = garbage_watts
    held = driver.power_watts(gpu_id)
    assert held.quality is Quality.HELD
    assert (held.watts, held.at) == (good.watts, good.at)
    gpu.instant_watts = 77.0
    assert driver.power_watts(gpu_id).quality is Quality.GOOD


def test_an_implausible_first_reading_is_an_error_and_not_zero_watts(still_site, open_nvml):
    still_site.window.gpu(0).instant_watts = 0.0
    driver = open_nvml()
    with pytest.raises(DeviceError):
        driver.power_watts(driver.gpus()[0].gpu_id)


def test_a_frozen_call_takes_its_time_and_only_on_its_gpu(make_site, open_nvml):
    site = make_site()
    driver = open_nvml()
    frozen, other = (gpu.gpu_id for gpu in driver.gpus())
    site.window.gpu(0).hang_seconds = 0.3
    begin = time.monotonic()  # noqa: TID251
    driver.power_watts(frozen)
    middle = time.monotonic()  # noqa: TID251
    driver.power_watts(other)
    assert middle - begin >= 0.3
    assert time.monotonic() - middle < middle - begin  # noqa: TID251


def test_a_name_that_is_no_text_is_only_decoration(make_site, open_nvml):
    site = make_site()
    site.window.gpu(0).model = b"\xff\xfe NVIDIA"
    assert "NVIDIA" in open_nvml().gpus()[0].model


def test_the_order_may_change_between_starts_and_identity_stays(make_site, open_nvml):
    site = make_site()
    first, second = site.window.gpu(0), site.window.gpu(1)
    first.index, second.index = 1, 0
    driver = open_nvml()
    assert [gpu.gpu_id for gpu in driver.gpus()] == [second.uuid.decode(), first.uuid.decode()]
    driver.set_limit_watts(second.uuid.decode(), 210.0)
    assert (first.requested_watts, second.requested_watts) == (400.0, 210.0)


def test_after_a_fork_the_child_initialises_anew(make_site, open_nvml):
    site = make_site()
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        code = 1
        try:
            driver.set_limit_watts(gpu_id, 222.0)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert driver.enforced_limit_watts(gpu_id) == 222.0
    assert site.window.gpu(0).requested_watts == 222.0


def test_a_shutdown_underneath_is_survived(make_site, open_nvml):
    import pynvml

    make_site()
    driver = open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    assert driver.power_watts(gpu_id).watts > 0


def test_another_nvml_client_sees_our_cap(make_site, open_nvml):
    site = make_site()
    driver = open_nvml()
    driver.set_limit_watts(driver.gpus()[1].gpu_id, 275.0)
    code = (
        "from pynvml import *; nvmlInit(); h = nvmlDeviceGetHandleByIndex(1)\n"
        "print(nvmlDeviceGetEnforcedPowerLimit(h), nvmlDeviceGetPciInfo(h).busId,"
        " nvmlDeviceGetMemoryInfo(h).total >> 30, nvmlDeviceGetArchitecture(h))"
    )
    witness = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **site.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert witness.stdout.split() == ["275000", "00000000:11:00.0", "40", "7"]


def test_a_library_that_is_absent_or_relative_is_refused(tmp_path):
    with pytest.raises(Unavailable):
        open_driver({"library": str(tmp_path / "libnvidia-ml.so.1")})
    with pytest.raises(ConfigError):
        open_driver({"library": "libnvidia-ml.so.1"})
    with pytest.raises(ConfigError):
        open_driver({"path": "/usr/lib"})


def test_without_a_plant_the_driver_is_not_loaded(library, monkeypatch):
    monkeypatch.delenv("GRIDAWARE_SIM_WINDOW", raising=False)
    driver = open_driver({"library": str(library)})
    with pytest.raises(DriverGone):
        driver.open()
