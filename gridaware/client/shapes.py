"""The JSON of the API as types: what each answer is made of, in which units."""

from typing import Any, TypedDict

__all__ = [
    "AdvisoryInfo",
    "Answer",
    "EnergyReport",
    "EventInfo",
    "FeedInfo",
    "GpuInfo",
    "JobInfo",
    "Json",
    "NodeInfo",
    "PolicyInfo",
    "PowerPoint",
    "ProgrammeInfo",
    "Status",
]

Json = dict[str, Any]


class Answer(TypedDict):
    """What became of a command."""

    id: str
    """Of the job, event, feed or node."""
    disposition: str
    """``accepted``, ``duplicate``, ``superseded``, ``clamped`` or ``opted-out``."""
    message: str | None


class FeedInfo(TypedDict, total=False):
    """A registered source of signals."""

    feed_id: str
    kind: str
    programme_id: str
    authority: dict[str, float]
    """The most it may ask for."""
    settings: Json
    health: Json | None
    """``state`` (waiting, ok, failing, hung), ``last_good_at``, ``lag_seconds``, ``failures``,
    ``reason_code``, ``reason``, ``signals``, ``refused``, ``untold``, as last written."""
    updated_at: str


class AdvisoryInfo(TypedDict, total=False):
    """One thing a feed heard that only informs."""

    feed_id: str
    source_id: str
    quantity: str
    value: float | None
    unit: str
    text: str
    start: str
    end: str | None
    """None = until it is replaced."""
    quality: str
    """``measured``, ``published``, ``estimated`` or ``forecast``."""
    received_at: str


class EventInfo(TypedDict, total=False):
    """A period in which the site owes something."""

    event_id: str
    feed_id: str
    programme_id: str
    source_id: str
    revision: int
    request: Json
    """``start``, ``end``, ``target`` (``quantity`` and ``value``), ``kind``, ``priority``."""
    state: str
    reason: str
    why: str
    """The sentence of ``reason``."""
    voluntary: str
    """Reason code why nothing is owed; "" = it is owed."""
    voluntary_why: str | None
    """Its sentence."""
    received_at: str
    state_since: str
    limit_watts: float | None
    """What it asks for at the meter, after its feed's authority."""
    clamped_from_watts: float | None
    reference: Json | None
    """``watts``, ``method``, ``frozen_at``, ``window_seconds``, ``quality``."""
    latency_seconds: dict[str, float | None]
    """From its arrival to ``decided``, ``accepted`` and ``confirmed``."""
    unresolved_watts: float
    escalations: list[Json]
    """Rungs taken for GPUs that did not follow: ``at, job_id, rung, cause, gpu_count, gpu_ids,
    excess_watts, above_watts``."""
    power_watts: float


class JobInfo(TypedDict, total=False):
    """A job as the controller knows it."""

    job_id: str
    entrypoint: str
    gpus: int
    tier: str
    team: str
    priority: int
    placement: str
    state: str
    reason: str
    why: str
    """The sentence of ``reason``."""
    plan_reason: str | None
    plan_why: str | None
    """What the latest plan says about it."""
    submission_id: str | None
    """Ray's name for the present attempt."""
    attempt: int
    step: int
    saved_step: int | None
    checkpoint_path: str | None
    cap_watts: float | None
    """Of each of its GPUs; None at the found limits."""
    draw_watts: float
    """All its GPUs together, now."""
    lost_seconds: float
    """Full-throughput seconds lost to the grid in its tier's window."""
    loss_budget_seconds: float
    submitted_at: str
    started_at: str | None
    ended_at: str | None
    state_since: str
    exit_code: int | None
    message: str


class GpuInfo(TypedDict, total=False):
    """One GPU."""

    gpu_id: str
    node_id: str
    index: int
    model: str
    power_watts: float | None
    asked_limit_watts: float | None
    enforced_limit_watts: float | None
    found_limit_watts: float
    """The limit before gridaware changed anything."""
    least_limit_watts: float
    greatest_limit_watts: float
    asked_clock_mhz: float | None
    """The clock lock asked of it; None = none."""
    clock_lock: str | None
    """What became of that: ``set`` (the driver took it), ``kept`` (the clock was then read at or
    below it), ``exceeded`` (read above it: set again), or the code of the error; None = not known
    yet."""
    clock_mhz: float | None
    """The clock as it was read when ``clock_lock`` was found."""
    can_set: bool
    job_id: str | None
    unmanaged: bool
    error: str | None


class NodeInfo(TypedDict, total=False):
    """A node and the agent on it."""

    node_id: str
    state: str
    """``ready``, ``cordoned`` or ``lost``."""
    cluster_id: str
    connected: bool
    relay_id: str | None
    """The relay that its stream comes through; None = it dials the controller itself."""
    cordoned: bool
    acknowledged: bool
    """Whether the agent has confirmed all that was asked of it."""
    armed: bool
    """Whether it holds its next responses ready, as they were last given to it."""
    armed_responses: int
    power_watts: float
    gpus: list[GpuInfo]


class PolicyInfo(TypedDict, total=False):
    """One strategy plus its numbers."""

    name: str
    strategy: str
    params: dict[str, float]
    unmanaged_tier: str | None
    active: bool


class ProgrammeInfo(TypedDict, total=False):
    """A contract with the grid: the site's own, or one of the catalogue."""

    programme_id: str
    origin: str
    """``site`` or ``catalogue``."""
    catalogue: str | None
    """The entry that it follows."""
    name: str
    operator: str | None
    version: str | None
    """The rules that count at that time."""
    in_force: bool
    """False: no version is, as far as the catalogue knows, and the nearest is shown."""
    valid_from: str | None
    valid_to: str | None
    notice_seconds: float | None
    deadline_seconds: float | None
    mandatory: bool | None
    baseline: str | None
    baseline_available: bool
    """Whether the baseline it settles by is computed here."""
    sourced: int | None
    to_check: int | None
    """How many of its values are to be read in the tariff."""
    exclusive_with: list[str]
    summary: str
    time_zone: str | None
    versions: list[Json]
    exclusions: list[Json]
    terms: list[Json]
    """``term, value, words, mark, source, note``; only of one that was asked for by name."""
    caps_used: list[Json] | None
    """``cap, from, until, used, left``; None for one of the catalogue."""


class PowerPoint(TypedDict, total=False):
    """One value of a power series."""

    at: str
    series: str
    watts: float
    quality: str


class EnergyReport(TypedDict, total=False):
    """Where a period's energy went; each figure with method, coverage and error band."""

    start: str
    end: str
    meter: Json
    lines: list[Json]
    """Jobs, held idle, unallocated, unmanaged, overhead, unexplained: they sum to the meter."""
    jobs: list[Json]
    teams: list[Json]
    gpus: list[Json]
    warnings: list[str]


class Status(TypedDict, total=False):
    """The site now."""

    site: str
    act: bool
    policy: str
    power_watts: float
    gpu_power_watts: float
    target_watts: float | None
    unresolved_watts: float
    firm_floor_broken: bool
    acting_events: list[str]
    open_events: list[str]
    jobs: dict[str, int]
    """How many are in each state."""
    nodes: dict[str, int]
    gpus: Json
    alarms: list[str]
    updated_at: str
    meter: Json | None
    """Whose word ``power_watts`` is: meter, method, boundary, quality, accuracy and age."""
    meters: list[Json]
    """Every meter of the site, in the order in which they are believed, and how it is."""
