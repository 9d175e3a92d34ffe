"""OpenADR 3 made wrong in every way a seed gives: nothing crashes, hangs, or acts by mistake."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mutate import MESSAGES, hang_guard, mutants

from gridaware.domain.errors import GridawareError
from gridaware.domain.signal import Quantity, TargetSpec
from gridaware.feeds.kind import Disposition
from gridaware.feeds.openadr3.advisories import advisories_of
from gridaware.feeds.openadr3.asks import asks_of
from gridaware.feeds.openadr3.parsing import parse_document
from gridaware.feeds.openadr3.reading import EventReading, Part, read_event
from gridaware.feeds.openadr3.reading_settings import ReadingSettings, rules_of
from gridaware.feeds.openadr3.shapes import decoded, events_in

DATA = Path(__file__).parents[1] / "data" / "feeds" / "openadr3"
GOOD = [
    path.read_bytes()
    for path in sorted(DATA.glob("*.json"))
    if path.stem not in {"expected", "guide_3_1_1"}
]
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
RULES = rules_of(ReadingSettings())
DEPTHS = {1: 0.10, 2: 0.25, 3: 0.50}
"""Of the levels, by the default settings."""
LIMITS = {
    "DISPATCH_SETPOINT",
    "IMPORT_CAPACITY_LIMIT",
    "IMPORT_CAPACITY_SUBSCRIPTION",
}


def may_act(part: Part) -> bool:
    """Whether a part is what the default settings let act, said a second time and otherwise."""
    value, target = part.meaning.value, part.meaning.target
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    if part.end is not None and part.end <= max(NOW, part.start):
        return False
    if part.kind == "SIMPLE":
        return target == TargetSpec(Quantity.REDUCTION_FRACTION, DEPTHS.get(int(value), -0.0))
    return (
        part.kind in LIMITS
        and (part.units.unit or "").upper() == "KW"
        and target == TargetSpec(Quantity.LIMIT_WATTS, value * 1000)
    )


def readings_of(body: bytes) -> list[EventReading]:
    readings = []
    for event in events_in(decoded(body)):
        try:
            readings.append(read_event(event, RULES, now=NOW, draw=lambda _: -1.0))
        except GridawareError:
            continue
    return readings


def check(body: bytes) -> int:
    """Read a message as a person and as a feed do; how much of it acts."""
    try:
        parsed = parse_document(body, NOW, None)
    except GridawareError:
        return 0
    assert all(part.code and part.reason.isprintable() for part in parsed.refused)
    readings = readings_of(body)
    for reading in readings:
        acting = [p for p in reading.parts if p.meaning.disposition is Disposition.ACT]
        assert all(may_act(part) for part in acting), acting
        assert not (acting and reading.cancelled)
        assert len(reading.raw_text()) <= 64 * 1024
        for advisory in advisories_of(reading, "utility", "e", NOW):
            assert advisory.value is None or math.isfinite(advisory.value)
    asks = asks_of({f"e{number}": reading for number, reading in enumerate(readings)}, NOW)
    for ask in (each.request for each in asks.values()):
        assert ask.start.utcoffset() == timedelta(0)
        assert ask.end is None or ask.end > NOW
    for row in parsed.events:
        assert not isinstance(row.value, float) or math.isfinite(row.value)
    return len(asks)


@pytest.mark.timeout(3600)
def test_no_message_crashes_hangs_or_acts_without_being_what_may_act() -> None:
    acted = 0
    for number, body in mutants(GOOD):
        try:
            with hang_guard():
                acted += check(body) > 0
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
    assert MESSAGES * 0.05 < acted < MESSAGES * 0.9, "the messages are too tame, or too wild"


def test_what_a_seed_makes_is_always_the_same() -> None:
    assert list(mutants(GOOD, 50)) == list(mutants(GOOD, 50))
    assert list(mutants(GOOD, 50, seed=2)) != list(mutants(GOOD, 50))


def spin() -> None:
    while True:
        pass


def test_a_hang_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="more than"), hang_guard(0.05):
        spin()
