"""Jobs that share a board, as the slices of one do: the board is limited, the strictest rules.

Power, limit and counter are the board's, never a slice's, and are booked with its first tenant. So
that tenant's view stands for all: with the tier, and what is left to lose, of the strictest of
them. Its leaving would not take the board's watts away, so none of them is paused for watts.
"""

from collections.abc import Mapping
from dataclasses import replace

from gridaware.control.state import JobTrack, State
from gridaware.domain.job import JobState
from gridaware.domain.situation import JobView

__all__ = ["as_the_strictest"]

_THERE = frozenset({JobState.RUNNING, JobState.CAPPED, JobState.STALLED, JobState.PAUSING})


def as_the_strictest(
    state: State, views: list[JobView], gpus_of: Mapping[str, tuple[str, ...]]
) -> list[JobView]:
    """The views, those of shared boards as their strictest tenant has it."""
    there = [track for track in state.jobs.values() if track.job.state in _THERE]
    held = [track.job.gpu_ids for track in there]
    if sum(map(len, held)) == len(frozenset().union(*held)):
        return views  # the usual case, at the speed of a set
    tenants: dict[str, list[JobTrack]] = {}
    for track in there:
        for gpu_id in track.job.gpu_ids:
            tenants.setdefault(gpu_id, []).append(track)
    return [_strictest(view, gpus_of.get(view.job_id, ()), tenants) for view in views]


def _strictest(
    view: JobView, gpu_ids: tuple[str, ...], tenants: Mapping[str, list[JobTrack]]
) -> JobView:
    others = [
        track
        for gpu_id in gpu_ids
        for track in tenants.get(gpu_id, ())
        if track.job.spec.job_id != view.job_id
    ]
    if not others:
        return view
    tiers = [view.tier, *(track.job.spec.tier for track in others)]
    return replace(
        view,
        tier=min(tiers, key=lambda tier: tier.allowed_loss),
        priority=max(view.priority, *(track.job.spec.priority for track in others)),
        loss_budget_seconds=min(
            view.loss_budget_seconds, *(track.loss_budget_seconds for track in others)
        ),
        pausable=False,
    )
