"""What the controller does to the world beyond talking to agents: each call returns at once."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from gridaware.clock import Clock
from gridaware.control.codec import to_builtins
from gridaware.control.instructions import Alarm
from gridaware.control.ports import FeedReport
from gridaware.control.state import State
from gridaware.domain.errors import GridawareError, Unavailable
from gridaware.domain.event import GridEvent
from gridaware.domain.job import JobSpec
from gridaware.feeds.runner import FeedRunner
from gridaware.jobs.poller import JobPoller
from gridaware.settlement.event_report import EventReport
from gridaware.store.controller import ControllerStore
from gridaware.wiring.projections import project
from gridaware.wiring.settle import Settler

__all__ = ["ControlEffects"]

WRITE_SECONDS = 0.05
"""What people read is written this long after it changed: many changes of one thing in a burst of
acknowledgements are one, and none of it delays a command on its way."""
REPORT_RETRY_SECONDS = 1.0
FRESH_SECONDS = 30
_log = logging.getLogger(__name__)


class ControlEffects:
    """Implements :class:`gridaware.control.dispatch.Effects` on the process's real ports."""

    def __init__(
        self,
        store: ControllerStore,
        settler: Settler,
        poller: JobPoller | None,
        feeds: FeedRunner,
        state: Callable[[], State],
        clock: Clock,
    ) -> None:
        self._store = store
        self._settler = settler
        self._poller = poller
        self._feeds = feeds
        self._state = state
        self._clock = clock
        self._waiting: dict[tuple[str, str], None] = {}
        self._late: dict[tuple[str, str], None] = {}
        """What the disk refused: written once it takes writes again."""
        self._unwritten = False
        self._healths: dict[str, tuple[object, ...]] = {}
        """Of each feed as last written."""
        self._closing = threading.Event()
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="reports")

    def submit(self, spec: JobSpec, attempt: int) -> None:
        """Start an attempt in the cluster."""
        if self._poller is not None:
            self._poller.submit(spec, attempt)

    def stop(self, job_id: str, attempt: int) -> None:
        """End an attempt in the cluster."""
        if self._poller is not None:
            self._poller.stop_attempt(job_id, attempt)

    def tell(self, event: GridEvent, status: str, delivered_watts: float | None) -> None:
        """Answer the grid's side, where its feed can."""
        self._feeds.tell(
            event.feed_id, FeedReport(event, status, self._clock.wall(), delivered_watts)
        )

    def alarm(self, alarm: Alarm) -> None:
        """Tell a person: the log is what every installation has."""
        _log.warning("alarm %s: %s", alarm.code, alarm.message)

    def settle(self, event_id: str, *, final: bool) -> None:
        """Compute an event's report from the readings so far and write it."""
        at = self._clock.wall()
        report = self._settler.report(self._state(), event_id, final=final, at=at)
        if report is not None:
            self._workers.submit(self._write_report, event_id, report)

    def _write_report(self, event_id: str, report: EventReport) -> None:
        body = msgspec.json.encode(report)
        state = "final" if report.final else "provisional"
        tries = 0
        while not (tries and self._closing.wait(REPORT_RETRY_SECONDS)):
            tries += 1
            try:
                self._store.documents.put("report", event_id, state, body, report.generated_at)
            except Unavailable as error:
                if tries == 1:
                    _log.error("the report of %s is not written yet: %s", event_id, error)
            else:
                return

    def publish(self, kind: str, thing_id: str) -> None:
        """Write what people read, shortly."""
        if not self._waiting:
            try:
                asyncio.get_running_loop().call_later(WRITE_SECONDS, self.write_waiting)
            except RuntimeError:
                return  # no loop yet: everything is written once it runs
        self._waiting[kind, thing_id] = None

    def publish_feeds(self) -> None:
        """Write again how those feeds are that changed; a poll that went well shows shortly."""
        for health in self._feeds.health():
            good = health.last_good_at
            seen = 0 if good is None else int(good.timestamp()) // FRESH_SECONDS
            counts = (health.failures, health.signals, health.refused, health.untold)
            key = (health.state, health.reason_code, seen, *counts)
            if self._healths.get(health.feed_id) != key:
                self._healths[health.feed_id] = key
                self.publish("feed", health.feed_id)

    def _health_of(self, feed_id: str) -> dict[str, object] | None:
        """How a feed is; None where it does not run."""
        found = [health for health in self._feeds.health() if health.feed_id == feed_id]
        if not found:
            return None
        health = to_builtins(found[0])
        return {key: value for key, value in health.items() if key not in {"feed_id", "kind"}}

    def write_waiting(self) -> None:
        """Write every document that has changed."""
        self._waiting |= self._late
        self._late = {}
        for kind, thing_id in list(self._waiting):
            self.write(kind, thing_id)

    def write(self, kind: str, thing_id: str) -> None:
        """Write one document now, if it has changed."""
        if (kind, thing_id) not in self._waiting:
            return
        del self._waiting[kind, thing_id]
        at = self._clock.wall()
        try:
            projection = project(self._state(), kind, thing_id, at)
            if projection is not None and kind == "feed":
                projection[1]["health"] = self._health_of(thing_id)
            if projection is None:
                self._store.documents.remove(kind, thing_id, at)
            else:
                self._store.documents.put(kind, thing_id, *projection, at)
        except GridawareError as error:
            self._late[kind, thing_id] = None
            if not self._unwritten:  # once, not for each of what a full disk refuses
                _log.error("what people read is no longer written: %s", error)
            self._unwritten = True
        else:
            if self._unwritten:
                _log.warning("what people read is written again")
            self._unwritten = False

    def close(self) -> None:
        """Finish the reports under way."""
        self._closing.set()
        self._workers.shutdown(wait=True)
