"""A smoothing floor delays credit: watts count until they are gone, and a pause is given longer."""

import pytest

from gridaware.control.stimuli import JobCommanded
from gridaware.domain.fleet import BoardState, Gpu, LimitRange, Smoothing
from gridaware.domain.job import JobState, Tier
from gridaware.domain.wire import CheckpointReport, JobGone

RANGE = LimitRange(100.0, 400.0, 400.0)
FLOOR = Smoothing(250.0, 10.0, 10.0, 10.0)
"""From 400 W to 60 W: 10 s of hysteresis and 34 s of ramp."""


def boards(smoothing: Smoothing | None) -> tuple[Gpu, ...]:
    state = BoardState(smoothing=smoothing)
    return tuple(Gpu(f"g1{i}", i, "NVIDIA A100", RANGE, 400.0, board=state) for i in range(4))


def leave(bench, job_id: str, floor_watts: float) -> None:
    """It has saved and left; what its boards draw stays at a floor."""
    track = bench.state.jobs[job_id]
    request, attempt, gpu_ids = track.job.request_id, track.job.attempt, track.job.gpu_ids
    bench.post(CheckpointReport("n1", request, job_id, attempt, "saved", 9, "/p"))
    bench.leave(job_id)
    for gpu_id in gpu_ids:
        bench.watts[gpu_id] = bench.stubborn[gpu_id] = floor_watts
    bench.post(JobGone("n1", job_id, attempt, 0, 7))
    bench.post(CheckpointReport("n1", request, job_id, attempt, "left", 9, "/p"))


@pytest.mark.parametrize("smoothing", [FLOOR, None], ids=["smoothed", "plain"])
def test_watts_of_a_job_that_left_are_credited_at_once_only_where_nothing_smooths(bench, smoothing):
    bench.hello(1, gpus=boards(smoothing))
    bench.start_job("leaves", Tier.PREEMPTIBLE, gpus=2)
    bench.start_job("stays", Tier.FLEX_3, gpus=2, pausable=False)
    bench.post(bench.signal(depth=0.45, seconds=600.0))
    bench.ticks(4)
    assert bench.state.jobs["leaves"].job.state is JobState.PAUSING
    stays = bench.state.jobs["stays"].job.gpu_ids
    before = bench.state.nodes["n1"].limits_watts[stays[0]]
    leave(bench, "leaves", 250.0)
    bench.tick(0.1)
    after = bench.state.nodes["n1"].limits_watts.get(stays[0], 400.0)
    if smoothing is None:
        assert after > before + 20.0, "the watts are as good as gone: the other is relaxed"
    else:
        assert after < before + 10.0, "the floor is still drawn: nothing is given back yet"


@pytest.mark.parametrize(("smoothing", "paused"), [(FLOOR, True), (None, False)])
def test_a_pause_on_smoothed_boards_is_given_the_time_of_their_fall(bench, smoothing, paused):
    bench.hello(1, gpus=boards(smoothing))
    bench.start_job("j", Tier.PREEMPTIBLE, checkpoint_grace_seconds=5.0)
    bench.post(JobCommanded("j", "pause", "bo"))
    leave(bench, "j", 250.0)
    bench.ticks(40)  # beyond the grace of 5 and 15 s
    assert (bench.state.jobs["j"].job.state is JobState.PAUSING) is paused
    for gpu_id in bench.state.jobs["j"].job.gpu_ids:
        bench.watts[gpu_id] = bench.stubborn[gpu_id] = 60.0
    bench.ticks(2)
    assert (bench.state.jobs["j"].job.state is JobState.PAUSED) is paused
