"""From what was taken to a Plan: caps, expected figures for both phases, and a reason per job.

A pause takes seconds to minutes, a cap milliseconds. So every job that is asked to leave is held
at a deep cap until it has, and the caps of those who stay bridge the difference, the most flexible
first: the caps of a plan meet the target *now* where caps can, and its expected figures are those
once every pause is done and the caps have been relaxed again.
"""

from dataclasses import dataclass
from string import Formatter
from typing import Self

import numpy as np

from gridaware.domain.plan import Action, ActionKind, Plan
from gridaware.domain.reasons_planning import REASONS
from gridaware.domain.situation import Situation
from gridaware.planning.offers import Given, Offers
from gridaware.planning.rows import FIRM, Bools, Floats, Ints, at, cap_for_power, cap_for_throughput

__all__ = ["answer"]

_WATT = 0.05
"""Caps closer than this are the same cap."""
HOLD_PACE = 0.3
"""Pace that a job keeps, where possible, until it has left: it has a step to finish first."""
_KINDS = tuple(ActionKind)
_NAMES = {
    code: tuple(dict.fromkeys(name for _, name, _, _ in Formatter().parse(text) if name))
    for code, text in REASONS.items()
}


@dataclass(frozen=True, slots=True, eq=False)
class _Figures:
    """Per job: the cap that applies now, and what is expected once all has settled."""

    cap_watts: Floats
    settled_cap_watts: Floats
    watts: Floats
    throughput: Floats
    """Relative to no cap at all."""
    share: Floats
    """Relative to the found limit."""
    expected_watts: float
    at_once_watts: float

    @classmethod
    def of(cls, situation: Situation, offers: Offers, given: Given) -> Self:
        """Turn watts into caps, and caps into what they do."""
        rows = offers.rows
        gpus = np.maximum(rows.gpus, 1)
        stays = offers.active & ~given.left
        settled = cap_for_power(rows.caps, rows.power, offers.full_power - given.saved_watts / gpus)
        settled = np.where(stays & (given.saved_watts > 1e-9), settled, rows.found_watts)
        power = at(rows.caps, rows.power, settled)
        share = np.where(stays, at(rows.caps, rows.throughput, settled), 0.0)
        leaving = (given.left & rows.running) | rows.pausing
        watts = np.where(
            stays, rows.gpus * power, np.where(leaving, rows.gpus * rows.idle_watts, 0)
        )
        resumed_idle = float((rows.gpus * rows.idle_watts)[stays & rows.paused].sum())
        expected = situation.other_gpu_watts + float(watts.sum()) - resumed_idle
        now, at_once = _at_once(situation, offers, leaving, stays & rows.running, settled, power)
        throughput = share * rows.uncapped
        return cls(now, settled, watts, throughput, share, expected, at_once)


def _at_once(
    situation: Situation,
    offers: Offers,
    leaving: Bools,
    on_gpus: Bools,
    settled: Floats,
    power: Floats,
) -> tuple[Floats, float]:
    """Caps until the pausing jobs have left, and what all GPUs then draw together."""
    rows, target = offers.rows, situation.target_gpu_watts
    lowest = rows.power[:, 0] if len(settled) else power
    holds = target is not None and not situation.rising
    if holds:
        hold = cap_for_throughput(rows.caps, rows.throughput, np.full(len(settled), HOLD_PACE))
        hold = np.maximum(hold, cap_for_power(rows.caps, rows.power, lowest))
    else:
        kept = np.clip(rows.cap_watts, rows.least_watts, rows.found_watts)
        hold = np.where(rows.pausing & situation.rising, kept, rows.found_watts)
    now = np.where(leaving, at(rows.caps, rows.power, hold), power)
    caps = np.where(leaving, hold, settled)
    working = on_gpus & ~rows.starting
    total = situation.other_gpu_watts + float((rows.gpus * now)[leaving | working].sum())
    total += float(rows.draw_watts[on_gpus & rows.starting].sum())
    if target is None or not holds or not leaving.any():
        return caps, total
    firm = rows.tier == FIRM
    # Until the deadline there is time for pauses; then what is owed is, and firm jobs give last.
    owed_now = situation.hard or (situation.must and situation.late)
    bridges = leaving | (working & (~firm | owed_now))
    binds = situation.must or situation.hard  # a wish does not break a promise, not even briefly
    bottom = np.minimum(now, np.where(leaving | binds, lowest, offers.floor_power))
    room = np.where(bridges, rows.gpus * (now - bottom), 0.0)
    last = int(rows.order.max()) + 1
    rank = np.where(firm, last + 1, np.where(leaving, last, rows.order))
    share = _in_order(room, rank, total - target)
    lower = cap_for_power(rows.caps, rows.power, now - share * (now - bottom))
    caps = np.where(bridges & (share > 0), np.minimum(caps, lower), caps)
    return caps, total - float((share * room).sum())


def _in_order(room: Floats, order: Ints, need: float) -> Floats:
    """Share of each job's room that ``need`` takes: rank by rank, evenly within a rank."""
    by_rank = np.bincount(order, room)
    before = np.cumsum(by_rank) - by_rank
    share: Floats = np.clip((need - before) / np.maximum(by_rank, 1e-9), 0.0, 1.0)[order]
    return share


def answer(strategy: str, situation: Situation, offers: Offers, given: Given) -> Plan:
    """The plan that carries out what was taken, a reason for every job included."""
    rows, target = offers.rows, situation.target_gpu_watts
    figures = _Figures.of(situation, offers, given)
    kinds = _kinds(offers, given, figures)
    firm_cut = (rows.tier == FIRM) & rows.running & (figures.cap_watts < rows.found_watts - _WATT)
    firm_cut &= at(rows.caps, rows.throughput, figures.cap_watts) < 1 - 1e-6
    shortfall = 0.0 if target is None else figures.expected_watts - target
    codes = _codes(situation, offers, given, figures, kinds)
    columns = (
        [job.job_id for job in situation.jobs],
        [_KINDS[kind] for kind in kinds.tolist()],
        figures.cap_watts.tolist(),
        figures.watts.tolist(),
        figures.throughput.tolist(),
        codes,
        _numbers(situation, offers, figures, codes),
    )
    return Plan(
        strategy=strategy,
        actions=tuple(map(Action._make, zip(*columns, strict=True))),
        expected_gpu_watts=figures.expected_watts,
        shortfall_watts=shortfall if shortfall > 1e-6 * max(abs(target or 0.0), 1.0) else 0.0,
        stop_admission=target is not None
        and (not situation.hard or offers.uncapped_watts > target or bool(given.left.any())),
        firm_floor_broken=bool(firm_cut.any()),
        expected_at_once_watts=figures.at_once_watts,
    )


def _kinds(offers: Offers, given: Given, figures: _Figures) -> Ints:
    rows = offers.rows
    capped = figures.cap_watts < rows.found_watts - _WATT
    was_capped = rows.cap_watts < rows.found_watts - _WATT
    return np.select(
        [
            rows.pausing | (given.left & rows.running),
            given.left,
            rows.paused,
            rows.running & capped,
            rows.running & was_capped,
        ],
        [
            ActionKind.PAUSE,
            ActionKind.KEEP_PAUSED,
            ActionKind.RESUME,
            ActionKind.SET_CAP,
            ActionKind.RESTORE_LIMITS,
        ],
        ActionKind.SPARE,
    ).astype(np.int64)


def _codes(
    situation: Situation,
    offers: Offers,
    given: Given,
    figures: _Figures,
    kinds: Ints,
) -> list[str]:
    """The reason code of each job: the first that applies."""
    rows = offers.rows
    free = np.full(len(kinds), situation.target_gpu_watts is None)
    firm = rows.tier == FIRM
    gave = given.saved_watts > 1e-9
    rising = np.full(len(kinds), situation.rising)
    pause, keep = kinds == ActionKind.PAUSE, kinds == ActionKind.KEEP_PAUSED
    resume, cap = kinds == ActionKind.RESUME, kinds == ActionKind.SET_CAP
    restore = kinds == ActionKind.RESTORE_LIMITS
    floor = rows.floor_cap
    table: tuple[tuple[Bools, str], ...] = (
        (pause & rows.pausing, "PauseUnderWay"),
        (pause & offers.may_leave_beyond, "PauseBelowFloor"),
        (pause, "PauseAffordable"),
        (keep & offers.kept, "KeepPausedRecent"),
        (keep, "KeepPausedNoRoom"),
        (resume & free, "ResumeFree"),
        (resume, "ResumeFits"),
        (restore & free, "RestoreFree"),
        (restore, "RestoreNotNeeded"),
        (cap & rising, "CapRising"),
        (cap & ~gave, "CapMeanwhile"),
        (cap & firm, "CapFirm"),
        (cap & (figures.settled_cap_watts < floor - _WATT), "CapBelowFloor"),
        (cap & (figures.settled_cap_watts <= floor + _WATT), "CapAtFloor"),
        (cap, "CapShared"),
        (~rows.running, "SpareNotRunning"),
        (free, "SpareNothingAsked"),
        (firm, "SpareFirm"),
        (offers.full_power - rows.power[:, :1].ravel() < _WATT, "SpareNothingToGive"),
        (rows.floor_throughput > 1 - 1e-9, "SpareBudgetSpent"),
    )
    # np.select would build arrays of strings; an index into the table is cheaper.
    which = np.select([when for when, _ in table], list(range(len(table))), len(table))
    names = [code for _, code in table] + ["SpareNotNeeded"]
    return [names[index] for index in which.tolist()]


def _numbers(
    situation: Situation, offers: Offers, figures: _Figures, codes: list[str]
) -> list[tuple[float, ...]]:
    """The figures that each job's sentence names, in its order."""
    rows = offers.rows
    known = {
        "draw_watts": rows.draw_watts,
        "cap_watts": figures.cap_watts,
        "found_watts": rows.found_watts,
        "expected_watts": figures.watts,
        "expected_throughput": figures.throughput,
        "floor_throughput": rows.floor_throughput,
        "budget_seconds": rows.budget_seconds,
        "pause_cost_seconds": rows.pause_cost_seconds,
        "since_change_seconds": rows.since_change_seconds,
        "horizon_seconds": np.full(len(codes), situation.horizon_seconds),
    }
    numbers: list[tuple[float, ...]] = [()] * len(codes)
    members: dict[str, list[int]] = {}
    for index, code in enumerate(codes):
        members.setdefault(code, []).append(index)
    for code, indices in members.items():
        columns = [known[name][indices].tolist() for name in _NAMES[code]]
        for index, row in zip(indices, zip(*columns, strict=True), strict=bool(columns)):
            numbers[index] = row
    return numbers
