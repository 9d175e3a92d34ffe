"""Messages between the controller and the agents: plain values, encoded in ``node/frames.py``.

The agent dials out and says :class:`Hello`; the controller answers :class:`Welcome` or
:class:`Fenced` and from then on sends the *whole* desired state in each :class:`Desired`, so a lost
frame costs nothing. Each Desired is acknowledged with what was read back.

Ahead of time it sends :class:`Armed`, the node's next responses. A tiny :class:`Trigger` then does
what a Desired would, and is acknowledged as one; so does a local cause with no frame at all, which
the agent tells afterwards (:class:`Fired`, also in its Hello while that holds).

Beyond some 1,000 nodes agents dial a relay, which carries their streams inside one of its own:
after its :class:`RelayHello` each node's stream is a channel that opens, carries bytes and closes.
"""

from dataclasses import dataclass
from datetime import datetime

from gridaware.domain.fleet import Gpu
from gridaware.domain.lease import ArmedResponse, Lease, ScheduledResponse

__all__ = [
    "MESSAGES",
    "PROTOCOL_VERSION",
    "Acknowledged",
    "Armed",
    "ArmedAcknowledged",
    "CheckpointReport",
    "CheckpointRequest",
    "Command",
    "Desired",
    "Fenced",
    "Fired",
    "GpuResult",
    "GpuSample",
    "Heartbeat",
    "Hello",
    "JobGone",
    "JobProgress",
    "JobRegistered",
    "LockHeld",
    "NodeFault",
    "RelayClosed",
    "RelayHello",
    "RelayOpened",
    "Relayed",
    "Release",
    "Released",
    "Sample",
    "SampleBatch",
    "SampleRate",
    "Trigger",
    "Welcome",
]

PROTOCOL_VERSION = 1


@dataclass(frozen=True, slots=True)
class Fired:
    """Agent → controller: a cause on the node put an armed response in force.

    Told once when it happens, and in every Hello while that response is in force, so that a
    controller that was away learns of it.
    """

    node_id: str
    programme_id: str
    level: int | None
    """None = the cause is gone, and what was fired is let go."""
    depth: float
    lease_id: str
    """Of the lease that is in force since."""
    cause: str
    """``frequency``, …: which local watch it was."""
    measured: float | None
    """What it measured, in the watch's own unit (Hz for ``frequency``)."""
    at: datetime
    """By the node's wall clock."""
    age_seconds: float
    """Since then on the boot clock, when this was said."""
    duration_seconds: float | None
    """For which it holds from ``at`` on; None = until the programme's signal loss lets go."""


@dataclass(frozen=True, slots=True)
class Released:
    """A person has set a node free of its lease; told until a controller has surely heard it."""

    release_id: str
    lease_id: str
    event_ids: tuple[str, ...]
    """What the lease was for, where the release broke into it: those programmes are told."""
    actor: str
    reason: str
    at: datetime
    at_once: bool = False
    """Faster than the site's ramp, as the person has confirmed."""
    restored: bool = False
    """Every found limit stands again."""


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
    fresh: bool = False
    """It has no journal: limits that stand may be ours, and are not what was found."""
    releases: tuple[Released, ...] = ()
    """What persons have released and a controller may not know yet."""
    fired: Fired | None = None
    """What put its lease in force, where that was the node itself."""
    relay_id: str = ""
    """The relay that its stream comes through: set by the controller's link, never by a node."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """Controller → agent: accepted."""

    protocol_version: int
    controller_epoch: int
    sent_at: datetime
    silence_seconds: float
    """Without a frame for this long the agent considers the controller gone."""
    sample_hz: float
    stand_in: bool = False
    """No controller, only who releases the fleet while there is none: it keeps nothing it hears."""


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
    found_watts: tuple[tuple[str, float], ...] = ()
    """What the controller remembers as found, for an agent that has lost its journal."""


@dataclass(frozen=True, slots=True)
class LockHeld:
    """What became of one GPU's clock lock. No driver says what lock stands, but the clock shows it.

    A clock at or below the lock is all that can be seen of it, and little while nothing runs.
    """

    asked_mhz: float
    state: str
    """``set``: the driver took it, and the clock has not been read since it settled; ``kept``: it
    was then read at or below it; ``exceeded``: it was read above it, so the lock is set again; else
    the code of the error."""
    clock_mhz: float | None = None
    """As read when ``state`` was found."""


@dataclass(frozen=True, slots=True)
class GpuResult:
    """What became of one GPU's limit."""

    gpu_id: str
    asked_watts: float
    enforced_watts: float | None
    """Read back from the driver; None where it could not be read."""
    error: str | None = None
    """Code of :mod:`gridaware.domain.errors` where the write or the read-back failed."""
    after_seconds: float | None = None
    """On the agent's boot clock, from the receipt of the frame to the read-back; None = not known,
    as where a restarted agent answers again."""
    lock: LockHeld | None = None
    """Its clock lock, where the lease asks one."""


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
    over: bool = False
    """What was told under this code of that GPU, or of the node, holds no longer."""


@dataclass(frozen=True, slots=True)
class Armed:
    """Controller → agent: every response that it shall hold ready; replaces all earlier ones."""

    controller_epoch: int
    revision: int
    """Grows with each."""
    sent_at: datetime
    expires_at: datetime
    """Only the difference from ``sent_at`` is used: beyond it ``responses`` are never fired.
    ``scheduled`` ones hold for their own windows."""
    responses: tuple[ArmedResponse, ...] = ()
    scheduled: tuple[ScheduledResponse, ...] = ()


@dataclass(frozen=True, slots=True)
class ArmedAcknowledged:
    """Agent → controller: this revision is held, and found limits are safe in the journal."""

    node_id: str
    controller_epoch: int
    revision: int


@dataclass(frozen=True, slots=True)
class Trigger:
    """Controller → agent: put one armed response in force, as a Desired with its lease would."""

    controller_epoch: int
    sequence: int
    """Counted together with those of Desired."""
    decision_id: str
    revision: int
    """Of the Armed that holds the response: another one is refused."""
    programme_id: str
    level: int
    event_id: str
    duration_seconds: float | None
    """From receipt; None = an event without an end."""


@dataclass(frozen=True, slots=True)
class Release:
    """Controller → agent: a person sets the node free, in its slot of the ramp or at once."""

    actor: str
    reason: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class RelayHello:
    """Relay → controller, first frame; the answer is a Welcome. It speaks for no node yet."""

    protocol_version: int
    relay_id: str
    relay_version: str


@dataclass(frozen=True, slots=True)
class RelayOpened:
    """Relay → controller: a node has dialled the relay and has proved this certificate to it."""

    channel: int
    """Of this connection of the node: never used again, so a late frame cannot reach a new one."""
    certificate: bytes
    """DER."""


@dataclass(frozen=True, slots=True)
class RelayClosed:
    """Either way: the node's stream is over, after whatever was sent before."""

    channel: int


@dataclass(frozen=True, slots=True)
class Relayed:
    """Either way: bytes of nodes' own streams, exactly as they are; a relay does not read them."""

    parcels: tuple[tuple[tuple[int, ...], bytes], ...]
    """(channels, bytes for each of them), in order."""


Command = Desired | Armed | Trigger | CheckpointRequest | SampleRate | Release
"""What a controller tells an agent once it has welcomed it."""

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
    Armed,
    ArmedAcknowledged,
    Trigger,
    Fired,
    Release,
    RelayHello,
    RelayOpened,
    RelayClosed,
    Relayed,
)
"""Every frame type. The position is its tag on the wire: append only."""
