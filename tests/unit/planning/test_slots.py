"""Restore slots: what all agents give back in any second never outruns the ramp."""

from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gridaware.domain.lease import RestoreSlot
from gridaware.node.slot import next_step, progress
from gridaware.planning.slots import restore_slots


def test_without_a_ramp_everybody_restores_at_once():
    assert restore_slots({"a": 100.0, "b": 5.0}, None) == {"a": RestoreSlot(), "b": RestoreSlot()}


def test_large_nodes_follow_one_another_a_second_apart():
    slots = restore_slots({"b": 1900.0, "a": 950.0}, 1000.0)
    assert slots["a"] == RestoreSlot(0.0, 60.0)
    assert slots["b"] == RestoreSlot(61.0, 120.0)


def test_small_nodes_rise_together():
    """Each 0.3 s of the ramp: 34 of them make the first group of ten seconds."""
    slots = restore_slots({f"{n:03}": 95.0 for n in range(40)}, 20_000.0)
    assert {slots[f"{n:03}"] for n in range(34)} == {RestoreSlot(0.0, 11.0)}
    assert {slots[f"{n:03}"] for n in range(34, 40)} == {RestoreSlot(12.0, 2.0)}


def test_a_thousand_nodes_come_back_nearly_as_fast_as_the_ramp_allows():
    raised = {f"{n:04}": 2000.0 for n in range(1000)}
    slots = restore_slots(raised, 1e6)
    least = sum(raised.values()) / 1e6 * 60.0
    assert least <= max(s.delay_seconds + s.duration_seconds for s in slots.values()) < 1.3 * least


def test_overhead_that_grows_with_the_gpus_makes_slots_longer():
    assert restore_slots({"a": 950.0}, 1000.0, slope=1.5)["a"].duration_seconds == 90.0


def steps(slot: RestoreSlot, watts: float, late: float) -> list[tuple[float, float]]:
    """(when, by how much) an agent that begins so late raises its limits."""
    found, at, share = [], 0.0, 0.0
    while share < 1.0:
        at = next_step(slot, at) if found or slot.duration_seconds else slot.delay_seconds
        before, share = share, progress(slot, at)
        found.append((at + late, (share - before) * watts))
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3),
        st.tuples(st.floats(0, 6000), st.floats(0, 0.999)),
        min_size=1,
        max_size=40,
    ),
    st.floats(2e3, 1e6),
    st.floats(1, 1.5),
)
@example({"a": (300.0, 0.0), "b": (300.0, 0.0)}, 24_000.0, 1.13)
def test_in_no_second_more_comes_back_than_the_ramp_allows(nodes, ramp, slope):
    """Agents begin to count within a second of one another, each when it likes."""
    slots = restore_slots({n: watts for n, (watts, _) in nodes.items()}, ramp, slope)
    rises = sorted(
        step for n, (watts, late) in nodes.items() for step in steps(slots[n], watts * slope, late)
    )
    assert sum(w for _, w in rises) == pytest.approx(slope * sum(w for w, _ in nodes.values()))
    most, first, total = -inf, 0, 0.0
    for at, watts in rises:
        total += watts
        while rises[first][0] <= at - 1.0 + 1e-6:  # a second later is another second
            total -= rises[first][1]
            first += 1
        most = max(most, total)
    assert most <= ramp / 60.0 * (1 + 1e-6)
