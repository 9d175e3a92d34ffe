"""The JSON of the API as types: what each answer is made of, in which units."""

from typing import Any, TypedDict

__all__ = [
    "EnergyReport",
    "EventInfo",
    "FeedInfo",
    "GpuInfo",
    "JobInfo",
    "Json",
    "NodeInfo",
    "PolicyInfo",
    "PowerPoint",
    "Status",
]

Json = dict[str, Any]


class FeedInfo(TypedDict, total=False):
    """A registered source of signals."""

    feed_id: str
    kind: str
    programme_id: str
    authority: dict[str, float]
    settings: Json
    last_signal_at: str | None
    error: str | None


class EventInfo(TypedDict, total=False):
    """A period in which the site owes something."""

    event_id: str
    feed_id: str
    programme_id: str
    revision: int
    kind: str
    state: str
    reason: str
    message: str
    start: str
    end: str | None
    target: dict[str, float]
    limit_watts: float | None
    reference_watts: float | None
    unresolved_watts: float


class JobInfo(TypedDict, total=False):
    """A job as the controller knows it."""

    job_id: str
    state: str
    reason: str
    message: str
    tier: str
    team: str
    priority: int
    gpus: int
    attempt: int
    step: int
    saved_step: int | None
    cap_watts: float | None
    submitted_at: str
    started_at: str | None
    ended_at: str | None
    exit_code: int | None


class GpuInfo(TypedDict, total=False):
    """One GPU."""

    gpu_id: str
    node_id: str
    index: int
    model: str
    power_watts: float
    enforced_limit_watts: float
    found_limit_watts: float
    job_id: str | None
    quality: str


class NodeInfo(TypedDict, total=False):
    """A node and the agent on it."""

    node_id: str
    connected: bool
    cordoned: bool
    age_seconds: float
    power_watts: float
    gpus: list[GpuInfo]


class PolicyInfo(TypedDict, total=False):
    """One strategy plus its numbers."""

    name: str
    strategy: str
    params: dict[str, float]
    active: bool


class PowerPoint(TypedDict, total=False):
    """One value of a power series."""

    at: str
    series: str
    watts: float
    quality: str


class EnergyReport(TypedDict, total=False):
    """Energy in joules by GPU, job or team, each line with method, coverage and error band."""

    start: str
    end: str
    lines: list[Json]


class Status(TypedDict, total=False):
    """The site now."""

    site: str
    act: bool
    meter_watts: float
    target_watts: float | None
    unresolved_watts: float
    age_seconds: float
