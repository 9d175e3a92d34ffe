"""Power that does not obey its limit is told: a cap that reads back may still hold nothing."""

import pytest

from gridaware.node.actions import LimitReading
from gridaware.node.capwatch import CapWatch
from gridaware.node.childwire import GpuTick, Tick


@pytest.fixture
def watch():
    return CapWatch(lambda _gpu_id: 0.0)


def tick(at, watts, enforced=None, *, fresh=True):
    limits = None if enforced is None else LimitReading("g", 0, enforced, enforced)
    return Tick(at, (GpuTick("g", fresh, watts, None, limits, None, None, 0.0),))


def codes(watch, *ticks):
    return [fault.code for t in ticks for fault in watch.look(t)]


def test_case_35_a_cap_that_disabled_itself_is_told_after_two_seconds(watch):
    # LACT#207: 420 W from a card of 293 W.
    assert codes(watch, tick(0.0, 280.0, 293.0), tick(1.0, 420.0), tick(3.0, 420.0)) == []
    (fault,) = watch.look(tick(3.1, 420.0))
    assert (fault.code, fault.gpu_id) == ("limit-ignored", "g")
    assert "420 W under a limit of 293 W" in fault.message


def test_case_26_it_is_told_once_and_so_is_that_it_is_over(watch):
    above = [tick(at, 420.0, 293.0) for at in range(10)]
    assert codes(watch, *above) == ["limit-ignored"]
    obeys = tick(10.0, 290.0, 293.0)
    again = [tick(11.0 + at, 420.0, 293.0) for at in range(4)]
    assert codes(watch, obeys, *again) == ["limit-obeyed", "limit-ignored"]


def test_ten_percent_is_what_a_sensor_may_be_off(watch):
    assert codes(watch, *[tick(at, 322.0, 293.0) for at in range(20)]) == []


def test_a_new_limit_has_its_time_to_be_obeyed(watch):
    falling = [tick(0.0, 700.0, 700.0), tick(1.0, 700.0, 300.0), tick(2.9, 400.0, 300.0)]
    assert codes(watch, *falling, tick(3.0, 300.0, 300.0)) == []


def test_a_slow_device_has_its_own_time():
    watch = CapWatch(lambda _gpu_id: 40.0)
    assert codes(watch, *[tick(at, 700.0, 300.0) for at in range(42)]) == []
    assert codes(watch, tick(42.1, 700.0, 300.0)) == ["limit-ignored"]


def test_what_was_not_read_says_nothing(watch):
    assert codes(watch, tick(0.0, 700.0)) == []
    stale = [tick(at, 700.0, 300.0, fresh=False) for at in range(10)]
    assert codes(watch, *stale) == []
    assert codes(watch, *[tick(10.0 + at, None, 300.0) for at in range(5)]) == []
    assert codes(watch, *[tick(20.0 + at, float("nan"), 300.0) for at in range(5)]) == []
