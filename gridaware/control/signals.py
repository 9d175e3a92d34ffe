"""From a signal to an event: duplicates, order, authority, and the frozen reference."""

from dataclasses import replace
from datetime import datetime, timedelta

from gridaware.control.site import ADMIN_FEED, LOCAL_FEED
from gridaware.control.state import EventTrack, Turn
from gridaware.domain.errors import InvalidInput
from gridaware.domain.event import (
    EVENT_LIFE,
    Clocks,
    EventState,
    GridEvent,
    Reference,
    event_id_of,
)
from gridaware.domain.programme import Authority, FeedSpec, Programme
from gridaware.domain.reasons import sentence
from gridaware.domain.signal import EventRequest, Signal
from gridaware.domain.stepseries import StepSeries
from gridaware.settlement.baselines import History, reference_for

__all__ = ["cancel_event", "ensure_reference", "move", "on_signal", "opt_out", "reference_now"]

TOMBSTONES = 1024
OPEN_EVENTS = 512
"""Events that may be open at once; a flood of them is refused, not stored."""
OPEN_EVENTS_OF_FEED = 384
"""Of one feed: whatever one sender says, another can still be heard."""


def on_signal(turn: Turn, signal: Signal) -> None:
    """Take one signal in; the answer says what became of it."""
    feed = _feed(turn, signal.feed_id)
    event_id = event_id_of(signal.feed_id, signal.source_id)
    if feed is None:
        turn.refuse("feed-unknown", f"no feed is called {signal.feed_id!r}", event_id)
        return
    track = turn.state.events.get(event_id)
    last = track.event.revision if track else turn.state.tombstones.get(event_id)
    if last is not None and signal.revision < last:
        turn.answer("superseded", event_id, revision=last)
    elif signal.request is None:
        _cancel(turn, signal, event_id, track)
    elif track is None:
        if last is not None:
            turn.answer("superseded", event_id, revision=last)
        else:
            _announce(turn, signal, signal.request, event_id, feed)
    elif signal.revision == track.event.revision:
        asked = track.event.asked or track.event.request
        if signal.request.same_as(asked):
            turn.answer("duplicate", event_id, revision=signal.revision)
        else:
            turn.refuse(
                "revision-reused",
                f"revision {signal.revision} of {event_id} said something else before",
                event_id,
            )
    else:
        _revise(turn, signal, signal.request, track, feed)


def _feed(turn: Turn, feed_id: str) -> FeedSpec | None:
    if feed_id == ADMIN_FEED:
        return FeedSpec(ADMIN_FEED, "admin", ADMIN_FEED)
    kind, _, programme_id = feed_id.partition(":")
    if kind == LOCAL_FEED and programme_id and feed_id not in turn.state.feeds:
        return FeedSpec(feed_id, "frequency", programme_id)
    return turn.state.feeds.get(feed_id)


def _crowd(turn: Turn, feed_id: str) -> str:
    """Why no more events are taken from a feed now; empty where they are."""
    senders = [t.event.feed_id for t in turn.state.events.values() if t.event.state.open]
    if len(senders) >= OPEN_EVENTS:
        return f"{OPEN_EVENTS} events are open already"
    if senders.count(feed_id) >= OPEN_EVENTS_OF_FEED:
        return f"{OPEN_EVENTS_OF_FEED} events of {feed_id} are open already"
    return ""


def _announce(
    turn: Turn, signal: Signal, asked: EventRequest, event_id: str, feed: FeedSpec
) -> None:
    if asked.end is not None and asked.end <= turn.now.wall:
        turn.refuse("event-over", f"the window of {event_id} ended before it was heard", event_id)
        return
    if crowd := _crowd(turn, signal.feed_id):
        turn.refuse("events-too-many", crowd, event_id)
        return
    request = _within_authority(turn, asked, feed, signal, event_id)
    if request is None:
        turn.refuse("beyond-authority", f"{event_id} asks for more hours than allowed", event_id)
        return
    event = GridEvent(
        event_id=event_id,
        feed_id=signal.feed_id,
        programme_id=feed.programme_id,
        source_id=signal.source_id,
        revision=signal.revision,
        request=request,
        state=EventState.ANNOUNCED,
        reason="Announced",
        received_at=signal.received_at,
        state_since=turn.now.wall,
        clocks=Clocks(signal.received_seconds),
        reference=_reference(turn, feed.programme_id, request, _notice_seconds(turn, signal, feed)),
        asked=asked if asked != request else None,
        voluntary=_programme(turn, feed, request).voluntary(request),
    )
    track = EventTrack(_with_limit(turn, event, feed.authority))
    turn.state.events[event_id] = track
    if not turn.state.site.act:
        move(turn, track, "OptedOut", opted_out_by="control.act is false")
        turn.answer("opted-out", event_id, revision=signal.revision)
        return
    move(turn, track, "Accepted")
    _answer(turn, track.event)


def _programme(turn: Turn, feed: FeedSpec, request: EventRequest) -> Programme:
    """The rules of its day."""
    return turn.state.site.programme(feed.programme_id, request.start)


def _notice_seconds(turn: Turn, signal: Signal, feed: FeedSpec) -> float:
    """When the notice was; what a node did while control was away was noticed there and then."""
    return signal.received_seconds if feed.kind == "frequency" else turn.now.seconds


def _revise(
    turn: Turn, signal: Signal, asked: EventRequest, track: EventTrack, feed: FeedSpec
) -> None:
    event = track.event
    # What was taken back, by the sender or by a person, does not begin again under its name.
    coming_back = event.state is EventState.RAMPING_UP and event.reason == "WindowEnded"
    if not (event.state.open or coming_back):
        turn.refuse("event-closed", f"{event.event_id} is {event.state.value}", event.event_id)
        return
    if asked.end is not None and asked.end <= turn.now.wall and not event.state.acting:
        turn.refuse("event-over", f"the revised window of {event.event_id} is over", event.event_id)
        return
    request = _within_authority(turn, asked, feed, signal, event.event_id)
    if request is None:
        turn.refuse(
            "beyond-authority", "the revision asks for more hours than allowed", event.event_id
        )
        return
    event = replace(
        event,
        revision=signal.revision,
        request=request,
        asked=asked if asked != request else None,
        voluntary=_programme(turn, feed, request).voluntary(request),
        reference=event.reference or _reference(turn, feed.programme_id, request),
    )
    track.event = _with_limit(turn, event, feed.authority)
    if event.state.open:
        move(turn, track, "Revised")
    _answer(turn, track.event)
    turn.publish("event", event.event_id)


def _cancel(turn: Turn, signal: Signal, event_id: str, track: EventTrack | None) -> None:
    if track is None:
        tombstones = turn.state.tombstones
        tombstones[event_id] = signal.revision
        while len(tombstones) > TOMBSTONES:
            del tombstones[next(iter(tombstones))]
        turn.answer("accepted", event_id, revision=signal.revision)
        return
    if not track.event.state.open:
        turn.answer("duplicate", event_id, revision=track.event.revision)
        return
    track.event = replace(track.event, revision=signal.revision)
    cancel_event(turn, track)
    turn.answer("accepted", event_id, revision=signal.revision)


def cancel_event(turn: Turn, track: EventTrack) -> None:
    """The sender takes an open event back."""
    move(turn, track, "Cancelled")


def opt_out(turn: Turn, track: EventTrack, actor: str) -> None:
    """A named person takes the site out of an open event."""
    move(turn, track, "OptedOut", opted_out_by=actor)
    turn.alarm("opted-out", f"{actor} opted out of {track.event.event_id}", track.event.event_id)


def move(turn: Turn, track: EventTrack, reason: str, *, opted_out_by: str | None = None) -> None:
    """Follow one edge of the life cycle, with its bookkeeping and what the feed is told."""
    event = track.event
    target = EVENT_LIFE.follow(event.state, reason)
    acted, taken_back = event.state.acting, event.opted_out_by is not None
    taken_back = taken_back or event.reason in {"Cancelled", "OptedOut"}
    event = replace(event, state=target, reason=reason, state_since=turn.now.wall)
    if opted_out_by is not None:
        event = replace(event, opted_out_by=opted_out_by)
    if target is EventState.RAMPING_DOWN and event.started_at is None:
        event = replace(event, started_at=turn.now.wall)
    if target is EventState.RAMPING_UP:
        event = replace(event, released_at=turn.now.wall)
        track.released_watts = turn.state.meter_watts
    if target is EventState.RESTORED:
        event = replace(event, restored_at=turn.now.wall)
        track.restored_seconds = turn.now.seconds
    track.event = event
    status = _STATUS.get((target, reason)) or _STATUS.get((target, ""))
    if reason in {"Cancelled", "OptedOut"} and acted:
        status = "cancelled" if reason == "Cancelled" else "opted-out"
    if status is not None and not taken_back:
        turn.tell_feed(event.event_id, status)
    turn.publish("event", event.event_id)


_STATUS = {
    (EventState.SCHEDULED, "Accepted"): "opted-in",
    (EventState.RAMPING_DOWN, ""): "active",
    (EventState.RESTORED, ""): "completed",
    (EventState.CANCELLED, ""): "cancelled",
    (EventState.OPTED_OUT, ""): "opted-out",
    (EventState.FAILED, ""): "failed",
}


def _answer(turn: Turn, event: GridEvent) -> None:
    """Accepted, or accepted as far as the feed's authority goes: then say how far."""
    changes = []
    if event.clamped_from_watts is not None and event.limit_watts is not None:
        changes.append(
            f"{event.limit_watts / 1e3:.2f} kW in place of {event.clamped_from_watts / 1e3:.2f} kW"
        )
    if event.asked is not None and event.asked.start != event.request.start:
        changes.append(f"from {event.request.start.isoformat()}")
    if event.asked is not None and event.asked.end != event.request.end:
        end = event.request.end
        changes.append(f"until {end.isoformat()}" if end is not None else "without an end")
    message = f"within its feed's authority: {', '.join(changes)}" if changes else ""
    if event.voluntary:
        message += f"{'; ' if message else ''}voluntary: {sentence(event.voluntary)}"
    turn.answer(
        "clamped" if changes else "accepted",
        event.event_id,
        message=message,
        revision=event.revision,
    )


def _within_authority(
    turn: Turn, asked: EventRequest, feed: FeedSpec, signal: Signal, event_id: str
) -> EventRequest | None:
    """The window that the feed may ask for; None = nothing is left of it.

    It begins later where the notice is short, and ends sooner where the day's hours are used up.
    """
    authority = feed.authority
    notice = timedelta(seconds=authority.least_notice_seconds)
    start = max(asked.start, signal.received_at + notice) if notice else asked.start
    end = asked.end
    if authority.hours_per_day < 24:
        left = authority.hours_per_day * 3600 - _used_seconds(turn, feed.feed_id, event_id, start)
        latest = start + timedelta(seconds=left)
        end = latest if end is None else min(end, latest)
    if end is not None and end <= start:
        return None
    if (start, end) == (asked.start, asked.end):
        return asked
    turn.alarm("beyond-authority", f"{event_id} is clamped to its feed's authority", event_id)
    return replace(asked, start=start, end=end)


def _used_seconds(turn: Turn, feed_id: str, event_id: str, start: datetime) -> float:
    """Seconds that the feed's other events take on the UTC day of ``start``."""
    day = start.replace(hour=0, minute=0, second=0, microsecond=0)
    next_day = day + timedelta(days=1)
    used = 0.0
    for track in turn.state.events.values():
        event = track.event
        counts = event.started_at is not None or event.state.open
        if event.feed_id != feed_id or event.event_id == event_id or not counts:
            continue
        ended = event.released_at or event.request.end or next_day
        overlap = min(ended, next_day) - max(event.request.start, day)
        used += max(overlap.total_seconds(), 0.0)
    return used


def _reference(
    turn: Turn, programme_id: str, request: EventRequest, notice_seconds: float | None = None
) -> Reference | None:
    """What the event is measured against, frozen at the first notice.

    An event whose window touches that of one not yet restored shares its reference, or the second
    cut would compound the first.
    """
    for track in turn.state.events.values():
        event = track.event
        if event.reference is None or not (
            event.state.open or event.state is EventState.RAMPING_UP
        ):
            continue
        if event.state is EventState.RAMPING_UP or _touch(event.request, request):
            return event.reference
    return reference_now(turn, programme_id, notice_seconds)


def reference_now(
    turn: Turn, programme_id: str, notice_seconds: float | None = None
) -> Reference | None:
    """What an event noticed now (or then), and none other near it, is measured against.

    Where nobody read the meter at the notice, the last readings before it stand.
    """
    site = turn.state.site
    window = site.reference_window_seconds
    at = turn.now.seconds if notice_seconds is None else notice_seconds
    history = turn.state.meter
    if at < turn.now.seconds:
        history = [(s, w) for s, w in history if s <= at]
        at = min(at, history[-1][0]) if history and history[-1][0] < at - window else at
    readings = [(s, w) for s, w in history if s >= at - window - 1.0]
    if not readings and turn.state.ride.frozen(turn.now.seconds):
        readings = turn.state.meter[-1:]  # the last that was believed stands meanwhile
    if not readings:
        return None
    # The history is kept on the steady clock, so a step of the wall clock does not move it.
    noticed = turn.now.wall - timedelta(seconds=turn.now.seconds - at)
    notice = noticed.timestamp()
    points = [(notice - (at - s), w) for s, w in readings]
    if points[-1][0] < notice:  # the newest reading stands until the notice
        newest = turn.state.meter_watts if at == turn.now.seconds else points[-1][1]
        points.append((notice, newest))
    method = site.programme(programme_id, turn.now.wall).baseline
    try:
        return reference_for(method, History(StepSeries.sampled(points), noticed, window))
    except InvalidInput:
        return None


def _touch(one: EventRequest, other: EventRequest) -> bool:
    """Whether two windows overlap or stand back to back (within a quarter of an hour)."""
    gap = timedelta(minutes=15)
    before = one.end is not None and one.end + gap < other.start
    after = other.end is not None and other.end + gap < one.start
    return not (before or after)


def _with_limit(turn: Turn, event: GridEvent, authority: Authority) -> GridEvent:
    """The event with its limit at the meter, clamped to the authority."""
    if event.reference is None:
        return event
    asked = event.request.target.limit_watts(event.reference.watts)
    least = max(authority.least_watts, (1 - authority.greatest_depth) * event.reference.watts)
    if asked >= least - 1e-6:
        return replace(event, limit_watts=asked, clamped_from_watts=None)
    turn.alarm(
        "beyond-authority",
        f"{event.event_id} asks for {asked / 1e3:.2f} kW; its feed may go to {least / 1e3:.2f} kW",
        event.event_id,
    )
    return replace(event, limit_watts=least, clamped_from_watts=asked)


def ensure_reference(turn: Turn, track: EventTrack) -> None:
    """Freeze the reference of an event that came before the first reading."""
    if track.event.reference is not None:
        return
    reference = _reference(turn, track.event.programme_id, track.event.request)
    if reference is None:
        return
    feed = _feed(turn, track.event.feed_id)
    authority = feed.authority if feed is not None else Authority()
    track.event = _with_limit(turn, replace(track.event, reference=reference), authority)
    turn.publish("event", track.event.event_id)
