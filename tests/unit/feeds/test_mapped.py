"""Mapped webhooks: three aggregators' shapes, and what may not pass for one of their messages."""

import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.control.ports import FeedReport
from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput, Refused, Unavailable
from gridaware.domain.event import Clocks, EventState, GridEvent
from gridaware.domain.signal import EventKind, EventRequest, Quantity, TargetSpec
from gridaware.feeds import Feed, mapped
from gridaware.feeds.fieldmap import shipped_map
from gridaware.feeds.http import Answer
from gridaware.feeds.kind import Disposition, Push
from gridaware.feeds.parsing import parse_file

from .conftest import NOW

DATA = Path(__file__).parents[2] / "data" / "feeds" / "mapped"
SECRET = "a-secret-of-the-aggregator"
KEY = "our-key-at-the-aggregator"


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAPPED_SECRET", SECRET)
    monkeypatch.setenv("MAPPED_KEY", KEY)


def data(name: str) -> bytes:
    return (DATA / f"{name}.json").read_bytes()


def push(body: bytes, **headers: str) -> Push:
    return Push({k.replace("_", "-"): v for k, v in headers.items()}, body, NOW, 1000.0)


Opened = Callable[..., Feed[Any]]


@pytest.fixture
def leap(opened: Opened) -> Feed[Any]:
    return opened(
        "mapped", map="leap", secrets=["env:MAPPED_SECRET"], subject="meter-dal-1",
        null_target={"reduce_percent": 40},
    )  # fmt: skip


def test_leap_says_several_timeslots_of_our_meter_in_one_push(leap: Any) -> None:
    signals = leap.hook(push(data("leap"), x_api_key=SECRET)).signals
    assert [(s.source_id, s.request and s.request.target) for s in signals] == [
        ("ev-1", TargetSpec(Quantity.REDUCTION_WATTS, 250e3)),
        ("ev-2", TargetSpec(Quantity.REDUCTION_FRACTION, 0.4)),  # null: as much as you can
        ("ev-3", None),
        ("ev-4", TargetSpec(Quantity.REDUCTION_WATTS, 300e3)),
    ]
    assert [s.request.kind for s in signals if s.request] == [
        EventKind.LIVE, EventKind.LIVE, EventKind.TEST,
    ]  # fmt: skip
    first = signals[0].request
    assert (first.start, first.end) == (
        datetime(2026, 11, 30, 14, 10, tzinfo=UTC),
        datetime(2026, 11, 30, 15, 10, tzinfo=UTC),
    )


def test_a_changed_timeslot_is_the_next_revision_over_restarts_too(
    leap: Any, opened: Opened
) -> None:
    leap.hook(push(data("leap"), x_api_key=SECRET))
    again = leap.hook(push(data("leap"), x_api_key=SECRET)).signals
    assert {s.revision for s in again} == {0}
    said = json.loads(data("leap"))
    said["meter_dispatches"][0]["timeslots"][0]["energy_kw"] = 200
    changed = json.dumps(said).encode()
    told = {s.source_id: s.revision for s in leap.hook(push(changed, x_api_key=SECRET)).signals}
    assert told == {"ev-1": 1, "ev-2": 0, "ev-3": 0, "ev-4": 0}
    restarted: Any = type(leap)(leap.context, leap.settings)
    said = {
        s.source_id: s.revision for s in restarted.hook(push(changed, x_api_key=SECRET)).signals
    }
    assert said["ev-1"] == 1


def test_without_a_subject_a_message_about_two_meters_is_refused(opened: Opened) -> None:
    feed: Any = opened("mapped", map="leap", secrets=["env:MAPPED_SECRET"])
    with pytest.raises(InvalidInput) as caught:
        feed.hook(push(data("leap"), x_api_key=SECRET))
    assert caught.value.code == "map-subject-ambiguous"


def test_one_timeslot_that_cannot_be_read_hides_no_other(
    opened: Opened, refusals: list[tuple[GridawareError, str]]
) -> None:
    feed: Any = opened(
        "mapped", map="leap", secrets=["env:MAPPED_SECRET"], subject="meter-dal-1"
    )  # no null_target
    signals = feed.hook(push(data("leap"), x_api_key=SECRET)).signals
    assert [s.source_id for s in signals] == ["ev-1", "ev-3", "ev-4"]
    assert [error.code for error, _ in refusals] == ["map-null-target"]


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda said: said["meter_dispatches"][1].pop("meter_id"), "event-key-missing"),
        (lambda said: said["meter_dispatches"].insert(0, 7), "map-items"),
        (lambda said: said["meter_dispatches"][1].update(timeslots="none"), "map-items"),
        (lambda said: said["meter_dispatches"][1]["timeslots"].append(None), "map-items"),
    ],
    ids=["no-subject", "no-object", "no-list", "null"],
)
def test_what_is_no_timeslot_hides_no_timeslot(
    leap: Any, refusals: list[tuple[GridawareError, str]], spoil: Any, code: str
) -> None:
    """Corner case 1: the whole message was refused."""
    said = json.loads(data("leap"))
    spoil(said)
    signals = leap.hook(push(json.dumps(said).encode(), x_api_key=SECRET)).signals
    assert [s.source_id for s in signals] == ["ev-1", "ev-2", "ev-3", "ev-4"]
    assert [error.code for error, _ in refusals] == [code]


def test_a_revision_beyond_all_numbers_is_refused_alone(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, refusals: list[tuple[GridawareError, str]]
) -> None:
    feed: Any = opened("mapped", map="voltus", api_key="env:MAPPED_KEY", subject="site-a")
    said = json.loads(data("voltus"))
    said["dispatches"][0]["modification_number"] = 2**33
    answer = Answer(200, {}, json.dumps(said).encode())
    monkeypatch.setattr(mapped, "exchange", lambda *_, **__: answer)
    assert [s.source_id for s in feed.poll()] == ["disp-8.site-a"]
    assert [error.code for error, _ in refusals] == ["revision-range"]


@pytest.mark.parametrize("said_so", ["true", 1, "yes", [True], [False], {"is": True}])
def test_an_event_that_may_be_taken_back_is_not_acted_on(
    leap: Any, refusals: list[tuple[GridawareError, str]], said_so: object
) -> None:
    said = json.loads(data("leap"))
    said["meter_dispatches"][0]["timeslots"][2]["cancelled"] = said_so
    signals = leap.hook(push(json.dumps(said).encode(), x_api_key=SECRET)).signals
    assert [s.source_id for s in signals] == ["ev-1", "ev-2", "ev-4"]
    assert [error.code for error, _ in refusals] == ["flag-type"]


def test_a_list_of_a_million_events_is_refused_before_it_is_walked(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed: Any = opened("mapped", map="voltus", api_key="env:MAPPED_KEY", subject="site-a")
    sites = [{"sites": [{}] * 1000}] * 1000
    answer = Answer(200, {}, json.dumps({"dispatches": sites}).encode())
    monkeypatch.setattr(mapped, "exchange", lambda *_, **__: answer)
    with pytest.raises(Unavailable, match="more than 1000 events"):
        feed.poll()


def test_what_is_remembered_never_fills_the_memory_of_a_feed(leap: Any) -> None:
    said = json.loads(data("leap"))
    slot = said["meter_dispatches"][0]["timeslots"][0]
    for first in range(0, 2600, 100):
        slots = [slot | {"meter_event_id": f"ev-{n}-{'x' * 50}"} for n in range(first, first + 100)]
        body = json.dumps({"meter_dispatches": [{"meter_id": "meter-dal-1", "timeslots": slots}]})
        leap.context.clock.advance(10)
        assert len(leap.hook(push(body.encode(), x_api_key=SECRET)).signals) == 100
    kept = list(leap.context.memory.get("heard"))
    assert len(kept) == 2000
    assert kept[-1].startswith("ev-2599")


@pytest.mark.parametrize("headers", [{}, {"x_api_key": "wrong"}, {"x_api_key": SECRET + "x"}])
def test_a_push_without_the_secret_header_is_a_strangers(leap: Any, headers: Any) -> None:
    with pytest.raises(Refused) as caught:
        leap.hook(push(data("leap"), **headers))
    assert caught.value.code in {"signature-missing", "signature-bad"}


class Peer:
    """What the aggregator's interface answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, str, Any, Any]] = []
        self.answer = Answer(200, {}, b"")
        monkeypatch.setattr(mapped, "exchange", self)

    def __call__(self, method: str, url: str, **rest: Any) -> Answer:
        self.asked.append((method, url, rest.get("headers"), rest.get("body")))
        return self.answer


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Peer:
    return Peer(monkeypatch)


@pytest.fixture
def voltus(opened: Opened) -> Feed[Any]:
    return opened("mapped", map="voltus", api_key="env:MAPPED_KEY", subject="site-a")


def test_voltus_pushes_only_a_path_so_it_wakes_a_poll(voltus: Any) -> None:
    body = b'{"event": {"name": "dispatch.create"}, "resource": "/2022-04-15/dispatches/disp-7"}'
    hooked = voltus.hook(push(body))
    assert (hooked.wake, hooked.signals) == (True, ())
    assert voltus.hook(push(b"\xff not even JSON")).wake  # nobody could tell it from a true one
    for _ in range(48):  # five times the rate at once, the two above among them
        voltus.hook(push(body))
    with pytest.raises(Refused, match="too many"):
        voltus.hook(push(body))


def test_voltus_dispatches_are_polled_with_the_key_and_may_have_no_end(
    voltus: Any, peer: Peer
) -> None:
    peer.answer = Answer(200, {}, data("voltus"))
    signals = voltus.poll()
    ((method, url, headers, _),) = peer.asked
    assert (method, url) == ("GET", "https://api.voltus.co/2022-04-15/dispatches")
    assert headers["X-Voltus-API-Key"] == KEY
    assert [(s.source_id, s.revision) for s in signals] == [
        ("disp-7.site-a", 2),
        ("disp-8.site-a", 1),
    ]
    first = signals[0].request
    assert (first.end, first.target) == (None, TargetSpec(Quantity.REDUCTION_WATTS, 120.5e3))
    assert signals[1].request is None  # no longer authorized


@pytest.mark.parametrize(
    "answer",
    [Answer(401, {}, b"{}"), Answer(200, {}, b"<html>"), Answer(200, {}, b'{"dispatches": 7}')],
)
def test_from_a_list_that_is_none_nothing_is_concluded(
    voltus: Any, peer: Peer, answer: Answer
) -> None:
    peer.answer = answer
    with pytest.raises(Unavailable):
        voltus.poll()


AXLE_ID = "a2c3d4e5-0001-4000-8000-00000000abcd"


@pytest.fixture
def axle(opened: Opened) -> Feed[Any]:
    return opened(
        "mapped", map="axle", secrets=["env:MAPPED_SECRET"], api_key="env:MAPPED_KEY",
        status_prefix="https://api.axle.energy/",
    )  # fmt: skip


def signed_by_axle(body: bytes) -> Push:
    digits = hmac.new(SECRET.encode(), AXLE_ID.encode(), hashlib.sha256).hexdigest()
    return push(body, x_axle_signature=digits)


def test_axle_asks_for_power_put_out_which_a_load_takes_in(axle: Any) -> None:
    (signal,) = axle.hook(signed_by_axle(data("axle"))).signals
    assert signal.request.target == TargetSpec(Quantity.LIMIT_WATTS, 180e3)
    exports = data("axle").replace(b"-180.0", b"180.0")
    assert axle.hook(signed_by_axle(exports)).signals == ()  # a load cannot


def report(status: str, source_id: str = AXLE_ID) -> FeedReport:
    request = EventRequest(NOW, NOW + timedelta(hours=1), TargetSpec(Quantity.LIMIT_WATTS, 1.0))
    event = GridEvent(
        f"utility.{source_id}", "utility", "p", source_id, 0, request, EventState.SCHEDULED, "",
        NOW, NOW, Clocks(0.0),
    )  # fmt: skip
    return FeedReport(event, status, NOW)


def test_axle_is_told_at_the_address_that_came_with_the_event(axle: Any, peer: Peer) -> None:
    axle.hook(signed_by_axle(data("axle")))
    for status in ("opted-in", "active", "completed"):
        axle.tell(report(status))
    assert [json.loads(body) for *_, body in peer.asked] == [
        {"timestamp": "2026-11-30T14:00:00Z", "status": "ACCEPTED"},
        {"timestamp": "2026-11-30T14:00:00Z", "status": "EXECUTED"},
    ]
    assert {url for _, url, *_ in peer.asked} == {
        "https://api.axle.energy/entities/asset/3f0f8a52/callback/a2c3d4e5"
    }
    assert {headers["Authorization"] for _, _, headers, _ in peer.asked} == {f"Bearer {KEY}"}


def test_nobody_is_told_at_an_address_that_is_not_the_aggregators(axle: Any, peer: Peer) -> None:
    elsewhere = data("axle").replace(b"https://api.axle.energy/", b"http://169.254.169.254/")
    axle.hook(signed_by_axle(elsewhere))
    with pytest.raises(Refused, match="not one of the aggregator's"):
        axle.tell(report("opted-in"))
    axle.tell(report("opted-in", "never-heard"))
    assert peer.asked == []


SIGNED = {
    "items": "", "id": ["id"], "start": "start", "end": "end",
    "target": {"path": "mw", "unit": "MW", "means": "limit"},
    "auth": {"scheme": "hmac", "header": "x-sig", "timestamp_header": "x-at"},
}  # fmt: skip
BODY = b'{"id": "e", "start": "2026-11-30T14:10:00Z", "end": "2026-11-30T15:10:00Z", "mw": 1.5}'


def test_a_map_of_ones_own_with_a_signed_time(opened: Opened, clock: ManualClock) -> None:
    feed: Any = opened("mapped", map=SIGNED, secrets=["env:MAPPED_SECRET"])
    stamp = str(int(NOW.timestamp()))
    digits = hmac.new(SECRET.encode(), stamp.encode() + b"." + BODY, hashlib.sha256).hexdigest()
    (signal,) = feed.hook(push(BODY, x_sig=digits, x_at=stamp)).signals
    assert signal.request.target == TargetSpec(Quantity.LIMIT_WATTS, 1.5e6)
    late = Push({"x-sig": digits, "x-at": stamp}, BODY, NOW + timedelta(minutes=6), 1000.0)
    for bad in (late, push(BODY, x_sig=digits), push(BODY, x_sig=digits, x_at="now")):
        with pytest.raises(Refused):
            feed.hook(bad)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"map": "enron"}, "map-unknown"),
        ({"map": {"items": "x"}}, "map-invalid"),
        ({"map": {**SIGNED, "start": "a b"}}, "map-invalid"),
        ({"map": "leap"}, "signature-no-secret"),
        ({"map": "voltus"}, "map-key-missing"),
        ({"map": "axle", "secrets": ["env:MAPPED_SECRET"], "status_prefix": "http://axle/"},
         "status-url-insecure"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_before_anything_opens(
    opened: Opened, settings: dict[str, Any], code: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        opened("mapped", **settings)
    assert caught.value.code == code


def test_every_shipped_map_reads_its_own_example() -> None:
    subjects = {"leap": "meter-dal-1", "voltus": "site-a", "axle": None}
    folder = Path(mapped.__file__).parent / "maps"
    assert {path.stem for path in folder.glob("*.yaml")} == set(subjects)
    for name, subject in subjects.items():
        assert shipped_map(name).target.unit == "kW"
        settings = {"map": name, **({"subject": subject} if subject else {})}
        parsed = parse_file("mapped", data(name), NOW, json.dumps(settings))
        assert Disposition.ACT in {row.disposition for row in parsed.events}
        assert [part.code for part in parsed.refused] == (["map-null-target"] * (name == "leap"))
