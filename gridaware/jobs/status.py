"""Ray's words for an attempt, in ours."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["METADATA_ATTEMPT", "METADATA_JOB", "RayStatus", "parse_status", "split_submission"]

METADATA_JOB = "gridaware_job_id"
METADATA_ATTEMPT = "gridaware_attempt"

_STATUS = {
    "PENDING": "pending",
    "RUNNING": "running",
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "STOPPED": "stopped",
}
_COMMAND_NOT_FOUND = 127
_COMMAND_NOT_EXECUTABLE = 126
_MESSAGE_MOST = 500


@dataclass(frozen=True, slots=True)
class RayStatus:
    """One attempt as the cluster sees it (:class:`gridaware.control.ports.RunnerStatus`)."""

    submission_id: str
    status: str
    exit_code: int | None
    message: str


def parse_status(details: Mapping[str, Any]) -> RayStatus | None:
    """The status in one item of Ray's job list; None for a submission that is not ours."""
    submission_id = details.get("submission_id")
    metadata = details.get("metadata") or {}
    if not isinstance(submission_id, str) or METADATA_JOB not in metadata:
        return None
    status = _STATUS.get(str(details.get("status")), "pending")
    exit_code = details.get("driver_exit_code")
    message = _sentence(str(details.get("message") or ""))
    if status == "failed" and exit_code in (_COMMAND_NOT_FOUND, _COMMAND_NOT_EXECUTABLE):
        entrypoint = str(details.get("entrypoint", ""))[:200]
        message = f"the entrypoint cannot be run: {entrypoint!r} ({message})"
    return RayStatus(
        submission_id,
        status,
        exit_code if isinstance(exit_code, int) else None,
        message[:_MESSAGE_MOST],
    )


def split_submission(submission_id: str) -> tuple[str, int] | None:
    """(job, attempt) of ``<job>-a<attempt>``; None for any other name."""
    job_id, mark, attempt = submission_id.rpartition("-a")
    if not (mark and job_id and attempt.isascii() and attempt.isdigit()):
        return None
    return job_id, int(attempt)


def _sentence(message: str) -> str:
    """What happened and the last thing the job said: Ray appends up to 20 kB of its log."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    # The last line of the log tail may be Ray's own echo of the entrypoint.
    said = [line for line in lines[1:] if not line.startswith("Running entrypoint for job")]
    if not said:
        return lines[0] if lines else ""
    head = lines[0].split(", last available logs")[0]
    return f"{head}; last said: {said[-1]}"
