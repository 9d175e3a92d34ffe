"""Grid events: periods in which the site owes something, and their life cycle."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gridaware.domain.signal import EventRequest
from gridaware.domain.transitions import LifeCycle, Transition

__all__ = [
    "EVENT_LIFE",
    "Clocks",
    "Escalation",
    "EventState",
    "GridEvent",
    "Reference",
    "event_id_of",
]


class EventState(StrEnum):
    """Where an event is in its life."""

    ANNOUNCED = "announced"
    SCHEDULED = "scheduled"
    RAMPING_DOWN = "ramping_down"
    HOLDING = "holding"
    RAMPING_UP = "ramping_up"
    RESTORED = "restored"
    SETTLED = "settled"
    CANCELLED = "cancelled"
    OPTED_OUT = "opted_out"
    FAILED = "failed"

    @property
    def acting(self) -> bool:
        """Whether the site owes something now."""
        return self in {EventState.RAMPING_DOWN, EventState.HOLDING}

    @property
    def open(self) -> bool:
        """Whether its window is not over yet."""
        return self in {
            EventState.ANNOUNCED,
            EventState.SCHEDULED,
            EventState.RAMPING_DOWN,
            EventState.HOLDING,
        }


@dataclass(frozen=True, slots=True)
class Reference:
    """What an event is measured against; frozen at the first notice and shared by overlaps."""

    watts: float
    """Mean power at the site meter."""
    method: str
    frozen_at: datetime
    window_seconds: float
    quality: str = "measured"


@dataclass(frozen=True, slots=True)
class Clocks:
    """The four clocks of a response, monotonic seconds; None where not reached."""

    received_seconds: float
    decided_seconds: float | None = None
    accepted_seconds: float | None = None
    """Every GPU's enforced limit was read back at or below what was asked."""
    confirmed_seconds: float | None = None
    """First observation from which power stayed at or below the target."""


@dataclass(frozen=True, slots=True)
class Escalation:
    """One rung that was taken, since GPUs did not follow what was asked of them."""

    at: datetime
    job_id: str
    """"" for a GPU with processes that are not ours."""
    rung: str
    """``deeper-cap``, ``lock-clocks``, ``pause`` or ``stop``."""
    cause: str
    """``refused``, ``unacknowledged``, ``not-enforced`` or ``ignored``; of the first of them."""
    gpu_count: int
    gpu_ids: tuple[str, ...]
    """The first of them."""
    excess_watts: float
    """Drawn by them above their caps."""
    above_watts: float
    """Drawn by the site above its target."""


@dataclass(frozen=True, slots=True)
class GridEvent:
    """A period in which the site owes something."""

    event_id: str
    feed_id: str
    programme_id: str
    source_id: str
    revision: int
    request: EventRequest
    """What is performed: what was asked, within the feed's authority."""
    state: EventState
    reason: str
    received_at: datetime
    state_since: datetime
    clocks: Clocks
    reference: Reference | None = None
    limit_watts: float | None = None
    """What it asks for at the meter, after its authority."""
    clamped_from_watts: float | None = None
    """What it asked for, where that was beyond its feed's authority."""
    started_at: datetime | None = None
    """When the ramp down began."""
    released_at: datetime | None = None
    """When the site was free to come back."""
    restored_at: datetime | None = None
    unresolved_watts: float = 0.0
    """Most watts that could not be shed, so far."""
    opted_out_by: str | None = None
    asked: EventRequest | None = None
    """What was asked, where that was beyond the feed's authority; the rest waits for a person."""
    escalations: tuple[Escalation, ...] = ()
    """Rungs taken for GPUs that did not follow, oldest first."""
    voluntary: str = ""
    """Reason code why it is not owed, and served only as far as tiers allow; "" = it is owed."""


def event_id_of(feed_id: str, source_id: str) -> str:
    """The id of the event that a feed calls ``source_id``."""
    return f"{feed_id}.{source_id}"


_S = EventState

EVENT_LIFE: LifeCycle[EventState] = LifeCycle(
    "event",
    (
        Transition(
            _S.ANNOUNCED,
            _S.SCHEDULED,
            "signal",
            "within authority, act allowed",
            "TellFeed opted-in",
            "Accepted",
        ),
        Transition(
            _S.SCHEDULED, _S.RAMPING_DOWN, "tick", "start reached", "ApplyLimits", "WindowStarted"
        ),
        Transition(
            _S.RAMPING_DOWN,
            _S.HOLDING,
            "tick",
            "power at or below target, or deadline",
            "",
            "TargetReached",
        ),
        Transition(_S.HOLDING, _S.RAMPING_UP, "tick", "end reached", "ApplyLimits", "WindowEnded"),
        Transition(
            _S.RAMPING_DOWN, _S.RAMPING_UP, "tick", "end reached", "ApplyLimits", "WindowEnded"
        ),
        Transition(
            _S.RAMPING_UP,
            _S.RESTORED,
            "acknowledgement",
            "every found limit read back",
            "RestoreLimits",
            "LimitsRestored",
        ),
        Transition(
            _S.RAMPING_UP,
            _S.SCHEDULED,
            "tick",
            "restored, and revised to a later window",
            "",
            "Rescheduled",
        ),
        Transition(
            _S.RESTORED,
            _S.SETTLED,
            "tick",
            "the method's readings are complete",
            "SettleEvent",
            "Settled",
        ),
        Transition(
            _S.SCHEDULED,
            _S.SETTLED,
            "tick",
            "end passed before it could start",
            "SettleEvent",
            "WindowMissed",
        ),
        *(
            Transition(source, _S.CANCELLED, "signal", "sender", "TellFeed cancelled", "Cancelled")
            for source in (_S.ANNOUNCED, _S.SCHEDULED)
        ),
        *(
            Transition(
                source, _S.OPTED_OUT, "opt-out", "named person", "TellFeed opted-out", "OptedOut"
            )
            for source in (_S.ANNOUNCED, _S.SCHEDULED)
        ),
        *(
            Transition(source, _S.RAMPING_UP, "signal", "sender", "ApplyLimits", "Cancelled")
            for source in (_S.RAMPING_DOWN, _S.HOLDING)
        ),
        *(
            Transition(
                source,
                _S.RAMPING_UP,
                "opt-out",
                "named person",
                "TellFeed opted-out, ApplyLimits",
                "OptedOut",
            )
            for source in (_S.RAMPING_DOWN, _S.HOLDING)
        ),
        *(
            Transition(
                source,
                _S.FAILED,
                "tick",
                "cannot be served",
                "TellFeed failed, Alarm",
                "CannotServe",
            )
            for source in (_S.ANNOUNCED, _S.SCHEDULED, _S.RAMPING_DOWN, _S.HOLDING)
        ),
        *(
            Transition(source, source, "signal", "higher revision", "plan again", "Revised")
            for source in (_S.ANNOUNCED, _S.SCHEDULED, _S.RAMPING_DOWN, _S.HOLDING)
        ),
        Transition(
            _S.RAMPING_UP,
            _S.RAMPING_DOWN,
            "signal",
            "revised to a window that holds now",
            "ApplyLimits",
            "Revised",
        ),
    ),
)
