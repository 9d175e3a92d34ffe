"""Telling the sender: what it is told, under which signature, and what happens when it is away."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import stamina

from gridaware.clock import ManualClock
from gridaware.control.ports import FeedReport
from gridaware.domain.errors import ConfigError, GridawareError, Refused, Unavailable
from gridaware.domain.event import Clocks, EventState, GridEvent
from gridaware.domain.signal import EventKind, EventRequest, Quantity, TargetSpec
from gridaware.domain.signing import SIGNATURE_HEADER, TIMESTAMP_HEADER, verify
from gridaware.feeds import delivery, tell
from gridaware.feeds.delivery import DeliveryQueue
from gridaware.feeds.http import Answer
from gridaware.feeds.tell import StatusCaller, check_status_url

from .conftest import NOW

SECRET = b"0123456789abcdef-utility"
URL = "https://utility.example/status"


def report(status: str, delivered_watts: float | None = None) -> FeedReport:
    request = EventRequest(
        NOW,
        NOW + timedelta(hours=1),
        TargetSpec(Quantity.REDUCTION_FRACTION, 0.4),
        EventKind.DRILL,
    )
    event = GridEvent(
        event_id="utility.dr-1",
        feed_id="utility",
        programme_id="emergency",
        source_id="dr-1",
        revision=2,
        request=request,
        state=EventState.RESTORED,
        reason="LimitsRestored",
        received_at=NOW,
        state_since=NOW,
        clocks=Clocks(1000.0),
    )
    return FeedReport(event, status, NOW + timedelta(hours=1), delivered_watts)


class Receiver:
    """Stands for the sender's own server."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.answers: list[int] = []
        self.got: list[tuple[dict[str, str], bytes]] = []

    def exchange(
        self, method: str, url: str, *, headers: dict[str, str], body: bytes, **_: object
    ) -> Answer:
        assert (method, url) == ("POST", URL)
        self.got.append((headers, body))
        self.clock.advance(400)  # so late that the first signature would be stale
        return Answer(self.answers.pop(0) if self.answers else 204, {}, b"")


@pytest.fixture
def receiver(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver(clock)
    monkeypatch.setattr(tell, "exchange", made.exchange)
    stamina.set_testing(True, attempts=5)
    yield made
    stamina.set_testing(False)


def test_the_sender_learns_what_became_of_its_event(receiver: Receiver, clock: ManualClock) -> None:
    StatusCaller(URL, SECRET, clock).tell(report("completed", 4200.0))
    ((headers, body),) = receiver.got
    assert json.loads(body) == {
        "event_id": "utility.dr-1",
        "id": "dr-1",
        "revision": 2,
        "kind": "drill",
        "status": "completed",
        "at": "2026-11-30T15:00:00Z",
        "delivered_kw": 4.2,
    }
    stamp, signature = headers[TIMESTAMP_HEADER], headers[SIGNATURE_HEADER]
    assert verify([SECRET], stamp, body, signature, NOW.timestamp())


def test_each_attempt_is_signed_anew(receiver: Receiver, clock: ManualClock) -> None:
    receiver.answers = [503, 429]
    StatusCaller(URL, SECRET, clock).tell(report("active"))
    stamps = [int(headers[TIMESTAMP_HEADER]) for headers, _ in receiver.got]
    assert stamps == [int(NOW.timestamp()) + late for late in (0, 400, 800)]


def test_a_refusal_is_final_and_an_absence_ends_with_the_deadline(
    receiver: Receiver, clock: ManualClock
) -> None:
    receiver.answers = [404]
    with pytest.raises(Refused) as refused:
        StatusCaller(URL, SECRET, clock).tell(report("active"))
    assert refused.value.code == "tell-refused"
    assert len(receiver.got) == 1
    receiver.answers = [302]  # not followed: it could lead anywhere
    with pytest.raises(Refused):
        StatusCaller(URL, SECRET, clock).tell(report("active"))
    receiver.answers = [500] * 9
    with pytest.raises(Unavailable) as away:
        StatusCaller(URL, SECRET, clock).tell(report("active"))
    assert away.value.code == "tell-unreachable"


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://utility.example/status", True),
        ("http://127.0.0.1:8080/status", True),
        ("http://localhost/status", True),
        ("http://[::1]:8080/", True),
        ("http://utility.example/status", False),
        ("http://127.0.0.1.utility.example/", False),
        ("http://localhost.utility.example/", False),
        ("http://localhost@utility.example/", False),
        ("ftp://127.0.0.1/", False),
        ("file:///etc/passwd", False),
        ("https://", False),
        ("http://[::1", False),
        ("", False),
    ],
)
def test_statuses_do_not_cross_an_open_network_in_the_clear(url: str, good: bool) -> None:
    if good:
        check_status_url(url)
        return
    with pytest.raises(ConfigError) as insecure:
        check_status_url(url)
    assert insecure.value.code == "status-url-insecure"


def test_a_webhook_tells_only_where_it_was_given_a_url(
    opened: Callable[..., Any], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UTILITY_SECRET", SECRET.decode())
    silent = opened("webhook", secrets=["env:UTILITY_SECRET"])
    assert not silent.can_tell()
    silent.tell(report("active"))
    assert receiver.got == []
    speaking = opened("webhook", secrets=["env:UTILITY_SECRET"], status_url=URL)
    assert speaking.can_tell()
    speaking.tell(report("active"))
    assert len(receiver.got) == 1


class Blocked:
    """A feed that never gets to tell anything, for filling its queue."""

    def __init__(self) -> None:
        self.told: list[FeedReport] = []

    def can_tell(self) -> bool:
        return True

    def tell(self, told: FeedReport) -> None:
        self.told.append(told)


def test_when_too_many_wait_the_oldest_is_given_up_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[tuple[str, str]] = []

    def failure(given_up: FeedReport, error: GridawareError) -> None:
        failed.append((given_up.status, error.code))

    monkeypatch.setattr(delivery.threading.Thread, "start", lambda self: None)
    queue = DeliveryQueue(Blocked().tell, failure, at_most=2, name="tell")
    for number in range(4):
        queue.put(report(f"status-{number}"))
    assert failed == [("status-0", "tell-overflow"), ("status-1", "tell-overflow")]
    queue.close()
    queue.put(report("late"))
    assert len(failed) == 2
