"""What RayRunner promises, against a real Ray head."""

import json
import sys

import pytest

from gridaware.clock import SystemClock
from gridaware.control.stimuli import RunnerReported
from gridaware.domain.errors import NotFound, Refused, Unavailable
from gridaware.domain.job import Placement, Tier
from gridaware.jobs.poller import JobPoller
from gridaware.jobs.ray_runner import RayRunner

pytestmark = pytest.mark.ray


def test_an_attempt_runs_once_with_everything_it_was_given(cluster) -> None:
    shown = "GRIDAWARE_JOB_ID GRIDAWARE_ATTEMPT GRIDAWARE_GPUS THEIRS RAY_JOB_STOP_WAIT_TIME_S"
    spec = cluster.spec(
        f"echo visible=$CUDA_VISIBLE_DEVICES; printenv {shown}; "
        "echo meta=$RAY_JOB_CONFIG_JSON_ENV_VAR",
        gpus=2,
        tier=Tier.FLEX_2,
        team="vision",
        checkpoint_grace_seconds=7.5,
        runtime_env_json=json.dumps({"env_vars": {"THEIRS": "kept"}}),
        metadata=(("owner", "ada"),),
    )

    cluster.runner.submit(spec, 1)
    cluster.runner.submit(spec, 1)

    assert cluster.ended(spec.job_id).status == "succeeded"
    assert cluster.ended(spec.job_id).exit_code == 0
    log = cluster.runner.logs(spec.job_id, 1)
    lines = log.splitlines()
    assert "visible=0,1" in lines or len(_visible(lines)) == 2
    for value in (spec.job_id, "1", "2", "kept", "8"):
        assert lines.count(value) >= 1
    assert lines.count("kept") == 1, "the second submission must not have run"
    metadata = json.loads(next(li for li in lines if li.startswith("meta="))[5:])["metadata"]
    assert metadata["owner"] == "ada"
    assert metadata["gridaware_tier"] == "flex-2"
    assert metadata["gridaware_team"] == "vision"
    both = cluster.runner.logs_of_attempts(spec.job_id, [1, 2])
    assert f"==> attempt 1 ({spec.job_id}-a1) <==" in both
    assert "(Ray no longer has this log)" in both


def _visible(lines: list[str]) -> list[str]:
    return next(li for li in lines if li.startswith("visible="))[8:].split(",")


def test_an_entrypoint_that_does_not_exist_is_named_as_such(cluster) -> None:
    spec = cluster.spec("no-such-program --really", gpus=1)
    cluster.runner.submit(spec, 1)
    status = cluster.ended(spec.job_id)
    assert (status.status, status.exit_code) == ("failed", 127)
    assert "the entrypoint cannot be run: 'no-such-program --really'" in status.message


def test_more_gpus_than_the_cluster_has_are_refused_before_ray_queues_them(cluster) -> None:
    for placement in Placement:
        spec = cluster.spec("true", gpus=cluster.gpus + 1, placement=placement)
        with pytest.raises(Refused) as caught:
            cluster.runner.submit(spec, 1)
        assert caught.value.code == "gpus-too-many"
        assert cluster.status(spec.job_id) is None


def test_what_ray_does_not_know_is_not_found_and_stopping_it_is_harmless(cluster) -> None:
    cluster.runner.stop("never-submitted", 1)
    with pytest.raises(NotFound):
        cluster.runner.logs("never-submitted", 1)


def test_a_head_that_is_away_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        RayRunner("http://127.0.0.1:9").statuses()


def test_a_submission_that_waits_too_long_never_gets_its_gpus_later(cluster) -> None:
    cluster.wait_until(
        lambda: cluster.runner.free_gpus() == (cluster.gpus, cluster.gpus), "all GPUs are free"
    )
    holder = cluster.spec("sleep 60", gpus=cluster.gpus)
    late = cluster.spec(f"sleep 5; touch {cluster.folder}/late-job-ran", gpus=cluster.gpus)
    seen: list[RunnerReported] = []
    poller = JobPoller(
        cluster.runner, SystemClock(), seen.append, interval_seconds=0.2, pending_seconds=1.0
    )

    def last(spec) -> str | None:
        said = [a for r in seen for a in r.attempts if a.job_id == spec.job_id]
        return said[-1].status if said else None

    # Not through the poller: on a busy machine Ray may well take longer than its 1 s to start it.
    cluster.runner.submit(holder, 1)
    cluster.wait_until(lambda: cluster.status(holder.job_id).status == "running", "it runs")
    poller.start()
    try:
        cluster.wait_until(lambda: poller.capacity == (0.0, cluster.gpus), "it holds every GPU")
        poller.submit(late, 1)
        cluster.wait_until(lambda: last(late) == "failed", "the waiting one is withdrawn")
        poller.stop_attempt(holder.job_id, 1)
        cluster.wait_until(lambda: last(holder) == "stopped", "the first job stops")
        cluster.wait_until(
            lambda: cluster.status(late.job_id).status == "stopped", "the late one is ended"
        )
        cluster.wait_until(
            lambda: poller.capacity == (cluster.gpus, cluster.gpus), "every GPU is free again"
        )
    finally:
        poller.stop()
    assert last(late) == "failed", "what was withdrawn is not reported again"
    assert not (cluster.folder / "late-job-ran").exists()


def test_five_gpus_for_workers_take_exactly_five_and_come_back_at_the_saved_step(cluster) -> None:
    state = cluster.folder / "workers"
    cluster.wait_until(
        lambda: cluster.runner.free_gpus() == (cluster.gpus, cluster.gpus), "all GPUs are free"
    )
    spec = cluster.spec(
        f"{sys.executable} {cluster.examples}/train_workers.py --state-dir {state}"
        " --step-seconds 0.05",
        gpus=5,
        placement=Placement.WORKERS,
    )
    cluster.runner.submit(spec, 1)

    ranks = cluster.desk.registered(spec.job_id, ranks=6)
    assert sorted(r.rank for r in ranks) == [0, 1, 2, 3, 4, 5]
    held = [gpu for r in ranks for gpu in r.gpu_ids]
    assert len(held) == len(set(held)) == 5
    assert cluster.runner.free_gpus() == (cluster.gpus - 5, cluster.gpus)
    assert set(cluster.desk.desk.owners().values()) == {(spec.job_id, 1)}

    request_id = cluster.desk.ask(spec.job_id)
    left = cluster.desk.outcome(request_id, "left", "gone", "late", "invalid", "refused")
    assert (left.outcome, left.left_pids) == ("left", ())
    assert cluster.ended(spec.job_id).exit_code == 42
    assert len(cluster.desk.gone(spec.job_id)) == 6
    cluster.wait_until(
        lambda: cluster.runner.free_gpus() == (cluster.gpus, cluster.gpus),
        "its GPUs are free again",
    )

    cluster.runner.submit(spec, 2)
    again = cluster.desk.registered(spec.job_id, attempt=2, ranks=6)
    assert {r.resumed_step for r in again} == {left.step}
    assert f"starting at step {left.step} of" in cluster.runner.logs(spec.job_id, 2)
    cluster.runner.stop(spec.job_id, 2)
    assert cluster.ended(spec.job_id, 2).status == "stopped"
