"""The clock of the loop: a step of the wall clock is held back until it may be followed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gridaware.clock import ManualClock
from gridaware.control.loop import SteadyClock
from gridaware.domain.eventjson import event_from_mapping
from gridaware.domain.moment import Moment

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def clock():
    return ManualClock(NOON)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_step_is_held_back_until_it_is_followed(clock, step):
    steady = SteadyClock(clock)
    clock.advance(5)
    clock.step_wall(step.total_seconds())
    clock.advance(5)
    assert steady.now().wall == NOON + timedelta(seconds=10)
    assert steady.stepped() == step
    assert steady.follow() == step
    assert steady.now().wall == NOON + timedelta(seconds=10) + step


def test_small_corrections_are_followed_however_many_come(clock):
    steady = SteadyClock(clock)
    for _ in range(100):
        clock.advance(60)
        clock.step_wall(0.5)
        assert steady.now().wall == clock.wall()


def test_a_clock_that_is_set_back_again_is_as_if_nothing_had_been(clock):
    steady = SteadyClock(clock)
    clock.step_wall(3600)
    clock.advance(10)
    assert steady.stepped() == HOUR
    clock.step_wall(-3600)
    assert not steady.stepped()
    assert steady.now().wall == clock.wall()


def signal(wall, **more):
    request = {"id": "e1", "start": "now", "duration": "PT1H", "target": {"reduce_percent": 10}}
    return event_from_mapping(
        request | more, feed_id="grid", received_at=wall, received_seconds=0.0
    )


def test_now_means_now_also_while_a_step_is_held_back(clock):
    steady = SteadyClock(clock)
    clock.step_wall(3600)
    heard = steady.on_held_time(signal(clock.wall()))
    assert (heard.received_at, heard.request.start) == (NOON, NOON)
    assert heard.request.end == NOON + HOUR
    # What a person sends was stamped by the held clock.
    stamped = signal(NOON)
    assert steady.on_held_time(stamped) == stamped


def test_an_instant_that_the_grid_names_is_left_as_it_is(clock):
    steady = SteadyClock(clock)
    clock.step_wall(3600)
    at = "2026-11-30T18:00:00Z"
    sent = signal(clock.wall(), start=at)
    assert steady.on_held_time(sent) == replace(sent, received_at=NOON)


def test_seconds_go_on_after_the_machine_was_started_again():
    last = Moment(5000.0, NOON)
    clock = ManualClock(NOON + timedelta(seconds=90), boot_seconds=30.0)
    assert SteadyClock(clock, last).now().seconds == pytest.approx(5090.0)
