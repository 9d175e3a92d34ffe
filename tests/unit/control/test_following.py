"""Confirmed or escalated: the machine knows who did not follow, and what it did about it."""

import pytest

from gridaware.control.instructions import Alarm, SendCheckpoint, SendLease, StopJob
from gridaware.control.stimuli import AttemptStatus, NodeLost, RunnerReported
from gridaware.domain.fleet import ClockRange, Gpu, LimitRange
from gridaware.domain.job import JobState, Tier
from gridaware.domain.target import Ramp
from gridaware.domain.wire import Acknowledged, GpuResult, NodeFault


def acknowledge(bench) -> None:
    """Every node reads back what it was told last."""
    for node_id, node in bench.state.nodes.items():
        results = tuple(GpuResult(g, watts, watts) for g, watts in node.limits_watts.items())
        bench.post(
            Acknowledged(
                node_id,
                bench.state.controller_epoch,
                node.sequence,
                node.decision_id,
                results,
                True,
                bench.now().wall,
            )
        )


def run(bench, seconds: float) -> None:
    """Time passes at ten readings a second, and agents do what they are told."""
    for _ in range(round(10 * seconds)):
        acknowledge(bench)
        bench.tick(0.1)


def job(bench, name: str = "j"):
    return bench.state.jobs[name]


def event(bench):
    return bench.state.events["f.e"].event


def rungs(bench) -> list[str]:
    return [step.rung for step in event(bench).escalations]


def limits(bench, node: int = 1) -> dict[str, float]:
    return bench.state.nodes[f"n{node}"].limits_watts


def test_one_gpu_that_ignores_its_cap_is_named_capped_deeper_and_given_for(bench) -> None:
    bench.start_job(tier=Tier.FLEX_3, pausable=False)
    bench.stubborn["g10"] = 380.0
    bench.post(bench.signal(depth=0.25))
    run(bench, 1.0)
    at_first = dict(limits(bench))
    assert len(set(at_first.values())) == 1  # every rank has the same cap
    run(bench, 4.0)
    assert bench.state.gpus["g10"].astray
    assert not bench.state.gpus["g11"].astray
    now = limits(bench)
    assert now["g10"] == 100.0  # as deep as the device goes
    assert now["g11"] < at_first["g11"]  # the others give what it does not
    assert rungs(bench) == ["deeper-cap"]
    first = event(bench).escalations[0]
    assert (first.job_id, first.cause, first.gpu_count, first.gpu_ids) == (
        "j",
        "ignored",
        1,
        ("g10",),
    )
    assert first.excess_watts == pytest.approx(380.0 - now["g11"], abs=10.0)
    told = [a for a in bench.of(Alarm) if a.code == "gpu-not-following"]
    assert [a.subject for a in told] == ["j"]
    assert job(bench).plan_reason == "CapDeeper"


def test_the_watts_meet_the_target_all_the_same(bench) -> None:
    bench.start_job(tier=Tier.FLEX_3, pausable=False)
    bench.stubborn["g10"] = 380.0
    bench.post(bench.signal(depth=0.2))
    run(bench, 12.0)
    assert bench.state.meter_watts <= event(bench).limit_watts
    assert bench.state.unresolved_watts == 0.0
    assert event(bench).unresolved_watts == 0.0


def test_once_it_obeys_its_cap_it_has_the_same_as_the_others_again(bench) -> None:
    bench.start_job(tier=Tier.FLEX_3, pausable=False)
    bench.stubborn["g10"] = 380.0
    bench.post(bench.signal(depth=0.25))
    run(bench, 5.0)
    del bench.stubborn["g10"]
    run(bench, 4.0)
    assert not bench.state.gpus["g10"].astray
    assert len(set(limits(bench).values())) == 1
    assert "gpu-not-following/j" not in bench.state.alarms


def test_a_job_that_does_not_follow_at_all_is_paused_when_nobody_else_can_give(bench) -> None:
    bench.start_job(tier=Tier.FLEX_1, min_cap_watts=150.0)
    bench.stubborn |= dict.fromkeys(bench.owners, 380.0)
    bench.post(bench.signal(depth=0.3))
    run(bench, 4.0)
    assert job(bench).job.state is JobState.PAUSING
    assert bench.of(SendCheckpoint)
    assert bench.state.unresolved_watts == 0.0  # there is time until the deadline
    run(bench, 8.0)
    assert job(bench).job.state is JobState.PAUSING
    above = bench.state.meter_watts - event(bench).limit_watts
    assert bench.state.unresolved_watts == pytest.approx(above, rel=0.05)  # now there is none


def test_a_firm_job_that_does_not_follow_stays_and_what_is_short_is_said(bench) -> None:
    bench.start_job(tier=Tier.FIRM)
    bench.stubborn |= dict.fromkeys(bench.owners, 380.0)
    bench.post(bench.signal(depth=0.3))
    run(bench, 15.0)
    assert job(bench).job.state in {JobState.RUNNING, JobState.CAPPED}
    above = bench.state.meter_watts - event(bench).limit_watts
    assert bench.state.unresolved_watts == pytest.approx(above, rel=0.02)
    assert event(bench).unresolved_watts == pytest.approx(above, rel=0.02)
    assert set(rungs(bench)) == {"deeper-cap"}
    assert "unresolved-watts/" in bench.state.alarms


def test_a_job_whose_owner_agreed_is_stopped_after_the_deadline_and_queued_again(bench) -> None:
    bench.start_job(tier=Tier.FLEX_2, pausable=False, may_stop=True)
    bench.stubborn |= dict.fromkeys(bench.owners, 380.0)
    bench.post(bench.signal(depth=0.3))
    run(bench, 9.0)
    assert not bench.of(StopJob)  # the deadline is 10 s
    run(bench, 2.0)
    assert bench.of(StopJob) == [StopJob("j", 1)]
    assert rungs(bench)[-1] == "stop"
    assert job(bench).plan_reason == "StopNotFollowing"
    bench.leave("j")
    bench.post(RunnerReported((AttemptStatus("j", 1, "stopped"),)))
    assert (job(bench).job.state, job(bench).job.reason) == (JobState.QUEUED, "StoppedForGrid")
    run(bench, 5.0)
    assert job(bench).job.state is JobState.QUEUED  # not while the site gives up power
    assert bench.state.meter_watts <= event(bench).limit_watts
    bench.post(bench.signal(revision=2, depth=None))
    run(bench, 5.0)
    assert job(bench).job.state is JobState.STARTING
    assert job(bench).job.attempt == 2


def test_without_the_owners_word_nothing_is_stopped(bench) -> None:
    bench.start_job(tier=Tier.FLEX_2, pausable=False)
    bench.stubborn |= dict.fromkeys(bench.owners, 380.0)
    bench.post(bench.signal(depth=0.3))
    run(bench, 20.0)
    assert not bench.of(StopJob)
    assert bench.state.unresolved_watts > 0


def test_clocks_are_locked_where_the_driver_has_a_lock_and_freed_with_the_event(bench) -> None:
    board = ClockRange(210.0, 1410.0)
    gpus = tuple(
        Gpu(f"g1{i}", i, "NVIDIA A100", LimitRange(100.0, 400.0, 400.0), 400.0, clocks=board)
        for i in range(4)
    )
    bench.hello(1, gpus=gpus)
    bench.start_job(tier=Tier.FLEX_3, pausable=False)
    bench.stubborn["g10"] = 380.0
    bench.post(bench.signal(depth=0.25, seconds=40.0))
    run(bench, 8.0)
    assert "lock-clocks" in rungs(bench)
    lease = bench.state.nodes["n1"].lease
    [(gpu_id, mhz)] = lease.clocks_mhz
    assert gpu_id == "g10"
    assert 210.0 <= mhz < 1410.0
    assert job(bench).plan_reason == "LockClocks"
    bench.stubborn["g10"] = 150.0  # the lock holds it
    run(bench, 40.0)
    assert bench.of(SendLease)[-1].lease.clocks_mhz == ()
    assert limits(bench) == {}


def test_on_the_way_back_a_held_gpu_is_let_go_only_into_room_that_is_there(make_bench) -> None:
    bench = make_bench(ramp=Ramp(None, 600.0))
    bench.start_job(tier=Tier.FLEX_3, pausable=False)
    bench.stubborn["g10"] = 300.0
    bench.post(bench.signal(depth=0.4, seconds=30.0))
    run(bench, 10.0)
    bench.stubborn["g10"] = 120.0  # its deeper cap holds it now
    run(bench, 25.0)
    assert bench.state.release_seconds is not None
    assert "g10" in limits(bench)
    run(bench, 90.0)
    assert limits(bench) == {}


def test_what_is_unresolved_is_never_more_than_what_is_measured_above_the_target(bench) -> None:
    """The plan may foresee that too little can be given; the meter knows better."""
    bench.start_job(tier=Tier.FIRM)
    bench.post(bench.signal(depth=0.9))
    assert bench.state.unresolved_watts > 0
    for gpu_id in bench.watts:
        bench.watts[gpu_id] = 5.0  # the work ends by itself
    run(bench, 6.0)
    assert bench.state.meter_watts < event(bench).limit_watts
    assert bench.state.unresolved_watts == 0.0
    assert "unresolved-watts/" not in bench.state.alarms
    assert event(bench).unresolved_watts == 0.0  # the deadline is still to come


def test_a_ramp_of_the_connection_binds_beyond_the_deadline_and_is_reported(make_bench) -> None:
    bench = make_bench(ramp=Ramp(1200.0, None))  # 20 W a second
    bench.start_job(tier=Tier.FLEX_3, pausable=False)
    before = bench.state.meter_watts
    bench.post(bench.signal(depth=0.4))
    fallen = []
    for _ in range(20):
        run(bench, 1.0)
        fallen.append(before - bench.state.meter_watts)
    assert all(watts <= 20.0 * (1 + second) + 60.0 for second, watts in enumerate(fallen))
    assert bench.state.meter_watts > event(bench).limit_watts  # 10 s were promised
    assert bench.state.unresolved_watts == pytest.approx(
        bench.state.meter_watts - event(bench).limit_watts, rel=0.15
    )
    assert event(bench).unresolved_watts > 0


def test_a_blip_that_a_node_saw_holds_the_loop_and_a_signal_still_acts(bench) -> None:
    bench.start_job(tier=Tier.FLEX_3, pausable=False)
    bench.post(bench.signal(depth=0.2))
    run(bench, 10.0)
    before, decisions = dict(limits(bench)), bench.state.decisions
    bench.post(NodeFault("n1", "frequency-blip", None, "59 Hz and back in a cycle"))
    for gpu_id in bench.owners:
        bench.watts[gpu_id] = 200.0  # what is read now is not believed
    run(bench, 1.5)
    assert (limits(bench), bench.state.decisions) == (before, decisions)
    bench.post(bench.signal(revision=2, depth=0.4))
    assert bench.state.decisions > decisions
    assert max(limits(bench).values()) < min(before.values())


def test_a_job_that_nobody_can_tell_is_stopped_through_the_cluster_if_its_owner_agreed(
    bench,
) -> None:
    bench.start_job(tier=Tier.FLEX_2, may_stop=True)
    bench.post(NodeLost("n1"))
    bench.post(bench.signal(depth=0.3))
    run(bench, 9.0)
    assert not bench.of(StopJob)
    run(bench, 3.0)
    assert bench.of(StopJob) == [StopJob("j", 1)]
    [step] = event(bench).escalations
    assert (step.rung, step.cause) == ("stop", "unreachable")


def test_a_job_of_which_one_gpu_does_not_follow_keeps_its_work_while_others_give(bench) -> None:
    bench.start_job(tier=Tier.FLEX_3, may_stop=True)
    bench.stubborn["g10"] = 380.0
    bench.post(bench.signal(depth=0.1))
    run(bench, 30.0)
    assert bench.state.meter_watts <= event(bench).limit_watts
    assert not bench.of(StopJob)
    assert not bench.of(SendCheckpoint)


def test_a_lock_is_tried_again_after_two_minutes_and_let_go_where_the_cap_is_obeyed(bench) -> None:
    board = ClockRange(210.0, 1410.0)
    gpus = tuple(
        Gpu(f"g1{i}", i, "NVIDIA A100", LimitRange(100.0, 400.0, 400.0), 400.0, clocks=board)
        for i in range(4)
    )
    bench.hello(1, gpus=gpus)
    bench.start_job(tier=Tier.FLEX_3, pausable=False)
    bench.stubborn["g10"] = 380.0
    bench.post(bench.signal(depth=0.25, seconds=600.0))
    run(bench, 8.0)
    assert bench.state.nodes["n1"].lease.clocks_mhz
    bench.stubborn["g10"] = 90.0  # under the lock nobody can see whether it would obey its cap
    for _ in range(110):
        acknowledge(bench)
        bench.tick(1.0)
    assert bench.state.nodes["n1"].lease.clocks_mhz
    del bench.stubborn["g10"]
    for _ in range(20):
        acknowledge(bench)
        bench.tick(1.0)
    assert not bench.state.nodes["n1"].lease.clocks_mhz
    assert not bench.state.gpus["g10"].astray
    assert len(set(limits(bench).values())) == 1


def test_a_limit_that_its_driver_refuses_is_told_apart_from_one_that_is_ignored(bench) -> None:
    bench.start_job(tier=Tier.FLEX_3, pausable=False)
    bench.stubborn["g10"] = 380.0
    bench.post(bench.signal(depth=0.25))
    for _ in range(60):
        for node_id, node in bench.state.nodes.items():
            results = tuple(
                GpuResult(g, w, None if g == "g10" else w, "device-error" if g == "g10" else None)
                for g, w in node.limits_watts.items()
            )
            ack = Acknowledged(
                node_id, 1, node.sequence, node.decision_id, results, True, bench.now().wall
            )
            bench.post(ack)
        bench.tick(0.1)
    assert bench.state.gpus["g10"].follow.astray == "refused"
    assert rungs(bench) == []  # a deeper cap would be refused, too, and it has no clock lock
    assert bench.state.meter_watts <= event(bench).limit_watts * 1.01
    assert job(bench).plan_reason.startswith("Cap")  # of the three that do follow
