"""What a person gives back ahead of time, on a node or on the fleet: who is told what."""

from dataclasses import replace

from gridaware.control.instructions import Alarm, SendLease, TellFeed
from gridaware.control.stimuli import FleetReleased
from gridaware.domain.event import EventState
from gridaware.domain.wire import Released
from gridaware.planning.targets import Ramp


def acting(bench, source: str = "e") -> str:
    """An event that holds, on a site whose GPUs work."""
    bench.start_job()
    bench.post(bench.signal(source, depth=0.3, seconds=600.0))
    bench.ticks(12)
    assert bench.state.events[f"f.{source}"].event.state is EventState.HOLDING
    return f"f.{source}"


def fact(bench, *event_ids: str, **over) -> Released:
    made = Released("n1-x", "d1-1", event_ids, "alice", "smoke in row 3", bench.now().wall)
    return replace(made, **over)


def told(made, bench) -> list[str]:
    return [instruction.status for instruction in bench.of(TellFeed, made)]


def test_a_release_on_a_node_opts_out_of_the_events_it_broke_into_by_name_and_reason(bench):
    event_id = acting(bench)
    made = bench.hello(1, releases=(fact(bench, event_id),))
    event = bench.state.events[event_id].event
    assert (event.state, event.reason) == (EventState.RAMPING_UP, "OptedOut")
    assert event.opted_out_by == "alice released n1: smoke in row 3"
    assert told(made, bench) == ["opted-out"]
    assert [a.code for a in bench.of(Alarm, made)].count("opted-out") == 1


def test_the_same_release_said_in_every_hello_is_one_release(bench):
    event_id = acting(bench)
    release = fact(bench, event_id)
    bench.hello(1, releases=(release,))
    before = bench.state.events[event_id].event
    made = bench.hello(1, releases=(replace(release, restored=True),))
    assert told(made, bench) == []
    assert bench.state.events[event_id].event.state_since == before.state_since


def test_a_release_heard_of_after_the_window_makes_the_event_a_failed_one_and_never_completed(
    bench,
):
    event_id = acting(bench)
    released_at = bench.now().wall
    bench.tick(600.0)
    assert bench.state.events[event_id].event.reason == "WindowEnded"
    made = bench.hello(1, releases=(fact(bench, event_id, at=released_at),))
    assert told(made, bench) == ["failed"]
    bench.made.clear()
    bench.ticks(40)
    assert "completed" not in told(bench.made, bench)
    assert bench.state.events[event_id].event.opted_out_by == "alice released n1: smoke in row 3"


def test_a_release_of_nothing_that_was_owed_is_shown_and_breaks_no_event(bench):
    event_id = acting(bench)
    bench.hello(1, releases=(fact(bench),))
    assert bench.state.events[event_id].event.state is EventState.HOLDING
    assert "released-by-person/n1" in bench.state.alarms


def test_a_fleet_release_opts_out_of_what_acts_and_leaves_what_is_still_to_come(bench):
    event_id = acting(bench)
    bench.post(bench.signal("later", depth=0.2, start=3600.0))
    answer = bench.answer(FleetReleased("bob", "wrong tariff", at_once=False))
    assert answer.disposition == "accepted"
    event = bench.state.events[event_id].event
    assert (event.reason, event.opted_out_by) == (
        "OptedOut",
        "bob released the fleet: wrong tariff",
    )
    assert bench.state.events["f.later"].event.state is EventState.SCHEDULED


def test_a_fleet_release_rises_by_the_ramp_unless_it_was_confirmed_to_be_faster(make_bench):
    for at_once in (False, True):
        bench = make_bench(ramp=Ramp(up_watts_per_minute=600.0))
        acting(bench)
        made = bench.post(FleetReleased("bob", "now", at_once=at_once))
        leases = [i.lease for i in bench.of(SendLease, made)]
        capped = [lease for lease in leases if lease.limits_watts]
        assert bool(capped) != at_once, "600 W a minute take longer than this instant"
        if at_once:
            assert bench.state.nodes["n1"].limits_watts == {}


def test_the_next_event_comes_back_by_the_ramp_again(make_bench):
    bench = make_bench(ramp=Ramp(up_watts_per_minute=600.0))
    acting(bench, "first")
    bench.post(FleetReleased("bob", "now", at_once=True))
    bench.ticks(40)
    bench.post(bench.signal("second", depth=0.3, seconds=30.0))
    bench.ticks(31)
    assert bench.state.events["f.second"].event.state is EventState.RAMPING_UP
    assert not bench.state.ramp_waived
    assert bench.state.nodes["n1"].limits_watts
