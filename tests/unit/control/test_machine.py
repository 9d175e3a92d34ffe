"""The machine, stimulus by stimulus: events, nodes, feeds and what is refused."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gridaware.control.instructions import (
    Alarm,
    Decide,
    SampleAt,
    SendCheckpoint,
    SendLease,
    SettleEvent,
    TellFeed,
)
from gridaware.control.preview import preview
from gridaware.control.signals import OPEN_EVENTS, OPEN_EVENTS_OF_FEED
from gridaware.control.site import Policy
from gridaware.control.stimuli import (
    Dispatched,
    EventCommanded,
    FeedAdded,
    FeedRemoved,
    InputRefused,
    NodeCommanded,
    NodeLost,
    SignalReceived,
    Started,
)
from gridaware.domain.errors import Bug
from gridaware.domain.event import EventState
from gridaware.domain.job import JobState, Tier
from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.domain.programme import FeedSpec
from gridaware.domain.reading import Boundary, Method, Quality, Reading
from gridaware.domain.target import HardLimit, Ramp
from gridaware.domain.wire import Acknowledged, GpuResult, NodeFault


def acknowledge(bench, error: str | None = None) -> None:
    """Every node reads back what it was told last."""
    for node_id, node in bench.state.nodes.items():
        results = tuple(
            GpuResult(g, watts, None if error else watts, error)
            for g, watts in node.limits_watts.items()
        )
        ack = Acknowledged(
            node_id, bench.state.controller_epoch, node.sequence, node.decision_id, results, True,
            bench.now().wall,
        )  # fmt: skip
        bench.post(ack)


def event(bench, name: str = "f.e"):
    return bench.state.events[name].event


def test_what_nothing_handles_is_a_bug(bench) -> None:
    with pytest.raises(Bug) as bug:
        bench.post(object())
    assert bug.value.code == "stimulus-unhandled"


def test_refused_input_is_only_written_down(bench) -> None:
    before = repr(bench.state)
    assert bench.post(InputRefused("feed:f", "signature-bad", "words")) == []
    assert repr(bench.state) == before


def test_feeds_are_added_once_replaced_and_removed(bench) -> None:
    spec = FeedSpec("new", "webhook", "p")
    assert bench.answer(FeedAdded(spec, "u")).disposition == "accepted"
    assert bench.answer(FeedAdded(spec, "u")).disposition == "duplicate"
    assert bench.answer(FeedAdded(replace(spec, kind="file"), "u")).disposition == "accepted"
    assert bench.answer(FeedRemoved("new", "u")).disposition == "accepted"
    assert bench.code(FeedRemoved("new", "u")) == "feed-unknown"
    assert bench.code(bench.signal(feed="new")) == "feed-unknown"


def test_commands_for_events_that_are_not_open_are_refused(bench) -> None:
    assert bench.code(EventCommanded("f.e", "cancel", "u")) == "event-unknown"
    bench.post(bench.signal(start=600.0))
    assert bench.answer(EventCommanded("f.e", "cancel", "u")).disposition == "accepted"
    assert bench.code(EventCommanded("f.e", "opt-out", "u")) == "event-closed"
    assert event(bench).state is EventState.CANCELLED
    assert [t.status for t in bench.of(TellFeed)] == ["opted-in", "cancelled"]


def test_a_cancelled_event_hears_duplicate_and_refuses_revisions(bench) -> None:
    bench.post(bench.signal(start=600.0))
    bench.post(bench.signal(revision=2, depth=None))
    assert bench.answer(bench.signal(revision=3, depth=None)).disposition == "duplicate"
    assert bench.code(bench.signal(revision=4, start=600.0)) == "event-closed"


def test_a_revision_into_the_past_is_refused_before_the_event_acts(bench) -> None:
    bench.post(bench.signal(start=600.0))
    assert bench.code(bench.signal(revision=2, start=-60.0, seconds=30.0)) == "event-over"


def test_events_wait_for_a_first_reading(make_bench, book) -> None:
    bench = make_bench()
    bench.state.meter.clear()
    bench.post(bench.signal())
    assert event(bench).state is EventState.SCHEDULED
    assert event(bench).reference is None
    bench.ticks(2)
    assert event(bench).reference is not None
    assert event(bench).state in {EventState.RAMPING_DOWN, EventState.HOLDING}


def test_a_window_that_passed_while_nobody_looked_is_missed_and_still_settled(bench) -> None:
    bench.post(bench.signal(start=5.0, seconds=10.0))
    bench.stepped = timedelta(hours=1)
    made = bench.tick()
    assert (event(bench).state, event(bench).reason) == (EventState.SETTLED, "WindowMissed")
    assert bench.of(SettleEvent, made) == [SettleEvent("f.e", True)]


def test_hours_and_notice_of_a_feeds_authority_clamp_the_window(bench) -> None:
    first = bench.signal(feed="hours", seconds=3000.0)
    assert bench.answer(first).disposition == "accepted"
    second = bench.signal("e2", feed="hours", start=4000.0, seconds=1200.0)
    assert bench.answer(second).disposition == "clamped"
    clamped = event(bench, "hours.e2")
    assert clamped.request.end - clamped.request.start == timedelta(seconds=600)
    third = bench.signal("e3", feed="hours", start=6000.0, seconds=60.0)
    assert bench.code(third) == "beyond-authority"
    longer = bench.signal(revision=2, feed="hours", seconds=9000.0)
    assert bench.answer(longer).disposition == "clamped"
    assert (
        bench.answer(bench.signal("late", feed="notice", seconds=1200.0)).disposition == "clamped"
    )
    begins = event(bench, "notice.late").request.start
    assert begins == bench.now().wall + timedelta(seconds=600)
    assert bench.code(bench.signal("short", feed="notice", seconds=60.0)) == "beyond-authority"
    revised = bench.signal("late", revision=2, feed="notice", seconds=60.0)
    assert bench.code(revised) == "beyond-authority"


def test_a_flood_of_events_is_refused_and_shuts_out_no_other_feed(bench) -> None:
    for number in range(OPEN_EVENTS_OF_FEED):
        bench.post(bench.signal(f"e{number}", start=600.0))
    assert bench.code(bench.signal("more", start=600.0)) == "events-too-many"
    for number in range(OPEN_EVENTS - OPEN_EVENTS_OF_FEED):
        other = bench.signal(f"e{number}", start=900.0, feed="notice")
        assert bench.answer(other).disposition == "accepted"
    assert bench.code(bench.signal("more", start=900.0, feed="notice")) == "events-too-many"


def test_clocks_stop_when_frames_left_limits_were_read_back_and_power_stayed(bench) -> None:
    bench.start_job()
    bench.post(bench.signal(depth=0.3))
    decide = bench.of(Decide)[-1]
    bench.seconds += 0.01
    bench.post(Dispatched(decide.decision_id))
    bench.seconds += 0.02
    acknowledge(bench)
    for gpu_id in bench.owners:
        bench.watts[gpu_id] = bench.state.nodes["n1"].limits_watts[gpu_id] * 0.8
    bench.ticks(4)
    clocks = event(bench).clocks
    received = clocks.received_seconds
    assert clocks.decided_seconds == pytest.approx(received + 0.01)
    assert clocks.accepted_seconds == pytest.approx(received + 0.03)
    assert clocks.confirmed_seconds == pytest.approx(received + 1.03)
    assert event(bench).state is EventState.HOLDING


def test_a_limit_that_was_not_taken_is_alarmed_and_never_accepted(bench) -> None:
    bench.start_job()
    bench.post(bench.signal(depth=0.3))
    bench.post(Dispatched(bench.of(Decide)[-1].decision_id))
    acknowledge(bench, error="device-error")
    assert event(bench).clocks.accepted_seconds is None
    alarmed = {a.subject for a in bench.of(Alarm) if a.code == "limit-not-set"}
    assert alarmed == set(bench.owners)
    bench.ticks(2)  # no cap sheds anything there: the job is asked to leave
    assert bench.state.jobs["j"].job.state is JobState.PAUSING
    acknowledge(bench)
    assert event(bench).clocks.accepted_seconds is not None


def test_watts_that_cannot_be_shed_are_said_and_then_calm(bench) -> None:
    bench.start_job(tier=Tier.FIRM)
    bench.post(bench.signal(depth=0.9))
    assert bench.state.unresolved_watts > 0
    assert bench.state.firm_floor_broken
    assert {"unresolved-watts", "firm-floor-broken"} <= {a.code for a in bench.of(Alarm)}
    assert event(bench).unresolved_watts == bench.state.unresolved_watts
    bench.post(bench.signal(revision=2, depth=None))
    acknowledge(bench)
    bench.ticks(2)
    assert not bench.state.firm_floor_broken
    assert bench.state.unresolved_watts == 0.0
    assert not [a for a in bench.state.alarms if a.startswith(("unresolved", "firm"))]


def test_an_old_controllers_acknowledgement_counts_for_nothing(bench) -> None:
    bench.start_job()
    bench.post(bench.signal(depth=0.3))
    node = bench.state.nodes["n1"]
    bench.post(Acknowledged("n1", 0, node.sequence, "d", (), True, bench.now().wall))
    bench.post(Acknowledged("n9", 1, 1, "d", (), True, bench.now().wall))
    assert node.acked_sequence < node.sequence


def test_sequences_go_on_under_a_new_controller(bench) -> None:
    bench.start_job()
    bench.post(bench.signal(depth=0.3))
    before = bench.state.nodes["n1"].sequence
    bench.post(Dispatched(bench.of(Decide)[-1].decision_id))
    bench.post(Started(2))
    assert not bench.state.nodes["n1"].node.connected
    lease = bench.state.nodes["n1"].lease
    for node in (1, 2):
        bench.hello(node, lease=lease if node == 1 else None, lease_left_seconds=50.0)
    assert bench.state.nodes["n1"].sequence > before
    acknowledge(bench)
    assert event(bench).clocks.accepted_seconds is not None


def test_an_agent_on_its_own_way_back_is_left_alone(bench) -> None:
    lease = Lease("d0-9", (("g10", 200.0),), 60.0, RestoreSlot(0.0, 60.0), event_ids=("f.x",))
    made = bench.hello(1, lease=lease, lease_left_seconds=0.0)
    assert bench.of(SendLease, made) == []
    assert bench.state.nodes["n1"].limits_watts == {}
    bench.ticks(3)
    assert bench.of(SendLease)[2:] == []  # the first two answered the first hellos


def test_an_agent_that_holds_a_lost_decision_is_believed(bench) -> None:
    lease = Lease("d0-9", (("g10", 200.0),), None, event_ids=("f.x",))
    made = bench.hello(1, lease=lease)
    assert [a.code for a in bench.of(Alarm, made)] == ["decision-recovered"]
    assert bench.state.nodes["n1"].limits_watts == {"g10": 200.0}
    assert bench.of(SendLease, made)[0].lease == lease


def test_nodes_are_lost_found_cordoned_and_their_faults_told(bench) -> None:
    bench.post(NodeLost("n9"))
    bench.post(NodeLost("n2"))
    assert not bench.state.nodes["n2"].node.connected
    assert "node-lost/n2" in bench.state.alarms
    gpus = bench.state.nodes["n2"].node.gpus
    bench.hello(2, gpus=(*gpus[:2], replace(gpus[2], can_set=False)))
    assert "node-lost/n2" not in bench.state.alarms
    assert {"gpu-lost/g23", "device-no-permission/n2"} <= bench.state.alarms.keys()
    assert "g23" not in bench.state.gpus
    bench.hello(2)
    assert "gpu-lost/g23" not in bench.state.alarms
    assert bench.code(NodeCommanded("n9", "cordon", "u")) == "node-unknown"
    bench.post(NodeCommanded("n1", "cordon", "u"))
    assert bench.state.nodes["n1"].node.cordoned
    bench.post(NodeFault("n1", "limit-drift", "g10", "words"))
    bench.post(NodeFault("n1", "journal-write", None, "words"))
    assert {"limit-drift/g10", "journal-write/n1"} <= bench.state.alarms.keys()


def test_a_quiet_node_is_not_believed_and_a_missing_gpu_draws_nothing_known(bench) -> None:
    bench.start_job()
    bench.quality = Quality.MISSING
    bench.tick()
    assert bench.state.gpus["g10"].power_watts == 0.0
    bench.quality = Quality.GOOD
    made = bench.tick()
    observation = bench.posted[-1][0].observation
    nodes = tuple(replace(node, age_seconds=9.0) for node in observation.nodes)
    made = bench.tick(nodes=nodes)
    assert {a.code for a in bench.of(Alarm, made)} == {"node-silent"}
    bench.tick()
    assert "node-silent/n1" not in bench.state.alarms


def test_a_silent_meter_is_alarmed_and_replaced_with_what_was_learned(make_bench) -> None:
    bench = make_bench()
    for _ in range(60):  # the meter sees 100 W more than the GPUs
        wall = bench.now().wall
        total = sum(bench.watts.values())
        bench.tick(meter=Reading(total + 100.0, wall, Boundary.SITE, Method.METER))
    assert bench.state.meter_watts == pytest.approx(580.0)
    silent = Reading(480.0, bench.now().wall, Boundary.SITE, Method.DEVICE_SUM, Quality.SUSPECT)
    made = bench.tick(meter=silent)
    assert [a.code for a in bench.of(Alarm, made)] == ["meter-silent"]
    assert bench.state.meter_watts == pytest.approx(580.0, rel=0.01)


def test_the_world_is_read_fast_around_commands(bench) -> None:
    bench.start_job()
    bench.post(bench.signal(depth=0.3))
    bench.ticks(15)
    assert [i.hz for i in bench.of(SampleAt)] == [10.0, 1.0]


def test_the_way_down_and_up_keep_the_sites_ramp(make_bench) -> None:
    bench = make_bench(ramp=Ramp(6000.0, 6000.0))
    bench.start_job()
    full = bench.state.meter_watts
    bench.post(bench.signal(depth=0.3, seconds=30.0))
    assert bench.state.target_watts == pytest.approx(full, rel=1e-3)
    bench.ticks(3)
    assert bench.state.target_watts == pytest.approx(full - 300.0, rel=1e-3)
    bench.post(bench.signal(revision=2, depth=0.1, seconds=30.0))
    bench.tick()
    low = bench.state.meter_watts
    bench.post(bench.signal(revision=3, depth=None))
    bench.tick()
    assert bench.state.target_watts is not None
    assert bench.state.target_watts <= low + 101.0


def test_a_milder_event_after_a_deep_one_is_reached_by_the_ramp(make_bench) -> None:
    bench = make_bench(ramp=Ramp(None, 600.0))
    bench.start_job()
    bench.post(bench.signal("deep", depth=0.4, seconds=600.0))
    bench.post(bench.signal("mild", depth=0.1, seconds=600.0))
    bench.ticks(2)
    for gpu_id in bench.owners:
        bench.watts[gpu_id] = bench.state.nodes["n1"].limits_watts[gpu_id] * 0.9
    bench.ticks(2)
    deep = bench.state.meter_watts
    bench.post(bench.signal("deep", revision=2, depth=None))
    bench.ticks(2)
    assert deep < bench.state.target_watts < deep + 50.0  # 10 W a second


def test_two_programmes_bind_by_the_strictest_and_later_events_join_the_decision(bench) -> None:
    bench.start_job()
    bench.post(bench.signal("one", depth=0.1, seconds=600.0))
    bench.post(bench.signal("two", depth=0.3, seconds=600.0, feed="admin"))
    reference = event(bench, "f.one").reference.watts
    assert bench.state.target_watts == pytest.approx(0.7 * reference)
    assert bench.of(Decide)[-1].event_ids == ("f.one", "admin.two")


def test_a_connection_limit_stands_without_events(make_bench) -> None:
    bench = make_bench(hard_limit=HardLimit(1500.0))
    bench.start_job(tier=Tier.FLEX_2)
    bench.tick()
    acknowledge(bench)
    lease = bench.state.nodes["n1"].lease
    assert lease.standing_watts
    assert not lease.limits_watts
    bench.leave("j")
    bench.ticks(3)
    assert bench.state.nodes["n1"].lease.standing_watts == ()


def test_a_preview_says_what_would_happen_and_changes_nothing(bench) -> None:
    bench.start_job()
    before = repr(bench.state)
    shown = preview(bench.machine, bench.signal(depth=0.3, start=600.0).signal, bench.now())
    assert repr(bench.state) == before
    assert shown["disposition"] == "accepted"
    assert shown["target_watts"] == pytest.approx(0.7 * shown["power_watts"], rel=0.2)
    # What is asked is taken off the reference, which is shown beside it.
    assert shown["target_watts"] == pytest.approx(0.7 * shown["reference_watts"], rel=1e-4)
    assert [row["job_id"] for row in shown["jobs"]] == ["j"]
    assert shown["jobs"][0]["why"]
    refused = preview(bench.machine, bench.signal(feed="none").signal, bench.now())
    assert (refused["disposition"], refused["code"], refused["jobs"]) == (
        "refused",
        "feed-unknown",
        [],
    )
    endless = preview(bench.machine, bench.signal(seconds=None).signal, bench.now())
    assert endless["disposition"] == "accepted"
    cancel = preview(bench.machine, bench.signal(depth=None).signal, bench.now())
    assert cancel["target_watts"] is None


def test_a_signal_of_an_admin_needs_no_feed(bench) -> None:
    signal = bench.signal(feed="admin", start=600.0)
    assert isinstance(signal, SignalReceived)
    assert bench.answer(signal).disposition == "accepted"


def unmanaged(bench, *gpu_ids: str) -> None:
    """One reading in which strangers work on those GPUs."""
    for gpu_id in gpu_ids:
        bench.watts[gpu_id] = 390.0
    bench.tick()
    nodes = tuple(
        replace(n, gpus=tuple(replace(g, unmanaged=g.gpu_id in gpu_ids) for g in n.gpus))
        for n in bench.posted[-1][0].observation.nodes
    )
    bench.tick(nodes=nodes)


@pytest.mark.parametrize(("tier", "capped"), [(None, False), (Tier.FLEX_3, True)])
def test_strangers_are_capped_only_where_the_policy_says_so(make_bench, tier, capped) -> None:
    bench = make_bench(policy=Policy(unmanaged_tier=tier))
    for _ in range(12):
        unmanaged(bench, "g10", "g11")
    bench.post(bench.signal(depth=0.2))
    limits = bench.state.nodes["n1"].limits_watts
    assert set(limits) == ({"g10", "g11"} if capped else set())
    assert bench.state.unresolved_watts == 0.0 if capped else bench.state.unresolved_watts > 0
    assert not bench.of(SendCheckpoint)
