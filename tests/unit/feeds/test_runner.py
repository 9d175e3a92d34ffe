"""The runner: what is new is handed over once; a bad feed harms no other and releases nothing."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import (
    Bug,
    ConfigError,
    GridawareError,
    NotFound,
    Refused,
    Unavailable,
)
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import EventRequest, Quantity, Signal, TargetSpec
from gridaware.feeds import FEED_KINDS, Feed
from gridaware.feeds import runner as runner_module
from gridaware.feeds.kind import PolledSettings
from gridaware.feeds.runner import FeedRunner, RunningFeed

from .conftest import NOW


class Scripted(Feed[PolledSettings]):
    """A kind whose polls do what the test says."""

    settings_model = PolledSettings
    scripts: dict[str, Callable[[], Sequence[Signal]]] = {}  # noqa: RUF012

    def poll(self) -> Sequence[Signal]:
        return self.scripts[self.context.feed_id]()


@pytest.fixture(autouse=True)
def _scripted_kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(FEED_KINDS._things, "scripted", Scripted)
    yield
    Scripted.scripts.clear()


def spec(feed_id: str = "utility", **settings: object) -> FeedSpec:
    return FeedSpec(feed_id, "scripted", "emergency", settings_json=json.dumps(settings))


def signal(number: int = 1, feed_id: str = "utility", revision: int = 0) -> Signal:
    request = EventRequest(NOW, NOW + timedelta(hours=1), TargetSpec(Quantity.LIMIT_WATTS, 1000.0))
    return Signal(feed_id, f"dr-{number}", revision, NOW, 1000.0, request)


class Control:
    """Takes signals, or answers what the test says."""

    def __init__(self) -> None:
        self.heard: list[Signal] = []
        self.refused: list[tuple[str, str, str, str]] = []
        self.answer: GridawareError | None = None

    def emit(self, heard: Signal) -> None:
        if self.answer is not None:
            raise self.answer
        self.heard.append(heard)

    def on_refused(self, *what: str) -> None:
        self.refused.append(what)  # type: ignore[arg-type]


@pytest.fixture
def control() -> Control:
    return Control()


@pytest.fixture
def running(clock: ManualClock, control: Control) -> RunningFeed:
    return RunningFeed(spec(poll_seconds=5.0), NOW, clock, control.on_refused)


def script(poll: Callable[[], Sequence[Signal]], feed_id: str = "utility") -> None:
    Scripted.scripts[feed_id] = poll


def raising(error: Exception) -> Callable[[], Sequence[Signal]]:
    def poll() -> Sequence[Signal]:
        raise error

    return poll


def test_each_signal_is_handed_over_once_and_each_change_again(
    running: RunningFeed, control: Control
) -> None:
    script(lambda: [signal(1), signal(2)])
    running.poll_once(control.emit)
    running.poll_once(control.emit)
    assert [s.source_id for s in control.heard] == ["dr-1", "dr-2"]
    script(lambda: [signal(1, revision=1), signal(2), replace(signal(2), request=None)])
    running.poll_once(control.emit)
    assert [(s.source_id, s.revision) for s in control.heard[2:]] == [("dr-1", 1), ("dr-2", 0)]


def test_a_poll_that_fails_or_comes_back_empty_cancels_nothing(
    running: RunningFeed, control: Control, clock: ManualClock
) -> None:
    script(lambda: [signal(1)])
    running.poll_once(control.emit)
    script(raising(Unavailable("feed-away", "it does not answer")))
    running.poll_once(control.emit)
    clock.advance(60)
    script(list)
    running.poll_once(control.emit)
    assert [s.request is None for s in control.heard] == [False]


def test_failures_back_off_twice_as_long_each_time_up_to_a_minute(
    running: RunningFeed, control: Control, clock: ManualClock
) -> None:
    polls: list[float] = []

    def poll() -> Sequence[Signal]:
        polls.append(clock.monotonic_seconds() - 1000)
        raise Unavailable("feed-away", "it does not answer")

    script(poll)
    for _ in range(600):
        running.poll_once(control.emit)
        clock.advance(0.5)
    gaps = [b - a for a, b in pairwise(polls)]
    assert gaps == [5, 10, 20, 40, 60, 60, 60]
    health = running.health.now()
    assert (health.state, health.failures, health.reason_code) == ("failing", 8, "feed-away")
    script(lambda: [signal(1)])
    clock.advance(60)
    running.poll_once(control.emit)
    clock.advance(3)
    health = running.health.now()
    assert (health.state, health.failures, health.reason_code) == ("ok", 0, "")
    assert (health.lag_seconds, health.signals) == (3.0, 1)
    assert health.last_good_at == clock.wall() - timedelta(seconds=3)


def test_a_kind_that_raises_anything_is_a_failure_with_its_name(
    running: RunningFeed, control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    script(raising(ZeroDivisionError("oops")))
    running.poll_once(control.emit)
    health = running.health.now()
    assert (health.state, health.reason_code) == ("failing", "feed-failed")
    assert "ZeroDivisionError" in health.reason
    assert "oops" in caplog.text


def test_what_control_could_not_keep_comes_again_and_what_it_refused_does_not(
    running: RunningFeed, control: Control, clock: ManualClock
) -> None:
    script(lambda: [signal(1), signal(2)])
    control.answer = Unavailable("ledger-full", "the disk is full")
    running.poll_once(control.emit)
    assert running.health.now().reason_code == "ledger-full"
    clock.advance(5)
    control.answer = Refused("event-over", "its window is over")
    running.poll_once(control.emit)
    assert (running.health.now().state, running.health.now().refused) == ("ok", 2)
    control.answer = None
    running.poll_once(control.emit)
    assert control.heard == []


def test_a_feed_cannot_speak_for_another(running: RunningFeed, control: Control) -> None:
    script(lambda: [signal(1, feed_id="operator")])
    running.poll_once(control.emit)
    assert control.heard == []
    assert running.health.now().reason_code == "feed-impostor"


@pytest.mark.parametrize(
    "wrong",
    [
        replace(signal(), received_at=datetime(2026, 11, 30, tzinfo=UTC).replace(tzinfo=None)),
        replace(signal(), raw="x" * 65_537),
    ],
)
def test_a_kind_that_breaks_the_form_is_found_out(
    running: RunningFeed, control: Control, wrong: Signal
) -> None:
    script(lambda: [wrong])
    running.poll_once(control.emit)
    assert control.heard == []
    assert running.health.now().reason_code in {"feed-time-not-utc", "feed-raw-too-large"}


def test_a_removed_feed_delivers_nothing_more(running: RunningFeed, control: Control) -> None:
    def poll() -> Sequence[Signal]:
        running.closed = True  # removed while it was under way
        return [signal(1)]

    script(poll)
    running.poll_once(control.emit)
    running.poll_once(control.emit)
    assert control.heard == []


def test_a_flood_of_refusals_is_recorded_as_a_number(
    running: RunningFeed, control: Control, clock: ManualClock
) -> None:
    for number in range(1000):
        running.refused(Refused("signature-bad", f"number {number}"), "raw" * 9000)
    assert len(control.refused) == 50
    assert control.refused[0] == ("utility", "signature-bad", "number 0", ("raw" * 9000)[:4096])
    clock.advance(1)
    running.refused(Refused("signature-bad", "later"), "")
    assert control.refused[50][1:3] == (
        "refusals-suppressed",
        "950 more refusals came too fast to be recorded one by one",
    )
    assert control.refused[51][2] == "later"
    assert running.health.now().refused == 1001


def test_feeds_are_known_by_their_id(clock: ManualClock, control: Control) -> None:
    runner = FeedRunner(clock, control.emit, control.on_refused, lambda *what: None)
    runner.add(spec("one"), NOW)
    with pytest.raises(Refused) as exists:
        runner.add(spec("one"), NOW)
    assert exists.value.code == "feed-exists"
    with pytest.raises(NotFound) as kind:
        runner.add(FeedSpec("two", "webhok", "emergency"), NOW)
    assert kind.value.code == "feed-kind-unknown"
    assert "did you mean 'webhook'?" in kind.value.message
    for bad in ("{", "[]", '{"a":1,"a":1}'):
        with pytest.raises(ConfigError) as settings:
            runner.add(FeedSpec("two", "scripted", "emergency", settings_json=bad), NOW)
        assert settings.value.code == "feed-settings-not-json"
    runner.remove("one")
    with pytest.raises(NotFound):
        runner.remove("one")
    with pytest.raises(NotFound):
        runner.get("one")
    for number in range(runner_module.FEEDS_AT_MOST):
        runner.add(spec(f"feed-{number}"), NOW)
    with pytest.raises(Refused) as many:
        runner.add(spec("one-more"), NOW)
    assert many.value.code == "feeds-too-many"
    assert len(runner.health()) == 256


def test_a_poll_that_does_not_return_is_seen(running: RunningFeed, clock: ManualClock) -> None:
    assert running.health.now().state == "waiting"
    running.health.began()
    clock.advance(31)
    health = running.health.now()
    assert (health.state, health.reason_code) == ("hung", "feed-hung")
    running.health.failed(Bug("feed-failed", "it ended badly"))
    assert running.health.now().state == "failing"


def test_a_kind_of_another_distribution_is_found_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock, control: Control
) -> None:
    class Entry:
        def load(self) -> type[Scripted]:
            return Scripted

    def entry_points(group: str, name: str) -> list[Entry]:
        return [Entry()] if (group, name) == ("gridaware.feeds", "acme") else []

    monkeypatch.setattr("gridaware.feeds.entry_points", entry_points)
    things: dict[str, Any] = dict(FEED_KINDS._things)
    monkeypatch.setattr(FEED_KINDS, "_things", things)
    made = RunningFeed(FeedSpec("acme", "acme", "emergency"), NOW, clock, control.on_refused)
    assert isinstance(made.feed, Scripted)
