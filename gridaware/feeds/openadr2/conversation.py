"""One poll of a VTN: what is asked, what it answers, and what is answered to that.

A poll may bring anything that a server would push: events, requests for reports, the end of our
registration. Events are listed whole: what is missing from a list is cancelled, but only once a
request for the list says the same, under the registration under which the event was seen. A server
that does not know us any more lists nothing, and nothing is concluded from that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gridaware.clock import Clock
from gridaware.domain.errors import GridawareError, Refused, Unavailable
from gridaware.domain.eventjson import printable
from gridaware.feeds.openadr2.answers import Answers
from gridaware.feeds.openadr2.client import (
    EVENTS,
    POLL,
    REGISTRATION,
    REPORTS,
    Ask,
    NotRegistered,
    checked,
)
from gridaware.feeds.openadr2.envelope import Message
from gridaware.feeds.openadr2.registration import Registered, Registration
from gridaware.feeds.openadr2.reporting import Reporting
from gridaware.feeds.openadr2.state import EventBook

__all__ = ["Conversation"]

MESSAGES_AT_MOST = 20
"""Of one poll; the rest waits for the next."""
EARLY = 0.75
"""Of the server's least time between polls: ours vary by a fifth."""


@dataclass(slots=True)
class Conversation:
    """What is said in polls. One thread at a time.

    Args:
        book: the events.
        answers: what is answered about them.
        registration: ours.
        reporting: told what reports are wanted; None = none are offered.
        clock: of waits.
        list_seconds: between requests for the whole list.
        alarm: hears what a server should not say.
    """

    book: EventBook
    answers: Answers
    registration: Registration
    reporting: Reporting | None
    clock: Clock
    list_seconds: float
    alarm: Callable[[GridawareError], None]
    _listed_seconds: float = float("-inf")
    _polled_seconds: float = float("-inf")
    _told: set[str] = field(default_factory=set)
    _gone: list[str] = field(default_factory=list)

    def poll(self, ask: Ask, acts: bool | None) -> list[str]:
        """Ask once; returns the events that are cancelled by no longer being listed.

        Args:
            ask: speaks to the server by a deadline.
            acts: whether the site acts on what it is asked; None = unknown.

        Raises:
            Unavailable: it did not answer wholly and in time; nothing is concluded.
            Refused: it does not want us.
            InvalidInput: its answer cannot be read.
        """
        self._gone = []
        try:
            for _ in range(2):
                registered = self.registration.ensure(ask)
                try:
                    self._converse(ask, registered, acts)
                except NotRegistered as error:
                    self.alarm(error)
                    self.registration.lost()
                    self._listed_seconds = float("-inf")
                if self.registration.current is not None:
                    return self._gone
        except GridawareError:
            self._listed_seconds = float("-inf")  # whatever was said meanwhile was not heard
            raise
        raise Unavailable("openadr2-not-registered", "the server keeps asking us to register")

    def answer(self, ask: Ask, acts: bool | None, *, final: bool) -> None:
        """Answer the events that can be answered; ``final`` = all of them."""
        registered = self.registration.current
        responses = self.answers.ready(acts, final=final)
        if registered is None or not responses:
            return
        answer = ask(
            EVENTS,
            "oadrCreatedEvent",
            response=_ok(responses[0].request_id),
            event_responses=[response.values() for response in responses],
            ven_id=registered.ven_id,
        )
        self.answers.sent(responses)
        if answer is not None:
            checked(answer, "the answer about events", unknown=(463,))

    # ------------------------------------------------------------------------------------------

    def _converse(self, ask: Ask, registered: Registered, acts: bool | None) -> None:
        try:
            self.answer(ask, acts, final=True)
        except NotRegistered:
            raise
        except Refused as error:
            self.alarm(error)
        now = self.clock.monotonic_seconds()
        if now - self._listed_seconds >= self.list_seconds:
            self._list(ask, registered)
        elif now - self._polled_seconds >= EARLY * registered.poll_seconds:
            for _ in range(MESSAGES_AT_MOST):
                if not self._hear(ask, registered):
                    break
        self._quietly(lambda: self.answer(ask, acts, final=False))

    def _list(self, ask: Ask, registered: Registered) -> None:
        """Ask for the whole list of events."""
        message = checked(self._request(ask, registered), "the request for events")
        if message.kind == "oadrDistributeEvent":
            self._distributed(ask, registered, message, whole=True)
        elif self._standard(ask, registered, message):
            return
        elif message.kind != "oadrResponse":
            told = f"a request for events brought {printable(message.kind)}"
            raise Refused("openadr2-unexpected", told)
        elif self.book.stands(self.book.standing, self.clock.wall()):
            # openleadr's server says so where its list is empty, and where it was restarted.
            told = "the server lists no events, and does not say that they are cancelled: held"
            self._once(Unavailable("openadr2-lists-nothing", told))
        self._listed_seconds = self.clock.monotonic_seconds()

    def _request(self, ask: Ask, registered: Registered) -> Message | None:
        return ask(EVENTS, "oadrRequestEvent", request_id="list", ven_id=registered.ven_id)

    def _hear(self, ask: Ask, registered: Registered) -> bool:
        """Poll once; whether there may be more."""
        self._polled_seconds = self.clock.monotonic_seconds()
        message = checked(ask(POLL, "oadrPoll", ven_id=registered.ven_id), "the poll")
        if message.kind == "oadrResponse":
            return False
        if message.kind == "oadrDistributeEvent":
            # What it asks is not decided yet, and has to be answered before the next poll.
            self._distributed(ask, registered, message, whole=False)
            return False
        if not self._standard(ask, registered, message):
            told = f"the poll brought {printable(message.kind)}, which is not for us"
            self._once(Refused("openadr2-unexpected", told))
        return self.registration.current is not None

    def _distributed(
        self, ask: Ask, registered: Registered, message: Message, *, whole: bool
    ) -> None:
        vtn_id = message.content.said("vtnID")
        if registered.vtn_id and vtn_id != registered.vtn_id:
            told = f"a list of {printable(vtn_id or 'nobody')}, not of {registered.vtn_id[:80]}"
            raise Refused("openadr2-other-vtn", told)
        gone = self._read(message, registered)
        if gone and not whole and self.book.stands(gone, self.clock.wall()):
            # Some servers send only what changed.
            again = checked(self._request(ask, registered), "the request for events")
            if again.kind == "oadrDistributeEvent":
                gone = self._read(again, registered)
            elif not self._standard(ask, registered, again):
                gone = []
                told = "events are missing from a poll, and the list itself does not come: held"
                self._once(Unavailable("openadr2-lists-nothing", told))
        if self.registration.current is not None:
            self._gone = gone

    def _read(self, message: Message, registered: Registered) -> list[str]:
        events = list(message.content.all("oadrEvent"))
        witness = registered.witness
        listed = self.book.read(events, self.clock.wall(), witness, registered.ven_id)
        self.answers.expect(listed, message.request_id)
        return self.book.missing(witness)

    def _standard(self, ask: Ask, registered: Registered, message: Message) -> bool:
        """Serve what a server may ask at any time; whether it was that."""
        content = message.content
        ven_id = content.said("venID")
        if ven_id is not None and ven_id != registered.ven_id:
            told = f"{printable(message.kind)} is for {printable(ven_id)}"
            self._once(Refused("openadr2-other-ven", told))
            return True
        ok = _ok(message.request_id)
        us: dict[str, Any] = {"ven_id": registered.ven_id}
        if message.kind == "oadrRequestReregistration":
            self._quietly(lambda: ask(REGISTRATION, "oadrResponse", response=ok, **us))
            raise NotRegistered("openadr2-not-registered", "the server asks us to register anew")
        if message.kind == "oadrCancelPartyRegistration":
            self._ended(ask, registered, message)
        elif message.kind == "oadrRegisterReport":
            ask(REPORTS, "oadrRegisteredReport", response=ok, report_requests=[], **us)
        elif message.kind == "oadrUpdateReport":
            ask(REPORTS, "oadrUpdatedReport", response=ok, **us)
        elif message.kind in {"oadrCreateReport", "oadrCancelReport"}:
            self._reports(ask, message, ok, us)
        else:
            return False
        return True

    def _reports(self, ask: Ask, message: Message, ok: dict[str, Any], us: dict[str, Any]) -> None:
        """Reports are asked for, or no longer; the answer names those that stand."""
        wanted = message.kind == "oadrCreateReport"
        reporting = self.reporting
        if reporting is not None and wanted:
            reporting.ask_for(message.content.all("oadrReportRequest"))
        elif reporting is not None:
            reporting.cancel(message.content)
        names = [] if reporting is None else reporting.pending
        pending = [{"report_request_id": name} for name in names]
        kind = "oadrCreatedReport" if wanted else "oadrCanceledReport"
        ask(REPORTS, kind, response=ok, pending_reports=pending, **us)

    def _ended(self, ask: Ask, registered: Registered, message: Message) -> None:
        named = message.content.said("registrationID")
        if named != registered.registration_id:
            told = f"the server ends a registration {printable(named or '')} that is not ours"
            self._once(Refused("openadr2-other-ven", told))
            return
        ask(
            REGISTRATION,
            "oadrCanceledPartyRegistration",
            response=_ok(message.request_id),
            registration_id=registered.registration_id,
            ven_id=registered.ven_id,
        )
        self.registration.ended()
        raise Refused("openadr2-put-out", "the server has ended our registration")

    def _quietly(self, say: Callable[[], object]) -> None:
        """Say something that costs nothing but itself if it fails."""
        try:
            say()
        except GridawareError as error:
            self.alarm(error)

    def _once(self, error: GridawareError) -> None:
        said = f"{error.code} {error.message}"
        if said not in self._told and len(self._told) < 1000:
            self._told.add(said)
            self.alarm(error)


def _ok(request_id: str) -> dict[str, Any]:
    return {"response_code": 200, "response_description": "OK", "request_id": request_id}
