"""Publishes what became of the targets: at each change, and now and then. On the reports' thread.

A set is not answered: its sender reads the status. What could not be said waits for the broker.
"""

import json
import secrets
import threading
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gridaware.control.ports import FeedTelemetry
from gridaware.domain.errors import Unavailable
from gridaware.feeds.dsx.book import Book
from gridaware.feeds.dsx.jws import Signer
from gridaware.feeds.dsx.messages import POWER_STATE, CloudEvent
from gridaware.feeds.dsx.settings import DsxSettings
from gridaware.feeds.dsx.status import Phase, SiteView, rfc3339, snapshot, transitions

__all__ = ["Statuses"]

WAITING_AT_MOST = 64


@dataclass(frozen=True, slots=True)
class _Due:
    """One status that is to be published."""

    trigger: str
    correlation_id: str | None = None
    traceparent: str | None = None
    """Of the message that it confirms."""
    tracestate: str | None = None


class Statuses:
    """The statuses of one feed.

    Args:
        settings: of the feed.
        signer: of the data; None = it is told unsigned.
        publish: says a payload on a topic; raises Unavailable.
    """

    def __init__(
        self,
        settings: DsxSettings,
        signer: Signer | None,
        publish: Callable[[str, bytes], None],
    ) -> None:
        self._settings = settings
        self._signer = signer
        self._publish = publish
        self._lock = threading.Lock()
        self._due: deque[_Due] = deque(maxlen=WAITING_AT_MOST)
        self._phase: Phase = "rest"
        self._load_watts: float | None = None
        self._said_seconds = float("-inf")
        self._away = False

    def confirm(self, event: CloudEvent) -> None:
        """A set was taken; any thread, returns at once."""
        with self._lock:
            self._due.append(
                _Due(
                    "target_set",
                    event.correlation_id or event.event_id,
                    event.traceparent,
                    event.tracestate,
                )
            )

    def report(self, book: Book, telemetry: FeedTelemetry) -> None:
        """Take a sample, and publish what is due.

        A site whose meter was never read has nothing to say: a load that is missing is not told
        as 0. Later the last reading stands.

        Raises:
            Unavailable: the broker is away; told once an outage.
        """
        if telemetry.site_watts is not None:
            self._load_watts = telemetry.site_watts
        if self._load_watts is None:
            return
        view = SiteView(telemetry.at, self._load_watts, telemetry)
        with self._lock:
            for trigger in transitions(self._phase, view.phase):
                self._due.append(_Due(trigger))
            self._phase = view.phase
            since = telemetry.seconds - self._said_seconds
            if not self._due and since >= self._settings.status_seconds:
                self._due.append(_Due("periodic"))
        try:
            self._say_due(book, view)
        except Unavailable:
            if not self._away:
                self._away = True
                raise
        else:
            self._away = False

    def _say_due(self, book: Book, view: SiteView) -> None:
        while True:
            with self._lock:
                if not self._due:
                    return
                due = self._due[0]
            self._publish(self._settings.status_topic, self._message(book, view, due))
            self._said_seconds = view.telemetry.seconds
            with self._lock:
                if self._due and self._due[0] is due:  # it may have given way meanwhile
                    self._due.popleft()

    def _message(self, book: Book, view: SiteView, due: _Due) -> bytes:
        data: object = snapshot(book, self._settings.feeds, view, due.trigger)
        if self._signer is not None:
            data = self._signer.sign(json.dumps(data, allow_nan=False).encode("utf-8"))
        said = {
            "specversion": "1.0.2",
            "id": str(uuid.uuid4()),
            "source": f"//grid/v1/{self._settings.agent_role}/{self._settings.agent_id}",
            "type": POWER_STATE,
            "time": rfc3339(view.at),
            "datacontenttype": "application/json",
            "subject": "powerstate",
            "traceparent": _child_of(due.traceparent),
            "data": data,
        }
        if due.correlation_id is not None:
            said["correlationid"] = due.correlation_id
        if due.tracestate is not None:
            said["tracestate"] = due.tracestate
        return json.dumps(said, allow_nan=False).encode("utf-8")


def _child_of(traceparent: str | None) -> str:
    """A span of ours in the sender's trace, or in one of our own (W3C Trace Context 3.2)."""
    if traceparent is None:
        return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00"
    _, trace, _, flags = traceparent.split("-")
    return f"00-{trace}-{secrets.token_hex(8)}-{flags}"
