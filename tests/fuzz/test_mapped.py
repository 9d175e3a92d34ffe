"""Messages of three aggregators made wrong: none crashes, hangs, or acts but as one of its events.

Leap's and Axle's are pushed, with and without what makes them authentic; Voltus's list is polled.
"""

import hashlib
import hmac
import json
import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from mutate import fewer, hang_guard, mutants
from said import numbers_in

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError, Unavailable
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds import mapped
from gridaware.feeds.fieldmap import shipped_map
from gridaware.feeds.http import Answer
from gridaware.feeds.kind import FeedContext, Push
from gridaware.feeds.mapped import MappedFeed, MappedSettings

DATA = Path(__file__).parents[1] / "data" / "feeds" / "mapped"
MAPS = ("leap", "voltus", "axle")
GOOD = [(DATA / f"{name}.json").read_bytes() for name in MAPS]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECRET = b"0123456789abcdef-fuzz"
MOST = TargetSpec(Quantity.REDUCTION_FRACTION, 0.4)
COUNT = fewer(6)
MADE_ANEW = 100
"""Messages that one feed hears: what it remembers becomes as full as they make it."""
SUBJECTS = {"leap": "meter-dal-1", "voltus": "site-a"}


class Site:
    """A feed of each map."""

    def __init__(self) -> None:
        context = FeedContext("grid", ManualClock(NOW), NOW, self.refuse)
        self.feeds = {
            name: MappedFeed(
                context,
                MappedSettings(
                    map=name,
                    secrets=("env:FUZZ_SECRET",),
                    api_key="env:FUZZ_SECRET",
                    subject=SUBJECTS.get(name),
                    null_target={"reduce_percent": 40.0},
                    rate_per_second=1000.0,
                ),
            )
            for name in MAPS
        }
        self.listed = b""

    def refuse(self, error: GridawareError, raw: str) -> None:
        assert error.code
        assert error.message.isprintable()

    def list(self, *what: Any, **more: Any) -> Answer:
        return Answer(200, {}, self.listed)

    def hear(self, name: str, body: bytes, headers: dict[str, str]) -> tuple[Signal, ...]:
        feed = self.feeds[name]
        feed._rate._left = 1000.0
        push = Push(headers, body, NOW, 1.0)
        with suppress(GridawareError):
            return feed.hook(push).signals
        return ()

    def poll(self, body: bytes) -> tuple[Signal, ...]:
        self.listed = body
        with suppress(Unavailable):
            return tuple(self.feeds["voltus"].poll())
        return ()


def authentic(name: str, body: bytes) -> dict[str, str]:
    if name == "leap":
        return {"x-api-key": SECRET.decode()}
    try:
        signed = str(json.loads(body)["event_id"]).encode("utf-8", "surrogatepass")
    except (ValueError, TypeError, KeyError, RecursionError):
        signed = body
    return {"x-axle-signature": hmac.new(SECRET, signed, hashlib.sha256).hexdigest()}


def assert_said(signals: tuple[Signal, ...], body: bytes) -> None:
    """Each asks for what stands somewhere in the message, and its times do too."""
    if not signals:
        return
    values = json.loads(body)
    numbers, text = numbers_in(values), json.dumps(values, ensure_ascii=False)
    for signal in signals:
        request = signal.request
        if request is None or request.target == MOST:
            continue
        target = request.target
        assert target.quantity in {Quantity.REDUCTION_WATTS, Quantity.LIMIT_WATTS}
        assert any(math.isclose(abs(n) * 1000, target.value) or n == target.value for n in numbers)
        assert request.start.utcoffset() == timedelta(0)
        assert request.end is None or request.end > request.start
        assert f"{request.start.minute:02}:{request.start.second:02}" in text + ":00"


def check(site: Site, body: bytes) -> bool:
    acted = False
    for name in ("leap", "axle"):
        headers = authentic(name, body)
        ((header, value),) = headers.items()
        for wrong in ({}, {header: value[:-1]}, {header: f"{value}\u00e9"}, {"x-other": value}):
            assert site.hear(name, body, wrong) == ()
        signals = site.hear(name, body, headers)
        assert_said(signals, body)
        acted |= bool(signals)
        with suppress(GridawareError):
            MappedFeed.parse(body, NOW, site.feeds[name].settings)
    assert site.hear("voltus", body, {}) == ()  # a wake-up and nothing else
    signals = site.poll(body)
    assert_said(signals, body)
    return acted or bool(signals)


@pytest.mark.timeout(3600)
def test_no_message_crashes_hangs_or_acts_but_as_its_events_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FUZZ_SECRET", SECRET.decode())
    monkeypatch.setattr(mapped, "shipped_map", cache(shipped_map))
    acted = 0
    for number, body in mutants(GOOD, COUNT):
        if number % MADE_ANEW == 0:
            site = Site()
            monkeypatch.setattr(mapped, "exchange", site.list)
        try:
            with hang_guard():
                acted += check(site, body)
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
    assert COUNT * 0.02 < acted < COUNT * 0.95, "the messages are too tame, or too wild"
