"""Where the site is between free and held: going down, held, or on its way back.

A way down begins whenever less may be drawn than before, a way back whenever more: also while other
events still hold, so that neither is faster than the site's ramp.
"""

from gridaware.control.situation import startable, target_of, waiting_jobs
from gridaware.control.state import NodeTrack, State, Turn
from gridaware.domain.event import GridEvent
from gridaware.domain.job import JobState
from gridaware.planning.slots import restore_slots
from gridaware.planning.targets import binding_events, is_rising

__all__ = ["all_back", "held", "keep_pace", "note_phase"]

WATT = 1.0


def note_phase(turn: Turn, acting: list[GridEvent], *, returning: bool) -> None:
    """Remember from where, and since when, the site goes down or comes back."""
    state, now = turn.state, turn.now
    binding = binding_events(acting, now)
    owed = binding[0].limit_watts if binding else None
    before, state.owed_watts = state.owed_watts, owed
    if owed is None:
        state.descent_seconds = None
        if (returning or held(state)) and state.release_seconds is None:
            _set_free(turn)
        return
    levels = [event.reference.watts for event in acting if event.reference is not None]
    state.ceiling_watts = max(levels, default=None)
    if before is None or owed < before - WATT:
        state.descent_seconds, state.descent_watts = now.seconds, state.meter_watts
    reached = state.reached_watts(now.seconds)
    if before is not None and owed > before + WATT:
        if reached is None or reached >= before:
            _set_free(turn)
    elif reached is None or reached >= owed:
        state.release_seconds = None


def _set_free(turn: Turn) -> None:
    state = turn.state
    state.release_seconds, state.release_watts = turn.now.seconds, state.meter_watts
    raised = {
        node_id: node.raised_watts(node.limits_watts) for node_id, node in state.nodes.items()
    }
    slots = restore_slots(raised, state.site.ramp.up_watts_per_minute, state.site.overhead.slope)
    ends = (slot.delay_seconds + slot.duration_seconds for slot in slots.values())
    state.slots_seconds = max(ends, default=0.0)


def keep_pace(turn: Turn, plan_seconds: float) -> None:
    """Let the way back not make up for time in which nothing was planned.

    The ramp is kept in every second: a plan that is late, after a freeze or a restart, goes on from
    where the one before would have led a step on, or from what is drawn meanwhile, if that is more.
    """
    state, now = turn.state, turn.now.seconds
    line = state.reached_watts(now)
    ramp = state.site.ramp.up_watts_per_minute
    if line is None or not ramp or state.release_seconds is None:
        return
    step_on = state.reached_watts(min(state.planned_seconds + plan_seconds, now)) or 0.0
    behind = line - max(step_on, min(state.meter_watts, line))
    state.release_seconds += 60.0 * behind / ramp


def held(state: State) -> bool:
    """Whether a node that can be told otherwise holds limits for an event."""
    return any(n.node.connected and n.lease.limits_watts for n in state.nodes.values())


def all_back(turn: Turn) -> bool:
    """Whether every found limit was read back and every job paused for an event runs again.

    What a standing connection limit holds down is not an event's to give back.
    """
    state = turn.state
    target = target_of(turn)
    paced = is_rising(target) and target.aim is not None and target.limit_watts == target.aim.watts
    standing = state.site.hard_limit is not None and not paced
    if not all(_node_back(turn, node, standing=standing) for node in state.nodes.values()):
        return False
    for track in state.jobs.values():
        if track.job.state in {JobState.PAUSING, JobState.RESUMING} and track.paused_by in _GRID:
            return False
    # A job whose GPUs were taken or lost meanwhile waits for others, no longer for this event.
    return standing or not any(startable(turn, state.jobs[j]) for j in waiting_jobs(state))


_GRID = {"", "event"}


def _node_back(turn: Turn, node: NodeTrack, *, standing: bool) -> bool:
    if node.node.connected:
        unread = node.acked_sequence < node.sequence
        return not unread and (standing or not node.limits_watts)
    # It cannot be told: it gives its limits back by itself, at the end of its lease.
    slot = node.lease.slot
    ends = node.lease_ends_seconds
    own_way = slot.delay_seconds + slot.duration_seconds
    return not node.limits_watts or ends is None or turn.now.seconds >= ends + own_way
