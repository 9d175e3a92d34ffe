"""Files of timed signals made wrong: no row crashes, hangs, or asks for what it does not say."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mutate import fewer, hang_guard, mutants
from said import UNITS

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.feeds.file import FileFeed, FileSettings
from gridaware.feeds.kind import FeedContext

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
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

    context = FeedContext("drill", ManualClock(NOW), NOW - timedelta(minutes=1), refuse)
    feed = FileFeed(context, FileSettings(path=str(path), format=form))
    try:
        signals = feed.poll()
    except GridawareError:
        return False
    assert feed.poll() == signals  # nothing of the file is said in another way a second time
    for signal in signals:
        request = signal.request
        if request is None:
            assert "cancel" in signal.raw or "true" in signal.raw.lower()
            continue
        assert signal.source_id in signal.raw
        assert request.start.utcoffset() == timedelta(0)
        assert request.end is None or request.end > request.start
        if form == "csv":
            numbers = set(map(number_of, signal.raw.split(",")))
        else:
            ((key, amount),) = json.loads(signal.raw)["target"].items()
            assert request.target.quantity is UNITS[key][0]
            numbers = {amount}
        assert any(
            isinstance(number, int | float)
            and abs(number * unit - request.target.value) <= 1e-9 * abs(number)
            for number in numbers
            for quantity, unit in UNITS.values()
            if quantity is request.target.quantity
        )
    return bool(signals)


def number_of(cell: str) -> float | None:
    with suppress(ValueError):
        return float(cell.strip())
    return None


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
