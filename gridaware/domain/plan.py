"""A Plan: one action per job, with expected figures and a reason."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

__all__ = ["Action", "ActionKind", "Plan"]


class ActionKind(IntEnum):
    """What is done to a job, mildest first."""

    SPARE = 0
    RESTORE_LIMITS = 1
    SET_CAP = 2
    LOCK_CLOCKS = 3
    SHRINK = 4
    RESUME = 5
    KEEP_PAUSED = 6
    PAUSE = 7


class Action(NamedTuple):
    """What happens to one job. A tuple, since a plan may hold ten thousand of them."""

    job_id: str
    kind: ActionKind
    cap_watts: float
    """Of each of its GPUs; the found limit where nothing is capped."""
    expected_watts: float
    """All its GPUs together, once settled."""
    expected_throughput: float
    """Relative to uncapped, 0 to 1."""
    reason: str
    """Code; its sentence is made by :mod:`gridaware.domain.reasons` when shown."""
    numbers: tuple[float, ...] = ()
    """The figures of the sentence, in the order the code's template names them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer to a Situation."""

    strategy: str
    actions: tuple[Action, ...]
    """In the order of the situation's jobs."""
    expected_gpu_watts: float
    shortfall_watts: float
    """GPU watts above the target that no allowed action can remove."""
    stop_admission: bool
    firm_floor_broken: bool = False
    """Firm jobs lose throughput, since nothing else meets what binds. Always alarmed."""
