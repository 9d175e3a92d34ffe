"""Files of timed signals made wrong: no row crashes, hangs, or asks for what it does not say."""

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mutate import fewer, hang_guard, mutants
from said import UNITS, assert_as_said, at

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.feeds.file import FileFeed, FileSettings
from gridaware.feeds.kind import FeedContext

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
REGISTERED = NOW - timedelta(minutes=1)
ROWS: list[dict[str, Any]] = [
    {"t_s": 5, "id": "evening", "duration": "PT45M", "target": {"reduce_percent": 40}},
    {"at": "2026-12-01T11:59:00Z", "id": "dr-2", "start": "2026-12-01T14:00:00Z",
     "end": "2026-12-01T15:00:00Z", "target": {"limit_kw": 12.5}},
    {"t_s": 0, "start_s": 600, "id": "dr-3", "open_end": True, "target": {"reduce_kw": 3}},
    {"t_s": 30, "id": "dr-2", "revision": 1, "cancel": True},
    {"t_s": 1e9, "id": "later", "duration": "PT1H", "target": {"limit_kw": 1}},
]  # fmt: skip
CSV = (
    b"t_s,id,revision,start_s,duration,open_end,cancel,reduce_percent,limit_kw\n"
    b"5,evening,0,,PT45M,,,40,\n0,dr-3,0,600,,true,,,12.5\n30,dr-3,1,,,,true,,\n"
)
GOOD = {
    "csv": [CSV, CSV.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + CSV],
    "json": [json.dumps(ROWS).encode(), json.dumps(ROWS[:2], indent=1).encode()],
    "jsonl": [b"\n".join(json.dumps(row).encode() for row in ROWS)],
}


def check(path: Path, body: bytes, form: Any) -> bool:
    """Replay a file a minute after it was registered; whether any row of it asks for anything."""
    path.unlink(missing_ok=True)  # a file cut and written again waits for the disk
    path.write_bytes(body)
    refused: list[str] = []

    def refuse(error: GridawareError, raw: str) -> None:
        assert error.message.startswith("line ")
        refused.append(raw)

    context = FeedContext("drill", ManualClock(NOW), REGISTERED, refuse)
    feed = FileFeed(context, FileSettings(path=str(path), format=form))
    try:
        signals = feed.poll()
    except GridawareError:
        return False
    assert feed.poll() == signals  # nothing of the file is said in another way a second time
    first, _, _ = body.decode("utf-8-sig").replace("\r\n", "\n").partition("\n")
    header = next(csv.reader([first])) if form == "csv" and signals else []
    for signal in signals:
        row = json.loads(signal.raw) if form != "csv" else cells_of(header, signal.raw)
        if row is not None:
            assert_as_said(signal, as_asked(row), NOW)
    return bool(signals)


def as_asked(row: dict[str, Any]) -> dict[str, Any]:
    """The event request of a row, its times made instants."""
    due = at(row["at"]) if "at" in row else REGISTERED + timedelta(seconds=row["t_s"])
    assert due <= NOW
    asked = {key: row[key] for key in row if key not in {"at", "t_s", "start_s"}}
    if "start_s" in row:
        asked["start"] = (REGISTERED + timedelta(seconds=row["start_s"])).isoformat()
    elif asked.get("start", "now") == "now":
        asked["start"] = due.isoformat()
    return asked


def cells_of(header: list[str], line: str) -> dict[str, Any] | None:
    """A line of a CSV as the JSON that it stands for; None where its commas leave that open."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) > len(header):
        return None
    row: dict[str, Any] = {}
    for name, cell in zip((name.strip() for name in header), cells, strict=False):
        if cell and name in UNITS:
            row["target"] = {name: float(cell)}
        elif cell and name in {"t_s", "start_s", "revision", "priority"}:
            row[name] = float(cell)
        elif cell:
            row[name] = cell.lower() == "true" if name in {"cancel", "open_end"} else cell
    return row


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", sorted(GOOD))
def test_no_file_crashes_hangs_or_asks_for_what_no_row_says(form: str, tmp_path: Path) -> None:
    acted, count = 0, fewer(2) // len(GOOD)
    for number, body in mutants(GOOD[form], count):
        try:
            with hang_guard():
                acted += check(tmp_path / "rows", body, form)
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
    assert count * 0.02 < acted, "the messages are too wild"
