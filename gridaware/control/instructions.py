"""Everything the machine can ask for: plain values with ids, ledgered and compared as they are."""

from collections.abc import Iterable
from dataclasses import dataclass

from gridaware.domain.lease import ArmedResponse, Lease, ScheduledResponse
from gridaware.domain.plan import Action
from gridaware.domain.wire import CheckpointRequest, Trigger

__all__ = [
    "INSTRUCTIONS",
    "Alarm",
    "Answer",
    "Decide",
    "Decided",
    "Instruction",
    "Publish",
    "SampleAt",
    "SendArms",
    "SendCheckpoint",
    "SendLease",
    "SendTrigger",
    "SettleEvent",
    "StopJob",
    "SubmitJob",
    "TellFeed",
    "decided",
]


@dataclass(frozen=True, slots=True)
class SendLease:
    """Give a node its whole desired state."""

    node_id: str
    sequence: int
    decision_id: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class SendArms:
    """Give a node every response that it shall hold ready, for so many seconds."""

    node_id: str
    revision: int
    seconds: float
    responses: tuple[ArmedResponse, ...]
    scheduled: tuple[ScheduledResponse, ...] = ()


@dataclass(frozen=True, slots=True)
class SendTrigger:
    """Have a node put one of them in force."""

    node_id: str
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class SendCheckpoint:
    """Ask a job, through the agent of one of its nodes, to save (and leave)."""

    node_id: str
    request: CheckpointRequest


@dataclass(frozen=True, slots=True)
class SampleAt:
    """Read the world this often: agents' samples and our own ticks."""

    hz: float


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Start an attempt of a job in the cluster."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StopJob:
    """End an attempt in the cluster."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class TellFeed:
    """Answer the grid's side about an event."""

    event_id: str
    status: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a signal or a command; shown to whoever sent it."""

    disposition: str
    """``accepted``, ``duplicate``, ``superseded``, ``clamped``, ``opted-out`` or ``refused``."""
    subject: str = ""
    code: str = ""
    message: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something a person should know now."""

    code: str
    message: str
    subject: str = ""


Decided = tuple[str, str, float, float, float, str, tuple[float, ...]]
"""(job, action, cap W, expected W, expected throughput, reason, its numbers)"""


def decided(actions: Iterable[Action]) -> tuple[Decided, ...]:
    """Actions of a plan as the ledger keeps them."""
    return tuple(
        (
            a.job_id,
            a.kind.name,
            a.cap_watts,
            a.expected_watts,
            a.expected_throughput,
            a.reason,
            a.numbers,
        )
        for a in actions
    )


@dataclass(frozen=True, slots=True)
class Decide:
    """A decision, for the ledger: what was asked, what was planned and why."""

    decision_id: str
    event_ids: tuple[str, ...]
    strategy: str
    target_watts: float | None
    """At the meter."""
    target_gpu_watts: float | None
    expected_gpu_watts: float
    unresolved_watts: float
    actions: tuple[Decided, ...]


@dataclass(frozen=True, slots=True)
class SettleEvent:
    """Compute an event's report."""

    event_id: str
    final: bool


@dataclass(frozen=True, slots=True)
class Publish:
    """A thing that people read has changed."""

    kind: str
    id: str


Instruction = (
    SendLease
    | SendCheckpoint
    | SampleAt
    | SubmitJob
    | StopJob
    | TellFeed
    | Answer
    | Alarm
    | Decide
    | SettleEvent
    | Publish
    | SendArms
    | SendTrigger
)
INSTRUCTIONS: tuple[type, ...] = (
    SendLease,
    SendCheckpoint,
    SampleAt,
    SubmitJob,
    StopJob,
    TellFeed,
    Answer,
    Alarm,
    Decide,
    SettleEvent,
    Publish,
    SendArms,
    SendTrigger,
)
