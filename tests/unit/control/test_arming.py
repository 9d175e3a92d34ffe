"""What is armed ahead of time, what fires it, and what the machine then knows."""

from dataclasses import replace

import pytest

from gridaware.control import arming
from gridaware.control.codec import encode, to_builtins
from gridaware.control.instructions import (
    Alarm,
    Decide,
    SampleAt,
    SendArms,
    SendLease,
    SendTrigger,
)
from gridaware.control.machine import Machine
from gridaware.control.replay import Replayed, replay
from gridaware.domain.event import EventState
from gridaware.domain.job import Tier
from gridaware.domain.programme import FeedSpec, Programme, SignalLoss
from gridaware.domain.target import HardLimit, Ramp
from gridaware.domain.wire import (
    Acknowledged,
    ArmedAcknowledged,
    Fired,
    GpuResult,
    NodeFault,
)

FAST = Programme("p", deadline_seconds=10.0, signal_loss=SignalLoss(120.0))
SLOW = Programme("slow", deadline_seconds=600.0)


@pytest.fixture
def make_site(make_bench):
    """A site with one job on four GPUs of 400 W, its agents holding what they are given."""

    def make(**site):
        feeds = (FeedSpec("f", "webhook", "p"), FeedSpec("s", "webhook", "slow"))
        site = {"programmes": (FAST, SLOW), "feeds": feeds} | site
        bench = make_bench(**site)
        bench.start_job(tier=Tier.PREEMPTIBLE)
        bench.ticks(5)
        hold_ready(bench)
        return bench

    return make


def hold_ready(bench) -> None:
    """Every node acknowledges what it was sent last."""
    for node_id, node in bench.state.nodes.items():
        if node.arms.revision:
            bench.post(ArmedAcknowledged(node_id, 1, node.arms.revision))


def levels_of(bench, node_id: str = "n1"):
    return {r.level: r for r in bench.state.nodes[node_id].arms.responses}


def acknowledge(bench, node_id: str) -> None:
    node = bench.state.nodes[node_id]
    results = tuple(GpuResult(g, w, w) for g, w in node.limits_watts.items())
    at = bench.now().wall
    bench.post(Acknowledged(node_id, 1, node.sequence, node.decision_id, results, True, at))


def fired_by(bench, node_id: str, level: int | None, depth: float, age: float = 0.0) -> Fired:
    at = bench.now().wall
    return Fired(node_id, "p", level, depth, "frequency-p-1", "frequency", 49.6, at, age, 60.0)


def test_every_depth_of_a_programme_under_a_minute_is_armed_and_no_slow_one(
    make_site,
) -> None:
    bench = make_site()
    armed = levels_of(bench)
    assert [r.depth for r in armed.values()] == [0.1, 0.2, 0.3, 0.4]
    assert {r.programme_id for r in armed.values()} == {"p"}
    # 4 busy GPUs at 380 W and 4 idle ones at 60 W: the deeper, the lower every cap.
    caps = [dict(r.lease.limits_watts)["g10"] for r in armed.values()]
    assert caps == sorted(caps, reverse=True)
    reference = 4 * 380.0 + 4 * 60.0
    for level, depth in enumerate((0.1, 0.2, 0.3, 0.4)):
        plan = bench.state.armoury.levels[level]
        assert plan.limit_watts == pytest.approx((1 - depth) * reference, rel=0.01)
        assert plan.expected_watts <= plan.limit_watts
        assert armed[level].lease.signal_loss == SignalLoss(120.0)


def test_an_event_that_begins_now_is_answered_by_one_trigger_of_the_shallowest_level_that_is_enough(
    make_site,
) -> None:
    bench = make_site()
    made = bench.post(bench.signal(depth=0.25))
    (trigger,) = [i.trigger for i in bench.of(SendTrigger, made)]  # node 2 has nothing to give
    assert not bench.of(SendLease, made)
    assert (trigger.programme_id, trigger.level, trigger.event_id) == ("p", 2, "f.e")
    assert trigger.duration_seconds == pytest.approx(60.0)
    assert trigger.revision == bench.state.nodes["n1"].arms.revision
    (decision,) = bench.of(Decide, made)
    assert decision.decision_id == trigger.decision_id
    assert [a[1] for a in decision.actions] == ["SET_CAP"]
    assert bench.of(SampleAt, made) == [SampleAt(10.0)]


def test_after_a_trigger_the_state_is_what_a_lease_would_have_left(make_site) -> None:
    bench = make_site()
    armed = levels_of(bench)[2].lease
    bench.post(bench.signal(depth=0.25))
    node = bench.state.nodes["n1"]
    assert node.limits_watts == dict(armed.limits_watts)
    assert node.lease.event_ids == ("f.e",)
    assert node.lease.lease_id == node.decision_id
    assert node.lease_ends_seconds == pytest.approx(bench.seconds + 60.0)
    job = bench.state.jobs["j"].job
    assert job.state.value == "capped"
    assert job.cap_watts == pytest.approx(dict(armed.limits_watts)["g10"], abs=0.1)
    track = bench.state.events["f.e"]
    assert track.event.state is EventState.RAMPING_DOWN
    acknowledge(bench, "n1")
    bench.tick(0.1)
    assert track.awaiting == {}


def test_a_level_deeper_than_owed_is_corrected_upwards_by_the_next_plans(make_site) -> None:
    bench = make_site()
    bench.post(bench.signal(depth=0.21, seconds=120.0))
    fired = bench.state.nodes["n1"].limits_watts["g10"]
    for _ in range(8):
        bench.tick()
    assert bench.state.nodes["n1"].limits_watts["g10"] > fired + 5.0


def test_what_is_owed_beyond_the_deepest_level_is_fired_and_planned_in_the_same_turn(
    make_site,
) -> None:
    bench = make_site()
    made = bench.post(bench.signal(depth=0.55))
    assert [i.trigger.level for i in bench.of(SendTrigger, made)] == [3]
    lease = bench.of(SendLease, made)[-1]
    track = bench.state.events["f.e"]
    assert track.decision_id == lease.decision_id
    assert track.awaiting == {"n1": lease.sequence}
    assert made.index(bench.of(SendTrigger, made)[0]) < made.index(lease)


def test_nothing_is_fired_before_every_node_holds_the_present_plans(make_site) -> None:
    bench = make_site()
    bench.state.nodes["n2"].arms.acked -= 1
    made = bench.post(bench.signal(depth=0.25))
    assert not bench.of(SendTrigger, made)
    assert bench.of(SendLease, made)


def test_nothing_is_fired_over_another_event(make_site) -> None:
    bench = make_site()
    bench.post(bench.signal("e1", depth=0.15))
    bench.ticks(3)
    made = bench.post(bench.signal("e2", depth=0.3))
    assert not bench.of(SendTrigger, made)
    assert bench.of(SendLease, made)


def test_an_event_that_begins_at_its_hour_is_fired_by_the_tick(make_site) -> None:
    bench = make_site()
    bench.post(bench.signal(depth=0.2, start=30.0))
    bench.ticks(10)
    hold_ready(bench)
    made = []
    for _ in range(25):
        made += bench.tick()
    assert [i.trigger.event_id for i in bench.of(SendTrigger, made)] == ["f.e"]


def test_an_accepted_event_is_armed_with_its_start_so_that_agents_can_begin_it_alone(
    make_site,
) -> None:
    bench = make_site()
    bench.post(bench.signal("later", depth=0.2, start=300.0, seconds=90.0, feed="s"))
    bench.ticks(3)
    (scheduled,) = bench.state.nodes["n1"].arms.scheduled
    assert scheduled.starts_in_seconds == pytest.approx(299.0, abs=2.5)
    assert scheduled.lease.event_ids == ("s.later",)
    assert scheduled.lease.duration_seconds == pytest.approx(90.0)
    assert scheduled.lease.limits_watts
    assert bench.state.nodes["n2"].arms.scheduled == ()  # it has nothing to give
    bench.post(bench.signal("later", revision=2, depth=None, feed="s"))
    bench.ticks(3)
    assert bench.state.nodes["n1"].arms.scheduled == ()


def test_arms_are_sent_again_when_jobs_change_and_not_while_nothing_does(make_site) -> None:
    bench = make_site()
    bench.made.clear()
    bench.ticks(30)
    assert not bench.of(SendArms)
    bench.leave("j")
    bench.ticks(3)
    assert "n1" in {i.node_id for i in bench.of(SendArms)}
    assert all(not r.lease.limits_watts for r in levels_of(bench).values())


def test_arms_are_given_anew_half_way_through_their_lease(make_site) -> None:
    bench = make_site()
    nodes = bench.state.nodes
    due = {node_id: node.arms.sent_seconds + 450.0 for node_id, node in nodes.items()}
    again = {}
    while len(again) < len(due) and bench.seconds < max(due.values()) + 5.0:
        for instruction in bench.of(SendArms, bench.tick()):
            assert instruction.seconds == 900.0
            again.setdefault(instruction.node_id, bench.seconds)
    assert again == pytest.approx(due, abs=1.0)


def test_a_large_site_is_planned_for_and_given_its_arms_over_several_ticks(
    make_site, monkeypatch
) -> None:
    monkeypatch.setattr(arming, "JOBS_A_TICK", 1)
    monkeypatch.setattr(arming, "NODES_A_TICK", 1)
    bench = make_site()
    bench.leave("j")
    ticks = [{i.node_id for i in bench.of(SendArms, bench.tick())} for _ in range(7)]
    # A level a tick, and with the last of the four the first node; the other has nothing new.
    assert ticks == [set(), set(), set(), {"n1"}, set(), set(), set()]
    assert all(not r.lease.limits_watts for r in levels_of(bench).values())


def test_a_site_whose_ramp_binds_on_the_way_down_arms_only_what_is_exempt(make_site) -> None:
    bench = make_site(ramp=Ramp(down_watts_per_minute=1000.0))
    assert not bench.of(SendArms)
    exempt = replace(FAST, ramp_exempt=True)
    bench = make_site(ramp=Ramp(down_watts_per_minute=1000.0), programmes=(exempt,))
    assert bench.of(SendArms)


def test_a_connection_limit_stands_beside_what_is_fired(make_site) -> None:
    bench = make_site(hard_limit=HardLimit(1600.0))
    bench.ticks(20)
    hold_ready(bench)
    standing = dict(bench.state.nodes["n1"].standing_watts)
    assert standing
    made = bench.post(bench.signal(depth=0.25))
    assert bench.of(SendTrigger, made)
    node = bench.state.nodes["n1"]
    assert dict(node.lease.standing_watts) == standing
    assert all(node.limits_watts[g] <= watts for g, watts in standing.items())


def test_a_node_that_refuses_a_trigger_is_sent_what_it_meant(make_site) -> None:
    bench = make_site()
    bench.post(bench.signal(depth=0.25))
    made = bench.post(NodeFault("n1", "trigger-refused", None, "not armed"))
    (lease,) = bench.of(SendLease, made)
    assert dict(lease.lease.limits_watts) == bench.state.nodes["n1"].limits_watts
    assert [a.code for a in bench.of(Alarm, made)] == ["trigger-refused"]


def test_a_node_that_said_hello_again_is_given_its_arms_again(make_site) -> None:
    bench = make_site()
    bench.hello(1)
    assert bench.state.nodes["n1"].arms.revision == 0
    made = bench.tick()
    assert "n1" in {i.node_id for i in bench.of(SendArms, made)}


def test_what_a_node_fires_by_itself_becomes_an_event_and_brings_the_others_into_line(
    make_site,
) -> None:
    bench = make_site()
    made = bench.post(fired_by(bench, "n2", 1, 0.2, age=0.05))
    (track,) = bench.state.events.values()
    event = track.event
    assert (event.programme_id, event.feed_id) == ("p", "local:p")
    assert event.state is EventState.RAMPING_DOWN
    assert event.limit_watts == pytest.approx(0.8 * (4 * 380.0 + 4 * 60.0), rel=0.01)
    assert event.clocks.received_seconds == pytest.approx(bench.seconds - 0.05)
    assert [i.node_id for i in bench.of(SendTrigger, made)] == ["n1"]
    assert [i.node_id for i in bench.of(SendLease, made)] == ["n2"]
    again = bench.post(fired_by(bench, "n1", 1, 0.2))
    assert len(bench.state.events) == 1
    assert [i.node_id for i in bench.of(SendLease, again)] == ["n1"]


def test_the_event_asks_for_the_deepest_that_was_fired_and_ends_with_the_last_node(
    make_site,
) -> None:
    bench = make_site()
    bench.post(fired_by(bench, "n1", 0, 0.1))
    bench.ticks(2)
    bench.post(fired_by(bench, "n2", 2, 0.3))
    (track,) = bench.state.events.values()
    reference = 4 * 380.0 + 4 * 60.0
    assert track.event.limit_watts == pytest.approx(0.7 * reference, rel=0.01)
    bench.post(fired_by(bench, "n2", None, 0.0))
    assert track.event.limit_watts == pytest.approx(0.9 * reference, rel=0.01)
    assert track.event.state.acting
    bench.post(fired_by(bench, "n1", None, 0.0))
    bench.tick()
    assert track.event.state is EventState.RAMPING_UP


def test_what_was_fired_while_nobody_listened_is_measured_from_before_it(make_site) -> None:
    bench = make_site()
    bench.seconds += 40.0  # control was away; the site has come down meanwhile
    for gpu_id in bench.owners:
        bench.watts[gpu_id] = 250.0
    bench.tick()
    bench.post(fired_by(bench, "n1", 1, 0.2, age=30.0))
    (track,) = bench.state.events.values()
    assert track.event.reference is not None
    assert track.event.reference.watts == pytest.approx(4 * 380.0 + 4 * 60.0, rel=0.01)


def test_the_ledger_of_an_armed_event_replays(make_site, book) -> None:
    bench = make_site()
    bench.post(bench.signal(depth=0.25))
    bench.ticks(10)
    kinds = (Decide, SendLease, SendTrigger, SendArms)
    bodies = []
    machine = Machine(book)
    for stimulus, moment in bench.posted:
        bodies.append(("stimulus", encode(stimulus, moment)))
        made = machine.handle(stimulus, moment)
        bodies += [("decision", encode(i, moment)) for i in made if isinstance(i, kinds)]
    run = replay(Replayed(Machine(book)), bodies)
    assert run.differences == []
    assert to_builtins(run.machine.state) == to_builtins(machine.state)
    without = [(k, b) for k, b in bodies if b.get("type") != "SendArms"]
    assert replay(Replayed(Machine(book)), without).differences == []  # an older ledger
