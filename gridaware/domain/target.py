"""What the site may draw: hard limits, what events owe, ramps, and the overhead between."""

from dataclasses import dataclass

from gridaware.domain.errors import InvalidInput

__all__ = ["Aim", "HardLimit", "Overhead", "PowerTarget", "Ramp"]


@dataclass(frozen=True, slots=True)
class HardLimit:
    """A connection agreement or a breaker: never exceeded, never traded."""

    watts: float
    averaging_seconds: float = 10.0
    margin: float = 0.02
    """Kept free below it, as a share of it."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What open events owe: the strictest of them."""

    watts: float
    settlement_interval_seconds: float = 60.0
    paid_band: tuple[float, float] = (1.0, 1.05)
    reference_watts: float | None = None
    event_ids: tuple[str, ...] = ()
    owed_watts: float | None = None
    """What the strictest event owes, however far the ramp down has come; None = nothing is owed."""


@dataclass(frozen=True, slots=True)
class Ramp:
    """How fast the site may move, watts a minute at the meter; None = no limit."""

    down_watts_per_minute: float | None = None
    up_watts_per_minute: float | None = None


@dataclass(frozen=True, slots=True)
class Overhead:
    """Meter watts as a straight line of GPU watts: ``fixed + slope * gpu``.

    Fans, CPUs and losses grow with load and partly do not; a cut of GPU power is therefore a
    smaller share of the meter. ``quality`` says whether the line was measured or assumed.
    """

    fixed_watts: float = 0.0
    slope: float = 1.0
    quality: str = "assumed"

    def __post_init__(self) -> None:
        if not (self.fixed_watts >= 0 and self.slope >= 1):
            raise InvalidInput(
                "overhead-range", "fixed_watts must be 0 or more and slope at least 1"
            )

    def meter_watts(self, gpu_watts: float) -> float:
        """Watts at the site meter while the GPUs draw ``gpu_watts``."""
        return self.fixed_watts + self.slope * gpu_watts

    def gpu_watts(self, meter_watts: float) -> float:
        """What the GPUs may draw so that the meter shows ``meter_watts``; may be negative."""
        return (meter_watts - self.fixed_watts) / self.slope


@dataclass(frozen=True, slots=True)
class PowerTarget:
    """Watts at the site meter that hold now."""

    hard_limit: HardLimit | None = None
    aim: Aim | None = None
    ramp: Ramp = Ramp()

    @property
    def limit_watts(self) -> float | None:
        """The stricter of the hard limit less its margin and the aim; None = free."""
        limits = []
        if self.hard_limit is not None:
            limits.append(self.hard_limit.watts * (1 - self.hard_limit.margin))
        if self.aim is not None:
            limits.append(self.aim.watts)
        return min(limits) if limits else None
