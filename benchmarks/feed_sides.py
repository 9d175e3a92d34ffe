"""The grid's side of each feed in ``benchmarks.feeds``: settings, and one message at a time."""

import hashlib
import hmac
import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import requests

from gridaware.clock import SystemClock
from gridaware.feeds.ieee2030.identity import lfdi_of_file
from gridaware.sim.grid import send_signed
from gridaware.sim.grid.broker import Broker, Sender
from gridaware.sim.grid.der_server import DerServer, TlsFiles
from gridaware.sim.grid.dnp3_master import Dnp3Master
from gridaware.sim.grid.dsx import Isv, load_target
from gridaware.sim.grid.openleadr_vtn import OpenleadrVtn
from gridaware.sim.grid.vtn3 import Vtn
from gridaware.wiring.identity import issue, make_ca

__all__ = ["SECRETS", "SIDES", "Place", "Published", "Side"]

CLOCK = SystemClock()
CLIENT = "ven-client"
ISV = Isv("acme-energy", CLOCK)
SECRETS = {
    "BENCH_VTN_SECRET": "a-secret-of-the-ven",
    "BENCH_SENDER_SECRET": "a-secret-of-the-senders",
    "BENCH_DSX_KEY": ISV.public_pem,
}
"""Environment of control."""
LISTED = 10
POLL_SECONDS = 5.0
SUBSCRIBED_SECONDS = 10.0
LONG_SECONDS = 3600.0
"""Poll of a feed whose pushes are measured: no poll can be taken for a push."""


@dataclass(frozen=True)
class Place:
    """Where control hears."""

    signals_url: str
    """Up to the feed's id."""
    free_port: int


@dataclass(frozen=True)
class Published:
    """One message."""

    seconds: Callable[[], float]
    """When the grid's side sent it, monotonic; known once it is heard."""
    names: str
    """Part of the source id, or of the raw message, that tells it from others."""


class Side(Protocol):
    """One kind of feed with its grid side."""

    kind: str

    def settings(self, place: Place, feed_id: str) -> Mapping[str, Any]:
        """Of the feed."""
        ...

    def publish(self, number: int) -> Published:
        """Say the next thing."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


def _at(seconds: float) -> Callable[[], float]:
    return lambda: seconds


def _window(number: int) -> tuple[str, str]:
    """An hour that lies ahead: nothing acts, nothing is pushed together."""
    start = (CLOCK.wall() + timedelta(days=1, hours=number)).replace(microsecond=0)
    end = start + timedelta(minutes=30)
    return tuple(t.isoformat().replace("+00:00", "Z") for t in (start, end))  # type: ignore[return-value]


class Webhook:
    """A sender of signed event requests."""

    kind = "webhook"

    def settings(self, place: Place, feed_id: str) -> Mapping[str, Any]:
        self._url = f"{place.signals_url}/{feed_id}"
        self._session = requests.Session()
        return {"secrets": ["env:BENCH_SENDER_SECRET"], "rate_per_second": 1000}

    def publish(self, number: int) -> Published:
        start, end = _window(number)
        name = f"ev-{number}"
        body = {"id": name, "start": start, "end": end, "target": {"reduce_percent": 10}}
        secret = SECRETS["BENCH_SENDER_SECRET"].encode()
        sent = send_signed(self._url, secret, body, CLOCK, session=self._session)
        return Published(_at(sent.sent_seconds), name)

    def close(self) -> None:
        self._session.close()


class Mapped:
    """An aggregator with a map of its own."""

    kind = "mapped"

    def settings(self, place: Place, feed_id: str) -> Mapping[str, Any]:
        self._url = f"{place.signals_url}/{feed_id}"
        self._session = requests.Session()
        fields = {
            "id": ["id"],
            "start": "from",
            "end": "until",
            "target": {"path": "kw", "unit": "kW", "means": "reduce"},
            "auth": {"scheme": "hmac", "header": "x-signature"},
        }
        return {"map": fields, "secrets": ["env:BENCH_SENDER_SECRET"], "rate_per_second": 1000}

    def publish(self, number: int) -> Published:
        start, end = _window(number)
        name = f"ev-{number}"
        body = json.dumps({"id": name, "from": start, "until": end, "kw": 1}).encode()
        key = SECRETS["BENCH_SENDER_SECRET"].encode()
        headers = {"x-signature": hmac.new(key, body, hashlib.sha256).hexdigest()}
        sent = CLOCK.monotonic_seconds()
        self._session.post(self._url, data=body, headers=headers, timeout=10).raise_for_status()
        return Published(_at(sent), name)

    def close(self) -> None:
        self._session.close()


class OpenAdr3:
    """A VTN; ``how`` is what brings the news: webhook, mqtt or poll.

    Its list holds ``LISTED`` events, as an operator's does: news is a new one, then a changed one.
    """

    kind = "openadr3"

    def __init__(self, how: str) -> None:
        self._how = how
        self._broker = Broker() if how == "mqtt" else None
        self._sender = None if self._broker is None else Sender(self._broker.url)
        self._vtn = Vtn(
            clients={CLIENT: SECRETS["BENCH_VTN_SECRET"]},
            mqtt=None if self._sender is None else self._sender.publish,
            mqtt_uri="" if self._broker is None else self._broker.url,
        )
        self._program = self._vtn.add_program("bench")
        self._ids: list[str] = []

    def settings(self, place: Place, feed_id: str) -> Mapping[str, Any]:
        given: dict[str, Any] = {
            "vtn_url": self._vtn.url,
            "client_id": CLIENT,
            "client_secret": "env:BENCH_VTN_SECRET",
            "poll_seconds": POLL_SECONDS if self._how == "poll" else LONG_SECONDS,
        }
        if self._how == "webhook":
            given["callback_url"] = f"{place.signals_url}/{feed_id}"
        if self._how == "mqtt":
            given["mqtt"] = True
        return given

    def publish(self, number: int) -> Published:
        start, _ = _window(number)
        interval = {"id": 0, "payloads": [{"type": "SIMPLE", "values": [1]}]}
        period = {"start": start, "duration": "PT30M"}
        body = {"intervalPeriod": period, "intervals": [interval]}
        if len(self._ids) < LISTED:
            self._ids.append(self._vtn.add_event(self._program, body)["id"])
            name = self._ids[-1]
        else:
            name = self._ids[number % LISTED]
            self._vtn.change_event(name, body)
        published = CLOCK.monotonic_seconds()
        if self._how == "poll":
            return Published(_at(published), start)

        def pushed() -> float:
            sent = [d.sent_seconds for d in self._vtn.pushes.deliveries if d.object_id == name]
            return sent[-1] if sent else published

        return Published(pushed, start)

    def close(self) -> None:
        self._vtn.close()
        if self._sender is not None and self._broker is not None:
            self._sender.close()
            self._broker.close()


class OpenAdr2b:
    """openleadr's own VTN, which wants to be polled every five seconds."""

    kind = "openadr2b"

    def __init__(self) -> None:
        self._vtn = OpenleadrVtn(poll_seconds=POLL_SECONDS)

    def settings(self, place: Place, feed_id: str) -> Mapping[str, Any]:
        del place, feed_id
        return {"vtn_url": self._vtn.url, "poll_seconds": POLL_SECONDS}

    def publish(self, number: int) -> Published:
        start = datetime.fromisoformat(_window(number)[0])
        event_id = self._vtn.add_event(start, timedelta(minutes=30), 1)
        return Published(_at(CLOCK.monotonic_seconds()), event_id)

    def close(self) -> None:
        self._vtn.close()


class PlainMqtt:
    """A sender of limits on a topic."""

    kind = "mqtt"

    def __init__(self) -> None:
        self._broker = Broker()
        self._sender = Sender(self._broker.url)

    def settings(self, place: Place, feed_id: str) -> Mapping[str, Any]:
        del place, feed_id
        return {"url": self._broker.url, "topic": "grid/limit"}

    def publish(self, number: int) -> Published:
        start, end = _window(number)
        said = {"sequence": number + 1, "start": start, "valid_until": end, "reduce_percent": 10}
        sent = CLOCK.monotonic_seconds()
        self._sender.publish("grid/limit", json.dumps(said).encode())
        return Published(_at(sent), f'"sequence": {number + 1},')

    def close(self) -> None:
        self._sender.close()
        self._broker.close()


class DsxFlex:
    """A sender of signed load targets; they are signed before the time is taken."""

    kind = "dsx"

    def __init__(self) -> None:
        self._broker = Broker()
        self._sender = Sender(self._broker.url)

    def settings(self, place: Place, feed_id: str) -> Mapping[str, Any]:
        del place, feed_id
        return {
            "url": self._broker.url,
            "isv_id": ISV.isv_id,
            "agent_id": "bench",
            "feeds": {"main-a": {"default_kw": 1e6}},
            "keys": {ISV.kid: "env:BENCH_DSX_KEY"},
        }

    def publish(self, number: int) -> Published:
        start, end = _window(number)
        name = str(uuid.uuid4())
        message = ISV.message([load_target(500, "megawatt", start=start, end=end)], id=name)
        sent = CLOCK.monotonic_seconds()
        self._sender.publish(ISV.topic, message)
        return Published(_at(sent), name)

    def close(self) -> None:
        self._sender.close()
        self._broker.close()


class Dnp3:
    """A control centre's master. The limit lies above what the site draws: nothing is capped."""

    kind = "dnp3"

    def settings(self, place: Place, feed_id: str) -> Mapping[str, Any]:
        del feed_id
        self._master = Dnp3Master(place.free_port)
        return {"port": place.free_port, "neutral_kw": 1e7}

    def publish(self, number: int) -> Published:
        counts = 1_000_000 + number
        # Connecting, and what a library takes to build a request, are no part of the feed's answer.
        sent: list[float] = []
        status = self._master.write_limit(counts, sent=sent.append)
        if status != "SUCCESS":
            raise RuntimeError(f"the outstation answered {status}")
        return Published(_at(sent[0]), f"AO={float(counts)!r}")

    def close(self) -> None:
        """There is nothing to end."""


class Ieee2030:
    """A 2030.5 server over mutual TLS that lists ``LISTED`` controls, and notifies of changes."""

    kind = "ieee2030"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gw-bench-"))
        make_ca(self._folder, CLOCK)
        self._device = issue(self._folder, "device", CLOCK)
        own = issue(self._folder, "server", CLOCK, "controller")
        self._server = DerServer(tls=TlsFiles(own.certificate, own.key, own.ca))
        self._server.add_device(lfdi_of_file(str(self._device.certificate)))
        self._program = self._server.add_program()

    def settings(self, place: Place, feed_id: str) -> Mapping[str, Any]:
        return {
            "server_url": self._server.url,
            "certificate_file": str(self._device.certificate),
            "key_file": str(self._device.key),
            "ca_file": str(self._device.ca),
            "callback_url": f"{place.signals_url}/{feed_id}",
            "poll_seconds": LONG_SECONDS,
        }

    def publish(self, number: int) -> Published:
        waited = CLOCK.monotonic_seconds() + SUBSCRIBED_SECONDS
        while not self._server.subscriptions and CLOCK.monotonic_seconds() < waited:
            time.sleep(0.01)
        start = int(datetime.fromisoformat(_window(number)[0]).timestamp())
        mrid = f"A{number % LISTED}"
        if number < LISTED:
            self._server.add_control(self._program, mrid, start=start, seconds=1800, watts=1e5)
        else:
            self._server.change_control(mrid, start=start)
        sent = CLOCK.monotonic_seconds()
        self._server.notify(f"/derp/{self._program}/derc")
        return Published(_at(sent), f"<start>{start}</start>")

    def close(self) -> None:
        self._server.close()
        shutil.rmtree(self._folder)


SIDES: Mapping[str, Callable[[], Side]] = {
    "webhook": Webhook,
    "mapped_webhook": Mapped,
    "openadr3_webhook": lambda: OpenAdr3("webhook"),
    "openadr3_mqtt": lambda: OpenAdr3("mqtt"),
    "openadr3_poll": lambda: OpenAdr3("poll"),
    "openadr2b_poll": OpenAdr2b,
    "mqtt": PlainMqtt,
    "dsx_mqtt": DsxFlex,
    "dnp3": Dnp3,
    "ieee2030_notified": Ieee2030,
}
"""By the key of their figures."""
