"""Firing what is armed: one tiny trigger a node answers an event that has just begun.

Afterwards the state is what it would be had the whole leases been sent, so the loop goes on from
there: its next plans correct what was too deep, and pauses follow where caps alone are too little.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gridaware.control.armed import Level
from gridaware.control.arming import ARMED_SECONDS, ON_GPUS, WATT
from gridaware.control.events import note_decided
from gridaware.control.instructions import Decide, SendTrigger
from gridaware.control.phase import held, note_phase
from gridaware.control.power import FAST_SECONDS, lease_terms, note_cap, pace
from gridaware.control.situation import target_of
from gridaware.control.state import EventTrack, State, Turn
from gridaware.domain.event import EventState, GridEvent
from gridaware.domain.lease import ArmedResponse
from gridaware.domain.plan import Action, ActionKind
from gridaware.domain.wire import Trigger

__all__ = ["Shot", "fire", "note_shot"]


@dataclass(frozen=True, slots=True)
class Shot:
    """What was fired, and whether it is all that is owed."""

    event_id: str
    sequences: dict[str, int]
    enough: bool


def fire(turn: Turn) -> Shot | None:
    """Put an armed response in force for an event that has just begun; None = nothing fits.

    That is the shallowest level that is deep enough, or the deepest, and then it is not enough.
    Only a site that is free, or held by its connection limit alone, is answered so: what events
    ask together, and the way back, are the planner's business.
    """
    track = _begun(turn)
    if track is None:
        return None
    state, event = turn.state, track.event
    level = _level_for(state, event)
    if level is None:
        return None
    note_phase(turn, [event], returning=False)
    state.target_watts = target_of(turn).limit_watts
    state.planned_seconds = turn.now.seconds
    state.expected_watts = level.expected_watts
    state.decisions += 1
    decision_id = f"d{state.controller_epoch}-{state.decisions}"
    sequences = _send_triggers(turn, level, event, decision_id)
    _note_caps(turn, level)
    turn.emit(
        Decide(
            decision_id=decision_id,
            event_ids=(event.event_id,),
            strategy=f"armed {state.site.policy.strategy}",
            target_watts=state.target_watts,
            target_gpu_watts=None,
            expected_gpu_watts=level.expected_gpu_watts,
            unresolved_watts=level.shortfall_watts,
            actions=level.actions,
        )
    )
    enough = level.limit_watts <= (event.limit_watts or 0.0) + WATT and level.shortfall_watts <= 0
    if enough:
        note_decided(turn, decision_id, sequences)
    state.busy_until_seconds = turn.now.seconds + FAST_SECONDS
    pace(turn, fast=True)
    turn.publish("status", "site")
    return Shot(event.event_id, sequences, enough)


def note_shot(turn: Turn, shot: Shot) -> None:
    """The plan that followed at once changed some nodes; the others' triggers are awaited, too."""
    track = turn.state.events.get(shot.event_id)
    if track is not None and track.decision_id:
        track.awaiting = shot.sequences | track.awaiting


def _begun(turn: Turn) -> EventTrack | None:
    """The event that has just begun and is alone; None = there is none that may be fired for."""
    state = turn.state
    if not state.armoury.levels or state.release_seconds is not None or held(state):
        return None
    found = None
    for track in state.events.values():
        if track.event.state is EventState.RAMPING_UP:
            return None
        if track.event.state.acting:
            if found is not None or track.decision_id:
                return None
            found = track
    return found if found is not None and _all_ready(turn) else None


def _all_ready(turn: Turn) -> bool:
    """Whether every node that can be told holds what it was given, and that is not too old."""
    nodes = [node.arms for node in turn.state.nodes.values() if node.node.connected]
    freshly = turn.now.seconds - 0.9 * ARMED_SECONDS
    return bool(nodes) and all(
        arms.revision and arms.acked == arms.revision and arms.sent_seconds > freshly
        for arms in nodes
    )


def _level_for(state: State, event: GridEvent) -> Level | None:
    """The shallowest level that is deep enough, else the deepest; None = none caps anything."""
    if event.limit_watts is None:
        return None
    levels = [
        level
        for level in state.armoury.levels
        if level.programme_id == event.programme_id and not level.event_id
    ]
    deep = [level for level in levels if level.limit_watts <= event.limit_watts + WATT]
    best = max(deep, key=lambda level: level.limit_watts, default=None) or min(
        levels, key=lambda level: level.limit_watts, default=None
    )
    return best if best is not None and any(best.limits_watts.values()) else None


def _send_triggers(turn: Turn, level: Level, event: GridEvent, decision_id: str) -> dict[str, int]:
    """One trigger a node; what the state then knows is what a lease would have left there."""
    state = turn.state
    duration, _ = lease_terms(turn, [event])
    sequences = {}
    for node_id, node in state.nodes.items():
        response = _response(node.arms.responses, level) if node.node.connected else None
        if response is None or not response.lease.limits_watts:
            continue
        state.sequence += 1
        node.sequence = sequences[node_id] = state.sequence
        node.decision_id = decision_id
        standing = node.standing_watts
        node.lease = replace(
            response.lease,
            lease_id=decision_id,
            duration_seconds=duration,
            standing_watts=tuple(standing.items()),
            event_ids=(event.event_id,),
        )
        node.limits_watts = _least(standing, dict(response.lease.limits_watts))
        node.lease_seconds = turn.now.seconds
        node.lease_ends_seconds = None if duration is None else turn.now.seconds + duration
        trigger = Trigger(
            controller_epoch=state.controller_epoch,
            sequence=node.sequence,
            decision_id=decision_id,
            revision=node.arms.revision,
            programme_id=level.programme_id,
            level=level.level,
            event_id=event.event_id,
            duration_seconds=duration,
        )
        turn.emit(SendTrigger(node_id, trigger))
        turn.publish("node", node_id)
    return sequences


def _response(responses: Iterable[ArmedResponse], level: Level) -> ArmedResponse | None:
    for response in responses:
        if (response.programme_id, response.level) == (level.programme_id, level.level):
            return response
    return None


def _least(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The stricter limit of each GPU that either names."""
    return {
        gpu_id: min(one.get(gpu_id, watts), watts)
        for gpu_id, watts in (dict(one) | dict(other)).items()
    }


def _note_caps(turn: Turn, level: Level) -> None:
    """Show on the jobs what their caps are now."""
    for job_id, kind, cap, watts, throughput, reason, numbers in level.actions:
        track = turn.state.jobs.get(job_id)
        if track is not None and track.job.state in ON_GPUS:
            track.plan_reason, track.plan_numbers = reason, numbers
            action = Action(job_id, ActionKind[kind], cap, watts, throughput, reason, numbers)
            note_cap(turn, action, capped=True)
