"""Pre-armed plans: what every node shall do next is with it before anybody asks.

For each depth that a programme may ask for at once, the site's own strategy answers the present
situation with caps alone (an instant response is always caps; pauses follow by the normal loop),
and each node gets its share of the answer, restore slot and signal loss included, as a lease that
waits. It is made again as jobs come, go and change their draw, and fired by
:mod:`gridaware.control.firing`.

Accepted events whose windows still lie ahead are armed in the same way, with their start: agents
begin them by themselves should no controller be there by then.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile
from zlib import crc32

from gridaware.control.armed import Armoury, Level, NodeArms
from gridaware.control.guard import guarded
from gridaware.control.instructions import SendArms, decided
from gridaware.control.signals import reference_now
from gridaware.control.situation import Question, question_of
from gridaware.control.state import NodeTrack, State, Turn
from gridaware.domain.event import EventState
from gridaware.domain.job import LOSS_WINDOW_SECONDS, JobState
from gridaware.domain.lease import ArmedResponse, Lease, RestoreSlot, ScheduledResponse
from gridaware.domain.plan import ActionKind, Plan
from gridaware.domain.programme import Programme
from gridaware.domain.wire import ArmedAcknowledged
from gridaware.planning.slots import restore_slots
from gridaware.planning.strategies import STRATEGIES

__all__ = ["ARMED_SECONDS", "ON_GPUS", "WATT", "forget", "on_armed", "refresh"]

ARMED_SECONDS = 900.0
"""What is armed is never fired when it is older than this; it is given anew half way."""
AHEAD_SECONDS = 86400.0
MOST_AHEAD = 8
"""Accepted events are armed with their start when they begin within this time; the next few."""
REFRESH_SECONDS = 60.0
"""Plans are made again at least this often, and"""
LEAST_SECONDS = 2.0
"""no more often than this while only the draw changes."""
DRAW_MOVED = 0.01
CAP_MOVED = 0.01
"""Share of the draw, and of a cap, from which on what is armed counts as another."""
WATT = 1.0
JOBS_A_TICK, NODES_A_TICK = 2000, 1000
"""Jobs planned for in one tick, over all levels, and nodes given their part in one: arming must not
keep the loop from its pace."""
ON_GPUS = {JobState.RUNNING, JobState.CAPPED, JobState.STALLED, JobState.PAUSING}
CAPPED = {ActionKind.SET_CAP, ActionKind.PAUSE, ActionKind.LOCK_CLOCKS}


def forget(turn: Turn, node_id: str) -> None:
    """A node said hello: nothing is known of what it holds ready, so it is given everything."""
    turn.state.nodes[node_id].arms = NodeArms()


def on_armed(turn: Turn, held_ready: ArmedAcknowledged) -> None:
    """A node holds what it was given."""
    node = turn.state.nodes.get(held_ready.node_id)
    if node is not None and held_ready.controller_epoch == turn.state.controller_epoch:
        node.arms.acked = max(node.arms.acked, held_ready.revision)


# Arming ----------------------------------------------------------------------------------------


def refresh(turn: Turn) -> None:
    """Keep what is armed true to the jobs, a few plans at a time."""
    state, armoury = turn.state, turn.state.armoury
    if not state.site.act or not state.meter:
        return
    busy = turn.now.seconds < state.busy_until_seconds
    fresh = turn.now.seconds - armoury.began_seconds < 2 * REFRESH_SECONDS
    if (busy and fresh) or state.ride.frozen(turn.now.seconds):
        # A response is under way and its ticks have no time to spare, or readings say nothing now.
        _renew(turn)
        return
    if armoury.waiting:
        _hand_out_some(turn)
        return
    if not armoury.pending:
        wanted = _wanted(turn)
        if not (wanted or armoury.levels) or not _due(turn, wanted):
            _renew(turn)
            return
        armoury.pending, armoury.draft = wanted, []
        armoury.began_seconds, armoury.gpu_watts = turn.now.seconds, state.gpu_watts
        armoury.meter_watts = _mean_watts(turn)
    if armoury.pending:
        _plan_some(turn)
    if not armoury.pending:
        armoury.levels, armoury.draft = armoury.draft, []
        armoury.waiting = list(state.nodes)
        _hand_out_some(turn)


def _wanted(turn: Turn) -> list[tuple[str, int, str]]:
    """(programme, level, event) of every plan to be armed."""
    site, now = turn.state.site, turn.now.wall
    wanted = [
        (programme.programme_id, level, "")
        for programme in site.programmes_at(now)
        for level in range(len(programme.ladder))
        if _free_of_ramp(turn.state, programme)
    ]
    ahead = [
        track.event
        for track in turn.state.events.values()
        if track.event.state is EventState.SCHEDULED
        and track.event.limit_watts is not None
        and now < track.event.request.start <= now + timedelta(seconds=AHEAD_SECONDS)
        and _free_of_ramp(turn.state, turn.state.site.rules_of(track.event))
    ]
    ahead.sort(key=lambda event: (event.request.start, event.event_id))
    return wanted + [(event.programme_id, -1, event.event_id) for event in ahead[:MOST_AHEAD]]


def _free_of_ramp(state: State, programme: Programme) -> bool:
    """Whether its response may be a step: the connection agreement's ramp binds all others."""
    return state.site.ramp.down_watts_per_minute is None or programme.ramp_exempt


def _due(turn: Turn, wanted: list[tuple[str, int, str]]) -> bool:
    """Whether the plans are out of date: jobs, nodes, events or the draw have changed."""
    state, armoury = turn.state, turn.state.armoury
    jobs = [
        (job_id, track.job.attempt, len(track.nodes))
        for job_id, track in state.jobs.items()
        if track.job.state in ON_GPUS
    ]
    nodes = [
        (node_id, node.node.boot_id, node.arms.revision > 0)
        for node_id, node in state.nodes.items()
        if node.node.connected
    ]
    events = [
        (event_id, state.events[event_id].event.revision) for _, _, event_id in wanted if event_id
    ]
    seen = crc32(repr((wanted, jobs, nodes, events)).encode())
    changed, armoury.seen = seen != armoury.seen, seen
    age = turn.now.seconds - armoury.began_seconds
    moved = any(
        abs(watts - before) > DRAW_MOVED * max(before, WATT)
        for watts, before in (
            (state.gpu_watts, armoury.gpu_watts),
            (_mean_watts(turn), armoury.meter_watts),
        )
    )
    return changed or age >= REFRESH_SECONDS or (moved and age >= LEAST_SECONDS)


def _mean_watts(turn: Turn) -> float:
    """About what a reference frozen now would be; cheap, since it is asked for at every tick."""
    since = turn.now.seconds - turn.state.site.reference_window_seconds
    readings = list(takewhile(lambda reading: reading[0] >= since, reversed(turn.state.meter)))
    return sum(watts for _, watts in readings) / max(len(readings), 1)


def _plan_some(turn: Turn) -> None:
    """Plan as many levels as this tick has time for."""
    state, armoury = turn.state, turn.state.armoury
    acting = [t.event for t in state.events.values() if t.event.state.acting]
    now = turn.now.wall
    due = min(state.site.programme(p, now).deadline_seconds for p, _, _ in armoury.pending)
    question = question_of(turn, acting, due)
    count = max(1, JOBS_A_TICK // max(len(question.situation.jobs), 1))
    some, armoury.pending = armoury.pending[:count], armoury.pending[count:]
    references: dict[str, float | None] = {}
    for programme_id, level, event_id in some:
        programme = state.site.programme(programme_id, now)
        if event_id:
            track = state.events.get(event_id)
            if track is None or track.event.limit_watts is None:
                continue
            programme = turn.state.site.rules_of(track.event)
            limit, depth, must = track.event.limit_watts, 0.0, not track.event.voluntary
        else:
            if level >= len(programme.ladder):
                continue  # its rules have changed since it was asked for
            if programme_id not in references:
                references[programme_id] = _reference_watts(turn, programme_id)
            reference = references[programme_id]
            if reference is None:
                continue
            depth = programme.ladder[level]
            limit, must = (1.0 - depth) * reference, programme.mandatory
        question_now = replace(question, situation=replace(question.situation, must=must))
        armoury.draft.append(_planned(turn, question_now, programme, level, depth, limit, event_id))


def _reference_watts(turn: Turn, programme_id: str) -> float | None:
    """What a depth is a share of: the reference that open events share, or one frozen now."""
    for track in turn.state.events.values():
        event = track.event
        standing = event.state.open or event.state is EventState.RAMPING_UP
        if event.reference is not None and standing:
            return event.reference.watts
    reference = reference_now(turn, programme_id)
    return None if reference is None else reference.watts


def _planned(
    turn: Turn,
    question: Question,
    programme: Programme,
    level: int,
    depth: float,
    limit_watts: float,
    event_id: str,
) -> Level:
    state = turn.state
    hard = state.site.hard_limit
    most = limit_watts if hard is None else min(limit_watts, hard.watts * (1 - hard.margin))
    situation = replace(
        question.situation,
        target_gpu_watts=state.gpu_share_of(state.tracker.asked_watts(most)),
        horizon_seconds=_hold_seconds(programme) or LOSS_WINDOW_SECONDS,
        allow_pause=False,
        rising=False,
        hard=most < limit_watts,
    )
    policy = state.site.policy
    plan = STRATEGIES.get(policy.strategy)(situation, policy.params)
    limits = _limits_of(state, plan, question)
    return Level(
        programme_id=programme.programme_id,
        level=level,
        depth=depth,
        event_id=event_id,
        limit_watts=limit_watts,
        expected_watts=state.meter_of(plan.expected_at_once_watts),
        expected_gpu_watts=round(plan.expected_at_once_watts, 1),
        shortfall_watts=round(plan.shortfall_watts, 1),
        actions=decided(a for a in plan.actions if a.kind in CAPPED),
        limits_watts=limits,
        slots=_slots(state, limits),
    )


def _limits_of(state: State, plan: Plan, question: Question) -> dict[str, dict[str, float]]:
    """The plan's caps as limits that devices take, by node."""
    caps: dict[str, float] = {}
    for action in plan.actions:
        if action.kind in CAPPED:
            caps |= dict.fromkeys(question.gpus_of.get(action.job_id, ()), action.cap_watts)
    gpus = {gpu.gpu_id: gpu for node in state.nodes.values() for gpu in node.node.gpus}
    by_node: dict[str, dict[str, float]] = {}
    for gpu_id, watts in guarded(caps, gpus).items():
        by_node.setdefault(state.gpus[gpu_id].node_id, {})[gpu_id] = watts
    return by_node


def _hold_seconds(programme: Programme) -> float | None:
    """For how long a node alone holds a response that its programme's own cause has fired."""
    if programme.frequency is not None:
        return programme.frequency.hold_seconds
    return programme.max_duration_seconds


# Handing out -----------------------------------------------------------------------------------


def _hand_out_some(turn: Turn) -> None:
    """Give the next nodes their part of the plans, where that is another than what they hold."""
    state, armoury = turn.state, turn.state.armoury
    now, armoury.waiting = armoury.waiting[:NODES_A_TICK], armoury.waiting[NODES_A_TICK:]
    levels = [
        level for level in armoury.levels if not level.event_id or level.event_id in state.events
    ]
    for node_id in now:
        node = state.nodes.get(node_id)
        if node is None or not node.node.connected:
            continue
        responses, scheduled = [], []
        for level in levels:
            lease = _lease(turn, level, node_id)
            programme = state.site.programme(level.programme_id, turn.now.wall)
            if not level.event_id:
                responses.append(
                    ArmedResponse(
                        level.programme_id, level.level, level.depth, lease, programme.frequency
                    )
                )
            elif lease.limits_watts and lease.duration_seconds != 0.0:
                start = state.events[level.event_id].event.request.start
                starts_in = (start - turn.now.wall).total_seconds()
                scheduled.append(ScheduledResponse(starts_in, lease))
        if _same(turn, node.arms, responses, scheduled):
            _renew_node(turn, node_id, node)
        else:
            _send(turn, node_id, node, tuple(responses), tuple(scheduled))


def _slots(state: State, limits_watts: Mapping[str, Mapping[str, float]]) -> dict[str, RestoreSlot]:
    raised = {
        node_id: state.nodes[node_id].raised_watts(limits)
        for node_id, limits in limits_watts.items()
    }
    return restore_slots(raised, state.site.ramp.up_watts_per_minute, state.site.overhead.slope)


def _lease(turn: Turn, level: Level, node_id: str) -> Lease:
    """The lease that waits on a node."""
    programme = turn.state.site.programme(level.programme_id, turn.now.wall)
    duration = _hold_seconds(programme)
    event_ids: tuple[str, ...] = ()
    if level.event_id:
        request = turn.state.events[level.event_id].event.request
        duration = None if request.end is None else (request.end - request.start).total_seconds()
        event_ids = (level.event_id,)
    return Lease(
        lease_id=f"armed-{level.event_id}" if level.event_id else "armed",
        limits_watts=tuple(level.limits_watts.get(node_id, {}).items()),
        duration_seconds=duration,
        slot=level.slots.get(node_id, RestoreSlot()),
        signal_loss=programme.signal_loss,
        event_ids=event_ids,
    )


def _same(
    turn: Turn,
    arms: NodeArms,
    responses: list[ArmedResponse],
    scheduled: list[ScheduledResponse],
) -> bool:
    """Whether a node's share of the plans is, but for noise, what it holds."""
    if not arms.revision or len(arms.responses) != len(responses):
        return False
    if len(arms.scheduled) != len(scheduled):
        return False
    for old, new in zip(arms.responses, responses, strict=True):
        same = replace(old, lease=new.lease) == new
        if not same or not _same_lease(old.lease, new.lease):
            return False
    passed = turn.now.seconds - arms.sent_seconds
    for one, other in zip(arms.scheduled, scheduled, strict=True):
        moved = abs(one.starts_in_seconds - passed - other.starts_in_seconds)
        if moved > WATT or not _same_lease(one.lease, other.lease):
            return False
    return True


def _same_lease(old: Lease, new: Lease) -> bool:
    limits, others = dict(old.limits_watts), dict(new.limits_watts)
    slots = (old.slot.delay_seconds, old.slot.duration_seconds)
    others_slots = (new.slot.delay_seconds, new.slot.duration_seconds)
    return (
        replace(old, limits_watts=(), slot=new.slot) == replace(new, limits_watts=())
        and limits.keys() == others.keys()
        and all(abs(limits[g] - w) <= max(CAP_MOVED * w, WATT) for g, w in others.items())
        and all(
            abs(one - other) <= max(0.05 * other, 1.0)
            for one, other in zip(slots, others_slots, strict=True)
        )
    )


def _renew(turn: Turn) -> None:
    for node_id, node in turn.state.nodes.items():
        if node.node.connected and node.arms.revision:
            _renew_node(turn, node_id, node)


def _renew_node(turn: Turn, node_id: str, node: NodeTrack) -> None:
    """Give the same again half way through its lease."""
    passed = turn.now.seconds - node.arms.sent_seconds
    if passed >= ARMED_SECONDS / 2 and (node.arms.responses or node.arms.scheduled):
        scheduled = (
            replace(s, starts_in_seconds=s.starts_in_seconds - passed) for s in node.arms.scheduled
        )
        _send(turn, node_id, node, node.arms.responses, tuple(scheduled))


def _send(
    turn: Turn,
    node_id: str,
    node: NodeTrack,
    responses: tuple[ArmedResponse, ...],
    scheduled: tuple[ScheduledResponse, ...],
) -> None:
    armoury: Armoury = turn.state.armoury
    armoury.revision += 1
    acked = node.arms.acked
    node.arms = NodeArms(responses, scheduled, armoury.revision, acked, turn.now.seconds)
    turn.emit(SendArms(node_id, armoury.revision, ARMED_SECONDS, responses, scheduled))
