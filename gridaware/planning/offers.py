"""What each job can give: within its tier's promise, beyond it, by caps or by leaving."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from gridaware.domain.situation import Situation
from gridaware.planning.menu import Menu
from gridaware.planning.rows import FIRM, Bools, Floats, Ints, Rows, at

__all__ = ["Given", "Offers"]

STAY_PAUSED = 0.95
"""Price of staying paused over that of pausing anew, so that equal jobs do not swap places."""


@dataclass(slots=True, eq=False)
class Given:
    """What has been taken so far, by job. The one thing here that changes."""

    saved_watts: Floats
    left: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """Watts that jobs can give; (N,) of all GPUs of a job. Pausing a job frees all but its idle."""

    rows: Rows
    horizon_seconds: float
    active: Bools
    """Takes part: on GPUs, or paused and free to come back."""
    kept: Bools
    """Paused just now: stays so."""
    full_power: Floats
    """Of one GPU at the found limit."""
    floor_power: Floats
    """Of one GPU at the tier's floor."""
    may_leave: Bools
    """Within the promise."""
    may_leave_beyond: Bools
    """Breaking the promise."""
    uncapped_watts: float
    """All GPUs together, if nobody gives anything."""

    @classmethod
    def of(cls, rows: Rows, situation: Situation) -> Self:
        """Look at every job."""
        horizon = max(situation.horizon_seconds, 1e-9)
        kept = rows.paused & ~rows.settled
        active = rows.running | (rows.paused & rows.settled)
        affordable = horizon + rows.pause_cost_seconds <= rows.budget_seconds
        may_leave = rows.may_pause & rows.settled & active & (affordable | (rows.tier == 0))
        full_power = rows.power[:, -1] if len(rows.gpus) else np.zeros(0)
        net = np.where(rows.paused, full_power - rows.idle_watts, full_power)
        uncapped = situation.other_gpu_watts
        uncapped += float((rows.gpus * net)[active].sum())
        uncapped += float((rows.gpus * rows.idle_watts)[rows.pausing].sum())
        return cls(
            rows=rows,
            horizon_seconds=horizon,
            active=active,
            kept=kept,
            full_power=full_power,
            floor_power=at(rows.caps, rows.power, rows.floor_cap),
            may_leave=may_leave,
            may_leave_beyond=rows.may_pause & active & ~may_leave,
            uncapped_watts=uncapped,
        )

    def nothing(self) -> Given:
        """Nobody gives anything."""
        return Given(np.zeros(len(self.rows.gpus)), self.kept.copy())

    def by_leaving(self, power: Floats) -> Floats:
        """Watts freed when a job that draws ``power`` a GPU leaves."""
        return self.rows.gpus * (power - self.rows.idle_watts)

    def within(self) -> Floats:
        """The most that each gives within its promise."""
        by_caps = self.rows.gpus * (self.full_power - self.floor_power)
        most = np.where(self.may_leave, self.by_leaving(self.full_power), by_caps)
        return np.where(self.active & (self.rows.tier != FIRM), most, 0.0)

    def beyond(self) -> Floats:
        """The most that each gives on top of that, breaking its promise."""
        lowest = self.rows.power[:, 0] if len(self.rows.gpus) else self.full_power
        by_caps = self.rows.gpus * (self.floor_power - lowest)
        most = np.where(self.may_leave_beyond, self.by_leaving(self.floor_power), by_caps)
        return np.where(self.active & ~self.may_leave, most, 0.0)

    def menu(self, who: Ints, late: Ints, *, beyond: bool) -> Menu:
        """The steps of ``who`` (rows), and of ``late`` only by caps within their promise."""
        rows, everyone = self.rows, np.concatenate((who, late))
        caps, watts, work = rows.caps[everyone], rows.power[everyone], rows.throughput[everyone]
        gpus = rows.gpus[everyone]
        floor = rows.floor_cap[everyone][:, None]
        floor_watts = self.floor_power[everyone][:, None]
        floor_work = at(caps, work, floor[:, 0])[:, None]
        outside = caps > floor if beyond else caps < floor
        watts, work = np.where(outside, floor_watts, watts), np.where(outside, floor_work, work)
        value = gpus * rows.uncapped[everyone]
        top_watts, top_work = watts[:, -1], work[:, -1]
        cost = rows.pause_cost_seconds[everyone] / self.horizon_seconds
        leave_loss = value * (top_work + cost)
        is_late = np.arange(len(everyone)) >= len(who)
        leaves = (self.may_leave_beyond if beyond else self.may_leave)[everyone]
        return Menu(
            saving=np.diff(watts, axis=1)[:, ::-1] * gpus[:, None],
            loss=np.diff(work, axis=1)[:, ::-1] * value[:, None],
            leave_saving=gpus * (top_watts - rows.idle_watts[everyone]),
            leave_loss=np.where(rows.paused[everyone], STAY_PAUSED * leave_loss, leave_loss),
            may_leave=leaves & ~is_late,
            late=is_late,
        )
