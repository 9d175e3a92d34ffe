"""Which job a process belongs to, from what it was started with and not from what it says."""

import json
from collections.abc import Mapping

from gridaware.domain.errors import Refused
from gridaware.domain.job import submission_id
from gridaware.domain.jobword import Register
from gridaware.node.processes import Processes

__all__ = ["identify"]

_NAMES = ("GRIDAWARE_JOB_ID", "GRIDAWARE_ATTEMPT", "RAY_JOB_CONFIG_JSON_ENV_VAR")


def identify(pid: int, line: Register, processes: Processes) -> None:
    """Hold a registration against the environment of its process and of that one's ancestors.

    Raises:
        Refused: the environment names another job or attempt (``job-mismatch``), or none
            (``job-unproven``).
    """
    told = processes.told(pid, _NAMES)
    job_id = told.get("GRIDAWARE_JOB_ID")
    if job_id is not None:
        proven = (job_id, told.get("GRIDAWARE_ATTEMPT", "0"))
        if proven != (line.job_id, str(line.attempt)):
            raise Refused(
                "job-mismatch",
                f"process {pid} was started for {proven[0]!r} attempt {proven[1]}",
                pid=pid,
            )
        return
    submission = _submission(told)
    if submission is None:
        raise Refused("job-unproven", f"nothing shows which job process {pid} is of", pid=pid)
    if submission != submission_id(line.job_id, line.attempt):
        raise Refused("job-mismatch", f"process {pid} is of submission {submission!r}", pid=pid)


def _submission(told: Mapping[str, str]) -> str | None:
    try:
        value = json.loads(told["RAY_JOB_CONFIG_JSON_ENV_VAR"])["metadata"]["job_submission_id"]
    except (KeyError, TypeError, ValueError):
        return None
    return value if isinstance(value, str) else None
