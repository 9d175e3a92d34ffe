"""The simulated driver honours faults as a real one shows them."""

import math
from datetime import UTC, datetime

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import (
    ConfigError,
    DeviceHung,
    DeviceLost,
    DeviceNoPermission,
    DeviceNotSupported,
    DeviceOutOfRange,
    DeviceResetRequired,
    DriverGone,
    Unavailable,
)
from gridaware.domain.reading import Boundary, Method
from gridaware.sim.driver import SimDriver, open_driver
from gridaware.sim.meter import SimMeter
from gridaware.sim.site import NodeSpec

CLOCK = ManualClock(datetime(2026, 3, 1, tzinfo=UTC), boot_seconds=0.0)


@pytest.fixture
def world(make_world):
    return make_world(NodeSpec("a100-400", 2), NodeSpec("v100-250", 3))


@pytest.fixture
def driver(world):
    driver = SimDriver(lambda: world.window, 0, CLOCK, wait=None)
    driver.open()
    return driver


def test_a_node_has_its_own_gpus_and_no_others(world, driver):
    second = SimDriver(lambda: world.window, 1, CLOCK, wait=None)
    second.open()
    ids = [gpu.gpu_id for gpu in driver.gpus()]
    assert ids == [world.gpu(which).uuid.decode() for which in (0, 1)]
    assert len(second.gpus()) == 3
    assert not set(ids) & {gpu.gpu_id for gpu in second.gpus()}


def test_a_limit_is_read_back_at_once_and_followed_by_the_silicon(world, driver):
    world.work(0, "pretrain")
    gpu_id = driver.gpus()[0].gpu_id
    driver.set_limit_watts(gpu_id, 250.0)
    assert driver.enforced_limit_watts(gpu_id) == 250.0
    world.after(2.0)
    reading = driver.power_watts(gpu_id)
    assert reading.watts == pytest.approx(world.gpu(0).true_watts, rel=0.06)
    assert (reading.method, reading.boundary) == (Method.INSTANT, Boundary.GPU)
    assert driver.cap_binds(gpu_id) is True
    assert driver.processes(gpu_id) == (4711,)


@pytest.mark.parametrize("watts", [99.9, 400.1, 0.0, -1.0, math.nan, math.inf])
def test_a_limit_outside_the_range_is_refused_and_never_clamped(world, driver, watts):
    with pytest.raises(DeviceOutOfRange):
        driver.set_limit_watts(driver.gpus()[0].gpu_id, watts)
    assert world.gpu(0).requested_watts == 400.0


def test_the_least_limiter_is_enforced(world, driver):
    gpu_id = driver.gpus()[0].gpu_id
    world.gpu(0).out_of_band_watts = 300.0
    assert driver.requested_limit_watts(gpu_id) == 400.0
    assert driver.enforced_limit_watts(gpu_id) == 300.0


def test_without_permission_nothing_changes(world, driver):
    gpu_id = driver.gpus()[0].gpu_id
    world.gpu(0).permission_denied = 1
    assert driver.can_set(gpu_id) is False
    with pytest.raises(DeviceNoPermission):
        driver.set_limit_watts(gpu_id, 300.0)
    assert world.gpu(0).requested_watts == 400.0


def test_one_lost_gpu_leaves_the_other_alone(world, driver):
    lost, other = (gpu.gpu_id for gpu in driver.gpus())
    world.work(0, "pretrain")
    world.after(2.0)
    world.gpu(0).lost = 1
    world.after(2.0)
    with pytest.raises(DeviceLost):
        driver.power_watts(lost)
    assert [gpu.gpu_id for gpu in driver.gpus()] == [other]
    assert driver.enforced_limit_watts(other) == 400.0
    assert world.gpu(0).throughput == 0.0


def test_an_injected_code_becomes_its_error(world, driver):
    gpu_id = driver.gpus()[0].gpu_id
    world.gpu(0).error_code = 16
    with pytest.raises(DeviceResetRequired):
        driver.power_watts(gpu_id)


def test_a_call_that_never_returns_is_a_hang_in_the_seeded_world(world, driver):
    gpu_id = driver.gpus()[0].gpu_id
    world.gpu(0).hang_seconds = math.inf
    with pytest.raises(DeviceHung):
        driver.power_watts(gpu_id)


def test_calls_take_the_time_they_are_told_to(world):
    waits = []
    driver = SimDriver(lambda: world.window, 0, CLOCK, call_seconds=0.001, wait=waits.append)
    driver.open()
    gpu_id = driver.gpus()[0].gpu_id
    driver.set_limit_watts(gpu_id, 300.0)
    assert waits == [0.001, 0.001]
    world.gpu(0).hang_seconds = 0.12
    driver.power_watts(gpu_id)
    assert sum(waits[2:]) == pytest.approx(0.121)


def test_after_a_reload_the_driver_is_gone_until_it_is_opened_again(world, driver):
    epoch, gpu_id = driver.epoch(), driver.gpus()[0].gpu_id
    counted = driver.energy_joules(gpu_id)
    world.window.node(0).reload_requests += 1
    world.after(1.0)
    with pytest.raises(DriverGone):
        driver.power_watts(gpu_id)
    driver.open()
    assert driver.epoch() != epoch
    assert driver.energy_joules(gpu_id).epoch != counted.epoch


def test_pascal_has_no_energy_counter(make_world):
    world = make_world(NodeSpec("p100-250", 1))
    driver = SimDriver(lambda: world.window, 0, CLOCK, wait=None)
    driver.open()
    gpu_id = driver.gpus()[0].gpu_id
    with pytest.raises(DeviceNotSupported):
        driver.energy_joules(gpu_id)
    assert driver.power_watts(gpu_id).watts > 0


def test_the_order_may_change_and_identity_stays(world):
    first, second = world.gpu(0), world.gpu(1)
    first.index, second.index = 1, 0
    driver = SimDriver(lambda: world.window, 0, CLOCK, wait=None)
    driver.open()
    assert [gpu.gpu_id for gpu in driver.gpus()] == [second.uuid.decode(), first.uuid.decode()]


def test_a_name_that_is_no_text_is_only_decoration(world, driver):
    world.gpu(0).model = b"\xff\xfeNVIDIA"
    assert "NVIDIA" in driver.gpus()[0].model


def test_options_are_checked(tmp_path):
    with pytest.raises(ConfigError):
        open_driver({})
    with pytest.raises(ConfigError):
        open_driver({"window": "w", "gpu": "1"})
    with pytest.raises(DriverGone):
        open_driver({"window": str(tmp_path / "none")}).open()


def test_the_meter_reads_the_site_and_goes_silent_when_told(world):
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC), boot_seconds=world.plant.now_seconds)
    meter = SimMeter(world.window, clock)
    power, energy = meter.read()
    assert power.watts == pytest.approx(world.window.header.true_site_watts, rel=0.004)
    assert (power.boundary, power.method) == (Boundary.SITE, Method.METER)
    assert energy is not None
    world.window.header.meter_fault = 1
    with pytest.raises(Unavailable):
        meter.read()
    world.window.header.meter_fault = 0
    clock.advance(10.0)  # the plant stands still
    with pytest.raises(Unavailable):
        meter.read()
