"""Metering against the plant's own truth: its energy times the gain of the counter that is read."""

import math
import random
from datetime import UTC, datetime

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import DeviceNotSupported, DriverGone
from gridaware.settlement.counter import Flag, PowerSample
from gridaware.settlement.energy import EnergyMethod, device_energy
from gridaware.sim.driver import SimDriver
from gridaware.sim.plant import Plant
from gridaware.sim.site import NodeSpec, PlantSpec, build_window


class Bench:
    """One GPU behind its driver, read ten times a second."""

    def __init__(self, gpu_class="v100-250", workload="bert", seed=1):
        spec = PlantSpec((NodeSpec(gpu_class, 1),))
        self.window = build_window(spec, seed)
        self.plant = Plant(self.window, spec, seed, lives=lambda _pid, _ticks: True)
        self.gpu = self.window.gpu(0)
        self.workload = workload
        self.driver = SimDriver(
            lambda: self.window, 0, ManualClock(datetime(2026, 1, 1, tzinfo=UTC)), wait=None
        )
        self.driver.open()
        self.samples = []
        self.ticks = 0

    def until(self, seconds):
        """Let time pass, sampled all along; then stand exactly there."""
        while self.ticks * 0.1 <= seconds:
            self.plant.advance(max(self.ticks * 0.1, self.plant.now_seconds))
            try:
                self.read(self.ticks * 0.1)
            except DriverGone:
                self.driver.close()
                self.driver.open()
            self.ticks += 1
        self.plant.advance(max(seconds, self.plant.now_seconds))
        return self.gpu.true_joules * self.gpu.energy_gain

    def read(self, at):
        gpu_id = self.gpu.uuid.decode()
        counter, epoch = None, ""
        try:
            energy = self.driver.energy_joules(gpu_id)
            counter, epoch = energy.joules, energy.epoch
        except DeviceNotSupported:
            pass
        watts = self.driver.power_watts(gpu_id).watts
        limit = self.driver.enforced_limit_watts(gpu_id)
        self.samples.append(PowerSample(at, watts, counter, epoch, limit))

    def work(self, start, end):
        """A job from start to end; its true joules."""
        load = self.gpu.load(0)
        before = self.until(start)
        load.claim(self.workload, 1, 1)
        load.until_seconds = math.inf
        after = self.until(end)
        load.leave()
        return after - before


def test_a_minute_is_metered_within_half_a_per_cent():
    """Its cap changes on the way, and it begins and ends between two samples."""
    bench = Bench()
    bench.until(2.0)
    bench.gpu.requested_watts = 150.0
    truth = bench.work(3.337, 64.871)
    bench.until(66.0)
    energy = device_energy(bench.samples, 3.337, 64.871)
    assert energy.joules == pytest.approx(truth, rel=0.005)
    assert energy.method is EnergyMethod.COUNTER
    assert energy.flags == ()


@pytest.mark.parametrize("seed", range(3))
def test_jobs_below_a_second_lie_inside_their_band(seed):
    bench, chance = Bench(seed=seed), random.Random(seed)
    jobs, at = [], 1.0
    for _ in range(12):
        start, end = at, at + chance.uniform(0.03, 0.95)
        jobs.append((start, end, bench.work(start, end)))
        at = end + chance.uniform(0.05, 1.0)
    bench.until(at + 1.0)
    for start, end, truth in jobs:
        energy = device_energy(bench.samples, start, end)
        assert abs(energy.joules - truth) <= energy.band_joules
        assert energy.band_joules < 200.0, "250 W for the ends, no more"


@pytest.mark.parametrize("seed", range(3))
def test_an_epoch_with_a_reset_lies_inside_its_band(seed):
    bench = Bench(seed=seed)
    chance = random.Random(seed)
    bench.gpu.load(0).claim("bert", 1, 1)
    bench.gpu.load(0).until_seconds = math.inf
    start, reload, end = 3.0 + chance.random(), 6.0 + chance.random(), 9.0 + chance.random()
    before = bench.until(start)
    bench.until(reload)
    bench.window.node(0).reload_requests += 1
    truth = bench.until(end) - before
    bench.until(11.0)
    energy = device_energy(bench.samples, start, end)
    assert abs(energy.joules - truth) <= energy.band_joules
    assert energy.resets == 1
    assert Flag.COUNTER_RESET in energy.flags
    assert energy.joules == pytest.approx(truth, rel=0.05)


def test_a_gpu_without_a_counter_is_integrated_up_to_its_sensors_gain():
    """A P100 has no counter; its power sensor's gain is off by up to 5 %."""
    bench = Bench("p100-250", "resnet50")
    truth = bench.work(1.0, 31.0) / bench.gpu.energy_gain * bench.gpu.power_gain
    bench.until(32.0)
    energy = device_energy(bench.samples, 1.0, 31.0)
    assert energy.method is EnergyMethod.INTEGRATED
    assert energy.joules == pytest.approx(truth, rel=0.01)
    assert abs(energy.joules - truth) <= energy.band_joules
