"""Watts: from the readings and the target to the limits of each node.

Each pass re-reads everything: what every job draws, what events ask, what the ramps allow. It asks
the strategy for a plan, guards it, and sends each node its whole desired state where that changed.
"""

from collections.abc import Mapping
from dataclasses import replace

from gridaware.control.events import note_decided, note_restored
from gridaware.control.fleet import absorb_readings
from gridaware.control.guard import guarded, same_limits
from gridaware.control.instructions import Decide, SampleAt, SendLease
from gridaware.control.jobs import move_job, request_pause, start_attempt
from gridaware.control.situation import (
    Question,
    absorb_jobs,
    admissions,
    question_of,
    startable,
    target_of,
)
from gridaware.control.state import METER_HISTORY, NodeTrack, State, Turn
from gridaware.domain.event import EventState, GridEvent
from gridaware.domain.fleet import Gpu
from gridaware.domain.job import JOB_LIFE, JobState
from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.domain.plan import Action, ActionKind, Plan
from gridaware.domain.programme import SignalLoss
from gridaware.domain.reading import Observation
from gridaware.planning.slots import restore_slots
from gridaware.planning.strategies import STRATEGIES
from gridaware.planning.targets import is_rising

__all__ = ["absorb", "resend", "start_jobs", "steer"]

PLAN_SECONDS = 1.0
"""Between two plans of one event: silicon, sensors and the one-second mean must settle first."""
FAST_HZ, SLOW_HZ = 10.0, 1.0
FAST_SECONDS = 8.0
"""How long the world is read fast after a command."""
METER_SETTLE_SECONDS = 2.0
OFFSET_SECONDS = 10.0
"""Time constant of what the overhead model leaves out."""
LARGE_CHANGE = 0.02
"""A decision that moves less than this share of the draw is no reason to read the world fast."""
RAMP_UP_LEASE_SECONDS = 30.0
"""While the site comes back, leases are short: a lost controller must not leave it half way."""


def absorb(turn: Turn, observation: Observation) -> None:
    """Take one reading of the world in."""
    state, now = turn.state, turn.now
    state.meter_watts = observation.meter.watts
    state.gpu_watts = observation.gpu_watts
    state.ray_free_gpus = observation.ray_free_gpus
    state.ray_total_gpus = observation.ray_total_gpus
    if not state.meter or now.seconds - state.meter[-1][0] >= 0.9:
        state.meter.append((now.seconds, observation.meter.watts))
        del state.meter[:-METER_HISTORY]
    absorb_readings(turn, observation.nodes)
    absorb_jobs(turn, observation.jobs)
    track_readings(turn)


def steer(turn: Turn, *, urgent: bool) -> None:
    """Plan and command, if anything asks for it and the last command has settled."""
    state, now = turn.state, turn.now
    acting = [t.event for t in state.events.values() if t.event.state.acting]
    returning = [t.event for t in state.events.values() if t.event.state is EventState.RAMPING_UP]
    _note_phase(turn, acting, returning=bool(returning))
    target = target_of(turn)
    state.target_watts = target.limit_watts
    held = any(not node.lease.empty for node in state.nodes.values())
    if not (acting or returning or held or state.target_watts is not None):
        state.unresolved_watts = 0.0
        return
    new = any(not t.decision_id for t in state.events.values() if t.event.state.acting)
    if not (urgent or new) and now.seconds - state.planned_seconds < PLAN_SECONDS:
        return
    state.planned_seconds = now.seconds
    question = question_of(turn, acting)
    plan = STRATEGIES.get(state.site.policy.strategy)(question.situation, state.site.policy.params)
    state.expected_watts = state.meter_of(plan.expected_at_once_watts)
    _adopt(turn, plan, question, acting, returning)
    if returning and not acting and _all_back(turn):
        note_restored(turn)
    if not (acting or returning) and not any(n.lease.limits_watts for n in state.nodes.values()):
        state.release_seconds = state.ceiling_watts = None


def _note_phase(turn: Turn, acting: list[GridEvent], *, returning: bool) -> None:
    """Remember from where, and since when, the site comes down or back."""
    state, now = turn.state, turn.now
    if acting:
        state.release_seconds = None
        if state.descent_seconds is None:
            state.descent_seconds, state.descent_watts = now.seconds, state.meter_watts
        levels = [event.reference.watts for event in acting if event.reference is not None]
        state.ceiling_watts = max(levels, default=None)
        return
    state.descent_seconds = None
    held = any(node.lease.limits_watts for node in state.nodes.values())
    if (returning or held) and state.release_seconds is None:
        state.release_seconds, state.release_watts = now.seconds, state.meter_watts


def track_readings(turn: Turn) -> None:
    """Let the loop learn from the reading just taken how far the site is from its plan."""
    state = turn.state
    target = target_of(turn)
    _learn_offset(turn)
    aim, hard = target.aim, target.hard_limit
    interval = aim.settlement_interval_seconds if aim is not None else 60.0
    if hard is not None:
        interval = min(interval, hard.averaging_seconds)
    state.tracker = state.tracker.follow(
        turn.now.seconds,
        measured_watts=state.meter_watts,
        expected_watts=state.expected_watts,
        target_watts=None if is_rising(target) and hard is None else target.limit_watts,
        interval_seconds=interval,
    )


def _learn_offset(turn: Turn) -> None:
    """Learn what the overhead model leaves out, while no limits of ours are in force.

    Under limits the tracker learns it, together with what the curves leave out; two that learn the
    same error would chase each other.
    """
    state, now = turn.state, turn.now.seconds
    changed = max((node.lease_seconds for node in state.nodes.values()), default=-1e9)
    since, state.offset_seconds = now - state.offset_seconds, now
    held = any(node.limits_watts for node in state.nodes.values())
    if held or now - changed < METER_SETTLE_SECONDS or not state.gpus:
        return
    seen = state.meter_watts - state.site.overhead.meter_watts(state.gpu_watts)
    share = 1.0 if since > 60.0 else min(since / OFFSET_SECONDS, 1.0)
    state.offset_watts += share * (seen - state.offset_watts)


def _adopt(
    turn: Turn,
    plan: Plan,
    question: Question,
    acting: list[GridEvent],
    returning: list[GridEvent],
) -> None:
    state = turn.state
    event_ids = tuple(e.event_id for e in acting or returning)
    caps = _carry_out_actions(turn, plan, question)
    by_node = _by_node(state, guarded(caps, _gpus(state)))
    changed = {
        node_id: limits
        for node_id, limits in by_node.items()
        if not same_limits(state.nodes[node_id].limits_watts, limits)
        or bool(state.nodes[node_id].lease.limits_watts) != (bool(limits) and bool(event_ids))
    }
    _note_shortfall(turn, plan, question, acting)
    new_events = any(not t.decision_id for t in state.events.values() if t.event.state.acting)
    if not changed and not new_events:
        return
    state.decisions += 1
    decision_id = f"d{state.controller_epoch}-{state.decisions}"
    sequences = _send(turn, decision_id, changed, acting, event_ids, by_node)
    turn.emit(
        Decide(
            decision_id=decision_id,
            event_ids=event_ids,
            strategy=plan.strategy,
            target_watts=state.target_watts,
            target_gpu_watts=question.situation.target_gpu_watts,
            expected_gpu_watts=round(plan.expected_gpu_watts, 1),
            unresolved_watts=round(plan.shortfall_watts, 1),
            actions=tuple(
                (
                    a.job_id,
                    a.kind.name,
                    a.cap_watts,
                    a.expected_watts,
                    a.expected_throughput,
                    a.reason,
                    a.numbers,
                )
                for a in plan.actions
            ),
        )
    )
    note_decided(turn, decision_id, sequences)
    moved = abs(plan.expected_at_once_watts - state.gpu_watts)
    if new_events or moved > LARGE_CHANGE * state.gpu_watts:
        state.busy_until_seconds = turn.now.seconds + FAST_SECONDS
        _pace(turn, fast=True)
    turn.publish("status", "site")


def _carry_out_actions(turn: Turn, plan: Plan, question: Question) -> dict[str, float]:
    """Start what the plan asks of jobs, and return the cap of each GPU it names."""
    caps: dict[str, float] = {}
    for action in plan.actions:
        gpu_ids = question.gpus_of.get(action.job_id, ())
        track = turn.state.jobs.get(action.job_id)
        capped = action.kind in {ActionKind.SET_CAP, ActionKind.PAUSE, ActionKind.LOCK_CLOCKS}
        if capped:
            caps |= dict.fromkeys(gpu_ids, action.cap_watts)
        if track is None:
            continue  # a GPU whose processes are not ours
        track.plan_reason, track.plan_numbers = action.reason, action.numbers
        state = track.job.state
        if action.kind is ActionKind.PAUSE and JOB_LIFE.allows(state, "PauseRequested"):
            request_pause(turn, track, by="event")
        elif action.kind is ActionKind.RESUME and state is JobState.PAUSED:
            if startable(turn, track):
                start_attempt(turn, track)
        else:
            _note_cap(turn, action, capped=capped)
    return caps


def _note_cap(turn: Turn, action: Action, *, capped: bool) -> None:
    """Show on the job whether, and how deep, it is capped."""
    track = turn.state.jobs[action.job_id]
    cap = round(action.cap_watts, 1) if capped else None
    if track.job.cap_watts != cap:
        track.job = replace(track.job, cap_watts=cap)
        turn.publish("job", action.job_id)
    if capped and track.job.state is JobState.RUNNING:
        move_job(turn, track, "Capped")
    elif not capped and track.job.state is JobState.CAPPED:
        move_job(turn, track, "Uncapped")


def _note_shortfall(turn: Turn, plan: Plan, question: Question, acting: list[GridEvent]) -> None:
    """Watts that cannot be shed are never hidden; nor is a firm job that had to give."""
    state = turn.state
    slope = state.site.overhead.slope
    rising = question.situation.rising
    state.unresolved_watts = 0.0 if rising else round(plan.shortfall_watts * slope, 1)
    state.firm_floor_broken = plan.firm_floor_broken
    state.admission_stopped = plan.stop_admission
    if state.unresolved_watts > 0.5:
        turn.alarm(
            "unresolved-watts",
            f"{state.unresolved_watts / 1e3:.2f} kW of the target cannot be shed",
        )
        for event in acting:
            track = state.events[event.event_id]
            if state.unresolved_watts > track.event.unresolved_watts:
                track.event = replace(track.event, unresolved_watts=state.unresolved_watts)
                turn.publish("event", event.event_id)
    else:
        turn.calm("unresolved-watts")
    if plan.firm_floor_broken:
        turn.alarm("firm-floor-broken", "firm jobs are capped: nothing else meets what binds")
    else:
        turn.calm("firm-floor-broken")


def _send(
    turn: Turn,
    decision_id: str,
    changed: Mapping[str, Mapping[str, float]],
    acting: list[GridEvent],
    event_ids: tuple[str, ...],
    by_node: Mapping[str, Mapping[str, float]],
) -> dict[str, int]:
    """Send each changed node its whole desired state; the sequences, by node."""
    state = turn.state
    duration, signal_loss = _lease_terms(turn, acting)
    slots = restore_slots(
        {
            node_id: _raised_watts(state.nodes[node_id], limits)
            for node_id, limits in by_node.items()
            if limits
        },
        state.site.ramp.up_watts_per_minute,
        state.site.overhead.slope,
    )
    sequences = {}
    for node_id, limits in changed.items():
        node = state.nodes[node_id]
        state.sequence += 1
        node.sequence, node.decision_id = state.sequence, decision_id
        if state.site.hard_limit is not None and not event_ids:
            # What only the connection limit asks stands without an end and without us.
            node.standing_watts = dict(limits)
        node.lease = Lease(
            lease_id=decision_id,
            limits_watts=tuple(limits.items()) if event_ids else (),
            duration_seconds=duration if limits and event_ids else 0.0,
            slot=slots.get(node_id, RestoreSlot()),
            signal_loss=signal_loss,
            standing_watts=tuple(node.standing_watts.items()),
            event_ids=event_ids,
        )
        node.limits_watts, node.lease_seconds = dict(limits), turn.now.seconds
        turn.emit(SendLease(node_id, node.sequence, decision_id, node.lease))
        if node.node.connected:
            sequences[node_id] = node.sequence
        turn.publish("node", node_id)
    return sequences


def _lease_terms(turn: Turn, acting: list[GridEvent]) -> tuple[float | None, SignalLoss]:
    """How long the limits hold without us: to the last end of what acts, or open."""
    if not acting:
        return RAMP_UP_LEASE_SECONDS, SignalLoss()
    losses = [turn.state.site.programme(e.programme_id).signal_loss for e in acting]
    if any(event.request.end is None for event in acting):
        return None, losses[0]
    ends = [event.request.end for event in acting if event.request.end is not None]
    return max((max(ends) - turn.now.wall).total_seconds(), 0.0), losses[0]


def _raised_watts(node: NodeTrack, limits: Mapping[str, float]) -> float:
    """Limit watts that come back when the node restores: an upper bound of what it then draws."""
    found = {gpu.gpu_id: gpu.found_limit_watts for gpu in node.node.gpus}
    return sum(found[gpu_id] - watts for gpu_id, watts in limits.items())


def _gpus(state: State) -> dict[str, Gpu]:
    return {gpu.gpu_id: gpu for node in state.nodes.values() for gpu in node.node.gpus}


def _by_node(state: State, limits: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The same limits, by node; a node without any is there with none."""
    by_node: dict[str, dict[str, float]] = {node_id: {} for node_id in state.nodes}
    for gpu_id, watts in limits.items():
        by_node[state.gpus[gpu_id].node_id][gpu_id] = watts
    return by_node


def _all_back(turn: Turn) -> bool:
    """Whether every found limit was read back and every job paused for an event runs again."""
    state = turn.state
    standing = state.site.hard_limit is not None
    for node in state.nodes.values():
        unread = node.node.connected and node.acked_sequence < node.sequence
        if unread or (node.limits_watts and not standing):
            return False
    waiting = {JobState.PAUSED, JobState.PAUSING, JobState.RESUMING}
    return not any(
        track.job.state in waiting and track.paused_by in {"", "event"}
        for track in state.jobs.values()
    )


def resend(turn: Turn, node_id: str) -> None:
    """Tell a node that said hello what it holds, in our own name and under our epoch.

    The next pass changes whatever is out of date; until then nothing moves.
    """
    state = turn.state
    node = state.nodes[node_id]
    state.sequence += 1
    node.sequence, node.lease_seconds = state.sequence, turn.now.seconds
    turn.emit(SendLease(node_id, node.sequence, node.decision_id or "none", node.lease))


def _pace(turn: Turn, *, fast: bool) -> None:
    """Read the world ten times a second around commands, else once."""
    state = turn.state
    hz = FAST_HZ if fast or turn.now.seconds < state.busy_until_seconds else SLOW_HZ
    if hz != state.sample_hz:
        state.sample_hz = hz
        turn.emit(SampleAt(hz))


def start_jobs(turn: Turn) -> None:
    """Start what the queue allows; nothing while the site is held down or comes back."""
    _pace(turn, fast=False)
    state = turn.state
    acting = any(t.event.state.acting for t in state.events.values())
    closed = acting or state.release_seconds is not None or state.admission_stopped
    for answer in admissions(turn, closed=closed):
        track = state.jobs[answer.job_id]
        if answer.outcome == "start":
            start_attempt(turn, track)
        elif answer.outcome == "refuse":
            track.plan_reason, track.plan_numbers = answer.reason, answer.numbers
            move_job(turn, track, "CannotStart")
        elif (track.plan_reason, track.plan_numbers) != (answer.reason, answer.numbers):
            track.plan_reason, track.plan_numbers = answer.reason, answer.numbers
            turn.publish("job", answer.job_id)
