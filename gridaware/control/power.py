"""Watts: from the readings and the target to the limits of each node.

Each pass re-reads everything: what every job draws, what events ask, what the ramps allow. It asks
the strategy for a plan, guards it, and sends each node its whole desired state where that changed.
"""

from collections.abc import Mapping
from dataclasses import replace

from gridaware.control.events import note_decided, note_restored
from gridaware.control.follow import escalate, keep_astray
from gridaware.control.guard import guarded, same_limits
from gridaware.control.instructions import Decide, SampleAt, SendLease, decided
from gridaware.control.jobs import move_job, request_pause, start_attempt
from gridaware.control.phase import all_back, held, keep_pace, note_phase
from gridaware.control.shortfall import note_nothing_short, note_shortfall
from gridaware.control.situation import (
    Question,
    admissions,
    due_at,
    question_of,
    startable,
    target_of,
    waiting_jobs,
)
from gridaware.control.state import JobTrack, NodeTrack, State, Turn
from gridaware.domain.event import EventState, GridEvent
from gridaware.domain.fleet import Gpu
from gridaware.domain.job import JOB_LIFE, JobState
from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.domain.plan import Action, ActionKind, Plan
from gridaware.domain.programme import SignalLoss
from gridaware.domain.target import PowerTarget
from gridaware.planning.slots import restore_slots
from gridaware.planning.strategies import STRATEGIES
from gridaware.planning.targets import is_rising

__all__ = ["lease_terms", "note_cap", "pace", "resend", "start_jobs", "steer"]

PLAN_SECONDS = 1.0
"""Between two plans of one event: silicon, sensors and the one-second mean must settle first."""
FAST_HZ, SLOW_HZ = 10.0, 1.0
FAST_SECONDS = 8.0
"""How long the world is read fast after a command."""
LARGE_CHANGE = 0.02
"""A decision that moves less than this share of the draw is no reason to read the world fast."""
END_SECONDS = 1.5
"""A lease whose end is off by more than this is sent again."""
RAMP_UP_LEASE_SECONDS = 30.0
"""While the site comes back, leases are short: a lost controller must not leave it half way."""


def steer(turn: Turn, *, urgent: bool) -> None:
    """Plan and command, if anything asks for it and the last command has settled."""
    state, now = turn.state, turn.now
    acting = [t.event for t in state.events.values() if t.event.state.acting]
    if state.takeover.waiting and not _presses(turn):
        return  # what nodes hold stays until it is known
    returning = [t.event for t in state.events.values() if t.event.state is EventState.RAMPING_UP]
    note_phase(turn, acting, returning=bool(returning))
    target = target_of(turn)
    before, state.target_watts = state.target_watts, target.limit_watts
    busy = acting or returning or waiting_jobs(state) or state.target_watts is not None
    if not (busy or any(not node.lease.empty for node in state.nodes.values())):
        _note_nothing_asked(turn)
        return
    new = any(not t.decision_id for t in state.events.values() if t.event.state.acting)
    asked = urgent or new or _falls(target, before)
    if state.ride.frozen(now.seconds) and not asked:
        return  # no reading is believed now: what moves is what the grid asks
    if not (urgent or new) and now.seconds - state.planned_seconds < PLAN_SECONDS:
        return
    keep_pace(turn, PLAN_SECONDS)
    state.planned_seconds = now.seconds
    question = question_of(turn, acting)
    state.target_watts = question.target.limit_watts
    plan = STRATEGIES.get(state.site.policy.strategy)(question.situation, state.site.policy.params)
    state.expected_watts = state.meter_of(plan.expected_at_once_watts)
    _adopt(turn, plan, question, acting, returning)
    if returning and not acting and all_back(turn):
        note_restored(turn)
    if not (acting or returning or held(state)):
        state.release_seconds = state.ceiling_watts = None


def _presses(turn: Turn) -> bool:
    """Whether something is owed that a new controller cannot keep waiting."""
    return any(
        track.event.state.acting
        and not track.decision_id
        and turn.state.takeover.presses(turn.now, due_at(turn, track.event))
        for track in turn.state.events.values()
    )


def _falls(target: PowerTarget, before_watts: float | None) -> bool:
    """Whether less may be drawn than a moment ago."""
    limit = target.limit_watts
    if limit is None or is_rising(target):
        return False
    return before_watts is None or limit < before_watts - 1.0


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
    keep_astray(turn, plan, question, caps)
    limits = guarded(caps, _gpus(state))
    clocks = _of_nodes(state, escalate(turn, plan, question, limits, acting))
    by_node = _by_node(state, limits)
    duration, signal_loss = lease_terms(turn, acting)
    changed = {
        node_id: limits
        for node_id, limits in by_node.items()
        if not same_limits(state.nodes[node_id].limits_watts, limits)
        or _other_clocks(state.nodes[node_id], clocks.get(node_id, {}))
        or bool(state.nodes[node_id].lease.limits_watts) != (bool(limits) and bool(event_ids))
        or (
            limits
            and event_ids
            and _ends_otherwise(turn, state.nodes[node_id], duration, renewing=not acting)
        )
    }
    note_shortfall(turn, plan, question, acting)
    new_events = any(not t.decision_id for t in state.events.values() if t.event.state.acting)
    if not changed and not new_events:
        return
    state.decisions += 1
    decision_id = f"d{state.controller_epoch}-{state.decisions}"
    lease = Lease(
        decision_id, duration_seconds=duration, signal_loss=signal_loss, event_ids=event_ids
    )
    sequences = _send(turn, lease, changed, by_node, clocks)
    turn.emit(
        Decide(
            decision_id=decision_id,
            event_ids=event_ids,
            strategy=plan.strategy,
            target_watts=state.target_watts,
            target_gpu_watts=question.situation.target_gpu_watts,
            expected_gpu_watts=round(plan.expected_gpu_watts, 1),
            unresolved_watts=round(plan.shortfall_watts, 1),
            actions=decided(plan.actions),
        )
    )
    note_decided(turn, decision_id, sequences)
    moved = abs(plan.expected_at_once_watts - state.gpu_watts)
    if new_events or moved > LARGE_CHANGE * state.gpu_watts:
        state.busy_until_seconds = turn.now.seconds + FAST_SECONDS
        pace(turn, fast=True)
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
        state = track.job.state
        resumes = action.kind is ActionKind.RESUME and state is JobState.PAUSED
        if resumes and not startable(turn, track):
            continue  # the queue says what it waits for
        track.plan_reason, track.plan_numbers = action.reason, action.numbers
        if action.kind is ActionKind.PAUSE and JOB_LIFE.allows(state, "PauseRequested"):
            request_pause(turn, track, by="event")
        elif resumes:
            start_attempt(turn, track)
        else:
            note_cap(turn, action, capped=capped)
    return caps


def note_cap(turn: Turn, action: Action, *, capped: bool) -> None:
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


def _send(
    turn: Turn,
    terms: Lease,
    changed: Mapping[str, Mapping[str, float]],
    by_node: Mapping[str, Mapping[str, float]],
    clocks_mhz: Mapping[str, Mapping[str, float]],
) -> dict[str, int]:
    """Send each changed node its whole desired state; the sequences, by node."""
    state, decision_id, event_ids = turn.state, terms.lease_id, terms.event_ids
    slots = restore_slots(
        {
            node_id: state.nodes[node_id].raised_watts(limits)
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
        node.standing_watts = _standing(state, node, limits, for_events=bool(event_ids))
        duration = terms.duration_seconds if limits and event_ids else 0.0
        node.lease = replace(
            terms,
            limits_watts=tuple(limits.items()) if event_ids else (),
            duration_seconds=duration,
            slot=slots.get(node_id, RestoreSlot()),
            standing_watts=tuple(node.standing_watts.items()),
            clocks_mhz=tuple(clocks_mhz.get(node_id, {}).items()),
        )
        node.limits_watts, node.lease_seconds = dict(limits), turn.now.seconds
        node.lease_ends_seconds = None if duration is None else turn.now.seconds + duration
        turn.emit(SendLease(node_id, node.sequence, decision_id, node.lease))
        if node.node.connected:
            sequences[node_id] = node.sequence
        turn.publish("node", node_id)
    return sequences


def _standing(
    state: State, node: NodeTrack, limits: Mapping[str, float], *, for_events: bool
) -> dict[str, float]:
    """What the connection limit alone asks: it stands without an end and without us.

    While events ask for more it is what it was, but never more than what holds now: a GPU that may
    draw what it likes under both may do so under one.
    """
    if state.site.hard_limit is None:
        return {}
    if not for_events:
        return dict(limits)
    before = node.standing_watts
    return {gpu_id: max(before[gpu_id], limits[gpu_id]) for gpu_id in limits if gpu_id in before}


def lease_terms(turn: Turn, acting: list[GridEvent]) -> tuple[float | None, SignalLoss]:
    """How long the limits hold without us: to the last end of what acts, or open."""
    if not acting:
        return RAMP_UP_LEASE_SECONDS, SignalLoss()
    losses = [turn.state.site.rules_of(event).signal_loss for event in acting]
    if any(event.request.end is None for event in acting):
        return None, losses[0]
    ends = [event.request.end for event in acting if event.request.end is not None]
    return max((max(ends) - turn.now.wall).total_seconds(), 0.0), losses[0]


def _ends_otherwise(turn: Turn, node: NodeTrack, duration: float | None, *, renewing: bool) -> bool:
    """Whether what the node holds ends at another time than it now should.

    On the way back leases are renewed half way, so that they end soon once nobody renews them.
    """
    if duration is None or node.lease_ends_seconds is None:
        return (duration is None) != (node.lease_ends_seconds is None)
    early = duration - (node.lease_ends_seconds - turn.now.seconds)
    return early > (duration / 2 if renewing else END_SECONDS) or early < -END_SECONDS


def _note_nothing_asked(turn: Turn) -> None:
    """Nothing is asked and nothing stands: nothing is short, and the way back is over."""
    note_nothing_short(turn)
    turn.state.release_seconds = turn.state.ceiling_watts = None


def _gpus(state: State) -> dict[str, Gpu]:
    return {gpu.gpu_id: gpu for node in state.nodes.values() for gpu in node.node.gpus}


def _other_clocks(node: NodeTrack, clocks_mhz: Mapping[str, float]) -> bool:
    """Whether the clocks that a node was told differ from those that it shall keep."""
    return node.node.connected and dict(node.lease.clocks_mhz) != clocks_mhz


def _of_nodes(state: State, by_gpu: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The same numbers, by the node of each GPU."""
    by_node: dict[str, dict[str, float]] = {}
    for gpu_id, number in by_gpu.items():
        by_node.setdefault(state.gpus[gpu_id].node_id, {})[gpu_id] = number
    return by_node


def _by_node(state: State, limits: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The same limits, by node; a node without any is there with none."""
    by_node: dict[str, dict[str, float]] = {node_id: {} for node_id in state.nodes}
    by_node |= _of_nodes(state, limits)
    for node_id, node in state.nodes.items():
        if not node.node.connected:  # it cannot be told: it keeps what it has
            by_node[node_id] = dict(node.limits_watts)
    return by_node


def resend(turn: Turn, node_id: str) -> None:
    """Tell a node that said hello what it holds, in our own name and under our epoch.

    The next pass changes whatever is out of date; until then nothing moves.
    """
    state = turn.state
    node = state.nodes[node_id]
    state.sequence += 1
    node.sequence, node.lease_seconds = state.sequence, turn.now.seconds
    turn.emit(SendLease(node_id, node.sequence, node.decision_id or "none", node.lease))


def pace(turn: Turn, *, fast: bool) -> None:
    """Read the world ten times a second around commands, else once."""
    state = turn.state
    hz = FAST_HZ if fast or turn.now.seconds < state.busy_until_seconds else SLOW_HZ
    if hz != state.sample_hz:
        state.sample_hz = hz
        turn.emit(SampleAt(hz))


def _ray_has_too_few(turn: Turn, track: JobTrack) -> bool:
    """Whether the whole cluster, as Ray counts it, is too small for the job.

    That agents report too few GPUs is no reason to give a queued job up: one may have lost a GPU,
    another may not have said hello yet.
    """
    total = turn.state.ray_total_gpus
    return total is not None and track.job.spec.gpus > total


def start_jobs(turn: Turn) -> None:
    """Start what the queue allows; nothing while the site is held down or comes back."""
    state = turn.state
    waiting = state.takeover.waiting
    pace(turn, fast=waiting)
    acting = any(t.event.state.acting for t in state.events.values())
    closed = acting or waiting or state.release_seconds is not None or state.admission_stopped
    for answer in admissions(turn, closed=closed):
        track = state.jobs[answer.job_id]
        paused = track.job.state is JobState.PAUSED
        if paused and (closed or answer.outcome == "start"):
            continue  # the plan resumes it, or says why not
        if answer.outcome == "start":
            start_attempt(turn, track)
        elif answer.outcome == "refuse" and not paused and _ray_has_too_few(turn, track):
            track.plan_reason, track.plan_numbers = answer.reason, answer.numbers
            move_job(turn, track, "CannotStart")
        elif (track.plan_reason, track.plan_numbers) != (answer.reason, answer.numbers):
            track.plan_reason, track.plan_numbers = answer.reason, answer.numbers
            turn.publish("job", answer.job_id)
