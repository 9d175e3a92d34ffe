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
    """Of each of its GPUs from now on; the found limit where nothing is capped. While jobs are
    asked to pause it may be lower than what the expected figures need: it bridges until they left,
    and a job that is asked to pause is held at it meanwhile."""
    expected_watts: float
    """All its GPUs together, once every pause of the plan is done and caps were relaxed again."""
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
    """All GPUs together, once every pause of the plan is done."""
    shortfall_watts: float
    """GPU watts above the target that no allowed action can remove."""
    stop_admission: bool
    firm_floor_broken: bool = False
    """Firm jobs lose throughput, since nothing else meets what binds. Always alarmed."""
    expected_at_once_watts: float = 0.0
    """All GPUs together as soon as the caps hold: jobs that are to pause still run, and jobs that
    are starting draw what they draw now."""
