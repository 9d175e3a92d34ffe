"""Closing the loop: what to ask the planner for, so that the *measured* mean meets the target.

Two corrections, both bounded:

* *bias*: how much more (or less) the site draws than its plan expects, as a share of the plan. It
  is learned from settled readings only, slowly where the error may be noise and fast where it is
  larger than noise. Being measured against the plan in force, it is blind to pauses that are still
  under way: the plan says what it expects meanwhile.
* *debt*: what the present settlement interval has drawn above the target so far is saved over the
  rest of the interval. Credit is not spent: it would only buy a later excess.

Until a bias has been learned a first margin stands in its place.
"""

from dataclasses import dataclass, replace
from math import floor

__all__ = ["Tracker"]

FIRST_MARGIN = 0.01
"""Share of the target kept free until the first bias is learned."""
MARGIN = 0.002
"""Share of the target kept free always: noise averages out, but not to nothing."""
SLOW_SECONDS = 12.0
"""Time constant of the bias while the error is within noise."""
SLOW_SHARE = 1 / 3
"""Of a settlement interval, while it draws more than its plan: what is learned later is missed."""
FAST_SECONDS = 2.0
"""Time constant while the site draws more than that above its plan."""
LOW_SECONDS = 5.0
"""Time constant while it draws less than that below it: over-delivery is only unpaid."""
NOISE = 0.015
BOUND = 0.12
"""Largest bias believed, as a share of the plan: beyond it something is broken (anti-windup)."""
DEBT_BOUND = 0.06
"""Most that a debt lowers the target by, as a share of it."""
SETTLE_SECONDS = 1.5
"""After the plan moved, readings say nothing for this long."""
MOVED = 0.01
"""A plan that moved by more than this share is a new plan."""
READING_SECONDS = 1.0
"""What is asked now is drawn about one reading later."""
SAME_INTERVAL_SHARE = 0.25
LONGEST_STEP_SECONDS = 5.0
"""A gap between readings counts as at most this long."""


@dataclass(frozen=True, slots=True)
class Tracker:
    """What the loop remembers. A value: each reading gives a new one.

    Any boundary serves, as long as measured, expected and target watts share it.
    """

    bias: float = 0.0
    """Measured over expected, less 1."""
    margin: float = FIRST_MARGIN
    at_seconds: float | None = None
    """Of the last reading while a target held; None = no target holds."""
    expected_watts: float = 0.0
    quiet_until_seconds: float = 0.0
    interval_began_seconds: float = 0.0
    interval_seconds: float = 60.0
    excess_joules: float = 0.0
    """Above the target since the interval began; negative = below."""

    def follow(
        self,
        now_seconds: float,
        *,
        measured_watts: float,
        expected_watts: float,
        target_watts: float | None,
        interval_seconds: float = 60.0,
        interval_from_seconds: float | None = None,
    ) -> "Tracker":
        """Take in one reading.

        Args:
            now_seconds: monotonic.
            measured_watts: what is drawn now.
            expected_watts: what the plan in force expects now, its pauses still under way
                (:attr:`gridaware.domain.plan.Plan.expected_at_once_watts`).
            target_watts: what may be drawn; None = no target holds.
            interval_seconds: over which the mean is settled.
            interval_from_seconds: when one of these intervals begins, monotonic; None = with the
                first reading.
        """
        if target_watts is None:
            return replace(self, at_seconds=None, margin=FIRST_MARGIN)
        if self.at_seconds is None:
            return replace(
                self,
                at_seconds=now_seconds,
                expected_watts=expected_watts,
                quiet_until_seconds=now_seconds + SETTLE_SECONDS,
                interval_began_seconds=_began(now_seconds, interval_from_seconds, interval_seconds),
                interval_seconds=interval_seconds,
                excess_joules=0.0,
            )
        step = min(max(now_seconds - self.at_seconds, 0.0), LONGEST_STEP_SECONDS)
        counted = self._count(
            now_seconds,
            step,
            measured_watts - target_watts,
            interval_seconds,
            self.interval_began_seconds if interval_from_seconds is None else interval_from_seconds,
        )
        moved = abs(expected_watts - self.expected_watts) > MOVED * max(self.expected_watts, 1.0)
        quiet = now_seconds + SETTLE_SECONDS if moved else self.quiet_until_seconds
        state = replace(
            counted,
            at_seconds=now_seconds,
            expected_watts=expected_watts,
            quiet_until_seconds=quiet,
        )
        if now_seconds < quiet or expected_watts <= 0:
            return state
        return state._learn(step, measured_watts / expected_watts - 1.0)

    def asked_watts(self, target_watts: float) -> float:
        """What to ask the planner for, so that the mean of the interval meets ``target_watts``."""
        wanted = target_watts * (1.0 - self.margin)
        if self.at_seconds is not None and self.excess_joules > 0:
            left = self.interval_began_seconds + self.interval_seconds - self.at_seconds
            debt = self.excess_joules / max(left - READING_SECONDS, READING_SECONDS)
            wanted -= min(debt, DEBT_BOUND * target_watts)
        return wanted / (1.0 + self.bias)

    def _count(
        self, now: float, step: float, excess_watts: float, interval: float, origin: float
    ) -> "Tracker":
        """Add a reading to the interval's account; a new interval starts at zero."""
        began = _began(now, origin, interval)
        # The origin is known to within the jitter between two clocks.
        if began - self.interval_began_seconds < SAME_INTERVAL_SHARE * interval:
            return replace(self, excess_joules=self.excess_joules + step * excess_watts)
        return replace(
            self,
            interval_began_seconds=began,
            interval_seconds=interval,
            excess_joules=min(step, now - began) * excess_watts,
        )

    def _learn(self, step: float, seen: float) -> "Tracker":
        """Move the bias towards what was seen."""
        error = seen - self.bias
        constant = SLOW_SECONDS
        if error > 0:
            constant = min(constant, SLOW_SHARE * self.interval_seconds)
        if abs(error) > NOISE:
            constant = FAST_SECONDS if error > 0 else LOW_SECONDS
        share = min(step / constant, 1.0)
        bias = min(max(self.bias + share * error, -BOUND), BOUND)
        margin = self.margin + min(step / SLOW_SECONDS, 1.0) * (MARGIN - self.margin)
        return replace(self, bias=bias, margin=margin)


def _began(now: float, origin: float | None, interval: float) -> float:
    """When the interval began that ``now`` lies in; ``origin`` is the beginning of one of them."""
    if origin is None:
        return now
    return origin + floor((now - origin) / interval) * interval
