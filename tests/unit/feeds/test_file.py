"""Files of timed signals: delivered on time, re-read on change, bad rows refused alone."""

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput, Unavailable

Refusals = list[tuple[GridawareError, str]]
ROW = {"t_s": 5, "id": "a", "duration": "PT45S", "target": {"reduce_percent": 40}}


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def ids(feed: Any) -> list[str]:
    return [signal.source_id for signal in feed.poll()]


def test_rows_come_when_their_time_has_come(
    opened: Callable[..., Any], clock: ManualClock, tmp_path: Path
) -> None:
    path = written(
        tmp_path / "day.csv",
        "t_s,id,revision,cancel,start_s,duration,reduce_percent\r\n"
        "20,a,1,true,,,\r\n"
        "5,a,0,,,PT45S,40\r\n"
        "\r\n"
        "10,b,,,60,PT1H,25\r\n",
    )
    registered = clock.wall()
    feed = opened("file", path=str(path))
    assert ids(feed) == []
    clock.advance(7)
    (first,) = feed.poll()
    assert first.received_at == registered + timedelta(seconds=7)
    # Planned, not when the poll came by: every replay says the same.
    assert first.request.start == registered + timedelta(seconds=5)
    assert first.request.end == registered + timedelta(seconds=50)
    assert first.request.target.value == 0.4
    clock.advance(3)
    assert feed.poll()[1].request.start == registered + timedelta(seconds=60)
    clock.advance(10)
    assert [(s.source_id, s.revision, s.request is None) for s in feed.poll()] == [
        ("a", 0, False),
        ("b", 0, False),
        ("a", 1, True),
    ]


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv"])
def test_a_bad_row_is_refused_alone_with_its_line(
    opened: Callable[..., Any],
    clock: ManualClock,
    tmp_path: Path,
    refusals: Refusals,
    ending: str,
) -> None:
    rows = {
        "json": '[\n {"t_s":1,"id":"a","duration":"PT1H","target":{"limit_kw":1}},\n'
        ' {"t_s":1,"id":"b","id":"b"},\n'
        ' {"t_s":1,"id":"c","duration":"PT1H","target":{"limit_kw":NaN}},\n 7,\n'
        ' {"t_s":1,"id":"e","duration":"PT1H","target":{"limit_kw":1}}\n]\n',
        "jsonl": '{"t_s":1,"id":"a","duration":"PT1H","target":{"limit_kw":1}}\n'
        '{"t_s":1,"id":\n'
        '{"t_s":1,"id":"c","duration":"PT1H","target":{"limit_kw":-1}}\n'
        "[]\n"
        '{"t_s":1,"id":"e","duration":"PT1H","target":{"limit_kw":1}}\n',
        "csv": "t_s,id,duration,limit_kw\n"
        '1,"b,PT1H,1\n'
        "1,c,PT1H,nan\n"
        "1,d,PT1H,1,extra\n"
        "1,a,PT1H,1\n"
        "1,e,PT1H,1\n",
    }
    feed = opened("file", path=str(written(tmp_path / f"signals.{ending}", rows[ending])))
    clock.advance(1)
    assert ids(feed) == ["a", "e"]
    lines = [error.facts["line"] for error, _ in refusals]
    assert sorted(lines) == {"json": [3, 4, 5], "jsonl": [2, 3, 4], "csv": [2, 3, 4]}[ending]
    assert ids(feed) == ["a", "e"]
    assert len(refusals) == 3  # once for each version of the file


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"t_s": None}, "file-row"),
        ({"t_s": "5"}, "file-row"),
        ({"t_s": True}, "file-row"),
        ({"t_s": 1e300}, "file-row"),
        ({"at": "2026-11-30T14:00:00Z"}, "file-row"),
        ({"start_s": 1, "start": "now"}, "file-row"),
        ({"start_s": "soon"}, "file-row"),
        ({"duration": "P1M"}, "duration-calendar"),
        ({"durration": "PT1H"}, "event-key-unknown"),
    ],
)
def test_what_a_row_may_not_say(
    opened: Callable[..., Any],
    clock: ManualClock,
    tmp_path: Path,
    refusals: Refusals,
    changes: dict[str, object],
    code: str,
) -> None:
    path = written(tmp_path / "one.json", json.dumps([{**ROW, **changes}]))
    feed = opened("file", path=str(path))
    clock.advance(10)
    assert ids(feed) == []
    assert [error.code for error, _ in refusals] == [code]


def test_absolute_times_and_another_origin(
    opened: Callable[..., Any], clock: ManualClock, tmp_path: Path
) -> None:
    rows = [
        {**{k: v for k, v in ROW.items() if k != "t_s"}, "at": "2026-11-30T14:00:30Z"},
        {**ROW, "id": "b"},
    ]
    path = written(tmp_path / "two.jsonl", "\n".join(json.dumps(row) for row in rows))
    feed = opened("file", path=str(path), t0="2026-11-30T14:01:00Z")
    clock.advance(30)
    assert ids(feed) == ["a"]
    clock.advance(35)
    assert ids(feed) == ["a", "b"]


def test_an_origin_at_the_end_of_all_years_refuses_its_rows_alone(
    opened: Callable[..., Any], tmp_path: Path, refusals: Refusals
) -> None:
    path = written(tmp_path / "late.jsonl", json.dumps(ROW))
    feed = opened("file", path=str(path), t0="9999-12-31T23:59:59Z")
    assert ids(feed) == []
    assert [error.code for error, _ in refusals] == ["time-absurd"]


@pytest.mark.parametrize(
    "number", ["4_0", "\u0664\u0660", "inf", "nan", "0x28", "40,0", "1e999", "9" * 60_000 + "x"]
)
def test_a_cell_that_is_a_number_to_python_alone_is_none(
    opened: Callable[..., Any], clock: ManualClock, tmp_path: Path, refusals: Refusals, number: str
) -> None:
    path = written(tmp_path / "day.csv", f't_s,id,duration,limit_kw\n5,a,PT45S,"{number}"\n')
    feed = opened("file", path=str(path))
    clock.advance(10)
    assert ids(feed) == []
    assert [error.code for error, _ in refusals] in (["target-type"], ["target-not-finite"])


@pytest.mark.parametrize("number", ["40", "+40.", "4e1", " 40.0 "])
def test_a_cell_is_a_number_however_a_spreadsheet_writes_it(
    opened: Callable[..., Any], clock: ManualClock, tmp_path: Path, number: str
) -> None:
    path = written(tmp_path / "day.csv", f"t_s,id,duration,limit_kw\n5,a,PT45S,{number}\n")
    feed = opened("file", path=str(path))
    clock.advance(10)
    assert [signal.request.target.value for signal in feed.poll()] == [40e3]


def test_a_changed_file_is_read_again_and_a_lost_row_cancels_nothing(
    opened: Callable[..., Any], clock: ManualClock, tmp_path: Path
) -> None:
    path = written(tmp_path / "x.json", json.dumps([ROW, {**ROW, "id": "b"}]))
    feed = opened("file", path=str(path))
    clock.advance(6)
    assert ids(feed) == ["a", "b"]
    written(path, json.dumps([{**ROW, "id": "b"}, {**ROW, "id": "c"}]) + "\n")
    assert [(s.source_id, s.request is None) for s in feed.poll()] == [("b", False), ("c", False)]
    path.unlink()
    with pytest.raises(Unavailable) as gone:
        feed.poll()
    assert gone.value.code == "file-missing"
    written(path, "[]")
    assert ids(feed) == []


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("x.csv", "", "file-header"),
        ("x.csv", "a,a\n1,2\n", "file-header"),
        ("x.csv", b"t_s,id\n\xff\n", "event-not-utf8"),
        ("x.json", "", "event-not-json"),
        ("x.json", "{}", "event-not-json"),
        ("x.json", '[{"a":1}', "event-not-json"),
        ("x.json", '[{"a":1}{"b":2}]', "event-not-json"),
        ("x.json", '[{"a":1}] x', "event-not-json"),
        ("x.json", "[" * 100_000, "event-not-json"),
        ("x.jsonl", "{}\n" * 10_001, "file-too-large"),
        ("x.jsonl", " " * (4 * 1024 * 1024 + 1), "file-too-large"),
    ],
)
def test_a_file_that_is_wrong_as_a_whole_is_refused(
    opened: Callable[..., Any], tmp_path: Path, name: str, content: str | bytes, code: str
) -> None:
    feed = opened("file", path=str(written(tmp_path / name, content)))
    with pytest.raises(InvalidInput) as refusal:
        feed.poll()
    assert refusal.value.code == code


def test_a_pipe_or_a_folder_in_its_place_does_not_hang(
    opened: Callable[..., Any], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    for name in ("pipe.csv", "folder.csv"):
        with pytest.raises(InvalidInput) as refusal:
            opened("file", path=str(tmp_path / name)).poll()
        assert refusal.value.code == "file-not-regular"


def test_an_ending_that_says_nothing_needs_the_format(
    opened: Callable[..., Any], tmp_path: Path
) -> None:
    path = written(tmp_path / "signals.txt", "")
    with pytest.raises(ConfigError) as refusal:
        opened("file", path=str(path))
    assert refusal.value.code == "file-format"
    assert ids(opened("file", path=str(path), format="jsonl")) == []


def test_a_byte_order_mark_of_a_spreadsheet_is_no_part_of_the_header(
    opened: Callable[..., Any], clock: ManualClock, tmp_path: Path
) -> None:
    path = written(tmp_path / "x.csv", b"\xef\xbb\xbft_s,id,open_end,limit_kw\n0,a,TRUE,5\n")
    (signal,) = opened("file", path=str(path)).poll()
    assert signal.request.end is None
