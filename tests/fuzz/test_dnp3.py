"""Requests of a DNP3 master made wrong: none breaks the outstation or acts by chance.

Requests are application fragments (IEEE 1815, clause 4.2), written out by hand.
"""

import math
import struct
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from dnp3.outstation import outstation as library
from dnp3.outstation.peer import PeerId
from mutate import MESSAGES, hang_guard, mutants

from gridaware.clock import ManualClock
from gridaware.domain.signal import Quantity, Signal
from gridaware.feeds.dnp3 import Dnp3, Dnp3Settings
from gridaware.feeds.kind import FeedContext

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
MASTER, STRANGER = PeerId(source=2, connection=1), PeerId(source=3, connection=1)
SELECT, OPERATE, DIRECT, UNCONFIRMED = 3, 4, 5, 6
NUMBERS = {1: "<i", 2: "<h", 3: "<f", 4: "<d"}
"""Variation of an analog output block (group 41) → its number."""


def written(function: int, counts: float, variation: int = 3, *, index: int = 0) -> bytes:
    number = struct.pack(NUMBERS[variation], counts if variation > 2 else int(counts))
    return bytes((0xC0, function, 41, variation, 0x17, 1, index)) + number + b"\0"


def latched(function: int, code: int) -> bytes:
    times = struct.pack("<II", 0, 0)
    return bytes((0xC0, function, 12, 1, 0x28, 1, 0, 0, 0, code, 1)) + times + b"\0"


GOOD = [
    *(written(DIRECT, 840, variation) for variation in NUMBERS),
    written(SELECT, 700), written(OPERATE, 700), written(UNCONFIRMED, 650.5), written(DIRECT, 1000),
    written(DIRECT, 840, index=1), latched(DIRECT, 3), latched(DIRECT, 4), latched(SELECT, 3),
    written(DIRECT, 840)[:-1] + b"\0" + latched(DIRECT, 3)[2:],
    bytes((0xC0, 1, 60, 2, 6, 60, 3, 6, 60, 4, 6, 60, 1, 6)),  # reads every class
    bytes((0xC0, 1, 30, 0, 6)), bytes((0xC0, 2, 50, 1, 7, 1)) + b"\0" * 6,
    bytes((0xC0, 13)), bytes((0xC0, 14)), bytes((0xC0, 23)), bytes((0xC0, 9, 20, 0, 6)),
]  # fmt: skip


class Site:
    """An outstation that answers on no port, and what control would get."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        settings = Dnp3Settings(
            neutral_kw=1000.0,
            limit_minutes=60.0,
            emergency_index=0,
            emergency_target={"limit_kw": 200},
        )
        self.feed = Dnp3(FeedContext("scada", ManualClock(NOW), NOW, lambda *_: None), settings)
        self.feed._emit = self.signals.append
        runner = self.feed._points.runner(self.feed, lambda: None)
        self.ask = runner.outstation.process_request


def numbers_in(body: bytes) -> set[float]:
    """Every number that stands anywhere in a request."""
    return {
        struct.unpack_from(form, body, at)[0]
        for form in NUMBERS.values()
        for at in range(len(body) - struct.calcsize(form) + 1)
    }


def check(site: Site, body: bytes, selected: bytes) -> bool:
    before = len(site.signals)
    assert site.ask(body, peer=STRANGER) == []
    assert len(site.signals) == before
    for answer in site.ask(body, peer=MASTER):
        assert len(answer.to_bytes()) <= 2048
    heard = site.signals[before:]
    for signal in heard:
        assert body[1] in {OPERATE, DIRECT, UNCONFIRMED}
        request = signal.request
        if request is None:
            continue
        assert request.target.quantity is Quantity.LIMIT_WATTS
        assert request.end == NOW + timedelta(hours=1)
        if signal.source_id.startswith("emergency"):
            assert request.target.value == 200e3
            assert 3 in body
        else:
            assert 0 <= request.target.value < 1e6
            counts = request.target.value / 1000
            assert any(math.isclose(number, counts) for number in numbers_in(body))
    for one, other in pairwise(s for s in heard if s.source_id.startswith("limit")):
        assert (other.source_id, other.revision) != (one.source_id, one.revision)
    # What is operated is what was selected just before, byte by byte.
    assert not heard or body[1] != OPERATE or body[2:] == selected[2:]
    return bool(heard)


@pytest.fixture
def _loud(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what the library catches of ours seen."""

    def told(message: str, *what: object) -> None:
        raise AssertionError(message % what)

    monkeypatch.setattr(library._log, "exception", told)


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("_loud")
def test_no_request_breaks_the_outstation_or_acts_by_chance() -> None:
    site, acted, before = Site(), 0, b""
    for number, body in mutants(GOOD):
        try:
            with hang_guard():
                acted += check(site, body, before)
        except BaseException as error:
            error.add_note(f"message {number}: {body[:200].hex(' ')}")
            raise
        before = body
    assert MESSAGES * 0.02 < acted < MESSAGES * 0.9, "the messages are too tame, or too wild"
