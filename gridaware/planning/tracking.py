"""Closing the loop: what to ask the planner for, so that the *measured* mean meets the target.

Two corrections, both bounded:

* *bias*: how much more (or less) the site draws than its plan expects, as a share of the plan. It
  is learned from settled readings only, slowly where the error may be noise and fast where it is
  larger than noise. Being measured against the plan in force, it is blind to pauses that are still
  under way: the plan says what it expects meanwhile.
* *debt*: what the present settlement interval has drawn above the target so far is saved over the
  rest of the interval. Credit is not spent: it would only buy a later excess. When an interval ends
  in debt, what was saved for it is let go no faster than the bias is learned: the cause is still
  there.

Until a bias has been learned a first margin stands in its place. While a meter is read that is less
sure than the site's first, the margin is wider by the difference: what it shows may be that much
too little, and nothing that is measured with it can tell.
"""

from dataclasses import dataclass, replace
from math import floor, sqrt

__all__ = ["Tracker"]

FIRST_MARGIN = 0.01
"""Share of the target kept free until the first bias is learned."""
MARGIN = 0.002
"""Share of the target kept free always, in an interval of a minute: noise averages out, but not to
nothing, and with the root of the time that it has."""
MARGIN_SECONDS = 60.0
UNCERTAIN_BOUND = 0.05
"""Most that an unsure meter widens the margin by."""
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
"""After the plan moved, or the load did, readings say nothing for this long."""
MOVED = 0.03
"""A plan that moved by more than this share is a new plan; a smaller move is followed. A draw that
moved by more is work that came or went: the next plan knows of it."""
RESPONSE_SECONDS = 0.3
"""Time constant with which silicon and sensors follow a small move of the plan."""
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
    measured_watts: float = 0.0
    expected_watts: float = 0.0
    settled_watts: float = 0.0
    """Of what is expected, what silicon and sensors have followed by now."""
    quiet_until_seconds: float = 0.0
    interval_began_seconds: float = 0.0
    interval_seconds: float = 60.0
    interval_ends_seconds: float = 60.0
    """The last one may be shorter: it ends with what is owed."""
    excess_joules: float = 0.0
    """Above the target since the interval began; negative = below."""
    saved_watts: float = 0.0
    """Saved now for the debt of the interval before."""

    def follow(
        self,
        now_seconds: float,
        *,
        measured_watts: float,
        expected_watts: float,
        target_watts: float | None,
        interval_seconds: float = 60.0,
        interval_from_seconds: float | None = None,
        until_seconds: float | None = None,
        uncertain_share: float = 0.0,
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
            until_seconds: when what is owed ends, monotonic, and with it the last interval; None =
                not known.
            uncertain_share: how much less sure the reading is than the site's first meter's, as a
                share of it.
        """
        unsure = min(max(uncertain_share, 0.0), UNCERTAIN_BOUND)
        if target_watts is None:
            return replace(self, at_seconds=None, margin=FIRST_MARGIN)
        if self.at_seconds is None:
            began = _began(now_seconds, interval_from_seconds, interval_seconds)
            ends = _ends(began, interval_seconds, until_seconds)
            margin = max(self.margin, _least_margin(ends - began) + unsure)
            span = (began, ends, interval_seconds)
            return self._begin(now_seconds, measured_watts, expected_watts, margin, span)
        step = min(max(now_seconds - self.at_seconds, 0.0), LONGEST_STEP_SECONDS)
        counted = self._count(
            now_seconds,
            step,
            measured_watts - target_watts,
            target_watts,
            interval_seconds,
            self.interval_began_seconds if interval_from_seconds is None else interval_from_seconds,
        )
        quiet = self.quiet_until_seconds
        moved = _differ(expected_watts, self.expected_watts)
        if moved or (now_seconds >= quiet and _differ(measured_watts, self.measured_watts)):
            quiet = now_seconds + SETTLE_SECONDS
        followed = min(step / RESPONSE_SECONDS, 1.0) * (expected_watts - self.settled_watts)
        settled = expected_watts if moved else self.settled_watts + followed
        began = counted.interval_began_seconds
        ends = _ends(began, counted.interval_seconds, until_seconds)
        least = _least_margin(ends - began) + unsure
        state = replace(
            counted,
            at_seconds=now_seconds,
            interval_ends_seconds=ends,
            margin=max(self.margin, least),
            measured_watts=measured_watts,
            expected_watts=expected_watts,
            settled_watts=settled,
            quiet_until_seconds=quiet,
        )
        if now_seconds < quiet or settled <= 0:
            return state
        return state._learn(step, measured_watts / settled - 1.0, least)

    def _begin(
        self,
        now: float,
        measured_watts: float,
        expected_watts: float,
        margin: float,
        interval: tuple[float, float, float],
    ) -> "Tracker":
        """The first reading while a target holds: nothing is owed yet, and nothing is settled."""
        began, ends, seconds = interval
        return replace(
            self,
            at_seconds=now,
            margin=margin,
            measured_watts=measured_watts,
            expected_watts=expected_watts,
            settled_watts=expected_watts,
            quiet_until_seconds=now + SETTLE_SECONDS,
            interval_began_seconds=began,
            interval_seconds=seconds,
            interval_ends_seconds=ends,
            excess_joules=0.0,
            saved_watts=0.0,
        )

    def asked_watts(self, target_watts: float) -> float:
        """What to ask the planner for, so that the mean of the interval meets ``target_watts``."""
        saved = max(self._debt_watts(target_watts), self.saved_watts)
        return (target_watts * (1.0 - self.margin) - saved) / (1.0 + self.bias)

    def _debt_watts(self, target_watts: float) -> float:
        """What to save over the rest of the interval for what it has drawn too much."""
        if self.at_seconds is None or self.excess_joules <= 0:
            return 0.0
        left = self.interval_ends_seconds - self.at_seconds
        debt = self.excess_joules / max(left - READING_SECONDS, READING_SECONDS)
        return min(debt, DEBT_BOUND * target_watts)

    def _count(
        self,
        now: float,
        step: float,
        excess_watts: float,
        target_watts: float,
        interval: float,
        origin: float,
    ) -> "Tracker":
        """Add a reading to the interval's account; a new interval starts at zero."""
        began = _began(now, origin, interval)
        if now < origin:  # nothing is settled yet: the way down is no debt
            return replace(
                self, interval_began_seconds=began, interval_seconds=interval, excess_joules=0.0
            )
        # The origin is known to within the jitter between two clocks.
        if began - self.interval_began_seconds < SAME_INTERVAL_SHARE * interval:
            return replace(self, excess_joules=self.excess_joules + step * excess_watts)
        return replace(
            self,
            interval_began_seconds=began,
            interval_seconds=interval,
            excess_joules=min(step, now - began) * excess_watts,
            saved_watts=max(self._debt_watts(target_watts), self.saved_watts),
        )

    def _learn(self, step: float, seen: float, least_margin: float) -> "Tracker":
        """Move the bias towards what was seen, and the margin towards the least that is kept."""
        error = seen - self.bias
        constant = SLOW_SECONDS
        if abs(error) > NOISE:
            constant = FAST_SECONDS if error > 0 else LOW_SECONDS
        if error > 0:
            constant = min(constant, SLOW_SHARE * self.interval_seconds)
        share = min(step / constant, 1.0)
        bias = min(max(self.bias + share * error, -BOUND), BOUND)
        margin = self.margin + min(step / SLOW_SECONDS, 1.0) * (least_margin - self.margin)
        return replace(self, bias=bias, margin=margin, saved_watts=(1.0 - share) * self.saved_watts)


def _differ(watts: float, before_watts: float) -> bool:
    return abs(watts - before_watts) > MOVED * max(before_watts, 1.0)


def _least_margin(interval_seconds: float) -> float:
    """What is kept free once the bias is known: more in a short interval."""
    return min(MARGIN * sqrt(MARGIN_SECONDS / max(interval_seconds, 1e-3)), FIRST_MARGIN)


def _ends(began: float, interval: float, until: float | None) -> float:
    """When the interval ends that began then; what is owed may end before."""
    whole = began + interval
    return whole if until is None or until <= began else min(whole, until)


def _began(now: float, origin: float | None, interval: float) -> float:
    """When the interval began that ``now`` lies in; ``origin`` is the beginning of one of them."""
    if origin is None:
        return now
    return origin + floor((now - origin) / interval) * interval
