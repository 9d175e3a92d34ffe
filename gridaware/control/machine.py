"""The machine: the only mutator, deterministic, without clock or I/O.

``handle(stimulus, now)`` changes the state and returns instructions. The same stimuli at the same
moments give the same state and the same instructions, so an event is replayed from its ledger.
"""

from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType
from typing import Any

from gridaware.control import arming, events, firing, fleet, jobs, power, readings, signals
from gridaware.control.fired import on_fired
from gridaware.control.instructions import Instruction
from gridaware.control.released import note_releases, release_fleet
from gridaware.control.ridethrough import RideThrough
from gridaware.control.state import State, Turn
from gridaware.control.stimuli import (
    Dispatched,
    EventCommanded,
    FeedAdded,
    FeedRemoved,
    FleetReleased,
    InputRefused,
    JobCommanded,
    JobSubmitted,
    NodeCommanded,
    NodeLost,
    RunnerReported,
    SignalReceived,
    SiteConfigured,
    Started,
    Stimulus,
    SubmitFailed,
    Tick,
)
from gridaware.control.takeover import Takeover
from gridaware.domain.errors import Bug
from gridaware.domain.moment import Moment
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
from gridaware.planning.model import CurveBook

__all__ = ["Machine"]


class Machine:
    """Holds the state and the curves, and hands each stimulus to the module that knows it."""

    def __init__(self, book: CurveBook, state: State | None = None) -> None:
        self.book = book
        self.state = state if state is not None else State()

    def handle(self, stimulus: Stimulus, now: Moment) -> list[Instruction]:
        """Take one stimulus in and say what to do.

        Raises:
            Bug: nothing handles that type.
        """
        turn = Turn(self.state, now, self.book)
        handler = _HANDLERS.get(type(stimulus))
        if handler is None:
            raise Bug("stimulus-unhandled", f"nothing handles {type(stimulus).__name__}")
        handler(turn, stimulus)
        return turn.instructions()


def _started(turn: Turn, stimulus: Started) -> None:
    state = turn.state
    state.controller_epoch = stimulus.controller_epoch
    state.ride = RideThrough()
    connected = [node_id for node_id, node in state.nodes.items() if node.node.connected]
    state.takeover = state.takeover.begun(turn.now, connected)
    for node in state.nodes.values():
        # Each agent says hello again and is then told everything anew. Sequences go on, since
        # events may still wait for the acknowledgement of one.
        node.decision_id = node.decision_id or node.lease.lease_id
        if node.node.connected:
            fleet.on_node_lost(turn, node.node.node_id)
    jobs.submit_again(turn)
    for track in state.jobs.values():
        track.progress_seconds = turn.now.seconds  # nobody listened meanwhile: that is no stall
    turn.publish("status", "site")


def _configured(turn: Turn, stimulus: SiteConfigured) -> None:
    turn.state.site = stimulus.site
    for spec in stimulus.site.feeds:
        turn.state.feeds[spec.feed_id] = spec
        turn.state.registered.setdefault(spec.feed_id, turn.now.wall)
        turn.publish("feed", spec.feed_id)
    turn.publish("status", "site")
    turn.publish("policy", stimulus.site.policy.name)


def _feed_added(turn: Turn, stimulus: FeedAdded) -> None:
    known = turn.state.feeds.get(stimulus.spec.feed_id)
    turn.state.feeds[stimulus.spec.feed_id] = stimulus.spec
    turn.state.registered.setdefault(stimulus.spec.feed_id, turn.now.wall)
    turn.publish("feed", stimulus.spec.feed_id)
    turn.answer("duplicate" if known == stimulus.spec else "accepted", stimulus.spec.feed_id)


def _feed_removed(turn: Turn, stimulus: FeedRemoved) -> None:
    if turn.state.feeds.pop(stimulus.feed_id, None) is None:
        turn.refuse("feed-unknown", f"no feed is called {stimulus.feed_id!r}", stimulus.feed_id)
        return
    turn.state.registered.pop(stimulus.feed_id, None)
    turn.publish("feed", stimulus.feed_id)
    turn.answer("accepted", stimulus.feed_id)


def _signal(turn: Turn, stimulus: SignalReceived) -> None:
    signals.on_signal(turn, stimulus.signal)
    events.advance_events(turn)
    _answer_grid(turn, urgent=True)


def _answer_grid(turn: Turn, *, urgent: bool) -> None:
    """What is armed answers first; the plan answers what nothing armed, or not all of it, did."""
    shot = firing.fire(turn)
    if shot is None or not shot.enough:
        power.steer(turn, urgent=urgent or shot is not None)
    if shot is not None and not shot.enough:
        firing.note_shot(turn, shot)


def _event_commanded(turn: Turn, stimulus: EventCommanded) -> None:
    track = turn.state.events.get(stimulus.event_id)
    if track is None:
        turn.refuse("event-unknown", f"no event is called {stimulus.event_id!r}", stimulus.event_id)
    elif not track.event.state.open:
        turn.refuse(
            "event-closed",
            f"{stimulus.event_id} is {track.event.state.value}",
            stimulus.event_id,
        )
    else:
        if stimulus.verb == "cancel":
            signals.cancel_event(turn, track)
        else:
            signals.opt_out(turn, track, stimulus.actor)
        turn.answer("accepted", stimulus.event_id)
        power.steer(turn, urgent=True)


def _tick(turn: Turn, stimulus: Tick) -> None:
    readings.absorb(turn, stimulus.observation)
    _take_over(turn)
    turn.forget_told_alarms()
    jobs.advance_jobs(turn)
    events.advance_events(turn)
    _answer_grid(turn, urgent=False)
    power.start_jobs(turn)
    if not turn.state.takeover.waiting:
        arming.refresh(turn)


def _take_over(turn: Turn) -> None:
    """See whom a controller that has just started still waits for; without GPUs a hello is all."""
    state = turn.state
    read_seconds = {
        node_id: max((state.gpus[g.gpu_id].seen_seconds for g in node.node.gpus), default=inf)
        for node_id, node in state.nodes.items()
        if node.node.connected and state.takeover.waiting
    }
    state.takeover = state.takeover.look(turn.now.seconds, read_seconds)


def _runner(turn: Turn, stimulus: RunnerReported) -> None:
    for attempt in stimulus.attempts:
        jobs.on_attempt(turn, attempt)


def _hello(turn: Turn, stimulus: Hello) -> None:
    restoring = fleet.on_hello(turn, stimulus)
    arming.forget(turn, stimulus.node_id)
    if note_releases(turn, stimulus):
        power.steer(turn, urgent=True)
    if not restoring:
        power.resend(turn, stimulus.node_id)
        if stimulus.fired is not None:
            _fired(turn, stimulus.fired)
    jobs.ask_again(turn, stimulus.node_id)


def _fired(turn: Turn, stimulus: Fired) -> None:
    """A node has acted by itself: adopt it, bring the others into line, and the node, too."""
    node = turn.state.nodes.get(stimulus.node_id)
    if node is None:
        return
    before = node.sequence
    on_fired(turn, stimulus)
    events.advance_events(turn)
    _answer_grid(turn, urgent=True)
    if node.sequence == before:
        power.resend(turn, stimulus.node_id)


def _fault(turn: Turn, fault: NodeFault) -> None:
    fleet.on_fault(turn, fault)
    if fault.code == "frequency-blip":
        turn.state.ride = turn.state.ride.declared(turn.now.seconds)
    if fault.code == "trigger-refused" and fault.node_id in turn.state.nodes:
        power.resend(turn, fault.node_id)  # what the trigger meant, said in full


def _fleet_released(turn: Turn, stimulus: FleetReleased) -> None:
    release_fleet(turn, stimulus)
    turn.state.takeover = Takeover()  # what everybody gives back needs no plan
    power.steer(turn, urgent=True)


def _checkpoint(turn: Turn, report: CheckpointReport) -> None:
    jobs.on_checkpoint_report(turn, report)
    if report.outcome == "left" and not turn.state.ride.frozen(turn.now.seconds):
        # Whoever was capped to bridge the pause gets the watts back at once.
        power.steer(turn, urgent=True)


def _refused(turn: Turn, stimulus: InputRefused) -> None:
    del turn, stimulus  # it is in the ledger, which is all it is for


_HANDLERS: Mapping[type, Callable[[Turn, Any], None]] = MappingProxyType(
    {
        Started: _started,
        SiteConfigured: _configured,
        FeedAdded: _feed_added,
        FeedRemoved: _feed_removed,
        SignalReceived: _signal,
        InputRefused: _refused,
        Dispatched: lambda turn, s: events.note_dispatched(turn, s.decision_id),
        EventCommanded: _event_commanded,
        FleetReleased: _fleet_released,
        Tick: _tick,
        Hello: _hello,
        NodeLost: lambda turn, s: fleet.on_node_lost(turn, s.node_id),
        NodeFault: _fault,
        Fired: _fired,
        NodeCommanded: lambda turn, s: fleet.on_node_command(turn, s.node_id, s.verb),
        Acknowledged: fleet.on_acknowledged,
        ArmedAcknowledged: arming.on_armed,
        JobSubmitted: jobs.on_job_submitted,
        JobCommanded: jobs.on_job_command,
        RunnerReported: _runner,
        SubmitFailed: jobs.on_submit_failed,
        JobRegistered: jobs.on_job_registered,
        JobProgress: jobs.on_job_progress,
        JobGone: jobs.on_job_gone,
        CheckpointReport: _checkpoint,
    }
)
