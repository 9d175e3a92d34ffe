"""Windows made wrong: none crashes or hangs what reads them, or recurs but as it says."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mutate import fewer, hang_guard, mutants
from said import UNITS

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.feeds import check_settings
from gridaware.feeds.kind import FeedContext
from gridaware.feeds.schedule import Schedule

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
GOOD = [
    json.dumps({"timezone": zone, "horizon_hours": hours, "windows": windows}).encode()
    for zone, hours, windows in (
        ("America/Chicago", 24.0, [
            {"name": "peak", "cron": "0 17 * * 1-5", "until": "20:00",
             "target": {"reduce_percent": 20.0}},
            {"name": "noon", "cron": "30 12 * * *", "duration": "PT2H", "kind": "drill",
             "target": {"limit_kw": 500.0}, "priority": 2, "revision": 1},
        ]),
        ("Europe/London", 48.0, [
            {"name": "month", "cron": "15 4 1 * *", "duration": "P1D",
             "target": {"limit_percent_of_baseline": 60.0}},
        ]),
    )
]  # fmt: skip
COUNT = fewer(10)
"""A window is walked through days: dearer than a message, and written by the site itself."""


def check(body: bytes) -> bool:
    text = body.decode("utf-8", "replace")
    try:
        settings: Any = check_settings("schedule", text)
        feed = Schedule(FeedContext("tariff", ManualClock(NOW), NOW, lambda *_: None), settings)
    except GridawareError:
        return False
    signals = feed.poll()
    windows = {window["name"]: window for window in json.loads(text)["windows"]}
    for signal in signals:
        assert signal.request is not None
        window = windows[signal.source_id[: -len("-2026-12-01T12:00Z")]]
        ((key, amount),) = window["target"].items()
        quantity, unit = UNITS[key]
        assert signal.request.target.quantity is quantity
        assert abs(signal.request.target.value - amount * unit) <= 1e-9 * abs(amount)
        assert signal.request.end is not None
        assert NOW < signal.request.end <= signal.request.start + timedelta(days=31)
        assert signal.request.start <= NOW + timedelta(hours=settings.horizon_hours)
    return bool(signals)


@pytest.mark.timeout(3600)
def test_no_window_crashes_hangs_or_recurs_but_as_it_says() -> None:
    acted = 0
    for number, body in mutants(GOOD, COUNT):
        try:
            with hang_guard():
                acted += check(body)
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
    assert COUNT * 0.02 < acted < COUNT * 0.9, "the messages are too tame, or too wild"
