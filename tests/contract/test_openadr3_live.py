"""The OpenADR 3 client behind the real listener: woken by webhooks and by a broker."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import uvicorn

from gridaware.clock import SystemClock
from gridaware.control.ports import Receipt
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import Signal
from gridaware.feeds.health import FeedHealth
from gridaware.feeds.http_listener import build_app
from gridaware.feeds.runner import FeedRunner
from gridaware.sim.grid.broker import Broker, Sender
from gridaware.sim.grid.vtn3 import Quirk, Vtn

PATIENCE_SECONDS = 10.0
SECRET = "a-secret-of-the-ven"
BODY: dict[str, Any] = {
    "intervalPeriod": {"start": "0001-01-01", "duration": "P9999Y"},
    "intervals": [{"id": 0, "payloads": [{"type": "SIMPLE", "values": [2]}]}],
}


def until(condition: Callable[[], object]) -> None:
    for _ in range(int(PATIENCE_SECONDS / 0.01)):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not come about in time")


class Control:
    """A runner and its listener; what control would get."""

    def __init__(self, tmp_path: Path) -> None:
        self.signals: list[Signal] = []
        self.refused: list[str] = []
        self.runner = FeedRunner(
            SystemClock(),
            self.signals.append,
            lambda _feed, code, _message, _raw: self.refused.append(code),
            lambda *_: None,
            tmp_path,
        )

        async def accept(signal: Signal) -> Receipt:
            self.signals.append(signal)
            return Receipt(signal.source_id, signal.revision, "accepted")

        app = build_app(self.runner, accept, SystemClock())
        self.server = uvicorn.Server(
            uvicorn.Config(app, "127.0.0.1", 0, log_level="error", lifespan="off")
        )
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        until(lambda: self.server.started)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/api/v1/signals/grid"
        self.runner.start()

    def add(self, vtn: Vtn, **settings: object) -> None:
        given = {
            "vtn_url": vtn.url,
            "client_id": "ven-client",
            "client_secret": "env:VTN_SECRET",
            "poll_seconds": 3600.0,
            **settings,
        }
        spec = FeedSpec("grid", "openadr3", "emergency", settings_json=json.dumps(given))
        self.runner.add(spec, SystemClock().wall())
        until(lambda: self.health().last_good_at or self.health().failures)

    def health(self) -> FeedHealth:
        return self.runner.get("grid").health.now()

    def close(self) -> None:
        self.runner.stop()
        self.server.should_exit = True
        self.thread.join(PATIENCE_SECONDS)


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    monkeypatch.setenv("VTN_SECRET", SECRET)
    made = Control(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "quirks",
    [
        set(),
        {Quirk.DOUBLE_ENCODED, Quirk.SNAKE_CASE},
        {Quirk.ECHO_PATH},
        {Quirk.STORES_THEN_500},
    ],
    ids=["well-behaved", "ri-1-double-encoded-snake-case", "ri-3-echo-path", "ri-2-500"],
)
def test_a_webhook_wakes_a_poll_whatever_its_shape(control: Control, quirks: set[Quirk]) -> None:
    with Vtn(quirks=quirks) as vtn:
        control.add(vtn, callback_url=control.url)
        if Quirk.STORES_THEN_500 in quirks:
            vtn.quirks.clear()
            control.runner.get("grid").feed.poll()
        assert len(vtn.kept("subscriptions")) == 1
        event = vtn.add_event(vtn.add_program("dr"), BODY)
        until(lambda: control.signals)
        assert control.signals[0].source_id.startswith(event["id"])
        assert {each.status for each in vtn.pushes.deliveries} == {200}


def test_only_the_bearer_of_the_subscription_wakes_anything(control: Control) -> None:
    with Vtn() as vtn:
        control.add(vtn, callback_url=control.url)
        asked = len(vtn.asked)
        notice = {"objectType": "EVENT", "operation": "CREATE", "object": {"id": "1"}}
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic x"}):
            answer = requests.post(control.url, json=notice, headers=headers, timeout=5)
            assert (answer.status_code, answer.json()["code"]) == (401, "signature-bearer")
        time.sleep(0.3)
        assert len(vtn.asked) == asked


def test_a_challenge_is_echoed_and_nothing_else(control: Control) -> None:
    with Vtn() as vtn:
        control.add(vtn, callback_url=control.url)
        for path in ("", "/echo"):
            answer = requests.get(control.url + path, params={"echo": "a<b>"}, timeout=5)
            assert (answer.status_code, answer.text) == (200, "a<b>")
            assert answer.headers["content-type"].startswith("text/plain")
        for word in ("", "x" * 257, "a\nb"):
            answer = requests.get(control.url, params={"echo": word}, timeout=5)
            assert answer.json()["code"] == "echo-missing"


def test_a_feed_without_a_call_back_is_called_by_nobody(control: Control) -> None:
    with Vtn() as vtn:
        control.add(vtn)
        answer = requests.get(control.url, params={"echo": "word"}, timeout=5)
        assert answer.json()["code"] == "feed-not-pushed"
        assert vtn.kept("subscriptions") == []


@pytest.mark.slow
def test_ri_5_a_broker_wakes_a_poll_also_after_an_outage(control: Control) -> None:
    broker = Broker()
    sender = Sender(broker.url)
    with Vtn(mqtt=sender.publish, mqtt_uri=broker.url) as vtn:
        program = vtn.add_program("dr")
        control.add(vtn, mqtt=True)
        until(lambda: _asked(vtn, "/notifiers/mqtt/topics/vens/"))
        # An empty list takes one question: its first poll's, and that of whoever connects.
        until(lambda: _asked(vtn, "/events") >= 2)
        vtn.add_event(program, BODY)
        until(lambda: len(control.signals) == 1)
        broker.close()
        sender.close()
        vtn.pushes._publish = None
        vtn.add_event(program, BODY)
        time.sleep(0.5)
        assert len(control.signals) == 1
        with Broker(broker.port):
            until(lambda: len(control.signals) == 2)
        control.runner.remove("grid")


def _asked(vtn: Vtn, path: str) -> int:
    return sum(asked.startswith(path) for _, asked in vtn.asked)
