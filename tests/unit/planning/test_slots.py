"""Restore slots: the sum of all raises never outruns the ramp."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.domain.lease import RestoreSlot
from gridaware.planning.slots import restore_slots


def test_without_a_ramp_everybody_restores_at_once():
    assert restore_slots({"a": 100.0, "b": 5.0}, None) == {"a": RestoreSlot(), "b": RestoreSlot()}


def test_slots_follow_one_another_by_node_and_by_size():
    slots = restore_slots({"b": 1900.0, "a": 950.0}, 1000.0)
    assert slots["a"] == RestoreSlot(0.0, 60.0)
    assert slots["b"] == RestoreSlot(60.0, 120.0)


def test_overhead_that_grows_with_the_gpus_makes_slots_longer():
    assert restore_slots({"a": 950.0}, 1000.0, slope=1.5)["a"].duration_seconds == 90.0


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0, 6000), min_size=1, max_size=40),
    st.floats(100, 1e6),
    st.floats(1, 1.5),
)
def test_meter_watts_given_back_in_any_minute_stay_within_the_ramp(raised, ramp, slope):
    slots = restore_slots(raised, ramp, slope)

    def given_back(until):
        total = 0.0
        for node_id, slot in slots.items():
            share = 1.0 if until >= slot.delay_seconds + slot.duration_seconds else 0.0
            if not share and slot.duration_seconds:
                share = min(max((until - slot.delay_seconds) / slot.duration_seconds, 0.0), 1.0)
            total += share * raised[node_id] * slope
        return total

    end = max(slot.delay_seconds + slot.duration_seconds for slot in slots.values())
    assert given_back(end) == pytest.approx(slope * sum(raised.values()))
    starts = {0.0, *(slot.delay_seconds for slot in slots.values())}
    for start in starts:
        assert given_back(start + 60.0) - given_back(start) <= ramp * (1 + 1e-9) + 1e-6
