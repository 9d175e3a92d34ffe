"""Offers telemetry to a VTN and sends what it asks for; polls are never held up by it."""

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from gridaware.clock import Clock
from gridaware.control.ports import FeedTelemetry
from gridaware.domain.errors import GridawareError, InvalidInput, Refused
from gridaware.feeds.openadr2.client import REPORTS, Ask, checked
from gridaware.feeds.openadr2.registration import Registered
from gridaware.feeds.openadr2.reports import ReportRequest, Series, offered, read_request
from gridaware.feeds.openadr2.settings import OpenAdr2Settings
from gridaware.feeds.openadr2.xmltree import Node

__all__ = ["Reporting"]

SERIES_AT_MOST = 100
WAITING_AT_MOST = 500
AGAIN_SECONDS = 10.0
OFFER_AGAIN_SECONDS = 300.0


class Reporting:
    """The reports of one feed. Samples come on one thread, requests on that of the poll.

    Args:
        settings: of the feed.
        resource_id: names the site.
        clock: of stamps and waits.
        alarm: hears what a server asks for and we do not have.
    """

    def __init__(
        self,
        settings: OpenAdr2Settings,
        resource_id: str,
        clock: Clock,
        alarm: Callable[[GridawareError], None],
    ) -> None:
        self._settings = settings
        self._resource_id = resource_id
        self._clock = clock
        self._alarm = alarm
        self._lock = threading.Lock()
        self._series: dict[str, Series] = {}
        self._waiting: deque[tuple[ReportRequest, list[dict[str, Any]]]] = deque(
            maxlen=WAITING_AT_MOST
        )
        self._offered_under = ""
        self._not_before_seconds = float("-inf")

    @property
    def pending(self) -> list[str]:
        """The ids of the requests that stand."""
        with self._lock:
            return list(self._series)

    def ask_for(self, requests: Iterable[Node]) -> None:
        """Take the ``oadrReportRequest`` elements of a message; what we do not have is alarmed."""
        for node in requests:
            try:
                request = read_request(node, self._clock.wall())
            except InvalidInput as error:
                self._alarm(error)
                continue
            with self._lock:
                if request is None:
                    self._offered_under = ""
                elif request.request_id in self._series or len(self._series) < SERIES_AT_MOST:
                    self._series[request.request_id] = Series(request)
                else:
                    told = f"{SERIES_AT_MOST} reports are asked for already"
                    self._alarm(Refused("openadr2-report", told))

    def cancel(self, message: Node) -> None:
        """Take an ``oadrCancelReport``: the requests that it names, or all of them for id 0."""
        names = {node.text.strip() for node in message.all("reportRequestID")}
        with self._lock:
            for name in list(self._series):
                if name in names or "0" in names:
                    del self._series[name]

    def take(self, sample: FeedTelemetry) -> None:
        """Take one sample; whatever becomes due waits to be sent."""
        with self._lock:
            for name, series in list(self._series.items()):
                due = series.take(sample)
                if due:
                    self._waiting.append((series.request, due))
                if series.over:
                    del self._series[name]

    def send(self, ask: Ask, registered: Registered) -> None:
        """Offer our reports where that is not done under this registration; send what waits.

        Raises:
            Unavailable: the server did not take it; it is tried again ten seconds later.
            InvalidInput: its answer cannot be read; the same.
            Refused: it does not want it.
        """
        if self._clock.monotonic_seconds() < self._not_before_seconds:
            return
        try:
            if self._offered_under != registered.witness:
                self._offer(ask, registered)
            while self._waiting:
                request, intervals = self._waiting[0]
                try:
                    self._update(ask, registered, request, intervals)
                except Refused:
                    self._waiting.popleft()
                    raise
                self._waiting.popleft()
        except GridawareError as error:
            offered = self._offered_under == registered.witness
            wait = AGAIN_SECONDS if offered or error.retryable else OFFER_AGAIN_SECONDS
            self._not_before_seconds = self._clock.monotonic_seconds() + wait
            raise

    # ------------------------------------------------------------------------------------------

    def _offer(self, ask: Ask, registered: Registered) -> None:
        settings = self._settings
        answer = checked(
            ask(
                REPORTS,
                "oadrRegisterReport",
                request_id=str(uuid.uuid4()),
                reports=offered(
                    self._resource_id,
                    self._clock.wall(),
                    hertz=settings.supply_hertz,
                    volts=settings.supply_volts,
                ),
                ven_id=registered.ven_id,
            ),
            "the offer of reports",
        )
        with self._lock:
            self._series.clear()  # asked for under another registration, or asked for anew
            self._offered_under = registered.witness
        wanted = list(answer.content.all("oadrReportRequest"))
        if wanted:
            self.ask_for(wanted)
            self._created(ask, registered, answer.request_id)

    def _created(self, ask: Ask, registered: Registered, request_id: str) -> None:
        ask(
            REPORTS,
            "oadrCreatedReport",
            response={"response_code": 200, "response_description": "OK", "request_id": request_id},
            pending_reports=[{"report_request_id": name} for name in self.pending],
            ven_id=registered.ven_id,
        )

    def _update(
        self,
        ask: Ask,
        registered: Registered,
        request: ReportRequest,
        intervals: list[dict[str, Any]],
    ) -> None:
        answer = checked(
            ask(
                REPORTS,
                "oadrUpdateReport",
                request_id=str(uuid.uuid4()),
                intervals=intervals,
                report_request_id=request.request_id,
                report_specifier_id=request.specifier_id,
                report_name=request.name,
                created=self._clock.wall(),
                ven_id=registered.ven_id,
            ),
            "a report",
        )
        cancelled = answer.content.get("oadrCancelReport")
        if cancelled is not None:
            self.cancel(cancelled)
