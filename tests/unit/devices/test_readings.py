"""What every driver does with its numbers."""

import math

import pytest

from gridaware.devices.readings import Counters, LastGood
from gridaware.domain.errors import DeviceError
from gridaware.domain.reading import Boundary, Method, Quality


def _power(power, watts):
    return power.reading("g", watts, 700.0, Boundary.GPU, Method.INSTANT)


@pytest.mark.parametrize("watts", [0.0, -1.0, 1050.0, math.nan, math.inf])
def test_case_32_what_is_no_power_is_replaced_by_the_last_good_value(clock, watts):
    power = LastGood(clock)
    with pytest.raises(DeviceError):
        _power(power, watts)
    assert not power.drawing("g")
    good = _power(power, 1049.0)
    clock.advance(3.0)
    held = _power(power, watts)
    assert (held.watts, held.quality, held.at) == (1049.0, Quality.HELD, good.at)


@pytest.mark.parametrize("joules", [-1.0, math.nan, math.inf])
def test_case_32_what_is_no_energy_is_refused(clock, joules):
    with pytest.raises(DeviceError) as refused:
        Counters(clock).reading("g", joules, "e", Boundary.GPU, drawing=True)
    assert refused.value.code == "energy-absurd"


def test_case_3_each_decrease_is_an_epoch_of_its_own(clock):
    counters = Counters(clock)
    epochs = []
    for joules in (10.0, 20.0, 5.0, 6.0, 1.0):
        clock.advance(1.0)
        epochs.append(counters.reading("g", joules, "e", Boundary.GPU, drawing=True).epoch)
    assert epochs == ["e", "e", "e@1003.000", "e@1003.000", "e@1005.000"]


def test_a_device_that_shows_no_power_draws_none_as_far_as_its_counter_goes(clock):
    power = LastGood(clock)
    _power(power, 95.0)
    assert power.drawing("g")
    _power(power, 0.0)
    assert not power.drawing("g")


def test_counters_of_two_gpus_know_nothing_of_each_other(clock):
    counters = Counters(clock)
    counters.reading("a", 100.0, "e", Boundary.GPU, drawing=True)
    assert counters.reading("b", 1.0, "e", Boundary.GPU, drawing=True).epoch == "e"
