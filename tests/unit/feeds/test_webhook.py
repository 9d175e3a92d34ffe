"""The webhook feed: only what is authentic, new and well formed becomes a signal."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.clock import ManualClock
from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput, Refused
from gridaware.domain.signing import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from gridaware.feeds import FeedContext, webhook
from gridaware.feeds.kind import Push
from gridaware.feeds.secrets import read_secret
from gridaware.feeds.webhook import ReplayMemory, Webhook, WebhookSettings

from .conftest import NOW

SECRET = b"0123456789abcdef-utility"
EVENT = {"id": "dr-1", "start": "now", "duration": "PT45S", "target": {"reduce_percent": 40}}


@pytest.fixture
def feed(opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Webhook:
    monkeypatch.setenv("UTILITY_SECRET", SECRET.decode())
    made = opened("webhook", secrets=["env:UTILITY_SECRET"])
    assert isinstance(made, Webhook)
    return made


def pushed(
    clock: ManualClock, body: bytes | dict[str, object] = EVENT, *, signed_ago: int = 0
) -> Push:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    timestamp = int(clock.wall().timestamp()) - signed_ago
    headers = {
        TIMESTAMP_HEADER.lower(): str(timestamp),
        SIGNATURE_HEADER.lower(): sign(SECRET, timestamp, data),
    }
    return Push(headers, data, clock.wall(), clock.monotonic_seconds())


def refused(feed: Webhook, push: Push) -> str:
    with pytest.raises(GridawareError) as refusal:
        feed.hear(push)
    return refusal.value.code


def test_an_authentic_push_is_the_signal(feed: Webhook, clock: ManualClock) -> None:
    signal = feed.hear(pushed(clock))
    assert (signal.feed_id, signal.source_id, signal.revision) == ("utility", "dr-1", 0)
    assert (signal.received_at, signal.received_seconds) == (NOW, 1000.0)
    assert json.loads(signal.raw) == EVENT


def test_the_same_message_is_heard_once_and_a_new_one_of_the_same_revision_again(
    feed: Webhook, clock: ManualClock
) -> None:
    push = pushed(clock)
    first = feed.hear(push)
    assert refused(feed, push) == "webhook-replayed"
    # Hexadecimal digits in capitals are the same signature.
    header = SIGNATURE_HEADER.lower()
    capitals = "v1=" + push.headers[header][3:].upper()
    other = Push({**push.headers, header: capitals}, push.body, NOW, 1000.0)
    assert refused(feed, other) == "webhook-replayed"
    clock.advance(1)
    again = feed.hear(pushed(clock))
    assert (again.source_id, again.revision) == (first.source_id, first.revision)
    assert again.request is not None
    assert first.request is not None
    assert again.request.same_as(first.request)


def test_a_message_can_never_be_heard_twice_however_long_one_waits(
    feed: Webhook, clock: ManualClock
) -> None:
    # Signed by a clock ahead of ours, so that it stays acceptable for twice the window.
    push = pushed(clock, signed_ago=-299)
    feed.hear(push)
    for _ in range(130):
        clock.advance(5)
        late = Push(push.headers, push.body, clock.wall(), clock.monotonic_seconds())
        assert refused(feed, late) in {"webhook-replayed", "timestamp-stale"}


def test_a_message_that_control_could_not_keep_may_come_once_more(
    feed: Webhook, clock: ManualClock
) -> None:
    push = pushed(clock)
    feed.hear(push)
    feed.unhear(push)
    assert feed.hear(push).source_id == "dr-1"
    assert refused(feed, push) == "webhook-replayed"


def test_a_full_memory_refuses_rather_than_forgets(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "REMEMBERED_AT_MOST", 3)
    memory = ReplayMemory(clock, 300)
    for code in "abc":
        memory.claim(code)
    with pytest.raises(Refused) as busy:
        memory.claim("d")
    assert busy.value.code == "webhook-busy"
    with pytest.raises(Refused) as replayed:
        memory.claim("a")
    assert replayed.value.code == "webhook-replayed"
    clock.advance(602)
    memory.claim("d")


def test_a_flood_of_authentic_messages_is_bounded_and_a_strangers_flood_does_not_count(
    feed: Webhook, clock: ManualClock
) -> None:
    forged = Push(
        {**pushed(clock).headers, SIGNATURE_HEADER.lower(): "v1=" + "0" * 64}, b"{}", NOW, 0
    )
    for _ in range(500):
        assert refused(feed, forged) == "signature-bad"
    for number in range(50):  # five times 10 a second at once
        feed.hear(pushed(clock, {**EVENT, "id": f"dr-{number}"}))
    assert refused(feed, pushed(clock, {**EVENT, "id": "dr-50"})) == "rate-exceeded"
    clock.advance(1)
    assert feed.hear(pushed(clock, {**EVENT, "id": "later"})).source_id == "later"


def test_an_authentic_message_that_is_wrong_is_refused_and_stays_spent(
    feed: Webhook, clock: ManualClock
) -> None:
    push = pushed(clock, {"id": "dr-1"})
    with pytest.raises(InvalidInput):
        feed.hear(push)
    assert refused(feed, push) == "webhook-replayed"


def test_the_secret_may_stand_in_a_private_file(opened: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o600)
    assert read_secret(f"file:{path}") == SECRET
    assert opened("webhook", secrets=[f"file:{path}"])
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(ConfigError) as exposed:
            opened("webhook", secrets=[f"file:{path}"])
        assert exposed.value.code == "secret-exposed"
        assert SECRET.decode() not in exposed.value.message


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("hunter2hunter2hunter2", "secret-reference"),
        ("env:", "secret-reference"),
        ("file:relative", "secret-reference"),
        ("env:GRIDAWARE_NOT_SET", "secret-missing"),
        ("file:/nowhere/secret", "secret-missing"),
        ("file:/dev/null", "secret-missing"),
        ("env:SHORT_SECRET", "secret-short"),
    ],
)
def test_secrets_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, reference: str, code: str
) -> None:
    monkeypatch.setenv("SHORT_SECRET", "123456789012345")
    with pytest.raises(ConfigError) as refusal:
        read_secret(reference)
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("settings_", "said"),
    [
        ({}, "secrets: Field required"),
        ({"secrets": []}, "secrets: "),
        ({"secrets": ["the secret itself"]}, "secrets.0: "),
        ({"secrets": ["env:UTILITY_SECRET"] * 5}, "secrets: "),
        ({"secrets": ["env:UTILITY_SECRET"], "window_second": 5}, "did you mean 'window_seconds'?"),
        ({"secrets": ["env:UTILITY_SECRET"], "window_seconds": "300"}, "window_seconds: "),
        ({"secrets": ["env:UTILITY_SECRET"], "rate_per_second": 0}, "rate_per_second: "),
    ],
)
def test_settings_are_checked_by_name(
    opened: Callable[..., Any], settings_: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        opened("webhook", **settings_)
    assert refusal.value.code == "feed-settings-invalid"
    assert said in refusal.value.message
    assert "the secret itself" not in refusal.value.message


@settings(max_examples=1000, deadline=None)
@given(
    timestamp=st.text(max_size=14) | st.integers(-(10**13), 10**13).map(str),
    signature=st.text(max_size=70)
    | st.binary(min_size=32, max_size=32).map(lambda b: "v1=" + b.hex()),
    body=st.binary(max_size=40),
    sound=st.booleans(),
)
def test_no_push_breaks_the_feed(timestamp: str, signature: str, body: bytes, sound: bool) -> None:
    clock = ManualClock(NOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UTILITY_SECRET", SECRET.decode())
        context = FeedContext("utility", clock, NOW, lambda error, raw: None)
        made = Webhook(context, WebhookSettings(secrets=("env:UTILITY_SECRET",)))
    headers = {TIMESTAMP_HEADER.lower(): timestamp, SIGNATURE_HEADER.lower(): signature}
    push = pushed(clock, body) if sound else Push(headers, body, NOW, 0)
    with pytest.raises(GridawareError):
        made.hear(push)
