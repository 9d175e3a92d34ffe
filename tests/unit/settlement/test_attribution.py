"""Who drew it: closed forms on a tiny site, and conservation whatever happens."""

from dataclasses import replace
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridaware.domain.errors import InvalidInput
from gridaware.domain.job import JobState
from gridaware.domain.reading import Quality
from gridaware.domain.target import Overhead
from gridaware.settlement.attribution import EnergyBook
from gridaware.settlement.counter import Flag
from gridaware.settlement.energy_report import energy_report

FIXED = Overhead(500.0, 1.0, "measured")


def lines(report):
    return {line.name: line.joules for line in report.lines}


def test_every_joule_has_one_line(site, make_job):
    """Two jobs, a paused one, a foreign process, a free GPU: ten seconds of each."""
    watts = {"a": 300.0, "b": 200.0, "c": 60.0, "d": 250.0, "e": 50.0}
    jobs = [
        make_job("one", gpus=("a",)),
        make_job("two", gpus=("b",), team="vision"),
        make_job("held", JobState.PAUSED, gpus=("c",)),
    ]
    book = EnergyBook(FIXED)
    for _ in range(11):
        book.add(site.observe(watts, {"a": "one", "b": "two"}, unmanaged={"d"}), jobs)
        if site.at == 1000.0:
            start = book.snapshot()
        site.advance(1.0, watts)
    report = energy_report(start, book.snapshot())
    assert lines(report) == pytest.approx(
        {
            "job": 5000.0,
            "held_idle": 600.0,
            "unallocated": 500.0,
            "unmanaged": 2500.0,
            "overhead": 5000.0,
            "unexplained": 0.0,
        }
    )
    assert report.meter.joules == pytest.approx(13600.0)
    assert {t.team: t.kwh * 3.6e6 for t in report.teams} == pytest.approx(
        {"ml": 3600.0, "vision": 2000.0}
    )
    held = next(j for j in report.jobs if j.job_id == "held")
    assert held.held_idle.joules == pytest.approx(600.0)
    assert held.running.joules == 0.0
    assert report.meter.method == "counter"
    assert report.warnings == ()


def test_what_no_model_explains_is_named_and_not_spread(site, make_job):
    watts = {"a": 300.0}
    book = EnergyBook(Overhead(300.0, 1.0))
    book.add(site.observe(watts, {"a": "one"}), [make_job("one", gpus=("a",))])
    start = book.snapshot()
    site.advance(10.0, watts)
    book.add(site.observe(watts, {"a": "one"}), [make_job("one", gpus=("a",))])
    report = energy_report(start, book.snapshot())
    assert lines(report)["job"] == pytest.approx(3000.0)
    assert lines(report)["unexplained"] == pytest.approx(2000.0)
    assert "overhead-assumed" in report.warnings


def test_a_shared_gpu_is_split_by_shares_and_counted_once(site, make_job):
    """NVIDIA/dcgm-exporter#317: rows of one UUID repeat the whole board's power."""
    site.overhead_watts = 0.0
    book = EnergyBook()
    jobs = [make_job("one", gpus=("a",)), make_job("two", gpus=("a",))]
    shares = {"a": [("one", 0.5), ("two", 0.25)]}
    book.add(site.observe({"a": 400.0}, shares), jobs)
    start = book.snapshot()
    site.advance(10.0, {"a": 400.0})
    book.add(site.observe({"a": 400.0}, shares), jobs)
    report = energy_report(start, book.snapshot())
    assert {j.job_id: j.running.joules for j in report.jobs} == pytest.approx(
        {"one": 2000.0, "two": 1000.0}
    )
    assert lines(report)["unallocated"] == pytest.approx(1000.0)
    assert report.gpus[0].joules == pytest.approx(4000.0)


def test_shares_above_one_are_scaled_back(site, make_job):
    site.overhead_watts = 0.0
    book = EnergyBook()
    jobs = [make_job("one", gpus=("a",)), make_job("two", gpus=("a",))]
    shares = {"a": [("one", 1.0), ("two", 1.0)]}
    book.add(site.observe({"a": 400.0}, shares), jobs)
    start = book.snapshot()
    site.advance(10.0, {"a": 400.0})
    book.add(site.observe({"a": 400.0}, shares), jobs)
    report = energy_report(start, book.snapshot())
    assert [j.running.joules for j in report.jobs] == pytest.approx([2000.0, 2000.0])


def test_a_gpu_that_changes_hands_is_halved_and_the_band_covers_either(site, make_job):
    jobs = [make_job("one", gpus=("a",)), make_job("two", gpus=("a",))]
    book = EnergyBook(FIXED)
    book.add(site.observe({"a": 400.0}, {"a": "one"}), jobs)
    start = book.snapshot()
    site.advance(1.0, {"a": 400.0})
    book.add(site.observe({"a": 400.0}, {"a": "two"}), jobs)
    report = energy_report(start, book.snapshot())
    for row in report.jobs:
        assert row.running.joules == pytest.approx(200.0)
        assert row.running.band_joules >= 200.0
        assert Flag.OWNER_UNCERTAIN in row.running.flags
    assert lines(report)["job"] == pytest.approx(400.0)


def test_the_energy_between_two_readings_tells_when_a_job_began(site, make_job):
    """0.3 s idle at 60 W and 0.7 s of the job at 360 W, seen only before and after."""
    book = EnergyBook(FIXED)
    jobs = [make_job("one", gpus=("a",))]
    book.add(site.observe({"a": 60.0}), jobs)
    start = book.snapshot()
    site.advance(0.3, {"a": 60.0})
    site.advance(0.7, {"a": 360.0})
    book.add(site.observe({"a": 360.0}, {"a": "one"}), jobs)
    report = energy_report(start, book.snapshot())
    assert report.jobs[0].running.joules == pytest.approx(252.0)
    assert lines(report)["unallocated"] == pytest.approx(18.0)
    assert report.jobs[0].running.band_joules >= 252.0, "the readings alone do not prove it"


def test_a_starting_job_pays_for_what_it_holds(site, make_job):
    starting = make_job("new", JobState.STARTING, gpus=("a",))
    book = EnergyBook(FIXED)
    book.add(site.observe({"a": 50.0}), [starting])
    start = book.snapshot()
    site.advance(10.0, {"a": 50.0})
    book.add(site.observe({"a": 50.0}), [starting])
    report = energy_report(start, book.snapshot())
    assert report.jobs[0].held_idle.joules == pytest.approx(500.0)
    assert report.jobs[0].job_id == "new"


def test_a_silent_node_is_a_gap_that_the_counter_closes(site, make_job):
    jobs = [make_job("one", gpus=("a",))]
    book = EnergyBook(FIXED)
    book.add(site.observe({"a": 300.0}, {"a": "one"}), jobs)
    start = book.snapshot()
    for _ in range(30):
        site.advance(1.0, {"a": 300.0})
        silent = site.observe({"a": 300.0}, {"a": "one"}, quality=Quality.HELD)
        book.add(silent, jobs)
    during = energy_report(start, book.snapshot())
    assert during.jobs == ()
    assert lines(during)["unexplained"] == pytest.approx(9000.0)
    site.advance(1.0, {"a": 300.0})
    book.add(site.observe({"a": 300.0}, {"a": "one"}), jobs)
    after = energy_report(start, book.snapshot())
    assert after.jobs[0].running.joules == pytest.approx(9300.0)
    assert lines(after)["unexplained"] == pytest.approx(0.0, abs=1e-6)


def test_old_samples_of_a_node_are_not_booked_again(site, make_job):
    jobs = [make_job("one", gpus=("a",))]
    book = EnergyBook(FIXED)
    first = site.observe({"a": 300.0}, {"a": "one"})
    book.add(first, jobs)
    start = book.snapshot()
    site.advance(5.0, {})
    stale = site.observe({"a": 300.0}, {"a": "one"})
    stale = replace(stale, nodes=(replace(stale.nodes[0], age_seconds=5.0),))
    book.add(stale, jobs)
    assert lines(energy_report(start, book.snapshot()))["job"] == 0.0


def test_a_reset_during_a_job_is_counted_and_said(site, make_job):
    jobs = [make_job("one", gpus=("a",))]
    book = EnergyBook(FIXED)
    book.add(site.observe({"a": 300.0}, {"a": "one"}), jobs)
    start = book.snapshot()
    for tick in range(20):
        if tick == 10:
            site.joules["a"] = 0.0
        site.advance(1.0, {"a": 300.0})
        epoch = "e2" if tick >= 10 else "e1"
        book.add(site.observe({"a": 300.0}, {"a": "one"}, epoch=epoch), jobs)
    figure = energy_report(start, book.snapshot()).jobs[0].running
    assert figure.joules == pytest.approx(6000.0)
    assert figure.method == "mixed"
    assert Flag.COUNTER_RESET in figure.flags


def test_two_slices_sum_to_the_period(site, make_job):
    jobs = [make_job("one", gpus=("a",))]
    book = EnergyBook(FIXED)
    snapshots = []
    for watts in (300.0, 250.0, 280.0):
        book.add(site.observe({"a": watts}, {"a": "one"}), jobs)
        snapshots.append(book.snapshot())
        site.advance(7.0, {"a": watts})
    first, middle, last = snapshots
    parts = [energy_report(first, middle), energy_report(middle, last)]
    whole = energy_report(first, last)
    assert sum(p.meter.joules for p in parts) == pytest.approx(whole.meter.joules)
    assert sum(p.jobs[0].running.joules for p in parts) == pytest.approx(3850.0)


def test_an_ended_job_keeps_its_team_until_it_is_forgotten(site, make_job):
    book = EnergyBook(FIXED)
    book.add(site.observe({"a": 300.0}, {"a": "one"}), [make_job("one", gpus=("a",))])
    start = book.snapshot()
    site.advance(5.0, {"a": 300.0})
    book.add(site.observe({"a": 300.0}, {"a": "one"}), [])
    assert energy_report(start, book.snapshot()).jobs[0].team == "ml"
    book.forget(["one"])
    assert energy_report(start, book.snapshot()).jobs == ()


def test_a_period_that_does_not_pass_is_refused(site):
    book = EnergyBook()
    with pytest.raises(ValueError, match="no snapshot"):
        book.snapshot()
    book.add(site.observe({"a": 1.0}), [])
    with pytest.raises(InvalidInput, match="must end after"):
        energy_report(book.snapshot(), book.snapshot())


owner = st.sampled_from([None, "one", "two", "shared"])
tick = st.tuples(
    st.floats(0.05, 30.0),
    st.lists(st.tuples(st.floats(0, 700), owner, st.booleans()), min_size=3, max_size=3),
    st.sampled_from([Quality.GOOD, Quality.GOOD, Quality.HELD, Quality.MISSING]),
    st.booleans(),
)


@given(st.lists(tick, min_size=2, max_size=25), st.floats(1.0, 1.5), st.floats(0, 1000))
def test_lines_always_sum_to_the_meter(make_site, make_one, ticks, slope, fixed):
    """Owners come and go, counters reset, nodes fall silent: not a joule is lost or invented."""
    site = make_site()
    book = EnergyBook(Overhead(fixed, slope))
    jobs = [make_one("one", gpus=("g0",)), make_one("two", JobState.PAUSED, gpus=("g1",))]
    start = None
    for i, (seconds, gpus, quality, reset) in enumerate(ticks):
        watts = {f"g{k}": value for k, (value, _, _) in enumerate(gpus)}
        site.advance(seconds, watts)
        if reset:
            site.joules["g0"] = 0.0
        owners = {
            f"g{k}": [("one", 0.3), ("two", 0.6)] if who == "shared" else who
            for k, (_, who, _) in enumerate(gpus)
        }
        foreign = {f"g{k}" for k, (_, _, theirs) in enumerate(gpus) if theirs}
        book.add(site.observe(watts, owners, foreign, quality=quality, epoch=f"e{i * reset}"), jobs)
        start = start or book.snapshot()
    report = energy_report(start, book.snapshot())
    assert fsum(line.joules for line in report.lines) == pytest.approx(
        report.meter.joules, abs=1e-6
    )
    on_gpus = fsum(line.joules for line in report.lines[:4])
    assert on_gpus == pytest.approx(fsum(g.joules for g in report.gpus), abs=1e-6)
    by_job = fsum(j.running.joules + j.held_idle.joules for j in report.jobs)
    assert by_job == pytest.approx(report.lines[0].joules + report.lines[1].joules, abs=1e-6)
    assert by_job == pytest.approx(fsum(t.kwh * 3.6e6 for t in report.teams), abs=1e-6)
    assert all(line.joules >= 0 for line in report.lines[:5])
    assert all(0 <= line.coverage <= 1 + 1e-9 for line in report.lines)
