"""What agents have answered by themselves becomes an event, so that all that follows does follow.

A node that hears the frequency of the grid fires what it holds armed before it says so. The first
word of it makes an event of that programme, from when the node fired; the other nodes are brought
into line as by any other event, and hold, return, settlement and report are the ordinary ones. It
asks for the deepest that any node has fired, and ends when the last of them has let go.
"""

from dataclasses import replace
from datetime import timedelta

from gridaware.control.signals import on_signal
from gridaware.control.site import LOCAL_FEED
from gridaware.control.state import EventTrack, Turn
from gridaware.domain.event import EventState, event_id_of
from gridaware.domain.signal import EventRequest, Quantity, Signal, TargetSpec
from gridaware.domain.wire import Fired

__all__ = ["on_fired"]

FREQUENCY = "frequency"
"""The kind of a feed that stands for what nodes hear themselves."""


def on_fired(turn: Turn, fired: Fired) -> None:
    """Take in that a node has fired one of its armed responses, or let go of it."""
    track = _event_of(turn, fired.programme_id)
    if fired.level is None:
        if track is not None and track.fired_by.pop(fired.node_id, None) is not None:
            _follow(turn, track)
        return
    if track is None:
        track = _announce(turn, fired)
    if track is not None:
        track.fired_by[fired.node_id] = fired.depth
        _follow(turn, track)


def _event_of(turn: Turn, programme_id: str) -> EventTrack | None:
    """The event that nodes have begun, while it lasts."""
    for track in turn.state.events.values():
        event = track.event
        if event.programme_id == programme_id and event.state.open and track.fired_by:
            return track
    return None


def _announce(turn: Turn, fired: Fired) -> EventTrack | None:
    """Make the event; None where the site does not serve it, which is told as of any other."""
    feed_id = _feed_id(turn, fired.programme_id)
    seconds = max(fired.age_seconds, 0.0)
    start = turn.now.wall - timedelta(seconds=seconds)
    duration = fired.duration_seconds
    end = None if duration is None else start + timedelta(seconds=duration)
    source_id = f"{start:%Y%m%dT%H%M%S.%f}"
    signal = Signal(
        feed_id=feed_id,
        source_id=source_id,
        revision=0,
        received_at=start,
        received_seconds=turn.now.seconds - seconds,
        request=EventRequest(start, end, _target(fired.depth), immediate=True),
        raw=f"{fired.node_id}: {fired.cause} {fired.measured}",
    )
    on_signal(turn, signal)
    track = turn.state.events.get(event_id_of(feed_id, source_id))
    return track if track is not None and track.event.state.open else None


def _feed_id(turn: Turn, programme_id: str) -> str:
    for spec in turn.state.feeds.values():
        if spec.kind == FREQUENCY and spec.programme_id == programme_id:
            return spec.feed_id
    return f"{LOCAL_FEED}:{programme_id}"


def _follow(turn: Turn, track: EventTrack) -> None:
    """Ask for what the nodes that hold it have fired; nothing any more once none does."""
    event, now = track.event, turn.now
    request = event.asked or event.request
    depth = max(track.fired_by.values(), default=None)
    if depth is None:
        wanted = replace(request, end=max(now.wall, request.start + timedelta(milliseconds=1)))
    else:
        wanted = replace(request, target=_target(depth))
    if wanted != request and event.state is not EventState.ANNOUNCED:
        on_signal(
            turn,
            Signal(
                feed_id=event.feed_id,
                source_id=event.source_id,
                revision=event.revision + 1,
                received_at=now.wall,
                received_seconds=now.seconds,
                request=wanted,
            ),
        )


def _target(depth: float) -> TargetSpec:
    return TargetSpec(Quantity.REDUCTION_FRACTION, depth)
