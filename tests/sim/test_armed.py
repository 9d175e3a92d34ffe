"""Armed responses in the seeded world: fired by control, by the nodes, and with control gone."""

from dataclasses import replace

import pytest

from gridaware.domain.event import EventState
from gridaware.domain.programme import FeedSpec, Programme, SignalLoss

FAST = Programme(
    "p",
    deadline_seconds=10.0,
    settlement_interval_seconds=15.0,
    signal_loss=SignalLoss(hold_seconds=20.0),
    max_duration_seconds=40.0,
)


def decisions(world, name: str) -> list[dict]:
    return [b["value"] for k, b in world.ledger.entries if k == "decision" and b["type"] == name]


def true_watts(world) -> float:
    return world.window.header.true_site_watts


def test_an_event_is_served_by_triggers_alone_and_within_tenths_of_a_second(make_world, ask):
    world = make_world()
    before = true_watts(world)
    world.signal("f", "e", ask(world, 0.25))
    assert {t["trigger"]["level"] for t in decisions(world, "SendTrigger")} == {2}
    assert not decisions(world, "SendLease")[2:]  # the two hellos
    world.run(0.9)
    assert true_watts(world) < 0.75 * before
    world.run(100.0)
    assert world.control.machine.state.events["f.e"].event.state is EventState.SETTLED
    assert all(slot.requested_watts == slot.default_watts for slot in world.gpus())


def test_nodes_that_fire_by_themselves_become_one_event_with_a_result(make_world):
    world = make_world(programmes=(FAST,))
    before = true_watts(world)
    for node in world.nodes.values():
        node.fire("p", 1)
    world.run(1.0)
    assert true_watts(world) < 0.8 * before
    (track,) = world.control.machine.state.events.values()
    assert track.event.programme_id == "p"
    assert track.event.state.acting
    world.run(20.0)
    for node in world.nodes.values():
        node.fire("p", None)
    world.run(60.0)
    assert track.event.state in {EventState.RESTORED, EventState.SETTLED}
    assert (track.event.event_id, True) in world.settled
    assert all(slot.requested_watts == slot.default_watts for slot in world.gpus())


def test_nodes_fire_and_return_without_control_and_it_learns_of_it_later(make_world):
    world = make_world(programmes=(FAST,))
    before = true_watts(world)
    world.kill_control(15.0)
    world.run(5.0)
    for node in world.nodes.values():
        node.fire("p", 1)
    world.run(2.0)
    assert true_watts(world) < 0.8 * before
    world.run(15.0)  # control is back in the middle of it
    (track,) = world.control.machine.state.events.values()
    assert track.event.state.acting
    assert track.event.reference is not None
    assert track.event.reference.watts == pytest.approx(before, rel=0.02)
    world.run(80.0)
    assert track.event.state is EventState.SETTLED
    assert all(slot.requested_watts == slot.default_watts for slot in world.gpus())


def test_an_accepted_event_that_begins_while_control_is_down_is_served_and_ends(make_world, ask):
    slow = replace(FAST, programme_id="slow", deadline_seconds=600.0)
    world = make_world(programmes=(slow,), feeds=(FeedSpec("f", "webhook", "slow"),))
    before = true_watts(world)
    world.signal("f", "e", ask(world, 0.2, start=30.0, seconds=40.0))
    world.run(5.0)
    world.kill_control(1e9)
    world.run(24.0)
    assert true_watts(world) > 0.9 * before
    world.run(5.0)
    assert true_watts(world) < 0.8 * before
    world.run(30.0)
    assert true_watts(world) < 0.8 * before
    world.run(60.0)
    assert all(slot.requested_watts == slot.default_watts for slot in world.gpus())
