"""Samples: a last good value may stand in for a while, and nonsense is not power."""

from datetime import UTC, datetime, timedelta

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.fleet import LimitRange
from gridaware.domain.wire import SampleBatch
from gridaware.node.actions import Device, Inventory, LimitReading
from gridaware.node.childwire import GpuTick, Tick
from gridaware.node.sampling import Sampling

AT = datetime(2026, 3, 1, tzinfo=UTC)


class Jobs:
    def owners(self):
        return {"a": ("job", 2)}

    def managed_pids(self):
        return frozenset({11, 12})


class Node:
    def __init__(self) -> None:
        self.clock = ManualClock(AT)
        self.sent: list[SampleBatch] = []
        self.sampling = Sampling("n0", self.clock, Jobs(), self.sent.append)
        device = Device("a", 0, "m", LimitRange(100.0, 400.0, 400.0), True, 400.0, 400.0)
        self.sampling.found(Inventory("e1", "gpu", (device,)))

    def tick(self, watts=None, *, fresh=True, limits=None, pids=None, hz=1.0):
        gpu = GpuTick("a", fresh, watts, 5.0 if fresh else None, limits, pids, None, 0.0)
        self.sampling.take(Tick(self.clock.boot_seconds(), (gpu,)), sample_hz=hz)
        self.clock.advance(1 / hz)
        return self.sent[-1].samples[-1].gpus[0] if self.sent else None


def test_a_silent_gpu_is_held_for_five_seconds_and_missing_after_them():
    node = Node()
    assert node.tick(250.0).quality == "good"
    seen = [node.tick(fresh=False) for _ in range(7)]
    assert [s.quality for s in seen] == ["held"] * 5 + ["missing"] * 2
    assert [s.power_watts for s in seen] == [250.0] * 5 + [0.0] * 2
    assert seen[-1].energy_joules is None


def test_the_power_of_a_gpu_off_the_bus_is_missing_at_once_and_not_held():
    node = Node()
    node.tick(250.0)
    lost = LimitReading("a", 0, None, None, "device-lost", "DeviceLost")
    assert node.tick(fresh=False, limits=lost).quality == "missing"
    assert node.tick(240.0).quality == "good"


@pytest.mark.parametrize("watts", [-1.0, 601.0, 3.7e12, float("nan")])
def test_implausible_power_is_replaced_by_the_last_good_value_and_marked(watts):
    node = Node()
    node.tick(250.0)
    sample = node.tick(watts)
    assert (sample.power_watts, sample.quality) == (250.0, "suspect")


def test_processes_that_belong_to_no_job_make_a_gpu_unmanaged():
    node = Node()
    assert node.tick(100.0, pids=(11, 12)).unmanaged is False
    assert node.tick(100.0, pids=(11, 4000)).unmanaged is True
    assert node.tick(100.0).unmanaged is True, "until its processes are looked at again"
    assert (node.tick(100.0, pids=()).unmanaged, node.tick(100.0).job_id) == (False, "job")


def test_limits_stay_known_between_their_readings():
    node = Node()
    node.tick(100.0, limits=LimitReading("a", 1, 200.0, 180.0))
    sample = node.tick(100.0)
    assert (sample.requested_watts, sample.enforced_watts) == (200.0, 180.0)


def test_slow_samples_go_at_once_and_fast_ones_in_batches_of_at_most_ten():
    node = Node()
    for _ in range(3):
        node.tick(100.0)
    assert [len(b.samples) for b in node.sent] == [1, 1, 1]
    node.sent.clear()
    for _ in range(100):
        node.tick(100.0, hz=10.0)
    assert {len(b.samples) for b in node.sent} == {5}
    assert node.sent[0].samples[0].at == AT + timedelta(seconds=3)
    node.sent.clear()
    for _ in range(100):
        node.tick(100.0, hz=100.0)
    assert {len(b.samples) for b in node.sent} == {10}
