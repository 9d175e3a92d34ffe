"""A controller that starts in the middle of things: what nodes hold stays until they are heard."""

from dataclasses import replace

import pytest

from gridaware.control.instructions import Decide, SendLease, SubmitJob
from gridaware.control.stimuli import FleetReleased, JobSubmitted, NodeLost, SiteConfigured, Started
from gridaware.control.takeover import LONGEST_SECONDS
from gridaware.domain.job import JobSpec, Tier
from gridaware.domain.programme import Programme
from gridaware.domain.target import Ramp

FAST = (Programme("p", deadline_seconds=1.0),)


def busy_on_both(bench):
    """Eight GPUs at work; what is remembered of them is their draw without limits."""
    for node in (1, 2):
        name = f"j{node}"
        bench.post(JobSubmitted(JobSpec(name, "x", 4, Tier.FLEX_3, workload="pretrain"), "u"))
        bench.tick()
        bench.run_attempt(name, bench.state.jobs[name].job.attempt, node=node)
    return bench


def held(bench, node):
    track = bench.state.nodes[f"n{node}"]
    return {"lease": track.lease, "lease_left_seconds": track.lease_ends_seconds - bench.seconds}


def look(bench, *nodes, seconds=0.1):
    """A tick with readings of those nodes only."""
    everybody, bench.watts = (
        bench.watts,
        {
            gpu_id: watts
            for gpu_id, watts in bench.watts.items()
            if any(gpu_id.startswith(f"g{node}") for node in nodes)
        },
    )
    made = bench.tick(seconds)
    bench.watts = everybody
    return made


def deepest(bench, made, node):
    """The least limit that node is sent."""
    sent = [i.lease for i in bench.of(SendLease, made) if i.node_id == f"n{node}"]
    return min((w for lease in sent for _, w in lease.limits_watts), default=400.0)


def test_a_node_that_is_heard_first_does_not_shed_what_the_others_have_shed(bench):
    busy_on_both(bench)
    bench.post(bench.signal(depth=0.3))
    before = deepest(bench, bench.made, 1)
    bench.seconds += 2.0
    lease, other = held(bench, 1), held(bench, 2)
    bench.post(Started(2))
    made = bench.hello(1, **lease) + look(bench, 1) + look(bench, 1)
    assert bench.of(Decide, made) == []
    assert deepest(bench, made, 1) == before, "it is told what it holds, once"
    made = bench.hello(2, **other)
    for _ in range(40):
        made += look(bench, 1, 2)
    assert deepest(bench, made, 1) >= 0.97 * before
    assert deepest(bench, made, 2) >= 0.97 * before


def test_a_node_that_never_comes_is_waited_for_no_longer_than_is_said(bench):
    busy_on_both(bench)
    bench.post(bench.signal(depth=0.3))
    before, lease = deepest(bench, bench.made, 1), held(bench, 1)
    bench.post(Started(2))
    bench.hello(1, **lease)
    waited, made = 0.0, look(bench, 1)
    while not bench.of(Decide, made):
        waited += 0.1
        made = look(bench, 1)
        assert waited < LONGEST_SECONDS + 0.2
    assert waited == pytest.approx(LONGEST_SECONDS, abs=0.11)
    assert deepest(bench, made, 1) < before, "what it last drew is counted as drawn"


def test_a_signal_that_is_due_at_once_is_answered_by_who_is_there(make_bench):
    bench = busy_on_both(make_bench(programmes=FAST))
    bench.post(Started(2))
    made = bench.hello(1) + look(bench, 1)
    assert not any(i.lease.limits_watts for i in bench.of(SendLease, made))
    made = bench.post(bench.signal(depth=0.2))
    assert deepest(bench, made, 1) < 330.0
    assert bench.of(SendLease, made)[-1].node_id == "n1"
    again = look(bench, 1)
    assert bench.of(Decide, again) == [], "it is answered; the rest waits as everything does"


def test_a_signal_that_leaves_time_waits_for_the_others(bench):
    busy_on_both(bench)
    bench.post(Started(2))
    bench.hello(1)
    look(bench, 1)
    made = bench.post(bench.signal(depth=0.2)) + look(bench, 1)
    assert bench.of(Decide, made) == []
    made = bench.hello(2) + look(bench, 1, 2)
    assert len(bench.of(Decide, made)) == 1
    assert max(deepest(bench, made, 1), deepest(bench, made, 2)) < 350.0


def test_what_was_due_before_the_controller_came_waits_for_who_may_hold_it(make_bench):
    """The end of the ledger is lost: the signal is known, what was sent for it is not."""
    bench = busy_on_both(make_bench(programmes=FAST))
    bench.post(bench.signal(depth=0.2))
    lease = held(bench, 1)
    next(iter(bench.state.events.values())).decision_id = ""
    bench.seconds += 1.5
    bench.post(Started(2))
    made = bench.hello(1, **lease) + look(bench, 1)
    assert bench.of(Decide, made) == []


def test_a_node_that_was_gone_before_is_not_waited_for(bench):
    busy_on_both(bench)
    bench.post(bench.signal(depth=0.3))
    lease = held(bench, 1)
    bench.post(NodeLost("n2"))
    bench.post(Started(2))
    bench.hello(1, **lease)
    look(bench, 1)
    assert not bench.state.takeover.waiting


def test_a_controller_that_dies_while_it_waits_leaves_its_successor_to_wait_for_the_same(bench):
    busy_on_both(bench)
    bench.post(bench.signal(depth=0.3))
    one, other = held(bench, 1), held(bench, 2)
    bench.post(Started(2))
    look(bench)
    bench.post(Started(3))
    made = bench.hello(1, **one) + look(bench, 1)
    assert bench.of(Decide, made) == []
    bench.hello(2, **other)
    look(bench, 1, 2)
    assert not bench.state.takeover.waiting


def test_nothing_is_started_before_it_is_known_whether_the_site_comes_back(bench):
    busy_on_both(bench)
    bench.leave("j2")
    bench.post(Started(2))
    bench.hello(1)
    look(bench, 1)
    bench.post(JobSubmitted(JobSpec("new", "x", 4, Tier.FLEX_3, workload="pretrain"), "u"))
    assert bench.of(SubmitJob, look(bench, 1)) == []
    assert bench.state.takeover.waiting


def test_a_fleet_that_is_released_at_once_comes_back_at_once(make_bench):
    bench = busy_on_both(make_bench(ramp=Ramp(up_watts_per_minute=600.0)))
    bench.post(bench.signal(depth=0.3))
    lease = held(bench, 1)
    bench.post(Started(2))
    bench.hello(1, **lease)
    look(bench, 1)
    bench.post(FleetReleased("somebody", "", at_once=True))
    assert bench.state.ramp_waived
    assert bench.state.nodes["n1"].limits_watts == {}


def test_a_ceiling_stands_while_a_new_controller_waits(make_bench):
    bench = busy_on_both(make_bench())
    bench.post(SiteConfigured(replace(bench.state.site, ramp=Ramp())))
    bench.post(Started(2))
    ceiling = (("g10", 250.0), ("g11", 250.0))
    made = bench.hello(1, lease=replace(bench.state.nodes["n1"].lease, standing_watts=ceiling))
    made += look(bench, 1)
    assert [i.lease.standing_watts for i in bench.of(SendLease, made)] == [ceiling]
    assert dict(ceiling) == bench.state.nodes["n1"].limits_watts
