"""Jobs in the machine: commands, pauses and their proof, crashes, retries, and lost words."""

from dataclasses import replace

import pytest

from gridaware.control.instructions import Alarm, SendCheckpoint, StopJob, SubmitJob
from gridaware.control.stimuli import (
    AttemptStatus,
    JobCommanded,
    JobSubmitted,
    RunnerReported,
    Started,
    SubmitFailed,
)
from gridaware.domain.job import JobSpec, JobState, Placement, Tier
from gridaware.domain.reading import JobObservation
from gridaware.domain.wire import CheckpointReport, JobGone, JobProgress, JobRegistered


def job(bench, job_id: str = "j"):
    return bench.state.jobs[job_id].job


def tell(bench, verb: str, job_id: str = "j") -> str:
    answer = bench.answer(JobCommanded(job_id, verb, "bo"))
    return answer.code or answer.disposition


def status(bench, attempt: int, word: str, exit_code: int | None = None, job_id: str = "j"):
    return bench.post(RunnerReported((AttemptStatus(job_id, attempt, word, exit_code, "words"),)))


def report(bench, outcome: str, step: int | None = None, request: str | None = None, **more):
    made = CheckpointReport(
        "n1", request or job(bench).request_id, "j", job(bench).attempt, outcome, step, "/p"
    )
    return bench.post(replace(made, **more))


def pause(bench, step: int = 9, attempt: int = 1) -> None:
    """A user's pause, as it should go."""
    assert tell(bench, "pause") == "accepted"
    report(bench, "saved", step)
    bench.leave("j")
    bench.post(JobGone("n1", "j", attempt, 0, 7))
    report(bench, "left", step)
    status(bench, attempt, "failed", 42)
    bench.tick()


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (JobSpec("big", "x", 9), "job-too-large"),
        (JobSpec("wide", "x", 5), "job-too-large"),
        (JobSpec("spread", "x", 5, placement=Placement.WORKERS), "accepted"),
        (JobSpec("fits", "x", 4), "accepted"),
    ],
)
def test_what_can_never_fit_is_refused(bench, spec: JobSpec, code: str) -> None:
    answer = bench.answer(JobSubmitted(spec, "u"))
    assert (answer.code or answer.disposition) == code


def test_a_job_submitted_twice_is_one_and_a_name_is_taken_once(bench) -> None:
    spec = JobSpec("j", "x", 2)
    assert bench.answer(JobSubmitted(spec, "u")).disposition == "accepted"
    assert bench.answer(JobSubmitted(spec, "u")).disposition == "duplicate"
    assert bench.code(JobSubmitted(replace(spec, gpus=3), "u")) == "job-exists"


def test_commands_fit_the_state_or_are_refused(bench) -> None:
    assert tell(bench, "stop", "none") == "job-unknown"
    bench.post(JobSubmitted(JobSpec("j", "x", 4, Tier.FLEX_1), "u"))
    assert tell(bench, "fly") == "job-verb-unknown"
    assert tell(bench, "pause") == "job-wrong-state"
    assert tell(bench, "hold") == "accepted"
    bench.tick()
    assert job(bench).state is JobState.HELD
    assert tell(bench, "release") == "accepted"
    assert tell(bench, "stop") == "accepted"
    assert job(bench).state is JobState.CANCELLED


def test_a_job_that_does_not_honour_pauses_is_not_asked(bench) -> None:
    bench.start_job(pausable=False)
    assert tell(bench, "pause") == "job-not-pausable"


def test_a_stop_ends_the_attempt_in_the_cluster(bench) -> None:
    bench.start_job()
    tell(bench, "stop")
    assert bench.of(StopJob) == [StopJob("j", 1)]
    status(bench, 1, "stopped")
    assert job(bench).state is JobState.CANCELLED
    status(bench, 1, "failed")  # said late, changes nothing
    assert job(bench).state is JobState.CANCELLED


def test_a_pause_counts_only_once_it_is_proved(bench) -> None:
    bench.start_job()
    tell(bench, "pause")
    report(bench, "saved", 9)
    bench.tick()
    assert job(bench).state is JobState.PAUSING  # its processes are there
    report(bench, "left", 9)
    bench.tick()
    assert job(bench).state is JobState.PAUSING  # its watts are there
    bench.leave("j")
    bench.tick()
    assert (job(bench).state, job(bench).saved_step) == (JobState.PAUSED, 9)
    assert tell(bench, "resume") == "accepted"
    bench.tick()
    bench.run_attempt("j", 2)
    assert (job(bench).state, job(bench).attempt) == (JobState.RUNNING, 2)


def test_a_paused_job_may_be_held_and_released_to_the_queue(bench) -> None:
    bench.start_job()
    pause(bench)
    assert job(bench).state is JobState.PAUSED
    tell(bench, "hold")
    tell(bench, "release")
    bench.tick()
    assert (job(bench).state, job(bench).attempt) == (JobState.STARTING, 2)


@pytest.mark.parametrize("outcome", ["refused", "invalid", "late"])
def test_a_pause_that_fails_lets_the_job_run_on_and_is_told(bench, outcome: str) -> None:
    bench.start_job()
    tell(bench, "pause")
    report(bench, outcome, message="busy")
    assert (job(bench).state, job(bench).message) == (JobState.RUNNING, "busy")
    assert "pause-refused/j" in bench.state.alarms
    tell(bench, "pause")
    assert "pause-refused/j" not in bench.state.alarms


def test_a_job_that_saves_after_all_is_believed(bench) -> None:
    bench.start_job()
    tell(bench, "pause")
    first = job(bench).request_id
    report(bench, "late")
    report(bench, "saved", 12, first)
    assert (job(bench).state, job(bench).saved_step) == (JobState.PAUSING, 12)


def test_a_request_that_the_ledger_lost_is_known_by_its_checkpoint(bench) -> None:
    bench.start_job()
    report(bench, "gone", request="r0-7")
    assert job(bench).state is JobState.RUNNING
    report(bench, "saved", 12, "r0-7")
    assert (job(bench).state, job(bench).request_id) == (JobState.PAUSING, "r0-7")


def test_silence_ends_a_pause(bench) -> None:
    bench.start_job(checkpoint_grace_seconds=5.0)
    tell(bench, "pause")
    bench.ticks(21)
    assert job(bench).state is JobState.RUNNING
    assert job(bench).message == "no checkpoint within its grace"


def test_watts_that_stay_end_a_pause_that_was_saved(bench) -> None:
    bench.start_job(checkpoint_grace_seconds=5.0)
    tell(bench, "pause")
    report(bench, "saved", 9)
    bench.ticks(21)
    assert job(bench).message == "its watts did not fall"


def test_exit_42_waits_for_its_proof_and_fails_without(bench) -> None:
    bench.start_job(checkpoint_grace_seconds=5.0)
    tell(bench, "pause")
    bench.leave("j")
    status(bench, 1, "failed", 42)
    assert job(bench).state is JobState.PAUSING
    bench.ticks(21)
    assert job(bench).state is JobState.FAILED
    assert "exit code 42, but no checkpoint was verified" in job(bench).message


def test_the_proof_of_exit_42_may_come_late(bench) -> None:
    bench.start_job()
    tell(bench, "pause")
    bench.leave("j")
    bench.post(JobGone("n1", "j", 1, 0, 7))
    status(bench, 1, "failed", 42)
    report(bench, "left", 9)
    bench.tick()
    assert job(bench).state is JobState.PAUSED


def test_a_job_that_finishes_or_crashes_while_pausing_is_what_the_cluster_says(bench) -> None:
    bench.start_job()
    tell(bench, "pause")
    report(bench, "gone")
    assert job(bench).state is JobState.PAUSING
    status(bench, 1, "succeeded", 0)
    assert job(bench).state is JobState.SUCCEEDED


def test_a_crash_is_tried_again_as_often_as_the_job_says(bench) -> None:
    bench.start_job(max_retries=1)
    bench.leave("j")
    status(bench, 1, "failed", 1)
    assert job(bench).state is JobState.QUEUED
    bench.ticks(6)
    assert (job(bench).state, job(bench).attempt) == (JobState.STARTING, 2)
    status(bench, 2, "failed", 1)
    assert (job(bench).state, job(bench).failures) == (JobState.FAILED, 2)


def test_a_submission_that_failed_is_made_again_or_given_up(bench) -> None:
    bench.post(JobSubmitted(JobSpec("j", "x", 4), "u"))
    bench.tick()
    again = bench.post(SubmitFailed("j", 1, "ray-away", "words", True))
    assert bench.of(SubmitJob, again) == [SubmitJob("j", 1)]
    bench.post(SubmitFailed("j", 1, "entrypoint", "no such file", False))
    assert (job(bench).state, job(bench).message) == (JobState.FAILED, "no such file")
    bench.post(SubmitFailed("j", 1, "entrypoint", "again", False))
    assert job(bench).message == "no such file"


def test_a_new_controller_tells_the_cluster_again_what_was_on_its_way(bench) -> None:
    bench.start_job("run", gpus=2)
    tell(bench, "stop", "run")
    bench.post(JobSubmitted(JobSpec("j", "x", 2), "u"))
    bench.tick()
    made = bench.post(Started(2))
    assert bench.of(SubmitJob, made) == [SubmitJob("j", 1)]
    assert bench.of(StopJob, made) == [StopJob("run", 1)]


def test_an_attempt_whose_start_was_lost_is_found_in_the_cluster(bench) -> None:
    bench.start_job()
    tell(bench, "pause")
    report(bench, "left", 9)
    bench.leave("j")
    bench.tick()
    made = status(bench, 2, "running")
    assert (job(bench).state, job(bench).attempt) == (JobState.RESUMING, 2)
    assert [a.code for a in bench.of(Alarm, made)] == ["attempt-recovered"]
    status(bench, 4, "running")
    assert job(bench).attempt == 2


def test_an_agent_that_comes_back_is_asked_again_for_a_pause(bench) -> None:
    bench.start_job(checkpoint_grace_seconds=30.0)
    tell(bench, "pause")
    bench.ticks(10)
    made = bench.hello(1)
    again = bench.of(SendCheckpoint, made)[0].request
    assert again.request_id == job(bench).request_id
    assert again.deadline_seconds == pytest.approx(20.0)
    report(bench, "saved", 9)
    assert bench.of(SendCheckpoint, bench.hello(1)) == []


def test_a_plain_script_runs_once_the_cluster_says_so(bench) -> None:
    bench.post(JobSubmitted(JobSpec("j", "x", 4, pausable=False), "u"))
    bench.tick()
    status(bench, 1, "pending")
    assert job(bench).state is JobState.STARTING
    status(bench, 1, "running")
    assert job(bench).state is JobState.RUNNING
    status(bench, 1, "succeeded", 0)
    assert (job(bench).state, job(bench).exit_code) == (JobState.SUCCEEDED, 0)


def test_a_job_without_steps_is_stalled_until_it_steps_again(make_bench) -> None:
    bench = make_bench(stall_seconds=20.0)
    bench.start_job()
    bench.ticks(22)
    assert job(bench).state is JobState.STALLED
    assert "job-stalled/j" in bench.state.alarms
    bench.post(JobProgress("n1", "j", 1, 0, 6, 2.0))
    assert job(bench).state is JobState.RUNNING
    assert "job-stalled/j" not in bench.state.alarms


def test_words_about_other_attempts_and_unknown_jobs_change_nothing(bench) -> None:
    bench.start_job()
    before = repr(bench.state.jobs)
    for attempt, name in ((0, "j"), (9, "j"), (1, "none")):
        bench.post(JobRegistered("n1", name, attempt, 0, 9, ("g10",), 3))
        bench.post(JobProgress("n1", name, attempt, 0, 99, 1.0))
        bench.post(JobGone("n1", name, attempt, 0, 7))
        bench.post(CheckpointReport("n1", "r1-1", name, attempt, "saved", 9))
        bench.post(RunnerReported((AttemptStatus(name, attempt, "failed", 1),)))
    assert repr(bench.state.jobs) == before


def test_processes_left_behind_are_alarmed(bench) -> None:
    bench.start_job()
    bench.post(JobRegistered("n1", "j", 1, 1, 8, ("g10",), 30))
    bench.post(JobGone("n1", "j", 1, 1, 8, (11, 12)))
    assert bench.state.jobs["j"].nodes == {"n1": [7]}
    assert job(bench).step == 30
    assert [a.message for a in bench.of(Alarm)] == ["j left processes 11, 12"]


def test_step_rates_come_with_the_observation(bench) -> None:
    bench.start_job()
    seen = JobObservation("j", 1, 50, 3.5, 0.2)
    bench.tick(jobs=(seen, JobObservation("j2", 1, 1, 1.0, 0.2)))
    assert bench.state.jobs["j"].steps_per_second == 3.5


def test_a_paused_job_comes_before_the_queue(bench) -> None:
    bench.start_job()
    bench.start_job("other", gpus=4, tier=Tier.FIRM)  # it has the second node
    for gpu_id in [g for g, owner in bench.owners.items() if owner == "other"]:
        del bench.owners[gpu_id]
        bench.watts[gpu_id] = 60.0
    for gpu_id in ("g20", "g21", "g22", "g23"):
        bench.owners[gpu_id], bench.watts[gpu_id] = "other", 380.0
    pause(bench)
    bench.owners |= {"g10": "stranger"}  # somebody took one of its GPUs
    bench.tick()
    tell(bench, "resume")
    bench.post(JobSubmitted(JobSpec("small", "x", 1, priority=900), "u"))
    bench.ticks(3)
    assert job(bench).state is JobState.PAUSED
    assert bench.state.jobs["j"].plan_reason == "WaitsForGpus"
    assert bench.state.jobs["small"].plan_reason == "WaitsForHead"
    del bench.owners["g10"]
    bench.ticks(2)
    assert job(bench).state is JobState.RESUMING


def test_a_queued_job_outlives_a_lost_gpu_but_not_a_cluster_too_small(bench) -> None:
    bench.post(JobSubmitted(JobSpec("j", "x", 4), "u"))
    gpus = bench.state.nodes["n1"].node.gpus
    bench.hello(1, gpus=gpus[:3])
    bench.hello(2, gpus=bench.state.nodes["n2"].node.gpus[:3])
    bench.tick()
    assert (job(bench).state, bench.state.jobs["j"].plan_reason) == (
        JobState.QUEUED,
        "NeverFitsNode",
    )
    bench.tick(ray_total_gpus=2.0)
    assert job(bench).state is JobState.FAILED


def test_a_job_that_ray_has_lost_is_queued_again_once_its_processes_are_gone(bench):
    bench.start_job()
    bench.post(RunnerReported((AttemptStatus("j", 1, "lost"),)))
    bench.tick()
    assert bench.state.jobs["j"].job.state is not JobState.QUEUED, "a process of it still works"
    bench.post(JobGone("n1", "j", 1, 0, 7))
    bench.tick()
    job = bench.state.jobs["j"].job
    assert (job.state, job.reason, job.failures) == (JobState.QUEUED, "ClusterLost", 0)
    bench.leave("j")
    bench.ticks(6)
    assert bench.state.jobs["j"].job.attempt == 2
