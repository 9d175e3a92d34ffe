"""Named stories of the seeded world, with exact expectations."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridaware.control.codec import to_builtins
from gridaware.control.replay import rebuild
from gridaware.control.stimuli import EventCommanded, JobCommanded
from gridaware.domain.event import EventState, GridEvent
from gridaware.domain.job import JobState
from gridaware.domain.target import HardLimit
from gridaware.sim.world import World
from gridaware.sim.world_jobs import Manner

Make = Callable[..., World]
Ask = Callable[..., object]


def event_of(world: World, name: str) -> GridEvent:
    return world.control.machine.state.events[name].event


def job_state(world: World, name: str) -> JobState:
    return world.control.machine.state.jobs[name].job.state


def told(world: World, name: str) -> list[str]:
    return [status for event_id, status in world.told if event_id == name]


def limits(world: World) -> list[float]:
    return [slot.requested_watts for slot in world.gpus()]


def mean_watts(world: World, seconds: float) -> float:
    before = world.window.header.true_site_joules
    world.run(seconds)
    return (world.window.header.true_site_joules - before) / seconds


def test_an_event_falls_in_a_second_holds_and_gives_everything_back(
    make_world: Make, ask: Ask
) -> None:
    world = make_world()
    before = mean_watts(world, 10)
    answer = world.signal("f", "e", ask(world, 0.4))
    assert answer is not None
    assert answer.disposition == "accepted"
    world.run(3)
    assert world.window.header.true_site_watts <= 0.6 * before
    world.run(7)
    assert mean_watts(world, 30) <= 0.6 * before * 1.002
    assert job_state(world, "flex-3") is JobState.PAUSED
    world.run(60)
    clocks = event_of(world, "f.e").clocks
    assert clocks.decided_seconds == clocks.received_seconds  # virtual time stands still within
    assert clocks.accepted_seconds is not None
    assert clocks.accepted_seconds - clocks.received_seconds < 1.0
    assert told(world, "f.e") == ["opted-in", "active", "completed"]
    assert world.settled == [("f.e", False), ("f.e", True)]
    assert limits(world) == [400.0] * 16
    assert job_state(world, "flex-3") is JobState.RUNNING
    saved = world.ray.evidence["flex-3", "r1-1"]
    assert ("flex-3", 2, saved) in world.ray.starts


def test_a_message_told_twice_is_one_event(make_world: Make, ask: Ask) -> None:
    world = make_world()
    request = ask(world, 0.3)
    first = world.signal("f", "e", request, 1)
    world.run(2)
    again = world.signal("f", "e", request, 1)
    other = world.signal("f", "e", ask(world, 0.1), 1)
    older = world.signal("f", "e", request, 0)
    assert [a and (a.disposition, a.code) for a in (first, again, other, older)] == [
        ("accepted", ""),
        ("duplicate", ""),
        ("refused", "revision-reused"),
        ("superseded", ""),
    ]


def test_a_cancel_that_comes_before_its_event_holds(make_world: Make, ask: Ask) -> None:
    world = make_world()
    world.signal("f", "e", None, 2)
    late = world.signal("f", "e", ask(world, 0.3), 1)
    after = world.signal("f", "e", ask(world, 0.3), 3)
    assert late is not None
    assert after is not None
    assert (late.disposition, after.disposition) == ("superseded", "superseded")
    world.run(5)
    assert limits(world) == [400.0] * 16


def test_a_window_that_is_over_when_it_is_heard_is_refused(make_world: Make, ask: Ask) -> None:
    world = make_world()
    answer = world.signal("f", "e", ask(world, 0.3, start=-60.0, seconds=50.0))
    assert answer is not None
    assert (answer.disposition, answer.code) == ("refused", "event-over")


def test_overlapping_and_touching_events_share_one_reference(make_world: Make, ask: Ask) -> None:
    world = make_world()
    world.signal("f", "one", ask(world, 0.3, seconds=40.0))
    world.run(20)
    world.signal("f", "over", ask(world, 0.3, seconds=40.0))
    world.signal("f", "next", ask(world, 0.2, start=40.0, seconds=40.0))
    world.run(5)
    first = event_of(world, "f.one")
    for name in ("f.over", "f.next"):
        assert event_of(world, name).reference == first.reference
    assert event_of(world, "f.over").limit_watts == first.limit_watts


def test_a_revision_deepens_and_a_longer_end_holds_on_the_agents_too(
    make_world: Make, ask: Ask
) -> None:
    world = make_world()
    request = ask(world, 0.2, seconds=30.0)
    world.signal("f", "e", request, 1)
    world.run(20)
    longer = replace(ask(world, 0.2, seconds=60.0), start=request.start, target=request.target)
    world.signal("f", "e", longer, 2)
    world.run(1)
    now = world.clock.boot_seconds()
    holding = [node.holder for node in world.nodes.values() if node.holder.lease is not None]
    assert [holder.lease_left_seconds(now) for holder in holding] == pytest.approx(
        [59.0] * len(holding), abs=0.5
    )
    world.kill_control(float("inf"))
    world.run(40)
    limit = event_of(world, "f.e").limit_watts
    assert limit is not None
    assert world.window.header.true_site_watts <= limit * 1.005
    world.run(60)
    assert limits(world) == [400.0] * 16


def test_a_cancelled_event_comes_back_and_its_sender_hears_of_it_once(
    make_world: Make, ask: Ask
) -> None:
    world = make_world()
    world.signal("f", "e", ask(world, 0.4, seconds=600.0), 1)
    world.run(1)  # its flex-3 job is still saving
    assert job_state(world, "flex-3") is JobState.PAUSING
    world.signal("f", "e", None, 2)
    world.run(60)
    assert told(world, "f.e") == ["opted-in", "active", "cancelled"]
    assert event_of(world, "f.e").state is EventState.SETTLED
    assert job_state(world, "flex-3") is JobState.RUNNING
    assert limits(world) == [400.0] * 16
    again = world.signal("f", "e", ask(world, 0.4), 3)
    assert again is not None
    assert again.code == "event-closed"


def test_opting_out_is_named_and_gives_everything_back(make_world: Make, ask: Ask) -> None:
    world = make_world()
    world.signal("f", "e", ask(world, 0.3, seconds=600.0))
    world.run(10)
    world.control.post(EventCommanded("f.e", "opt-out", "ana"))
    world.run(60)
    assert told(world, "f.e") == ["opted-in", "active", "opted-out"]
    assert event_of(world, "f.e").opted_out_by == "ana"
    assert [a.code for a in world.alarms if a.code == "opted-out"] == ["opted-out"]
    assert limits(world) == [400.0] * 16


def test_a_feed_gets_no_more_than_its_authority(make_world: Make, ask: Ask) -> None:
    world = make_world()
    answer = world.signal("small", "e", ask(world, 0.5))
    assert answer is not None
    assert answer.disposition == "clamped"
    event = event_of(world, "small.e")
    assert event.reference is not None
    assert event.limit_watts == pytest.approx(0.8 * event.reference.watts)
    assert event.clamped_from_watts == pytest.approx(0.5 * event.reference.watts)
    assert "beyond-authority" in [alarm.code for alarm in world.alarms]


def test_until_told_to_act_nothing_is_touched(make_world: Make, ask: Ask) -> None:
    world = make_world(act=False)
    answer = world.signal("f", "e", ask(world, 0.4))
    assert answer is not None
    assert answer.disposition == "opted-out"
    world.run(60)
    assert limits(world) == [400.0] * 16
    assert told(world, "f.e") == ["opted-out"]
    assert all(node.holder.lease is None for node in world.nodes.values())


def test_an_endless_event_holds_for_its_programmes_time_and_then_lets_go(
    make_world: Make, ask: Ask
) -> None:
    world = make_world()
    world.signal("f", "e", ask(world, 0.3, seconds=None))
    world.run(15)
    held = limits(world)
    assert held != [400.0] * 16
    world.kill_control(float("inf"))
    world.run(18)  # silence is noticed after 5 s and counted from its beginning
    assert limits(world) == held
    world.run(60)
    assert limits(world) == [400.0] * 16


@pytest.mark.parametrize("after_seconds", [0.0, 0.02, 1.0, 5.0, 20.0, 46.0, 50.0])
def test_a_controller_killed_at_any_moment_keeps_the_promise(
    make_world: Make, ask: Ask, after_seconds: float
) -> None:
    world = make_world(seed=3)
    world.signal("f", "e", ask(world, 0.4))
    world.run(after_seconds)
    world.kill_control(3.0, lose_entries=50)
    world.run(16.0)
    event = event_of(world, "f.e")
    if after_seconds < 15.0:
        assert event.limit_watts is not None
        assert mean_watts(world, 10) <= event.limit_watts * 1.005
    world.run(90)
    assert event_of(world, "f.e").state is EventState.SETTLED
    assert limits(world) == [400.0] * 16
    assert [job_state(world, job) for job in ("firm", "flex-3", "flex-2")] == [JobState.RUNNING] * 3
    again = rebuild(world.book, None, world.ledger.entries)
    assert again.differences == []
    assert to_builtins(again.machine.state) == to_builtins(world.control.machine.state)


def test_a_decision_lost_in_a_crash_is_known_again_from_the_agents(
    make_world: Make, ask: Ask
) -> None:
    world = make_world()
    world.signal("f", "e", ask(world, 0.4, start=1.5))
    while not world.control.machine.state.decisions:
        world.run(0.01)
    world.run(0.03)  # the agents have obeyed; the group commit has not happened
    lost = world.control.machine.state.nodes["node-1"].decision_id
    world.kill_control(2.0, lose_entries=50)
    world.run(1.9)
    assert not any(body.get("type") == "Decide" for _, body in world.ledger.entries)
    world.run(6.0)
    recovered = [a.subject for a in world.alarms if a.code == "decision-recovered"]
    assert sorted(recovered) == ["node-1", "node-2"]
    assert lost.startswith("d1-")
    assert event_of(world, "f.e").clocks.accepted_seconds is not None


def test_an_event_above_the_present_draw_stops_its_clocks_without_a_cap(
    make_world: Make, ask: Ask
) -> None:
    world = make_world()
    world.stop_jobs()
    world.run(2)
    world.signal("f", "e", ask(world, 0.05))
    world.run(10)
    clocks = event_of(world, "f.e").clocks
    assert None not in (clocks.decided_seconds, clocks.accepted_seconds, clocks.confirmed_seconds)
    assert limits(world) == [400.0] * 16


def test_what_a_user_paused_stays_paused(make_world: Make, ask: Ask) -> None:
    world = make_world()
    world.control.post(JobCommanded("flex-3", "pause", "bo"))
    world.run(10)
    assert job_state(world, "flex-3") is JobState.PAUSED
    world.signal("f", "e", ask(world, 0.1, seconds=20.0))
    world.run(80)
    assert event_of(world, "f.e").state is EventState.SETTLED
    assert job_state(world, "flex-3") is JobState.PAUSED
    world.control.post(JobCommanded("flex-3", "resume", "bo"))
    world.run(10)
    assert job_state(world, "flex-3") is JobState.RUNNING


@pytest.mark.parametrize("manner", [Manner.REFUSES, Manner.HANGS, Manner.CRASHES, Manner.FINISHES])
def test_a_job_that_does_not_pause_as_asked_leaves_the_promise_whole(
    make_world: Make, ask: Ask, manner: Manner
) -> None:
    world = make_world()
    world.ray.manners["flex-3"] = manner
    world.signal("f", "e", ask(world, 0.4))
    world.run(12)
    limit = event_of(world, "f.e").limit_watts
    assert limit is not None
    assert mean_watts(world, 15) <= limit * 1.005
    world.run(100)
    expected = {Manner.CRASHES: JobState.FAILED, Manner.FINISHES: JobState.SUCCEEDED}
    assert job_state(world, "flex-3") is expected.get(manner, JobState.RUNNING)
    assert limits(world) == [400.0] * 16


def test_a_gpu_that_takes_no_limit_is_never_accepted_and_others_give_for_it(
    make_world: Make, ask: Ask
) -> None:
    world = make_world()
    slot = world.window.gpu(0)
    slot.error_code = 999
    world.signal("f", "e", ask(world, 0.25, seconds=40.0))
    world.run(12)
    event = event_of(world, "f.e")
    assert event.limit_watts is not None
    assert event.clocks.accepted_seconds is None
    assert mean_watts(world, 15) <= event.limit_watts * 1.005
    slot.error_code = 0
    world.run(120)
    assert limits(world) == [400.0] * 16


def test_a_connection_limit_stands_through_an_event_and_after_it(
    make_world: Make, ask: Ask
) -> None:
    world = make_world(hard_limit=HardLimit(5000.0))
    assert mean_watts(world, 10) <= 5000.0
    world.signal("f", "e", ask(world, 0.3, seconds=30.0))
    world.run(12)
    event = event_of(world, "f.e")
    assert event.limit_watts is not None
    assert mean_watts(world, 10) <= event.limit_watts * 1.005
    world.run(60)
    assert event_of(world, "f.e").state is EventState.SETTLED
    assert mean_watts(world, 10) <= 5000.0
    world.kill_control(float("inf"))
    world.run(120)
    assert mean_watts(world, 10) <= 5000.0  # it holds without a controller


def test_while_the_meter_is_silent_the_sensors_stand_in_and_a_person_is_told(
    make_world: Make, ask: Ask
) -> None:
    world = make_world()
    world.signal("f", "e", ask(world, 0.3, seconds=90.0))
    world.run(30)
    world.window.header.meter_fault = 1
    world.run(10)
    limit = event_of(world, "f.e").limit_watts
    assert limit is not None
    assert mean_watts(world, 20) <= limit * 1.01
    assert "meter-silent" in [alarm.code for alarm in world.alarms]
    world.window.header.meter_fault = 0
    world.run(3)
    assert "meter-silent/" not in world.control.machine.state.alarms
