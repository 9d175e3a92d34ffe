"""What a kind may be able to do beside being asked: call-backs, wake-ups, a connection, advice."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.control.ports import FeedTelemetry, Receipt
from gridaware.domain.advisory import Advisory, AdvisoryQuality
from gridaware.domain.errors import Bug, GridawareError, InvalidInput, Refused, Unavailable
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import EventRequest, Quantity, Signal, TargetSpec
from gridaware.feeds import FEED_KINDS, Feed
from gridaware.feeds import runner as runner_module
from gridaware.feeds.kind import Hooked, PolledSettings, Push
from gridaware.feeds.runner import FeedRunner, RunningFeed

from .conftest import NOW
from .test_http_listener import Site, is_problem

PATIENCE_SECONDS = 10.0


def signal(number: int = 1, revision: int = 0) -> Signal:
    request = EventRequest(NOW, NOW + timedelta(hours=1), TargetSpec(Quantity.LIMIT_WATTS, 1000.0))
    return Signal("utility", f"dr-{number}", revision, NOW, 1000.0, request)


class Able(Feed[PolledSettings]):
    """Does everything, as the test says."""

    settings_model = PolledSettings
    polls: Callable[[], Sequence[Signal]] = staticmethod(list)
    hooks: Callable[[Push], Hooked] = staticmethod(lambda _: Hooked())
    listens: Callable[[Any, Any, threading.Event], None]
    unhooked: list[Push]

    def __init__(self, context: Any, settings: PolledSettings) -> None:
        super().__init__(context, settings)
        self.ending = threading.Event()
        self.unhooked = []

    def poll(self) -> Sequence[Signal]:
        return type(self).polls()

    def hook(self, push: Push) -> Hooked:
        return type(self).hooks(push)

    def unhook(self, push: Push) -> None:
        self.unhooked.append(push)

    def listen(self, emit: Callable[[Signal], object], heard: Callable[[], None]) -> None:
        type(self).listens(emit, heard, self.ending)

    def close(self) -> None:
        self.ending.set()

    def standing(self) -> Sequence[Signal]:
        return []


@pytest.fixture(autouse=True)
def _able_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEED_KINDS._things, "able", Able)
    for name in ("polls", "hooks"):
        monkeypatch.setattr(Able, name, Able.__dict__[name])
    waits = staticmethod(lambda _emit, _heard, ending: ending.wait())
    monkeypatch.setattr(Able, "listens", waits, raising=False)


SPEC = FeedSpec("utility", "able", "emergency", settings_json=json.dumps({"poll_seconds": 3600.0}))


@pytest.fixture
def site(clock: ManualClock) -> Site:
    made = Site(clock)
    made.runner.add(SPEC, NOW)
    return made


def test_a_challenge_by_get_is_answered_by_the_kind(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = staticmethod(lambda push: Hooked(body=push.query["echo"].encode()))
    monkeypatch.setattr(Able, "hooks", echo)
    answer = site.send("GET", "/api/v1/signals/utility?echo=abc123")
    assert (answer.status_code, answer.text) == (200, "abc123")
    answer = site.send("GET", "/api/v1/signals/utility/echo?echo=test_echo")
    assert (answer.status_code, answer.text) == (200, "test_echo")
    assert site.accepted == []


def test_a_call_may_carry_several_signals_each_durable_before_the_answer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Hooked((signal(1), signal(2)), status=202, body=b"{}")
    monkeypatch.setattr(Able, "hooks", staticmethod(lambda _: both))
    answer = site.send(content=b"anything, of any type")
    assert answer.status_code == 202
    assert [s.source_id for s in site.accepted] == ["dr-1", "dr-2"]


def test_one_signal_that_control_refuses_keeps_no_other_of_its_call_from_control(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User case 17; corner case 1."""
    three = Hooked((signal(1), signal(2), signal(3)))
    monkeypatch.setattr(Able, "hooks", staticmethod(lambda _: three))
    taken: list[str] = []

    def refuse_first(given: Signal) -> Receipt:
        if given.source_id == "dr-1":
            raise Refused("event-over", "it is over")
        taken.append(given.source_id)
        return Receipt(f"utility.{given.source_id}", 0, "accepted")

    site.answer = refuse_first
    assert site.send(content=b"x").status_code == 200
    assert taken == ["dr-2", "dr-3"]
    health = site.runner.get("utility").health.now()
    assert (health.signals, health.refused) == (2, 1)
    # Where nothing was taken the sender hears why.
    monkeypatch.setattr(Able, "hooks", staticmethod(lambda _: Hooked((signal(1),))))
    is_problem(site.send(content=b"x"), 409, "event-over")


def test_a_call_whose_signals_are_not_durable_may_come_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Able, "hooks", staticmethod(lambda _: Hooked((signal(1),))))

    def away(_: Signal) -> Receipt:
        raise Unavailable("store-busy", "later")

    site.answer = away
    is_problem(site.send(content=b"x"), 503, "store-busy")
    feed: Any = site.runner.get("utility").feed
    assert [push.body for push in feed.unhooked] == [b"x"]


def test_a_call_that_is_not_authentic_is_refused_and_recorded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_: Push) -> Hooked:
        raise Refused("signature-bad", "that is not the sender")

    monkeypatch.setattr(Able, "hooks", staticmethod(refuses))
    is_problem(site.send(content=b"x"), 401, "signature-bad")
    assert [what[1] for what in site.refused] == ["signature-bad"]


def test_a_call_that_says_only_that_something_changed_has_the_feed_polled_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    polled = threading.Event()

    def poll() -> list[Signal]:
        polled.set()
        return []

    monkeypatch.setattr(Able, "polls", staticmethod(poll))
    monkeypatch.setattr(Able, "hooks", staticmethod(lambda _: Hooked(wake=True)))
    assert site.send(content=b"{}").status_code == 200
    assert polled.wait(PATIENCE_SECONDS)


def test_a_storm_of_wake_ups_during_a_poll_is_one_more_poll(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, done = threading.Semaphore(0), threading.Event(), threading.Semaphore(0)
    polls = []

    def poll() -> list[Signal]:
        polls.append(len(polls))
        begun.release()
        go.wait(PATIENCE_SECONDS)
        done.release()
        return []

    monkeypatch.setattr(Able, "polls", staticmethod(poll))
    heard: list[Signal] = []
    running = RunningFeed(SPEC, NOW, clock, lambda *_: None, emit=heard.append)
    running.wake()
    assert begun.acquire(timeout=PATIENCE_SECONDS)
    for _ in range(100):  # all of them while the first poll is under way
        running.wake()
    go.set()
    for _ in range(2):
        assert done.acquire(timeout=PATIENCE_SECONDS)
    assert not done.acquire(timeout=0.05)
    assert len(polls) == 2


def test_a_feed_that_is_closed_is_not_woken(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Able, "polls", staticmethod(lambda: pytest.fail("it was polled")))
    running = RunningFeed(SPEC, NOW, clock, lambda *_: None, emit=lambda _: None)
    running.close()
    running.wake()
    assert "feed-utility-woken" not in {thread.name for thread in threading.enumerate()}
    assert running.health.now().state == "waiting"


def test_a_lost_connection_is_made_again_later_each_time_until_the_feed_is_closed(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    calls = []

    def listen(emit: Any, heard: Any, _: threading.Event) -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            heard()
            emit(signal(7))
            emit(signal(7))  # a duplicate of a broker that delivers at least once
            raise Unavailable("peer-unreachable", "gone again")
        if len(calls) > 3:
            running.close()

    monkeypatch.setattr(Able, "listens", staticmethod(listen))
    accepted: list[Signal] = []
    running = RunningFeed(SPEC, NOW, clock, lambda *_: None)
    running.poll_seconds = 1.0
    monkeypatch.setattr(running._closing, "wait", waits.append)
    running.listen(accepted.append)
    assert len(calls) == 4
    assert [s.source_id for s in accepted] == ["dr-7"]
    assert [0.8 <= w / by <= 1.2 for w, by in zip(waits, (1, 2, 1), strict=True)] == [True] * 3
    assert running.health.now().signals == 1


def test_what_control_refuses_is_told_to_the_kind_that_listens(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    def listen(emit: Any, _: Any, __: threading.Event) -> None:
        try:
            emit(signal(1))
        except Refused as error:
            told.append(error.code)
        running.close()

    def refuse(_: Signal) -> None:
        raise Refused("beyond-authority", "no")

    monkeypatch.setattr(Able, "listens", staticmethod(listen))
    running = RunningFeed(SPEC, NOW, clock, lambda *_: None)
    running.listen(refuse)
    assert told == ["beyond-authority"]
    assert running.health.now().refused == 1


def test_the_runner_listens_from_its_start_and_stops_with_the_feed(clock: ManualClock) -> None:
    runner = FeedRunner(clock, lambda _: None, lambda *_: None, lambda *_: None)
    runner.add(SPEC, NOW)
    names = {thread.name for thread in threading.enumerate()}
    assert "feed-utility-listen" not in names
    runner.start()
    threads = [t for t in threading.enumerate() if t.name == "feed-utility-listen"]
    assert len(threads) == 1
    runner.stop()
    threads[0].join(PATIENCE_SECONDS)
    assert not threads[0].is_alive()


def test_memory_outlives_a_restart_and_goes_with_the_registration(
    clock: ManualClock, tmp_path: Path
) -> None:
    def runner() -> FeedRunner:
        made = FeedRunner(clock, lambda _: None, lambda *_: None, lambda *_: None, tmp_path)
        made.add(SPEC, NOW)
        return made

    first = runner()
    first.get("utility").feed.context.memory.put("ven", {"id": "v-1"})
    first.stop()
    second = runner()
    assert second.get("utility").feed.context.memory.get("ven") == {"id": "v-1"}
    second.remove("utility", forget=True)
    assert runner().get("utility").feed.context.memory.get("ven") is None


def advisory(minute: int = 0, value: float = 41.5, feed_id: str = "utility") -> Advisory:
    start = datetime(2026, 11, 30, 14, tzinfo=UTC) + timedelta(minutes=minute)
    return Advisory(
        feed_id, "HB_SOUTH", "price_per_mwh", value, "USD/MWh", "", start,
        start + timedelta(minutes=15), AdvisoryQuality.PUBLISHED, NOW,
    )  # fmt: skip


def test_the_newest_word_on_each_thing_is_kept(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "ADVISORIES_AT_MOST", 2)
    running = RunningFeed(SPEC, NOW, clock, lambda *_: None)
    advise = running.feed.context.advise
    for each in (advisory(0), advisory(15), advisory(0, 55.0), advisory(30)):
        advise(each)
    assert [(a.start.minute, a.value) for a in running.advisories()] == [(0, 55.0), (30, 41.5)]
    with pytest.raises(Bug, match="advises as"):
        advise(advisory(feed_id="another"))


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"value": float("nan")}, "advisory-not-finite"),
        ({"quantity": "Price per MWh"}, "advisory-quantity"),
        ({"text": "x" * 501}, "advisory-too-long"),
        ({"start": datetime(2026, 11, 30, 14)}, "advisory-not-utc"),  # noqa: DTZ001
        ({"end": datetime(2026, 11, 30, 14, tzinfo=UTC)}, "advisory-window"),
    ],
)
def test_an_advisory_that_makes_no_sense_is_refused(wrong: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(advisory(), **wrong)
    assert caught.value.code == code


class Reporting(Feed[PolledSettings]):
    """Takes samples, and may fail."""

    settings_model = PolledSettings
    taken: list[FeedTelemetry] = []  # noqa: RUF012
    came = threading.Semaphore(0)
    error: GridawareError | None = None

    def poll(self) -> Sequence[Signal]:
        return ()

    def report(self, telemetry: FeedTelemetry) -> None:
        self.taken.append(telemetry)
        self.came.release()
        if self.error is not None:
            raise self.error


def test_samples_reach_a_feed_that_reports_in_order_and_a_failure_is_told(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FEED_KINDS._things, "reporting", Reporting)
    monkeypatch.setattr(Reporting, "error", Unavailable("peer-unreachable", "away"))
    refused: list[str] = []
    told = threading.Semaphore(0)

    def on_refused(_feed: str, code: str, _message: str, _raw: str) -> None:
        refused.append(code)
        told.release()

    runner = FeedRunner(clock, lambda _: None, on_refused, lambda *_: None)
    runner.add(replace(SPEC, kind="reporting"), NOW)
    runner.add(replace(SPEC, feed_id="other"), NOW)
    assert runner.reporting() == ("utility",)
    for second in range(3):
        runner.report("utility", FeedTelemetry(NOW, second, 1e4, "good", None, True, ()))
        runner.report("other", FeedTelemetry(NOW, second, 1e4, "good", None, True, ()))
    for _ in range(3):
        assert told.acquire(timeout=PATIENCE_SECONDS)
    assert [sample.seconds for sample in Reporting.taken] == [0, 1, 2]
    assert refused == ["peer-unreachable"] * 3
    runner.stop()
