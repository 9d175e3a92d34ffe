"""Readings: measurements that say what they are, and how good."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gridaware.domain.moment import Moment

__all__ = [
    "Boundary",
    "EnergyReading",
    "GpuObservation",
    "JobObservation",
    "MeterState",
    "Method",
    "NodeObservation",
    "Observation",
    "Quality",
    "Reading",
]


class Boundary(StrEnum):
    """What a measurement encloses."""

    GPU = "gpu"
    MODULE = "module"
    CPU = "cpu"
    """The processors of a node, with their memory; within MODULE where a node has modules."""
    NODE = "node"
    SITE = "site"


class Method(StrEnum):
    """How a number came about."""

    COUNTER = "counter"
    INSTANT = "instant"
    AVERAGED = "averaged"
    INTEGRATED = "integrated"
    METER = "meter"
    DEVICE_SUM = "device_sum"
    """Sum of devices through the overhead model."""
    ESTIMATED = "estimated"


class Quality(StrEnum):
    """How far a number can be trusted."""

    GOOD = "good"
    HELD = "held"
    """The last good value, repeated."""
    SUSPECT = "suspect"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Reading:
    """Power: one measurement, in watts."""

    watts: float
    at: datetime
    boundary: Boundary
    method: Method
    quality: Quality = Quality.GOOD
    disturbed: bool = False
    """The meter itself says that its supply is disturbed (a voltage sag, a loss of synchronism)."""
    meter: str = ""
    """Which of the site's meters; "" = none of its own."""
    accuracy_share: float | None = None
    """The truth lies within ± this share of it; None = nobody says."""
    age_seconds: float = 0.0
    """How old the measurement is."""


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """An energy counter. It grows within one epoch; a new epoch starts again from anywhere."""

    joules: float
    epoch: str
    at: datetime
    boundary: Boundary = Boundary.GPU


@dataclass(frozen=True, slots=True)
class GpuObservation:
    """One GPU at one tick."""

    gpu_id: str
    power_watts: float
    energy_joules: float | None
    energy_epoch: str
    enforced_limit_watts: float
    requested_limit_watts: float
    quality: Quality = Quality.GOOD
    job_id: str | None = None
    attempt: int = 0
    shares: float = 1.0
    """Share of the GPU that belongs to ``job_id``."""
    unmanaged: bool = False
    """A process that is not ours is on it."""
    cap_binds: bool | None = None


@dataclass(frozen=True, slots=True)
class NodeObservation:
    """One node at one tick. ``age_seconds`` since its newest sample."""

    node_id: str
    age_seconds: float
    gpus: tuple[GpuObservation, ...]


@dataclass(frozen=True, slots=True)
class JobObservation:
    """Progress of one job as its processes reported it."""

    job_id: str
    attempt: int
    step: int
    steps_per_second: float
    """Over the last seconds; of the slowest rank."""
    age_seconds: float
    busy: str | None = None
    """A window without checks (compile, eval, …), by name."""


@dataclass(frozen=True, slots=True)
class MeterState:
    """One meter of the site's order at one tick, in use or not."""

    name: str
    state: str
    """``well``, ``held`` (its last good reading stands), ``ill`` or ``unread``."""
    accuracy_share: float
    watts: float | None = None
    """Its newest good reading."""
    problem: str = ""
    """The alarm that its illness raises: ``meter-silent``, ``meter-implausible``, …"""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """All readings of one tick, reduced; the only thing the machine sees of them."""

    moment: Moment
    meter: Reading
    nodes: tuple[NodeObservation, ...]
    jobs: tuple[JobObservation, ...] = ()
    meter_joules: EnergyReading | None = None
    ray_free_gpus: float | None = None
    """What Ray says is free; None when Ray did not answer."""
    ray_total_gpus: float | None = None
    meters: tuple[MeterState, ...] = ()
    """The site's meters in their order; none where it has only the sum of its devices."""

    @property
    def gpu_watts(self) -> float:
        """Sum over all observed GPUs."""
        return sum(g.power_watts for n in self.nodes for g in n.gpus)
