"""Pausing real jobs: the verified way, and the ways in which it goes wrong."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray

STEPS = 150
LOOP = """
import json, os, sys, time
from gridaware import train
with train.session(state) as session:
    found = session.resume_from()
    step = found.step if found else 0
    while True:
        time.sleep(0.02)
        step += 1
        session.step(step)
        request = session.should_checkpoint()
        if request:
            REACTION
"""
SAVE = (
    "folder = session.checkpoint_dir / str(step); folder.mkdir(parents=True); "
    "(folder / 'state').write_text(str(step))"
)


def reaction(*lines: str) -> str:
    return LOOP.replace("REACTION", ("\n" + " " * 12).join(lines))


def test_a_paused_run_ends_as_if_it_had_never_been_paused(cluster) -> None:
    """The weights after a pause equal those of the same steps in one go, computed here."""
    state = cluster.folder / "line"
    spec = cluster.spec(
        f"{sys.executable} {cluster.examples}/train_loop.py --state-dir {state} --steps {STEPS}"
        " --step-seconds 0.03 --save-every 0",
        gpus=2,
    )
    cluster.runner.submit(spec, 1)
    (rank,) = cluster.desk.registered(spec.job_id)
    assert len(rank.gpu_ids) == 2

    request_id = cluster.desk.ask(spec.job_id)
    saved = cluster.desk.outcome(request_id, "saved")
    left = cluster.desk.outcome(request_id, "left")
    assert 0 < saved.step < STEPS
    assert left.step == saved.step
    manifest = json.loads((state / f"step-{saved.step:09d}/gridaware-manifest.json").read_text())
    assert (manifest["request_id"], manifest["attempt"]) == (request_id, 1)
    status = cluster.ended(spec.job_id)
    assert (status.status, status.exit_code) == ("failed", 42)

    cluster.runner.submit(spec, 2)
    assert cluster.ended(spec.job_id, 2).status == "succeeded"
    logs = cluster.runner.logs_of_attempts(spec.job_id, [1, 2])
    assert f"pausing at step {saved.step}" in logs
    assert f"starting at step {saved.step} of {STEPS}" in logs
    last = json.loads((state / f"step-{STEPS:09d}/state.json").read_text())
    assert last == _uninterrupted(cluster.examples, STEPS)


def _uninterrupted(examples: Path, steps: int) -> dict:
    spec = importlib.util.spec_from_file_location("train_loop", examples / "train_loop.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    state = {"step": 0, "weights": [0.0, 0.0], "loss": 1.0}
    for _ in range(steps):
        example.learn(state)
    return state


def test_jobs_that_refuse_crash_hang_lie_or_finish_are_told_apart(cluster) -> None:
    """All at once, for each costs Ray seconds to start."""
    jobs = {
        "refuses": reaction("session.refuse('in the middle of an exam')", "break"),
        "crashes": reaction("os._exit(7)"),
        "hangs": reaction("time.sleep(600)"),
        "finishes": reaction("sys.exit(0)"),
        "saved, then finishes": reaction(SAVE, "session.save_done(folder, step)", "break"),
        "damages its checkpoint": reaction(
            SAVE,
            "(folder / 'more').write_text('x' * 1000)",
            "inner = sys.modules['gridaware.train.session']",
            "write = inner.write_manifest",
            "inner.write_manifest = lambda *a: (write(*a), (folder / 'more').write_text('y'))",
            "session.save_done(folder, step)",
            "session.pause()",
            "print('stayed', flush=True)",
            "time.sleep(600)",
        ),
        "leaves a child": reaction(
            SAVE,
            "session.save_done(folder, step)",
            "import subprocess",
            "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; sleep 300 & wait; sleep 300'],"
            " start_new_session=True)",
            "session.pause()",
        ),
    }
    specs = {name: cluster.script(text) for name, text in jobs.items()}
    for spec in specs.values():
        cluster.runner.submit(spec, 1)
    for spec in specs.values():
        cluster.desk.registered(spec.job_id)
    asked = {name: cluster.desk.ask(spec.job_id, seconds=8) for name, spec in specs.items()}

    def outcome(name: str):
        return cluster.desk.outcome(asked[name], "refused", "gone", "late", "invalid", "left")

    assert (outcome("refuses").outcome, outcome("refuses").message) == (
        "refused",
        "in the middle of an exam",
    )
    assert outcome("crashes").outcome == "gone"
    assert cluster.ended(specs["crashes"].job_id).exit_code == 7
    assert outcome("finishes").outcome == "gone"
    assert cluster.ended(specs["finishes"].job_id).status == "succeeded"
    finished = outcome("saved, then finishes")
    assert (finished.outcome, finished.message) == (
        "gone",
        "the process ended by itself after saving",
    )
    assert finished.step is not None
    damaged = outcome("damages its checkpoint")
    assert (damaged.outcome, damaged.message) == ("invalid", "more has 1 bytes, not 1000")
    assert outcome("hangs").outcome == "late"
    orphaned = outcome("leaves a child")
    assert (orphaned.outcome, orphaned.left_pids) == ("left", ())
    for name in ("hangs", "damages its checkpoint"):
        assert cluster.status(specs[name].job_id).status == "running"
        cluster.runner.stop(specs[name].job_id, 1)
        assert cluster.ended(specs[name].job_id).status == "stopped"
    assert "stayed" in cluster.runner.logs(specs["damages its checkpoint"].job_id, 1)
