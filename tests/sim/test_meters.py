"""The meter fails in mid-event: another speaks, the promise is kept, and everybody is told."""

from collections.abc import Callable

import pytest

from gridaware.control.codec import decode_stimulus
from gridaware.control.meters import DEVICE_SUM_ACCURACY
from gridaware.control.replay import rebuild
from gridaware.domain.reading import Quality
from gridaware.planning.tracking import MARGIN
from gridaware.sim.meter import MeterFault
from gridaware.sim.world import World, WorldMeter
from gridaware.wiring.settle import Settler

Ask = Callable[..., object]
BACKUP_ACCURACY = 0.01
METERS = (WorldMeter("main"), WorldMeter("backup", 0.994, BACKUP_ACCURACY))
"""The backup shows 0.6 % too little, within its class."""


@pytest.fixture
def make_metered(make_world: Callable[..., World]) -> Callable[..., World]:
    """The usual world, with a second meter."""
    return lambda seed=1: make_world(seed, METERS)


def mean_watts(world: World, seconds: float) -> float:
    before = world.window.header.true_site_joules
    world.run(seconds)
    return (world.window.header.true_site_joules - before) / seconds


def settled(world: World) -> Settler:
    """What the controller's book-keeper makes of the world's ledger."""
    settler = Settler(world.spec.site.overhead)
    rebuild(world.book, None, world.ledger.entries, settler.watch)
    return settler


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (MeterFault.PHASE_LOST, "meter-implausible"),
        pytest.param(MeterFault.SILENT, "meter-silent", marks=pytest.mark.slow),
        pytest.param(MeterFault.GARBAGE, "meter-implausible", marks=pytest.mark.slow),
        pytest.param(MeterFault.KILOWATTS, "meter-implausible", marks=pytest.mark.slow),
    ],
)
def test_a_meter_that_fails_while_the_site_holds_costs_no_promise(
    make_metered: Callable[..., World], ask: Ask, fault: MeterFault, problem: str
) -> None:
    world = make_metered()
    world.signal("f", "e", ask(world, 0.3, seconds=180.0))
    world.run(30)
    state = world.control.machine.state
    limit = state.events["f.e"].event.limit_watts
    assert state.reading.meter == "main"
    assert state.tracker.margin < 0.006
    world.meters["main"].fault = fault
    world.run(15)
    state = world.control.machine.state
    assert (state.reading.meter, state.reading.quality) == ("backup", Quality.GOOD)
    assert f"{problem}/main" in state.alarms
    assert "meter-changed" in [alarm.code for alarm in world.alarms]
    assert state.tracker.margin >= MARGIN + BACKUP_ACCURACY - 0.002  # wider by the difference
    assert mean_watts(world, 60) <= 1.006 * limit
    world.meters["main"].fault = MeterFault.NONE
    world.run(30)
    state = world.control.machine.state
    assert state.reading.meter == "main"
    assert not [key for key in state.alarms if key.startswith(problem)]
    assert len([alarm for alarm in world.alarms if alarm.code == "meter-changed"]) == 2
    world.run(90)
    report = settled(world).report(state, "f.e", final=True, at=world.clock.wall())
    assert report is not None
    window = [row for row in report.evidence if row.series == "meter, event window"]
    assert [row.meter for row in window] == ["main", "backup", "main"]
    assert [row.accuracy_share for row in window] == [0.002, BACKUP_ACCURACY, 0.002]
    assert {(row.method, row.boundary) for row in window} == {("meter", "site")}
    assert "meter-changed" in report.warnings
    assert "meter-part-device-sum" not in report.warnings
    assert [use.meter for use in report.energy.meters] == ["main", "backup"]


@pytest.mark.slow
def test_without_any_meter_the_devices_stand_in_with_more_margin_and_the_report_says_so(
    make_metered: Callable[..., World], ask: Ask
) -> None:
    world = make_metered(2)
    world.signal("f", "e", ask(world, 0.3, seconds=150.0))
    world.run(30)
    limit = world.control.machine.state.events["f.e"].event.limit_watts
    for meter in world.meters.values():
        meter.fault = MeterFault.SILENT
    world.run(12)
    state = world.control.machine.state
    assert (state.reading.meter, state.reading.quality) == ("device_sum", Quality.SUSPECT)
    assert {"meter-silent/main", "meter-silent/backup"} <= set(state.alarms)
    assert state.tracker.margin >= MARGIN + DEVICE_SUM_ACCURACY - 0.002 - 1e-9
    assert mean_watts(world, 60) <= 1.01 * limit
    for meter in world.meters.values():
        meter.fault = MeterFault.NONE
    world.run(120)
    state = world.control.machine.state
    report = settled(world).report(state, "f.e", final=True, at=world.clock.wall())
    assert report is not None
    assert {"meter-changed", "meter-part-device-sum"} <= set(report.warnings)
    assert "meter-is-device-sum" not in report.warnings
    assert report.energy.meter_method == "mixed"
    methods = {row.method for row in report.evidence if row.series == "meter, event window"}
    assert methods == {"meter", "device_sum"}
    spoken = {use.method: use.seconds for use in report.energy.meters}
    assert 60.0 < spoken["device_sum"] < 100.0


@pytest.mark.slow
def test_a_stuck_meter_is_found_out_when_the_site_comes_down(
    make_metered: Callable[..., World], ask: Ask
) -> None:
    world = make_metered(3)
    world.meters["main"].fault = MeterFault.STUCK
    world.run(5)
    world.signal("f", "e", ask(world, 0.3, seconds=120.0))
    world.run(25)
    state = world.control.machine.state
    assert "meter-stuck/main" in state.alarms
    assert state.reading.meter == "backup"
    assert mean_watts(world, 60) <= 1.006 * state.events["f.e"].event.limit_watts


def test_what_was_ledgered_before_meters_had_names_is_replayed(
    make_metered: Callable[..., World], ask: Ask
) -> None:
    world = make_metered(4)
    world.signal("f", "e", ask(world, 0.3, seconds=30.0))
    world.run(60)
    for kind, body in world.ledger.entries:
        if kind == "stimulus" and body["type"] == "Tick":
            seen = body["value"]["observation"]
            del seen["meters"]
            for name in ("meter", "accuracy_share", "age_seconds"):
                del seen["meter"][name]
            tick, _ = decode_stimulus(body)
            assert tick.observation.meters == ()
    run = rebuild(world.book, None, world.ledger.entries)
    track = run.machine.state.events["f.e"]
    assert track.event.started_at is not None
    assert run.machine.state.meters == ()


def test_one_meter_and_no_fault_is_what_it_always_was(make_world: Callable[..., World]) -> None:
    world = make_world(5)
    state = world.control.machine.state
    assert world.spec.meters == (WorldMeter(),)
    assert (state.reading.meter, state.reading.quality) == ("main", Quality.GOOD)
    assert state.meter_watts == pytest.approx(world.window.header.true_site_watts, rel=0.006)
