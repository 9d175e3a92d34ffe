"""Keeps the reports of every event that asks for some, and sends those that are due."""

import threading
from collections import deque
from collections.abc import Callable, Mapping

from gridaware.clock import Clock
from gridaware.control.ports import FeedTelemetry
from gridaware.domain.errors import GridawareError, Refused, Unavailable
from gridaware.domain.event import GridEvent
from gridaware.domain.eventjson import printable
from gridaware.feeds.openadr3.client import Calls
from gridaware.feeds.openadr3.objects import Json, report_object
from gridaware.feeds.openadr3.reading import EventReading
from gridaware.feeds.openadr3.reports import Due, EventReports, answerable
from gridaware.feeds.openadr3.settings import OpenAdr3Settings

__all__ = ["Reporting"]

WAITING_AT_MOST = 200
EVENTS_AT_MOST = 200
AGAIN_SECONDS = 10.0
AGGREGATED = "AGGREGATED_REPORT"


class Reporting:
    """The reports of one feed; samples come on one thread, events on another.

    Args:
        settings: version, names, length of intervals.
        client_name: ours.
        clock: of back-offs.
        alarm: hears once of each payload type that is asked for and that we do not have.
    """

    def __init__(
        self,
        settings: OpenAdr3Settings,
        client_name: str,
        clock: Clock,
        alarm: Callable[[GridawareError], None],
    ) -> None:
        self._settings = settings
        self._client_name = client_name
        self._clock = clock
        self._alarm = alarm
        self._lock = threading.Lock()
        self._events: dict[str, EventReports] = {}
        self._told: set[str] = set()
        self._waiting: deque[Json] = deque(maxlen=WAITING_AT_MOST)
        self._doubtful = False
        """Whether the oldest may be there already: servers store and then answer 500."""
        self._not_before_seconds = float("-inf")

    def events(self, readings: Mapping[str, EventReading]) -> None:
        """The events that stand now; reports of one that no longer does end with it."""
        asking = [
            (name, reading)
            for name, reading in readings.items()
            if reading.requests and reading.ours and not reading.cancelled
        ]
        asking = asking[:EVENTS_AT_MOST]
        with self._lock:
            kept = {}
            for name, reading in asking:
                known = self._events.get(name)
                if known is None:
                    known = EventReports(reading, self._settings.report_seconds)
                known.reading = reading
                kept[name] = known
            self._events = kept
        for _, reading in asking:
            self._tell_unanswerable(reading)

    def take(self, sample: FeedTelemetry, events_by_source: Mapping[str, str]) -> None:
        """Take one sample; whatever becomes due waits to be sent."""
        mine: dict[str, list[GridEvent]] = {}
        for event in sample.events:
            name = events_by_source.get(event.source_id)
            if name is not None:
                mine.setdefault(name, []).append(event)
        with self._lock:
            for name, reports in self._events.items():
                for due in reports.take(sample, mine.get(name, ())):
                    self._waiting.append(self._object(due))

    def send(self, calls: Callable[[], Calls]) -> None:
        """Send what waits, the oldest first.

        Raises:
            Unavailable: the server did not take it; it is tried again ten seconds later.
            Refused: it does not want it; the next one is sent with the next sample.
        """
        if not self._waiting or self._clock.monotonic_seconds() < self._not_before_seconds:
            return
        asked = calls()
        while self._waiting:
            body = self._waiting[0]
            try:
                if self._doubtful and self._stored(asked, body):
                    self._waiting.popleft()
                    self._doubtful = False
                    continue
                reply = asked.ask("POST", "/reports", body=body)
            except Unavailable:
                self._doubtful = True
                self._not_before_seconds = self._clock.monotonic_seconds() + AGAIN_SECONDS
                raise
            self._doubtful = False
            self._waiting.popleft()
            if not reply.good and reply.status != 409:  # it has it already
                told = f"POST /reports was answered {reply.status} {reply.detail}".strip()
                raise Refused("openadr3-report-refused", told)

    def _stored(self, asked: Calls, body: Json) -> bool:
        listed = asked.whole_list("/reports", [("clientName", self._client_name)])
        name = body["reportName"]
        return any(isinstance(each, Mapping) and each.get("reportName") == name for each in listed)

    def _object(self, due: Due) -> Json:
        event, settings = due.event, self._settings
        aggregate = all(request.aggregate for request in due.requests)
        return report_object(
            settings.version,
            event_id=event.event_id or "",
            program_id=event.program_id,
            client_name=self._client_name,
            report_name=due.name,
            descriptors=due.descriptors,
            resource_name=AGGREGATED if aggregate else settings.resource_name or self._client_name,
            intervals=due.intervals,
        )

    def _tell_unanswerable(self, reading: EventReading) -> None:
        for request in reading.requests:
            if answerable(request) or request.payload_type in self._told:
                continue
            self._told.add(request.payload_type)
            told = f"{printable(request.payload_type, 128)} {request.units or ''}".strip()
            self._alarm(Refused("openadr3-report-unknown", f"the site cannot report {told}"))
