"""DNP3 controls, nearly right: what acts is told by another decoder than the library's.

With selections that are nearly operated, a control that refuses, and a clock that steps.
"""

import random
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from mutate import fewer, hang_guard, mutants

from gridaware.clock import ManualClock
from gridaware.control.ports import Receipt
from gridaware.domain.errors import Refused, Unavailable
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds.dnp3 import Dnp3, Dnp3Settings
from gridaware.feeds.kind import FeedContext

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
MASTER, STRANGER = 2, 9
READ, WRITE, SELECT, OPERATE, DIRECT, DIRECT_NO_ACK = 1, 2, 3, 4, 5, 6
LATCH_ON, LATCH_OFF = 3, 4
NEUTRAL_WATTS, EMERGENCY_WATTS = 1e6, 2e5
VALUES = {1: "<i", 2: "<h", 3: "<f", 4: "<d"}
"""Of group 41 by variation: IEEE 1815, annex A.24."""
COUNT = fewer(4)
MADE_ANEW = 200
"""Requests that one outstation hears."""


def fragment(function: int, *blocks: bytes, sequence: int = 0) -> bytes:
    return bytes([0xC0 | sequence, function]) + b"".join(blocks)


def limit(value: float, *, variation: int = 1, index: int = 0, wide: bool = False) -> bytes:
    number = struct.pack(VALUES[variation], int(value) if variation < 3 else value) + b"\0"
    if wide:
        return bytes([41, variation, 0x28]) + struct.pack("<HH", 1, index) + number
    return bytes([41, variation, 0x17, 1, index]) + number


def latch(code: int, *, index: int = 5, count: int = 1) -> bytes:
    return bytes([12, 1, 0x17, 1, index, code, count]) + struct.pack("<IIB", 100, 100, 0)


GOOD = [
    *(fragment(DIRECT, limit(840, variation=variation)) for variation in VALUES),
    fragment(DIRECT, limit(720, wide=True)),
    fragment(DIRECT, limit(1000)),
    fragment(DIRECT_NO_ACK, limit(300, variation=3)),
    fragment(DIRECT, limit(640), latch(LATCH_ON)),
    fragment(DIRECT, latch(LATCH_ON)),
    fragment(DIRECT, latch(LATCH_OFF)),
    fragment(SELECT, limit(500, variation=4), sequence=7),
    fragment(SELECT, latch(LATCH_ON), sequence=15),
    fragment(SELECT, latch(LATCH_OFF), limit(2000), sequence=1),
    fragment(READ, bytes([60, 2, 6, 60, 3, 6, 60, 4, 6, 60, 1, 6])),
    fragment(READ, bytes([30, 0, 6]), bytes([1, 2, 0, 0, 2])),
    fragment(WRITE, bytes([80, 1, 0, 7, 7, 0])),
]


def commands(body: bytes) -> list[tuple[str, float]]:
    """What a request's objects command of our two points, said a second time and otherwise.

    Objects after one that cannot be told apart are left out: where they begin is not known.
    """
    found: list[tuple[str, float]] = []
    at = 0
    while at + 3 <= len(body):
        group, variation, qualifier = body[at : at + 3]
        at += 3
        width = {0x17: 1, 0x28: 2}.get(qualifier)
        if width is None or not (
            (group == 41 and variation in VALUES) or (group, variation) == (12, 1)
        ):
            return found
        count = int.from_bytes(body[at : at + width], "little")
        at += width
        for _ in range(count):
            index = int.from_bytes(body[at : at + width], "little")
            at += width
            size = struct.calcsize(VALUES[variation]) if group == 41 else 10
            value, at = body[at : at + size], at + size + 1
            if at > len(body):
                return found
            if group == 41 and index == 0:
                found.append(("limit", struct.unpack(VALUES[variation], value)[0]))
            elif group == 12 and index == 5 and value[1] > 0 and value[0] in {LATCH_ON, LATCH_OFF}:
                found.append(("emergency", float(value[0] == LATCH_ON)))
    return found


class Site:
    """An outstation as it is served, and what control would get."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        settings = Dnp3Settings(
            neutral_kw=1000.0,
            limit_minutes=60.0,
            emergency_index=5,
            emergency_target={"limit_kw": 200},
        )
        self.feed: Any = Dnp3(FeedContext("scada", self.clock, NOW, lambda *_: None), settings)
        self.feed._emit = self._emit
        self.signals: list[Signal] = []
        self.faults: list[BaseException] = []
        """What a command raised: dnp3py answers for it, and goes on."""
        self.answer: Exception | str = "accepted"
        for name in ("command_limit", "command_emergency"):
            setattr(self.feed, name, self._watched(getattr(self.feed, name)))
        self.outstation = self.feed._points.runner(self.feed, lambda: None).outstation
        self.peers = {source: self._peer(source) for source in (MASTER, STRANGER)}

    def hear(self, request: bytes, source: int = MASTER) -> list[Signal]:
        """What a request made control hear."""
        before = len(self.signals)
        for answer in self.outstation.process_request(request, peer=self.peers[source]):
            assert len(answer.to_bytes()) <= 2048
        if self.faults:
            raise self.faults[0]
        return self.signals[before:]

    def _peer(self, source: int) -> Any:
        from dnp3.outstation.peer import PeerId

        return PeerId(source=source, connection=source)

    def _emit(self, signal: Signal) -> Receipt:
        if isinstance(self.answer, Exception):
            raise self.answer
        self.signals.append(signal)
        return Receipt(f"scada.{signal.source_id}", signal.revision, self.answer)

    def _watched(self, command: Any) -> Any:
        def watching(*given: Any, **named: Any) -> Any:
            try:
                return command(*given, **named)
            except BaseException as fault:
                self.faults.append(fault)
                raise

        return watching


def check_said(said: list[Signal], allowed: list[tuple[str, float]]) -> None:
    """Each signal is one of the commands, and each command is one signal at most."""
    assert len(said) <= len(allowed), (said, allowed)
    for signal in said:
        values = [value for name, value in allowed if signal.source_id.startswith(f"{name}-")]
        if signal.request is None:
            line = NEUTRAL_WATTS / 1e3 if signal.source_id.startswith("limit-") else None
            assert any(value == 0 if line is None else value >= line for value in values), values
            continue
        watts = signal.request.target.value
        assert signal.request.target == TargetSpec(Quantity.LIMIT_WATTS, watts)
        if signal.source_id.startswith("limit-"):
            assert 0 <= watts < NEUTRAL_WATTS
            assert any(value * 1e3 == watts for value in values), (watts, values)
        else:
            assert watts == EMERGENCY_WATTS
            assert 1.0 in values


def nearly(request: bytes, drawn: random.Random) -> bytes:
    """The request with one octet made another."""
    at = drawn.randrange(len(request))
    octet = drawn.choice((0, 1, 0x80, 0xFF, request[at] ^ 1 << drawn.randrange(8)))
    return request[:at] + bytes([octet]) + request[at + 1 :]


def operates(selected: bytes, drawn: random.Random) -> Iterator[bytes]:
    """The operate that belongs to a select; or one that is nearly it, first."""
    operate = bytearray(selected)
    operate[0] = selected[0] & 0xF0 | (selected[0] + 1) & 0x0F
    operate[1] = OPERATE
    if drawn.random() < 0.5:
        yield nearly(bytes(operate), drawn)
    yield bytes(operate)


def check(site: Site, number: int, request: bytes) -> bool:
    """Have a request heard, and what may follow a select; whether it moved anything."""
    drawn = random.Random(number)
    site.answer = (Refused("a", "b"), Unavailable("a", "b"), "opted-out")[number % 3]
    if number % 10:
        site.answer = "accepted"
    assert site.hear(request, STRANGER) == []
    function = request[1] if len(request) > 1 else -1
    said = site.hear(request)
    check_said(said, commands(request[2:]) if function in {DIRECT, DIRECT_NO_ACK} else [])
    moved = bool(said)
    if function == SELECT:
        for operate in operates(request, drawn):
            said = site.hear(operate)
            of_select = operate[1] == OPERATE and operate[2:] == request[2:]
            direct = operate[1] in {DIRECT, DIRECT_NO_ACK}
            check_said(said, commands(operate[2:]) if of_select or direct else [])
            moved |= bool(said)
    site.clock.advance(drawn.choice((0.2, 5, 1800, 7200)))
    site.clock.step_wall(drawn.choice((0, 0, 0, -5400, 5400)))
    return moved


@pytest.mark.timeout(3600)
def test_no_control_crashes_hangs_or_does_what_it_does_not_say() -> None:
    moved, site = 0, Site()
    for number, request in mutants(GOOD, COUNT):
        if number % MADE_ANEW == 0:
            site = Site()
        if number % 2:
            request = nearly(GOOD[number // 2 % len(GOOD)], random.Random(-number))
        try:
            with hang_guard():
                moved += check(site, number, request)
        except BaseException as error:
            error.add_note(f"message {number}: {request[:500].hex(' ')}")
            raise
    assert COUNT * 0.1 < moved < COUNT * 0.9, "the requests are too tame, or too wild"


@pytest.mark.parametrize("variation", list(VALUES))
def test_both_decoders_agree_on_a_request_that_is_right(variation: int) -> None:
    site = Site()
    said = site.hear(fragment(DIRECT, limit(840, variation=variation), latch(LATCH_ON)))
    asked = [
        (signal.source_id.partition(".")[0], signal.request and signal.request.target.value)
        for signal in said
    ]
    assert asked == [("limit-1", 840e3), ("emergency-1", EMERGENCY_WATTS)]
