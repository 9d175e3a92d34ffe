"""Choosing, among jobs that rank alike, who gives how much for the least lost work.

Caps give watts in small steps, each with a price in work; leaving gives all of a job's watts at
once. For a given price of a watt each job has one best answer, so the jobs that leave are, but
for the last few, a prefix of the order in which leaving becomes the better answer (the Lagrangian
bound of the multiple-choice knapsack). The last few are tried out; the caps of those who stay then
land exactly on what is needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

from gridaware.planning.rows import Bools, Floats, Ints

__all__ = ["Choice", "Menu", "choose", "tipping"]

TRY_ALL = 8
"""Up to so many jobs that may leave, every subset of them is tried."""
NEARBY = 6
"""Beyond that: prefixes and single swaps this near the bound."""
MANY = 100
"""Among so many jobs one more or less is no longer worth a search."""
WORTH_BEYOND_BAND = 1.04
"""Lost work of a plan inside the band over that of one outside it, up to which it is preferred."""
_LATE = 1e15
_TINY = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Menu:
    """What n jobs can give. Watts are of all GPUs of a job; losses are GPUs' worth of work."""

    saving: Floats
    """(n, S) watts of each step of the cap, mildest first."""
    loss: Floats
    """(n, S) work that each step costs."""
    leave_saving: Floats
    """(n,) watts."""
    leave_loss: Floats
    """(n,) work, with the cost of one pause spread over the horizon."""
    may_leave: Bools
    late: Bools
    """(n,) Jobs of a higher rank: they give only by caps, and only if nobody else can."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Who gives what."""

    saved_watts: Floats
    """(n,)"""
    left: Bools
    """(n,)"""
    over_watts: float
    """Given beyond what was needed."""
    uses_late: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Outcome:
    """What comes of one set of jobs that leave."""

    left: Bools
    loss: float
    over_watts: float
    """Negative: so much is missing."""
    price: float
    """Work per watt of the last step taken."""
    steps: int
    """Whole steps taken, in order of price."""
    part: float
    """Share taken of the step after them."""
    uses_late: bool


def choose(menu: Menu, need_watts: float, allowance_watts: float) -> Choice:
    """The cheapest way for these jobs to give ``need_watts``; all they have if that is less.

    Args:
        menu: what each of them can give.
        need_watts: what is needed, more than 0.
        allowance_watts: given beyond it, this much is as good as exact.
    """
    steps = _Steps(menu)
    prices, _ = tipping(menu)
    movable = np.flatnonzero(menu.may_leave)
    lumps = movable[np.argsort(prices[movable], kind="stable")]
    tried = [steps.outcome(left, need_watts) for left in _sets(steps, lumps, prices, need_watts)]
    choice = steps.choice(_best(tried, allowance_watts))
    return _exchanged(menu, choice) if len(menu.late) <= TRY_ALL else choice


def _exchanged(menu: Menu, choice: Choice) -> Choice:
    """The choice after every exchange of watts between two jobs that costs less work.

    Only where a job's losses are not convex can there be one: it may then have stopped on a stretch
    that is dear until its end. Both sides being piecewise linear, the best split is at a corner.
    """
    _, saved, lost = _sums(menu)
    given = choice.saved_watts.copy()
    for one, other in combinations(np.flatnonzero(~choice.left & ~menu.late).tolist(), 2):
        both = given[one] + given[other]
        corners = np.concatenate(([given[one]], saved[one], both - saved[other]))
        least, most = max(0.0, both - saved[other, -1]), min(saved[one, -1], both)
        splits = corners[(corners >= least) & (corners <= most)]
        if len(splits):
            work = np.interp(splits, saved[one], lost[one])
            work += np.interp(both - splits, saved[other], lost[other])
            given[one] = splits[work.argmin()]
            given[other] = both - given[one]
    return replace(choice, saved_watts=given)


def _best(tried: list[_Outcome], allowance_watts: float) -> _Outcome:
    """Inside the band before outside, own rank before others', then least lost work."""
    meets = [outcome for outcome in tried if outcome.over_watts >= -_TINY]
    if not meets:
        return max(tried, key=lambda outcome: outcome.over_watts)
    inside = [outcome for outcome in meets if outcome.over_watts <= allowance_watts]
    outside = [outcome for outcome in meets if outcome.over_watts > allowance_watts]
    bound = min((outcome.loss for outcome in outside), default=np.inf) * WORTH_BEYOND_BAND
    for late in (False, True):
        rank = [outcome for outcome in inside if outcome.uses_late is late]
        best = min(rank, key=lambda outcome: outcome.loss, default=None)
        if best is not None and best.loss <= bound:
            return best
    return min(outside or inside, key=lambda outcome: (outcome.loss, outcome.over_watts))


def _sets(steps: "_Steps", lumps: Ints, prices: Floats, need_watts: float) -> Iterator[Bools]:
    """Sets of leaving jobs worth a try."""
    nobody = np.zeros(len(prices), dtype=np.bool_)

    def leaving(who: Ints) -> Bools:
        left = nobody.copy()
        left[who] = True
        return left

    if len(lumps) <= TRY_ALL:
        for picks in product((False, True), repeat=len(lumps)):
            yield leaving(lumps[np.array(picks, dtype=np.bool_)])
        return
    low, high = 0, len(lumps)  # the shortest prefix at which nobody else would rather leave
    while low < high:
        middle = (low + high) // 2
        if steps.outcome(leaving(lumps[:middle]), need_watts).price <= prices[lumps[middle]]:
            high = middle
        else:
            low = middle + 1
    near = NEARBY if len(lumps) <= MANY else 1
    for length in range(max(low - near, 0), min(low + near, len(lumps)) + 1):
        yield leaving(lumps[:length])
    for swapped in range(1, near + 1):
        if low - swapped >= 0:  # one of the last stays
            yield leaving(np.delete(lumps[:low], low - swapped))
        if low + swapped < len(lumps):  # one of the next leaves in place of, or beside, the last
            yield leaving(np.append(lumps[:low], lumps[low + swapped]))
            yield leaving(np.append(lumps[: max(low - 1, 0)], lumps[low + swapped]))
    yield leaving(lumps)


def _sums(menu: Menu) -> tuple[Ints, Floats, Floats]:
    """Row numbers; (n, S + 1) watts saved and work lost after each step."""
    zero = np.zeros((len(menu.saving), 1))
    saved = np.hstack((zero, np.cumsum(menu.saving, axis=1)))
    lost = np.hstack((zero, np.cumsum(menu.loss, axis=1)))
    return np.arange(len(zero)), saved, lost


def tipping(menu: Menu) -> tuple[Floats, Floats]:
    """When leaving becomes the better answer.

    Returns:
        (n,) price of a watt from which leaving beats every cap, infinite where a job cannot leave;
        and (n,) the watts that caps should give at most before it does.
    """
    index, saved, lost = _sums(menu)
    more = menu.leave_saving[:, None] - saved
    # From the cap that is hardest to beat, leaving costs this much work per further watt.
    price = (menu.leave_loss[:, None] - lost) / np.maximum(more, _TINY)
    price = np.where(more > _TINY, price, np.inf)
    hardest = price.argmax(axis=1)
    may_leave = menu.may_leave
    return (
        np.where(may_leave, price[index, hardest], np.inf),
        np.where(may_leave, saved[index, hardest], saved[:, -1]),
    )


def _rising_prices(menu: Menu) -> Floats:
    """(n, S) price of each step on the convex hull of a job's losses.

    A job's steps can only be taken in their order. Where a dear step precedes cheap ones, all of
    them have the price of the stretch; so prices rise along a row. The minimax formula of isotonic
    regression gives the slopes of the hull: the largest over starts at or before a step of the
    smallest over ends after it.
    """
    _, saved, lost = _sums(menu)
    width = menu.saving.shape[1]
    more = saved[:, None, 1:] - saved[:, :-1, None]
    slope = (lost[:, None, 1:] - lost[:, :-1, None]) / np.maximum(more, _TINY)
    slope[:, np.tri(width, k=-1, dtype=np.bool_)] = np.inf  # an end before its start
    slope[more <= _TINY] = np.inf
    least = np.minimum.accumulate(slope[:, :, ::-1], axis=2)[:, :, ::-1]
    steps = np.arange(width)
    hull: Floats = np.maximum.accumulate(least, axis=1)[:, steps, steps]
    return hull


class _Steps:
    """Every step of every cap, cheapest first."""

    def __init__(self, menu: Menu) -> None:
        self._menu = menu
        width = menu.saving.shape[1]
        price = _rising_prices(menu) + _LATE * menu.late[:, None]
        real = np.flatnonzero(menu.saving.ravel() > _TINY)
        order = real[np.argsort(price.ravel()[real], kind="stable")]
        self._row = order // width
        self._saving = menu.saving.ravel()[order]
        self._loss = menu.loss.ravel()[order]
        self._price = price.ravel()[order]

    def outcome(self, left: Bools, need_watts: float) -> _Outcome:
        """What the caps of the others must add once ``left`` have left."""
        menu = self._menu
        loss = float(menu.leave_loss[left].sum())
        rest = need_watts - float(menu.leave_saving[left].sum())
        if rest <= 0:
            return _Outcome(left, loss, -rest, -1.0, 0, 0.0, False)
        stays = ~left[self._row]
        saving, lost = self._saving * stays, self._loss * stays
        given = np.cumsum(saving)
        steps = int(np.searchsorted(given, rest))
        if steps == len(given):
            missing = float(given[-1]) - rest if steps else -rest
            return _Outcome(left, loss + float(lost.sum()), missing, np.inf, steps, 0.0, False)
        part = 1.0 - (float(given[steps]) - rest) / float(saving[steps])
        price = float(self._price[steps])
        loss += float(lost[:steps].sum()) + part * float(lost[steps])
        return _Outcome(left, loss, 0.0, price, steps, part, price >= _LATE)

    def choice(self, outcome: _Outcome) -> Choice:
        """The watts of each job."""
        count = len(outcome.left)
        saving = self._saving * ~outcome.left[self._row]
        taken = slice(0, outcome.steps)
        saved = np.zeros(count) + np.bincount(self._row[taken], saving[taken], count)
        if outcome.part:
            saved[self._row[outcome.steps]] += outcome.part * saving[outcome.steps]
        saved = np.where(outcome.left, self._menu.leave_saving, saved)
        return Choice(saved, outcome.left, outcome.over_watts, outcome.uses_late)
