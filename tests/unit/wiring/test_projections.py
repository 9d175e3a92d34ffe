"""What people read of the state: no more than is true of it now."""

from datetime import UTC, datetime

import pytest

from gridaware.control.state import JobTrack, NodeTrack, State
from gridaware.domain.fleet import Gpu, LimitRange, Node
from gridaware.domain.job import Job, JobSpec, JobState
from gridaware.domain.lease import Lease
from gridaware.domain.wire import GpuResult, LockHeld
from gridaware.wiring.projections import project

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def state_with(job_state: JobState) -> State:
    spec = JobSpec("j", "python train.py", 1)
    track = JobTrack(Job(spec, job_state, "Started", NOON, NOON))
    track.plan_reason, track.stopping = "WaitsForHead", "ada"
    track.draw_watts = 437.0
    return State(jobs={"j": track}, alarms={"unresolved-watts/": 1.0, "node-lost/gpu-1": 2.0})


@pytest.mark.parametrize("ended", [JobState.FAILED, JobState.CANCELLED, JobState.SUCCEEDED])
def test_a_job_that_has_ended_waits_for_nothing(ended: JobState) -> None:
    _, body = project(state_with(ended), "job", "j", NOON)
    assert (body["plan_reason"], body["plan_why"], body["stopping_by"]) == (None, None, None)


def test_a_job_that_is_there_shows_its_plan_and_who_stops_it() -> None:
    _, body = project(state_with(JobState.STARTING), "job", "j", NOON)
    assert (body["plan_reason"], body["stopping_by"]) == ("WaitsForHead", "ada")
    assert body["plan_why"].startswith("waits behind a job")


@pytest.mark.parametrize(
    ("job_state", "watts"),
    [(JobState.RUNNING, 437.0), (JobState.PAUSING, 437.0), (JobState.PAUSED, 0.0)],
)
def test_a_job_that_has_left_its_gpus_draws_nothing(job_state: JobState, watts: float) -> None:
    _, body = project(state_with(job_state), "job", "j", NOON)
    assert body["draw_watts"] == watts


def test_an_alarm_of_the_whole_site_has_no_subject() -> None:
    _, body = project(state_with(JobState.STARTING), "status", "site", NOON)
    assert body["alarms"] == ["node-lost/gpu-1", "unresolved-watts"]


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (None, (1000.0, None, None)),
        (LockHeld(1000.0, "set"), (1000.0, "set", None)),
        (LockHeld(1000.0, "kept", 990.0), (1000.0, "kept", 990.0)),
        (LockHeld(1000.0, "device-hung"), (1000.0, "device-hung", None)),
    ],
)
def test_a_clock_lock_is_shown_with_what_is_known_of_it(result, shown) -> None:
    gpu = Gpu("g", 0, "m", LimitRange(200.0, 700.0, 700.0), 700.0)
    lease = Lease("l", (("g", 300.0),), 60.0, clocks_mhz=(("g", 1000.0),))
    track = NodeTrack(Node("n", "b", "e", (gpu,)), lease)
    track.results["g"] = GpuResult("g", 300.0, 300.0, lock=result)
    state = State(nodes={"n": track})
    _, body = project(state, "node", "n", NOON)
    (told,) = body["gpus"]
    assert (told["asked_clock_mhz"], told["clock_lock"], told["clock_mhz"]) == shown
    track.lease = Lease("l2", (("g", 300.0),), 60.0)
    _, body = project(state, "node", "n", NOON)
    (told,) = body["gpus"]
    assert (told["asked_clock_mhz"], told["clock_lock"]) == (None, None), "no lock is asked"
