"""Everything that can happen to the machine. Plain values with ids: each is ledgered as it is.

The messages of the agents (:mod:`gridaware.domain.wire`) are stimuli just as they arrive.
"""

from dataclasses import dataclass

from gridaware.control.site import Site
from gridaware.domain.job import JobSpec
from gridaware.domain.programme import FeedSpec
from gridaware.domain.reading import Observation
from gridaware.domain.signal import Signal
from gridaware.domain.wire import (
    Acknowledged,
    ArmedAcknowledged,
    CheckpointReport,
    Fired,
    Hello,
    JobGone,
    JobProgress,
    JobRegistered,
    NodeFault,
)

__all__ = [
    "STIMULI",
    "AttemptStatus",
    "Dispatched",
    "EventCommanded",
    "FeedAdded",
    "FeedRemoved",
    "FleetReleased",
    "InputRefused",
    "JobCommanded",
    "JobSubmitted",
    "NodeCommanded",
    "NodeLost",
    "RunnerReported",
    "SignalReceived",
    "SiteConfigured",
    "Started",
    "Stimulus",
    "SubmitFailed",
    "Tick",
]


@dataclass(frozen=True, slots=True)
class Started:
    """A controller took over the store under a new epoch."""

    controller_epoch: int


@dataclass(frozen=True, slots=True)
class SiteConfigured:
    """The operator's settings, at each start and change."""

    site: Site


@dataclass(frozen=True, slots=True)
class FeedAdded:
    """A feed was registered, or its settings were replaced."""

    spec: FeedSpec
    actor: str


@dataclass(frozen=True, slots=True)
class FeedRemoved:
    """A feed was removed; its open events go on."""

    feed_id: str
    actor: str


@dataclass(frozen=True, slots=True)
class SignalReceived:
    """A feed heard something."""

    signal: Signal


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The frames of a decision were handed to the agents' streams."""

    decision_id: str


@dataclass(frozen=True, slots=True)
class InputRefused:
    """Something from outside was refused at the door; kept so that nothing is lost."""

    source: str
    code: str
    message: str
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """The world was read."""

    observation: Observation


@dataclass(frozen=True, slots=True)
class NodeLost:
    """An agent's stream ended or fell silent."""

    node_id: str


@dataclass(frozen=True, slots=True)
class NodeCommanded:
    """An operator cordons or uncordons a node."""

    node_id: str
    verb: str
    actor: str


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A user submitted a job."""

    spec: JobSpec
    actor: str


@dataclass(frozen=True, slots=True)
class JobCommanded:
    """A user commands a job: pause, resume, hold, release, stop."""

    job_id: str
    verb: str
    actor: str


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """One attempt as the cluster sees it."""

    job_id: str
    attempt: int
    status: str
    exit_code: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class RunnerReported:
    """Attempts whose status changed in the cluster."""

    attempts: tuple[AttemptStatus, ...]


@dataclass(frozen=True, slots=True)
class SubmitFailed:
    """The cluster did not take a submission."""

    job_id: str
    attempt: int
    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class EventCommanded:
    """A person cancels an event of ours or opts out of one of the grid's."""

    event_id: str
    verb: str
    actor: str


@dataclass(frozen=True, slots=True)
class FleetReleased:
    """A person gives every limit back: by the ramp, or at once."""

    actor: str
    reason: str
    at_once: bool


Stimulus = (
    Started
    | SiteConfigured
    | FeedAdded
    | FeedRemoved
    | SignalReceived
    | Dispatched
    | InputRefused
    | Tick
    | Hello
    | NodeLost
    | NodeFault
    | NodeCommanded
    | Acknowledged
    | JobSubmitted
    | JobCommanded
    | JobRegistered
    | JobProgress
    | JobGone
    | CheckpointReport
    | RunnerReported
    | SubmitFailed
    | EventCommanded
    | FleetReleased
    | ArmedAcknowledged
    | Fired
)
STIMULI: tuple[type, ...] = (
    Started,
    SiteConfigured,
    FeedAdded,
    FeedRemoved,
    SignalReceived,
    Dispatched,
    InputRefused,
    Tick,
    Hello,
    NodeLost,
    NodeFault,
    NodeCommanded,
    Acknowledged,
    JobSubmitted,
    JobCommanded,
    JobRegistered,
    JobProgress,
    JobGone,
    CheckpointReport,
    RunnerReported,
    SubmitFailed,
    EventCommanded,
    FleetReleased,
    ArmedAcknowledged,
    Fired,
)
