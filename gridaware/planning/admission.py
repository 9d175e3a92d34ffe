"""Which waiting jobs start now: first in, first out within a priority, all GPUs or none.

The head of the queue reserves: nothing behind it starts before it does, so a large job is never
starved by small ones, at the price of GPUs that idle while it waits. Tiers do not matter here.
A job with ``entrypoint`` placement needs its GPUs on one node, since one process holds them all;
one with ``workers`` placement takes them anywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridaware.domain.job import Placement

__all__ = ["Admission", "Room", "Waiting", "admit"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the queue."""

    job_id: str
    gpus: int
    placement: Placement
    priority: int
    """Higher starts first."""
    arrival: float
    """Earlier starts first within a priority; any number that orders jobs by submission."""


@dataclass(frozen=True, slots=True)
class Room:
    """What could run a job."""

    free_by_node: Mapping[str, int]
    """Free GPUs of each node that takes jobs."""
    total_by_node: Mapping[str, int]
    """All GPUs of each node, free or not, cordoned or not: what could ever be free."""
    cluster_free: float | None = None
    """What Ray says is free; None = it did not answer, and nothing starts."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What becomes of one waiting job now."""

    job_id: str
    outcome: str
    """``start``, ``wait`` or ``refuse``."""
    reason: str = ""
    """Code of :mod:`gridaware.domain.reasons`; empty for ``start``."""
    numbers: tuple[float, ...] = ()


def admit(queue: Sequence[Waiting], room: Room, *, closed: bool = False) -> tuple[Admission, ...]:
    """Decide for every waiting job, in the order in which they would start.

    Args:
        queue: jobs waiting, in any order.
        room: free and total GPUs.
        closed: the site gives up power; nothing starts, hopeless jobs are still refused.
    """
    free = dict(room.free_by_node)
    cluster = room.cluster_free if room.cluster_free is not None else 0.0
    blocked = ""
    answers = []
    for job in sorted(queue, key=lambda job: (-job.priority, job.arrival, job.job_id)):
        hopeless = _hopeless(job, room)
        if hopeless is not None:
            answers.append(hopeless)
            continue
        answer = _hold(job, free, cluster, closed=closed, blocked=blocked)
        if answer is None:
            _take(job, free)
            cluster -= job.gpus
            answer = Admission(job.job_id, "start")
        else:
            blocked = blocked or job.job_id
        answers.append(answer)
    return tuple(answers)


def _hopeless(job: Waiting, room: Room) -> Admission | None:
    """A refusal, where no emptying of the cluster would ever make room."""
    if not room.total_by_node:
        return None  # no node has been seen yet: nothing is known
    total = sum(room.total_by_node.values())
    if job.gpus > total:
        return Admission(job.job_id, "refuse", "NeverFits", (job.gpus, total))
    largest = max(room.total_by_node.values())
    if job.placement is Placement.ENTRYPOINT and job.gpus > largest:
        return Admission(job.job_id, "refuse", "NeverFitsNode", (job.gpus, largest))
    return None


def _hold(
    job: Waiting, free: Mapping[str, int], cluster: float, *, closed: bool, blocked: str
) -> Admission | None:
    """Why the job waits; None = it can start."""
    if closed:
        return Admission(job.job_id, "wait", "WaitsForPower")
    if blocked:
        return Admission(job.job_id, "wait", "WaitsForHead")
    everywhere = sum(free.values())
    if job.gpus > everywhere:
        return Admission(job.job_id, "wait", "WaitsForGpus", (job.gpus, everywhere))
    freest = max(free.values(), default=0)
    if job.placement is Placement.ENTRYPOINT and job.gpus > freest:
        return Admission(job.job_id, "wait", "WaitsForNode", (job.gpus, freest))
    if job.gpus > cluster:
        return Admission(job.job_id, "wait", "WaitsForCluster", (cluster, job.gpus))
    return None


def _take(job: Waiting, free: dict[str, int]) -> None:
    """Count the job's GPUs as taken: on the fullest node that fits, else across the freest."""
    fitting = [node_id for node_id, count in free.items() if count >= job.gpus]
    if fitting:
        free[min(fitting, key=lambda node_id: (free[node_id], node_id))] -= job.gpus
        return
    left = job.gpus
    for node_id in sorted(free, key=lambda node_id: (-free[node_id], node_id)):
        taken = min(free[node_id], left)
        free[node_id] -= taken
        left -= taken
