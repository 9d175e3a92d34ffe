"""A Situation as arrays, one row per job, so that ten thousand jobs are a few array operations.

A *chain* is a job's curve between its lowest allowed cap and the limit it was found with: caps,
draw of one GPU and throughput relative to that limit, all rising along the row.
"""

from dataclasses import dataclass
from itertools import chain as join
from operator import attrgetter
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gridaware.domain.curve import Curve
from gridaware.domain.job import JobState, Tier
from gridaware.domain.situation import Situation
from gridaware.planning.strategy import Params

__all__ = ["FIRM", "Bools", "Floats", "Ints", "Rows", "at", "cap_for_power", "cap_for_throughput"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

_TIERS = (Tier.PREEMPTIBLE, Tier.FLEX_3, Tier.FLEX_2, Tier.FLEX_1, Tier.FIRM)
_RANK = {tier: rank for rank, tier in enumerate(_TIERS)}
FIRM = _RANK[Tier.FIRM]

_OFF, _STARTING, _RUNNING, _PAUSING, _PAUSED = range(5)
_PHASE = {
    JobState.STARTING: _STARTING,
    JobState.RESUMING: _STARTING,
    JobState.RUNNING: _RUNNING,
    JobState.CAPPED: _RUNNING,
    JobState.STALLED: _RUNNING,
    JobState.PAUSING: _PAUSING,
    JobState.PAUSED: _PAUSED,
}
_FIELDS = attrgetter(
    "gpu_count",
    "draw_watts",
    "cap_watts",
    "found_watts",
    "least_cap_watts",
    "loss_budget_seconds",
    "pause_cost_seconds",
    "since_change_seconds",
    "priority",
    "pausable",
)
_CURVE_ROWS = attrgetter("cap_watts", "power_watts", "throughput")


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Every job of a situation; (N,) unless said otherwise."""

    gpus: Floats
    draw_watts: Floats
    cap_watts: Floats
    """In force now."""
    least_watts: Floats
    """The lowest cap allowed."""
    found_watts: Floats
    budget_seconds: Floats
    pause_cost_seconds: Floats
    idle_watts: Floats
    """Of one GPU."""
    order: Ints
    """Sacrificed first = 0: by tier, then by priority."""
    tier: Ints
    running: Bools
    """On GPUs, and not on its way out; includes jobs that are starting."""
    starting: Bools
    """Of these, not at work yet: they draw what they draw, and will draw what their curve says."""
    paused: Bools
    pausing: Bools
    may_pause: Bools
    """Can be asked to leave, or is already paused."""
    since_change_seconds: Floats
    settled: Bools
    """Was not paused or resumed just now."""
    caps: Floats
    """(N, K) watts."""
    power: Floats
    """(N, K) watts of one GPU."""
    throughput: Floats
    """(N, K) relative to the found limit, ends at 1."""
    floor_cap: Floats
    """Lowest cap that keeps the tier's promise until the horizon."""
    floor_throughput: Floats
    uncapped: Floats
    """Throughput at the found limit relative to no cap at all."""

    @classmethod
    def of(cls, situation: Situation, params: Params) -> Self:
        """Stack the jobs of a situation."""
        jobs = situation.jobs
        flat = np.fromiter(join.from_iterable(map(_FIELDS, jobs)), np.float64, 10 * len(jobs))
        table = flat.reshape(len(jobs), 10).T
        gpus, draw, cap_now, found, least, budget, cost, since, priority, pausable = table
        tier = np.array([_RANK[job.tier] for job in jobs], dtype=np.int64)
        phase = np.array([_PHASE.get(job.state, _OFF) for job in jobs], dtype=np.int64)
        curves = [job.curve for job in jobs]
        idle = np.array([curve.idle_watts for curve in curves], dtype=np.float64)
        running = (phase == _RUNNING) | (phase == _STARTING)
        paused = phase == _PAUSED

        # On the way back nobody is capped deeper; who has not begun to work yet comes by the ramp.
        stays = (phase == _RUNNING) & situation.rising
        low = np.where(stays, np.maximum(least, cap_now), least)
        low = np.minimum(low, found)
        caps, power, throughput, uncapped = _chains(curves, low, found)
        free = situation.target_gpu_watts is None
        if not (free or situation.rising):
            power[paused] *= 1.0 + params.resume_margin
        horizon = max(situation.horizon_seconds, 1e-9)
        floor = np.clip(1.0 - budget / horizon, 0.0, 1.0)
        floor[tier == 0] = 0.0
        floor_cap = np.maximum(cap_for_throughput(caps, throughput, floor), low)
        floor_cap = np.where(tier == FIRM, found, floor_cap)
        may_pause = (phase == _RUNNING) & (pausable > 0) & (tier != FIRM)
        may_pause &= situation.allow_pause and not situation.rising and params.pause > 0
        return cls(
            gpus=gpus,
            draw_watts=draw,
            cap_watts=cap_now,
            least_watts=np.minimum(least, found),
            found_watts=found,
            budget_seconds=budget,
            pause_cost_seconds=np.where(paused, 0.0, cost),
            idle_watts=np.minimum(idle, power[:, 0]) if len(jobs) else idle,
            order=_order(tier, priority),
            tier=tier,
            running=running,
            starting=phase == _STARTING,
            paused=paused,
            pausing=phase == _PAUSING,
            may_pause=may_pause | paused,
            since_change_seconds=since,
            settled=(since >= np.where(paused, params.rest_seconds, params.dwell_seconds))
            | (situation.rising or free),
            caps=caps,
            power=power,
            throughput=throughput,
            floor_cap=floor_cap,
            floor_throughput=np.where(tier == FIRM, 1.0, floor),
            uncapped=uncapped,
        )


def at(xs: Floats, ys: Floats, x: Floats) -> Floats:
    """Row by row, the line through (xs, ys) at ``x``; flat beyond its ends."""
    return _cross(ys, xs, x, (xs < x[:, None]).sum(axis=1))


def cap_for_power(caps: Floats, power: Floats, watts: Floats) -> Floats:
    """Row by row, the highest cap at which one GPU draws no more than ``watts``."""
    return _cross(caps, power, watts, (power <= watts[:, None]).sum(axis=1))


def cap_for_throughput(caps: Floats, throughput: Floats, share: Floats) -> Floats:
    """Row by row, the lowest cap that does at least ``share`` of the work."""
    return _cross(caps, throughput, share, (throughput < share[:, None]).sum(axis=1))


def _cross(ys: Floats, xs: Floats, x: Floats, right: Ints) -> Floats:
    """Interpolate ``ys`` at ``x`` between the columns ``right - 1`` and ``right``."""
    rows = np.arange(len(x))
    width = xs.shape[1]
    hi = np.minimum(right, width - 1)
    lo = np.maximum(right - 1, 0)
    x0, x1 = xs[rows, lo], xs[rows, hi]
    span = np.where(x1 > x0, x1 - x0, 1.0)
    share = np.clip((x - x0) / span, 0.0, 1.0)
    y0 = ys[rows, lo]
    result: Floats = y0 + share * (ys[rows, hi] - y0)
    return result


def _order(tier: Ints, priority: Floats) -> Ints:
    """Dense rank by (tier, priority), the first to give up being 0."""
    _, priority_rank = np.unique(priority, return_inverse=True)
    _, order = np.unique(tier * (len(tier) + 1) + priority_rank, return_inverse=True)
    ranks: Ints = order.astype(np.int64)
    return ranks


def _chains(curves: list[Curve], low: Floats, found: Floats) -> tuple[Floats, ...]:
    """Caps, power and throughput of each curve between ``low`` and ``found``."""
    if not curves:
        empty = np.zeros((0, 2))
        return empty, empty, empty, np.zeros(0)
    lengths = np.array([len(curve.cap_watts) for curve in curves])
    # One pass over each curve's three rows: reading the floats is what takes the time.
    numbers = join.from_iterable(join.from_iterable(map(_CURVE_ROWS, curves)))
    flat = np.fromiter(numbers, np.float64, 3 * int(lengths.sum()))
    width = int(lengths.max())
    # Shorter curves repeat their first point: the chain starts there with steps of no length.
    column = np.maximum(np.arange(width) - (width - lengths)[:, None], 0)
    first = column + 3 * (np.cumsum(lengths) - lengths)[:, None]
    xs, watts, work = (flat[first + row * lengths[:, None]] for row in range(3))
    caps = np.clip(xs, low[:, None], found[:, None])
    below, above = xs < low[:, None], xs > found[:, None]

    def clipped(ys: Floats) -> Floats:
        at_low, at_found = at(xs, ys, low)[:, None], at(xs, ys, found)[:, None]
        return np.where(below, at_low, np.where(above, at_found, ys))

    power, throughput = clipped(watts), clipped(work)
    uncapped = throughput[:, -1]
    throughput = throughput / np.maximum(uncapped, 1e-12)[:, None]
    return caps, power, throughput, uncapped
