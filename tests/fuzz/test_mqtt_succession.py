"""Limits on a topic, wrong ones between right ones: each right one is taken, as it says."""

import json
import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mutate import fewer, hang_guard, mutants
from said import UNITS, at

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.domain.signal import Signal
from gridaware.feeds.kind import FeedContext
from gridaware.feeds.mqtt import MqttMessage
from gridaware.feeds.plain_mqtt import PlainMqtt, PlainMqttSettings

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
TOPIC, PRESENCE = "grid/limit", "grid/presence"
COUNT = fewer(4)
MADE_ANEW = 200
"""Messages that one feed hears: its sequence only rises."""


def text_of(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def drawn_message(drawn: random.Random, now: datetime, sequence: int) -> dict[str, object]:
    """A message as a sender may well write it."""
    if drawn.random() < 0.2:
        return {"sequence": sequence, "release": True}
    word = drawn.choice(list(UNITS))
    said: dict[str, object] = {"sequence": sequence, word: drawn.choice((0, 12.5, 40, 100))}
    until = now + timedelta(minutes=drawn.choice((5, 60, 300)))
    said["valid_until"] = text_of(until)
    if drawn.random() < 0.5:
        said["start"] = text_of(until - timedelta(minutes=drawn.choice((4, 90, 299))))
    if drawn.random() < 0.2:
        said["kind"] = drawn.choice(("live", "test", "drill"))
    return said


class Link:
    """Takes the place of a connection."""

    def serve(self, _topics: Any, on_message: Any, *_: Any) -> None:
        self.say = on_message


class Site:
    """A feed, and what control would get."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.signals: list[Signal] = []
        self.refused: list[GridawareError] = []
        context = FeedContext("dso", self.clock, NOW, lambda error, _: self.refused.append(error))
        settings = PlainMqttSettings(url="mqtt://127.0.0.1:1", topic=TOPIC, presence_topic=PRESENCE)
        self.feed = PlainMqtt(context, settings)
        self.link: Any = Link()
        self.feed._link = self.link
        self.feed.listen(self.signals.append, lambda: None)
        self.newest = -1
        """The highest sequence that was taken."""
        self.limited = False

    def hear(self, body: bytes, topic: str = TOPIC) -> Signal | None:
        """The signal that a message made, if any."""
        before = len(self.signals)
        self.link.say(MqttMessage(topic, body, retained=False))
        said = self.signals[before:]
        assert len(said) <= 1
        return said[0] if said else None


def check_said(site: Site, body: bytes, signal: Signal) -> None:
    """What a signal asks is what the message says, said a second time and otherwise."""
    values = json.loads(body)
    sequence = values["sequence"]
    assert type(sequence) is int
    assert sequence > site.newest
    site.newest = sequence
    request, now = signal.request, site.clock.wall()
    if request is None:
        assert values == {"sequence": sequence, "release": True}
        assert site.limited
        site.limited = False
        return
    site.limited = True
    (word,) = set(values) & set(UNITS)
    quantity, unit = UNITS[word]
    assert request.target.quantity is quantity
    assert request.target.value == pytest.approx(values[word] * unit, rel=1e-12, abs=0)
    assert request.kind == values.get("kind", "live")
    assert request.end == at(values["valid_until"])
    assert request.end > now
    if "start" in values:
        assert request.start == at(values["start"])
    else:
        assert request.start <= now  # from now on, or from when it began
    assert set(values) <= {"sequence", "valid_until", "start", "release", "kind", word}
    assert values.get("release", False) is False


def check(site: Site, drawn: random.Random, body: bytes) -> bool:
    """Have a message heard that is wrong, and one that is right; whether the first limited."""
    if drawn.random() < 0.8:  # else most come too late
        number = b'"sequence": %d' % (site.newest + 1)
        body = re.sub(rb'"sequence": [0-9]{1,4}(?![0-9.])', number, body, count=1)
    wrong = site.hear(body)
    if wrong is not None:
        check_said(site, body, wrong)
    assert site.hear(body) is None  # once more
    assert site.hear(body, PRESENCE) is None
    site.clock.advance(drawn.choice((0, 0.5, 1, 60)))
    told, was_limited = site.newest, site.limited
    right = drawn_message(drawn, site.clock.wall(), drawn.choice((told, told + 1, told + 9)))
    text = json.dumps(right).encode()
    signal = site.hear(text)
    if signal is not None:
        check_said(site, text, signal)
    is_new = right["sequence"] > told and (was_limited or "release" not in right)
    assert (signal is not None) is is_new, (right, site.refused)
    return wrong is not None


@pytest.mark.timeout(3600)
def test_no_wrong_message_keeps_a_right_one_from_being_taken_as_it_says() -> None:
    took, site = 0, Site()
    good = [
        json.dumps(drawn_message(random.Random(number), NOW, 10 * number)).encode()
        for number in range(60)
    ]
    for number, body in mutants(good, COUNT):
        if number % MADE_ANEW == 0:
            site = Site()
        try:
            with hang_guard():
                took += check(site, random.Random(number), body)
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
        assert all(error.code and error.message.isprintable() for error in site.refused)
        site.refused.clear()
    assert COUNT * 0.02 < took < COUNT * 0.9, "the messages are too tame, or too wild"
