"""The feed without its broker: what is kept of a message, what comes again, settings that clash."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from gridaware.clock import ManualClock
from gridaware.domain.errors import ConfigError, GridawareError, Unavailable
from gridaware.domain.signal import Signal
from gridaware.feeds import Feed
from gridaware.feeds.mqtt import MqttMessage
from gridaware.sim.grid.dsx import Isv, load_target

SETTINGS: dict[str, Any] = {
    "url": "mqtt://127.0.0.1:1",
    "isv_id": "acme-energy",
    "agent_id": "site-7",
    "feeds": {"main-a": {"default_kw": 6000.0}},
    "keys": {"isv-1": "env:DSX_KEY"},
}
Refusals = list[tuple[GridawareError, str]]


class Link:
    """Takes the place of a connection."""

    def __init__(self) -> None:
        self.say: Callable[[MqttMessage], None] = lambda _: None

    def serve(self, topics: list[str], on_message: Callable[[MqttMessage], None], *_: Any) -> None:
        self.topics, self.say = topics, on_message


class Acme:
    """The feed, its sender and what control gets."""

    def __init__(self, feed: Any, clock: ManualClock, isv: Isv) -> None:
        self.feed, self.clock, self.isv = feed, clock, isv
        self.link = feed._link = Link()
        self.signals: list[Signal] = []
        self.errors: list[GridawareError] = []

    def emit(self, signal: Signal) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.signals.append(signal)

    def listen(self) -> None:
        self.feed.listen(self.emit, lambda: None)

    def say(self, *targets: dict[str, object], **otherwise: Any) -> bytes:
        message = self.isv.message(targets, **otherwise)
        self.link.say(MqttMessage(self.isv.topic, message, retained=False))
        return message


@pytest.fixture
def acme(
    opened: Callable[..., Feed[Any]], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> Acme:
    isv = Isv("acme-energy", clock)
    monkeypatch.setenv("DSX_KEY", isv.public_pem)
    made = Acme(opened("dsx", **SETTINGS), clock, isv)
    made.listen()
    return made


def test_what_could_not_be_made_durable_is_taken_when_the_feed_listens_again(acme: Acme) -> None:
    acme.errors = [Unavailable("ledger-full", "no room"), Unavailable("ledger-full", "no room")]
    with pytest.raises(Unavailable):
        acme.say(load_target(4000))
    with pytest.raises(Unavailable):
        acme.listen()
    acme.clock.advance(5)
    acme.listen()
    (signal,) = acme.signals
    assert signal.request is not None
    assert signal.request.start == acme.clock.wall() - timedelta(seconds=5)
    acme.listen()
    assert len(acme.signals) == 1


def test_a_disk_that_cannot_be_written_is_told_and_the_target_stands(
    acme: Acme, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise Unavailable("feed-memory-unwritable", "no room")

    monkeypatch.setattr(acme.feed.context.memory, "put", full)
    with pytest.raises(Unavailable):
        acme.say(load_target(4000))
    acme.listen()
    assert len(acme.signals) == len(acme.feed.standing()) == 1


def test_the_message_is_kept_once_however_many_signals_it_makes(acme: Acme) -> None:
    said = [
        load_target(
            1000 + n, start=f"2026-12-01T{n:02}:00:00Z", end=f"2026-12-01T{n + 1:02}:00:00Z"
        )
        for n in range(3)
    ]
    message = acme.say(*said)
    first, *rest = acme.signals
    assert first.raw == message.decode()
    assert [json.loads(s.raw) for s in rest] == [{"part_of": first.source_id}] * 2
    assert {s.source_id[:36] for s in acme.signals} == {json.loads(message)["id"]}
    assert [s.source_id for s in acme.feed.standing()] == [s.source_id for s in acme.signals]


def test_a_retry_of_a_sender_whose_clock_is_ahead_leaves_no_orphan(acme: Acme) -> None:
    acme.say(load_target(5000))
    acme.clock.advance(10)
    ahead = (acme.clock.wall() + timedelta(seconds=20)).isoformat()
    acme.errors = [Unavailable("ledger-full", "no room")]
    emit = acme.emit

    def second_fails(signal: Signal) -> None:
        if len(acme.signals) == 2 and acme.errors:
            raise acme.errors.pop(0)
        acme.signals.append(signal)

    acme.emit = second_fails  # type: ignore[method-assign]
    acme.listen()
    with pytest.raises(Unavailable):
        acme.say(load_target(4000), time=ahead)
    acme.emit = emit  # type: ignore[method-assign]
    acme.clock.advance(3)
    acme.listen()
    standing = {s.source_id: s for s in acme.feed.standing()}
    last = {s.source_id: s.request for s in acme.signals}
    open_ended = [name for name, request in last.items() if request and request.end is None]
    assert len(open_ended) == 1
    assert set(open_ended) <= set(standing)


@pytest.mark.parametrize(
    ("otherwise", "code"),
    [
        ({"keys": {}}, "feed-settings-invalid"),
        ({"allow_unsigned": True}, "feed-settings-invalid"),
        ({"keys": {"isv-1": "env:DSX_NONE"}}, "secret-missing"),
        ({"keys": {"isv-1": "env:DSX_BAD"}}, "dsx-key"),
        ({"signing_key": "env:DSX_KEY"}, "dsx-key"),
        ({"peer_keys": {"x": "env:DSX_BAD"}}, "dsx-key"),
        ({"isv_id": "a/b"}, "feed-settings-invalid"),
        ({"isv_id": "+"}, "feed-settings-invalid"),
        ({"feeds": {}}, "feed-settings-invalid"),
        ({"feeds": {"a": {"default_kw": 0}}}, "feed-settings-invalid"),
        ({"agent_role": "agent"}, "feed-settings-invalid"),
        ({"token_url": "https://auth.example/token"}, "feed-settings-invalid"),
        ({"url": "mqtt://broker.example"}, "mqtt-insecure"),
        (
            {
                "token_url": "http://auth.example/token",
                "token_client": "site",
                "token_secret": "env:DSX_BAD",
            },
            "openadr3-url",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_when_the_feed_is_added(
    opened: Callable[..., Feed[Any]],
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    otherwise: dict[str, Any],
    code: str,
) -> None:
    monkeypatch.setenv("DSX_KEY", Isv("acme-energy", clock).public_pem)
    monkeypatch.setenv("DSX_BAD", "0123456789abcdef")
    with pytest.raises(ConfigError) as caught:
        opened("dsx", **{**SETTINGS, **otherwise})
    assert caught.value.code == code


def test_a_token_is_the_password_of_the_schemas_user(
    opened: Callable[..., Feed[Any]], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSX_KEY", Isv("acme-energy", clock).public_pem)
    monkeypatch.setenv("DSX_TOKEN", "0123456789abcdef")
    token = {
        "token_url": "https://auth.example/token",
        "token_client": "site",
        "token_secret": "env:DSX_TOKEN",
    }
    feed: Any = opened("dsx", **SETTINGS, **token)
    assert feed._link._settings.username == "oauthtoken"
    assert feed._link._password is not None


def test_with_unsigned_allowed_plain_data_is_taken_and_signed_data_is_not(
    opened: Callable[..., Feed[Any]], clock: ManualClock, refusals: Refusals
) -> None:
    isv = Isv("acme-energy", clock)
    made = Acme(opened("dsx", **{**SETTINGS, "keys": {}, "allow_unsigned": True}), clock, isv)
    made.listen()
    made.say(load_target(4000), data={"targets": [load_target(4000)]})
    made.say(load_target(4000))
    assert len(made.signals) == 1
    assert [error.code for error, _ in refusals] == ["jws-key-unknown"]


def test_of_two_targets_said_in_one_second_the_one_that_came_later_rules(acme: Acme) -> None:
    for kilowatts in (4000, 3000, 5000, 4500, 3500):
        acme.say(load_target(kilowatts))
    (standing,) = [s for s in acme.feed.standing() if s.request.end is None]
    assert standing.request.target.value == 3.5e6


def test_two_orders_in_the_same_words_are_two_only_if_their_signatures_are(
    opened: Callable[..., Feed[Any]],
    clock: ManualClock,
    refusals: Refusals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    isv = Isv("acme-energy", clock, key=ed25519.Ed25519PrivateKey.generate())
    monkeypatch.setenv("DSX_KEY", isv.public_pem)
    made = Acme(opened("dsx", **SETTINGS), clock, isv)
    made.listen()
    made.say(load_target(4000))
    made.say(load_target(4000))
    made.say(load_target(4000, start="2026-11-30T14:00:00Z"))
    assert [error.code for error, _ in refusals] == ["dsx-replayed"]
    assert len([s for s in made.signals if s.revision == 0]) == 2
