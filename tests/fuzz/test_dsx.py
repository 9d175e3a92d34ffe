"""DSX Flex made wrong, before it is signed and after: nothing hangs, or moves by mistake."""

import json
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mutate import MESSAGES, hang_guard, mutants

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.domain.signal import Quantity, Signal
from gridaware.feeds.dsx.kind import Dsx
from gridaware.feeds.dsx.parsing import parse_message
from gridaware.feeds.dsx.settings import DsxSettings
from gridaware.feeds.kind import Disposition, FeedContext
from gridaware.feeds.mqtt import MqttMessage
from gridaware.sim.grid.dsx import Isv

DATA = Path(__file__).parents[1] / "data" / "feeds" / "dsx"
GOOD = [path.read_bytes() for path in sorted(DATA.glob("set_*.json")) if "signed" not in path.stem]
IDS = {json.loads(body)["id"] for body in GOOD}
OTHERS = [(DATA / f"{name}.json").read_bytes() for name in ("breach_alert", "breach_enforcement")]
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
CLOCK = ManualClock(NOW)
ISV = Isv("acme-energy", CLOCK)
UNITS = {"watt": 1, "kilowatt": 1e3, "megawatt": 1e6}
MADE_ANEW = 200
"""Messages that one feed hears: its schedule becomes as full as theirs make it."""


class Link:
    """Takes the place of a connection."""

    def serve(self, _topics: Any, on_message: Any, *_: Any) -> None:
        self.say = on_message


class Site:
    """A feed, and what control would get."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self.refused: list[GridawareError] = []
        settings = DsxSettings(
            url="mqtt://127.0.0.1:1",
            isv_id="acme-energy",
            agent_id="site-7",
            feeds={"main-a": {"default_kw": 36000.0}, "main-b": {"default_kw": 4000.0}},  # type: ignore[dict-item]
            keys={"isv-1": "env:FUZZ_DSX_KEY"},
        )
        context = FeedContext("acme", CLOCK, NOW, lambda error, _: self.refused.append(error))
        self.feed = Dsx(context, settings)
        link: Any = Link()
        self.feed._link = link
        self.feed.listen(self.signals.append, lambda: None)
        self.say = link.say

    def hear(self, body: bytes) -> int:
        """How many signals a message made."""
        before = len(self.signals)
        self.say(MqttMessage(ISV.topic, body, retained=False))
        return len(self.signals) - before


def signed(body: bytes, number: int) -> bytes | None:
    """The message with whatever its data is signed; None where there is none to sign.

    Its id, where that is still one of ours, becomes a new one: else it would be a copy.
    """
    try:
        values = json.loads(body)
        data = values["data"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if str(values.get("id")) in IDS:
        values["id"] = str(uuid.UUID(int=number))
    return json.dumps({**values, "data": ISV.signer.sign(json.dumps(data).encode())}).encode()


def limits_of(body: bytes) -> set[float]:
    """Every limit that a message may ask of two power feeds, said a second time and otherwise."""
    found = {36e6, 4e6}
    for target in json.loads(body)["data"]["targets"]:
        limit = target.get("load_constraint")
        if isinstance(limit, dict):
            found.add(limit["value"] * UNITS[limit["unit"]])
    return found


def check(site: Site, number: int, body: bytes, said: set[float]) -> bool:
    """Have a message heard, plain and signed; whether it moved anything."""
    assert site.hear(body) == 0  # it is not signed
    with suppress(GridawareError):
        parsed = parse_message(body, NOW, None)
        assert all(part.code and part.reason.isprintable() for part in parsed.refused)
    message = signed(body, number)
    if message is None:
        return False
    before = len(site.signals)
    moved = site.hear(message) > 0
    if moved:
        parsed = parse_message(message, NOW, None)
        assert any(row.disposition is Disposition.ACT for row in parsed.events)
        assert not parsed.refused
        said |= limits_of(body)
    whole = {round(limit) for limit in said}
    for signal in site.signals[before:]:
        if signal.request is not None:
            target = signal.request.target
            assert target.quantity is Quantity.LIMIT_WATTS
            assert any(round(target.value - limit) in whole for limit in said), target
            assert signal.request.start.utcoffset() == timedelta(0)
            assert signal.request.start >= NOW - timedelta(hours=25)
    # What is changed after it was signed moves nothing, whatever is left of it.
    cut = number % (len(message) - 1)
    at = message.rindex(b'"data"') + 10
    broken = message[: at + cut % 200] + b"A" + message[at + cut % 200 + 1 :]
    if broken != message:
        assert site.hear(broken) == 0
    return moved


@pytest.mark.timeout(3600)
def test_no_message_crashes_hangs_or_moves_what_was_not_signed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FUZZ_DSX_KEY", ISV.public_pem)
    moved, site, said = 0, Site(), {36e6, 4e6}
    for number, body in mutants([*GOOD, *OTHERS]):
        if number % MADE_ANEW == 0:
            site, said = Site(), {36e6, 4e6}
        try:
            with hang_guard():
                moved += check(site, number, body, said)
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
    assert MESSAGES * 0.02 < moved < MESSAGES * 0.9, "the messages are too tame, or too wild"
