"""Messages of three aggregators made wrong: none crashes, hangs, or acts but as one of its events.

Leap's and Axle's are pushed, with and without what makes them authentic; Voltus's list is polled.
"""

import hashlib
import hmac
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from mutate import fewer, hang_guard, mutants
from said import at

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
UNREADABLE = (
    ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError,
    GridawareError,
)  # fmt: skip
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


Ask = tuple[str, TargetSpec | None, datetime | None, datetime | None, str]
"""Id, target (None = taken back), start, end and kind."""


def leap(values: Any) -> Iterator[Callable[[], Ask]]:
    for meter in values["meter_dispatches"]:
        if isinstance(meter, dict) and meter.get("meter_id") == SUBJECTS["leap"]:
            for slot in listed(meter.get("timeslots")):
                yield partial(timeslot, slot)


def timeslot(slot: Any) -> Ask:
    # Of these only the power may be absent, which is null: Leap's reference of the notification.
    name, kilowatts = slot["meter_event_id"], slot.get("energy_kw")
    assert slot.get("cancelled") in {True, False, None}
    if slot.get("cancelled") is True:
        return str(name), None, None, None, "live"
    wanted = MOST if kilowatts is None else reduction(kilowatts)
    types = slot.get("dispatch_event_types") or ()
    types = {types} if isinstance(types, str) else set(types)
    kind = "test" if types & {"capacity-test", "communication-test"} else "live"
    return str(name), wanted, at(slot["start_time"]), at(slot["end_time"]), kind


def voltus(values: Any) -> Iterator[Callable[[], Ask]]:
    for dispatch in values["dispatches"]:
        for site in listed(dispatch.get("sites")) if isinstance(dispatch, dict) else ():
            if isinstance(site, dict) and site.get("id") == SUBJECTS["voltus"]:
                yield partial(of_site, dispatch, site)


def of_site(dispatch: Any, site: Any) -> Ask:
    name = f"{dispatch['id']}.{site['id']}"
    if dispatch.get("authorized") is False:
        return name, None, None, None, "live"
    assert dispatch.get("authorized") in {True, None}
    end = None if dispatch.get("end_time") is None else at(dispatch["end_time"])
    kind = "test" if dispatch.get("test") is True else "live"
    return name, reduction(site["drop_by"]), at(dispatch["start_time"]), end, kind


def axle(values: Any) -> Iterator[Callable[[], Ask]]:
    def dispatch() -> Ask:
        limit = TargetSpec(Quantity.LIMIT_WATTS, -values["level_kw"] * 1e3 + 0.0)
        times = at(values["from_time"]), at(values["to_time"])
        return str(values["event_id"]), limit, *times, "live"

    yield dispatch


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def reduction(kilowatts: float) -> TargetSpec:
    return TargetSpec(Quantity.REDUCTION_WATTS, kilowatts * 1e3)


def asks_in(name: str, body: bytes) -> list[Ask]:
    """What the site is asked, read a second time and otherwise than by a map."""
    found: list[Ask] = []
    for read in {"leap": leap, "voltus": voltus, "axle": axle}[name](json.loads(body)):
        with suppress(*UNREADABLE):
            found.append(read())
    return found


def assert_said(name: str, signals: tuple[Signal, ...], body: bytes) -> None:
    """Each signal is one of the events of a message."""
    asks = asks_in(name, body) if signals else []
    for signal in signals:
        asked = signal.request
        known = [ask for ask in asks if ask[0] == signal.source_id or unfit(ask[0])]
        if asked is None:
            assert any(target is None for _, target, *_ in known), signal
            continue
        shown = asked.start, asked.end, asked.kind
        assert any(ask[2:] == shown and same(ask[1], asked.target) for ask in known), signal


def unfit(name: str) -> bool:
    """Whether an id is none of ours, and shown otherwise."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}", name) is None


def same(one: TargetSpec | None, other: TargetSpec) -> bool:
    return (
        one is not None
        and one.quantity is other.quantity
        and math.isclose(one.value, other.value, rel_tol=1e-12)
    )


def check(site: Site, body: bytes) -> bool:
    acted = False
    for name in ("leap", "axle"):
        headers = authentic(name, body)
        ((header, value),) = headers.items()
        for wrong in ({}, {header: value[:-1]}, {header: f"{value}\u00e9"}, {"x-other": value}):
            assert site.hear(name, body, wrong) == ()
        signals = site.hear(name, body, headers)
        assert_said(name, signals, body)
        acted |= bool(signals)
        with suppress(GridawareError):
            MappedFeed.parse(body, NOW, site.feeds[name].settings)
    assert site.hear("voltus", body, {}) == ()  # a wake-up and nothing else
    signals = site.poll(body)
    assert_said("voltus", signals, body)
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
