"""Ray's words for an attempt, in ours."""

import pytest

from gridaware.jobs.status import RayStatus, parse_status, split_submission

# As Ray 2.60 answered GET /api/jobs/, shortened.
FAILED = {
    "type": "SUBMISSION",
    "submission_id": "j2-a1",
    "status": "FAILED",
    "entrypoint": "no-such-thing --x",
    "message": "Job entrypoint command failed with exit code 127, last available logs (truncated "
    "to 20,000 chars):\n2026-11-30 17:12:33,212\tINFO job_manager.py:581 -- Runtime env is setting "
    "up.\n/bin/sh: 1: no-such-thing: not found\n"
    "Running entrypoint for job j2-a1: no-such-thing --x\n",
    "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR",
    "metadata": {"gridaware_job_id": "j2", "gridaware_attempt": "1"},
    "driver_exit_code": 127,
}


def test_a_command_that_does_not_exist_is_said_in_one_line() -> None:
    status = parse_status(FAILED)
    assert (status.status, status.exit_code) == ("failed", 127)
    assert status.message == (
        "the entrypoint cannot be run: 'no-such-thing --x' (Job entrypoint command failed with "
        "exit code 127; last said: /bin/sh: 1: no-such-thing: not found)"
    )


def test_the_twenty_kilobytes_of_log_that_ray_appends_are_not_carried_along() -> None:
    message = "failed with exit code 1, last available logs (x):\n" + "noise\n" * 4000 + "Killed\n"
    status = parse_status(FAILED | {"driver_exit_code": 1, "message": message})
    assert status.message == "failed with exit code 1; last said: Killed"


@pytest.mark.parametrize(
    ("ray", "ours"),
    [
        ("PENDING", "pending"),
        ("RUNNING", "running"),
        ("SUCCEEDED", "succeeded"),
        ("FAILED", "failed"),
        ("STOPPED", "stopped"),
    ],
)
def test_every_status_of_ray_has_its_word(ray: str, ours: str) -> None:
    details = FAILED | {"status": ray, "driver_exit_code": None, "message": None}
    assert parse_status(details) == RayStatus("j2-a1", ours, None, "")


def test_what_gridaware_did_not_submit_is_not_listed() -> None:
    assert parse_status(FAILED | {"metadata": None}) is None
    assert parse_status(FAILED | {"submission_id": None}) is None


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("j-a1", ("j", 1)),
        ("train-a2-a10", ("train-a2", 10)),
        ("j", None),
        ("-a1", None),
        ("j-a", None),
        ("j-aX", None),
        ("raysubmit_x", None),
    ],
)
def test_a_submission_is_named_after_its_job_and_attempt(name, split) -> None:
    assert split_submission(name) == split
