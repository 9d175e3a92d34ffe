"""Event requests made wrong, signed and with a broken signature: none acts but as it says."""

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from mutate import MESSAGES, hang_guard, mutants
from said import assert_as_said

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.domain.signal import Signal
from gridaware.feeds.kind import FeedContext, Push
from gridaware.feeds.webhook import Webhook, WebhookSettings
from gridaware.sim.grid import signed_headers

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
SECRET = b"0123456789abcdef-fuzz"
GOOD = [
    json.dumps(body).encode()
    for body in (
        {"id": "dr-1", "start": "now", "duration": "PT45M", "target": {"reduce_percent": 40}},
        {"id": "dr-2", "revision": 3, "kind": "drill", "start": "2026-12-01T14:00:00-06:00",
         "end": "2026-12-01T15:00:00-06:00", "target": {"limit_kw": 12.5}, "priority": 1},
        {"id": "dr-3", "start": "2026-12-01T14:00:00Z", "open_end": True,
         "target": {"limit_percent_of_baseline": 75}},
        {"id": "dr-3", "revision": 1, "cancel": True},
    )
]  # fmt: skip
MADE_ANEW = 10_000
"""Messages that one feed hears: its memory of what it heard is bounded."""


class Site:
    """A feed whose clock runs on from message to message."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        settings = WebhookSettings(secrets=("env:FUZZ_SECRET",), rate_per_second=1000.0)
        self.feed = Webhook(FeedContext("grid", self.clock, NOW, lambda *_: None), settings)

    def hear(self, body: bytes, headers: dict[str, str]) -> Signal | None:
        low = {name.lower(): value for name, value in headers.items()}
        push = Push(low, body, NOW, self.clock.monotonic_seconds())
        with suppress(GridawareError):
            return self.feed.hear(push)
        return None


def broken(headers: dict[str, str], number: int) -> dict[str, str]:
    """Headers that sign something else, or nothing."""
    name, text = list(headers.items())[-1 - number % 2]
    way, place = number % 5, number % len(text)
    wrong = text[:place] + ("1" if text[place] != "1" else "2") + text[place + 1 :]
    return {**headers, name: (wrong, "", text[:-1], f"\u00e9{text}", "v1=" + "0" * 64)[way]}


def check(site: Site, number: int, body: bytes) -> bool:
    headers = signed_headers(SECRET, body, site.clock)
    assert site.hear(body, broken(headers, number)) is None
    assert site.hear(body, {}) is None
    assert site.hear(body + b" ", headers) is None  # signed, and changed since
    signal = site.hear(body, headers)
    if signal is None:
        return False
    assert site.hear(body, headers) is None  # the very same message once more
    assert_as_said(signal, json.loads(body), NOW)
    parsed: Any = Webhook.parse(body, NOW, None)
    assert parsed.events[0].id == signal.source_id
    return True


@pytest.mark.timeout(3600)
def test_no_request_crashes_hangs_or_acts_but_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUZZ_SECRET", SECRET.decode())
    acted = 0
    for number, body in mutants(GOOD):
        if number % MADE_ANEW == 0:
            site = Site()
        site.clock.advance(0.001)
        try:
            with hang_guard():
                acted += check(site, number, body)
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
    assert MESSAGES * 0.02 < acted < MESSAGES * 0.9, "the messages are too tame, or too wild"
