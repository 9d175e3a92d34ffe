"""What cannot be shed: never hidden, and never more than what is measured above the target."""

from dataclasses import replace

from gridaware.control.situation import Question, is_late
from gridaware.control.state import EventTrack, Turn
from gridaware.domain.event import GridEvent
from gridaware.domain.plan import Plan

__all__ = ["above_watts", "note_nothing_short", "note_shortfall"]

MEASURED_SECONDS = 2.0
"""Over which the meter is averaged: one reading above the target is noise."""
DEAD_SHARE = 0.002
"""Of the target: the meter of accuracy class 0.2 says no more."""


def measured_watts(turn: Turn) -> float:
    """What the site has drawn, over the last readings."""
    state, now = turn.state, turn.now.seconds
    last = [watts for at, watts in state.meter[-3:] if now - at <= MEASURED_SECONDS]
    last.append(state.meter_watts)
    return sum(last) / len(last)


def above_watts(turn: Turn, limit_watts: float | None) -> float:
    """What is measured above a limit; 0 where that is within the meter's own accuracy."""
    if limit_watts is None:
        return 0.0
    above = measured_watts(turn) - limit_watts
    return above if above > DEAD_SHARE * limit_watts else 0.0


def note_shortfall(turn: Turn, plan: Plan, question: Question, acting: list[GridEvent]) -> None:
    """Say what is left above the target, and that a firm job had to give."""
    state = turn.state
    state.unresolved_watts = round(_unresolved_watts(turn, plan, question), 1)
    state.firm_floor_broken = plan.firm_floor_broken
    state.admission_stopped = plan.stop_admission
    if state.unresolved_watts > 0.5:
        turn.alarm("unresolved-watts", f"{state.unresolved_watts / 1e3:.2f} kW cannot be shed")
    else:
        turn.calm("unresolved-watts")
    for event in acting:
        _note_on_event(turn, state.events[event.event_id])
    if plan.firm_floor_broken:
        turn.alarm("firm-floor-broken", "firm jobs are capped: nothing else meets what binds")
    else:
        turn.calm("firm-floor-broken")


def note_nothing_short(turn: Turn) -> None:
    """Nothing is asked and nothing stands."""
    state = turn.state
    state.unresolved_watts, state.firm_floor_broken, state.admission_stopped = 0.0, False, False
    turn.calm("unresolved-watts")
    turn.calm("firm-floor-broken")


def _unresolved_watts(turn: Turn, plan: Plan, question: Question) -> float:
    """What no allowed action removes by the plan, as far as it is measured; and what a ramp holds.

    The ramp of the connection binds also where the deadline is over: what it keeps above what is
    owed is a shortfall like any other.
    """
    situation, target = question.situation, question.target
    if situation.rising:
        return 0.0
    gpu_watts, late = plan.shortfall_watts, situation.late
    if late and situation.target_gpu_watts is not None:
        # What pauses under way will give is not given yet, and its time is over.
        gpu_watts = max(gpu_watts, plan.expected_at_once_watts - situation.target_gpu_watts)
    forecast = gpu_watts * turn.state.site.overhead.slope
    short = min(forecast, above_watts(turn, target.limit_watts))
    aim = target.aim
    if not late or aim is None or aim.owed_watts is None or aim.owed_watts >= aim.watts:
        return short
    return min(short + aim.watts - aim.owed_watts, above_watts(turn, aim.owed_watts))


def _note_on_event(turn: Turn, track: EventTrack) -> None:
    """Until the deadline what is foreseen now; from then on the most that was."""
    event, now = track.event, turn.state.unresolved_watts
    late = is_late(turn, event)
    most = max(now, event.unresolved_watts) if late and track.judged else now
    if most != event.unresolved_watts:
        turn.publish("event", event.event_id)
    track.event, track.judged = replace(event, unresolved_watts=most), late
