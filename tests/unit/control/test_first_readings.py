"""Right after a restart little has been heard: that must not be taken for little being drawn."""

from datetime import UTC, datetime

import pytest

from gridaware.control.observe import Observer
from gridaware.control.stimuli import JobSubmitted, Started
from gridaware.domain.job import JobSpec
from gridaware.domain.moment import Moment
from gridaware.domain.reading import Boundary, Method, Quality, Reading
from gridaware.domain.target import Overhead
from gridaware.domain.wire import GpuSample, Sample, SampleBatch

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def batch(watts):
    gpu = GpuSample("GPU-1", watts, None, 400.0, 400.0, "good", None, 0, False)
    return SampleBatch("node-1", "drv", (Sample(NOON, (gpu,)),))


def test_a_sum_of_no_gpus_is_not_a_good_reading():
    observer = Observer()
    meter = observer.observe(Moment(10.0, NOON), Overhead(100.0, 1.1)).meter
    assert (meter.watts, meter.quality) == (100.0, Quality.MISSING)


def test_a_sum_that_leaves_out_a_node_of_the_site_is_no_reading():
    observer = Observer()
    observer.on_samples(batch(300.0), 10.0)
    meter = observer.observe(Moment(10.1, NOON), Overhead(), {"node-1", "node-2"}).meter
    assert meter.quality is Quality.MISSING


def test_a_site_without_a_meter_reads_the_sum_of_its_gpus():
    observer = Observer()
    observer.on_samples(batch(300.0), 10.0)
    meter = observer.observe(Moment(10.1, NOON), Overhead(100.0, 1.1)).meter
    assert (meter.watts, meter.quality) == (pytest.approx(430.0), Quality.GOOD)


@pytest.mark.parametrize("heard", ["no node", "one node of two"])
def test_limits_are_not_raised_in_an_event_because_a_new_controller_hears_little(bench, heard):
    bench.start_job()
    bench.post(bench.signal(depth=0.3))
    bench.ticks(8)
    held = dict(bench.state.nodes["n1"].limits_watts)
    bias = bench.state.tracker.bias
    assert held
    lease = bench.state.nodes["n1"].lease
    bench.post(Started(2))
    bench.hello(1, lease=lease, lease_left_seconds=50.0)
    seen = {"no node": (), "one node of two": None}[heard]
    for _ in range(3):
        wall = bench.now().wall
        few = Reading(60.0, wall, Boundary.SITE, Method.DEVICE_SUM, Quality.MISSING)
        over = {"meter": few} if seen is None else {"meter": few, "nodes": seen}
        if seen is None:  # node 2 has not reported
            bench.watts = {g: w for g, w in bench.watts.items() if g.startswith("g1")}
        bench.tick(**over)
    assert bench.state.tracker.bias == pytest.approx(bias, abs=0.01)
    for gpu_id, watts in bench.state.nodes["n1"].limits_watts.items():
        assert watts <= held[gpu_id] * 1.02
    assert bench.state.meter_watts > 500.0


def test_a_cluster_that_has_not_counted_its_gpus_yet_refuses_no_job(bench):
    bench.tick(ray_total_gpus=0.0, ray_free_gpus=0.0)
    answer = bench.answer(JobSubmitted(JobSpec("early", "x", 2), "u"))
    assert answer.disposition == "accepted"
