"""The kind ``mqtt`` through a broker that is not ours: stale, repeated, released, abandoned."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import SystemClock
from gridaware.control.ports import FeedReport
from gridaware.domain.errors import InvalidInput
from gridaware.domain.event import Clocks, EventState, GridEvent
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import EventRequest, Quantity, Signal, TargetSpec
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.plain_mqtt import read_limit
from gridaware.feeds.runner import RunningFeed
from gridaware.sim.grid.broker import Broker, Sender

PATIENCE_SECONDS = 10.0
TOPIC, PRESENCE, STATUS = "grid/limit", "grid/presence", "site/status"


def message_of(sequence: int, valid_until: datetime, **target: float) -> bytes:
    """A message as a sender writes it."""
    until = valid_until.isoformat().replace("+00:00", "Z")
    return json.dumps({"sequence": sequence, "valid_until": until, **target}).encode()


class Site:
    """One feed at work on a broker, with what control would get."""

    def __init__(self, broker: Broker, memory: FeedMemory) -> None:
        self.clock = SystemClock()
        self.signals: list[Signal] = []
        self.refused: list[str] = []
        self.came = threading.Semaphore(0)
        settings = {
            "url": broker.url, "topic": TOPIC, "presence_topic": PRESENCE, "status_topic": STATUS,
        }  # fmt: skip
        spec = FeedSpec("dso", "mqtt", "limit", settings_json=json.dumps(settings))
        self.running = RunningFeed(
            spec, self.clock.wall(), self.clock, self._refused, memory=memory
        )
        self.thread = threading.Thread(target=self.running.listen, args=(self._emit,), daemon=True)
        self.thread.start()
        for _ in range(1000):  # until it is subscribed
            if self.running.health.now().state == "ok":
                break
            threading.Event().wait(0.01)

    def _emit(self, signal: Signal) -> None:
        self.signals.append(signal)
        self.came.release()

    def _refused(self, _feed: str, code: str, _message: str, _raw: str) -> None:
        self.refused.append(code)
        self.came.release()

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.came.acquire(timeout=PATIENCE_SECONDS)

    def end(self) -> None:
        self.running.close()
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


@pytest.fixture
def memory(tmp_path: Path) -> FeedMemory:
    return FeedMemory(tmp_path / "dso.json")


@pytest.fixture
def sender(broker: Broker) -> Iterator[Sender]:
    with Sender(broker.url, will=(PRESENCE, b"offline")) as made:
        yield made


def ahead(minutes: float) -> Any:
    return SystemClock().wall().replace(microsecond=0) + timedelta(minutes=minutes)


def test_a_retained_limit_acts_at_once_and_a_stale_one_never(
    broker: Broker, memory: FeedMemory, sender: Sender
) -> None:
    sender.publish(TOPIC, message_of(3, ahead(-1), limit_kw=1), retain=True)
    first = Site(broker, memory)
    first.wait()
    assert (first.signals, first.refused) == ([], ["mqtt-stale"])
    first.end()
    sender.publish(TOPIC, message_of(4, ahead(30), limit_kw=84), retain=True)
    second = Site(broker, memory)
    second.wait()
    (signal,) = second.signals
    assert signal.request is not None
    assert signal.request.target == TargetSpec(Quantity.LIMIT_WATTS, 84_000.0)
    assert signal.request.end is not None
    assert timedelta(minutes=29) < signal.request.end - signal.received_at <= timedelta(minutes=30)
    second.end()
    feed: Any = second.running.feed
    assert feed.standing() == (signal,)


def test_limits_without_a_gap_are_one_event_and_a_restart_changes_nothing(
    broker: Broker, memory: FeedMemory, sender: Sender
) -> None:
    site = Site(broker, memory)
    until = ahead(30)
    for sequence, kw in ((1, 90), (2, 80)):
        sender.publish(TOPIC, message_of(sequence, until, limit_kw=kw), retain=True)
        while len(site.signals) < sequence:  # the first one may come before we subscribed
            site.wait()
    site.end()
    again = Site(broker, memory)
    sender.publish(TOPIC, message_of(1, until, limit_kw=10))  # an old one, replayed
    again.wait()
    assert again.refused == ["mqtt-sequence-passed"]
    sender.publish(TOPIC, b'{"sequence": 3, "release": true}')
    again.wait()
    sender.publish(TOPIC, message_of(4, until, reduce_percent=20))
    again.wait()
    again.end()
    heard = site.signals + again.signals
    assert [(s.source_id.partition(".")[0], s.revision, s.request is None) for s in heard] == [
        ("limit-1", 0, False),
        ("limit-1", 1, False),
        ("limit-1", 2, True),
        ("limit-2", 0, False),
    ]
    starts = {s.request.start for s in heard[:2] if s.request}
    assert len(starts) == 1  # a revision of a limit in force does not move its beginning


def test_a_last_will_releases_nothing_and_is_told(broker: Broker, memory: FeedMemory) -> None:
    sender = Sender(broker.url, will=(PRESENCE, b"offline"))
    site = Site(broker, memory)
    sender.publish(TOPIC, message_of(1, ahead(30), limit_kw=84), retain=True)
    site.wait()
    sender.vanish()
    site.wait()
    assert site.refused == ["mqtt-sender-gone"]
    assert [s.request is None for s in site.signals] == [False]
    site.end()


def test_what_became_of_a_limit_is_said_on_the_status_topic(
    broker: Broker, memory: FeedMemory, sender: Sender
) -> None:
    sender.subscribe(STATUS)
    site = Site(broker, memory)
    sender.publish(TOPIC, message_of(1, ahead(30), limit_kw=84), retain=True)
    site.wait()
    now = site.clock.wall()
    request = EventRequest(now, ahead(30), TargetSpec(Quantity.LIMIT_WATTS, 84e3))
    event = GridEvent(
        "dso.limit-1", "dso", "limit", "limit-1", 0, request, EventState.HOLDING, "",
        now, now, Clocks(0.0),
    )  # fmt: skip
    feed: Any = site.running.feed
    feed.tell(FeedReport(event, "active", now, 12_000.0))
    ((topic, said),) = sender.wait_for(1)
    assert topic == STATUS
    assert json.loads(said)["status"] == "active"
    assert json.loads(said)["delivered_kw"] == 12.0
    site.end()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"limit_kw": 84, "valid_until": "2026-11-30T15:00:00Z"}', "mqtt-sequence"),
        (b'{"sequence": true, "release": true}', "mqtt-sequence"),
        (b'{"sequence": 1, "limit_kw": 84}', "mqtt-valid-until"),
        (b'{"sequence": 1, "valid_until": "2026-11-30T15:00:00Z"}', "target-count"),
        (b'{"sequence": 1, "release": true, "limit_kw": 84}', "mqtt-release"),
        (b'{"sequence": 1, "limit_kw": 84, "valid_until": "2026-11-30T15:00:00"}', "time-naive"),
        (b'{"sequence": 1, "limit_kw": 84, "valid_untill": "x"}', "event-key-unknown"),
    ],
)  # fmt: skip
def test_a_message_that_is_none_is_refused(body: bytes, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_limit(body, datetime(2026, 11, 30, 14, tzinfo=UTC))
    assert caught.value.code == code
