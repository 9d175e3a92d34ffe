"""Control's listener over ASGI, without a socket: answers, problems, what reaches the ledger."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from gridaware.clock import ManualClock
from gridaware.control.ports import Receipt
from gridaware.domain.errors import NotFound, Refused, Unavailable
from gridaware.domain.fixes import fix_for
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import Signal
from gridaware.feeds import http_listener
from gridaware.feeds.http_listener import build_app
from gridaware.feeds.runner import FeedRunner
from gridaware.sim.grid import signed_headers

from .conftest import NOW

SECRET = b"0123456789abcdef-utility"
EVENT = {"id": "dr-1", "start": "now", "duration": "PT45S", "target": {"reduce_percent": 40}}
PATH = "/api/v1/signals/utility"


class Site:
    """Control behind the listener, as far as these tests need one."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.accepted: list[Signal] = []
        self.refused: list[tuple[str, str, str, str]] = []
        self.answer: Callable[[Signal], Receipt] = lambda heard: Receipt(
            f"{heard.feed_id}.{heard.source_id}", heard.revision, "accepted"
        )
        self.runner = FeedRunner(
            clock,
            self.accepted.append,
            lambda *what: self.refused.append(what),
            lambda *what: None,
        )
        self.app = build_app(self.runner, self.accept, clock)

    async def accept(self, heard: Signal) -> Receipt:
        receipt = self.answer(heard)
        self.accepted.append(heard)
        return receipt

    def send(self, method: str = "POST", path: str = PATH, **rest: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
                return await client.request(method, path, **rest)

        return asyncio.run(ask())

    def push(self, body: bytes | dict[str, object] = EVENT, **headers: str) -> httpx.Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send(
            content=data, headers={**signed_headers(SECRET, data, self.clock), **headers}
        )


@pytest.fixture
def site(clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Site:
    monkeypatch.setenv("UTILITY_SECRET", SECRET.decode())
    made = Site(clock)
    settings = json.dumps({"secrets": ["env:UTILITY_SECRET"]})
    made.runner.add(FeedSpec("utility", "webhook", "emergency", settings_json=settings), NOW)
    settings = json.dumps({"path": str(tmp_path / "x.csv")})
    made.runner.add(FeedSpec("replay", "file", "emergency", settings_json=settings), NOW)
    return made


def is_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["fix"] == fix_for(code)
    assert problem["title"]
    assert problem["detail"]
    return problem


def test_a_signal_is_answered_once_control_has_it(site: Site, clock: ManualClock) -> None:
    answer = site.push()
    assert (answer.status_code, answer.json()) == (
        200,
        {"event_id": "utility.dr-1", "revision": 0, "disposition": "accepted", "message": ""},
    )
    (heard,) = site.accepted
    assert (heard.received_at, heard.received_seconds) == (NOW, 1000.0)
    assert heard.request is not None
    assert heard.request.end == NOW + timedelta(seconds=45)
    health = {h.feed_id: h for h in site.runner.health()}
    assert (health["utility"].state, health["utility"].signals) == ("ok", 1)
    assert health["replay"].state == "waiting"
    assert site.refused == []


def test_the_answer_says_what_became_of_a_duplicate(site: Site, clock: ManualClock) -> None:
    site.push()
    clock.advance(1)
    site.answer = lambda heard: Receipt("utility.dr-1", 0, "duplicate", "known since 14:00")
    answer = site.push()
    assert (answer.status_code, answer.json()["disposition"]) == (200, "duplicate")


def test_a_replay_is_refused_and_reported(site: Site) -> None:
    site.push()
    is_problem(site.push(), 409, "webhook-replayed")
    assert len(site.accepted) == 1
    ((feed, code, _, raw),) = site.refused
    assert (feed, code, json.loads(raw)) == ("utility", "webhook-replayed", EVENT)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Gridaware-Signature": "v1=" + "0" * 64}, 401, "signature-bad"),
        ({"Gridaware-Signature": ""}, 401, "signature-missing"),
        ({"Gridaware-Timestamp": ""}, 401, "timestamp-missing"),
        ({"Gridaware-Timestamp": "soon"}, 401, "timestamp-malformed"),
        ({"Content-Type": "text/plain"}, 415, "content-type-unsupported"),
        ({"Content-Type": ""}, 415, "content-type-unsupported"),
        ({"Content-Length": "65537"}, 413, "event-too-large"),
        ({"Content-Length": "9" * 100}, 413, "event-too-large"),
    ],
)
def test_what_the_headers_may_not_say(
    site: Site, headers: dict[str, str], status: int, code: str
) -> None:
    is_problem(site.push(EVENT, **headers), status, code)
    assert site.accepted == []
    assert [what[1] for what in site.refused] == [code]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "event-not-json"),
        (b'{"id":"\xff"}', 400, "event-not-utf8"),
        (b"[]", 400, "event-not-object"),
        (b"[" * 50_000, 422, "event-nested"),
        ({"id": "dr-1"}, 422, "event-key-missing"),
        ({**EVENT, "durration": "PT1H"}, 422, "event-key-unknown"),
        ({**EVENT, "duration": "P1M"}, 422, "duration-calendar"),
        ({**EVENT, "target": {"reduce_percent": 140}}, 422, "target-percent-range"),
    ],
)
def test_what_the_body_may_not_say(
    site: Site, body: bytes | dict[str, object], status: int, code: str
) -> None:
    is_problem(site.push(body), status, code)
    assert site.accepted == []
    assert [what[1] for what in site.refused] == [code]


def test_a_stale_message_is_told_how_stale(site: Site, clock: ManualClock) -> None:
    data = json.dumps(EVENT).encode()
    headers = signed_headers(SECRET, data, clock)
    clock.advance(301)
    problem = is_problem(site.send(content=data, headers=headers), 401, "timestamp-stale")
    assert problem["facts"] == {"age_seconds": 301.0}


def test_a_body_without_a_length_is_cut_off_at_64_kib(site: Site, clock: ManualClock) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 1024

    answer = site.send(content=endless(), headers=signed_headers(SECRET, b"", clock))
    is_problem(answer, 413, "event-too-large")
    assert sent == 65


def test_a_body_that_does_not_come_is_given_up(
    site: Site, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_listener, "BODY_SECONDS", 0.0)

    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    answer = site.send(content=never(), headers=signed_headers(SECRET, b"", clock))
    assert is_problem(answer, 408, "body-too-slow")["retryable"] is True


def test_unknown_feeds_paths_and_methods(site: Site) -> None:
    is_problem(site.send(path="/api/v1/signals/nobody"), 404, "feed-unknown")
    is_problem(site.send(path="/api/v1/signals/replay"), 409, "feed-not-pushed")
    is_problem(site.send(path="/api/v1/events"), 404, "route-unknown")
    answer = site.send("GET")
    is_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "POST"
    assert [what[:2] for what in site.refused] == [
        ("nobody", "feed-unknown"),
        ("replay", "feed-not-pushed"),
    ]


def test_strangers_at_unknown_feeds_cannot_flood_the_ledger(site: Site) -> None:
    for number in range(200):
        site.send(path=f"/api/v1/signals/nobody-{number}")
    assert len(site.refused) == 50


def test_a_flood_of_authentic_messages_is_slowed(site: Site) -> None:
    for number in range(50):
        assert site.push({**EVENT, "id": f"dr-{number}"}).status_code == 200
    answer = site.push({**EVENT, "id": "dr-50"})
    assert is_problem(answer, 429, "rate-exceeded")["retryable"] is True
    assert answer.headers["retry-after"] == "1"


def test_nothing_is_lost_when_the_ledger_cannot_take_it(site: Site) -> None:
    good = site.answer

    def away(_: Signal) -> Receipt:
        raise Unavailable("accept-timeout", "the disk is full")

    site.answer = away
    answer = site.push()
    assert is_problem(answer, 503, "accept-timeout")["retryable"] is True
    assert answer.headers["retry-after"] == "1"
    # The very same bytes may come once more: they were never taken.
    site.answer = good
    assert site.push().status_code == 200


def test_control_may_refuse_and_the_message_stays_spent(site: Site) -> None:
    def no(_: Signal) -> Receipt:
        raise Refused("feed-exists", "stands for any refusal of control")

    site.answer = no
    is_problem(site.push(), 409, "feed-exists")
    assert site.refused == []  # control has recorded it: once is enough
    is_problem(site.push(), 409, "webhook-replayed")
    assert [health.refused for health in site.runner.health()] == [2, 0]


def test_control_that_does_not_answer_in_time(
    site: Site, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_listener, "ACCEPT_SECONDS", 0.0)

    async def never(_: Signal) -> Receipt:
        await asyncio.Event().wait()
        raise AssertionError

    site.app = build_app(site.runner, never, clock)
    is_problem(site.push(), 503, "accept-timeout")


def test_a_fault_of_ours_is_a_problem_without_a_trace_and_may_be_sent_again(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    good = site.answer

    def broken(_: Signal) -> Receipt:
        raise ZeroDivisionError("secret detail")

    site.answer = broken
    answer = site.push()
    is_problem(answer, 500, "internal")
    assert "secret detail" not in answer.text
    assert "secret detail" in caplog.text
    assert [what[1] for what in site.refused] == ["internal"]
    site.answer = good
    assert site.push().status_code == 200


def test_odd_characters_in_an_error_do_not_break_the_answer(site: Site) -> None:
    site.answer = lambda _: (_ for _ in ()).throw(NotFound("feed-unknown", "n\ud800 \u2603"))
    assert is_problem(site.push(), 404, "feed-unknown")["detail"] == "n\ud800 \u2603"


def test_the_listener_is_alive(site: Site) -> None:
    answer = site.send("GET", "/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
