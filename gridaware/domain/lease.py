"""Leases: limits that an agent holds for a duration, and how it lets go of them."""

from dataclasses import dataclass

from gridaware.domain.frequency import FrequencyRule
from gridaware.domain.programme import SignalLoss

__all__ = ["ArmedResponse", "Lease", "RestoreSlot", "ScheduledResponse"]


@dataclass(frozen=True, slots=True)
class RestoreSlot:
    """An agent's own part of the site's ramp up.

    ``delay_seconds`` after the lease ends it raises its limits in a straight line from the held
    to the found ones over ``duration_seconds``. Slots of one site do not overlap by more than the
    ramp allows, so a thousand agents alone keep it.
    """

    delay_seconds: float = 0.0
    duration_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Lease:
    """Limits of one node until a time, counted on the boot clock from receipt.

    A GPU that ``limits_watts`` does not name stands at its found limit. ``duration_seconds`` None
    = an event without an end, which follows ``signal_loss`` once the controller falls silent.
    ``standing_watts`` are ceilings of a connection limit: they hold before, during and after the
    lease, also without a controller.
    """

    lease_id: str
    limits_watts: tuple[tuple[str, float], ...] = ()
    duration_seconds: float | None = 0.0
    slot: RestoreSlot = RestoreSlot()
    signal_loss: SignalLoss = SignalLoss()
    standing_watts: tuple[tuple[str, float], ...] = ()
    event_ids: tuple[str, ...] = ()
    clocks_mhz: tuple[tuple[str, float], ...] = ()
    """Clocks that GPUs must not exceed, beside their limits: depth for work whose draw is below
    every legal limit. A GPU that it does not name is unlocked."""

    @property
    def empty(self) -> bool:
        """Whether it asks for nothing: every GPU at its found limit."""
        return not (self.limits_watts or self.standing_watts or self.clocks_mhz)


@dataclass(frozen=True, slots=True)
class ArmedResponse:
    """A lease that a node holds ready: it is in force as soon as its programme's level is fired."""

    programme_id: str
    level: int
    """Position in the programme's ladder of depths."""
    depth: float
    """Share of the site's reference that all nodes together take away with it."""
    lease: Lease
    """Its duration is the programme's longest; a trigger may say otherwise."""
    frequency: FrequencyRule | None = None
    """What fires it on a node that hears the frequency of the grid."""


@dataclass(frozen=True, slots=True)
class ScheduledResponse:
    """A lease of an event that is known ahead. It comes into force without a controller alone."""

    starts_in_seconds: float
    """From receipt, on the boot clock."""
    lease: Lease
