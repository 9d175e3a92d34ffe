"""Following one energy counter: what was drawn between any two samples, whatever the counter did.

A counter (``nvmlDeviceGetTotalEnergyConsumption``, a site meter's register) is better than
integrated power wherever it works: it misses nothing between samples. But it is missing on some
devices, restarts with the driver, freezes on others, and has been seen to leap (mlco2/codecarbon
#309 and #1316, ROCm/amdsmi#38, intel/xpumanager#130). :class:`CounterWalk` takes samples in order
and books an :class:`Increment` for each pair, never negative and never counted twice:

* the counter's own advance where it advanced;
* integrated power where it is missing, restarted (a decrease or a new epoch), leapt or stands
  still. What was booked while it stood still is *ahead* of the counter and taken off its next
  advance, so a slow refresh and a late catch-up cost nothing;
* nothing where neither is known: a gap, which lowers the coverage.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

__all__ = ["CounterRules", "CounterWalk", "Flag", "Increment", "PowerSample"]


class Flag(StrEnum):
    """What a reader of an energy figure should know."""

    COUNTER_MISSING = "counter-missing"
    COUNTER_RESET = "counter-reset"
    COUNTER_STUCK = "counter-stuck"
    COUNTER_LEAPT = "counter-leapt"
    COUNTER_DISAGREES = "counter-disagrees"
    """Counter and integrated power differ by more than a tenth (ml-energy/zeus#181)."""
    READINGS_MISSING = "readings-missing"
    OWNER_UNCERTAIN = "owner-uncertain"
    """A GPU changed hands between two readings, and only their energy tells when."""


@dataclass(frozen=True, slots=True)
class CounterRules:
    """How a counter is judged. The defaults fit NVML; ``power.md`` §1.2 names the sources."""

    refresh_seconds: float = 0.12
    """The counter may be this old when read: 10 to 100 ms on NVIDIA boards, and some slack."""
    stamp_seconds: float = 0.02
    """A sample's time may be off by this, either way: a node's boards are read one by one."""
    max_gap_seconds: float = 10.0
    """Power further apart than this is not joined."""
    stuck_seconds: float = 5.0
    """A counter that stands still this long under power is frozen."""
    idle_watts: float = 1.0
    """At or below this a standing counter is not suspicious."""
    peak_margin: float = 1.25
    """Largest true power over the larger of limit and reading: floors and overshoot reach 1.21
    (Zeus A40 rows at 100 W)."""
    disagree: float = 0.10
    """Relative difference from integrated power that is flagged."""


class PowerSample(NamedTuple):
    """One look at a device; None where it did not answer."""

    at_seconds: float
    watts: float | None
    counter_joules: float | None = None
    epoch: str = ""
    limit_watts: float = 0.0
    """The enforced limit, which bounds what may have been drawn unseen."""


class Increment(NamedTuple):
    """What was drawn between two samples."""

    before: PowerSample
    after: PowerSample
    joules: float
    known: bool
    """Counts as covered."""
    by_counter: bool
    hard: bool
    """Only 0 and the peak bound it: the counter restarted or leapt here."""
    integral_joules: float | None
    """The same stretch from power alone; None where that is unknown."""
    band_joules: float
    """±, of this stretch alone; the ends of a window add theirs."""
    peak_watts: float
    """Highest true power in the stretch."""
    ahead_before: float
    """Joules booked before the counter showed them, at ``before``."""
    ahead_after: float
    frozen_before: float
    """Seconds for which the counter had not advanced, at ``before``."""
    frozen_after: float
    flag: Flag | None

    @property
    def seconds(self) -> float:
        """Between the two samples."""
        return self.after.at_seconds - self.before.at_seconds


class CounterWalk:
    """The state of one counter between two samples."""

    __slots__ = ("_ahead", "_anchor", "_frozen", "_last", "_rules")

    def __init__(self, rules: CounterRules) -> None:
        self._rules = rules
        self._last: PowerSample | None = None
        self._anchor: PowerSample | None = None
        self._ahead = 0.0
        self._frozen = 0.0

    @property
    def last(self) -> PowerSample | None:
        """The newest sample taken in."""
        return self._last

    def step(self, sample: PowerSample) -> Increment | None:
        """Book what was drawn since the previous sample.

        None for the first sample, and for one that says nothing or is not newer than the last:
        those are ignored, and the next one closes the gap.
        """
        if sample.watts is None and sample.counter_joules is None:
            return None
        last = self._last
        if last is None:
            self._last = sample
            self._anchor = sample if sample.counter_joules is not None else None
            return None
        if sample.at_seconds <= last.at_seconds:
            return None
        ahead, frozen = self._ahead, self._frozen
        seconds = sample.at_seconds - last.at_seconds
        integral = _trapezoid(last, sample, seconds, self._rules.max_gap_seconds)
        peak = self._rules.peak_margin * max(
            last.limit_watts, sample.limit_watts, last.watts or 0.0, sample.watts or 0.0
        )
        joules, by_counter, hard, flag = self._book(sample, seconds, integral, peak)
        self._last = sample
        band = 0.0
        if hard:
            band = max(joules, peak * (seconds + self._rules.refresh_seconds) - joules)
        elif integral is not None and not by_counter:
            band = abs((last.watts or 0.0) - (sample.watts or 0.0)) * seconds / 2
        known = by_counter or integral is not None
        return Increment(
            before=last,
            after=sample,
            joules=joules,
            known=known,
            by_counter=by_counter,
            hard=hard,
            integral_joules=integral,
            band_joules=band,
            peak_watts=peak,
            ahead_before=ahead,
            ahead_after=self._ahead,
            frozen_before=frozen,
            frozen_after=self._frozen,
            flag=flag if known else Flag.READINGS_MISSING,
        )

    def _book(
        self, sample: PowerSample, seconds: float, integral: float | None, peak: float
    ) -> tuple[float, bool, bool, Flag | None]:
        """Joules, whether by the counter, whether only hard bounds hold, and what to flag."""
        rules, anchor = self._rules, self._anchor
        drawn = integral or 0.0
        if sample.counter_joules is None:
            if anchor is not None:
                self._ahead += drawn
                self._frozen += seconds
            return drawn, False, False, Flag.COUNTER_MISSING
        self._anchor = sample
        if anchor is None or anchor.counter_joules is None:
            return drawn, False, False, Flag.COUNTER_MISSING
        advance = sample.counter_joules - anchor.counter_joules
        if sample.epoch != anchor.epoch or advance < 0:
            return self._restart(drawn, Flag.COUNTER_RESET)
        reach = peak * (sample.at_seconds - anchor.at_seconds + rules.refresh_seconds)
        if advance > 2 * (reach + self._frozen * peak) > 0:
            return self._restart(drawn, Flag.COUNTER_LEAPT)
        if advance == 0 and drawn > rules.idle_watts * seconds:
            self._ahead += drawn
            self._frozen += seconds
            stuck = self._frozen > rules.stuck_seconds
            return drawn, not stuck, False, Flag.COUNTER_STUCK if stuck else None
        if self._frozen > rules.stuck_seconds and advance < (1 - rules.disagree) * self._ahead:
            self._ahead = self._frozen = 0.0
            return drawn, False, False, Flag.COUNTER_STUCK
        joules = max(advance - self._ahead, 0.0)
        self._ahead = max(self._ahead - advance, 0.0)
        self._frozen = 0.0
        return joules, True, False, None

    def _restart(self, drawn: float, flag: Flag) -> tuple[float, bool, bool, Flag | None]:
        self._ahead = self._frozen = 0.0
        return drawn, False, True, flag


def _trapezoid(
    last: PowerSample, sample: PowerSample, seconds: float, max_gap_seconds: float
) -> float | None:
    if seconds > max_gap_seconds or last.watts is None or sample.watts is None:
        return None
    return (last.watts + sample.watts) / 2 * seconds
