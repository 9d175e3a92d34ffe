"""The AMD driver, against an imitation of AMD SMI: units, counters, and what is loaded when."""

import subprocess
import sys
import threading

import pytest

from gridaware.devices import amd
from gridaware.devices.amd import AmdDriver
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceHung,
    DeviceNotSupported,
    DriverGone,
    Unavailable,
)
from gridaware.domain.reading import Quality
from gridaware.sim.vendors.amdsmi import AmdSmi


@pytest.fixture
def amdsmi(window):
    return AmdSmi(window)


@pytest.fixture
def driver(amdsmi, clock, tmp_path):
    driver = AmdDriver(amdsmi, clock, module=tmp_path / "none")
    driver.open()
    return driver


@pytest.fixture
def gpu_id(driver):
    return driver.gpus()[0].gpu_id


def test_limits_are_microwatts_there_and_watts_here(driver, gpu_id, amdsmi, monkeypatch):
    asked = []
    monkeypatch.setattr(amdsmi, "amdsmi_set_power_cap", lambda *a: asked.append(a[1:]))
    driver.set_limit_watts(gpu_id, 412.6)
    assert asked == [(0, 413_000_000)]


def test_case_33_a_cap_in_watts_is_not_taken_for_microwatts(driver, gpu_id, amdsmi, monkeypatch):
    # The library of a virtualisation host gives watts where a bare one gives microwatts.
    info = {"power_cap": 700, "default_power_cap": 700, "min_power_cap": 0, "max_power_cap": 750}
    monkeypatch.setattr(amdsmi, "amdsmi_get_power_cap_info", lambda _handle: info)
    with pytest.raises(DeviceNotSupported, match="not credible"):
        driver.limit_range(gpu_id)


@pytest.mark.parametrize(("stands", "least"), [(700.0, 225.0), (120.0, 120.0)])
def test_case_35_a_board_that_names_no_least_cap_gets_one(
    driver, gpu_id, amdsmi, monkeypatch, stands, least
):
    # MI300X: 0 to 750 W. A cap near 0 holds nothing or switches the limit off.
    info = {"power_cap": stands, "default_power_cap": 750, "min_power_cap": 0, "max_power_cap": 750}
    microwatts = {name: round(watts * 1e6) for name, watts in info.items()}
    monkeypatch.setattr(amdsmi, "amdsmi_get_power_cap_info", lambda _handle: microwatts)
    assert driver.limit_range(gpu_id).least_watts == pytest.approx(least)


def test_energy_is_ticks_times_their_size_in_microjoules(driver, gpu_id, amdsmi, monkeypatch):
    # AMD documents 15.259 uJ a tick for MI200 and MI300: 1e9 ticks are 15 259 J.
    count = {"energy_accumulator": 10**9, "counter_resolution": 15.259, "timestamp": 0}
    monkeypatch.setattr(amdsmi, "amdsmi_get_energy_count", lambda _handle: count)
    assert driver.energy_joules(gpu_id).joules == pytest.approx(15_259.0)


def test_case_34_a_counter_that_stands_still_while_power_flows_is_not_believed(
    driver, gpu_id, amdsmi, clock
):
    driver.power_watts(gpu_id)
    amdsmi.frozen_ticks = 5_000_000
    driver.energy_joules(gpu_id)
    clock.advance(5.0)
    assert driver.energy_joules(gpu_id).joules == pytest.approx(76.295)
    clock.advance(0.1)
    with pytest.raises(DeviceError) as frozen:
        driver.energy_joules(gpu_id)
    assert frozen.value.code == "energy-frozen"
    amdsmi.frozen_ticks = 6_000_000  # it runs on, and what was drawn meanwhile is lost
    with pytest.raises(DeviceError):
        driver.energy_joules(gpu_id)
    driver.open()
    assert driver.energy_joules(gpu_id).joules == pytest.approx(91.554)


def test_case_34_a_counter_may_stand_still_while_nothing_is_drawn(driver, gpu_id, amdsmi, clock):
    amdsmi.frozen_ticks = 5_000_000
    for _ in range(3):
        clock.advance(10.0)
        assert driver.energy_joules(gpu_id).joules == pytest.approx(76.295)


def test_case_3_a_counter_that_fell_begins_an_epoch_and_never_a_negative_amount(
    driver, gpu_id, amdsmi, clock
):
    before = driver.energy_joules(gpu_id)
    clock.advance(1.0)
    amdsmi.frozen_ticks = 1000
    after = driver.energy_joules(gpu_id)
    assert after.joules == pytest.approx(0.015259)
    assert after.epoch != before.epoch


def test_case_32_power_that_no_gpu_draws_is_replaced_by_the_last_good_value(driver, gpu_id, window):
    good = driver.power_watts(gpu_id)
    window.gpu(0).instant_watts = 3.7e12  # intel/xpumanager#130 showed as much
    held = driver.power_watts(gpu_id)
    assert (held.watts, held.quality) == (good.watts, Quality.HELD)


@pytest.mark.parametrize("value", ["N/A", 0xFFFF, 0xFFFFFFFF, None])
def test_what_amd_smi_writes_for_nothing_is_no_power(driver, gpu_id, amdsmi, monkeypatch, value):
    monkeypatch.setattr(
        amdsmi, "amdsmi_get_power_info", lambda _handle: {"current_socket_power": value}
    )
    with pytest.raises(DeviceNotSupported):
        driver.power_watts(gpu_id)


def test_a_guest_of_a_virtual_machine_is_read_only(driver, gpu_id, amdsmi, monkeypatch):
    def refuse(*_arguments):
        raise amdsmi.AmdSmiLibraryException(2)  # "not supported on virtual machine guest"

    monkeypatch.setattr(amdsmi, "amdsmi_set_power_cap", refuse)
    assert driver.can_set(gpu_id) is False
    assert driver.power_watts(gpu_id).watts > 0


def test_the_second_die_of_a_board_has_no_cap_and_hides_nothing(
    driver, amdsmi, window, monkeypatch
):
    # MI250: the odd die reports no power and takes no cap; both are the even die's.
    tell = amdsmi.amdsmi_get_power_cap_info

    def cap_info(handle):
        if handle.slot.index == 1:
            raise amdsmi.AmdSmiLibraryException(2)
        return tell(handle)

    monkeypatch.setattr(amdsmi, "amdsmi_get_power_cap_info", cap_info)
    first, second = (gpu.gpu_id for gpu in driver.gpus())
    assert driver.limit_range(first).greatest_watts == 700.0
    with pytest.raises(DeviceNotSupported):
        driver.limit_range(second)


def test_case_28_gpus_stand_in_the_order_by_which_jobs_number_them(driver, window):
    first, second = (gpu.gpu_id for gpu in driver.gpus())
    window.gpu(0).index, window.gpu(1).index = 1, 0  # HIP numbers them the other way round
    assert [(gpu.gpu_id, gpu.index) for gpu in driver.gpus()] == [(second, 0), (first, 1)]


def test_a_library_that_does_not_know_hips_order_keeps_its_own(driver, amdsmi, monkeypatch):
    before = [gpu.gpu_id for gpu in driver.gpus()]
    monkeypatch.setattr(amdsmi, "amdsmi_get_gpu_enumeration_info", None)
    assert [gpu.gpu_id for gpu in driver.gpus()] == before


def test_before_rocm_7_2_calls_are_made_one_after_another(window, clock, tmp_path, monkeypatch):
    library = AmdSmi(window, version=(25, 5))
    driver = AmdDriver(library, clock, module=tmp_path / "none")
    driver.open()
    monkeypatch.setattr(amd, "CALL_SECONDS", 0.05)
    inside, leave = threading.Event(), threading.Event()
    first, second = (gpu.gpu_id for gpu in driver.gpus())

    def wait(_handle):
        inside.set()
        leave.wait(10)
        return {}

    monkeypatch.setattr(library, "amdsmi_get_violation_status", wait)
    thread = threading.Thread(target=driver.cap_binds, args=(first,))
    thread.start()
    inside.wait(10)
    with pytest.raises(DeviceHung, match="another call"):
        driver.power_watts(second)
    leave.set()
    thread.join()
    assert driver.power_watts(second).watts > 0


def test_a_kernel_module_that_was_reloaded_is_noticed(amdsmi, clock, tmp_path):
    module = tmp_path / "amdgpu"
    module.mkdir()
    driver = AmdDriver(amdsmi, clock, module=module)
    driver.open()
    gpu_id = driver.gpus()[0].gpu_id
    before = driver.epoch()
    module.rename(tmp_path / "old")
    module.mkdir()
    with pytest.raises(DriverGone):
        driver.power_watts(gpu_id)
    driver.open()
    assert driver.epoch() != before
    assert driver.power_watts(gpu_id).watts > 0


def test_case_37_amdsmi_is_never_imported_where_its_library_is_not(tmp_path):
    # Without libamd_smi.so the wheel's import raises KeyError, and takes `import ray` with it.
    package = tmp_path / "amdsmi"
    package.mkdir()
    (package / "__init__.py").write_text("raise KeyError('libamd_smi.so')")
    program = (
        "import sys; from gridaware.devices import amd\n"
        "from gridaware.domain.errors import Unavailable\n"
        "try: amd.open_driver({'library': '/none/libamd_smi.so'})\n"
        "except Unavailable as error: print(error.code, 'amdsmi' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["amd-library-missing", "False"]


def test_case_37_a_wheel_that_fails_with_a_key_error_is_unavailable(tmp_path, library, monkeypatch):
    package = tmp_path / "amdsmi"
    package.mkdir()
    (package / "__init__.py").write_text("raise KeyError('libamd_smi.so')")
    before = list(sys.path)
    monkeypatch.setenv("ROCM_HOME", "/opt/rocm")  # is set anew, and put back at the end
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    with pytest.raises(Unavailable) as missing:
        amd.open_driver({"library": str(library), "package": str(tmp_path)})
    assert missing.value.code == "amd-client-missing"
    assert sys.path == before


@pytest.mark.parametrize(
    "options", [{"libary": "/a"}, {"library": "libamd_smi.so"}, {"package": "amdsmi"}]
)
def test_options_are_checked(options, library):
    if "package" in options:
        options = {**options, "library": str(library)}
    with pytest.raises(ConfigError) as refused:
        amd.open_driver(options)
    assert refused.value.code == "amd-options"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Any shared library that can be loaded."""
    import ctypes.util
    from pathlib import Path

    found = ctypes.util.find_library("m")
    for folder in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"):
        if found and (Path(folder) / found).exists():
            return Path(folder) / found
    pytest.skip("no shared library was found to stand in for libamd_smi.so")
