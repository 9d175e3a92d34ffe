"""Programmes (contracts with the grid), feeds, and what each feed may ask for."""

from dataclasses import dataclass
from datetime import datetime

from gridaware.domain.errors import InvalidInput
from gridaware.domain.frequency import FrequencyRule
from gridaware.domain.obligation import Obligation
from gridaware.domain.signal import EventRequest

__all__ = ["ARMED_BELOW_SECONDS", "Authority", "FeedSpec", "Programme", "SignalLoss"]

ARMED_BELOW_SECONDS = 60.0
"""A programme with a shorter deadline has its responses armed on every node, ready to be fired."""
ARMED_DEPTHS = (0.1, 0.2, 0.3, 0.4)
"""The ladder of one that does not declare its own: what sites of this kind have delivered as caps
alone (10 to 40 %; notes on arXiv 2606.25098)."""


@dataclass(frozen=True, slots=True)
class SignalLoss:
    """What an agent does when an event without an end loses its controller.

    It holds the last set-point for ``hold_seconds`` (None: until a person releases it), then goes
    to ``fallback_fraction`` of each GPU's found limit and stays there (None: restores the found
    limits in its slot of the ramp).
    """

    hold_seconds: float | None = 4 * 3600.0
    fallback_fraction: float | None = None

    def __post_init__(self) -> None:
        if self.hold_seconds is not None and not self.hold_seconds >= 0:
            raise InvalidInput("programme-hold-negative", "hold_seconds must be 0 or more")
        if self.fallback_fraction is not None and not 0 < self.fallback_fraction <= 1:
            raise InvalidInput("programme-fallback-range", "fallback_fraction must be in (0, 1]")


@dataclass(frozen=True, slots=True)
class Programme:
    """A contract with the grid, as far as control and settlement need it."""

    programme_id: str
    deadline_seconds: float = 60.0
    """From the start of an event to full response."""
    settlement_interval_seconds: float = 60.0
    paid_band: tuple[float, float] = (1.0, 1.05)
    """Delivered over owed that is paid in full: aim inside it, never below."""
    baseline: str = "meter_before_after"
    mandatory: bool = True
    signal_loss: SignalLoss = SignalLoss()
    max_duration_seconds: float | None = None
    ramp_exempt: bool = False
    """Fast reserve: on the way down the site's ramp limit does not bind its events. Only where the
    connection agreement says so; the way back keeps the ramp."""
    armed_depths: tuple[float, ...] | None = None
    """Shares of the reference that it may ask for at once, shallowest first: for each, every node
    holds the caps of its next response. () = nothing is armed; None = by the deadline."""
    frequency: FrequencyRule | None = None
    """What fires them on a node that hears the frequency of the grid, with no frame at all."""
    catalogue: str = ""
    """The entry of the programme catalogue that it follows; "" = none."""
    version: str = ""
    """Of that entry: the rules from ``valid_from`` on."""
    valid_from: datetime | None = None
    """None = from the beginning."""
    obligation: Obligation | None = None
    """Its hours; an event wholly outside them is voluntary. None = every event is owed."""
    tariff_baseline: str = ""
    """The baseline by which it really settles, where that is not computed here; else ""."""

    def __post_init__(self) -> None:
        depths = self.armed_depths or ()
        if not all(0 < depth < 1 for depth in depths) or list(depths) != sorted(set(depths)):
            raise InvalidInput(
                "programme-armed-depths",
                "armed_depths must rise from one share of the reference (0 to 1) to the next",
            )
        if self.frequency is not None and not self.ladder:
            raise InvalidInput(
                "frequency-rule", "a programme that answers the frequency needs armed_depths"
            )

    def voluntary(self, request: EventRequest) -> str:
        """The reason code why an event is not owed; "" = it is."""
        if not self.mandatory:
            return "VoluntaryProgramme"
        hours = self.obligation
        if hours is not None and not hours.reaches(request.start, request.end):
            return "OutsideObligation"
        return ""

    @property
    def ladder(self) -> tuple[float, ...]:
        """The depths that are armed; a level is the position of one in it."""
        if self.armed_depths is not None:
            return self.armed_depths
        return ARMED_DEPTHS if self.deadline_seconds < ARMED_BELOW_SECONDS else ()


@dataclass(frozen=True, slots=True)
class Authority:
    """The most a feed may ask for; beyond it a request is clamped, alarmed and held for a person.

    No authority can raise a limit above the found one.
    """

    least_watts: float = 0.0
    """The lowest site limit it may set, watts at the site meter."""
    greatest_depth: float = 1.0
    """The largest share of the reference it may take away, 0 to 1."""
    hours_per_day: float = 24.0
    least_notice_seconds: float = 0.0
    """The shortest notice it may give."""

    def __post_init__(self) -> None:
        if not self.least_watts >= 0:
            raise InvalidInput("authority-least-watts", "least_watts must be 0 or more")
        if not 0 <= self.greatest_depth <= 1:
            raise InvalidInput("authority-depth-range", "greatest_depth must be 0 to 1")
        if not 0 <= self.hours_per_day <= 24:
            raise InvalidInput("authority-hours-range", "hours_per_day must be 0 to 24")
        if not self.least_notice_seconds >= 0:
            raise InvalidInput("authority-notice", "least_notice_seconds must be 0 or more")


@dataclass(frozen=True, slots=True)
class FeedSpec:
    """A registered source of signals."""

    feed_id: str
    kind: str
    """Name in the feed registry: webhook, schedule, file, …"""
    programme_id: str
    authority: Authority = Authority()
    settings_json: str = "{}"
    """The kind's own settings; secrets are named by reference, never stored here."""
