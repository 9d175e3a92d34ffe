"""Targets from events: precedence, the strictest between programmes, ramps and no rebound."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.domain.event import Clocks, EventState, GridEvent, Reference
from gridaware.domain.moment import Moment
from gridaware.domain.programme import Programme
from gridaware.domain.signal import EventRequest, Quantity, TargetSpec
from gridaware.domain.target import HardLimit, Ramp
from gridaware.planning.targets import (
    Descent,
    Release,
    binding_events,
    is_rising,
    power_target,
    ramp_down_seconds,
)

T0 = datetime(2026, 8, 3, 14, 0, tzinfo=UTC)
NOW = Moment(1000.0, T0 + timedelta(minutes=5))


def event(event_id, watts, **changes):
    priority = changes.pop("priority", None)
    start = changes.pop("start", T0)
    end = changes.pop("end", T0 + timedelta(hours=1))
    made = GridEvent(
        event_id=event_id,
        feed_id="feed",
        programme_id="programme",
        source_id=event_id,
        revision=0,
        request=EventRequest(
            start, end, TargetSpec(Quantity.LIMIT_WATTS, watts), priority=priority
        ),
        state=EventState.HOLDING,
        reason="",
        received_at=T0,
        state_since=T0,
        clocks=Clocks(0.0),
        limit_watts=watts,
    )
    return replace(made, **changes)


def bound(*events, now=NOW):
    return [e.event_id for e in binding_events(events, now)]


def test_within_a_programme_the_lowest_priority_number_holds_and_none_comes_last():
    assert bound(event("deep", 1.0), event("first", 9.0, priority=0)) == ["first"]
    assert bound(event("two", 1.0, priority=2), event("one", 9.0, priority=1)) == ["one"]


def test_of_two_with_the_same_priority_the_stricter_holds():
    assert bound(event("strict", 1.0), event("later", 9.0, revision=3)) == ["strict"]
    assert bound(event("b", 2.0, priority=1), event("a", 9.0, priority=1)) == ["b"]


def test_between_programmes_the_strictest_binds():
    events = (event("mild", 9.0), event("strict", 5.0, programme_id="other"))
    assert bound(*events) == ["strict", "mild"]
    assert power_target(NOW, events, {}).limit_watts == 5.0


@pytest.mark.parametrize(
    "changes",
    [
        {"state": EventState.ANNOUNCED},
        {"state": EventState.RAMPING_UP},
        {"state": EventState.OPTED_OUT},
        {"limit_watts": None},
        {"start": T0 + timedelta(minutes=6)},
        {"end": T0 + timedelta(minutes=5)},  # half open: over at its very end
    ],
)
def test_events_that_do_not_hold_now_bind_nothing(changes):
    assert bound(event("event", 5.0, **changes)) == []
    assert power_target(NOW, [event("event", 5.0, **changes)], {}).limit_watts is None


def test_an_event_without_an_end_holds():
    assert bound(event("open", 5.0, end=None), now=NOW.after(1e6)) == ["open"]


def test_the_aim_carries_the_terms_of_what_binds():
    reference = Reference(100e3, "meter_before_after", T0, 60.0)
    programme = Programme("programme", settlement_interval_seconds=300.0, paid_band=(1.0, 1.2))
    target = power_target(
        NOW,
        [event("event", 75e3, reference=reference)],
        {"programme": programme},
        hard_limit=HardLimit(80e3),
    )
    assert target.aim.settlement_interval_seconds == 300.0
    assert target.aim.paid_band == (1.0, 1.2)
    assert target.aim.reference_watts == 100e3
    assert target.aim.event_ids == ("event",)
    assert target.limit_watts == 75e3
    assert not is_rising(target)


def test_without_a_ramp_the_full_response_is_asked_at_once():
    target = power_target(NOW, [event("event", 75e3)], {}, descent=Descent(1000.0, 100e3))
    assert target.limit_watts == 75e3
    assert ramp_down_seconds(100e3, 75e3, Ramp()) == 0.0


def test_on_the_way_down_the_target_is_a_straight_line_of_the_ramps_slope():
    # 25 kW at 10 kW a minute take two and a half minutes.
    ramp = Ramp(down_watts_per_minute=10e3)
    descent = Descent(1000.0, 100e3)

    def limit(seconds):
        now = NOW.after(seconds)
        events = [event("event", 75e3)]
        return power_target(now, events, {}, ramp=ramp, descent=descent).limit_watts

    assert [limit(s) for s in (0, 60, 120, 150, 600)] == [100e3, 90e3, 80e3, 75e3, 75e3]
    assert ramp_down_seconds(100e3, 75e3, ramp) == 150.0


def test_what_is_owed_is_told_beside_the_ramp_that_holds_it_up():
    ramp, descent = Ramp(down_watts_per_minute=10e3), Descent(1000.0, 100e3)
    target = power_target(NOW.after(60), [event("event", 75e3)], {}, ramp=ramp, descent=descent)
    assert (target.aim.watts, target.aim.owed_watts) == (90e3, 75e3)


def test_fast_reserve_is_exempt_from_the_ramp_by_configuration_alone():
    ramp, descent = Ramp(down_watts_per_minute=10e3), Descent(1000.0, 100e3)

    def limit(programme, *events):
        now = NOW.after(60)
        known = {"programme": programme, "other": Programme("other")}
        return power_target(now, events, known, ramp=ramp, descent=descent).limit_watts

    assert limit(Programme("programme", deadline_seconds=0.5), event("event", 75e3)) == 90e3
    exempt = Programme("programme", deadline_seconds=0.5, ramp_exempt=True)
    assert limit(exempt, event("event", 75e3)) == 75e3
    # A deeper event of another programme is not freed by it: it comes by the ramp, no sooner.
    deeper = event("deeper", 60e3, programme_id="other")
    assert limit(exempt, event("event", 75e3), deeper) == 75e3
    assert limit(exempt, event("event", 95e3), deeper) == 90e3


def test_the_hard_limit_is_never_ramped():
    target = power_target(
        NOW,
        [event("event", 75e3)],
        {},
        hard_limit=HardLimit(90e3, margin=0.0),
        ramp=Ramp(down_watts_per_minute=1e3),
        descent=Descent(1000.0, 100e3),
    )
    assert target.limit_watts == 90e3


def test_on_the_way_up_the_level_follows_the_ramp_to_the_pre_event_level_and_no_further():
    release = Release(1000.0, 70e3, ceiling_watts=95e3)
    ramp = Ramp(up_watts_per_minute=10e3)

    def target(seconds):
        return power_target(NOW.after(seconds), [], {}, ramp=ramp, release=release)

    assert [target(s).limit_watts for s in (0, 60, 150, 3600)] == [70e3, 80e3, 95e3, 95e3]
    assert is_rising(target(60))
    # Once the last slot has ended there is no release any more, and the site is free.
    assert power_target(NOW.after(3600), [], {}, ramp=ramp).limit_watts is None


def test_without_an_up_ramp_the_ceiling_still_holds():
    release = Release(1000.0, 70e3, ceiling_watts=95e3)
    assert power_target(NOW, [], {}, release=release).limit_watts == 95e3
    release = replace(release, ceiling_watts=None)
    assert power_target(NOW, [], {}, release=release).limit_watts is None


def test_when_one_of_two_events_ends_the_way_up_to_the_other_is_ramped_too():
    release = Release(1000.0, 60e3, ceiling_watts=100e3)
    ramp = Ramp(up_watts_per_minute=10e3)
    events = [event("mild", 80e3)]
    first = power_target(NOW.after(60), events, {}, ramp=ramp, release=release)
    assert first.limit_watts == 70e3
    assert first.aim.event_ids == ("mild",)
    later = power_target(NOW.after(300), events, {}, ramp=ramp, release=release)
    assert later.limit_watts == 80e3


@settings(max_examples=100, deadline=None)
@given(
    start=st.floats(1e3, 1e6),
    held=st.floats(0, 1e6),
    ceiling=st.floats(1e3, 1e6),
    up=st.floats(1, 1e5),
    step=st.floats(0.1, 120),
)
def test_no_step_of_the_way_up_is_steeper_than_the_ramp_or_above_the_ceiling(
    start, held, ceiling, up, step
):
    release = Release(start, held, ceiling)
    ramp = Ramp(up_watts_per_minute=up)
    levels = [
        power_target(Moment(start + i * step, T0), [], {}, ramp=ramp, release=release).limit_watts
        for i in range(20)
    ]
    assert max(levels) <= ceiling
    for before, after in itertools.pairwise(levels):
        assert 0 <= after - before <= up * step / 60 + 1e-6 * ceiling
