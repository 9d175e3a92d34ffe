"""GPUs that obey a limit late, because the way to them is slow (a BMC): what they may be asked.

What an event owes is due at its programme's deadline. A limit that is obeyed later than that sheds
nothing in time, so jobs on such GPUs keep the caps that stand and give by pausing instead. Without
an event nothing is due at a time: a standing limit counts on every GPU.
"""

from dataclasses import replace

from gridaware.control.state import Turn
from gridaware.domain.event import GridEvent
from gridaware.domain.situation import JobView

__all__ = ["as_it_stands", "too_slow"]


def too_slow(turn: Turn, acting: list[GridEvent], due_seconds: float) -> frozenset[str]:
    """GPUs that obey later than ``due_seconds``, or than what the acting events owe is due."""
    rules = (turn.state.site.rules_of(event) for event in acting)
    due = min([due_seconds, *(programme.deadline_seconds for programme in rules)])
    return frozenset(
        gpu.gpu_id
        for node in turn.state.nodes.values()
        for gpu in node.node.gpus
        if gpu.latency_seconds > due
    )


def as_it_stands(view: JobView) -> JobView:
    """The same job, whose cap can only be raised: a lower one would be obeyed too late."""
    return replace(view, least_cap_watts=max(view.least_cap_watts, view.cap_watts))
