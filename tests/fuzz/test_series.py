"""Prices and carbon intensities made wrong in every way a seed gives."""

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mutate import MESSAGES, hang_guard, mutants

from gridaware.domain.errors import GridawareError
from gridaware.domain.signal import Quantity, TargetSpec
from gridaware.feeds import check_settings, feed_kind
from gridaware.feeds.kind import Disposition, Parsed

DATA = Path(__file__).parents[1] / "data" / "feeds"
COUNT = MESSAGES if MESSAGES > 2000 else MESSAGES // 4
NOW = datetime(2026, 7, 30, 12, tzinfo=UTC)
ABOVE = {"name": "much", "above": 200, "target": {"reduce_percent": 40}}
ASKED = TargetSpec(Quantity.REDUCTION_FRACTION, 0.4)
ROWS = {"rows": "data", "start": "start_timestamp", "end": "end_timestamp", "value": "marketprice"}
BESIDE = {"start": "unix_seconds", "value": "price", "minutes": 15}
CSV = {"format": "csv", "start": "time", "value": "price", "timezone": "Europe/Berlin"}


def price(**columns: object) -> dict[str, object]:
    source = {"url": "https://prices.example", "columns": columns}
    return {"currency": "EUR", "source": source, "acts": [ABOVE]}


KINDS = {
    "rows": ("price", "price/rows.json", price(**ROWS)),
    "beside": ("price", "price/beside.json", price(**BESIDE)),
    "csv": ("price", "price/hourly.csv", price(**CSV)),
    "carbon": ("carbon", "carbon/*.json", None),
}


def is_sound(parsed: Parsed) -> bool:
    """Whether what acts is a stretch of values above the threshold, said a second time.

    Where nothing is asked for twice, each hour that acts is covered by shown values above it.
    """
    points = [
        row
        for row in parsed.events
        if row.disposition is Disposition.ADVISORY and row.start and row.end
    ]
    for row in points:
        assert isinstance(row.value, float)
        assert math.isfinite(row.value)
    for row in parsed.events:
        if row.disposition is not Disposition.ACT:
            continue
        assert row.target == ASKED
        assert row.start is not None
        assert row.end is not None
        assert row.start < row.end
        inside = [p for p in points if p.start and p.end and row.start <= p.start < row.end]
        assert all(isinstance(p.value, float) and p.value > 200 for p in inside)
        covered = sum(((p.end - p.start) for p in inside if p.end and p.start), timedelta())
        assert covered == row.end - row.start or len(points) >= 1000
    return True


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_series_made_wrong_crashes_nothing_and_acts_only_above_its_threshold(name: str) -> None:
    kind, pattern, given = KINDS[name]
    settings = None if given is None else check_settings(kind, json.dumps(given))
    good = [path.read_bytes() for path in sorted(DATA.glob(pattern))]
    read = 0
    for number, body in mutants(good, COUNT):
        try:
            with hang_guard():
                read += is_sound(feed_kind(kind).parse(body, NOW, settings))  # type: ignore[attr-defined]
        except GridawareError:
            continue
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
    assert read > COUNT // 20
