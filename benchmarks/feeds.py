"""From a message of the grid to an event in control, feed by feed, and 200 feeds at a time.

``python -m benchmarks.feeds -o json``

A real controller (``gridaware serve``, ledger on, every signal durable) is registered with one feed
of each kind, and each grid side (the conformance kit's servers, or those of others: an MQTT broker,
a DNP3 master) says one thing after another. *published* is the grid side's own monotonic time just
before it sends; for a poll it is when the server has it, so ``openadr3_poll`` holds the wait for
the next poll, which the period bounds. *event* is when control's machine took the signal in, by the
moment in its ledger: the same clock of the same machine. An OpenADR 3 server lists ten events; a
poll that is woken asks for the whole list, reads it, and remembers it on the disk before it acts.

``tick_lag_200_feeds_ms`` is how late control's loop woke while ``--feeds`` OpenADR 3 feeds polled
every 5 s and one signal a second was pushed, beside its lag with none of them; the servers share
the machine. ``openadr3_parse_52_events_ms`` reads a page of 52 events (39 kB) by itself.
"""

import argparse
import gc
import json
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import requests

from benchmarks.feed_sides import CLIENT, SECRETS, SIDES, Place, Published, Side
from benchmarks.program import arguments, quantiles_ms, report
from gridaware.client import Client
from gridaware.clock import SystemClock
from gridaware.domain.errors import Unavailable
from gridaware.feeds.parsing import parse_file
from gridaware.sim.cluster import SiteOptions, VirtualSite
from gridaware.sim.grid import send_signed
from gridaware.sim.grid.vtn3 import Vtn
from gridaware.store.reader import StoreReader
from gridaware.wiring.ask_agent import ask_agent
from gridaware.wiring.config import load_settings

CLOCK = SystemClock()
PATIENCE_SECONDS = 30.0
SETTLE_SECONDS = 1.0
APART_SECONDS = 0.25
"""Between messages: a feed that is woken more often than five times a second is slowed down."""
PAGE_EVENTS = 52
PARSES = 50
POLL_SECONDS = 5.0
LAG_SECONDS = 30.0
LAG_SAMPLE_SECONDS = 0.1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print one JSON object."""
    parser = arguments("feeds", __doc__)
    parser.add_argument("--messages", type=int, default=50, help="of each feed that is pushed")
    parser.add_argument(
        "--polls", type=int, default=10, help="messages of each feed that is polled"
    )
    parser.add_argument("--feeds", type=int, default=200, help="at a time, for the lag")
    parser.add_argument("--only", choices=sorted(SIDES), action="append", help="this feed alone")
    return report(measure, parser.parse_args(argv))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Build the site, measure each feed, and take it all down again."""
    figures: dict[str, Any] = {
        "seed": options.seed,
        "openadr3_parse_52_events_ms": quantiles_ms(_parses()),
    }
    site = VirtualSite(SiteOptions(nodes=1, gpus_per_node=1, serve_environment=SECRETS))
    try:
        site.start_plant()
        site.configure()
        site.start_serve()
        signals_url = site.signals_url.rpartition("/")[0]
        _until(lambda: _healthy(signals_url), "control to hear signals")
        client = Client(site.web_url, site.api_key)
        reader = StoreReader(load_settings(site.settings_file).store_url)
        heard = Heard(reader)
        try:
            for key in options.only or SIDES:
                count = options.polls if key.endswith("_poll") else options.messages
                figures[key] = _feed(client, heard, key, SIDES[key](), signals_url, count)
        finally:
            reader.close()
        if not options.only:
            figures |= _lag(site, client, options.feeds)
    finally:
        site.end()
    return figures


class Heard:
    """Reads control's ledger on from where it was."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._seq = 1
        self._signals: list[dict[str, Any]] = []

    def when(self, feed_id: str, published: Published) -> float:
        """When control's machine took a message in, monotonic seconds."""
        found: list[float] = []

        def look() -> bool:
            self._read_on()
            for each in self._signals:
                signal = each["value"]["signal"]
                told = f"{signal['source_id']} {signal['raw']}"
                if signal["feed_id"] == feed_id and published.names in told:
                    found.append(each["moment"]["seconds"])
            self._signals.clear()
            return bool(found)

        _until(look, f"{published.names} of {feed_id}")
        return found[0]

    def _read_on(self) -> None:
        while entries := self._reader.ledger(self._seq, ("stimulus",), limit=500):
            self._seq = entries[-1].seq + 1
            bodies = (json.loads(entry.body) for entry in entries)
            self._signals += [body for body in bodies if body["type"] == "SignalReceived"]


def _feed(
    client: Client, heard: Heard, key: str, side: Side, signals_url: str, count: int
) -> dict[str, Any]:
    feed_id = f"bench-{key.replace('_', '-')}"
    lags = []
    try:
        place = Place(signals_url, _free_port())
        settings = dict(side.settings(place, feed_id))
        client.register_feed(
            feed_id, kind=side.kind, programme="demand-response", settings=settings
        )
        if side.kind not in {"webhook", "mapped", "dnp3"}:  # those hear nothing before the first
            _until(lambda: _is_ok(client, feed_id), f"{feed_id} to be ready")
        time.sleep(SETTLE_SECONDS)
        for number in range(count):
            published = side.publish(number)
            lags.append(heard.when(feed_id, published) - published.seconds())
            sys.stderr.write(f"{key} {number + 1}: {1e3 * lags[-1]:.1f} ms\n")
            time.sleep(APART_SECONDS)
        client.remove_feed(feed_id)
    finally:
        side.close()
    name = "received_to_event_ms" if key.endswith("_poll") else "published_to_event_ms"
    return {"messages": len(lags), name: quantiles_ms(lags)}


def _is_ok(client: Client, feed_id: str) -> bool:
    return bool(client.test_feed(feed_id)["health"]["state"] == "ok")


def _lag(site: VirtualSite, client: Client, feeds: int) -> dict[str, Any]:
    """Control's lag with no feeds that poll, and with many."""
    control = load_settings(site.settings_file).state_dir / "control.sock"
    alone = _lags(control, lambda _: None)
    secret = site.webhook_secret.encode()
    with Vtn(clients={CLIENT: SECRETS["BENCH_VTN_SECRET"]}) as vtn, requests.Session() as session:
        program = vtn.add_program("bench")
        start = (CLOCK.wall() + timedelta(days=2)).isoformat().replace("+00:00", "Z")
        payload = {"type": "SIMPLE", "values": [1]}
        period = {"start": start, "duration": "PT1H"}
        event = {"intervalPeriod": period, "intervals": [{"id": 0, "payloads": [payload]}]}
        vtn.add_event(program, event)
        for number in range(feeds):
            settings = {
                "vtn_url": vtn.url,
                "client_id": CLIENT,
                "client_secret": "env:BENCH_VTN_SECRET",
                "poll_seconds": POLL_SECONDS,
            }
            client.register_feed(
                f"many-{number}",
                kind="openadr3",
                programme="demand-response",
                settings=settings,
            )
        time.sleep(2 * POLL_SECONDS)
        asked = len(vtn.asked)

        def push(second: int) -> None:
            start = (CLOCK.wall() + timedelta(days=3)).isoformat()
            body = {"id": f"lag-{second}", "start": start, "duration": "PT1H"}
            target = {"target": {"reduce_percent": 10}}
            send_signed(site.signals_url, secret, body | target, CLOCK, session=session)

        loaded = _lags(control, push)
        asked = len(vtn.asked) - asked
        polled = {path.partition("?")[0] for _, path in vtn.asked}
        sys.stderr.write(f"{asked} requests while the lag was measured: {sorted(polled)[:8]}\n")
    return {
        "feeds": feeds,
        "vtn_requests_per_second": round(asked / LAG_SECONDS, 1),
        "tick_lag_no_feeds_ms": quantiles_ms(alone),
        "tick_lag_200_feeds_ms": quantiles_ms(loaded),
    }


def _lags(control: Path, push: Callable[[int], None]) -> list[float]:
    """How late the loop's latest tick was, looked at ten times a second."""
    lags = []
    for sample in range(round(LAG_SECONDS / LAG_SAMPLE_SECONDS)):
        if sample % 10 == 0:
            push(sample // 10)
        lags.append(float(ask_agent(control, "ping")["tick_lag_seconds"]))
        time.sleep(LAG_SAMPLE_SECONDS)
    return lags


def _parses() -> list[float]:
    """Seconds that a page of 52 events takes to be read, each time."""
    now = datetime(2026, 11, 30, 14, tzinfo=UTC)
    page = json.dumps([_page_event(number, now) for number in range(PAGE_EVENTS)]).encode()
    parse_file("openadr3", page, now, None)  # what is imported then is no part of it
    gc.freeze()  # as control does: what it holds is not searched for garbage while it works
    took = []
    for _ in range(PARSES):
        began = CLOCK.monotonic_seconds()
        parsed = parse_file("openadr3", page, now, None)
        took.append(CLOCK.monotonic_seconds() - began)
        assert len(parsed.events) == 4 * PAGE_EVENTS
        assert not parsed.refused
    return took


def _page_event(number: int, now: datetime) -> dict[str, Any]:
    start = (now + timedelta(hours=number)).isoformat().replace("+00:00", "Z")
    payloads = [{"type": "SIMPLE", "values": [number % 4]}, {"type": "PRICE", "values": [0.17]}]
    return {
        "id": f"event-{number}",
        "createdDateTime": "2026-11-30T13:59:00Z",
        "modificationDateTime": "2026-11-30T13:59:00Z",
        "objectType": "EVENT",
        "programID": "program-0",
        "eventName": f"page event {number}",
        "priority": number % 3,
        "targets": ["north", f"site-{number}"],
        "payloadDescriptors": [
            {"objectType": "EVENT_PAYLOAD_DESCRIPTOR", "payloadType": "SIMPLE"},
            {"objectType": "EVENT_PAYLOAD_DESCRIPTOR", "payloadType": "PRICE", "units": "KWH",
             "currency": "USD"},
        ],
        "intervalPeriod": {"start": start, "duration": "PT30M", "randomizeStart": "PT0S"},
        "intervals": [{"id": i, "payloads": payloads} for i in range(2)],
    }  # fmt: skip


def _healthy(signals_url: str) -> bool:
    base = signals_url.removesuffix("/api/v1/signals")
    try:
        return requests.get(f"{base}/healthz", timeout=1).ok
    except requests.RequestException:
        return False


def _until(ready: Callable[[], bool], what: str) -> None:
    end = CLOCK.monotonic_seconds() + PATIENCE_SECONDS
    while True:
        with suppress(Unavailable):
            if ready():
                return
        if CLOCK.monotonic_seconds() > end:
            raise TimeoutError(f"waited for {what} in vain")
        time.sleep(0.002)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
