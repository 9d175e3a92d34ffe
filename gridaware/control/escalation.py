"""Confirmed or escalated: which GPUs do not follow what is asked of them, and what is done next.

A limit that was accepted is a promise of the driver; that the GPU draws no more is what counts. A
GPU *follows* as long as its own measured draw stays within :data:`OVER_SHARE` of its cap (or of
what its model draws at that cap, where the cap is below its clock floor). Silicon follows a lower
cap within about 50 ms, sensors refresh within 100 ms, and where only a one-second mean can be read
that mean is full after another second: so a cap is judged :data:`FOLLOW_SECONDS` after it was
lowered, and who then draws too much for :data:`OVER_SECONDS` has gone *astray*.

A GPU that went astray is planned at its measured draw, so that others give what it does not, and
the next rung is taken for it, mildest first: a deeper cap within its range, a clock lock where the
driver has one; for its job, once these are used up and the site draws more than it may: a pause
with a verified checkpoint, and a stop where the owner agreed. Each rung has the time of one
response before the next is taken. What obeys caps again goes back to the cap that the plan wants.

Sources: a cap too low for the present clocks can switch the limit off (LACT#207: 420 W from a 293 W
card); A40s draw up to 20.7 % more than caps near their minimum (Zeus traces).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from gridaware.domain.fleet import ClockRange

__all__ = ["RETRY_SECONDS", "Astray", "Follow", "Rung", "Sight", "last_rung"]

FOLLOW_SECONDS = 1.5
OVER_SECONDS = 0.5
OLDEST_READING_SECONDS = 5.0
"""Readings may be as old as that when they are judged."""
RETRY_SECONDS = 120.0
"""A GPU whose clocks are locked is tried without the lock this often."""
OVER_SHARE = 0.10
"""Draw above its cap by more than this: sensors are right to within 5 % (arXiv 2312.02741)."""
BACK_SHARE = 0.05
"""Who went astray must come this close again."""
SLACK_WATTS = 2.0
ENFORCED_WATTS = 1.0
"""An enforced limit this far above the one asked for is another limit."""
LONG_AGO = -1e9
CLOCK_STEP = 0.85
"""A clock lock that is not enough is lowered to this share."""


class Astray(StrEnum):
    """Why a GPU does not follow."""

    REFUSED = "refused"
    """The driver did not take the limit."""
    UNACKNOWLEDGED = "unacknowledged"
    """Nobody has said that it was taken, and it is not enforced."""
    NOT_ENFORCED = "not-enforced"
    """It was taken, and what is enforced is higher."""
    UNREACHABLE = "unreachable"
    """Its agent cannot be told, and has nothing to hold."""
    IGNORED = "ignored"
    """It is enforced, and the GPU draws more all the same."""


class Rung(IntEnum):
    """What is done about it, mildest first."""

    NONE = 0
    DEEPER_CAP = 1
    LOCK_CLOCKS = 2
    PAUSE = 3
    STOP = 4

    @property
    def word(self) -> str:
        """As people read it."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Sight:
    """One GPU as just read."""

    power_watts: float
    enforced_watts: float
    acknowledged: bool
    error: str | None
    draw_at: Callable[[float], float]
    """What its model draws at a cap."""


@dataclass(frozen=True, slots=True)
class Follow:
    """How one GPU follows the cap that the plan wants of it. A value."""

    caps: tuple[tuple[float, float], ...]
    """(since when, watts) of the caps wanted of it, newest last: as many as are still judged."""
    over_seconds: float | None = None
    """Since when it has drawn too much; None = it does not."""
    astray: str = ""
    """An :class:`Astray`; "" = it follows."""
    deeper_watts: float | None = None
    """A cap below the wanted one, since it draws more than that."""
    lock_mhz: float | None = None
    rung_seconds: float = 0.0
    """When its last rung was taken."""

    @classmethod
    def of(cls, cap_watts: float, before_watts: float, now_seconds: float) -> "Follow":
        """A GPU that stood at ``before_watts`` is capped for the first time."""
        return cls(((LONG_AGO, before_watts), (now_seconds, cap_watts)))

    @property
    def cap_watts(self) -> float:
        """Wanted now."""
        return self.caps[-1][1]

    def judged_watts(self, at_seconds: float) -> float:
        """What a reading may be held against: the highest cap of the time in which caps settle."""
        settled = at_seconds - FOLLOW_SECONDS
        in_force = [watts for since, watts in self.caps if settled < since <= at_seconds]
        before = [watts for since, watts in self.caps if since <= settled]
        return max((*in_force, *before[-1:]), default=self.caps[0][1])

    def want(self, cap_watts: float, now_seconds: float) -> "Follow":
        """The plan wants another cap of it."""
        if cap_watts == self.cap_watts:
            return self
        settled = now_seconds - FOLLOW_SECONDS - OLDEST_READING_SECONDS
        caps = self.caps
        first = 0  # of those that a reading may still be held against: the last one settled
        while first + 1 < len(caps) and caps[first + 1][0] <= settled:
            first += 1
        # Made directly: a plan for 100 000 GPUs comes by here for each of them.
        return Follow(
            (*caps[first:], (now_seconds, cap_watts)),
            self.over_seconds,
            self.astray,
            self.deeper_watts,
            self.lock_mhz,
            self.rung_seconds,
        )

    def see(self, sight: Sight, at_seconds: float) -> "Follow":
        """Take in a reading that was taken at ``at_seconds``."""
        asked = self.cap_watts if self.deeper_watts is None else self.deeper_watts
        enforced = sight.error is None and sight.enforced_watts <= asked + ENFORCED_WATTS
        if self.astray and self.astray != Astray.IGNORED and enforced:
            return Follow(self.caps)  # it has come into force: whether it is obeyed will be seen
        if self.deeper_watts is not None and self._obeys(sight, at_seconds):
            return Follow(self.caps)
        share = BACK_SHARE if self.astray else OVER_SHARE
        if not _over(sight, self.judged_watts(at_seconds), share):
            held = self.deeper_watts is not None or self.lock_mhz is not None
            return replace(self, over_seconds=None, astray=self.astray if held else "")
        since = at_seconds if self.over_seconds is None else self.over_seconds
        state = replace(self, over_seconds=since)
        if not self.astray and at_seconds - since < OVER_SECONDS:
            return state
        return replace(state, astray=_why(sight, enforced=enforced))

    def climb(
        self,
        power_watts: float,
        least_watts: float,
        clocks: ClockRange | None,
        now_seconds: float,
    ) -> tuple["Follow", Rung]:
        """The next rung that the GPU itself has, if it is time for one; NONE = nothing new."""
        waits = self._climbed and now_seconds - self.rung_seconds < FOLLOW_SECONDS + OVER_SECONDS
        if not self.astray or self.over_seconds is None or waits:
            return self, Rung.NONE
        deeper = self._deeper(power_watts, least_watts)
        if deeper is not None:
            return replace(self, deeper_watts=deeper, rung_seconds=now_seconds), Rung.DEEPER_CAP
        lock = None if clocks is None else self._lock(power_watts, clocks)
        if lock is not None:
            return replace(self, lock_mhz=lock, rung_seconds=now_seconds), Rung.LOCK_CLOCKS
        return self, Rung.NONE

    def spent(self, least_watts: float, clocks: ClockRange | None, now_seconds: float) -> bool:
        """Whether it still draws too much, and its last own rung has had its time."""
        if self.over_seconds is None or not self.astray:
            return False
        if self._deeper(self.cap_watts, least_watts) is not None:
            return False
        if clocks is not None and self._lock(self.cap_watts, clocks) is not None:
            return False
        had_time = now_seconds - self.rung_seconds >= FOLLOW_SECONDS + OVER_SECONDS
        return had_time or not self._climbed

    def retried(self, now_seconds: float) -> "Follow":
        """Let go of the clocks, to see whether its cap is obeyed by now."""
        return replace(self, lock_mhz=None, over_seconds=None, rung_seconds=now_seconds)

    @property
    def _climbed(self) -> bool:
        return self.deeper_watts is not None or self.lock_mhz is not None

    def _obeys(self, sight: Sight, now_seconds: float) -> bool:
        """Whether its draw keeps to the deeper cap: then it keeps to any."""
        if self.lock_mhz is not None or self.deeper_watts is None:
            return False
        settled = now_seconds - self.rung_seconds >= FOLLOW_SECONDS
        return settled and not _over(sight, self.deeper_watts, BACK_SHARE)

    def _deeper(self, power_watts: float, least_watts: float) -> float | None:
        """A cap lower by what it draws too much; then the lowest. None = it has that already."""
        if self.astray != Astray.IGNORED:
            return None
        held = self.cap_watts if self.deeper_watts is None else self.deeper_watts
        if held <= least_watts + SLACK_WATTS:
            return None
        if self.deeper_watts is not None:
            return least_watts
        return max(held - max(power_watts - held, 0.0), least_watts)

    def _lock(self, power_watts: float, clocks: ClockRange) -> float | None:
        """A clock at which it draws about what is wanted. None = it has the lowest already.

        Power falls more slowly than the clock (V100: 69 % of the clock, 57 % of the power; 29 % and
        30 %), so the share of power that is wanted, taken of the clock, is enough or nearly.
        """
        if self.lock_mhz is not None:
            lower = clocks.clamp(CLOCK_STEP * self.lock_mhz)
            return lower if lower < self.lock_mhz - 1.0 else None
        share = min(self.cap_watts / max(power_watts, 1.0), CLOCK_STEP)
        return clocks.clamp(round(share * clocks.greatest_mhz))


def last_rung(*, late: bool, short: bool, pausable: bool, may_stop: bool) -> Rung:
    """The rung for a job whose GPUs have none left, while the site draws more than it may.

    Args:
        late: the deadline is over, or a limit of the connection binds.
        short: the others cannot give what is missing, by the plan.
        pausable: the job honours a pause, and has not refused one just now.
        may_stop: its owner agreed to a stop.
    """
    if pausable and (late or short):
        return Rung.PAUSE
    return Rung.STOP if may_stop and late else Rung.NONE


def _why(sight: Sight, *, enforced: bool) -> Astray:
    if sight.error is not None:
        return Astray.REFUSED
    if enforced:
        return Astray.IGNORED
    return Astray.NOT_ENFORCED if sight.acknowledged else Astray.UNACKNOWLEDGED


def _over(sight: Sight, cap_watts: float, share: float) -> bool:
    if sight.power_watts <= (1.0 + share) * cap_watts + SLACK_WATTS:
        return False
    return sight.power_watts > (1.0 + share) * sight.draw_at(cap_watts) + SLACK_WATTS
