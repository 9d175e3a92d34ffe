"""Windows made wrong: none crashes or hangs what reads them, or recurs but as it says."""

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from mutate import fewer, hang_guard, mutants
from said import UNITS

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.feeds import check_settings
from gridaware.feeds.kind import FeedContext
from gridaware.feeds.schedule import Schedule

NOWS = [
    datetime(2026, 12, 1, 12, tzinfo=UTC),
    datetime(2026, 3, 28, 20, tzinfo=UTC),  # clocks in London go ahead in five hours
    datetime(2026, 10, 24, 20, tzinfo=UTC),  # and back
]
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
            {"name": "often", "cron": "*/20 6-22/4 * dec fri-mon", "duration": "PT10M",
             "target": {"limit_kw": 250.0}},
            {"name": "night", "cron": "30 0-2 * * *", "until": "03:15",
             "target": {"limit_kw": 250.0}},
        ]),
    )
]  # fmt: skip
COUNT = fewer(10)
"""A window is walked through days: dearer than a message, and written by the site itself."""


MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
NAMES = {
    name: number
    for names, first in (("sun mon tue wed thu fri sat", 0), (MONTHS, 1))
    for number, name in enumerate(names.split(), start=first)
}


def fits(cron: str, wall: datetime) -> bool:
    """Whether a wall time is one of crontab(5), said a second time and otherwise."""
    weekday = wall.isoweekday() % 7
    values = (wall.minute, wall.hour, wall.day, wall.month, weekday)
    greatest = (59, 23, 31, 12, 6)
    return all(map(among, cron.lower().split(), values, greatest))


def among(field: str, value: int, greatest: int) -> bool:
    for part in field.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            first, last = int(greatest in {31, 12}), greatest
        else:
            first, last = (number_of(each) for each in (span.split("-") * 2)[:2])
            if step and "-" not in span:
                last = greatest
        if greatest == 6:  # weekdays go round, and both 0 and 7 are Sunday
            first, last = first % 7, last % 7 if first else last
            last += 7 if last < first else 0
        around = (value, value + 7) if greatest == 6 else (value,)
        if any(first <= v <= last and (v - first) % int(step or 1) == 0 for v in around):
            return True
    return False


def number_of(text: str) -> int:
    return NAMES.get(text) if text in NAMES else int(text)  # type: ignore[return-value]


def seconds_of(duration: str) -> float:
    units = {"W": 604800, "D": 86400, "H": 3600, "M": 60, "S": 1}
    parts = re.findall(r"([0-9.,]+)([WDHMS])", duration)
    return sum(float(number.replace(",", ".")) * units[unit] for number, unit in parts)


def is_skipped(at: datetime, zone: ZoneInfo) -> bool:
    """Whether the local clock jumped ahead to this instant."""
    before = (at - timedelta(seconds=1)).astimezone(zone).utcoffset()
    after = at.astimezone(zone).utcoffset()
    assert before is not None
    assert after is not None
    return before < after


def check_times(window: Any, start: datetime, end: datetime, zone: ZoneInfo) -> None:
    """A window begins when its cron says, and ends when it says itself."""
    assert start.utcoffset() == end.utcoffset() == timedelta(0)
    assert start.astimezone(zone).fold == 0  # of two such times the first
    if not is_skipped(start, zone):
        assert fits(window["cron"], start.astimezone(zone)), window
    if window.get("duration") is not None:
        assert math.isclose((end - start).total_seconds(), seconds_of(window["duration"]))
    elif not is_skipped(end, zone):
        assert f"{end.astimezone(zone):%H:%M:%S}" == f"{window['until']}:00"
        assert end - start <= timedelta(hours=26)


def check(body: bytes, now: datetime) -> bool:
    text = body.decode("utf-8", "replace")
    try:
        settings: Any = check_settings("schedule", text)
        feed = Schedule(FeedContext("tariff", ManualClock(now), now, lambda *_: None), settings)
    except GridawareError:
        return False
    signals = feed.poll()
    zone = ZoneInfo(settings.timezone)
    windows = {window["name"]: window for window in json.loads(text)["windows"]}
    for signal in signals:
        assert signal.request is not None
        window = windows[signal.source_id[: -len("-2026-12-01T12:00Z")]]
        ((key, amount),) = window["target"].items()
        quantity, unit = UNITS[key]
        assert signal.request.target.quantity is quantity
        assert abs(signal.request.target.value - amount * unit) <= 1e-9 * abs(amount)
        assert signal.request.end is not None
        assert now < signal.request.end <= signal.request.start + timedelta(days=31)
        check_times(window, signal.request.start, signal.request.end, zone)
        assert signal.request.start <= now + timedelta(hours=settings.horizon_hours)
    return bool(signals)


@pytest.mark.timeout(3600)
def test_no_window_crashes_hangs_or_recurs_but_as_it_says() -> None:
    acted = 0
    for number, body in mutants(GOOD, COUNT):
        try:
            with hang_guard():
                acted += check(body, NOWS[number % len(NOWS)])
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
    assert COUNT * 0.02 < acted < COUNT * 0.9, "the messages are too tame, or too wild"
