"""What the site may draw now: open events, the hard limit, and the ramps between them.

Within one programme the event with the lowest priority number holds (none = last). Of two with the
same one OpenADR leaves open which (user guide, 7.1): the stricter holds, since breaking either is
the costlier mistake; a protocol whose newest word wins takes the older one back. Between programmes
the strictest binds. On the way down the target falls from where power was no faster than
``ramp.down``, and at once where there is no ramp or the programme is exempt from it (fast reserve,
by configuration). On the way up it rises no faster than ``ramp.up`` and stays at or below the
pre-event level until the last restore slot has ended (no rebound).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gridaware.domain.event import EventState, GridEvent
from gridaware.domain.moment import Moment
from gridaware.domain.programme import Programme
from gridaware.domain.target import Aim, HardLimit, PowerTarget, Ramp

__all__ = [
    "Descent",
    "Release",
    "binding_events",
    "is_rising",
    "power_target",
    "ramp_down_seconds",
]

_NO_RAMP = Ramp()


@dataclass(frozen=True, slots=True)
class Descent:
    """Where a ramp down began."""

    seconds: float
    """Monotonic."""
    watts: float
    """At the meter then."""


@dataclass(frozen=True, slots=True)
class Release:
    """Where a ramp up began.

    It is over, and passed as None, once every found limit is back and the last restore slot ended.
    """

    seconds: float
    """Monotonic."""
    watts: float
    """At the meter then: the level that was held."""
    ceiling_watts: float | None
    """The pre-event level; None where none is known."""


def binding_events(events: Iterable[GridEvent], now: Moment) -> tuple[GridEvent, ...]:
    """The event that holds in each programme now, the strictest first.

    Events count from their start to their end while they are accepted and know their limit.
    """
    holding: dict[str, GridEvent] = {}
    for event in events:
        if event.limit_watts is None or not _in_window(event, now):
            continue
        rival = holding.get(event.programme_id)
        if rival is None or _precedence(event) < _precedence(rival):
            holding[event.programme_id] = event
    return tuple(sorted(holding.values(), key=lambda e: (e.limit_watts or 0.0, e.event_id)))


def _in_window(event: GridEvent, now: Moment) -> bool:
    acting = event.state.acting or event.state is EventState.SCHEDULED
    begun = event.request.start <= now.wall
    return acting and begun and (event.request.end is None or now.wall < event.request.end)


def _precedence(event: GridEvent) -> tuple[bool, int, float, str]:
    priority = event.request.priority
    return (priority is None, priority or 0, event.limit_watts or 0.0, event.event_id)


def ramp_down_seconds(from_watts: float, limit_watts: float, ramp: Ramp) -> float:
    """How long the site needs to come down: compare it with the programme's deadline."""
    if ramp.down_watts_per_minute is None:
        return 0.0
    return 60.0 * max(from_watts - limit_watts, 0.0) / ramp.down_watts_per_minute


def power_target(
    now: Moment,
    events: Iterable[GridEvent],
    programmes: Mapping[str, Programme],
    *,
    hard_limit: HardLimit | None = None,
    ramp: Ramp = _NO_RAMP,
    descent: Descent | None = None,
    release: Release | None = None,
) -> PowerTarget:
    """The target at the site meter at a moment.

    Args:
        now: both clocks.
        events: open events; others are ignored.
        programmes: by id; one that is missing counts as a plain one.
        hard_limit: of the connection; it is never ramped.
        ramp: how fast the site may move.
        descent: where the ramp down of what binds began; None = no ramp down is under way.
        release: where the ramp up began; None = the site is not coming back.
    """
    binding = binding_events(events, now)
    aim = _owed(now, binding, programmes, ramp, descent) if binding else None
    if release is not None:
        aim = _coming_back(now, aim, ramp, release)
    return PowerTarget(hard_limit, aim, ramp)


def is_rising(target: PowerTarget) -> bool:
    """Whether the target only paces the way back: no event owes anything."""
    return target.aim is not None and not target.aim.event_ids


def _owed(
    now: Moment,
    binding: tuple[GridEvent, ...],
    programmes: Mapping[str, Programme],
    ramp: Ramp,
    descent: Descent | None,
) -> Aim:
    strictest = binding[0]
    owed = strictest.limit_watts or 0.0
    programme = programmes.get(strictest.programme_id, Programme(strictest.programme_id))
    reference = strictest.reference.watts if strictest.reference is not None else None
    return Aim(
        watts=_ramped(now, binding, programmes, ramp, descent),
        settlement_interval_seconds=programme.settlement_interval_seconds,
        paid_band=programme.paid_band,
        reference_watts=reference,
        event_ids=tuple(event.event_id for event in binding),
        owed_watts=owed,
    )


def _ramped(
    now: Moment,
    binding: tuple[GridEvent, ...],
    programmes: Mapping[str, Programme],
    ramp: Ramp,
    descent: Descent | None,
) -> float:
    """The strictest limit; what is not exempt comes down no faster than the site's ramp.

    The ramp is the connection agreement's: it binds even where a deadline is missed by it.
    """
    reached = float("-inf")
    if descent is not None and ramp.down_watts_per_minute is not None:
        minutes = max(now.seconds - descent.seconds, 0.0) / 60.0
        reached = descent.watts - ramp.down_watts_per_minute * minutes
    limits = []
    for event in binding:
        programme = programmes.get(event.programme_id)
        exempt = programme is not None and programme.ramp_exempt
        limit = event.limit_watts or 0.0
        limits.append(limit if exempt else max(limit, reached))
    return min(limits)


def _coming_back(now: Moment, owed: Aim | None, ramp: Ramp, release: Release) -> Aim | None:
    """What is owed, or the level that the way back has reached, whichever is lower."""
    level = release.ceiling_watts
    if ramp.up_watts_per_minute is not None:
        minutes = max(now.seconds - release.seconds, 0.0) / 60.0
        reached = release.watts + ramp.up_watts_per_minute * minutes
        level = reached if level is None else min(level, max(reached, 0.0))
    if level is None or (owed is not None and owed.watts <= level):
        return owed
    if owed is None:
        return Aim(watts=level)
    return Aim(
        level,
        owed.settlement_interval_seconds,
        owed.paid_band,
        owed.reference_watts,
        owed.event_ids,
        owed.owed_watts,
    )
