"""Boards that smooth their power: what a job leaves behind there is still drawn for a while.

A smoothing floor keeps power up for its hysteresis and then lets it down a ramp. So the watts of a
job that has left such a board count until readings show that they are gone, and the proof of its
pause is given that much longer.
"""

from collections.abc import Iterable

from gridaware.control.state import Turn
from gridaware.domain.fleet import Gpu

__all__ = ["fall_seconds", "smoothed"]

MOST_FALL_SECONDS = 900.0
"""A ramp that takes longer than this is no ramp."""


def smoothed(turn: Turn) -> dict[str, Gpu]:
    """Every board that smooths its power now."""
    return {
        gpu.gpu_id: gpu
        for node in turn.state.nodes.values()
        for gpu in node.node.gpus
        if gpu.board.smoothing is not None
    }


def fall_seconds(turn: Turn, gpu_ids: Iterable[str]) -> float:
    """How long after the work ended the last of these boards may still draw more than idle."""
    boards = smoothed(turn)
    longest = 0.0
    for gpu_id in gpu_ids:
        board = boards.get(gpu_id)
        if board is not None and board.board.smoothing is not None:
            idle_watts = turn.idle_watts_of(gpu_id)
            fall = board.board.smoothing.credit_seconds(board.found_limit_watts, idle_watts)
            longest = max(longest, min(fall, MOST_FALL_SECONDS))
    return longest
