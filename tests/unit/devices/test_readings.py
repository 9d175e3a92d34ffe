"""What every driver does with its numbers."""

import math

import pytest

from gridaware.devices.readings import Counters, LastGood
from gridaware.domain.errors import DeviceError
from gridaware.domain.reading import Boundary, Method, Quality
from gridaware.settlement.counter import PowerSample
from gridaware.settlement.energy import device_energy


def _power(power, watts):
    return power.reading("g", watts, 700.0, Boundary.GPU, Method.INSTANT)


@pytest.mark.parametrize("watts", [0.0, -1.0, 1050.0, math.nan, math.inf])
def test_case_32_what_is_no_power_is_replaced_by_the_last_good_value(clock, watts):
    power = LastGood(clock)
    with pytest.raises(DeviceError):
        _power(power, watts)
    assert power.watts("g") == 0.0
    good = _power(power, 1049.0)
    clock.advance(3.0)
    held = _power(power, watts)
    assert (held.watts, held.quality, held.at) == (1049.0, Quality.HELD, good.at)


@pytest.mark.parametrize("joules", [-1.0, math.nan, math.inf])
def test_case_32_what_is_no_energy_is_refused(clock, joules):
    with pytest.raises(DeviceError) as refused:
        Counters(clock).reading("g", joules, "e", Boundary.GPU, watts=300.0)
    assert refused.value.code == "energy-absurd"


def test_case_3_each_decrease_is_an_epoch_of_its_own(clock):
    counters = Counters(clock)
    epochs = []
    for joules in (10.0, 20.0, 5.0, 6.0, 1.0):
        clock.advance(1.0)
        epochs.append(counters.reading("g", joules, "e", Boundary.GPU, watts=300.0).epoch)
    assert epochs == ["e", "e", "e@1003.000", "e@1003.000", "e@1005.000"]


def _froze(clock, drawn=300.0):
    """A counter that stood still for 12 s under 300 W, and what it has shown since."""
    counters = Counters(clock)
    shown = [1000.0]

    def after(seconds, joules, watts=drawn):
        clock.advance(seconds)
        shown[0] += joules
        try:
            return counters.reading("g", shown[0], "e", Boundary.GPU, watts=watts).epoch
        except DeviceError as error:
            return error.code

    assert after(0.0, 0.0) == "e"
    assert [after(4.0, 0.0) for _ in range(3)] == ["e", "energy-frozen", "energy-frozen"]
    return after


def test_case_34_a_counter_that_froze_is_believed_again_after_30_s_in_which_it_agrees(clock):
    after = _froze(clock)
    assert after(1.0, 300.0) == "energy-frozen"  # it moves: the trial begins
    trial = [after(1.0, 295.0) for _ in range(30)]
    assert set(trial[:29]) == {"energy-frozen"}
    assert trial[29].startswith("e@"), "in an epoch of its own: what it missed is not in it"
    assert after(1.0, 295.0) == trial[29]


@pytest.mark.parametrize("share", [0.85, 1.15])
def test_case_34_a_counter_that_moves_and_disagrees_by_15_percent_stays_out(clock, share):
    after = _froze(clock)
    assert {after(1.0, 300.0 * share) for _ in range(120)} == {"energy-frozen"}


def test_case_34_each_new_stand_still_begins_the_trial_anew(clock):
    after = _froze(clock)
    assert {after(1.0, 300.0) for _ in range(20)} == {"energy-frozen"}
    assert {after(1.0, 0.0) for _ in range(7)} == {"energy-frozen"}
    assert {after(1.0, 300.0) for _ in range(30)} == {"energy-frozen"}
    assert after(1.0, 300.0).startswith("e@")


def test_case_34_nothing_is_proved_while_nobody_knows_the_power(clock):
    after = _froze(clock)
    assert {after(1.0, 300.0) for _ in range(20)} == {"energy-frozen"}
    assert after(1.0, 300.0, watts=0.0) == "energy-frozen"
    assert {after(1.0, 300.0) for _ in range(30)} == {"energy-frozen"}
    assert after(11.0, 3300.0) == "energy-frozen", "too far apart to integrate"
    assert {after(1.0, 300.0) for _ in range(29)} == {"energy-frozen"}
    assert after(1.0, 300.0).startswith("e@")


def test_case_34_what_a_counter_missed_is_booked_from_power_and_not_lost(clock):
    """12 s of 300 W that never reached the counter, 30 s of trial and 60 s after it."""
    after = _froze(clock)
    samples = [PowerSample(at, 300.0, 1000.0, "e", 700.0) for at in (0.0, 4.0)]
    samples += [PowerSample(at, 300.0, None, "e", 700.0) for at in (8.0, 12.0)]
    shown = 1000.0
    for second in range(91):
        shown += 300.0
        good = not after(1.0, 300.0).startswith("energy")
        counter = shown if good else None
        samples.append(PowerSample(13.0 + second, 300.0, counter, "e", 700.0))
    energy = device_energy(samples, 0.0, 103.0)
    assert energy.joules == pytest.approx(300.0 * 103.0, rel=1e-9)


def test_a_device_that_shows_no_power_draws_none_as_far_as_its_counter_goes(clock):
    power = LastGood(clock)
    _power(power, 95.0)
    assert power.watts("g") == 95.0
    _power(power, 0.0)
    assert power.watts("g") == 0.0


def test_counters_of_two_gpus_know_nothing_of_each_other(clock):
    counters = Counters(clock)
    counters.reading("a", 100.0, "e", Boundary.GPU, watts=300.0)
    assert counters.reading("b", 1.0, "e", Boundary.GPU, watts=300.0).epoch == "e"
