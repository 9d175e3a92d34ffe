"""The passing of time for events: windows begin and end, clocks stop, results are asked for."""

from dataclasses import replace

from gridaware.control.instructions import SettleEvent
from gridaware.control.signals import ensure_reference, move
from gridaware.control.state import EventTrack, Turn
from gridaware.domain.event import EventState
from gridaware.domain.wire import Acknowledged

__all__ = [
    "advance_events",
    "note_acknowledged",
    "note_decided",
    "note_dispatched",
    "note_restored",
]

CONFIRM_SECONDS = 2.0
"""Power must stay at or below the target this long to be confirmed, from its first reading."""
CLOSED_EVENTS = 256
"""Closed events kept in mind, so that late duplicates are known; all are in the store."""
READ_BACK_TOLERANCE_WATTS = 1.0


def advance_events(turn: Turn) -> None:
    """Move every event that the wall clock or the readings move."""
    for track in list(turn.state.events.values()):
        ensure_reference(turn, track)
        _advance(turn, track)
    _forget_closed(turn)


def _advance(turn: Turn, track: EventTrack) -> None:
    event, now = track.event, turn.now
    begun = event.request.start <= now.wall
    over = event.request.end is not None and event.request.end <= now.wall
    match event.state:
        case EventState.SCHEDULED if over:
            move(turn, track, "WindowMissed")
            turn.emit(SettleEvent(event.event_id, final=True))
        case EventState.SCHEDULED if begun and event.limit_watts is not None:
            move(turn, track, "WindowStarted")
        case EventState.RAMPING_DOWN | EventState.HOLDING if over or not begun:
            move(turn, track, "WindowEnded")
        case EventState.RAMPING_UP if begun and not over and event.reason == "WindowEnded":
            # Revised while coming back: the window holds again.
            move(turn, track, "Revised")
        case EventState.RAMPING_DOWN:
            _confirm(turn, track)
            if track.event.clocks.confirmed_seconds is not None or _deadline_passed(turn, track):
                move(turn, track, "TargetReached")
        case EventState.HOLDING:
            _confirm(turn, track)
        case EventState.RESTORED:
            settled_after = turn.state.site.settle_after_seconds
            if now.seconds >= track.restored_seconds + settled_after:
                move(turn, track, "Settled")
                turn.emit(SettleEvent(event.event_id, final=True))


def _deadline_passed(turn: Turn, track: EventTrack) -> bool:
    event = track.event
    programme = turn.state.site.rules_of(event)
    started = event.started_at
    assert started is not None
    return (turn.now.wall - started).total_seconds() >= programme.deadline_seconds


def _confirm(turn: Turn, track: EventTrack) -> None:
    """Stop the *confirmed* clock at the first reading from which power stayed at the target."""
    event = track.event
    if event.clocks.accepted_seconds is None or event.clocks.confirmed_seconds is not None:
        return
    if turn.state.ride.frozen(turn.now.seconds):
        return  # power that is only not seen is not confirmed
    if event.limit_watts is None or turn.state.meter_watts > event.limit_watts:
        track.below_since_seconds = None
        return
    if track.below_since_seconds is None:
        track.below_since_seconds = turn.now.seconds
    if turn.now.seconds - track.below_since_seconds >= CONFIRM_SECONDS:
        clocks = replace(event.clocks, confirmed_seconds=track.below_since_seconds)
        track.event = replace(event, clocks=clocks)
        turn.publish("event", event.event_id)


def note_decided(turn: Turn, decision_id: str, sequences: dict[str, int]) -> None:
    """A decision was made; for events it is the first of, start their clocks."""
    for track in turn.state.events.values():
        if track.event.state.acting and not track.decision_id:
            track.decision_id = decision_id
            track.awaiting = dict(sequences)
            turn.publish("event", track.event.event_id)


def note_dispatched(turn: Turn, decision_id: str) -> None:
    """Stop the *decided* clock: the decision's frames are on their way."""
    for track in turn.state.events.values():
        clocks = track.event.clocks
        if track.decision_id == decision_id and clocks.decided_seconds is None:
            clocks = replace(clocks, decided_seconds=turn.now.seconds)
            track.event = replace(track.event, clocks=clocks)
            _accept(turn, track)


def note_acknowledged(turn: Turn, ack: Acknowledged) -> None:
    """Stop the *accepted* clock once every GPU's enforced limit was read back."""
    if not ack.complete or any(
        r.enforced_watts is None or r.enforced_watts > r.asked_watts + READ_BACK_TOLERANCE_WATTS
        for r in ack.results
    ):
        return
    for track in turn.state.events.values():
        if track.awaiting.get(ack.node_id, ack.sequence + 1) <= ack.sequence:
            del track.awaiting[ack.node_id]
            _accept(turn, track)


def _accept(turn: Turn, track: EventTrack) -> None:
    clocks = track.event.clocks
    if (
        clocks.accepted_seconds is None
        and clocks.decided_seconds is not None
        and (not track.awaiting)
    ):
        clocks = replace(clocks, accepted_seconds=turn.now.seconds)
        track.event = replace(track.event, clocks=clocks)
        turn.publish("event", track.event.event_id)


def note_restored(turn: Turn) -> None:
    """Every found limit stands again and nothing paused for an event is left."""
    for track in turn.state.events.values():
        if track.event.state is not EventState.RAMPING_UP:
            continue
        request = track.event.request
        later = request.start > turn.now.wall and (request.end or request.start) >= request.start
        move(turn, track, "Rescheduled" if later else "LimitsRestored")
        if later:
            track.decision_id, track.awaiting = "", {}
        else:
            turn.emit(SettleEvent(track.event.event_id, final=False))


def _forget_closed(turn: Turn) -> None:
    closed = [
        event_id
        for event_id, track in turn.state.events.items()
        if track.event.state
        in {EventState.SETTLED, EventState.CANCELLED, EventState.OPTED_OUT, EventState.FAILED}
    ]
    for event_id in closed[: max(len(closed) - CLOSED_EVENTS, 0)]:
        turn.state.tombstones[event_id] = turn.state.events.pop(event_id).event.revision
