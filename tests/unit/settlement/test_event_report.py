"""An event worked by hand: 100 kW before, 60 kW owed, and what the report says of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gridaware.domain.errors import InvalidInput, NotFound
from gridaware.domain.event import Clocks, EventState, GridEvent, Reference
from gridaware.domain.job import JobState
from gridaware.domain.programme import Programme
from gridaware.domain.signal import EventRequest, Quantity, TargetSpec
from gridaware.domain.stepseries import StepSeries
from gridaware.domain.target import Overhead, Ramp
from gridaware.settlement.attribution import EnergyBook
from gridaware.settlement.baselines import BASELINES, History, reference_for
from gridaware.settlement.baselines.meter_before_after import meter_after_watts
from gridaware.settlement.event_report import EventInputs, settle_event
from gridaware.settlement.impact import PauseEvidence
from gridaware.settlement.response import NodeClock

NOTICE = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
START = NOTICE + timedelta(seconds=60)
END = START + timedelta(seconds=600)
PROGRAMME = Programme("peak", deadline_seconds=60, settlement_interval_seconds=60)


def event(**changes):
    base = GridEvent(
        event_id="webhook.e1",
        feed_id="webhook",
        programme_id="peak",
        source_id="e1",
        revision=1,
        request=EventRequest(START, END, TargetSpec(Quantity.REDUCTION_FRACTION, 0.4)),
        state=EventState.RESTORED,
        reason="LimitsRestored",
        received_at=NOTICE,
        state_since=END,
        clocks=Clocks(10.0, 10.004, 10.021, 10.4),
        reference=Reference(100_000.0, "meter_before_after", NOTICE, 300.0),
        limit_watts=60_000.0,
        started_at=START,
        released_at=END,
        restored_at=END + timedelta(seconds=120),
    )
    return replace(base, **changes)


def meter(held_watts=58_000.0, back_watts=100_000.0, fall=30, rise=60):
    """100 kW until the start, a straight ramp down, held, and a straight ramp up."""
    at = START.timestamp()
    corners = [
        (at - 900, 100_000.0),
        (at, 100_000.0),
        (at + fall, held_watts),
        (at + 600, held_watts),
        (at + 600 + rise, back_watts),
        (at + 1500, back_watts),
    ]
    line = StepSeries.sampled(corners)
    seconds = range(int(at - 900), int(at + 1500))
    return StepSeries.sampled([(float(t), line.value_at(t)) for t in seconds], 5.0)


@pytest.fixture
def snapshots(site, make_job):
    """Job *fast* loses a quarter of its pace; job *slow* is paused all along."""
    book = EnergyBook(Overhead(500.0, 1.0, "measured"))
    watts = {"a": 400.0, "b": 300.0}
    owners = {"a": "fast", "b": "slow"}
    running = [make_job("fast", gpus=("a",)), make_job("slow", gpus=("b",), team="vision")]
    for t in range(61):
        steps = {"fast": 2 * t, "slow": t}
        book.add(site.observe(watts, owners, steps=steps), running)
        if t < 60:
            site.advance(1.0, watts)
    before = book.snapshot()
    paused = [running[0], make_job("slow", JobState.PAUSED, team="vision", gpus=("b",))]
    for t in range(1, 101):
        site.advance(1.0, {"a": 300.0, "b": 60.0})
        steps = {"fast": 120 + int(1.5 * t)}
        book.add(site.observe({"a": 300.0, "b": 60.0}, {"a": "fast"}, steps=steps), paused)
    return before, book.snapshot()


def settle(snapshots, an_event=None, series=None, programme=PROGRAMME, **extra):
    before, after = snapshots
    series = meter() if series is None else series
    inputs = EventInputs(series, before, after, **extra)
    return settle_event(
        an_event or event(), programme, inputs, generated_at=END + timedelta(hours=1), final=True
    )


def test_delivery_against_what_was_owed(snapshots):
    report = settle(snapshots)
    # nine scored minutes: owed 40 kW, delivered 42 kW
    assert report.delivery.owed_kwh == pytest.approx(40 * 9 / 60)
    assert report.delivery.delivered_kwh == pytest.approx(42 * 9 / 60)
    assert report.delivery.performance_ratio == pytest.approx(1.05)
    # the first minute: 30 s of a ramp (mean 21 kW below) and 30 s at 42 kW
    assert report.delivery.delivered_in_ramp_kwh == pytest.approx(
        (21 * 30 + 42 * 30) / 3600, rel=1e-3
    )
    assert len(report.delivery.intervals) == 10
    assert [i.scored for i in report.delivery.intervals] == [False] + [True] * 9
    assert report.delivery.intervals[3].over_watts == pytest.approx(2000.0)
    assert report.delivery.intervals[3].shortfall_watts == 0.0
    assert report.delivery.mean_watts == pytest.approx(58_000.0)
    assert report.delivery.seconds_above_limit == 0.0
    assert report.delivery.intervals_missed == 0
    assert report.delivery.rebound_watts == pytest.approx(0.0, abs=1e-6)
    assert report.reference_after_watts == pytest.approx(100_000.0)
    assert report.warnings == ()


def test_the_four_clocks_become_milliseconds(snapshots):
    clocks = tuple(
        NodeClock(node, f"gpu{i}", at)
        for i, (node, at) in enumerate([("n0", 10.010), ("n0", 10.020), ("n1", None)])
    )
    report = settle(snapshots, node_clocks=clocks)
    assert report.latencies.decided_ms == pytest.approx(4.0)
    assert report.latencies.accepted_ms == pytest.approx(21.0)
    assert report.latencies.confirmed_ms == pytest.approx(400.0)
    first, second = report.nodes
    assert (first.gpus, first.accepted, first.slowest_ms) == (2, 2, pytest.approx(20.0))
    assert first.median_ms == pytest.approx(15.0)
    assert (second.node_id, second.accepted, second.slowest_ms) == ("n1", 0, None)


def test_a_shortfall_is_counted_by_interval_and_by_second(snapshots):
    report = settle(snapshots, series=meter(held_watts=61_000.0))
    assert report.delivery.performance_ratio == pytest.approx(39 / 40)
    assert report.delivery.intervals_missed == 9
    assert report.delivery.seconds_above_limit == pytest.approx(540.0)
    assert report.delivery.intervals[5].shortfall_watts == pytest.approx(1000.0)


def test_ramps_are_measured_against_their_limits(snapshots):
    # 42 kW in 60 s up; 42 kW in 30 s down
    report = settle(snapshots, ramp=Ramp(80_000.0, 45_000.0))
    assert report.rates.down_watts_per_minute == pytest.approx(84_000.0, rel=0.01)
    assert report.rates.up_watts_per_minute == pytest.approx(42_000.0, rel=0.01)
    assert report.rates.down_kept, "within the tolerance of the measurement"
    assert report.rates.up_kept
    assert not settle(snapshots, ramp=Ramp(None, 30_000.0)).rates.up_kept


def test_rebound_and_a_drifted_reference_are_shown(snapshots):
    report = settle(snapshots, series=meter(back_watts=115_000.0))
    assert report.delivery.rebound_watts == pytest.approx(15_000.0)
    assert report.reference_after_watts == pytest.approx(115_000.0)
    assert "reference-drifted" in report.warnings


def test_steps_lost_are_reference_rate_times_time_less_steps_done(snapshots):
    report = settle(snapshots)
    fast, slow = report.jobs
    assert fast.reference_steps_per_second == pytest.approx(2.0)
    assert (fast.steps_done, fast.alive_seconds) == (150, 100.0)
    assert fast.steps_lost == pytest.approx(50.0)
    assert fast.seconds_lost == pytest.approx(25.0)
    assert fast.throughput == pytest.approx(0.75)
    assert fast.energy_joules == pytest.approx(30_000.0)
    assert fast.mean_watts == pytest.approx(300.0)
    assert (slow.steps_done, slow.state) == (0, "paused")
    assert slow.seconds_lost == pytest.approx(100.0)
    assert slow.energy_joules == pytest.approx(0.0, abs=1e-6)
    assert slow.held_idle_joules == pytest.approx(6000.0)


def test_a_pause_is_proven_by_its_checkpoint(snapshots):
    pause = PauseEvidence("slow", "r1", 1, START, START, "/ckpt/140", 140, END, 140)
    assert settle(snapshots, pauses=(pause,)).pauses[0].steps_redone == 0
    assert replace(pause, step_resumed=120).steps_redone == 20
    assert replace(pause, step_resumed=None).steps_redone is None


def test_an_event_that_came_late_is_owed_from_its_arrival(snapshots):
    late = START + timedelta(seconds=100)
    report = settle(snapshots, event(received_at=late))
    assert report.window_start == late
    assert report.ready_at == late + timedelta(seconds=60)


def test_a_cancelled_or_open_event_is_owed_until_its_release(snapshots):
    request = replace(event().request, end=None)
    released = START + timedelta(seconds=300)
    report = settle(snapshots, event(request=request, released_at=released))
    assert report.window_end == released
    assert len(report.delivery.intervals) == 5


def test_a_window_shorter_than_the_deadline_is_not_scored(snapshots):
    report = settle(snapshots, programme=replace(PROGRAMME, deadline_seconds=900))
    assert report.delivery.performance_ratio is None
    assert report.warnings == ("window-shorter-than-deadline",)
    assert report.delivery.delivered_in_ramp_kwh > 6


def test_revised_limits_are_owed_as_they_stood(snapshots):
    at = START.timestamp()
    limits = StepSeries.held([(at, 60_000.0), (at + 300, 70_000.0)], at + 600)
    report = settle(snapshots, limit=limits)
    assert report.delivery.owed_kwh == pytest.approx((40 * 4 + 30 * 5) / 60)
    tight = StepSeries.held([(at, 60_000.0), (at + 300, 50_000.0)], at + 600)
    assert settle(snapshots, limit=tight).delivery.seconds_above_limit == pytest.approx(300.0)


def test_missing_meter_readings_deliver_nothing_and_are_said(snapshots):
    whole = meter()
    at = START.timestamp()
    kept = [
        (t, w) for t, w in zip(whole.times, whole.watts, strict=True) if not at + 120 < t < at + 240
    ]
    report = settle(snapshots, series=StepSeries.sampled(kept, 5.0))
    assert report.delivery.intervals[2].coverage == 0.0
    assert report.delivery.intervals[2].mean_watts is None
    assert report.delivery.intervals[2].delivered_watts == 0.0
    assert report.delivery.intervals[2].shortfall_watts == pytest.approx(40_000.0)
    assert "meter-incomplete" in report.warnings
    window = next(e for e in report.evidence if e.series == "meter, event window")
    assert window.readings == 600 - 119
    assert window.coverage == pytest.approx(0.8)


def test_warnings_name_authority_and_what_could_not_be_shed(snapshots):
    hard = event(clamped_from_watts=20_000.0, unresolved_watts=900.0)
    partial = replace(hard, reference=replace(hard.reference, quality="partial"))
    assert settle(snapshots, partial).warnings == (
        "reference-not-measured",
        "clamped-to-authority",
        "unresolved-watts",
    )


@pytest.mark.parametrize("missing", [{"reference": None}, {"limit_watts": None}])
def test_an_event_without_reference_or_limit_is_refused(snapshots, missing):
    with pytest.raises(InvalidInput) as refused:
        settle(snapshots, event(**missing))
    assert refused.value.code == "event-not-settleable"


def test_an_event_without_any_reading_is_refused(snapshots):
    with pytest.raises(InvalidInput) as refused:
        settle(snapshots, series=StepSeries.sampled([]))
    assert refused.value.code == "window-empty"


def test_the_reference_is_the_mean_before_the_first_notice():
    at = NOTICE.timestamp()
    series = StepSeries.sampled([(at - 600, 80_000.0), (at - 300, 80_000.0), (at, 100_000.0)])
    reference = reference_for("meter_before_after", History(series, NOTICE, 300.0))
    assert reference.watts == pytest.approx(90_000.0)
    assert (reference.quality, reference.method) == ("measured", "meter_before_after")
    assert reference.frozen_at == NOTICE
    short = reference_for("meter_before_after", History(series, NOTICE, 900.0))
    assert short.quality == "partial"
    assert short.watts == pytest.approx((80_000 * 300 + 90_000 * 300) / 600)


def test_a_reference_without_readings_is_refused():
    empty = StepSeries.sampled([])
    with pytest.raises(InvalidInput) as refused:
        reference_for("meter_before_after", History(empty, NOTICE))
    assert refused.value.code == "baseline-no-readings"
    with pytest.raises(NotFound, match="meter_before_after"):
        reference_for("meter_before_aftr", History(empty, NOTICE))
    assert "meter_before_after" in BASELINES


def test_the_mean_after_waits_until_its_window_is_complete():
    series = StepSeries.sampled([(0.0, 50.0), (100.0, 50.0)])
    assert meter_after_watts(series, 20.0, 60.0) == 50.0
    assert meter_after_watts(series, 70.0, 60.0) is None


def test_a_report_names_the_rules_of_its_day_and_what_the_programme_settles_by(snapshots):
    plain = settle(snapshots)
    assert (plain.programme_version, plain.voluntary, plain.tariff_baseline) == ("", "", "")
    assert "baseline-not-programmes" not in plain.warnings
    rules = replace(PROGRAMME, version="2027/28", tariff_baseline="pjm_fsl_or_gld")
    report = settle(snapshots, replace(event(), voluntary="OutsideObligation"), programme=rules)
    assert report.programme_version == "2027/28"
    assert report.voluntary == "OutsideObligation"
    assert report.tariff_baseline == "pjm_fsl_or_gld"
    assert "baseline-not-programmes" in report.warnings
