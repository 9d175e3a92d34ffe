"""Jobs: what a user asks for, the flex tiers, and the life cycle."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from gridaware.domain.transitions import LifeCycle, Transition

__all__ = [
    "JOB_LIFE",
    "LOSS_WINDOW_SECONDS",
    "Job",
    "JobSpec",
    "JobState",
    "Placement",
    "Tier",
    "submission_id",
]

LOSS_WINDOW_SECONDS = 6 * 3600.0
"""The rolling window of running time over which a tier's loss is judged."""

PAUSED_EXIT_CODE = 42
"""A job that saved its state and left on request exits with this code. A hint, never a proof."""


class Tier(StrEnum):
    """How much mean throughput a job may lose over a rolling 6 h of its running time.

    Source: the flex tiers of arXiv 2507.00909, with ``preemptible`` added.
    """

    FIRM = "firm"
    FLEX_1 = "flex-1"
    FLEX_2 = "flex-2"
    FLEX_3 = "flex-3"
    PREEMPTIBLE = "preemptible"

    @property
    def allowed_loss(self) -> float:
        """The share of mean throughput that may be lost, 0 to 1."""
        return _ALLOWED_LOSS[self]

    @property
    def pausable(self) -> bool:
        """Whether jobs of this tier may be paused at all."""
        return self is not Tier.FIRM


_ALLOWED_LOSS = {
    Tier.FIRM: 0.0,
    Tier.FLEX_1: 0.10,
    Tier.FLEX_2: 0.25,
    Tier.FLEX_3: 0.50,
    Tier.PREEMPTIBLE: 1.0,
}


class Placement(StrEnum):
    """Which of Ray's two separate counts a job's GPUs are taken from.

    ``entrypoint``: Ray gives the GPUs to the entrypoint process (plain scripts).
    ``workers``: the entrypoint gets none and its own Ray actors or tasks ask for them; the
    entrypoint then finds their number in ``GRIDAWARE_GPUS``.
    """

    ENTRYPOINT = "entrypoint"
    WORKERS = "workers"


class JobState(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    HELD = "held"
    STARTING = "starting"
    RUNNING = "running"
    CAPPED = "capped"
    STALLED = "stalled"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether nothing more will happen."""
        return self in {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}

    @property
    def on_gpus(self) -> bool:
        """Whether the job has processes that may hold GPUs."""
        return self in _ON_GPUS


_ON_GPUS = {
    JobState.STARTING,
    JobState.RUNNING,
    JobState.CAPPED,
    JobState.STALLED,
    JobState.PAUSING,
    JobState.RESUMING,
}


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a user submits. Everything a later attempt needs is in here."""

    job_id: str
    entrypoint: str
    gpus: int
    tier: Tier = Tier.FIRM
    team: str = "default"
    priority: int = 0
    """Higher starts first and is shed last."""
    placement: Placement = Placement.ENTRYPOINT
    workload: str | None = None
    """Name of a cap-to-throughput class (``configs/curves``); a generic one where unset."""
    pausable: bool = True
    """Whether the job honours checkpoint requests (it uses ``gridaware.train``)."""
    min_cap_watts: float | None = None
    """The owner's own floor for the cap of each GPU."""
    checkpoint_grace_seconds: float = 60.0
    expected_seconds: float | None = None
    """Declared running time; the loss window of a young job."""
    max_retries: int = 0
    runtime_env_json: str = "{}"
    """Ray's ``runtime_env`` as canonical JSON."""
    metadata: tuple[tuple[str, str], ...] = ()
    entrypoint_num_cpus: float = 0.0
    entrypoint_resources: tuple[tuple[str, float], ...] = ()
    cluster_id: str = "default"
    may_stop: bool = False
    """Whether it may be stopped where nothing milder meets what the site must do. It is then queued
    again, and begins from its newest checkpoint or from nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the controller knows it."""

    spec: JobSpec
    state: JobState
    reason: str
    """Reason code of the last transition; see :mod:`gridaware.domain.reasons`."""
    submitted_at: datetime
    state_since: datetime
    attempt: int = 0
    """Attempts started so far; 0 while it never started."""
    failures: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cap_watts: float | None = None
    """Cap of each of its GPUs, or None at the found limits."""
    gpu_ids: tuple[str, ...] = ()
    step: int = 0
    """Last step reported."""
    saved_step: int | None = None
    checkpoint_path: str | None = None
    request_id: str | None = None
    """The pending or last checkpoint request."""
    exit_code: int | None = None
    message: str = ""
    numbers: tuple[tuple[str, float], ...] = field(default=())
    """The figures of ``reason``, for its sentence."""


def submission_id(job_id: str, attempt: int) -> str:
    """Ray's name for one attempt of a job: ids are never reused, so history stays."""
    return f"{job_id}-a{attempt}"


def _edge(
    source: JobState, target: JobState, trigger: str, guard: str, instruction: str, reason: str
) -> Transition[JobState]:
    return Transition(source, target, trigger, guard, instruction, reason)


def _table() -> tuple[Transition[JobState], ...]:
    s = JobState
    edges = [
        _edge(
            s.QUEUED,
            s.STARTING,
            "tick",
            "fits Ray's free GPUs, admission open",
            "SubmitJob",
            "Started",
        ),
        _edge(s.QUEUED, s.HELD, "hold", "", "", "HeldByUser"),
        _edge(s.HELD, s.QUEUED, "release", "", "", "ReleasedByUser"),
        _edge(s.STARTING, s.RUNNING, "first progress or Ray says running", "", "", "FirstProgress"),
        _edge(s.RUNNING, s.CAPPED, "plan", "cap below the found limit", "ApplyLimits", "Capped"),
        _edge(
            s.CAPPED,
            s.RUNNING,
            "plan",
            "limits back at the found ones",
            "RestoreLimits",
            "Uncapped",
        ),
        _edge(
            s.PAUSING,
            s.PAUSED,
            "checkpoint report",
            "verified manifest of this request and attempt, no process left, watts gone",
            "",
            "CheckpointVerified",
        ),
        _edge(
            s.PAUSING,
            s.RUNNING,
            "checkpoint report",
            "refused, failed or out of time",
            "",
            "PauseRefused",
        ),
        _edge(s.PAUSED, s.RESUMING, "tick", "power allowed and GPUs free", "SubmitJob", "Resumed"),
        _edge(s.PAUSED, s.HELD, "hold", "", "", "HeldByUser"),
        _edge(s.RESUMING, s.RUNNING, "first progress", "", "", "FirstProgress"),
        _edge(s.STALLED, s.RUNNING, "progress", "", "", "ProgressAgain"),
    ]
    for source in (s.RUNNING, s.CAPPED, s.STALLED):
        edges.append(
            _edge(source, s.PAUSING, "plan or user", "pausable", "RequestPause", "PauseRequested")
        )
    for source in (s.RUNNING, s.CAPPED):
        edges.append(
            _edge(source, s.STALLED, "tick", "no step within the stall time", "Alarm", "NoProgress")
        )
    for source in (s.STARTING, s.RUNNING, s.CAPPED, s.STALLED, s.PAUSING, s.RESUMING):
        edges += [
            _edge(source, s.SUCCEEDED, "Ray status", "exit status 0", "", "Succeeded"),
            _edge(source, s.FAILED, "Ray status", "no retry left", "", "Failed"),
            _edge(source, s.QUEUED, "Ray status", "retries left", "", "RetryAfterFailure"),
            _edge(source, s.QUEUED, "Ray status", "lost, no process left", "", "ClusterLost"),
            _edge(source, s.QUEUED, "plan", "the owner agreed", "StopJob", "StoppedForGrid"),
        ]
    for source in s:
        if not source.terminal:
            edges.append(_edge(source, s.CANCELLED, "stop", "", "StopJob", "StoppedByUser"))
    edges.append(
        _edge(
            s.QUEUED, s.FAILED, "submit or tick", "never fits, or Ray refused it", "", "CannotStart"
        )
    )
    return tuple(edges)


JOB_LIFE: LifeCycle[JobState] = LifeCycle("job", _table())
