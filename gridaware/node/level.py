"""What should stand on a GPU that is held, whatever others have set on it."""

from collections.abc import Mapping

from gridaware.node.gpuhold import GpuHold
from gridaware.node.term import Term

__all__ = ["own_target_watts"]


def own_target_watts(
    hold: GpuHold, term: Term, standing_watts: Mapping[str, float], now: float
) -> float:
    """The least of the found limit, the lease's and a standing ceiling, in the device's range."""
    found = hold.found_watts
    assert found is not None
    target = term.level_watts(hold.gpu_id, found, now)
    if term.over(now) and hold.asked_watts is not None:
        target = max(target, min(hold.asked_watts, found))  # the way back never turns
    target = min(target, standing_watts.get(hold.gpu_id, target))
    if hold.limits is not None:
        target = min(hold.limits.clamp(target), found)
    return round(target, 3)
