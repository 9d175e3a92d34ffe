"""A Situation: everything a decision may depend on, frozen."""

from dataclasses import dataclass

from gridaware.domain.curve import Curve
from gridaware.domain.job import JobState, Tier

__all__ = ["JobView", "Situation"]


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as planning sees it. Per-GPU figures hold for each of its GPUs alike."""

    job_id: str
    tier: Tier
    priority: int
    state: JobState
    gpu_count: int
    draw_watts: float
    """Measured now, all its GPUs together; 0 while it is off the GPUs."""
    cap_watts: float
    """The cap of each of its GPUs that is in force."""
    found_watts: float
    """Each GPU's limit when left alone: the highest cap."""
    least_cap_watts: float
    """Lowest cap allowed: the device's minimum or the owner's own, whichever is higher."""
    curve: Curve
    """Already scaled to this job's own measured draw."""
    loss_budget_seconds: float
    """Full-throughput seconds it may still lose within its tier's window."""
    pausable: bool
    pause_cost_seconds: float = 0.0
    """Work lost and time spent by one pause and resume."""
    since_change_seconds: float = 1e9
    """Since it was last paused or resumed; guards against flapping."""


@dataclass(frozen=True, slots=True)
class Situation:
    """One question to the planner, in GPU watts: the overhead model was already applied."""

    jobs: tuple[JobView, ...]
    other_gpu_watts: float
    """Draw of GPUs that belong to no job of ours: unallocated idle and unmanaged processes."""
    target_gpu_watts: float | None
    """What all GPUs together may draw; None = free."""
    horizon_seconds: float
    """How long the target will hold; open ends use the programme's longest or 6 h."""
    must: bool = True
    """Whether the target binds (a hard limit or an obligation) or is a wish."""
    allow_pause: bool = True
    rising: bool = False
    """The site is coming back: nothing may be lowered, only raised."""
    hard: bool = False
    """A hard limit binds: firm jobs' floor yields to it as to an obligation."""
    late: bool = False
    """The time for the full response is over: what pauses under way do not give yet is missing."""
