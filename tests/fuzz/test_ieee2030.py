"""Controls of IEEE 2030.5 made wrong in every way a seed gives: nothing crashes, hangs, or acts."""

import math
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mutate import MESSAGES, hang_guard, mutate_bytes

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.domain.signal import Quantity, Signal
from gridaware.feeds.ieee2030.parsing import parse_document
from gridaware.feeds.ieee2030.responses import Responses
from gridaware.feeds.ieee2030.servertime import ServerTime
from gridaware.feeds.ieee2030.settings import ReadingSettings, rules_of
from gridaware.feeds.ieee2030.standing import Standing
from gridaware.feeds.ieee2030.walk import ProgramTree, Tree
from gridaware.feeds.ieee2030.xml import read_xml, text_of
from gridaware.feeds.kind import Disposition, FeedContext, ParsedRow
from gridaware.feeds.revisions import Heard
from gridaware.feeds.vanish import Missing, cancelled_by

DATA = Path(__file__).parents[1] / "data" / "feeds" / "ieee2030"
GOOD = [path.read_bytes() for path in sorted(DATA.glob("*.xml"))]
NOW = datetime(2026, 12, 1, tzinfo=UTC)
SETTINGS = (
    ReadingSettings(),
    ReadingSettings(limit_by="opModMaxLimW", rated_kw=1000.0, disconnects=True),
    ReadingSettings(limit_by="opModFixedW", rated_kw=1000.0, neutral_kw=100.0),
)
TEXT = re.compile(rb">([^<>]*)<")
TAG = re.compile(rb"<[^<>]*>")
NASTY = (
    b"", b" ", b"0", b"-1", b"1.5", b"1e9", b"NaN", b"true", b"FALSE", b"32767", b"32768",
    b"-32768", b"10", b"-9", b"65536", b"4294967295", b"4294967296", b"1099511627777",
    b"9" * 3000, b"0x10", b"\xd9\xa1", b"&lt;&amp;", b"&#0;", b"&#x7f;", b"&b;",
    b"<![CDATA[5]]>", b"<a/>", b"<!-- -->",
    b"../../etc/passwd", b"ZZ", b"FF" * 16, b"00" * 17, b"\x00", b"\xff",
)  # fmt: skip
TAGS = (
    b"<value>", b"</value>", b"<multiplier>9</multiplier>", b"<opModEnergize>false</opModEnergize>",
    b"<opModMaxLimW>0</opModMaxLimW>", b"<opModFixedW>-10000</opModFixedW>", b"<DERControlBase>",
    b'<opModImpLimW xmlns="https://csipaus.org/ns">', b"<!DOCTYPE a>", b"<?pi?>", b"<a>" * 30,
    b'<x xmlns="http://zigbee.org/sep">', b"<currentStatus>0</currentStatus>",
)  # fmt: skip


def mutate_xml(body: bytes, drawn: random.Random) -> bytes:
    """A text made wrong, or a tag left out, doubled, moved or put in the place of another."""
    found = list((TEXT if drawn.random() < 0.6 else TAG).finditer(body))
    if not found:
        return mutate_bytes(body, drawn)
    chosen, other = drawn.choice(found), drawn.choice(found)
    group = chosen.re.groups
    start, end = chosen.span(group)
    way = drawn.randrange(4)
    if way == 0:
        return body[:start] + drawn.choice(NASTY if group else TAGS) + body[end:]
    if way == 1:
        return body[:start] + other.group(group) + body[end:]
    if way == 2:
        return body[:start] + body[end:]
    return body[:end] + other.group(group) * drawn.choice((1, 2, 40)) + body[end:]


def mutants(count: int = MESSAGES, seed: int = 1) -> Iterator[tuple[int, bytes]]:
    for number in range(count):
        drawn = random.Random(f"{seed}:{number}")
        body = drawn.choice(GOOD)
        by_xml = drawn.random() < 0.7
        for _ in range(drawn.choice((1, 1, 1, 2, 3, 6))):
            body = mutate_xml(body, drawn) if by_xml else mutate_bytes(body, drawn)
        yield number, body


def check_row(row: ParsedRow, settings: ReadingSettings) -> bool:
    """Whether it asks for anything; what does is what the settings let act, said otherwise."""
    assert row.reason.isprintable()
    assert row.value is None or math.isfinite(float(row.value))
    if row.disposition is not Disposition.ACT or row.target is None:
        assert row.target is None or row.disposition is not Disposition.ADVISORY
        return False
    assert row.target.quantity is Quantity.LIMIT_WATTS
    assert row.start is not None
    assert row.end is None or row.end > NOW
    value = float(row.value or 0.0)
    if row.type in {"opModEnergize", "opModConnect"}:
        assert settings.disconnects
        assert row.value is False
        assert row.target.value == 0.0
        return True
    assert row.type == settings.limit_by
    rated = (settings.rated_kw or 0.0) * 1000
    expected = {
        "opModImpLimW": value,
        "opModMaxLimW": value / 100 * rated,
        "opModFixedW": -value / 100 * rated,
    }[row.type]
    assert math.isclose(row.target.value, expected, abs_tol=1e-9)
    return True


def check(body: bytes, settings: ReadingSettings) -> bool:
    try:
        parsed = parse_document(body, NOW, settings)
    except GridawareError:
        return False
    assert all(part.code and part.reason.isprintable() for part in parsed.refused)
    root = read_xml(body)
    again = parse_document(text_of(root).encode("utf-8", "surrogatepass"), NOW, settings)
    assert again == parsed, "what is kept as raw text says something else"
    return sum(check_row(row, settings) for row in parsed.events) > 0


@pytest.mark.timeout(3600)
def test_no_control_crashes_hangs_or_acts_without_being_what_may_act() -> None:
    acted = 0
    for number, body in mutants():
        try:
            with hang_guard():
                acted += check(body, SETTINGS[number % len(SETTINGS)])
        except BaseException as error:
            error.add_note(f"message {number}: {body[:3000]!r}")
            raise
    assert MESSAGES * 0.05 < acted < MESSAGES * 0.9, "the messages are too tame, or too wild"


class Fed:
    """A client's standing controls, fed with lists that no server should serve."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.refused: list[str] = []
        context = FeedContext("utility", self.clock, NOW, lambda e, _: self.refused.append(e.code))
        memory = context.memory
        time = ServerTime(memory, lambda _: None)
        responses = Responses("0" * 40, memory, lambda _: None)
        rules = rules_of(ReadingSettings(disconnects=True))
        self.standing = Standing(context, rules, Heard(memory, "x"), time, responses)
        self.missing = Missing()

    def feed(self, body: bytes) -> list[Signal]:
        try:
            root = read_xml(body)
        except GridawareError:
            return []
        controls = tuple(root.all("DERControl"))
        default = root if root.name == "DefaultDERControl" else None
        tree = Tree((ProgramTree("F1", 5, controls, default),), "w", None, "")
        self.clock.advance(30)
        now, seconds = self.clock.wall(), self.clock.monotonic_seconds()
        standing = self.standing
        standing.read(tree, now)
        gone = cancelled_by(self.missing, standing.seen_under, standing.listed, "w", seconds)
        signals = standing.conclude(gone, "w", now, seconds)
        for request in (signal.request for signal in signals):
            assert request is None or request.end is None or request.end > now
        return signals


@pytest.mark.timeout(3600)
def test_a_server_that_serves_anything_breaks_no_client() -> None:
    acted, fed = 0, Fed()
    for number, body in mutants(MESSAGES // 4, seed=3):
        if number % 20 == 0:
            fed = Fed()
        try:
            with hang_guard():
                acted += any(signal.request for signal in fed.feed(body))
        except BaseException as error:
            error.add_note(f"message {number}: {body[:3000]!r}")
            raise
    assert acted > MESSAGES / 40


def test_what_a_seed_makes_is_always_the_same() -> None:
    assert list(mutants(50)) == list(mutants(50))
    assert list(mutants(50)) != list(mutants(50, seed=2))
