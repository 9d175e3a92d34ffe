"""Nodes and GPUs."""

from dataclasses import dataclass

__all__ = ["BoardState", "ClockRange", "Gpu", "LimitRange", "Node", "Pace", "Smoothing"]


@dataclass(frozen=True, slots=True)
class LimitRange:
    """Power limits that a device accepts, watts."""

    least_watts: float
    greatest_watts: float
    default_watts: float

    def clamp(self, watts: float) -> float:
        """``watts``, moved into the range."""
        return min(max(watts, self.least_watts), self.greatest_watts)


@dataclass(frozen=True, slots=True)
class ClockRange:
    """Clocks of the streaming multiprocessors that a device accepts as a lock, megahertz."""

    least_mhz: float
    greatest_mhz: float

    def clamp(self, mhz: float) -> float:
        """``mhz``, moved into the range."""
        return min(max(mhz, self.least_mhz), self.greatest_mhz)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a way to a device is."""

    call_seconds: float = 1.0
    """A call that takes longer hangs."""
    latency_seconds: float = 0.0
    """From a limit that was set until it is obeyed; nothing that is due sooner may count on it."""


@dataclass(frozen=True, slots=True)
class Smoothing:
    """Power smoothing: the device itself slows changes of its power, and holds a floor.

    A floor means that power does **not** fall when a job leaves: it stays at the floor for the
    hysteresis and only then goes down the ramp (NVIDIA, Blackwell power smoothing).
    """

    floor_watts: float
    hysteresis_seconds: float
    ramp_down_watts_per_second: float
    ramp_up_watts_per_second: float

    def credit_seconds(self, from_watts: float, to_watts: float) -> float:
        """How long after the work ended ``to_watts`` is reached, from ``from_watts``.

        Until then a shed must not be counted. Infinite where the device cannot ramp at all.
        """
        if to_watts >= from_watts:
            return 0.0
        rate = self.ramp_down_watts_per_second
        down = (from_watts - to_watts) / rate if rate > 0 else float("inf")
        return down + (self.hysteresis_seconds if to_watts < self.floor_watts else 0.0)


@dataclass(frozen=True, slots=True)
class BoardState:
    """What a GPU was found in that changes what a limit on it means. None = it does not say."""

    persistence: bool | None = None
    """False: limits are lost as soon as the last client of the driver leaves."""
    slices: tuple[str, ...] = ()
    """UUIDs of its MIG slices. Power, energy and limits are the board's, never a slice's."""
    profiles: tuple[str, ...] = ()
    """Workload power profiles that somebody has requested; they shift the curve."""
    smoothing: Smoothing | None = None
    """Where it is switched on."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, known by its UUID: indices change between boots."""

    gpu_id: str
    index: int
    """Driver order at this start of the agent; Ray's index on an unrestricted node."""
    model: str
    limits: LimitRange
    found_limit_watts: float
    """The limit that stood before gridaware changed anything: what is restored."""
    can_set: bool = True
    clocks: ClockRange | None = None
    """What its clocks can be locked to; None where it has no clock lock."""
    board: BoardState = BoardState()
    latency_seconds: float = 0.0
    """From a limit that was set until it is obeyed; nothing that is due sooner may count on it."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node and the agent on it."""

    node_id: str
    boot_id: str
    driver_epoch: str
    gpus: tuple[Gpu, ...]
    cluster_id: str = "default"
    connected: bool = True
    cordoned: bool = False
    capabilities: tuple[str, ...] = ()
    relay_id: str = ""
    """The relay that it is behind; empty where it dials the controller itself."""
