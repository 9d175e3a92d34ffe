"""Named stories of the seeded world: voltage sags, and GPUs that do not follow their caps."""

from collections.abc import Callable

import pytest

from gridaware.domain.event import EventState, GridEvent
from gridaware.domain.job import JobSpec, JobState, Tier
from gridaware.sim.world import World
from gridaware.sim.world_jobs import Manner

Make = Callable[..., World]
Ask = Callable[..., object]


def event_of(world: World) -> GridEvent:
    return world.control.machine.state.events["f.e"].event


def limits(world: World) -> list[float]:
    return [slot.requested_watts for slot in world.gpus()]


def without_clock_locks(world: World) -> None:
    """Boards of before Volta: no clock lock. Their agents find it out as they start."""
    for slot in world.gpus():
        slot.capability = 60
    for node_id in world.nodes:
        world.kill_agent(node_id, 0.5)
    world.run(10)


def mean_watts(world: World, seconds: float) -> float:
    before = world.window.header.true_site_joules
    world.run(seconds)
    return (world.window.header.true_site_joules - before) / seconds


@pytest.mark.parametrize("sensors", [False, True], ids=["meter", "meter-and-sensors"])
def test_six_sags_in_ninety_seconds_change_no_cap(
    make_world: Make, ask: Ask, *, sensors: bool
) -> None:
    """ERCOT NOGRR282: large loads ride through six sags in 90 s."""
    world = make_world()
    world.signal("f", "e", ask(world, 0.25, seconds=200.0))
    world.run(30)
    state = world.control.machine.state
    sags = state.ride.count
    for _ in range(6):
        before, bias, decisions = limits(world), state.tracker.bias, state.decisions
        world.sag(0.6, 1.2, sensors=sensors)
        for _ in range(31):  # the sag, and two seconds after the last reading in it
            world.run(0.1)
            assert limits(world) == before
        assert state.tracker.bias == pytest.approx(bias, abs=0.002)  # a sag would move it by 0.1
        assert state.decisions == decisions
        world.run(11.9)
    assert state.ride.count == sags + 6
    limit = event_of(world).limit_watts
    assert limit is not None
    assert mean_watts(world, 15) <= limit * 1.002


def test_a_sag_of_any_length_leaves_no_rebound_behind(make_world: Make, ask: Ask) -> None:
    world = make_world()
    world.signal("f", "e", ask(world, 0.25, seconds=200.0))
    world.run(30)
    limit = event_of(world).limit_watts
    assert limit is not None
    for seconds in (0.1, 1.0, 2.0, 4.0):
        world.sag(0.8, seconds, sensors=True)
        assert mean_watts(world, 15) <= limit * 1.003


def test_a_new_signal_acts_in_the_middle_of_a_sag(make_world: Make, ask: Ask) -> None:
    world = make_world()
    before = mean_watts(world, 10)
    world.sag(0.6, 1.0, sensors=True)
    world.run(0.5)
    answer = world.signal("f", "e", ask(world, 0.3, seconds=60.0))
    assert answer is not None
    assert answer.disposition == "accepted"
    world.run(0.4)  # the sag is not over yet
    assert world.window.header.meter_dip == 0.6
    assert world.window.header.true_site_watts <= 0.72 * before
    reference = event_of(world).reference
    assert reference is not None
    assert reference.watts == pytest.approx(before, rel=0.02)  # not what the sag showed


def test_power_that_only_seems_low_confirms_nothing(make_world: Make, ask: Ask) -> None:
    world = make_world()
    for slot in world.gpus():
        slot.limits_ignored = 1
    world.signal("f", "e", ask(world, 0.3, seconds=60.0))
    world.run(2)
    world.sag(0.6, 3.0, sensors=True)
    world.run(4)
    assert event_of(world).clocks.confirmed_seconds is None


def test_a_gpu_that_ignores_its_cap_is_found_in_seconds_and_others_give_for_it(
    make_world: Make, ask: Ask
) -> None:
    world = make_world()
    stubborn = world.control.machine.state.jobs["flex-2"].job.gpu_ids[0]
    slot = next(s for s in world.gpus() if s.uuid.decode() == stubborn)
    slot.limits_ignored = 1
    world.signal("f", "e", ask(world, 0.45, seconds=60.0))
    world.run(4)
    assert slot.enforced_watts < 0.8 * slot.true_watts  # it says that it is capped
    state = world.control.machine.state
    assert [g for g, track in state.gpus.items() if track.astray] == [stubborn]
    assert [(s.cause, s.gpu_ids) for s in event_of(world).escalations[:1]] == [
        ("ignored", (stubborn,))
    ]
    assert "gpu-not-following" in {alarm.code for alarm in world.alarms}
    world.run(6)
    limit = event_of(world).limit_watts
    assert limit is not None
    assert mean_watts(world, 30) <= limit * 1.003
    assert event_of(world).unresolved_watts == 0.0
    world.run(80)
    assert event_of(world).state is EventState.SETTLED
    assert limits(world) == [400.0] * 16


def test_a_site_of_gpus_that_ignore_their_caps_says_exactly_what_is_missing(
    make_world: Make, ask: Ask
) -> None:
    world = make_world()
    without_clock_locks(world)
    for slot in world.gpus():
        slot.limits_ignored = 1
    for job_id in world.control.machine.state.jobs:
        world.ray.manners[job_id] = Manner.REFUSES
    world.signal("f", "e", ask(world, 0.3, seconds=60.0))
    world.run(40)
    state, limit = world.control.machine.state, event_of(world).limit_watts
    assert limit is not None
    missing = world.window.header.true_site_watts - limit
    assert state.unresolved_watts == pytest.approx(missing, rel=0.03)
    assert event_of(world).unresolved_watts == pytest.approx(missing, rel=0.03)
    assert {step.rung for step in event_of(world).escalations} >= {"deeper-cap"}


def test_a_job_that_may_be_stopped_is_and_begins_again_after_the_event(
    make_world: Make, ask: Ask
) -> None:
    world = make_world()
    world.stop_jobs()
    world.run(4)
    world.submit(
        JobSpec("batch", "x", 8, Tier.FLEX_2, workload="pretrain", pausable=False, may_stop=True)
    )
    without_clock_locks(world)
    world.run(40)
    for slot in world.gpus():
        slot.limits_ignored = 1
    world.signal("f", "e", ask(world, 0.3, seconds=60.0))
    world.run(9)
    assert world.control.machine.state.jobs["batch"].job.state is not JobState.QUEUED
    world.run(8)
    limit = event_of(world).limit_watts
    assert limit is not None
    assert world.window.header.true_site_watts <= limit
    assert event_of(world).escalations[-1].rung == "stop"
    world.run(80)
    assert world.control.machine.state.jobs["batch"].job.state is JobState.RUNNING
    assert world.control.machine.state.jobs["batch"].job.attempt == 2


def test_where_caps_are_ignored_clock_locks_keep_the_promise(make_world: Make, ask: Ask) -> None:
    world = make_world()
    for slot in world.gpus():
        slot.limits_ignored = 1
    for job_id in world.control.machine.state.jobs:
        world.ray.manners[job_id] = Manner.REFUSES
    world.signal("f", "e", ask(world, 0.3, seconds=60.0))
    world.run(20)
    limit = event_of(world).limit_watts
    assert limit is not None
    assert mean_watts(world, 30) <= limit * 1.003
    assert {step.rung for step in event_of(world).escalations} == {"deeper-cap", "lock-clocks"}
    world.run(100)
    assert event_of(world).state is EventState.SETTLED
    assert [slot.locked_mhz for slot in world.gpus()] == [0.0] * 16
    assert limits(world) == [400.0] * 16
