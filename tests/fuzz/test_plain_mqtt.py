"""Limits on a topic made wrong: none crashes, hangs, or sets a limit that it does not say."""

import json
import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mutate import MESSAGES, hang_guard, mutants
from said import UNITS, at

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.domain.signal import Signal
from gridaware.feeds.kind import FeedContext
from gridaware.feeds.mqtt import MqttMessage
from gridaware.feeds.plain_mqtt import PlainMqtt, PlainMqttSettings

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
GOOD = [
    json.dumps(body).encode()
    for body in (
        {"sequence": 7, "limit_kw": 84, "valid_until": "2026-12-01T15:00:00Z"},
        {"sequence": 8, "reduce_percent": 20.5, "start": "2026-12-01T08:00:00-06:00",
         "valid_until": "2026-12-01T16:00:00Z", "kind": "test"},
        {"sequence": 9, "release": True},
    )
]  # fmt: skip
MADE_ANEW = 100
"""Messages that one feed hears: a great sequence shuts out the others."""


class Link:
    """Takes the place of a connection."""

    def serve(self, _topics: Any, on_message: Any, *_: Any) -> None:
        self.say = on_message


class Site:
    """A feed, and what control would get."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self.refused = 0
        self.greatest = -1
        context = FeedContext("grid", ManualClock(NOW), NOW, self.refuse)
        settings = PlainMqttSettings(
            url="mqtt://127.0.0.1:1", topic="grid/limit", presence_topic="grid/here"
        )
        self.feed = PlainMqtt(context, settings)
        link: Any = Link()
        self.feed._link = link
        self.feed.listen(self.signals.append, lambda: None)
        self.say = link.say

    def refuse(self, error: GridawareError, raw: str) -> None:
        assert error.code
        self.refused += 1


def check(site: Site, body: bytes) -> bool:
    before = len(site.signals)
    site.say(MqttMessage("grid/here", body, retained=False))  # presence moves no limit
    assert len(site.signals) == before
    with suppress(GridawareError):
        PlainMqtt.parse(body, NOW, None)
    site.say(MqttMessage("grid/limit", body, retained=False))
    site.say(MqttMessage("grid/limit", body, retained=True))  # and once more
    heard = site.signals[before:]
    if not heard:
        return False
    (signal,) = heard
    values = json.loads(body)
    assert values["sequence"] > site.greatest
    site.greatest = values["sequence"]
    if signal.request is None:
        assert values["release"] is True
        return True
    ((key, amount),) = ((k, v) for k, v in values.items() if k in UNITS)
    quantity, unit = UNITS[key]
    assert signal.request.target.quantity is quantity
    assert math.isclose(signal.request.target.value, amount * unit)
    assert signal.request.kind == values.get("kind", "live")
    assert signal.request.end == at(values["valid_until"]) > NOW
    assert signal.request.start.utcoffset() == timedelta(0)
    return True


@pytest.mark.timeout(3600)
def test_no_limit_crashes_hangs_or_moves_what_it_does_not_say() -> None:
    acted = refused = 0
    for number, body in mutants(GOOD):
        if number % MADE_ANEW == 0:
            site = Site()
        before = site.refused
        try:
            with hang_guard():
                acted += check(site, body)
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
        refused += site.refused > before
    assert acted > MESSAGES * 0.01, "the messages are too wild"
    assert refused > MESSAGES * 0.2, "the messages are too tame"
