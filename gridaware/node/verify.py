"""The agent's own look at a checkpoint, in a child process with the rights of the job.

Paths that a job names are never opened with the agent's rights, and storage that hangs hangs only
the child (:mod:`gridaware.train.verify`).
"""

import asyncio
import json
import sys
from dataclasses import dataclass

__all__ = ["Verdict", "judge", "verify"]

_ANSWER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look at a checkpoint found."""

    wrong: str | None
    """What is not as it should be; None = the checkpoint is good."""
    step: int | None = None


async def verify(
    path: str,
    *,
    job_id: str,
    attempt: int,
    request_id: str,
    owner: tuple[int, int] | None,
    timeout_seconds: float,
) -> Verdict:
    """Check that a whole checkpoint at ``path`` names this job, attempt and request.

    Args:
        path: the checkpoint, as the job named it.
        job_id: whose it must be.
        attempt: of which attempt.
        request_id: which request it must answer.
        owner: uid and gid to look as; None = as this process.
        timeout_seconds: after which the look is given up.
    """
    if not path.startswith("/") or "\0" in path:
        return Verdict("the checkpoint's path is not absolute")
    identity = () if owner is None else map(str, owner)
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "gridaware.train.verify",
            path,
            *identity,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        return Verdict(f"the checkpoint could not be looked at: {error}")
    try:
        async with asyncio.timeout(timeout_seconds):
            raw, _none = await child.communicate()
    except TimeoutError:
        return Verdict("its storage did not answer in time")
    finally:
        if child.returncode is None:
            child.kill()
    return judge(raw, job_id, attempt, request_id)


def judge(raw: bytes, job_id: str, attempt: int, request_id: str) -> Verdict:
    """The verdict from what the program printed."""
    try:
        found = json.loads(raw[:_ANSWER_BYTES])
        wrong, step = found["wrong"], found.get("step")
    except (ValueError, KeyError, TypeError):
        return Verdict("the checkpoint could not be looked at")
    if wrong is not None:
        return Verdict(str(wrong)[:500])
    for name, expected in (("job_id", job_id), ("attempt", attempt), ("request_id", request_id)):
        if found.get(name) != expected:
            return Verdict(f"its manifest names {name} {found.get(name)!r}, not {expected!r}")
    return Verdict(None, step)
