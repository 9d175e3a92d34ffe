"""What the machine remembers. Only :mod:`gridaware.control.machine` changes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gridaware.control.armed import Armoury, NodeArms
from gridaware.control.escalation import Follow
from gridaware.control.instructions import Alarm, Answer, Instruction, Publish, TellFeed
from gridaware.control.ridethrough import RideThrough
from gridaware.control.site import Site
from gridaware.control.takeover import Takeover
from gridaware.domain.curve import Curve
from gridaware.domain.event import GridEvent
from gridaware.domain.fleet import Node
from gridaware.domain.job import Job
from gridaware.domain.lease import Lease
from gridaware.domain.moment import Moment
from gridaware.domain.programme import FeedSpec
from gridaware.domain.reading import MeterState, Reading
from gridaware.domain.wire import GpuResult
from gridaware.planning.budget import LossAccount
from gridaware.planning.learning import CurveLearner
from gridaware.planning.model import CurveBook
from gridaware.planning.tracking import Tracker

__all__ = ["EventTrack", "GpuTrack", "JobTrack", "NodeTrack", "State", "Turn"]

STANDING_ALARMS = frozenset(
    {
        "device-no-permission",
        "firm-floor-broken",
        "gpu-lost",
        "gpu-not-following",
        "job-stalled",
        "limit-not-set",
        "meter-implausible",
        "meter-silent",
        "meter-stale",
        "meter-stuck",
        "node-lost",
        "node-silent",
        "pause-refused",
        "ray-silent",
        "readings-missing",
        "unresolved-watts",
    }
)
"""Alarms that whoever raised them takes down again; any other tells of something that happened."""
TOLD_SECONDS = 900.0
"""How long what happened stays among the alarms."""
METER_HISTORY = 1800
"""Meter readings kept for references: half an hour at one a second."""


@dataclass(slots=True)
class GpuTrack:
    """One GPU as last observed."""

    gpu_id: str
    node_id: str
    power_watts: float = 0.0
    enforced_watts: float = 0.0
    job_id: str | None = None
    unmanaged: bool = False
    seen_seconds: float = -1e9
    learner: CurveLearner | None = None
    """Of a GPU with processes that are not ours, where the policy may cap it."""
    curve: Curve | None = None
    error: str | None = None
    """Why its limit could not be set, as last acknowledged."""
    read_seconds: float = -1e9
    """When its power was last read anew."""
    judged_seconds: float = -1e9
    """The reading by which it was last judged."""
    follow: Follow | None = None
    """How it follows the cap that it was given; None = it has none."""

    @property
    def astray(self) -> bool:
        """Whether it draws more than its cap allows."""
        return self.follow is not None and bool(self.follow.astray)


@dataclass(slots=True)
class NodeTrack:
    """A node, what it was told and what it said."""

    node: Node
    lease: Lease
    decision_id: str = ""
    sequence: int = 0
    """Of the last desired state sent."""
    acked_sequence: int = 0
    limits_watts: dict[str, float] = field(default_factory=dict)
    """In force by our last word, whatever they are for."""
    standing_watts: dict[str, float] = field(default_factory=dict)
    """What the connection limit alone asks: it holds without an end."""
    lease_seconds: float = 0.0
    """When the lease was last sent."""
    lease_ends_seconds: float | None = None
    """When what was last sent ends; None = not by itself."""
    agent_socket: str = ""
    forgetful: bool = False
    """Its journal is lost, and it has not been told yet what was found."""
    results: dict[str, GpuResult] = field(default_factory=dict)
    arms: NodeArms = field(default_factory=NodeArms)

    def raised_watts(self, limits_watts: Mapping[str, float]) -> float:
        """Limit watts that come back when the node restores: more than it then draws more."""
        found = {gpu.gpu_id: gpu.found_limit_watts for gpu in self.node.gpus}
        return sum(found.get(gpu_id, watts) - watts for gpu_id, watts in limits_watts.items())


@dataclass(slots=True)
class JobTrack:
    """A job, and what is known of it beyond its life cycle."""

    job: Job
    nodes: dict[str, list[int]] = field(default_factory=dict)
    """Node → pids of its registered processes of the present attempt."""
    draw_watts: float = 0.0
    """Of all its GPUs, as last observed."""
    learner: CurveLearner = field(default_factory=CurveLearner)
    curve: Curve | None = None
    """Made from ``learner`` when it is next needed; None = make it anew."""
    curve_of: str = ""
    """The GPUs that it was made for: a job may come to others than those it was awaited on."""
    account: LossAccount = field(default_factory=LossAccount)
    loss_budget_seconds: float = 0.0
    """What it may still lose within its tier's window."""
    lost_seconds: float = 0.0
    """Full-throughput seconds lost so far to caps and pauses."""
    account_seconds: float = 0.0
    """Until when ``account`` was kept."""
    steps_per_second: float = 0.0
    progress_seconds: float = 0.0
    """When it last made a step (or came to its state)."""
    state_seconds: float = 0.0
    """When it came to its state."""
    changed_seconds: float = -1e9
    """When it was last paused or resumed."""
    paused_by: str = ""
    """``event``, or the user who paused it and alone resumes it."""
    no_pause_until_seconds: float = -1e9
    """After a refused pause it is not asked again before then."""
    saved: bool = False
    """The pending request has a verified manifest."""
    staying: list[str] = field(default_factory=list)
    """Nodes on which processes of the attempt may still be, since it was asked to leave."""
    ended: str = ""
    """Terminal status of the attempt in the cluster, where it has one."""
    stopping: str = ""
    """Who asked for the job to be stopped."""
    plan_reason: str = ""
    """Why the last plan did what it did to the job, and its numbers."""
    plan_numbers: tuple[float, ...] = ()
    retry_seconds: float = -1e9
    """Not submitted again before then."""


@dataclass(slots=True)
class EventTrack:
    """An event, and what is awaited for its clocks."""

    event: GridEvent
    decision_id: str = ""
    """Its first decision."""
    awaiting: dict[str, int] = field(default_factory=dict)
    """Node → sequence whose acknowledgement its *accepted* clock waits for."""
    fired_by: dict[str, float] = field(default_factory=dict)
    """Node → depth that it fired by itself and has not let go of."""
    below_since_seconds: float | None = None
    """Since when observed power has stayed at or below the target."""
    restored_seconds: float = 0.0
    released_watts: float = 0.0
    judged: bool = False
    """Its deadline is over: what cannot be shed is counted."""


@dataclass(slots=True)
class State:
    """Everything a later decision may depend on; serialisable as it is."""

    site: Site = field(default_factory=Site)
    controller_epoch: int = 0
    sequence: int = 0
    decisions: int = 0
    requests: int = 0
    feeds: dict[str, FeedSpec] = field(default_factory=dict)
    registered: dict[str, datetime] = field(default_factory=dict)
    """Feed → when it was registered first."""
    events: dict[str, EventTrack] = field(default_factory=dict)
    tombstones: dict[str, int] = field(default_factory=dict)
    """Events cancelled before they were ever announced → the cancelling revision."""
    nodes: dict[str, NodeTrack] = field(default_factory=dict)
    gpus: dict[str, GpuTrack] = field(default_factory=dict)
    jobs: dict[str, JobTrack] = field(default_factory=dict)
    meter: list[tuple[float, float]] = field(default_factory=list)
    """(monotonic seconds, site watts), oldest first."""
    meter_watts: float = 0.0
    meter_silent: bool = False
    """``meter_watts`` is held, or made from the GPUs' readings, for want of the meter's."""
    gpu_watts: float = 0.0
    ray_free_gpus: float | None = None
    ray_total_gpus: float | None = None
    ray_seconds: float = 0.0
    """When it last answered, or was last not needed."""
    offset_watts: float = 0.0
    """At the meter, beyond what the overhead model says; learned from settled readings."""
    offset_seconds: float = -1e9
    ride: RideThrough = RideThrough()
    """Disturbances of the supply: while one lasts nothing is learned and no reading acts."""
    tracker: Tracker = field(default_factory=Tracker)
    target_watts: float | None = None
    """At the meter, in force now."""
    unresolved_watts: float = 0.0
    expected_watts: float = 0.0
    """What the plan in force expects at the meter, now."""
    owed_watts: float | None = None
    """What the binding event allows; None = nothing is owed."""
    descent_seconds: float | None = None
    """When the ramp down of what binds began."""
    descent_watts: float = 0.0
    release_seconds: float | None = None
    """When the site was last set free and has not come all the way back."""
    release_watts: float = 0.0
    at_once_seconds: float = -1e9
    """When a person last had everything come back faster than by the ramp."""
    slots_seconds: float = 0.0
    """After the release: when the last restore slot of the agents would have ended."""
    ceiling_watts: float | None = None
    """The pre-event level, not to be exceeded while the site comes back."""
    firm_floor_broken: bool = False
    admission_stopped: bool = False
    planned_seconds: float = -1e9
    armoury: Armoury = field(default_factory=Armoury)
    sample_hz: float = 1.0
    busy_until_seconds: float = -1e9
    """Fast ticks until then."""
    alarms: dict[str, float] = field(default_factory=dict)
    """Standing alarms → since when, so that each is raised once."""
    reading: Reading | None = None
    """What ``meter_watts`` was last made from, and whose it is."""
    meters: tuple[MeterState, ...] = ()
    """Every meter of the site, in their order, as last looked at."""
    gpu_history: list[tuple[float, float]] = field(default_factory=list)
    """(monotonic seconds, watts) of all GPUs, oldest first; carries an old meter reading on."""
    takeover: Takeover = Takeover()
    """Nodes that this controller has not heard yet: until then it plans nothing."""

    def meter_of(self, gpu_watts: float) -> float:
        """What the meter shows while the GPUs draw that much."""
        return self.site.overhead.meter_watts(gpu_watts) + self.offset_watts

    @property
    def ramp_waived(self) -> bool:
        """Whether a person has confirmed that this way back is faster than the ramp."""
        return self.release_seconds is not None and self.release_seconds <= self.at_once_seconds

    def reached_watts(self, now_seconds: float) -> float | None:
        """How far the way back has come under the ramp; None = there is none, or no ramp."""
        ramp = self.site.ramp.up_watts_per_minute
        if ramp is None or self.release_seconds is None or self.ramp_waived:
            return None
        return self.release_watts + ramp * max(now_seconds - self.release_seconds, 0.0) / 60.0

    def gpu_share_of(self, meter_watts: float) -> float:
        """What the GPUs may draw so that the meter shows no more than that."""
        return self.site.overhead.gpu_watts(meter_watts - self.offset_watts)


@dataclass(slots=True)
class Turn:
    """One call of the machine: the state, the moment, and what comes out."""

    state: State
    now: Moment
    book: CurveBook
    out: list[Instruction] = field(default_factory=list)
    published: dict[tuple[str, str], None] = field(default_factory=dict)

    def idle_watts_of(self, gpu_id: str) -> float:
        """What a GPU of that model draws with nothing on it."""
        track = self.state.gpus.get(gpu_id)
        node = self.state.nodes.get(track.node_id) if track else None
        gpu = next((g for g in node.node.gpus if g.gpu_id == gpu_id), None) if node else None
        return self.book.gpu(gpu.model, gpu.limits).idle_watts if gpu else 0.0

    def emit(self, instruction: Instruction) -> None:
        """Add an instruction."""
        self.out.append(instruction)

    def publish(self, kind: str, thing_id: str) -> None:
        """Say, once, that a thing which people read has changed."""
        self.published[kind, thing_id] = None

    def answer(self, disposition: str, subject: str = "", **rest: str | int) -> None:
        """Answer whoever sent the stimulus."""
        self.out.append(Answer(disposition, subject, **rest))  # type: ignore[arg-type]

    def tell_feed(self, event_id: str, status: str) -> None:
        """Answer the grid's side about an event."""
        self.out.append(TellFeed(event_id, status))

    def refuse(self, code: str, message: str, subject: str = "") -> None:
        """Answer that nothing is done, and why."""
        self.out.append(Answer("refused", subject, code, message))

    def alarm(self, code: str, message: str, subject: str = "") -> None:
        """Raise an alarm, once for as long as it stands."""
        key = f"{code}/{subject}"
        if key not in self.state.alarms:
            self.out.append(Alarm(code, message, subject))
            self.publish("status", "site")
        self.state.alarms[key] = self.now.seconds

    def forget_told_alarms(self) -> None:
        """Take down alarms that tell of a thing that happened, not of one that stands."""
        for key, since in list(self.state.alarms.items()):
            code, _, subject = key.partition("/")
            if code not in STANDING_ALARMS and self.now.seconds - since > TOLD_SECONDS:
                self.calm(code, subject)

    def calm(self, code: str, subject: str = "") -> None:
        """An alarm no longer stands."""
        if self.state.alarms.pop(f"{code}/{subject}", None) is not None:
            self.publish("status", "site")

    def instructions(self) -> list[Instruction]:
        """Everything, publications last and once each."""
        return self.out + [Publish(kind, thing_id) for kind, thing_id in self.published]
