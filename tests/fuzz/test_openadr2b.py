"""OpenADR 2.0b made wrong in every way a seed gives: nothing crashes, hangs, or acts by mistake."""

import copy
import math
import random
import xml.etree.ElementTree as ET  # of our own messages, to spoil them
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mutate import MESSAGES, hang_guard, mutate_bytes

from gridaware.domain.errors import GridawareError
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds.kind import Disposition
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.openadr2.advisories import advisories_of
from gridaware.feeds.openadr2.envelope import message_in
from gridaware.feeds.openadr2.parsing import parse_message
from gridaware.feeds.openadr2.reading import EventReading, Part, read_event
from gridaware.feeds.openadr2.reading_settings import ReadingSettings, rules_of
from gridaware.feeds.openadr2.state import EventBook
from gridaware.feeds.openadr2.xmltree import Node, read_xml
from gridaware.sim.grid.vtn2 import DrEvent, distributed

SLICE = 2000
COUNT = MESSAGES if MESSAGES > SLICE else MESSAGES // 4
"""`make fuzz` gives all of them."""
DATA = Path(__file__).parents[1] / "data" / "feeds" / "openadr2b"
GOOD = [path.read_bytes() for path in sorted(DATA.glob("*.xml"))]
NOW = datetime(2026, 11, 30, 14, tzinfo=UTC)
RULES = rules_of(ReadingSettings())
DEPTHS = {1: 0.10, 2: 0.25, 3: 0.50}
"""Of the levels, by the default settings."""
SCALES = {"none": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "d": 0.1, "c": 0.01, "m": 1e-3}
NASTY = (
    "", " ", "0", "-1", "1", "2", "3", "4", "1e999", "NaN", "-INF", "true", "false", "9" * 5000,
    "0x10", "\u0663", "1_0", "+2", "2.", ".5", "PT0S", "PT1S", "-PT1H", "P1W", "P1M", "P0.5M",
    "P9999Y", "PT0.0000001S", "1h", "0001-01-01T00:00:00Z", "2026-11-30T15:00:00Z",
    "2026-11-30T15:00:00", "2026-11-30T15:00:00+99:99", "9999-12-31T23:59:59Z", "cancelled",
    "completed", "active", "VEN-1", "VEN-2", "SIMPLE", "LOAD_DISPATCH", "LOAD_CONTROL", "level",
    "setpoint", "delta", "multiplier", "W", "VAR", "k", "M", "never", "x" * 3000, "\u00e9",
)  # fmt: skip
TOKENS = (
    b"<!DOCTYPE a>", b"<!ENTITY a 'b'>", b"&a;", b"&#0;", b"&#x41;", b"<![CDATA[1]]>", b"<!--",
    b"-->", b"<?x ?>", b"<", b">", b"</", b"/>", b"\x00", b"\xff\xfe", b"xmlns=''", b"<a>" * 300,
)  # fmt: skip


def mutants(count: int = COUNT) -> Iterator[tuple[int, bytes]]:
    """``count`` messages, each with its number: most by their elements, some by their bytes."""
    for number in range(count):
        drawn = random.Random(f"2b:{number}")
        body = drawn.choice(GOOD)
        by_element = drawn.random() < 0.7
        for _ in range(drawn.choice((1, 1, 1, 2, 3, 6))):
            body = by_elements(body, drawn) if by_element else by_bytes(body, drawn)
        yield number, body


def by_elements(body: bytes, drawn: random.Random) -> bytes:
    try:
        root = ET.fromstring(body)
    except (ET.ParseError, ValueError, LookupError):
        return by_bytes(body, drawn)
    holders = [node for node in root.iter() if len(node)]
    holder = drawn.choice(holders or [root])
    if not len(holder):
        return by_bytes(body, drawn)
    at = drawn.randrange(len(holder))
    way = drawn.randrange(7)
    leaves = [node for node in root.iter() if not len(node)]
    if way <= 2:
        drawn.choice(leaves).text = drawn.choice(NASTY)
    elif way == 3:
        del holder[at]
    elif way == 4:
        for _ in range(drawn.choice((1, 2, 40))):
            holder.insert(at, copy.deepcopy(holder[at]))
    elif way == 5:
        holder[at] = copy.deepcopy(drawn.choice(list(root.iter())))
    else:
        holder[at].tag = drawn.choice([node.tag for node in root.iter()])
    return ET.tostring(root, encoding=drawn.choice(("utf-8", "utf-8", "utf-16", "us-ascii")))


def by_bytes(body: bytes, drawn: random.Random) -> bytes:
    if drawn.random() < 0.5:
        return mutate_bytes(body, drawn)
    at = drawn.randrange(len(body) + 1)
    return body[:at] + drawn.choice(TOKENS) + body[at:]


def may_act(part: Part, reading: EventReading) -> bool:
    """Whether a part is what the default settings let act, said a second time and otherwise."""
    value, target = part.meaning.value, part.meaning.target
    if not isinstance(value, float) or not math.isfinite(value):
        return False
    if reading.test or reading.status in {"cancelled", "completed"} or not reading.ours:
        return False
    if part.end is not None and part.end <= max(NOW, part.start):
        return False
    kind = part.kind.lower()
    if kind == "simple/level":
        return target == TargetSpec(Quantity.REDUCTION_FRACTION, DEPTHS.get(int(value), -0.0))
    if kind == "load_dispatch/multiplier":
        return target == TargetSpec(Quantity.LIMIT_FRACTION, value)
    if part.unit.item != "powerReal" or part.unit.unit != "W":
        return False
    watts = value * SCALES[part.unit.scale]
    if kind == "load_dispatch/delta":
        return value < 0 and target == TargetSpec(Quantity.REDUCTION_WATTS, -watts)
    return kind in {"load_dispatch/setpoint", "load_control/x-loadcontrolsetpoint"} and (
        target == TargetSpec(Quantity.LIMIT_WATTS, watts)
    )


def readings_of(events: list[Node]) -> Iterator[EventReading]:
    for event in events:
        try:
            yield read_event(event, RULES, now=NOW, ven_id="VEN-1", draw=lambda _: 1.0)
        except GridawareError:
            continue


STOOD = DrEvent("standing", "2026-11-30T15:00:00Z")


def poll(events: list[Node]) -> list[Signal]:
    """What a feed makes of the events of a poll, with one that stood before."""
    book = EventBook("utility", RULES, FeedMemory(), "https://vtn", lambda *_: None, lambda _: None)
    stood = read_xml(distributed([STOOD]), keep="oadrEvent")
    book.read([n for n in stood.walk() if n.name == "oadrEvent"], NOW, "w", "VEN-1")
    book.conclude((), NOW, 0.0)
    listed = book.read(events, NOW, "w", "VEN-1")
    assert all(each.code in {200, 450, 454, 460, 462} for each in listed)
    return book.conclude((), NOW, 0.0)


def check(body: bytes) -> int:
    """Read a message as a person and as a feed do; how much of it acts."""
    try:
        parsed = parse_message(body, NOW, None)
    except GridawareError:
        return 0
    assert all(part.code and part.reason.isprintable() for part in parsed.refused)
    for row in parsed.events:
        assert not isinstance(row.value, float) or math.isfinite(row.value)
    try:
        message = message_in(read_xml(body, keep="oadrEvent"))
    except GridawareError:
        return 0
    events = list(message.content.all("oadrEvent"))
    acting = 0
    for reading in readings_of(events):
        parts = [p for p in reading.parts if p.meaning.disposition is Disposition.ACT]
        assert all(may_act(part, reading) for part in parts), parts
        acting += len(parts)
        for advisory in advisories_of(reading, "utility", "e", NOW):
            assert advisory.value is None or math.isfinite(advisory.value)
    signals = poll(events)
    assert any(s.source_id.startswith("standing.") and s.request for s in signals), "released"
    for signal in signals:
        request = signal.request
        if request is not None:
            assert request.start.utcoffset() == timedelta(0)
            assert request.end is None or request.end > NOW
        assert len(signal.raw.encode()) <= 64 * 1024
    return acting


@pytest.mark.timeout(3600)
def test_no_message_crashes_hangs_or_acts_without_being_what_may_act() -> None:
    acted = 0
    for number, body in mutants():
        try:
            with hang_guard():
                acted += check(body) > 0
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
    assert COUNT * 0.05 < acted < COUNT * 0.9, "the messages are too tame, or too wild"


def test_what_a_seed_makes_is_always_the_same() -> None:
    assert list(mutants(50)) == list(mutants(50))
