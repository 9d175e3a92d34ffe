"""``tiers``: the most flexible jobs give everything their promise allows before others give any.

Order: preemptible, flex-3, flex-2, flex-1, within a tier the lower priority first, each to its
tier's floor. If what asks is binding: the same order again, beyond the floors; then firm jobs, by
caps alone. Only then is there a shortfall. Within one rank the cheapest mix of caps and pauses
gives exactly what is missing (:mod:`gridaware.planning.menu`).
"""

from collections.abc import Mapping

import numpy as np

from gridaware.domain.plan import Plan
from gridaware.domain.situation import Situation
from gridaware.planning.answer import answer
from gridaware.planning.menu import choose
from gridaware.planning.offers import Given, Offers
from gridaware.planning.rows import FIRM, Rows
from gridaware.planning.strategy import STRATEGIES, Params

__all__ = ["tiers"]


@STRATEGIES.register("tiers")
def tiers(situation: Situation, params: Mapping[str, float]) -> Plan:
    """Least flexible last; within a rank, least lost work."""
    numbers = Params.of(params)
    rows = Rows.of(situation, numbers)
    offers = Offers.of(rows, situation)
    given = offers.nothing()
    target = situation.target_gpu_watts
    if target is not None and offers.uncapped_watts > target:
        _take(offers, given, offers.uncapped_watts - target, numbers.band, _binds(situation))
    return answer("tiers", situation, offers, given)


def _binds(situation: Situation) -> bool:
    """Whether promises to jobs yield to the target."""
    return situation.must or situation.hard


def _take(offers: Offers, given: Given, need_watts: float, band: float, binds: bool) -> None:
    """Go down the ranks until ``need_watts`` are found."""
    order = offers.rows.order
    within, beyond = offers.within(), offers.beyond() * binds
    ranks = int(order.max()) + 1 if len(order) else 0
    worth = np.concatenate((np.bincount(order, within, ranks), np.bincount(order, beyond, ranks)))
    found = np.cumsum(worth)
    last = int(np.searchsorted(found, need_watts))
    stage, rank = divmod(last, ranks) if ranks else (2, 0)
    all_within = order < rank if stage == 0 else np.full(len(order), stage > 0)
    all_beyond = order < rank if stage == 1 else np.full(len(order), stage > 1)
    given.saved_watts += within * all_within + beyond * all_beyond
    given.left |= (offers.may_leave & all_within) | (offers.may_leave_beyond & all_beyond & binds)
    if stage < 2:
        rest = need_watts - (float(found[last - 1]) if last else 0.0)
        _share(offers, given, rest, band * need_watts, rank, beyond=stage == 1)


def _share(
    offers: Offers, given: Given, rest_watts: float, allowance: float, rank: int, *, beyond: bool
) -> None:
    """Let the jobs of one rank find the rest; spare capacity of higher ranks only trims a pause."""
    rows = offers.rows
    who = np.flatnonzero((rows.order == rank) & offers.active)
    if beyond:
        who = who[~offers.may_leave[who]]
    nobody = who[:0]
    choice = choose(offers.menu(who, nobody, beyond=beyond), rest_watts, allowance)
    if choice.over_watts > allowance and not beyond:
        late = np.flatnonzero((rows.order > rank) & offers.active & (rows.tier != FIRM))
        choice = choose(offers.menu(who, late, beyond=False), rest_watts, allowance)
        who = np.concatenate((who, late))
    given.saved_watts[who] += choice.saved_watts
    given.left[who] |= choice.left
