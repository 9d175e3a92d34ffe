"""What every feed kind holds to, whoever wrote it: parametrised from the registry.

A kind's rig says how its grid side speaks. A kind in the registry without a rig fails the suite.
"""

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn

import pytest
import requests
from feed_rigs import NOW, RIGS, SECRET, Rig, Said
from feed_rigs.pages import StubPage

from gridaware.clock import ManualClock
from gridaware.domain.errors import TimedOut
from gridaware.domain.event import event_id_of
from gridaware.domain.eventjson import event_to_json
from gridaware.domain.fixes import FIXES
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import EventKind, Quantity, Signal, TargetSpec
from gridaware.feeds import FEED_KINDS
from gridaware.feeds.kind import Feed, Hears, Hooks, Listens, Polls, Tells
from gridaware.feeds.runner import FeedRunner


@pytest.fixture(params=FEED_KINDS.names())
def rig(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("CONTRACT_SECRET", SECRET.decode())
    return RIGS[request.param](ManualClock(NOW), tmp_path)


def day(signals: list[Signal]) -> list[Signal]:
    """Those of the day in question: a schedule also announces the days after."""
    return [s for s in signals if s.request is None or s.request.start < NOW + timedelta(hours=1)]


def test_a_kind_can_at_least_hear_or_ask(rig: Rig) -> None:
    feed: Feed[Any] = rig.running.feed
    assert isinstance(feed, (Polls, Hears, Hooks, Listens))
    assert feed.settings_model.model_config["extra"] == "forbid"
    assert not isinstance(feed, Tells) or feed.can_tell() is rig.tells_unasked


def test_provenance_is_whole(rig: Rig) -> None:
    rig.say(Said())
    (signal,) = day(rig.heard())
    assert signal.feed_id == "grid"
    assert rig.name_of(signal).startswith("dr-1")
    assert event_id_of(signal.feed_id, signal.source_id).startswith("grid.")
    assert 0 < len(signal.raw.encode()) <= 65_536
    assert signal.received_seconds == 1000.0
    assert signal.received_at == NOW


def test_times_are_utc_and_watts_are_watts(rig: Rig) -> None:
    if not rig.asks_for_anything:
        pytest.skip("what this kind asks for is in its settings: its own tests hold it")
    rig.say(
        Said("a"),
        Said("b", key="limit_kw", value=12.5, kind="drill"),
        Said("c", key="reduce_kw", value=3, kind="test"),
        Said("d", key="limit_percent_of_baseline", value=75),
    )
    heard = day(rig.heard())
    for signal in heard:
        request = signal.request
        assert request is not None
        assert request.start == datetime(2026, 11, 30, 14, 10, tzinfo=UTC)
        assert request.end == datetime(2026, 11, 30, 15, 10, tzinfo=UTC)
        assert request.priority == (2 if rig.says_priority else None)
        for instant in (request.start, request.end, signal.received_at):
            assert instant.utcoffset() == timedelta(0)
        event_to_json(signal)
    assert [(s.request.target, s.request.kind) for s in heard if s.request] == [
        (TargetSpec(Quantity.REDUCTION_FRACTION, 0.4), EventKind.LIVE),
        (TargetSpec(Quantity.LIMIT_WATTS, 12_500.0), EventKind.DRILL),
        (TargetSpec(Quantity.REDUCTION_WATTS, 3000.0), EventKind.TEST),
        (TargetSpec(Quantity.LIMIT_FRACTION, 0.75), EventKind.LIVE),
    ]


def test_what_is_asked_is_asked_in_utc_and_as_it_is_meant(rig: Rig) -> None:
    rig.say(Said())
    (signal,) = day(rig.heard())
    request = signal.request
    assert request is not None
    assert request.target == rig.meant
    for instant in (request.start, request.end, signal.received_at):
        assert instant is None or instant.utcoffset() == timedelta(0)
    ahead = datetime(2026, 11, 30, 14, 10, tzinfo=UTC)
    assert request.start in ((NOW, ahead) if rig.begins_at_once else (ahead,))


def test_a_duplicate_is_recognisable(rig: Rig) -> None:
    rig.say(Said(), Said())
    heard = day(rig.heard())
    assert {(s.source_id, s.revision, s.request) for s in heard} == {
        (heard[0].source_id, 0, heard[0].request)
    }
    # A poll that finds nothing new hands over nothing.
    before = len(rig.heard())
    assert len(rig.heard()) == before


def test_a_restart_says_the_same_again(rig: Rig) -> None:
    rig.say(Said("a"), Said("b"))
    first = {(s.source_id, s.revision, s.request) for s in day(rig.heard())}
    rig.restart()
    if rig.is_pushed:
        rig.say(Said("a"), Said("b"))
    assert {(s.source_id, s.revision, s.request) for s in day(rig.heard())} == first


def test_a_late_event_is_still_told(rig: Rig) -> None:
    rig.clock.advance(30 * 60)  # half of its hour is over
    rig.say(Said())
    (signal,) = day(rig.heard())
    assert signal.request is not None
    assert signal.request.start <= signal.received_at
    assert rig.begins_at_once or signal.request.start < signal.received_at


def test_revisions_keep_their_number_in_whatever_order_they_come(rig: Rig) -> None:
    if not rig.numbers_revisions:
        pytest.skip("revisions of this kind are counted by us: its own tests hold it")
    rig.say(Said(revision=2, value=20))
    rig.say(Said(revision=0, value=40))
    rig.say(Said(revision=1, value=30))
    told = [(s.revision, s.request.target.value) for s in day(rig.heard()) if s.request]
    assert told == [(2, 0.2), (0, 0.4), (1, 0.3)]
    assert len({s.source_id for s in day(rig.heard())}) == 1


def test_an_older_word_that_comes_after_a_newer_changes_nothing(rig: Rig) -> None:
    if not rig.orders_words:
        pytest.skip("its messages carry a revision, or no order: what is said last stands")
    rig.say(Said(revision=2))
    said = day(rig.heard()).copy()
    rig.clock.advance(120)
    rig.say_older(Said(value=10))
    assert day(rig.heard()) == said
    assert [s.request is not None for s in said] == [True]


def test_the_order_in_which_events_are_said_changes_nothing_of_them(
    rig: Rig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = type(rig)(ManualClock(NOW), tmp_path_factory.mktemp("other"))
    first, second = Said("a"), Said("b")
    asked = []
    for each, events in ((rig, (first, second)), (other, (second, first))):
        each.prepare(first, second)
        each.say(*events)
        heard = day(each.heard())
        asked.append(
            {
                each.name_of(s)[0]: replace(s.request, immediate=False)
                for s in heard
                if s.request is not None
            }
        )
    assert asked[0] == asked[1]
    assert set(asked[0]) == {"a", "b"}


def test_a_garbled_message_spoils_no_other_and_is_refused_with_advice(rig: Rig) -> None:
    rig.say(Said("a"))
    rig.say_raw(b'{"id": "b", ')
    rig.say(Said("c"))
    assert [rig.name_of(s)[0] for s in day(rig.heard())] == ["a", "c"]
    ((feed_id, code, message, _),) = rig.refused
    assert feed_id == "grid"
    assert message
    assert code in FIXES


def test_an_oversized_message_is_refused(rig: Rig) -> None:
    rig.say_raw(b'{"id": "' + b"a" * 70_000 + b'"}')
    rig.say(Said("after"))
    assert [rig.name_of(s)[:5] for s in day(rig.heard())] == ["after"]
    assert len(rig.refused) == 1


HOSTILE = [
    b"[" * 60_000,
    b'{"a":' * 10_000,
    b'{"t_s":0,"id":"../../etc/passwd","start":"now","open_end":true,"target":{"limit_kw":1}}',
    b'{"t_s":0,"id":"x","start":"now","open_end":true,"target":{"limit_kw":1e999}}',
    b'{"t_s":0,"id":"x","start":"now","open_end":true,"target":{"limit_kw":-5}}',
    b'{"t_s":0,"id":"x","start":"now","open_end":true,"target":{"limit_kw":NaN}}',
    b'{"t_s":0,"id":"x","start":"now","duration":"P9999Y","target":{"limit_kw":0.5}}',
    b'{"t_s":0,"id":"\\ud800","start":"now","open_end":true,"target":{"limit_kw":1}}',
    b'{"t_s":' + b"9" * 5000 + b"}",
    b"\x00\x01\x02 \x7f",
    b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
    b"=cmd|' /C calc'!A0",
]


def test_nothing_hostile_gets_through_or_breaks_the_feed(rig: Rig) -> None:
    for message in HOSTILE:
        rig.say_raw(message)
    rig.say(Said("after"))
    assert [rig.name_of(s)[:5] for s in day(rig.heard())] == ["after"]
    assert len(rig.refused) == len(HOSTILE)
    for _, code, message, _ in rig.refused:
        assert code
        assert message.isascii()


def test_silence_is_no_signal_and_no_failure(rig: Rig) -> None:
    for _ in range(3):
        assert rig.heard() == []
        rig.clock.advance(600)
    assert rig.running.health.now().failures == 0
    assert rig.refused == []


WAITS_FOR_NOBODY = {"dnp3", "dsx", "file", "mapped", "mqtt", "schedule", "webhook"}
"""Their grid side speaks up by itself; the listener cuts off who drips (test_http_listener.py)."""


def test_a_slow_grid_side_is_a_failure_with_a_reason_and_takes_nothing_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User case 9; corner case 8. That the deadline is kept holds test_feeds_live.py."""
    rig.say(Said("a"))
    (before,) = day(rig.heard())
    assert before.request is not None
    good = rig.clock.wall()
    waited = 0

    def late(*_: object, **__: object) -> NoReturn:
        nonlocal waited
        waited += 1
        raise TimedOut("answer-too-late", "it did not answer in time")

    with monkeypatch.context() as patched:
        patched.setattr(requests.Session, "request", late)
        patched.setattr(StubPage, "read", late)
        for _ in range(3):
            rig.clock.advance(120)
            rig.heard()
    assert (waited == 0) is (rig.kind in WAITS_FOR_NOBODY)
    if waited:
        health = rig.running.health.now()
        assert (health.state, health.reason_code) == ("failing", "answer-too-late")
        # A page may serve for a while after it was read.
        assert health.last_good_at is not None
        assert good <= health.last_good_at < rig.clock.wall()
        lag = rig.clock.wall() - health.last_good_at
        assert health.lag_seconds == lag.total_seconds()
    rig.clock.advance(120)
    assert {(s.source_id, s.request and s.request.target) for s in day(rig.heard())} == {
        (before.source_id, before.request.target)
    }


def test_a_grid_side_that_hangs_delays_no_other_feed_and_does_not_hold_up_the_end(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User case 9. What happens is waited for; 30 s only bound a failing test."""
    if rig.kind in WAITS_FOR_NOBODY:
        pytest.skip("it asks nobody")
    asked, answer, answered = (threading.Event() for _ in range(3))

    def hang(*_: object, **__: object) -> NoReturn:
        asked.set()
        answer.wait(30)
        answered.set()
        raise requests.ConnectionError

    monkeypatch.setattr(requests.Session, "request", hang)
    other = RIGS["file"](rig.clock, tmp_path)
    heard: SimpleQueue[Signal] = SimpleQueue()
    runner = FeedRunner(rig.clock, heard.put, lambda *what: None, lambda *what: None)
    runner.start()
    try:
        runner.add(rig.running.spec, NOW)
        assert asked.wait(30)
        settings = json.dumps({**other.settings(), "poll_seconds": 0.2})
        runner.add(FeedSpec("other", "file", "emergency", settings_json=settings), NOW)
        for name in ("a", "b"):
            other.say(Said(name))
            assert heard.get(timeout=30).source_id == name
    finally:
        runner.stop()
        assert not answered.is_set()
        answer.set()
    assert heard.empty()


HEARS_ONLY = {"mapped", "webhook"}
"""Nothing stands with what is pushed: control has what was said. A map may name a list to poll."""


def test_a_test_by_hand_finds_what_stands_and_hands_nothing_over(rig: Rig) -> None:
    rig.say(Said("a"))
    (heard,) = day(rig.heard())
    before, feed = len(rig.signals), rig.running.feed
    if rig.kind in HEARS_ONLY:
        assert isinstance(feed, Hears | Hooks)
        return
    assert isinstance(feed, Polls | Listens)
    for _ in range(2):
        found = feed.poll() if isinstance(feed, Polls) else feed.standing()
        asked = {(s.source_id, s.revision, s.request and s.request.target) for s in found}
        assert (heard.source_id, heard.revision, heard.request and heard.request.target) in asked
    assert len(rig.signals) == before
