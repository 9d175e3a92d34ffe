"""The site as Prometheus reads it, made from the store at each scrape. Base units; no job ids."""

import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from starlette.responses import Response

import gridaware
from gridaware.domain.errors import GridawareError
from gridaware.service.context import Web
from gridaware.settlement.attribution import Line
from gridaware.settlement.record import BOUNDS_SECONDS, ResponseRecord
from gridaware.store.reader import StoreReader

__all__ = ["SiteCollector", "metrics_registry", "router"]

router = APIRouter(tags=["metrics"])

_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
_EVENTS_LOOKED_AT = 100
_REPORTS_AT_ONCE = 50
_OF_JOBS = {Line.JOB.value, Line.HELD_IDLE.value}
Json = Mapping[str, Any]


@router.get("/metrics", response_class=Response)
def metrics(request: Request) -> Response:
    """Everything that a dashboard or an alert needs, in Prometheus' text format."""
    registry: CollectorRegistry = request.app.state.registry
    return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")


def metrics_registry(web: Web) -> CollectorRegistry:
    """A registry of its own for each app, so that two in one process do not collide."""
    registry = CollectorRegistry()
    registry.register(SiteCollector(web))
    return registry


class SiteCollector(Collector):
    """Reads the store once for each scrape."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._lock = threading.Lock()
        self._counted_until = _BEGINNING
        self._joules: dict[tuple[str, str], float] = {}
        self._responses = _Responses()

    def describe(self) -> list[Metric]:
        """Nothing is promised beforehand: a scrape must not be needed to register."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every metric; those that need a store or a controller only where there is one."""
        build = GaugeMetricFamily("gridaware_build_info", "Version.", labels=["version"])
        build.add_metric([gridaware.__version__], 1)
        yield build
        try:
            controller = self._web.controller()
            found = list(self._of_store(self._web.reader))
        except GridawareError:
            controller, found = {"alive": False, "age_seconds": None}, []
        yield GaugeMetricFamily(
            "gridaware_controller_up", "Whether a controller lives.", value=controller["alive"]
        )
        if controller["age_seconds"] is not None:
            yield GaugeMetricFamily(
                "gridaware_controller_age_seconds",
                "Since its last sign of life.",
                value=controller["age_seconds"],
            )
        yield from found

    def _of_store(self, reader: StoreReader) -> Iterator[Metric]:
        _, pages = reader.state(("status", "node", "event"), _EVENTS_LOOKED_AT)
        decoded = {k: [msgspec.json.decode(b) for b in p.bodies] for k, p in pages.items()}
        for status in decoded["status"][:1]:
            yield from _status(status)
        yield from _gpus(decoded["node"])
        yield from _events(decoded["event"], self._web.clock.wall())
        baseline = reader.latest_power("baseline")
        if baseline is not None and baseline[1] is not None:
            yield GaugeMetricFamily(
                "gridaware_baseline_power_watts", "What would be drawn.", value=baseline[1]
            )
        yield self._energy(reader)
        with self._lock:
            yield self._responses.read(reader)

    def _energy(self, reader: StoreReader) -> Metric:
        with self._lock:
            # Only what came since the last scrape is read: the past does not change.
            for part in reader.energy(self._counted_until, self._web.clock.wall()):
                self._counted_until = max(self._counted_until, part.end)
                if part.line in _OF_JOBS:
                    key = (part.team, part.tier)
                    self._joules[key] = self._joules.get(key, 0.0) + part.joules
            family = CounterMetricFamily(
                "gridaware_energy_joules", "Energy of jobs.", labels=["team", "class"]
            )
            for (team, tier), joules in sorted(self._joules.items()):
                family.add_metric([team, tier], joules)
        return family


class _Response(msgspec.Struct):
    """Of a report, what is counted."""

    response: ResponseRecord | None = None


class _Responses:
    """The clocks of every GPU of every event, each event counted once."""

    def __init__(self) -> None:
        self._version = 0
        self._counted: set[str] = set()
        self._counts: dict[str, list[int]] = {}
        self._sum_seconds: dict[str, float] = {}

    def read(self, reader: StoreReader) -> Metric:
        """Take in the reports that came since the last scrape."""
        while changes := reader.changes(self._version, kinds=("report",), limit=_REPORTS_AT_ONCE):
            for change in changes:
                self._version = change.version
                if change.body is not None and change.document_id not in self._counted:
                    self._count(change.document_id, change.body)
        family = HistogramMetricFamily(
            "gridaware_response_seconds",
            "From an event's arrival to each clock of each GPU to which it gave a new limit.",
            labels=["clock"],
        )
        bounds = [*(format(bound, "g") for bound in BOUNDS_SECONDS), "+Inf"]
        for clock, counts in sorted(self._counts.items()):
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            family.add_metric([clock], buckets, self._sum_seconds[clock])
        return family

    def _count(self, event_id: str, body: bytes) -> None:
        record = msgspec.json.decode(body, type=_Response).response
        if record is None:
            return
        self._counted.add(event_id)
        for spread in record.clocks:
            counts = self._counts.setdefault(spread.clock, [0] * len(spread.counts))
            self._counts[spread.clock] = [
                before + more for before, more in zip(counts, spread.counts, strict=True)
            ]
            so_far = self._sum_seconds.get(spread.clock, 0.0)
            self._sum_seconds[spread.clock] = so_far + spread.sum_ms / 1000


def _status(status: Json) -> Iterator[Metric]:
    for name, key, text in (
        ("site_power_watts", "power_watts", "Power at the site meter."),
        ("target_power_watts", "target_watts", "What the site may draw; absent = free."),
        ("unresolved_watts", "unresolved_watts", "What cannot be shed."),
    ):
        if status.get(key) is not None:
            yield GaugeMetricFamily(f"gridaware_{name}", text, value=status[key])
    yield GaugeMetricFamily(
        "gridaware_event_active",
        "Events that the site owes something to now.",
        value=len(status.get("acting_events") or ()),
    )
    jobs = GaugeMetricFamily("gridaware_jobs", "Jobs by state.", labels=["state"])
    for state, count in sorted((status.get("jobs") or {}).items()):
        jobs.add_metric([state], count)
    yield jobs


def _gpus(nodes: list[Json]) -> Iterator[Metric]:
    labels = ["node", "gpu"]
    power = GaugeMetricFamily("gridaware_gpu_power_watts", "Power of a GPU.", labels=labels)
    cap = GaugeMetricFamily("gridaware_gpu_power_cap_watts", "Limit in force.", labels=labels)
    up = GaugeMetricFamily("gridaware_node_connected", "Whether it reports.", labels=["node"])
    for node in nodes:
        up.add_metric([node["node_id"]], bool(node.get("connected")))
        for gpu in node.get("gpus") or ():
            for family, key in ((power, "power_watts"), (cap, "enforced_limit_watts")):
                if gpu.get(key) is not None:
                    family.add_metric([node["node_id"], gpu["gpu_id"]], gpu[key])
    yield from (power, cap, up)


def _events(events: list[Json], now: datetime) -> Iterator[Metric]:
    """Newest first, so the first that has a figure is the latest."""
    age = GaugeMetricFamily("gridaware_signal_age_seconds", "Newest signal.", labels=["feed"])
    latency = GaugeMetricFamily(
        "gridaware_actuation_latency_seconds",
        "Latest event: from its arrival to each clock.",
        labels=["clock"],
    )
    seen: set[str] = set()
    for event in events:
        feed, at = event.get("feed_id"), event.get("received_at")
        if feed and at and feed not in seen:
            seen.add(feed)
            seconds = (now - datetime.fromisoformat(at)).total_seconds()
            age.add_metric([feed], max(seconds, 0.0))
    reached: Json = next((e["latency_seconds"] for e in events if e.get("latency_seconds")), {})
    for clock, seconds in reached.items():
        if seconds is not None:
            latency.add_metric([clock], seconds)
    yield from (age, latency)
