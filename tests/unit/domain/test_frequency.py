"""Local frequency: what is answered, how deep, until when, and what is no frequency at all."""

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridaware.domain.errors import InvalidInput
from gridaware.domain.frequency import (
    ERCOT_FFR,
    FREQUENCY_RULES,
    GB_DYNAMIC_CONTAINMENT_LOW,
    NORDIC_FFR_49_5,
    NORDIC_FFR_49_6,
    NORDIC_FFR_49_7,
    FrequencyRule,
    FrequencyTrigger,
    Step,
    Verdict,
)

PERIOD = 0.02
NOTHING = Verdict(Step.NONE)
FULL = Verdict(Step.FIRE, 1.0)
HELD = Verdict(Step.HOLD, 1.0)
GONE = Verdict(Step.RELEASE)


class Meter:
    """Feeds a trigger 50 samples a second."""

    def __init__(self, rule: FrequencyRule) -> None:
        self.trigger = FrequencyTrigger(rule)
        self.count = 0

    @property
    def now(self) -> float:
        return self.count * PERIOD

    def show(self, hz: float, seconds: float = PERIOD) -> list[Verdict]:
        """The same frequency for a while."""
        return self.ramp(hz, hz, seconds)

    def ramp(self, first_hz: float, last_hz: float, seconds: float) -> list[Verdict]:
        """A straight line from one frequency to another."""
        verdicts = []
        steps = max(round(seconds / PERIOD), 1)
        for step in range(1, steps + 1):
            self.count += 1
            hz = first_hz + (last_hz - first_hz) * step / steps
            verdicts.append(self.trigger.sample(self.now, hz))
        return verdicts

    def responding(self) -> "Meter":
        """At 59.8 Hz after a slow fall, so that a response is under way."""
        nominal, trigger = self.trigger.rule.nominal_hz, self.trigger.rule.trigger_hz
        self.show(nominal, 1.0)
        assert FULL in self.ramp(nominal, trigger - 0.05, 1.0)
        return self


def steps(verdicts: list[Verdict]) -> list[Step]:
    """Without what only stands."""
    return [v.step for v in verdicts if v.step in {Step.FIRE, Step.RELEASE}]


# What the programmes ask ---------------------------------------------------------------------


def test_ercot_ffr_is_15_cycles_of_60_hz_at_59_85_for_15_minutes_at_most() -> None:
    assert ERCOT_FFR.trigger_hz == 59.85
    assert ERCOT_FFR.full_seconds == 15 / 60
    assert ERCOT_FFR.hold_seconds == 15 * 60


@pytest.mark.parametrize(
    ("hz", "share"),
    [
        (50.2, 0.0),
        (50.0, 0.0),
        (49.985, 0.0),
        (49.8925, 0.025),  # half of the way through the small linear part
        (49.8, 0.05),
        (49.65, 0.525),  # half of the way from 5 to 100 %
        (49.5, 1.0),
        (49.2, 1.0),
    ],
)
def test_dynamic_containment_follows_its_published_curve(hz: float, share: float) -> None:
    assert GB_DYNAMIC_CONTAINMENT_LOW.share(hz) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize(
    ("rule", "hz", "seconds"),
    [(NORDIC_FFR_49_7, 49.7, 1.3), (NORDIC_FFR_49_6, 49.6, 1.0), (NORDIC_FFR_49_5, 49.5, 0.7)],
)
def test_nordic_ffr_has_three_triggers_with_three_times(rule, hz, seconds) -> None:
    assert (rule.trigger_hz, rule.full_seconds) == (hz, seconds)
    assert rule.least_hold_seconds == 30.0, "any way back is allowed after 30 s"


def test_only_dynamic_containment_wants_20_hz_of_proof() -> None:
    rates = {name: rule.data_hz for name, rule in FREQUENCY_RULES.items()}
    assert rates.pop("gb-dc-low") == 20.0
    assert max(rates.values()) == 10.0, "the Nordic 100 ms"


@pytest.mark.parametrize(
    "change",
    [
        {"nominal_hz": 400.0},
        {"nominal_hz": nan},
        {"trigger_hz": 60.1},
        {"trigger_hz": 60.0},
        {"trigger_hz": 54.0},
        {"trigger_hz": nan},
        {"return_hz": 59.85},
        {"return_hz": 60.2},
        {"return_seconds": -1.0},
        {"rearm_seconds": inf},
        {"full_seconds": 0.0},
        {"start_seconds": 0.3},
        {"data_hz": 0.0},
        {"hold_seconds": 0.0},
        {"hold_seconds": inf},
        {"least_hold_seconds": 901.0},
        {"resolution": 0.0},
        {"droop": ((0.1, 0.0),)},
        {"droop": ((0.1, 0.0), (0.1, 1.0))},
        {"droop": ((0.1, 0.0), (nan, 0.5), (0.3, 1.0))},
        {"droop": ((0.1, 0.0), (0.2, 0.5), (0.3, 0.4))},
        {"droop": ((0.1, 0.1), (0.2, 1.0))},
        {"droop": ((0.1, 0.0), (0.2, 1.1))},
        {"droop": ((0.1, 0.0), (7.0, 1.0))},
        {"droop": tuple((n / 100, n / 100) for n in range(17))},
    ],
)
def test_rules_that_contradict_themselves_are_refused(change: dict) -> None:
    with pytest.raises(InvalidInput) as refused:
        replace(ERCOT_FFR, **change)
    assert refused.value.code == "frequency-rule"


# From the trigger to the release -------------------------------------------------------------


def test_the_first_sample_at_the_trigger_is_answered() -> None:
    meter = Meter(ERCOT_FFR)
    assert steps(meter.show(60.0, 5.0)) == []
    assert meter.show(59.9) + meter.show(59.851) == [NOTHING, NOTHING]
    assert meter.show(59.85) == [FULL]
    assert meter.ramp(59.85, 59.7, 0.1) == [HELD] * 5


def test_a_fall_by_half_a_hertz_a_second_crosses_after_300_ms() -> None:
    meter = Meter(ERCOT_FFR)
    meter.show(60.0, 1.0)
    verdicts = meter.ramp(60.0, 59.5, 1.0)
    assert verdicts.index(FULL) + 1 == 15  # 15 samples of 20 ms are 0.3 s: 60 - 0.15 Hz


def test_the_very_first_sample_of_a_meter_can_fire() -> None:
    assert Meter(ERCOT_FFR).show(59.8) == [FULL]


def test_ercot_returns_once_59_98_hz_has_stood_for_a_second() -> None:
    meter = Meter(ERCOT_FFR).responding()
    assert steps(meter.ramp(59.8, 59.97, 5.0)) == []
    assert steps(meter.show(59.97, 60.0)) == []
    assert steps(meter.show(59.99, 0.9)) == []
    assert steps(meter.show(59.97, 0.1)) == []  # not yet back
    assert steps(meter.show(59.98, 1.0)) == []
    assert meter.show(59.98) == [GONE]
    assert meter.show(59.99) == [NOTHING]


def test_fifteen_minutes_end_a_response_and_the_next_needs_a_new_crossing() -> None:
    meter = Meter(ERCOT_FFR).responding()
    verdicts = meter.show(59.8, 920.0)
    assert steps(verdicts) == [Step.RELEASE]
    assert 898.0 < verdicts.index(GONE) * PERIOD < 900.0  # some of it went by before
    assert meter.show(59.86) == [NOTHING]
    assert meter.show(59.85) == [FULL]


def test_nordic_support_ends_after_30_seconds_whatever_the_frequency_does() -> None:
    for after_hz in (50.0, 49.6):
        meter = Meter(NORDIC_FFR_49_7).responding()
        verdicts = meter.ramp(49.65, after_hz, 0.2) + meter.show(after_hz, 31.0)
        assert steps(verdicts) == [Step.RELEASE]
        assert 29.0 < verdicts.index(GONE) * PERIOD < 30.0


def test_a_rest_that_the_contract_allows_is_kept() -> None:
    meter = Meter(replace(NORDIC_FFR_49_7, rearm_seconds=60.0)).responding()
    meter.show(49.65, 30.0)
    assert meter.trigger.level == 0.0
    meter.ramp(49.65, 50.0, 1.0)
    meter.show(50.0, 30.0)
    assert steps(meter.ramp(50.0, 49.65, 1.0)) == []
    meter.ramp(49.65, 50.0, 1.0)
    meter.show(50.0, 30.0)
    assert steps(meter.ramp(50.0, 49.65, 1.0)) == [Step.FIRE]


def test_dynamic_containment_goes_down_and_up_its_curve_and_ends_in_the_dead_band() -> None:
    meter = Meter(GB_DYNAMIC_CONTAINMENT_LOW)
    meter.show(50.0, 1.0)
    assert steps(meter.ramp(50.0, 49.986, 1.0)) == []
    for first, last in ((49.986, 49.5), (49.5, 49.9)):
        for verdict in meter.ramp(first, last, 2.0):
            hz_now = first + (last - first) * ((meter.count - 1) % 100 + 1) / 100
            assert verdict.step in {Step.FIRE, Step.HOLD, Step.NONE}, hz_now
        owed = GB_DYNAMIC_CONTAINMENT_LOW.share(last)
        assert meter.trigger.level == pytest.approx(owed, abs=0.01)
    assert steps(meter.ramp(49.9, 49.984, 1.0)).count(Step.RELEASE) == 0
    assert Step.RELEASE in steps(meter.ramp(49.984, 49.99, 0.2))


def test_a_droop_owes_at_every_sample_what_its_curve_says_to_one_percent() -> None:
    meter = Meter(GB_DYNAMIC_CONTAINMENT_LOW)
    meter.show(50.0, 1.0)
    hz = 50.0
    for step in range(400):
        hz += -0.004 if step < 150 else 0.002
        meter.show(hz)
        owed = GB_DYNAMIC_CONTAINMENT_LOW.share(hz)
        assert meter.trigger.level == pytest.approx(owed, abs=0.01 + 1e-9), hz


def test_what_a_droop_owes_for_long_is_said_again_before_its_hold_is_over() -> None:
    meter = Meter(GB_DYNAMIC_CONTAINMENT_LOW)
    meter.show(50.0, 1.0)
    meter.ramp(50.0, 49.8, 1.0)
    verdicts = meter.show(49.8, 1000.0)
    again = [n * PERIOD for n, v in enumerate(verdicts) if v.step is Step.FIRE]
    assert [pytest.approx(450.0 * n, abs=2.0) for n in (1, 2)] == again
    assert all(v.level == pytest.approx(0.05, abs=0.01) for v in verdicts)
    assert meter.trigger.level == pytest.approx(0.05), "said again, it is exact"


def test_a_meter_that_falls_silent_holds_until_the_hold_is_over() -> None:
    meter = Meter(ERCOT_FFR).responding()
    fired = meter.now - 0.5
    assert meter.trigger.tick(fired + 890.0) == HELD
    assert meter.trigger.tick(fired + 902.0) == GONE
    assert meter.trigger.tick(fired + 903.0) == NOTHING


def test_a_response_that_began_before_a_restart_is_taken_up() -> None:
    trigger = FrequencyTrigger(ERCOT_FFR)
    trigger.resume(1.0, 100.0)
    assert trigger.sample(7.0, 59.8, 500.0) == HELD
    assert trigger.sample(8.0, 59.79, 999.0) == HELD
    assert trigger.sample(9.0, 59.79, 1000.0) == GONE


# What is no frequency ------------------------------------------------------------------------


@pytest.mark.parametrize("hz", [nan, inf, -inf, 0.0, -60.0, 53.9, 66.1, 6000.0])
def test_what_is_farther_than_a_tenth_from_nominal_is_a_blip(hz: float) -> None:
    meter = Meter(ERCOT_FFR)
    meter.show(60.0, 1.0)
    assert meter.show(hz) == [Verdict(Step.NONE, 0.0, blip=True)]


def test_exactly_5_hz_a_second_is_a_grid_and_a_little_more_is_not() -> None:
    meter = Meter(ERCOT_FFR)
    meter.show(60.0, 1.0)
    assert steps(meter.ramp(60.0, 59.8, 0.04)) == [Step.FIRE]
    meter = Meter(ERCOT_FFR)
    meter.show(60.0, 1.0)
    assert meter.ramp(60.0, 59.79, 0.04) == [Verdict(Step.NONE, 0.0, blip=True)] * 2


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_a_spike_past_the_trigger_and_its_way_back_convince_nobody(samples: int) -> None:
    meter = Meter(ERCOT_FFR)
    meter.show(60.0, 1.0)
    spike = meter.show(59.0, samples * PERIOD)
    assert all(v.blip and v.step is Step.NONE for v in spike)
    assert steps(meter.show(60.0, 5.0)) == []


def test_a_grid_that_really_fell_by_a_hertz_at_once_is_believed_after_200_ms() -> None:
    meter = Meter(ERCOT_FFR)
    meter.show(60.0, 1.0)
    verdicts = meter.show(59.0, 0.5)
    assert verdicts.index(FULL) + 1 == 10  # 10 samples of 20 ms: 1 Hz at 5 Hz/s


def test_a_plausible_sample_at_the_trigger_is_answered_at_once_also_after_a_blip() -> None:
    meter = Meter(ERCOT_FFR)
    meter.show(60.0, 1.0)
    meter.show(nan, 0.1)
    assert meter.show(59.86) == [NOTHING]
    assert meter.show(59.85) == [FULL], "120 ms after the blip"


def test_nothing_is_given_back_during_a_blip_and_for_two_seconds_after_it() -> None:
    meter = Meter(ERCOT_FFR).responding()
    meter.ramp(59.8, 59.99, 0.2)
    assert steps(meter.show(59.99, 0.5)) == []
    meter.show(0.0, 0.1)
    verdicts = meter.show(59.99, 3.0)
    assert steps(verdicts) == [Step.RELEASE]
    assert verdicts.index(GONE) * PERIOD == pytest.approx(2.0, abs=2 * PERIOD)


def test_a_blip_lets_a_droop_go_deeper_but_not_back() -> None:
    meter = Meter(GB_DYNAMIC_CONTAINMENT_LOW)
    meter.show(50.0, 1.0)
    meter.ramp(50.0, 49.7, 1.0)
    meter.show(nan)
    level = meter.trigger.level
    meter.ramp(49.7, 49.8, 0.5)
    assert meter.trigger.level == level
    meter.ramp(49.8, 49.6, 0.5)
    assert meter.trigger.level > level


def test_six_sags_in_90_seconds_move_nothing_whether_idle_or_responding() -> None:
    idle, busy = Meter(ERCOT_FFR), Meter(ERCOT_FFR).responding()
    idle.show(60.0, 1.0)
    for _ in range(6):
        for meter, hz in ((idle, 60.0), (busy, 59.8)):
            assert steps(meter.show(0.0, 0.3)) == []
            assert steps(meter.show(hz, 14.7)) == []
    assert (idle.trigger.level, busy.trigger.level) == (0.0, 1.0)


def test_a_meter_that_only_blips_does_not_hold_a_response_for_good() -> None:
    meter = Meter(NORDIC_FFR_49_7).responding()
    verdicts = [meter.trigger.tick(meter.now) for _ in range(2000) if meter.show(nan)]
    assert steps(verdicts) == [Step.RELEASE]


def test_old_repeated_and_timeless_samples_are_passed_over() -> None:
    trigger = FrequencyTrigger(ERCOT_FFR)
    trigger.sample(10.0, 60.0, 10.0)
    for t_seconds in (10.0, 9.9, nan, inf, -inf):
        assert trigger.sample(t_seconds, 59.0, 11.0) == NOTHING
    assert trigger.sample(10.1, 59.9, 11.1) == NOTHING
    assert trigger.sample(10.2, 59.84, 11.2) == FULL


def test_a_meter_that_starts_anew_is_heard_again() -> None:
    trigger = FrequencyTrigger(ERCOT_FFR)
    trigger.sample(90_000.0, 60.0, 10.0)
    assert trigger.sample(0.02, 59.9, 11.0) == NOTHING
    assert trigger.sample(0.04, 59.84, 11.02) == FULL


def test_samples_that_a_network_bunched_are_judged_by_the_meters_own_times() -> None:
    trigger = FrequencyTrigger(ERCOT_FFR)
    hz = [60.0 - 0.05 * n for n in range(5)]  # 1 Hz/s, all of it arriving at once
    verdicts = [trigger.sample(n * 0.05, hz[n], 100.0) for n in range(5)]
    assert not any(v.blip for v in verdicts)
    assert verdicts[3] == FULL


def test_a_clock_of_the_meter_that_leaps_ends_no_hold() -> None:
    trigger = FrequencyTrigger(ERCOT_FFR)
    trigger.sample(0.0, 60.0, 0.0)
    assert trigger.sample(0.1, 59.8, 0.1) == FULL
    assert trigger.sample(5000.0, 59.8, 0.2) == HELD


def test_a_meter_of_a_thousand_samples_a_second_cannot_creep_past_5_hz_a_second() -> None:
    trigger = FrequencyTrigger(ERCOT_FFR)
    verdicts = [trigger.sample(n / 1000, 60.0 - 0.01 * n) for n in range(60)]  # 10 Hz/s
    assert any(v.blip for v in verdicts)
    assert Step.FIRE not in steps(verdicts)


SAMPLES = st.lists(
    st.tuples(
        st.floats(0.001, 3.0),
        st.one_of(st.floats(48.5, 51.0), st.sampled_from([0.0, nan, 49.7, 49.5, 50.0, 60.0])),
    ),
    max_size=60,
)


@given(SAMPLES, st.sampled_from(sorted(FREQUENCY_RULES)))
def test_whatever_a_meter_says_the_trigger_is_lawful_and_deterministic(samples, name) -> None:
    rule = FREQUENCY_RULES[name]
    first, second = FrequencyTrigger(rule), FrequencyTrigger(rule)
    now = 0.0
    for seconds, hz in samples:
        now += seconds
        before = first.level
        verdict = first.sample(now, hz)
        assert verdict == second.sample(now, hz)
        assert 0.0 <= verdict.level <= 1.0
        assert verdict.level == first.level
        if verdict.blip:
            assert verdict.step in {Step.NONE, Step.HOLD}
            assert first.level == before
        if verdict.step is Step.FIRE and verdict.level > before:
            assert hz <= rule.trigger_hz
            assert verdict.level == rule.share(hz)
        if verdict.step is Step.RELEASE:
            assert before > 0.0
