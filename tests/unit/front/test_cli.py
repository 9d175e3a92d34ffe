"""The command line: payload alone on stdout, errors with a fix, exit codes, and its look."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from gridaware.cli.main import app, main

from .conftest import StubApi

JOB = {
    "job_id": "train-42", "team": "vision", "tier": "flex-2", "state": "capped",
    "reason": "Capped", "why": "each GPU is capped at 250 W", "gpus": 8, "cap_watts": 250.0,
    "draw_watts": 1930.4, "step": 1200, "saved_step": None,
    "state_since": "2026-07-01T14:00:00Z",
}  # fmt: skip
EVENT = {
    "event_id": "utility.dr-1", "feed_id": "utility", "state": "holding", "reason": "TargetReached",
    "request": {"kind": "live", "start": "2026-07-01T14:00:00Z", "end": None},
    "limit_watts": 84000.0, "reference": {"watts": 112400.0}, "unresolved_watts": 0.0,
}  # fmt: skip

ANSWER = {"id": "train-42", "disposition": "accepted", "message": None}


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def run(api: StubApi, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        code = main(["--url", api.url, "--api-key", "k", *arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


def commands(
    group: Any = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of the tree with its path."""
    group = get_command(app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


READS = {
    path: command
    for path, command in commands()
    if "output" in {parameter.name for parameter in command.params}
}
LOCAL = {("doctor",), ("replay",), ("release",), ("policy", "check"), ("feed", "parse")}
FROM_THE_API = sorted(set(READS) - LOCAL)
ARGUMENTS: dict[tuple[str, ...], list[str]] = {
    ("event", "send"): ["--reduce-percent", "40"],
    ("event", "preview"): ["--limit-kw", "80"],
    ("feed", "add"): ["f", "--kind", "webhook", "--programme", "p"],
    ("job", "submit"): ["--", "python", "train.py"],
}


def arguments_of(path: tuple[str, ...]) -> list[str]:
    if path in ARGUMENTS:
        return ARGUMENTS[path]
    wanted = [p for p in READS[path].params if p.param_type_name == "argument" and p.required]
    return ["x" for _ in wanted]


class Everything(dict[tuple[str, str], Any]):
    """Answers to every call at once: a page for a list, a thing for anything else."""

    LISTS = ("/feeds", "/events", "/jobs", "/nodes", "/gpus", "/policies", "/programmes")

    def get(self, key: tuple[str, str], default: Any = None) -> Any:
        method, path = key
        if method == "GET" and path in self.LISTS:
            return [(200, {"items": [{**JOB, **EVENT, "text": "a\nb"}], "next_cursor": None})]
        thing = {**JOB, **EVENT, **ANSWER, "lines": [], "jobs": [], "advisories": [JOB]}
        return [(200, thing | {"terms": [JOB], "caps_used": []})]


@pytest.mark.parametrize("path", FROM_THE_API, ids=" ".join)
def test_every_read_command_prints_json_alone_through_a_pipe(
    path: tuple[str, ...], api: StubApi, run: Callable[..., Result]
) -> None:
    api.answers = Everything()
    form = ["--json"]
    arguments = arguments_of(path)
    result = run(*path, *form, *arguments)
    assert result.code == 0, result.err
    payload = json.loads(result.out)
    assert isinstance(payload, list | dict)
    assert payload
    assert "\x1b" not in result.out


@pytest.mark.parametrize("path", FROM_THE_API, ids=" ".join)
def test_every_read_command_prints_csv_that_a_program_can_read(
    path: tuple[str, ...], api: StubApi, run: Callable[..., Result]
) -> None:
    api.answers = Everything()
    result = run(*path, "-o", "csv", *arguments_of(path))
    assert result.code == 0, result.err
    rows = list(csv.reader(io.StringIO(result.out)))
    assert rows
    assert {len(row) for row in rows} == {len(rows[0])}


def test_every_command_has_help_in_one_line_that_fits() -> None:
    for path, command in commands():
        first = (command.help or "").strip().splitlines()
        assert first, path
        assert len(first[0]) <= 88, path


def test_a_table_shows_units_and_cuts_nothing(api: StubApi, run: Callable[..., Result]) -> None:
    api.answer("GET", "/jobs", {"items": [JOB], "next_cursor": None})
    result = run("job", "list")
    heading, row = result.out.splitlines()
    assert heading.split() == [
        "ID", "TEAM", "TIER", "STATE", "WHY", "GPUS", "CAP", "POWER", "STEP", "SAVED", "SINCE",
    ]  # fmt: skip
    assert row == (
        "train-42  vision  flex-2  capped  Capped  8     250 W  1930 W  1200  \N{EN DASH}      "
        "2026-07-01T14:00:00Z"
    )


def test_a_table_shows_whole_seconds_and_csv_keeps_their_fraction(
    api: StubApi, run: Callable[..., Result]
) -> None:
    since = "2026-07-01T14:00:00.123456Z"
    api.answer("GET", "/jobs", {"items": [JOB | {"state_since": since}], "next_cursor": None})
    assert run("job", "list").out.rstrip().endswith("2026-07-01T14:00:00Z")
    assert since in run("job", "list", "-o", "csv").out


def test_an_empty_list_is_a_success(api: StubApi, run: Callable[..., Result]) -> None:
    api.answer("GET", "/events", {"items": [], "next_cursor": None})
    assert run("event", "list", "--json") == Result(0, "[]\n", "")
    assert run("event", "list").code == 0


def test_csv_keeps_raw_numbers_with_the_unit_in_the_heading(
    api: StubApi, run: Callable[..., Result]
) -> None:
    api.answer("GET", "/events", {"items": [EVENT], "next_cursor": None})
    (row,) = csv.DictReader(io.StringIO(run("event", "list", "-o", "csv").out))
    assert row["limit_watts"] == "84000.0"
    assert row["reference_watts"] == "112400.0"


def test_csv_defuses_what_a_spreadsheet_would_run(api: StubApi, run: Callable[..., Result]) -> None:
    api.answer("GET", "/jobs", {"items": [{**JOB, "team": "=1+1"}], "next_cursor": None})
    (row,) = csv.DictReader(io.StringIO(run("job", "list", "-o", "csv").out))
    assert row["team"] == "'=1+1"


def test_names_from_outside_cannot_move_the_cursor(
    api: StubApi, run: Callable[..., Result]
) -> None:
    api.answer("GET", "/jobs", {"items": [{**JOB, "team": "a\x1b[2Jb"}], "next_cursor": None})
    assert "\x1b" not in run("job", "list").out


@pytest.mark.parametrize(
    ("kind", "code", "status"),
    [
        ("InvalidInput", 2, 422), ("ConfigError", 2, 422), ("NotFound", 3, 404),
        ("Refused", 4, 409), ("Unavailable", 69, 503), ("TimedOut", 69, 504),
        ("Infeasible", 1, 409), ("DeviceLost", 1, 502), ("Bug", 1, 500),
    ],
)  # fmt: skip
def test_the_exit_code_tells_the_kind_of_error(
    api: StubApi, run: Callable[..., Result], kind: str, code: int, status: int
) -> None:
    api.answer("GET", "/status", {"code": "c", "detail": "d", "kind": kind}, status=status)
    result = run("status")
    assert result.code == code
    assert result.out == ""
    assert result.err.startswith("error[c]: d\n")


def test_an_error_says_fact_because_and_fix(api: StubApi, run: Callable[..., Result]) -> None:
    problem = {
        "code": "target-negative", "detail": "the target is -5, below zero",
        "kind": "InvalidInput", "facts": {"limit_watts": 12000.0},
    }  # fmt: skip
    api.answer("POST", "/events", problem, status=422)
    assert run("event", "send", "--limit-kw", "-5").err == (
        "error[target-negative]: the target is -5, below zero\n"
        "  because  limit_watts 12.0 kW\n"
        "  fix      Send a value of 0 or more; consumption is positive.\n"
    )


def test_a_wrong_command_line_is_a_usage_error(run: Callable[..., Result]) -> None:
    result = run("job", "sumbit")
    assert result.code == 2
    assert result.err.startswith("error[cli-usage]: No such command 'sumbit'")
    assert "gridaware job --help" in result.err
    assert run("event", "send").err.startswith("error[cli-target-count]")


def test_a_report_that_missed_its_target_exits_with_five(
    api: StubApi, run: Callable[..., Result]
) -> None:
    missed = {"event_id": "e", "delivery": {"intervals_missed": 1}}
    api.answer("GET", "/events/e/report", missed)
    result = run("event", "report", "e", "--json")
    assert result.code == 5
    assert json.loads(result.out) == missed


def test_a_preview_with_a_shortfall_exits_with_five(
    api: StubApi, run: Callable[..., Result]
) -> None:
    action = {"job_id": "a", "action": "set_cap", "cap_watts": 200.0}
    api.answer("POST", "/events/preview", {"jobs": [action], "unresolved_watts": 900.0})
    result = run("event", "preview", "--reduce-percent", "90")
    assert result.code == 5
    assert "200 W" in result.out
    assert "unresolved_watts  900 W" in result.out


def test_submitting_keeps_the_quoting_of_the_entrypoint(
    api: StubApi, run: Callable[..., Result]
) -> None:
    api.answer("POST", "/jobs", ANSWER)
    result = run(
        "job", "submit", "--gpus", "4", "--tier", "flex-3", "--metadata", "a=b=c",
        "--", "python", "-c", "print('a b')",
    )  # fmt: skip
    assert result.code == 0, result.err
    body = api.asked[0].body
    assert body["entrypoint"] == """python -c 'print('"'"'a b'"'"')'"""
    assert (body["gpus"], body["tier"], body["metadata"]) == (4, "flex-3", {"a": "b=c"})
    assert f"gridaware --url {api.url} job show train-42" in result.err


def test_waiting_for_a_job_that_fails_exits_with_one(
    api: StubApi, run: Callable[..., Result]
) -> None:
    api.answer("POST", "/jobs", ANSWER)
    api.answer("GET", "/jobs/train-42", {**JOB, "state": "failed"})
    assert run("job", "submit", "--wait", "--", "false").code == 1


def test_interrupting_a_watch_says_how_to_go_on(
    api: StubApi, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gridaware.cli.jobs.time.sleep", interrupt)
    api.answer("GET", "/jobs/train-42", JOB)
    api.answer("GET", "/jobs/train-42/logs", b"step 1\n")
    result = run("job", "logs", "train-42", "--follow")
    assert result.code == 130
    assert result.out == "step 1\n"
    assert f"gridaware --url {api.url} job logs train-42 --follow" in result.err


def test_following_prints_only_what_is_new(
    api: StubApi, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridaware.cli.jobs.time.sleep", lambda _seconds: None)
    api.answer("GET", "/jobs/train-42", JOB, {**JOB, "state": "succeeded"})
    api.answer("GET", "/jobs/train-42/logs", b"one\n", b"one\ntwo\n")
    assert run("job", "logs", "train-42", "-f").out == "one\ntwo\n"


def test_settings_of_a_feed_are_yaml_values(api: StubApi, run: Callable[..., Result]) -> None:
    api.answer("POST", "/feeds", {**ANSWER, "id": "f"})
    result = run(
        "feed", "add", "f", "--kind", "webhook", "--programme", "p",
        "--set", "secrets=[env:SECRET]", "--set", "poll_seconds=5", "--greatest-depth", "0.4",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert api.asked[0].body == {
        "feed_id": "f", "kind": "webhook", "programme_id": "p",
        "settings": {"secrets": ["env:SECRET"], "poll_seconds": 5},
        "authority": {"greatest_depth": 0.4},
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]",
        "[]",
        "word",
        "a: 1\na: 2\n",
        "day: 2026-09-07",
        "day: 2026-13-45",
        "a: [",
        "[" * 5000,
    ],
)
def test_a_settings_file_that_is_no_table_is_refused_before_anything_is_sent(
    run: Callable[..., Result], tmp_path: Path, api: StubApi, text: str
) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text, encoding="utf-8")
    result = run(
        "feed", "add", "f", "--kind", "price", "--programme", "p", "--settings-file", str(path)
    )
    assert (result.code, api.asked) == (2, [])
    assert "cli-settings-file" in result.err


def test_a_settings_file_that_is_missing_is_named(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    path = tmp_path / "none.yaml"
    result = run(
        "feed", "add", "f", "--kind", "price", "--programme", "p", "--settings-file", str(path)
    )
    assert result.code == 2
    assert "cli-settings-file" in result.err
    assert "none.yaml" in result.err


def test_a_policy_file_is_checked_with_its_lines(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("name: p\nstrategy: tires\nparams: {dwell_second: 3}\n", encoding="utf-8")
    result = run("policy", "check", str(path))
    assert result.code == 2
    assert "line 2: strategy" in result.err
    assert "line 3: params.dwell_second" in result.err
    path.write_text("name: p\nstrategy: tiers\nparams: {dwell_seconds: 3}\n", encoding="utf-8")
    assert json.loads(run("policy", "check", str(path), "--json").out)["params"] == {
        "dwell_seconds": 3.0
    }


def test_help_in_a_fresh_process_loads_no_heavy_library() -> None:
    program = (
        "import sys\nfrom gridaware.cli.main import main\nmain(['--help'])\n"
        "heavy = {'ray', 'numpy', 'matplotlib', 'fastapi', 'sqlalchemy', 'requests', 'pydantic'}\n"
        "sys.exit(f'loaded {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: gridaware" in done.stdout


def test_the_version_is_the_package_s(run: Callable[..., Result]) -> None:
    from gridaware import __version__

    assert run("--version").out == f"gridaware {__version__}\n"


def test_no_exception_of_ours_is_a_traceback(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("gridaware.cli.site.show_record", broken)
    monkeypatch.setattr("gridaware.client.Client.status", lambda _self: {})
    result = run("status")
    assert result.code == 1
    assert result.err.startswith("error[bug]: an error of gridaware itself: ZeroDivisionError")
    assert "Traceback" not in result.err


def test_typer_s_own_exceptions_are_what_main_expects() -> None:
    assert issubclass(typer.BadParameter, typer.TyperException)


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("job", "pause", "j"), "/jobs/j/pause"), (("job", "resume", "j"), "/jobs/j/resume"),
        (("job", "hold", "j"), "/jobs/j/hold"), (("job", "release", "j"), "/jobs/j/release"),
        (("job", "stop", "j"), "/jobs/j/stop"), (("event", "cancel", "e"), "/events/e/cancel"),
        (("event", "opt-out", "e"), "/events/e/opt-out"),
        (("node", "cordon", "n"), "/nodes/n/cordon"),
        (("node", "uncordon", "n"), "/nodes/n/uncordon"),
    ],
)  # fmt: skip
def test_a_command_prints_no_payload_and_says_what_became_of_it(
    api: StubApi, run: Callable[..., Result], words: tuple[str, ...], path: str
) -> None:
    api.answer("POST", path, {**ANSWER, "id": words[-1]})
    result = run(*words)
    assert (result.code, result.out) == (0, "")
    assert result.err.startswith(words[-1])


def test_a_fleet_is_released_only_with_its_consequence_confirmed(
    api: StubApi, run: Callable[..., Result]
) -> None:
    api.answer("POST", "/release", {"opted_out": ["e"]})
    assert run("release", "--fleet", "--json").code == 0
    confirmed = ("release", "--fleet", "--confirm", "fleet", "--json")
    assert run(*confirmed).code == 2, "the programmes are told why"
    assert run("release", "--fleet", "--confirm", "all", "--reason", "x").code == 2
    assert run(*confirmed, "--reason", "smoke", "--now").out == '{"opted_out": ["e"]}\n'
    said = {"confirm": "opt out", "reason": "smoke", "at_once": True}
    assert [asked.body for asked in api.asked] == [{}, said]


ENERGY = {
    "asked_start": "2026-07-01T00:00:00Z",
    "asked_end": "2026-07-02T00:00:00Z",
    "start": "2026-07-01T06:00:00Z",
    "end": "2026-07-01T18:00:00Z",
    "meter": {"name": "meter", "joules": 900.0, "band_joules": 9.0, "coverage": 1.0},
    "lines": [
        {"name": "job", "joules": 700.0, "band_joules": 7.0, "coverage": 1.0},
        {"name": "unexplained", "joules": 200.0, "band_joules": 9.0, "coverage": 1.0},
    ],
}


def test_energy_shows_the_period_and_the_meter_that_the_lines_add_up_to(
    api: StubApi, run: Callable[..., Result]
) -> None:
    api.answer("GET", "/reports/energy", ENERGY)
    table = run("report", "energy").out.splitlines()
    assert table[0] == "From 2026-07-01T06:00:00Z to 2026-07-01T18:00:00Z"
    assert table[-1].split()[:3] == ["meter", "900", "J"]
    rows = list(csv.DictReader(io.StringIO(run("report", "energy", "-o", "csv").out)))
    *lines, meter = (float(row["joules"]) for row in rows)
    assert sum(lines) == meter == 900.0


def test_energy_of_a_time_without_readings_says_so(
    api: StubApi, run: Callable[..., Result]
) -> None:
    api.answer("GET", "/reports/energy", ENERGY | {"start": None, "end": None, "lines": []})
    assert run("report", "energy").out.startswith(
        "Nothing is kept between 2026-07-01T00:00:00Z and 2026-07-02T00:00:00Z"
    )


def test_an_explanation_is_a_sentence_to_read(api: StubApi, run: Callable[..., Result]) -> None:
    told = {
        "state": "capped", "state_since": "2026-07-01T14:00:00Z", "reason": "Capped",
        "why": "each GPU is capped at 250 W", "plan_reason": None, "plan_why": None,
    }  # fmt: skip
    api.answer("GET", "/jobs/j/explain", told)
    assert run("job", "explain", "j").out == (
        "capped since 2026-07-01T14:00:00Z: each GPU is capped at 250 W (Capped)\n"
    )


def test_an_explanation_tells_what_the_cluster_said_and_who_stops_the_job(
    api: StubApi, run: Callable[..., Result]
) -> None:
    told = {"state": "failed", "state_since": "2026-07-01T14:00:00Z", "reason": "Failed"}
    told |= {"why": "it failed", "message": "/nope is not a valid path", "stopping_by": "ada"}
    api.answer("GET", "/jobs/j/explain", told)
    assert run("job", "explain", "j").out.splitlines()[1:] == [
        "the cluster said: /nope is not a valid path",
        "being stopped by ada: it may save first",
    ]


def test_a_removed_feed_is_asked_for_by_its_path(api: StubApi, run: Callable[..., Result]) -> None:
    api.answer("DELETE", "/feeds/f", {})
    assert run("feed", "remove", "f").code == 0
    assert api.asked[0].method == "DELETE"


def test_a_report_is_written_as_one_page(
    api: StubApi, run: Callable[..., Result], tmp_path: Path
) -> None:
    api.answer("GET", "/events/e/report", {"event_id": "e"}, b"<html>ok</html>")
    page = tmp_path / "r.html"
    assert run("event", "report", "e", "--html", str(page)).code == 0
    assert page.read_text(encoding="utf-8") == "<html>ok</html>"
    assert [asked.query["format"] for asked in api.asked] == ["json", "html"]


def test_a_page_that_cannot_be_written_is_no_bug(
    api: StubApi, run: Callable[..., Result], tmp_path: Path
) -> None:
    api.answer("GET", "/events/e/report", {"event_id": "e"}, b"<html>ok</html>")
    result = run("event", "report", "e", "--html", str(tmp_path / "none" / "r.html"))
    assert result.code == 2
    assert result.err.startswith("error[report-file-unwritable]: ")


def test_init_prints_the_key_alone_on_stdout(run: Callable[..., Result], tmp_path: Path) -> None:
    first = run("init", str(tmp_path / "site"), "--node", "n1")
    assert first.code == 0
    assert first.out.startswith("gw_")
    assert len(first.out.splitlines()) == 1
    assert first.out.strip() not in first.err
    again = run("init", str(tmp_path / "site"))
    assert (again.code, again.out) == (0, "")


def test_doctor_exits_with_one_when_a_part_fails(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    run("init", str(tmp_path))
    config = ["--config", str(tmp_path / "site.yaml")]
    good = run("doctor", "keys", "tls", *config, "--json")
    assert good.code == 0
    assert {check["verdict"] for check in json.loads(good.out)} == {"ok"}
    (tmp_path / "api-keys").unlink()
    bad = run("doctor", "keys", *config)
    assert bad.code == 1
    assert bad.out.startswith("fail  keys.api-key-file-unreadable")
    assert "fix:" in bad.out
    assert run("doctor", "spleen").err.startswith("error[doctor-part-unknown]")


def test_a_terminal_gets_colour_and_a_whole_id(
    api: StubApi, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridaware.cli.output.colourful", lambda _stream: True)
    monkeypatch.setenv("COLUMNS", "60")
    name = "a-very-long-name-that-a-narrow-terminal-would-cut"
    api.answer("GET", "/jobs", {"items": [{**JOB, "job_id": name}], "next_cursor": None})
    assert name in run("job", "list").out


def test_a_reader_that_has_had_enough_hears_no_complaint() -> None:
    program = "import sys\nfrom gridaware.cli.main import main\nsys.exit(main(['--help']))"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""


def test_a_hit_rate_is_shown_for_a_history_and_unknown_without(run: Callable[..., Result]) -> None:
    data = Path(__file__).parents[2] / "data" / "feeds" / "ercot_4cp"
    arguments = [str(data / "supply_demand.json"), "--kind", "ercot_4cp"]
    arguments += ["--now", "2026-08-10T15:03:00Z", "-o", "json"]
    without = json.loads(run("feed", "parse", *arguments).out)["events"][0]
    assert without["value"] == "unknown"
    with_it = run("feed", "parse", *arguments, "--history", str(data / "history.csv"))
    today = json.loads(with_it.out)["events"][0]
    assert today["value"] == round(2 / 18, 4)  # counted by hand in test_ercot_4cp.py
    assert "2 of 2 peaks were called" in today["reason"]
    missing = run("feed", "parse", *arguments, "--history", str(data / "nothing.csv"))
    assert missing.code == 2


def test_a_message_is_read_from_a_file_without_any_site(
    tmp_path: Path, run: Callable[..., Result]
) -> None:
    file = tmp_path / "said.json"
    said = {"id": "dr-1", "start": "2026-07-01T14:00:00Z", "duration": "PT1H"}
    file.write_text(json.dumps({**said, "target": {"limit_kw": 84}}))
    arguments = [str(file), "--kind", "webhook", "--now", "2026-07-01T13:00:00Z"]
    result = run("feed", "parse", *arguments, "-o", "json")
    assert result.code == 0, result.err
    assert json.loads(result.out) == {
        "events": [
            {
                "id": "dr-1",
                "start": "2026-07-01T14:00:00Z",
                "end": "2026-07-01T15:00:00Z",
                "type": "limit_watts",
                "value": 84000.0,
                "disposition": "act",
                "reason": "asked for",
            }
        ],
        "refused": [],
    }
    late = run("feed", "parse", *arguments[:-1], "2026-07-01T15:00:00Z", "-o", "json")
    assert json.loads(late.out)["events"][0]["disposition"] == "refused"
    assert run("feed", "parse", str(file), "--kind", "schedule").code == 2
    missing = run("feed", "parse", str(tmp_path / "nothing"), "--kind", "webhook")
    assert missing.code == 2
    assert "error[message-unreadable]" in missing.err


def test_a_message_is_read_with_the_authority_of_a_feed(
    tmp_path: Path, api: StubApi, run: Callable[..., Result]
) -> None:
    authority = {
        "least_watts": 90e3, "greatest_depth": 1.0, "hours_per_day": 0.5,
        "least_notice_seconds": 0.0,
    }  # fmt: skip
    settings = {"secrets": ["env:NOBODY"]}
    api.answer("GET", "/feeds/utility", {"settings": settings, "authority": authority})
    file = tmp_path / "said.json"
    said = {"id": "dr-1", "start": "2026-07-01T14:00:00Z", "duration": "PT1H"}
    file.write_text(json.dumps({**said, "target": {"limit_kw": 84}}))
    now = "2026-07-01T13:00:00Z"
    result = run("feed", "parse", str(file), "--kind", "webhook", "--feed", "utility", "--now", now)
    assert result.code == 0, result.err
    assert "clamped to its authority: not below 90 kW, not longer than 0.5 h a day" in result.out


def test_the_catalogue_is_shown_without_a_site(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["programme", "list", "--catalogue", "--json"]) == 0
    rows = {row["programme_id"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["ercot-ers-30"]["deadline_seconds"] == 1800
    winter = ["--at", "2023-01-15T17:00:00Z"]
    assert main(["programme", "show", "gb-dfs", "--catalogue", *winter, "-o", "csv"]) == 0
    terms = {row["term"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert terms["least_watts"]["words"] == "1.00 MW"
    assert terms["least_watts"]["mark"] == "sourced"
    assert main(["programme", "show", "ercot-ers-30", "--catalogue"]) == 0
    shown = capsys.readouterr().out
    assert "24 hours per season Dec-Mar" in shown
    assert "check the tariff" in shown
    assert main(["programme", "show", "ercot-ers30", "--catalogue"]) == 3
    assert "did you mean 'ercot-ers-30'" in capsys.readouterr().err
