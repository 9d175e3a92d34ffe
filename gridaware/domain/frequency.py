"""Local frequency: when a node answers its own meter, how deep, and until when.

A load can only give: every rule here is for a frequency that is too low. The trigger is a
deterministic state machine that reads no clock: samples go in, what to do comes out::

    idle ── at or past the trigger ──▶ fire(level) ─▶ hold … (a droop fires again as it moves)
      ▲                                                │
      └── above the trigger again, rested ◀── release ◀┘  frequency is back, or the hold is over

**Blips.** A sample beyond ±10 % of nominal, one that is no number, or one that moved faster than
5 Hz/s is no frequency but the meter in a voltage sag. Nothing is done for it, and for 2 s after it
nothing is given back. A sample is plausible if the frequency can have come there at 5 Hz/s, both
from the sample before it and from the last plausible one. So a spike convinces nobody, nor does its
way back, and a grid that really went there is believed as soon as it could have. **A plausible
sample at or past the trigger is never held back**, also within those 2 s.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite

from gridaware.domain.errors import InvalidInput

__all__ = [
    "ERCOT_FFR",
    "FREQUENCY_RULES",
    "GB_DYNAMIC_CONTAINMENT_LOW",
    "NORDIC_FFR_49_5",
    "NORDIC_FFR_49_6",
    "NORDIC_FFR_49_7",
    "FrequencyFilter",
    "FrequencyRule",
    "FrequencyTrigger",
    "Step",
    "Verdict",
]

BLIP_SHARE = 0.10
"""Of nominal: farther away is no frequency of a grid that still runs."""
BLIP_HZ_PER_SECOND = 5.0
"""Faster is no grid: the fastest planned for is 1 to 2 Hz/s (ENTSO-E, Inertia and RoCoF, 2020)."""
FREEZE_SECONDS = 2.0
"""How long nothing is given back after a blip."""
_RESTART_SECONDS = 2.0
"""A time that is farther back than any reordering: the meter has started anew."""
_NOMINAL_HZ = (45.0, 65.0)
_MOST_POINTS = 16


@dataclass(frozen=True, slots=True)
class FrequencyRule:
    """What a programme asks of a resource that watches the frequency itself.

    Raises:
        InvalidInput: ``frequency-rule``, the numbers contradict each other.
    """

    nominal_hz: float
    trigger_hz: float
    """A frequency at or below it is answered; between it and nominal lies the dead band."""
    full_seconds: float
    """From the crossing to the full response, at most."""
    start_seconds: float | None = None
    """From the crossing to the first of it, at most; None = only the full one is timed."""
    droop: tuple[tuple[float, float], ...] = ()
    """Hz below nominal and the share of the response owed there, straight lines between; empty =
    all of it from the trigger on."""
    resolution: float = 0.01
    """Of the response: a droop is followed in steps no smaller than this."""
    least_hold_seconds: float = 0.0
    """Nothing is given back before."""
    hold_seconds: float = 900.0
    """The response ends after it, whatever the frequency does. A droop is followed for as long as
    the meter speaks, and ends so long after it fell silent."""
    return_hz: float | None = None
    """At or above it the response may end; None = only by time or along the droop."""
    return_seconds: float = 0.0
    """It must stay there for so long."""
    rearm_seconds: float = 0.0
    """From the end of a response to the next that may begin, at least."""
    data_hz: float = 1.0
    """How often the programme wants power measured, as proof."""

    def __post_init__(self) -> None:
        wrong = _wrong_with(self)
        if wrong is not None:
            raise InvalidInput("frequency-rule", wrong)

    def share(self, f_hz: float) -> float:
        """What is owed at a frequency, 0 to 1."""
        if not self.droop:
            return 1.0 if f_hz <= self.trigger_hz else 0.0
        deviation = self.nominal_hz - f_hz
        before, owed = self.droop[0]
        if deviation <= before:
            return 0.0
        for point, share in self.droop[1:]:
            if deviation < point:
                return owed + (share - owed) * (deviation - before) / (point - before)
            before, owed = point, share
        return owed


class Step(enum.StrEnum):
    """What a sample, or time, asks for."""

    NONE = "none"
    FIRE = "fire"
    HOLD = "hold"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do now, and the share of the response that stands then."""

    step: Step
    level: float = 0.0
    blip: bool = False
    """The sample was no frequency."""


class FrequencyFilter:
    """Tells frequencies from blips. Samples carry the meter's own times: a network bunches them."""

    def __init__(self, nominal_hz: float) -> None:
        self.frozen_until = -inf
        """Until then, on the clock of ``now_seconds``, nothing is given back."""
        self._nominal_hz = nominal_hz
        self._cycle_seconds = 1.0 / nominal_hz
        self._last: tuple[float, float] | None = None
        self._good: tuple[float, float] | None = None

    def judge(self, t_seconds: float, f_hz: float, now_seconds: float) -> bool | None:
        """Whether a sample is plausible; None = it is not new (repeated, too late, no time)."""
        if not isfinite(t_seconds):
            return None
        if self._last is not None and t_seconds <= self._last[0]:
            if self._last[0] - t_seconds <= _RESTART_SECONDS:
                return None
            self._last = self._good = None
        plausible = (
            abs(f_hz - self._nominal_hz) <= BLIP_SHARE * self._nominal_hz  # false for NaN, too
            and not self._too_far(self._good, t_seconds, f_hz)
            and not self._too_far(self._last, t_seconds, f_hz)
        )
        self._last = (t_seconds, f_hz)
        if not plausible:
            self.frozen_until = now_seconds + FREEZE_SECONDS
        elif self._good is None or t_seconds - self._good[0] >= self._cycle_seconds:
            self._good = (t_seconds, f_hz)
        return plausible

    def _too_far(self, since: tuple[float, float] | None, t_seconds: float, f_hz: float) -> bool:
        """Whether 5 Hz/s cannot lead here. Within one cycle there is no frequency to compare."""
        if since is None:
            return False
        seconds = max(t_seconds - since[0], self._cycle_seconds)
        return abs(f_hz - since[1]) > BLIP_HZ_PER_SECOND * seconds * (1 + 1e-9)


class FrequencyTrigger:
    """Watches one rule. Give it every sample, and the time where there is none."""

    def __init__(self, rule: FrequencyRule) -> None:
        self.rule = rule
        self.level = 0.0
        """The share of the response that stands; 0 = none."""
        self._filter = FrequencyFilter(rule.nominal_hz)
        self._ready = True
        """The frequency has been above the trigger since the last response."""
        self._rested_at = -inf
        self._fired_at = -inf
        self._started_at = -inf
        self._back_since: float | None = None

    def sample(self, t_seconds: float, f_hz: float, now_seconds: float | None = None) -> Verdict:
        """One sample.

        Args:
            t_seconds: when it was measured, on the meter's clock.
            f_hz: the frequency.
            now_seconds: when it arrived, on ours, which holds are counted on; None = the meter's.
        """
        now = t_seconds if now_seconds is None else now_seconds
        plausible = self._filter.judge(t_seconds, f_hz, now)
        if not plausible:
            return self._standing(blip=plausible is False)
        return self._respond(f_hz, now) if self.level else self._watch(f_hz, now)

    def tick(self, now_seconds: float) -> Verdict:
        """Time has passed, perhaps without any sample: a response still ends."""
        return self._release(now_seconds) if self._hold_over(now_seconds) else self._standing()

    def resume(self, level: float, fired_at_seconds: float) -> None:
        """Take up a response that began before this trigger did."""
        self.level = level
        self._fired_at = self._started_at = fired_at_seconds

    def _watch(self, f_hz: float, now: float) -> Verdict:
        rule = self.rule
        if f_hz > rule.trigger_hz:
            self._ready = True
            return Verdict(Step.NONE)
        share = rule.share(f_hz)
        if not self._ready or now < self._rested_at or share < rule.resolution:
            return Verdict(Step.NONE)
        self._started_at = now
        self._back_since = None
        return self._fire(share, now)

    def _respond(self, f_hz: float, now: float) -> Verdict:
        rule = self.rule
        if rule.return_hz is None or f_hz < rule.return_hz:
            self._back_since = None
        elif self._back_since is None:
            self._back_since = now
        back = self._back_since is not None and now - self._back_since >= rule.return_seconds
        if self._hold_over(now) or (back and self._may_fall(now)):
            return self._release(now)
        return self._follow(rule.share(f_hz), now) if rule.droop else self._standing()

    def _follow(self, share: float, now: float) -> Verdict:
        """Along the droop; what does not move is said again before its hold is over."""
        rule, may_fall = self.rule, self._may_fall(now)
        if share <= 0.0 and may_fall:
            return self._release(now)
        if share < self.level and not may_fall:
            share = self.level
        deepest = share == rule.droop[-1][1] and share > self.level
        moved = abs(share - self.level) >= rule.resolution or deepest
        stale = now - self._fired_at >= rule.hold_seconds / 2
        return self._fire(share, now) if moved or stale else self._standing()

    def _may_fall(self, now: float) -> bool:
        held = now - self._started_at < self.rule.least_hold_seconds
        return not held and now >= self._filter.frozen_until

    def _hold_over(self, now: float) -> bool:
        """A blip puts the end off, but a meter that only blips does not put it off for good."""
        over = now - self._fired_at - self.rule.hold_seconds
        frozen = now < self._filter.frozen_until
        return self.level > 0 and over >= (FREEZE_SECONDS if frozen else 0.0)

    def _fire(self, share: float, now: float) -> Verdict:
        self.level, self._fired_at = share, now
        return Verdict(Step.FIRE, share)

    def _release(self, now: float) -> Verdict:
        self.level = 0.0
        self._ready = False
        self._rested_at = now + self.rule.rearm_seconds
        return Verdict(Step.RELEASE)

    def _standing(self, *, blip: bool = False) -> Verdict:
        return Verdict(Step.HOLD if self.level else Step.NONE, self.level, blip)


def _wrong_with(rule: FrequencyRule) -> str | None:
    """What contradicts itself in a rule; None = nothing."""
    least_hz, greatest_hz = _NOMINAL_HZ
    if not least_hz <= rule.nominal_hz <= greatest_hz:
        return f"nominal_hz must be {least_hz:g} to {greatest_hz:g}"
    if not (1 - BLIP_SHARE) * rule.nominal_hz < rule.trigger_hz < rule.nominal_hz:
        return "trigger_hz must be below nominal, by less than 10 %: a load can only give"
    if rule.return_hz is not None and not rule.trigger_hz < rule.return_hz <= rule.nominal_hz:
        return "return_hz must be above trigger_hz, up to nominal"
    times = (rule.least_hold_seconds, rule.return_seconds, rule.rearm_seconds)
    if not all(0 <= seconds < inf for seconds in times):
        return "times must be 0 s or more"
    if not 0 < rule.full_seconds < inf or not 0 < rule.data_hz < inf:
        return "full_seconds and data_hz must be more than 0"
    if rule.start_seconds is not None and not 0 < rule.start_seconds <= rule.full_seconds:
        return "start_seconds must be more than 0, up to full_seconds"
    if not max(rule.least_hold_seconds, 1.0) <= rule.hold_seconds < inf:
        return "hold_seconds must be at least 1 s and least_hold_seconds"
    return _wrong_with_droop(rule)


def _wrong_with_droop(rule: FrequencyRule) -> str | None:
    if not 0 < rule.resolution <= 0.5:
        return "resolution must be more than 0, up to 0.5"
    if not rule.droop:
        return None
    if not 2 <= len(rule.droop) <= _MOST_POINTS:
        return f"a droop has 2 to {_MOST_POINTS} points"
    deviations, shares = zip(*rule.droop, strict=True)
    ends = deviations[0] >= 0 and deviations[-1] <= BLIP_SHARE * rule.nominal_hz
    if not ends or not all(b > a for a, b in pairwise(deviations)):
        return "a droop's deviations must grow, from 0 Hz to 10 % of nominal"
    rises = all(b >= a for a, b in pairwise(shares))
    if not rises or shares[0] != 0.0 or not 0 < shares[-1] <= 1:
        return "a droop's shares must begin at 0 and never fall, up to 1"
    return None


ERCOT_FFR = FrequencyRule(
    nominal_hz=60.0,
    trigger_hz=59.85,
    full_seconds=0.25,
    hold_seconds=900.0,
    return_hz=59.98,
    return_seconds=1.0,
    data_hz=0.5,
)
"""ERCOT RRS-FFR: full within 15 cycles of 59.85 Hz, held until recalled and at most for 15 min,
telemetry every 2 s (ERCOT Ancillary Services Study, Sept 2024; NPRR863). Not recalled before
59.98 Hz and restored within 15 min: check the tariff. The second above 59.98 Hz is ours."""

GB_DYNAMIC_CONTAINMENT_LOW = FrequencyRule(
    nominal_hz=50.0,
    trigger_hz=49.985,
    full_seconds=1.0,
    start_seconds=0.5,
    droop=((0.015, 0.0), (0.2, 0.05), (0.5, 1.0)),
    hold_seconds=900.0,
    data_hz=20.0,
)
"""GB Dynamic Containment, low: nothing within ±0.015 Hz, 5 % at 0.2 Hz, all at 0.5 Hz, started
within 0.5 s and full within 1 s, 15 min of full delivery, performance data at 20 Hz (National Grid
ESO, DC service specification)."""


def _nordic_ffr(trigger_hz: float, full_seconds: float) -> FrequencyRule:
    return FrequencyRule(
        nominal_hz=50.0,
        trigger_hz=trigger_hz,
        full_seconds=full_seconds,
        least_hold_seconds=30.0,
        hold_seconds=30.0,
        data_hz=10.0,
    )


NORDIC_FFR_49_7 = _nordic_ffr(49.7, 1.3)
"""Nordic FFR, the slowest of its three: support for 30 s, which allows any way back (5 s would
bind it to 20 % a second), ready again within 15 min, power sampled each 100 ms (Fingrid, Fast
Frequency Reserve; Svenska kraftnät, questions and answers about FFR)."""
NORDIC_FFR_49_6 = _nordic_ffr(49.6, 1.0)
"""Nordic FFR at 49.6 Hz; the rest as at 49.7 Hz."""
NORDIC_FFR_49_5 = _nordic_ffr(49.5, 0.7)
"""Nordic FFR at 49.5 Hz; the rest as at 49.7 Hz."""

FREQUENCY_RULES: Mapping[str, FrequencyRule] = {
    "ercot-ffr": ERCOT_FFR,
    "gb-dc-low": GB_DYNAMIC_CONTAINMENT_LOW,
    "nordic-ffr-49.7": NORDIC_FFR_49_7,
    "nordic-ffr-49.6": NORDIC_FFR_49_6,
    "nordic-ffr-49.5": NORDIC_FFR_49_5,
}
"""By name, as a site's settings say it."""
