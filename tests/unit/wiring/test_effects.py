"""Effects: documents are written late and once, or at once where an answer needs them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.control.state import State
from gridaware.domain.programme import FeedSpec
from gridaware.feeds.health import FeedHealth
from gridaware.wiring.effects import WRITE_SECONDS, ControlEffects


class Documents:
    """Notes what is written."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []
        self.bodies: dict[tuple[str, str], Any] = {}

    def put(self, kind: str, thing_id: str, *rest: object) -> None:
        self.written.append((kind, thing_id))
        self.bodies[kind, thing_id] = rest[1]

    def remove(self, kind: str, thing_id: str, at: datetime) -> None:
        del at
        self.written.append((f"no {kind}", thing_id))


class Store:
    """The store, as far as effects touch it here."""

    def __init__(self) -> None:
        self.documents = Documents()


class Loop:
    """An event loop whose timers the test runs itself."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, object]] = []

    def call_later(self, seconds: float, call: object) -> None:
        self.timers.append((seconds, call))


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr("asyncio.get_running_loop", lambda: loop)
    return loop


@pytest.fixture
def effects() -> ControlEffects:
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    return ControlEffects(Store(), None, None, None, State, clock)  # type: ignore[arg-type]


def written(effects: ControlEffects) -> list[tuple[str, str]]:
    documents = effects._store.documents
    assert isinstance(documents, Documents)
    return documents.written


def test_a_burst_of_changes_is_one_writing_a_moment_later(
    effects: ControlEffects, loop: Loop
) -> None:
    for _ in range(3):
        effects.publish("status", "site")
        effects.publish("job", "gone")
    assert written(effects) == []
    ((seconds, call),) = loop.timers
    assert seconds == WRITE_SECONDS
    call()  # type: ignore[operator]
    assert written(effects) == [("status", "site"), ("no job", "gone")]
    effects.publish("status", "site")
    assert len(loop.timers) == 2


def test_what_an_answer_needs_is_written_first_and_not_again(
    effects: ControlEffects, loop: Loop
) -> None:
    effects.publish("status", "site")
    effects.publish("event", "feed.e1")
    effects.write("event", "feed.e1")
    effects.write("event", "never-changed")
    assert written(effects) == [("no event", "feed.e1")]
    effects.write_waiting()
    assert written(effects) == [("no event", "feed.e1"), ("status", "site")]
    for _, call in loop.timers:
        call()  # type: ignore[operator]
    assert len(written(effects)) == 2


class Feeds:
    """Feeds with a health that the test sets."""

    def __init__(self, health: FeedHealth) -> None:
        self.now = health

    def health(self) -> tuple[FeedHealth, ...]:
        return (self.now,)


def test_how_a_feed_is_is_written_when_it_changes_and_not_each_second(loop: Loop) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    health = FeedHealth("vtn", "openadr3", "ok", at, 1.0, 0, "", "", 3, 0, 0)
    feeds: Any = Feeds(health)
    state = State()
    state.feeds["vtn"] = FeedSpec("vtn", "openadr3", "p")
    store: Any = Store()
    clock = ManualClock(at)
    effects = ControlEffects(store, None, None, feeds, lambda: state, clock)  # type: ignore[arg-type]

    def published() -> bool:
        loop.timers.clear()
        effects.publish_feeds()
        effects.write_waiting()
        return bool(loop.timers)

    assert published()
    assert not published()
    feeds.now = replace(health, lag_seconds=9.0, last_good_at=at + timedelta(seconds=9))
    assert not published()
    feeds.now = replace(health, last_good_at=at + timedelta(seconds=31))
    assert published()
    feeds.now = replace(feeds.now, state="failing", failures=1, reason_code="peer-unreachable")
    assert published()
    body = store.documents.bodies["feed", "vtn"]
    assert body["health"]["state"] == "failing"
    assert body["health"]["reason_code"] == "peer-unreachable"
    assert body["kind"] == "openadr3"
