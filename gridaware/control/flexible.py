"""What the site could give up now, for those who ask ahead of any event."""

from gridaware.control.state import JobTrack, State
from gridaware.domain.fleet import Gpu
from gridaware.planning.model import CurveBook

__all__ = ["flexible_watts"]


def flexible_watts(state: State, book: CurveBook) -> float:
    """Watts at the site meter that jobs at work could give up at once, as they draw now.

    A job that may be paused counts with all it draws above idle; one that may only be capped with
    what its lowest legal cap takes off it; a firm job with nothing. Budgets are not looked at: what
    a tier has left of its allowed loss decides how long this lasts, not how much it is.
    """
    boards = {gpu.gpu_id: gpu for track in state.nodes.values() for gpu in track.node.gpus}
    watts = sum(_of_job(track, boards, book) for track in state.jobs.values())
    drawn = sum(gpu.power_watts for gpu in state.gpus.values())
    return state.meter_of(drawn) - state.meter_of(max(drawn - watts, 0.0))


def _of_job(track: JobTrack, boards: dict[str, Gpu], book: CurveBook) -> float:
    job, spec = track.job, track.job.spec
    board = next((boards[gpu_id] for gpu_id in job.gpu_ids if gpu_id in boards), None)
    if not job.state.on_gpus or board is None or spec.tier.allowed_loss == 0:
        return 0.0
    count = len(job.gpu_ids)
    curve = book.curve(board.model, spec.workload, board.limits)
    if spec.pausable and spec.tier.pausable:
        left = count * curve.idle_watts
    else:
        least = max(board.limits.least_watts, spec.min_cap_watts or 0.0)
        left = count * curve.power_at(least) if board.can_set else track.draw_watts
    return max(track.draw_watts - left, 0.0)
