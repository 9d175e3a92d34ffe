"""Messages between the controller and the agents: plain values, encoded in ``node/frames.py``.

The agent dials out and says :class:`Hello`; the controller answers :class:`Welcome` or
:class:`Fenced` and from then on sends the *whole* desired state in each :class:`Desired`, so a lost
frame costs nothing. Each Desired is acknowledged with what was read back.
"""

from dataclasses import dataclass
from datetime import datetime

from gridaware.domain.fleet import Gpu
from gridaware.domain.lease import Lease

__all__ = [
    "MESSAGES",
    "PROTOCOL_VERSION",
    "Acknowledged",
    "CheckpointReport",
    "CheckpointRequest",
    "Desired",
    "Fenced",
    "GpuResult",
    "GpuSample",
    "Heartbeat",
    "Hello",
    "JobGone",
    "JobProgress",
    "JobRegistered",
    "NodeFault",
    "Sample",
    "SampleBatch",
    "SampleRate",
    "Welcome",
]

PROTOCOL_VERSION = 1


@dataclass(frozen=True, slots=True)
class Hello:
    """Agent → controller, first frame: who it is and what it holds."""

    protocol_version: int
    node_id: str
    agent_version: str
    boot_id: str
    driver_epoch: str
    gpus: tuple[Gpu, ...]
    capabilities: tuple[str, ...]
    last_epoch: int
    """Highest controller epoch it has obeyed; an older controller is fenced."""
    lease: Lease | None
    """What it still holds, from its journal."""
    lease_left_seconds: float | None
    cluster_id: str = "default"
    agent_socket: str = ""


@dataclass(frozen=True, slots=True)
class Welcome:
    """Controller → agent: accepted."""

    protocol_version: int
    controller_epoch: int
    sent_at: datetime
    silence_seconds: float
    """Without a frame for this long the agent considers the controller gone."""
    sample_hz: float


@dataclass(frozen=True, slots=True)
class Fenced:
    """Either way: this peer is not obeyed, and why (a stable code)."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Either way, about once a second when nothing else is sent."""

    sent_at: datetime


@dataclass(frozen=True, slots=True)
class SampleRate:
    """Controller → agent: sample this often from now on (10 Hz around commands, else 1 Hz)."""

    sample_hz: float


@dataclass(frozen=True, slots=True)
class Desired:
    """Controller → agent: everything it shall hold."""

    controller_epoch: int
    sequence: int
    decision_id: str
    sent_at: datetime
    expires_at: datetime | None
    """``sent_at`` + the lease's duration; only their difference is used."""
    lease: Lease


@dataclass(frozen=True, slots=True)
class GpuResult:
    """What became of one GPU's limit."""

    gpu_id: str
    asked_watts: float
    enforced_watts: float | None
    """Read back from the driver; None where it could not be read."""
    error: str | None = None
    """Code of :mod:`gridaware.domain.errors` where the write or the read-back failed."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Agent → controller: a Desired was carried out (perhaps in part: more may follow)."""

    node_id: str
    controller_epoch: int
    sequence: int
    decision_id: str
    results: tuple[GpuResult, ...]
    complete: bool
    """Every GPU of the lease has a result."""
    at: datetime


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at one instant."""

    gpu_id: str
    power_watts: float
    energy_joules: float | None
    enforced_watts: float
    requested_watts: float
    quality: str
    job_id: str | None
    attempt: int
    unmanaged: bool
    cap_binds: bool | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """All GPUs of a node at one instant."""

    at: datetime
    gpus: tuple[GpuSample, ...]


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Agent → controller: up to ten samples."""

    node_id: str
    driver_epoch: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class JobRegistered:
    """Agent → controller: a process of a job has registered at the agent's socket."""

    node_id: str
    job_id: str
    attempt: int
    rank: int
    pid: int
    gpu_ids: tuple[str, ...]
    resumed_step: int | None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Agent → controller, about once a second while a job steps."""

    node_id: str
    job_id: str
    attempt: int
    rank: int
    step: int
    steps_per_second: float
    busy: str | None = None


@dataclass(frozen=True, slots=True)
class JobGone:
    """Agent → controller: a registered process ended (the kernel closed its socket)."""

    node_id: str
    job_id: str
    attempt: int
    rank: int
    pid: int
    left_pids: tuple[int, ...] = ()
    """Children still alive on its GPUs after the grace."""


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """Controller → agent → job: save, and leave if ``pause``."""

    request_id: str
    job_id: str
    attempt: int
    pause: bool
    deadline_seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """Agent → controller: what became of a request."""

    node_id: str
    request_id: str
    job_id: str
    attempt: int
    outcome: str
    """``saved`` (manifest verified by the agent), ``left`` (saved, and no process is left),
    ``refused``, ``invalid`` (a manifest that does not verify), ``late`` (deadline passed), ``gone``
    (the process ended without saving)."""
    step: int | None = None
    path: str | None = None
    message: str = ""
    left_pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeFault:
    """Agent → controller: something a person should know (drift, lost GPU, hung driver, …)."""

    node_id: str
    code: str
    gpu_id: str | None
    message: str


MESSAGES: tuple[type, ...] = (
    Hello,
    Welcome,
    Fenced,
    Heartbeat,
    SampleRate,
    Desired,
    Acknowledged,
    SampleBatch,
    JobRegistered,
    JobProgress,
    JobGone,
    CheckpointRequest,
    CheckpointReport,
    NodeFault,
)
"""Every frame type. The position is its tag on the wire: append only."""
