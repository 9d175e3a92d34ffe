"""``proportional``: every flexible job gives the same share of what it can give.

What it can give is its headroom: from its present full draw down to the cap that its tier allows,
or to the cap below which pausing would cost less work, whichever is higher. If the whole headroom
is too little, jobs are paused, the most flexible first and as few watts as fit, and the others
share the rest. What binds goes beyond the floors in the same way; firm jobs come last.
Source: the *fair* policy of arXiv 2507.00909, applied to measured draw instead of caps.
"""

from collections.abc import Mapping

import numpy as np

from gridaware.domain.plan import Plan
from gridaware.domain.situation import Situation
from gridaware.planning.answer import answer
from gridaware.planning.menu import tipping
from gridaware.planning.offers import Given, Offers
from gridaware.planning.rows import FIRM, Bools, Floats, Rows
from gridaware.planning.strategy import STRATEGIES, Params

__all__ = ["proportional"]


@STRATEGIES.register("proportional")
def proportional(situation: Situation, params: Mapping[str, float]) -> Plan:
    """The same share of everybody's headroom."""
    numbers = Params.of(params)
    rows = Rows.of(situation, numbers)
    offers = Offers.of(rows, situation)
    given = offers.nothing()
    target = situation.target_gpu_watts
    if target is not None and offers.uncapped_watts > target and len(situation.jobs):
        need = offers.uncapped_watts - target
        rest = _within(offers, given, need, numbers.band * need)
        if rest > 0 and (situation.must or situation.hard):
            _beyond(offers, given, rest)
    return answer("proportional", situation, offers, given)


def _within(offers: Offers, given: Given, need: float, allowance: float) -> float:
    """Share ``need`` within every job's promise; returns what is still missing."""
    rows = offers.rows
    flexible = offers.active & (rows.tier != FIRM)
    everyone = np.arange(len(rows.gpus))
    _, useful = tipping(offers.menu(everyone, everyone[:0], beyond=False))
    deep = np.where(flexible, rows.gpus * (offers.full_power - offers.floor_power), 0.0)
    headroom = np.where(flexible, np.minimum(useful, deep), 0.0)
    leaving = np.where(offers.may_leave, offers.by_leaving(offers.full_power), 0.0)
    left = _fewest(rows, offers.may_leave, leaving, headroom, need)
    freed = float(leaving[left].sum())
    if freed - need > allowance:  # one pause is too much: would deeper caps do without it?
        last = left.copy()
        last[np.flatnonzero(left)[np.argmax(rows.order[left])]] = False
        if float(leaving[last].sum() + deep[~last].sum()) >= need:
            left, headroom = last, deep
            freed = float(leaving[left].sum())
    given.left |= left
    given.saved_watts[left] = leaving[left]
    return _spread(given, np.where(left, 0.0, headroom), need - freed)


def _beyond(offers: Offers, given: Given, need: float) -> None:
    """Share what binds beyond the promises: caps of flexible jobs, pauses, then firm jobs."""
    rows = offers.rows
    stays = offers.active & ~given.left
    lowest = rows.power[:, 0]
    for firm in (False, True):
        who = stays & ((rows.tier == FIRM) == firm)
        depth = np.where(who, rows.gpus * (offers.full_power - lowest) - given.saved_watts, 0.0)
        may = offers.may_leave_beyond & who
        power = offers.full_power - given.saved_watts / np.maximum(rows.gpus, 1)
        leaving = np.where(may, offers.by_leaving(power), 0.0)
        left = _fewest(rows, may, leaving, depth, need)
        given.left |= left
        given.saved_watts[left] += leaving[left]
        need = _spread(given, np.where(left, 0.0, depth), need - float(leaving[left].sum()))


def _fewest(rows: Rows, may_leave: Bools, leaving: Floats, headroom: Floats, need: float) -> Bools:
    """Who must leave so that the headroom of the others covers the rest.

    The most flexible first; within a rank those that are paused already, then the largest; and
    the last one is the smallest of its rank that is enough.
    """
    order, left = rows.order, np.zeros(len(rows.gpus), dtype=np.bool_)
    gain = leaving - headroom
    missing = need - float(headroom.sum())
    candidates = np.flatnonzero(may_leave & (gain > 0))
    if missing <= 0 or not len(candidates):
        return left
    keys = (-gain[candidates], ~rows.paused[candidates], order[candidates])
    queue = candidates[np.lexsort(keys)]
    reached = np.cumsum(gain[queue])
    count = int(np.searchsorted(reached, missing))
    left[queue[:count]] = True
    if count < len(queue):
        still = missing - (float(reached[count - 1]) if count else 0.0)
        peers = queue[count:][order[queue[count:]] == order[queue[count]]]
        enough = peers[gain[peers] >= still]
        left[enough[np.lexsort((gain[enough], ~rows.paused[enough]))[0]]] = True
    return left


def _spread(given: Given, headroom: Floats, need: float) -> float:
    """Take the same share of each headroom; returns what is still missing."""
    total = float(headroom.sum())
    if need <= 0 or total <= 0:
        return max(need, 0.0)
    share = min(1.0, need / total)
    given.saved_watts += share * headroom
    return max(need - total, 0.0)
