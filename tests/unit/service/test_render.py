"""Reports as text, JSON, CSV and HTML: fixed columns, nothing lost, nothing let through."""

import csv
import io
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import msgspec
import pytest
from rich.console import Console

from gridaware.domain.errors import InvalidInput, NotFound
from gridaware.domain.event import Clocks, Escalation, EventState, GridEvent, Reference
from gridaware.domain.job import Job, JobSpec, JobState, Tier
from gridaware.domain.moment import Moment
from gridaware.domain.programme import Programme
from gridaware.domain.reading import (
    Boundary,
    EnergyReading,
    GpuObservation,
    JobObservation,
    Method,
    NodeObservation,
    Observation,
    Reading,
)
from gridaware.domain.signal import EventRequest, Quantity, TargetSpec
from gridaware.domain.stepseries import StepSeries
from gridaware.domain.wire import Acknowledged, GpuResult
from gridaware.service import quantities
from gridaware.service.render import (
    event_report_csv,
    event_report_html,
    report_json,
    report_of,
    report_table,
    table_csv,
    tables_of,
    write_report_files,
)
from gridaware.settlement.attribution import EnergyBook
from gridaware.settlement.event_report import EventInputs, EventReport, settle_event
from gridaware.settlement.impact import PauseEvidence
from gridaware.settlement.record import Recorder
from gridaware.settlement.response import NodeClock

START = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
HOSTILE = '<script>alert(1)</script>"&'


def observation(seconds):
    at = START + timedelta(seconds=seconds)
    gpu = GpuObservation("GPU-0", 300.0, 300.0 * seconds, "e", 400.0, 400.0, job_id="train")
    return Observation(
        Moment(1000.0 + seconds, at),
        Reading(800.0, at, Boundary.SITE, Method.METER),
        (NodeObservation("n0", 0.0, (gpu,)),),
        (JobObservation("train", 1, 2 * int(seconds), 2.0, 0.0),),
        EnergyReading(800.0 * seconds, "m", at, Boundary.SITE),
    )


def make_report(team="ml", path="/ckpt/7", points=100) -> EventReport:
    spec = JobSpec("train", "python x.py", 1, Tier.FLEX_2, team)
    job = Job(spec, JobState.RUNNING, "Started", START, START, 1, gpu_ids=("GPU-0",))
    book = EnergyBook()
    for seconds in range(61):
        book.add(observation(float(seconds)), [job])
    before = book.snapshot()
    for seconds in range(61, 121):
        book.add(observation(float(seconds)), [job])
    begin = START + timedelta(seconds=60)
    event = GridEvent(
        event_id="hook.e:1",
        feed_id="hook",
        programme_id="peak",
        source_id="e:1",
        revision=2,
        request=EventRequest(
            begin, begin + timedelta(seconds=60), TargetSpec(Quantity.LIMIT_WATTS, 900.0)
        ),
        state=EventState.SETTLED,
        reason="Settled",
        received_at=START,
        state_since=START,
        clocks=Clocks(5.0, 5.003, 5.021, 5.9),
        reference=Reference(1000.0, "meter_before_after", START, 300.0),
        limit_watts=900.0,
    )
    step = 600 / points
    meter = StepSeries.sampled(
        [
            (START.timestamp() - 300 + i * step, 1000.0 if i * step < 360 else 800.0)
            for i in range(points)
        ]
    )
    pause = PauseEvidence("train", "r1", 1, begin, begin, path, 140, begin, 140)
    inputs = EventInputs(
        meter,
        before,
        book.snapshot(),
        node_clocks=(NodeClock("n0", "GPU-0", 5.02),),
        pauses=(pause,),
    )
    programme = Programme("peak", deadline_seconds=10, settlement_interval_seconds=25)
    return settle_event(event, programme, inputs, generated_at=START, final=False)


@pytest.fixture(scope="module")
def report():
    return make_report()


class Page(HTMLParser):
    """Tags, attributes and text of a page; complains about tags that do not nest."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input", "use", "path", "rect"})

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_json_is_the_report_and_nothing_is_lost(report):
    body = msgspec.json.decode(report_json(report))
    assert body["schema"] == "gridaware.event-report/1"
    assert body["window_start"] == "2026-11-30T14:01:00Z"
    assert body["latencies"]["accepted_ms"] == pytest.approx(21.0)
    assert report_of(body) == report
    assert report_of(report) is report
    energy = msgspec.json.decode(report_json(report.energy))
    assert report_of(energy) == report.energy


def test_what_is_no_report_is_refused():
    with pytest.raises(InvalidInput) as refused:
        report_of({"schema": "something/9"})
    assert refused.value.code == "report-malformed"


GOLDEN = {
    "event-intervals": "schema start_utc end_utc scored limit_watts mean_watts owed_watts "
    "delivered_watts shortfall_watts over_watts owed_joules delivered_joules coverage_fraction",
    "event-jobs": "schema job_id team tier gpus state work_lost_seconds steps_lost "
    "throughput_fraction steps_done reference_steps_per_second alive_seconds mean_watts "
    "energy_joules energy_band_joules held_idle_joules energy_method coverage_fraction "
    "work_lost_band_seconds steps_lost_band",
    "event-pauses": "schema job_id attempt request_id requested_at_utc verified_at_utc step_saved "
    "resumed_at_utc step_resumed steps_redone outcome checkpoint_path",
    "event-nodes": "schema node_id gpus gpus_accepted median_milliseconds slowest_milliseconds",
    "event-evidence": "schema series meter boundary method readings start_utc end_utc "
    "coverage_fraction accuracy_fraction",
    "event-response": "schema clock gpus gpus_reached p50_milliseconds p99_milliseconds "
    "max_milliseconds",
    "event-gpus": "schema node_id gpu_id limit_watts decided_milliseconds accepted_milliseconds "
    "confirmed_milliseconds placed_by",
    "event-escalations": "schema at_utc job_id rung cause gpus excess_watts above_watts gpu_ids",
    "energy-lines": "schema line energy_joules energy_kwh share_fraction band_joules method "
    "coverage_fraction readings flags",
    "energy-jobs": "schema job_id team tier gpus running_joules running_band_joules "
    "held_idle_joules held_idle_band_joules energy_joules energy_kwh method coverage_fraction "
    "readings flags",
    "energy-teams": "schema team jobs running_joules held_idle_joules energy_joules energy_kwh "
    "band_joules",
    "energy-gpus": "schema gpu_id energy_joules energy_kwh band_joules method coverage_fraction "
    "readings flags",
}


def test_csv_columns_are_fixed(report):
    tables = {t.name: t for t in (*tables_of(report), *tables_of(report.energy))}
    seen = {name: table_csv(table).splitlines()[0] for name, table in tables.items()}
    assert seen == {name: columns.replace(" ", ",") for name, columns in GOLDEN.items()}
    later = {name: table.version for name, table in tables.items() if table.version > 1}
    assert later == {"event-evidence": 2}, "a changed column is a new version"


def test_csv_rows_are_plain_figures(report):
    first, second, third = csv.DictReader(io.StringIO(event_report_csv(report)))
    assert first["schema"] == "gridaware.event-intervals/1"
    assert (first["scored"], second["scored"], third["scored"]) == ("false", "true", "true")
    assert second["start_utc"] == "2026-11-30T14:01:10.000Z"
    assert float(second["owed_watts"]) == 100.0
    assert float(third["delivered_watts"]) == pytest.approx(200.0)
    assert float(third["delivered_joules"]) == pytest.approx(200.0 * 25)


def test_csv_cannot_carry_a_formula():
    report = make_report(team="=HYPERLINK(1)", path=None)
    jobs = next(t for t in tables_of(report) if t.name == "event-jobs")
    assert next(csv.DictReader(io.StringIO(table_csv(jobs))))["team"] == "'=HYPERLINK(1)"
    pauses = next(t for t in tables_of(report) if t.name == "event-pauses")
    assert next(csv.DictReader(io.StringIO(table_csv(pauses))))["checkpoint_path"] == ""


def test_the_page_stands_alone(report):
    text = event_report_html(report)
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(page.tags)
    urls = [v for k, v in page.attributes if k in {"src", "href", "xlink:href", "action"}]
    assert all(v.startswith("#") for v in urls)
    assert not re.search(r"url\((?!#)|@import", text)
    assert page.tags.count("svg") == 1
    assert "default-src 'none'" in text
    assert "prefers-color-scheme:dark" in text
    words = " ".join(page.text)
    for figure in (
        "Delivered in full",
        "200.0 %",
        "21 ms",
        "900 ms",
        "Provisional",
        "beyond 105 % is not paid",
    ):
        assert figure in words
    for part in ("Baseline 1\u202f000 W", "Target 900 W", "Measured power"):
        assert part in words, "the figure's legend is text"


def test_the_page_shows_the_four_clocks_gpu_by_gpu_and_what_was_done_about_the_others(report):
    recorder = Recorder("d", {"n0": {"GPU-0": 250.0, "GPU-1": 250.0}}, {"n0": 1})
    results = (GpuResult("GPU-0", 250.0, 250.0, None, 0.004),)
    recorder.acknowledged(Acknowledged("n0", 1, 1, "d", results, True, START), 5.020)
    step = Escalation(START, "train", "lock-clocks", "ignored", 1, ("GPU-1",), 130.0, 90.0)
    told = replace(report, response=recorder.record(5.0, 5.003), escalations=(step,))
    assert report_of(msgspec.json.decode(report_json(told))) == told
    words = " ".join(Page(event_report_html(told)).text)
    for part in ("GPU by GPU", "GPU-1", "GPUs that did not follow", "lock-clocks", "20 ms"):
        assert part in words
    rows = list(csv.DictReader(io.StringIO(event_report_csv(told, "event-gpus"))))
    assert [row["gpu_id"] for row in rows] == ["GPU-1", "GPU-0"]  # the slowest first
    assert (rows[1]["accepted_milliseconds"], rows[1]["placed_by"]) == ("20.0", "agent")
    with pytest.raises(NotFound) as unknown:
        event_report_csv(told, "event-nothing")
    assert unknown.value.code == "report-table-unknown"


def test_the_figure_has_no_colour_of_its_own(report):
    svg = re.search(r"<svg.*</svg>", event_report_html(report), re.DOTALL).group()
    assert "#0102" not in svg
    assert {"measured", "target", "baseline", "window"} <= set(re.findall(r"var\(--(\w+)\)", svg))
    assert 'role="img"' in svg
    assert "<desc" in svg


def test_the_figure_is_also_a_table(report):
    page = Page(event_report_html(report))
    assert "details" in page.tags
    assert page.tags.count("th") > 20
    assert ("scope", "col") in page.attributes


def test_hostile_names_are_shown_and_not_run():
    report = make_report(team=HOSTILE, path=HOSTILE)
    report = replace(report, reason=HOSTILE, warnings=(HOSTILE,))
    text = event_report_html(report)
    assert HOSTILE not in text
    assert "script" not in Page(text).tags
    assert HOSTILE in "".join(Page(text).text)


def test_the_table_in_a_pipe_is_plain_and_whole(report):
    text = report_table(report)
    assert "\x1b" not in text
    assert "…" not in text
    assert "train" in text
    assert "gridaware" not in text.splitlines()[0]
    assert text.splitlines()[0] == "Event hook.e:1  provisional  Delivered in full"
    assert "received → decided 3 ms → accepted 21 ms → confirmed 900 ms" in text


def test_the_table_at_a_terminal_has_its_colours_and_width(report):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=90, color_system="standard")
    text = report_table(msgspec.json.decode(report_json(report)), terminal)
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= 90


def test_markup_in_names_is_text():
    assert "[bold]x[/bold]" in report_table(make_report(team="[bold]x[/bold]"))


def test_files_are_written_under_safe_names(report, tmp_path):
    written = write_report_files(report, tmp_path / "out")
    names = [path.name for path in written]
    assert names[:2] == ["event-hook.e_1.html", "event-hook.e_1.json"]
    assert len(names) == len(set(names)) == 2 + 12
    assert all(path.read_text(encoding="utf-8") for path in written)
    assert write_report_files(report, tmp_path / "out") == written, "an older report is replaced"
    energy = write_report_files(report.energy, tmp_path / "out")
    assert energy[0].name == "energy-20261130T140100Z.html"
    Page(energy[0].read_text(encoding="utf-8"))


def test_a_long_event_is_drawn_by_means():
    report = make_report(points=5000)
    assert len(report.curve.watts) == 1200
    assert report.curve.step_seconds > 0
    assert "Each point is a mean of" in event_report_html(report)


@pytest.mark.parametrize(
    ("watts", "text"),
    [
        (0.0, "0 W"),
        (9999.4, "9\u202f999 W"),
        (10_000.0, "10.0 kW"),
        (58_000.0, "58.0 kW"),
        (12.5e6, "12.5 MW"),
        (-300.0, "\u2212300 W"),
        (None, "\u2013"),
    ],
)
def test_watts_below_ten_kilowatts_stay_watts(watts, text):
    assert quantities.power(watts) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.0001, "0 s"),
        (0.04, "40 ms"),
        (1.5, "1.5 s"),
        (45.0, "45 s"),
        (600.0, "10 min"),
        (615.0, "10 min 15 s"),
        (7500.0, "2 h 05 min"),
        (-50.0, "\u221250 s"),
    ],
)
def test_durations_read_well(seconds, text):
    assert quantities.duration(seconds) == text


def test_energy_takes_the_unit_of_its_column():
    assert quantities.energy(3.6e6) == "1.00 kWh"
    assert quantities.energy(3600.0) == "1.0 Wh"
    assert quantities.energy(7.2e9 * 1000) == "2\u202f000.000 MWh"


def test_a_voluntary_event_and_the_version_of_its_rules_are_said_in_words():
    report = replace(
        make_report(),
        voluntary="OutsideObligation",
        programme_version="2027/28",
        warnings=("baseline-not-programmes",),
    )
    page, text = event_report_html(report), report_table(report)
    assert "programme peak, rules of 2027/28" in page
    for shown in (page.replace("&#x27;", "'"), " ".join(text.split())):
        assert "Voluntary: it lies outside its programme's obligation hours" in shown
        assert "settles by a baseline that is not computed here" in shown
    plain = event_report_html(make_report())
    assert "rules of" not in plain
    assert "Voluntary" not in plain
