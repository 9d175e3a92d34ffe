"""The kind ``dsx`` through a broker that is not ours: signed, told back, wrong in every way."""

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from gridaware.clock import SystemClock
from gridaware.control.ports import FeedTelemetry
from gridaware.domain.advisory import Advisory
from gridaware.domain.errors import Unavailable
from gridaware.domain.event import Clocks, EventState, GridEvent
from gridaware.domain.fixes import FIXES
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds.dsx.jws import VerifyKey
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.runner import RunningFeed
from gridaware.sim.grid.broker import Broker, Sender
from gridaware.sim.grid.dsx import Isv, load_target, private_pem, public_pem, read_status

PATIENCE_SECONDS = 10.0
CLOCK = SystemClock()
OURS = ec.generate_private_key(ec.SECP256R1())
OUR_KEYS = {"site-7": VerifyKey.from_pem(public_pem(OURS).encode(), "ours")}
STATUS = "grid/v1/poweragent/site-7/powerstate/status"
ENFORCEMENT = "grid/v1/infra/ima-prod/powerbreach/enforcement"


class Site:
    """One feed at work on a broker, with what control would get."""

    def __init__(self, broker: Broker, folder: Path, isv: Isv, **otherwise: Any) -> None:
        self.broker = broker
        self.signals: list[Signal] = []
        self.refused: list[str] = []
        self.came = threading.Semaphore(0)
        settings = {
            "url": broker.url, "username": "site-7", "isv_id": "acme-energy", "agent_id": "site-7",
            "feeds": {"main-a": {"default_kw": 36000.0}},
            "keys": {isv.kid: f"file:{self._file(folder, 'isv', isv.public_pem)}"},
            "signing_key": f"file:{self._file(folder, 'ours', private_pem(OURS).decode())}",
            "signing_kid": "site-7",
            **otherwise,
        }  # fmt: skip
        spec = FeedSpec("acme", "dsx", "limit", settings_json=json.dumps(settings))
        memory = FeedMemory(folder / "acme.json")
        self.running = RunningFeed(spec, CLOCK.wall(), CLOCK, self._refused, memory=memory)
        self.thread = threading.Thread(target=self.running.listen, args=(self._emit,), daemon=True)
        self.thread.start()
        for _ in range(1000):  # until it is subscribed
            if self.running.health.now().state == "ok":
                break
            threading.Event().wait(0.01)

    @property
    def feed(self) -> Any:
        return self.running.feed

    def _file(self, folder: Path, name: str, pem: str) -> Path:
        path = folder / f"{name}.pem"
        path.write_text(pem)
        path.chmod(0o600)
        return path

    def _emit(self, signal: Signal) -> None:
        self.signals.append(signal)
        self.came.release()

    def _refused(self, _feed: str, code: str, _message: str, _raw: str) -> None:
        self.refused.append(code)
        self.came.release()

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.came.acquire(timeout=PATIENCE_SECONDS)

    def sample(self, watts: float, *events: GridEvent) -> None:
        at, seconds = CLOCK.wall(), CLOCK.monotonic_seconds()
        self.feed.report(FeedTelemetry(at, seconds, watts, "good", None, True, events))

    def confirmed(self) -> None:
        """Wait until a status is due: the signal is heard a moment before."""
        for _ in range(1000):
            if self.feed._statuses._due:
                return
            threading.Event().wait(0.01)

    def end(self) -> None:
        self.running.close()
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()
        self.broker.wait_left("gridaware-acme")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(anonymous=False) as made:  # it keeps the sessions of those who give a name
        yield made


@pytest.fixture
def sender(broker: Broker) -> Iterator[Sender]:
    with Sender(broker.url, username="acme") as made:
        yield made


@pytest.fixture
def isv() -> Isv:
    return Isv("acme-energy", CLOCK)


@contextmanager
def site_at(broker: Broker, folder: Path, isv: Isv, **otherwise: Any) -> Iterator[Site]:
    site = Site(broker, folder, isv, **otherwise)
    try:
        yield site
    finally:
        site.end()


def in_hours(hours: float) -> str:
    when = CLOCK.wall().replace(microsecond=0) + timedelta(hours=hours)
    return when.isoformat().replace("+00:00", "Z")


def test_a_signed_target_becomes_a_signal_and_its_sender_reads_the_status(
    broker: Broker, sender: Sender, isv: Isv, tmp_path: Path
) -> None:
    sender.subscribe(STATUS)
    with site_at(broker, tmp_path, isv) as site:
        correlation = str(uuid.uuid4())
        target = load_target(20, "megawatt", end=in_hours(2), tags=["main-a"])
        sender.publish(isv.topic, isv.message([target], correlationid=correlation))
        site.wait()
        (signal,) = site.signals
        assert signal.request is not None
        assert signal.request.target == TargetSpec(Quantity.LIMIT_WATTS, 20e6)
        assert signal.received_at - signal.request.start < timedelta(seconds=30)
        assert json.loads(signal.raw)["correlationid"] == correlation
        site.confirmed()
        now = CLOCK.wall()
        event = GridEvent(
            f"acme.{signal.source_id}", "acme", "limit", signal.source_id, 0, signal.request,
            EventState.RAMPING_DOWN, "", now, now, Clocks(0.0), started_at=now,
        )  # fmt: skip
        site.sample(30e6, event)
        statuses = [read_status(said, OUR_KEYS) for _, said in sender.wait_for(2)]
    assert [data["feeds"]["main-a"]["event"] for _, data in statuses] == [
        "target_set", "start_ramp_down",
    ]  # fmt: skip
    envelope, data = statuses[0]
    assert envelope["correlationid"] == correlation
    state = data["feeds"]["main-a"]
    assert state["targets"][0]["correlation_id"] == correlation
    assert state["targets"][0]["load_constraint"] == {"value": 20.0, "unit": "megawatt"}
    assert state["targets"][0]["active"] is True
    assert (state["in_flight"], state["compliant"]) == (True, False)
    assert state["calculated_load"] == {"value": 30000.0, "unit": "kilowatt"}
    assert site.refused == []


def test_whatever_is_wrong_is_refused_with_a_code_and_moves_nothing(
    broker: Broker, sender: Sender, isv: Isv, tmp_path: Path
) -> None:
    targets = [load_target(20, "megawatt", end=in_hours(2))]
    thief = Isv("acme-energy", CLOCK, kid=isv.kid)
    other = Isv("other-energy", CLOCK, kid=isv.kid, key=isv._key)
    good = isv.message(targets)
    copied = json.loads(good)["data"]
    messages = [
        (thief.message(targets), "jws-signature"),
        (Isv("acme-energy", CLOCK, kid="isv-9").message(targets), "jws-key-unknown"),
        (other.message(targets), "dsx-source"),
        (isv.message(targets, traceparent=None), "dsx-traceparent"),
        (isv.message(targets, data={"targets": targets}), "dsx-unsigned"),
        (isv.message(targets, time=in_hours(1)), "dsx-future"),
        (isv.message(targets, time=in_hours(-25)), "dsx-stale"),
        (isv.message([load_target(1, start=in_hours(-2), end=in_hours(-1))]), "dsx-over"),
        (isv.message(targets, tracestate="x" * 70_000), "event-too-large"),
        (isv.event([]), "event-not-object"),
        (isv.message(targets, type="grid.powerstate.status.v1"), "dsx-type"),
    ]
    with site_at(broker, tmp_path, isv) as site:
        for message, code in messages:
            sender.publish(isv.topic, message)
            site.wait()
            assert site.refused[-1] == code
            assert code in FIXES
        assert site.signals == []
        sender.publish(other.topic, other.message(targets))  # a topic that is nobody's of ours
        sender.publish(isv.topic, good)
        site.wait()
        sender.publish(isv.topic, good)  # once more: nothing
        sender.publish(isv.topic, isv.message(targets, data=copied))  # under another id: a copy
        site.wait()
        assert site.refused[-1] == "dsx-replayed"
        assert len(site.signals) == 1


def test_a_restart_knows_what_was_said_and_a_retained_message_is_said_once(
    broker: Broker, sender: Sender, isv: Isv, tmp_path: Path
) -> None:
    message = isv.message([load_target(20, "megawatt")])
    sender.publish(isv.topic, message, retain=True)
    with site_at(broker, tmp_path, isv) as first:
        first.wait()
    with site_at(broker, tmp_path, isv) as again:
        sender.publish(
            isv.topic, isv.message([load_target(None)], data=json.loads(message)["data"])
        )
        again.wait()
        assert again.refused == ["dsx-replayed"]
        sender.publish(isv.topic, isv.message([load_target(15, "megawatt")]))
        again.wait(2)
    heard = first.signals + again.signals
    told = [(s.revision, s.request and s.request.target.value, s.request and s.request.end) for s in
            heard]  # fmt: skip
    assert told[:2] == [(0, 20e6, None), (0, 15e6, None)]
    assert told[2][:2] == (1, 20e6)
    ended = heard[2].request
    assert ended is not None
    assert heard[2].source_id == heard[0].source_id
    begun = heard[1].request
    assert begun is not None
    assert ended.end == begun.start


def test_what_is_said_while_the_site_is_away_comes_when_it_is_back(
    broker: Broker, sender: Sender, isv: Isv, tmp_path: Path
) -> None:
    with site_at(broker, tmp_path, isv):
        pass
    sender.publish(isv.topic, isv.message([load_target(20, "megawatt")]))
    with site_at(broker, tmp_path, isv) as back:
        back.wait()
        assert [s.request and s.request.target.value for s in back.signals] == [20e6]


def test_what_others_tell_of_breaches_informs_if_it_is_signed_by_them(
    broker: Broker, sender: Sender, isv: Isv, tmp_path: Path
) -> None:
    infra = Isv("ima-prod", CLOCK, kid="ima-1")
    path = tmp_path / "ima.pem"
    path.write_text(infra.public_pem)
    path.chmod(0o600)
    sample = Path(__file__).parents[1] / "data" / "feeds" / "dsx" / "breach_enforcement.json"
    said = json.loads(sample.read_bytes())
    right = {"source": "//grid/v1/infra/ima-prod", "type": said["type"], "subject": "powerbreach"}
    otherwise = {"infra_ids": ["ima-prod"], "peer_keys": {"ima-1": f"file:{path}"}}
    with site_at(broker, tmp_path, isv, **otherwise) as site:
        sender.publish(ENFORCEMENT, infra.event(said["data"]))
        sender.publish(ENFORCEMENT, isv.event(said["data"], **right))
        sender.publish(
            isv.topic, infra.message([load_target(1)], source="//grid/v1/isv/acme-energy")
        )
        site.wait(3)
        assert site.refused == ["dsx-source", "jws-key-unknown", "jws-key-unknown"]
        sender.publish(ENFORCEMENT, infra.event(said["data"], **right))
        for _ in range(1000):
            if site.running.advisories():
                break
            threading.Event().wait(0.01)
        (advisory,) = site.running.advisories()
    assert isinstance(advisory, Advisory)
    assert advisory.quantity == "power_breach_enforcement"
    assert "partial" in advisory.text
    assert site.signals == []


def test_a_broker_that_is_away_keeps_no_report_waiting(
    broker: Broker, isv: Isv, tmp_path: Path
) -> None:
    site = Site(broker, tmp_path, isv)
    broker.close()
    site.end()
    with pytest.raises(Unavailable) as caught:
        site.sample(30e6)
    assert caught.value.code == "mqtt-unreachable"
    site.sample(30e6)  # said once
