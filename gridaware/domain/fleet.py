"""Nodes and GPUs."""

from dataclasses import dataclass

__all__ = ["Gpu", "LimitRange", "Node"]


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
