"""Limits that a person gave back ahead of time, on one node or on the whole fleet.

A node's release comes with its Hello, perhaps long after it was made: while no controller was
there, or before the agent was restarted. The same one may come many times. The events that it broke
into are opted out of in the name of the person; where such an event was closed meanwhile, its
programme is told that it failed.
"""

from dataclasses import replace

from gridaware.control.instructions import SettleEvent
from gridaware.control.signals import opt_out
from gridaware.control.state import EventTrack, Turn
from gridaware.control.stimuli import FleetReleased
from gridaware.domain.event import EventState
from gridaware.domain.wire import Hello

__all__ = ["note_releases", "release_fleet"]

_COMING_BACK = {EventState.RAMPING_UP, EventState.RESTORED, EventState.SETTLED}


def note_releases(turn: Turn, hello: Hello) -> bool:
    """Take in what persons have released on a node; whether the site now owes less."""
    owed_less = False
    for released in hello.releases:
        who = f"{released.actor} released {hello.node_id}: {released.reason or 'no reason given'}"
        for event_id in released.event_ids:
            track = turn.state.events.get(event_id)
            if track is not None and track.event.opted_out_by is None:
                owed_less = _break(turn, track, who) or owed_less
        if not released.event_ids:
            turn.alarm("released-by-person", who, hello.node_id)
    return owed_less


def _break(turn: Turn, track: EventTrack, who: str) -> bool:
    event = track.event
    if event.state.open:
        opt_out(turn, track, who)
        return True
    if event.state in _COMING_BACK and event.reason not in {"Cancelled", "OptedOut"}:
        track.event = replace(event, opted_out_by=who)
        turn.tell_feed(event.event_id, "failed")
        turn.alarm("opted-out", f"{who}, before {event.event_id} was over", event.event_id)
        turn.publish("event", event.event_id)
        if event.state is EventState.SETTLED:
            turn.emit(SettleEvent(event.event_id, final=True))
    return False


def release_fleet(turn: Turn, stimulus: FleetReleased) -> None:
    """Opt out of every event that acts, and let everything come back by the ramp, or at once."""
    who = f"{stimulus.actor} released the fleet: {stimulus.reason or 'no reason given'}"
    acting = [t for t in turn.state.events.values() if t.event.state.acting]
    if stimulus.at_once:
        turn.state.at_once_seconds = turn.now.seconds
    for track in acting:
        opt_out(turn, track, who)
    turn.alarm("released-by-person", who)
    turn.answer("accepted", "fleet", message=", ".join(t.event.event_id for t in acting))
