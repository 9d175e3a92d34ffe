"""A job that was paused for an event comes back by the ramp, from its first second on."""

import pytest

from gridaware.domain.job import JobState, Tier
from gridaware.domain.target import Ramp
from gridaware.domain.wire import CheckpointReport

UP_WATTS_PER_MINUTE = 3000.0


def test_the_gpus_that_it_had_are_capped_before_it_is_back(make_bench) -> None:
    bench = make_bench(ramp=Ramp(up_watts_per_minute=UP_WATTS_PER_MINUTE))
    bench.hello(1)
    bench.hello(2)
    bench.ticks(10)
    bench.start_job("gone", Tier.PREEMPTIBLE)
    bench.post(bench.signal(depth=0.6, seconds=60.0))
    bench.ticks(2)
    request = bench.state.jobs["gone"].job.request_id
    for outcome in ("saved", "left"):
        bench.post(CheckpointReport("n1", request, "gone", 1, outcome, 9, "/c"))
    bench.leave("gone")
    bench.ticks(3)
    assert bench.state.jobs["gone"].job.state is JobState.PAUSED
    for _ in range(120):
        bench.tick()
        if bench.state.jobs["gone"].job.state is JobState.RESUMING:
            break
    bench.ticks(2)
    assert bench.state.jobs["gone"].job.state is JobState.RESUMING
    caps = bench.state.nodes["n1"].limits_watts
    assert set(caps) == {"g10", "g11", "g12", "g13"}
    # All four together may draw what the ramp has reached, less what the idle four draw.
    assert sum(caps.values()) <= bench.state.target_watts - 4 * 60.0


@pytest.mark.parametrize("late_seconds", [1.3, 4.0, 20.0])
def test_a_plan_that_is_late_rises_by_one_second_of_the_ramp(make_bench, late_seconds) -> None:
    """Whoever was away does not make up for it in one step."""
    bench = make_bench(ramp=Ramp(up_watts_per_minute=600.0))
    bench.start_job("j")
    bench.post(bench.signal(depth=0.3, seconds=30.0))
    bench.ticks(32)
    before = bench.state.target_watts
    bench.tick()
    assert bench.state.target_watts == pytest.approx(before + 10.0)
    assert bench.state.meter_watts < bench.state.target_watts
    limits = sum(bench.state.nodes["n1"].limits_watts.values())
    bench.tick(late_seconds)
    assert bench.state.target_watts == pytest.approx(before + 20.0)
    assert sum(bench.state.nodes["n1"].limits_watts.values()) < limits + 2 * 10.0
    bench.tick()
    assert bench.state.target_watts == pytest.approx(before + 30.0)
