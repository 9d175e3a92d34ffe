"""The VTN itself: who is registered, what is listed, what was answered."""

import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from typing import ClassVar

from gridaware.domain.errors import InvalidInput
from gridaware.feeds.openadr2.envelope import Message, message_in
from gridaware.feeds.openadr2.xmltree import Node, read_xml
from gridaware.sim.grid.served import Served
from gridaware.sim.grid.vtn2.messages import DrEvent, distributed, message, response

__all__ = ["PREFIX", "Vtn2"]

PREFIX = "/OpenADR2/Simple/2.0b"
NOT_REGISTERED = 463
BODY_AT_MOST = 1 << 20
HELD_SECONDS_AT_MOST = 60.0


class Vtn2(Served):
    """One server on a free port of this machine. Use it as a context manager, or close it.

    Attributes:
        events: what stands; a change is told with :meth:`say`.
        pending: messages that wait for a poll, before any news of events.
        replies: by name of a request, what is answered in place of the right thing, once each; a
            number is an HTTP status.
        held: by name of a request, what its answer waits for.
        asked: (service, message) of every request, in order.
        date: what it takes the time for, in its answers; None = it does not say.
        answers: event id → (opt type, modification number, response code) last heard.
        report_requests: asked for when a client registers its reports.
    """

    def __init__(self, *, vtn_id: str = "TEST_VTN", poll_every: str | None = None) -> None:
        self.vtn_id = vtn_id
        self.poll_every = poll_every
        self.events: list[DrEvent | str] = []
        self.pending: deque[bytes] = deque()
        self.replies: dict[str, deque[bytes | int]] = {}
        self.held: dict[str, threading.Event] = {}
        self.asked: list[tuple[str, Message]] = []
        self.date: datetime | None = None
        self.answers: dict[str, tuple[str, int, str]] = {}
        self.report_requests: list[str] = []
        self.registered: dict[str, str] = {}
        """VEN id → registration id."""
        self.sign: Callable[[bytes], bytes] = lambda body: body
        """May sign, or spoil, whatever is answered."""
        self._news = False
        self._serial = 0
        self._lock = threading.RLock()
        super().__init__(type("Bound", (_Handler,), {"vtn": self}))

    @property
    def url(self) -> str:
        """What the names of services are appended to."""
        return f"{self.root_url}{PREFIX}"

    def say(self, *events: DrEvent | str) -> None:
        """List these events from now on, and tell so at the next poll."""
        with self._lock:
            self.events = list(events)
            self._news = True

    def push(self, body: bytes) -> None:
        """Have a message wait for the next poll."""
        with self._lock:
            self.pending.append(body)

    def reply(self, kind: str, *bodies: bytes | int) -> None:
        """Answer the next requests of a name with these."""
        with self._lock:
            self.replies.setdefault(kind, deque()).extend(bodies)

    def forget(self) -> None:
        """Be restarted without a memory: nobody is registered, nothing is listed."""
        with self._lock:
            self.registered.clear()
            self.events, self._news = [], False
            self.pending.clear()

    def kinds(self) -> list[str]:
        """The names of everything that was asked."""
        with self._lock:
            return [asked.kind for _, asked in self.asked]

    def last(self, kind: str) -> Node:
        """The content of the last request of a name."""
        with self._lock:
            return next(each.content for _, each in reversed(self.asked) if each.kind == kind)

    # ------------------------------------------------------------------------------------------

    def answer(self, service: str, body: bytes) -> bytes | int:
        """Answer one request."""
        try:
            asked = message_in(read_xml(body))
        except InvalidInput:
            return 400
        with self._lock:
            self.asked.append((service, asked))
            held = self.held.get(asked.kind)
        if held is not None:
            held.wait(HELD_SECONDS_AT_MOST)
        with self._lock:
            planned = self.replies.get(asked.kind)
            if planned:
                found = planned.popleft()
                return found if isinstance(found, int) else self.sign(found)
            return self.sign(self._answer(asked))

    def _answer(self, asked: Message) -> bytes:
        content = asked.content
        if asked.kind == "oadrQueryRegistration":
            return self._created("", "", asked)
        if asked.kind == "oadrCreatePartyRegistration":
            return self._register(asked)
        if asked.kind == "oadrResponse":
            return b""
        ven_id = content.said("venID") or content.said("eiRequestEvent", "venID") or ""
        ven_id = ven_id or content.said("eiCreatedEvent", "venID") or ""
        if ven_id not in self.registered:
            if asked.kind == "oadrPoll":
                return message("oadrRequestReregistration", f"<ei:venID>{ven_id}</ei:venID>")
            return self._response(ven_id, NOT_REGISTERED, "NOT REGISTERED OR AUTHORIZED")
        by_kind: dict[str, Callable[[str], bytes]] = {
            "oadrPoll": self._polled,
            "oadrRequestEvent": lambda _: distributed(self.events, vtn_id=self.vtn_id),
            "oadrRegisterReport": self._registered_report,
            "oadrUpdateReport": lambda ven: message(
                "oadrUpdatedReport", f"{response()}<ei:venID>{ven}</ei:venID>"
            ),
        }
        if asked.kind in by_kind:
            return by_kind[asked.kind](ven_id)
        if asked.kind == "oadrCreatedEvent":
            self._hear_answers(content)
        return self._response(ven_id)

    def _polled(self, ven_id: str) -> bytes:
        if self.pending:
            return self.pending.popleft()
        if self._news:
            self._news = False
            return distributed(self.events, vtn_id=self.vtn_id)
        return self._response(ven_id)

    def _register(self, asked: Message) -> bytes:
        ven_id = asked.content.said("venID")
        registration = asked.content.said("registrationID")
        if ven_id is None or self.registered.get(ven_id) != registration:
            self._serial += 1
            ven_id = ven_id or f"VEN-{self._serial}"
            registration = f"REG-{self._serial}-{id(self) % 997}"
        self.registered[ven_id] = registration or ""
        return self._created(ven_id, registration or "", asked)

    def _created(self, ven_id: str, registration: str, asked: Message) -> bytes:
        known = f"<ei:registrationID>{registration}</ei:registrationID>" if registration else ""
        ven = f"<ei:venID>{ven_id}</ei:venID>" if ven_id else ""
        often = ""
        if self.poll_every is not None:
            often = (
                "<oadr:oadrRequestedOadrPollFreq><xcal:duration>"
                f"{self.poll_every}</xcal:duration></oadr:oadrRequestedOadrPollFreq>"
            )
        return message(
            "oadrCreatedPartyRegistration",
            f"{response(request_id=asked.request_id)}{known}{ven}<ei:vtnID>{self.vtn_id}</ei:vtnID>"
            "<oadr:oadrProfiles><oadr:oadrProfile><oadr:oadrProfileName>2.0b"
            "</oadr:oadrProfileName><oadr:oadrTransports><oadr:oadrTransport>"
            "<oadr:oadrTransportName>simpleHttp</oadr:oadrTransportName></oadr:oadrTransport>"
            f"</oadr:oadrTransports></oadr:oadrProfile></oadr:oadrProfiles>{often}",
        )

    def _registered_report(self, ven_id: str) -> bytes:
        wanted = "".join(self.report_requests)
        content = f"{response()}{wanted}<ei:venID>{ven_id}</ei:venID>"
        return message("oadrRegisteredReport", content)

    def _hear_answers(self, content: Node) -> None:
        responses = content.get("eiCreatedEvent", "eventResponses") or Node("")
        for each in responses.all("eventResponse"):
            event_id = each.said("qualifiedEventID", "eventID") or ""
            number = int(each.said("qualifiedEventID", "modificationNumber") or -1)
            code = each.said("responseCode") or ""
            self.answers[event_id] = (each.said("optType") or "", number, code)

    def _response(self, ven_id: str, code: int = 200, told: str = "OK") -> bytes:
        return message("oadrResponse", f"{response(code, told)}<ei:venID>{ven_id}</ei:venID>")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    vtn: ClassVar[Vtn2]

    def do_POST(self) -> None:
        """Answer one message."""
        length = min(int(self.headers.get("content-length", 0)), BODY_AT_MOST)
        found = self.vtn.answer(self.path.rpartition("/")[2], self.rfile.read(length))
        status, body = (found, b"") if isinstance(found, int) else (200, found)
        date = "" if self.vtn.date is None else f"Date: {format_datetime(self.vtn.date, True)}\r\n"
        head = (
            f"HTTP/1.1 {status} x\r\nContent-Type: application/xml\r\n{date}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        # In one write: headers and body in two wait for a delayed acknowledgement.
        self.wfile.write(head.encode() + body)

    def log_message(self, *what: object) -> None:
        """Say nothing."""
