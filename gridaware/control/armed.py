"""What is armed: the responses that each node holds ready, and the plans that they come from."""

from dataclasses import dataclass, field

from gridaware.control.instructions import Decided
from gridaware.domain.lease import ArmedResponse, RestoreSlot, ScheduledResponse

__all__ = ["Armoury", "Level", "NodeArms"]


@dataclass(slots=True)
class NodeArms:
    """What one node was last given to hold ready."""

    responses: tuple[ArmedResponse, ...] = ()
    scheduled: tuple[ScheduledResponse, ...] = ()
    revision: int = 0
    """Of what was sent last; 0 = nothing since it connected."""
    acked: int = 0
    """The revision that it says it holds."""
    sent_seconds: float = -1e9


@dataclass(frozen=True, slots=True)
class Level:
    """A plan of caps alone, made ahead: one depth of a programme, or one event that is known."""

    programme_id: str
    level: int
    depth: float
    event_id: str
    """"" for a depth of the programme's ladder."""
    limit_watts: float
    """At the meter: what it was planned for."""
    expected_watts: float
    """At the meter, as soon as its caps hold."""
    expected_gpu_watts: float
    shortfall_watts: float
    """Of the GPUs: what caps alone cannot take away."""
    actions: tuple[Decided, ...]
    """Of the jobs that it caps, as a decision keeps them."""
    limits_watts: dict[str, dict[str, float]]
    """Node → GPU → limit."""
    slots: dict[str, RestoreSlot]
    """Node → its part of the way back from them."""


@dataclass(slots=True)
class Armoury:
    """The plans behind what is armed. They are made, and then handed out, over several ticks."""

    revision: int = 0
    levels: list[Level] = field(default_factory=list)
    """In the nodes' hands."""
    draft: list[Level] = field(default_factory=list)
    """Of the cycle that is under way."""
    pending: list[tuple[str, int, str]] = field(default_factory=list)
    """(programme, level, event) still to be planned in this cycle."""
    waiting: list[str] = field(default_factory=list)
    """Nodes that have still to be given their part of the last one."""
    began_seconds: float = -1e9
    """When the last cycle began, with what it then saw of the site."""
    seen: int = 0
    gpu_watts: float = 0.0
    meter_watts: float = 0.0
    """Its mean over the reference window."""
