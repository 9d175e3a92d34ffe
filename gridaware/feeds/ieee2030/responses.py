"""What the server wants to hear of its controls: DERControlResponse, posted to ``replyTo``.

A response that could not be delivered is kept, over restarts too, and sent again with a later walk;
it outlives the control that it answers, since a server may ask for the answers of one that it
cancelled. Statuses are those of IEEE 2030.5-2018, table 27.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any
from xml.sax.saxutils import escape

from gridaware.domain.errors import GridawareError, Refused, Unavailable
from gridaware.domain.eventjson import printable
from gridaware.feeds.ieee2030.client import Calls
from gridaware.feeds.ieee2030.reading import CUSTOMER, RECEIVED, SPECIFIC
from gridaware.feeds.ieee2030.xml import NAMESPACE
from gridaware.feeds.memory import FeedMemory

__all__ = ["Answered", "Responses", "response_body"]

RECORDS_AT_MOST = 1000
PENDING_AT_MOST = 500
POSTS_AT_MOST = 20
"""In one go: a poll is not held up by a flood of answers."""


class Answered(IntEnum):
    """``Response.status``."""

    RECEIVED = 1
    STARTED = 2
    COMPLETED = 3
    OPTED_OUT = 4
    CANCELLED = 6
    SUPERSEDED = 7
    PARTLY = 8
    """It began, and was not followed to its end."""
    INVALID = 253
    EXPIRED = 254


_OUT = {Answered.OPTED_OUT, Answered.PARTLY}
_FINAL = _OUT | {Answered.COMPLETED, Answered.CANCELLED, Answered.SUPERSEDED}
_OF_STATUS = {
    "active": Answered.STARTED,
    "completed": Answered.COMPLETED,
    "cancelled": Answered.CANCELLED,
    "opted-out": Answered.OPTED_OUT,
    "failed": Answered.OPTED_OUT,
}


@dataclass(slots=True)
class _Record:
    """What was answered of one control."""

    mrid: str
    reply_to: str
    required: int
    sent: list[int] = field(default_factory=list)
    fate: int = 0
    """6 or 7: it did not end by itself."""


def response_body(lfdi: str, mrid: str, status: int, server_seconds: int) -> bytes:
    """The XML of one response."""
    return (
        f'<DERControlResponse xmlns="{NAMESPACE}">'
        f"<createdDateTime>{server_seconds}</createdDateTime>"
        f"<endDeviceLFDI>{lfdi}</endDeviceLFDI>"
        f"<status>{status}</status>"
        f"<subject>{escape(mrid)}</subject>"
        "</DERControlResponse>"
    ).encode()


class Responses:
    """Answers due and answers given; any thread.

    Args:
        lfdi: who answers.
        memory: keeps both over restarts.
        alarm: hears what a person should know.
    """

    def __init__(
        self, lfdi: str, memory: FeedMemory, alarm: Callable[[GridawareError], None]
    ) -> None:
        self._lfdi = lfdi
        self._memory = memory
        self._alarm = alarm
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._late = False
        kept = memory.get("responses")
        self._records: dict[str, _Record] = {}
        self._pending: list[tuple[str, str, int, int]] = []
        """(reply to, mRID, status, server's time), oldest first."""
        if isinstance(kept, dict):
            self._load(kept)

    def meet(self, name: str, mrid: str, reply_to: str, required: int) -> None:
        """Note a control and what the server wants to hear of it."""
        with self._lock:
            record = self._records.pop(name, None) or _Record(mrid, reply_to, required)
            record.reply_to, record.required = reply_to, required
            self._records[name] = record
            while len(self._records) > RECORDS_AT_MOST:
                del self._records[next(iter(self._records))]

    def due(self, name: str, status: Answered, server_now: float) -> None:
        """Answer once, if the server wants to hear that."""
        with self._lock:
            self._due(name, status, server_now)

    def fate(self, name: str, status: Answered, server_now: float) -> None:
        """It was cancelled or superseded: that, and not that it was completed, is answered."""
        with self._lock:
            record = self._records.get(name)
            if record is not None and not _FINAL & set(record.sent):
                record.fate = status
                self._due(name, status, server_now)

    def expired(self, name: str, server_now: float) -> None:
        """It is over; where it was over before it came, that is answered."""
        with self._lock:
            record = self._records.get(name)
            if record is not None and not record.sent:
                self._due(name, Answered.EXPIRED, server_now)

    def told(self, name: str, status: str, server_now: float) -> None:
        """What control says became of an event."""
        answer = _OF_STATUS.get(status)
        with self._lock:
            record = self._records.get(name)
            if record is None or answer is None:
                return
            if answer in {Answered.COMPLETED, Answered.CANCELLED} and record.fate:
                answer = Answered(record.fate)
            if answer is Answered.OPTED_OUT and Answered.STARTED in record.sent:
                answer = Answered.PARTLY
            if answer in _FINAL and _FINAL & set(record.sent):
                return
            self._due(name, answer, server_now)

    @property
    def waiting(self) -> bool:
        """Whether there is anything to post."""
        return bool(self._pending)

    def flush(self, calls: Callable[[], Calls]) -> None:
        """Post what is due, oldest first; what cannot be delivered now waits. Never raises."""
        if not self._sending.acquire(blocking=False):
            return  # whoever posts just now takes these along, or the next walk does
        try:
            self._flush(calls)
        finally:
            self._sending.release()
            self.keep()

    def keep(self) -> None:
        """Make it durable."""
        with self._lock:
            records = {
                name: [r.mrid, r.reply_to, r.required, list(r.sent), r.fate]
                for name, r in self._records.items()
            }
            kept: dict[str, Any] = {"records": records, "pending": [list(p) for p in self._pending]}
        try:
            self._memory.put("responses", kept)
        except GridawareError as error:
            self._alarm(error)

    # ------------------------------------------------------------------------------------------

    def _due(self, name: str, status: Answered, server_now: float) -> None:
        record = self._records.get(name)
        if record is None or not record.reply_to or status in record.sent:
            return
        wanted = RECEIVED if status is Answered.RECEIVED else SPECIFIC
        if status in _OUT:  # a customer's choice, which is never kept from a server that asks
            wanted |= CUSTOMER
        record.sent.append(int(status))
        if record.required & wanted:
            self._pending.append((record.reply_to, record.mrid, int(status), int(server_now)))
            del self._pending[:-PENDING_AT_MOST]

    def _flush(self, calls: Callable[[], Calls]) -> None:
        for _ in range(POSTS_AT_MOST):
            with self._lock:
                if not self._pending:
                    return
                first = self._pending[0]
            reply_to, mrid, status, at = first
            body = response_body(self._lfdi, mrid, status, at)
            try:
                reply = calls().ask("POST", reply_to, body)
                if reply.status in {408, 425, 429} or reply.status >= 500:
                    raise Unavailable("ieee2030-refused", f"it was answered {reply.status}")
            except Unavailable as error:
                if error.code != "ieee2030-elsewhere":
                    self._waits(error)
                    return
                self._alarm(error)
            else:
                self._late = False
                if not reply.good:
                    told = f"the response {status} to {printable(mrid)} was answered {reply.status}"
                    self._alarm(Refused("ieee2030-response-refused", told))
            with self._lock:
                if first in self._pending:
                    self._pending.remove(first)

    def _waits(self, error: Unavailable) -> None:
        if not self._late:
            told = f"a response could not be delivered: {error.message}"
            self._alarm(Unavailable("ieee2030-response-late", told))
        self._late = True

    def _load(self, kept: dict[str, Any]) -> None:
        for name, (mrid, reply_to, required, sent, fate) in kept.get("records", {}).items():
            self._records[name] = _Record(mrid, reply_to, required, list(sent), fate)
        for reply_to, mrid, status, at in kept.get("pending", []):
            self._pending.append((reply_to, mrid, status, at))
