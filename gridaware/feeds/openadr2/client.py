"""One exchange with a VTN: a message to a service, and the message that it answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gridaware.clock import Clock
from gridaware.domain.errors import Refused, TimedOut, Unavailable
from gridaware.feeds.http import ClientIdentity, exchange
from gridaware.feeds.openadr2.envelope import Message
from gridaware.feeds.openadr2.wire import Wire
from gridaware.feeds.openadr2.xmltree import BYTES_AT_MOST
from gridaware.feeds.server_clock import ServerClock

__all__ = ["EVENTS", "POLL", "REGISTRATION", "REPORTS", "Ask", "Client", "NotRegistered", "checked"]

Ask = Callable[..., Message | None]
"""Asks a service by a deadline: (service, message name, its values)."""

REGISTRATION, EVENTS, POLL, REPORTS = "EiRegisterParty", "EiEvent", "OadrPoll", "EiReport"
"""Services."""
UNKNOWN_VEN = (452, 463)
"""Response codes: invalid id; not registered or authorised."""


class NotRegistered(Refused):
    """The server says that it does not know us."""


@dataclass(frozen=True, slots=True)
class Client:
    """Speaks to one server. Any thread; holds nothing between exchanges."""

    url: str
    wire: Wire
    clock: Clock
    server_clock: ServerClock
    ca_file: str | None = None
    identity: ClientIdentity | None = None

    def by(self, seconds: float) -> Ask:
        """:meth:`ask`, with one deadline for all that is asked until then."""
        ends = self.clock.monotonic_seconds() + seconds

        def ask(service: str, kind: str, **payload: Any) -> Message | None:
            left = ends - self.clock.monotonic_seconds()
            if left <= 0:
                raise TimedOut("answer-too-late", f"there is no time left for {kind}")
            return self.ask(service, kind, left, **payload)

        return ask

    def ask(self, service: str, kind: str, seconds: float, **payload: Any) -> Message | None:
        """Send a message; None where the server answers with nothing, which it may to an answer.

        Raises:
            Unavailable: no answer in time, or one that is an HTTP error (``openadr2-http``).
            InvalidInput: its answer is no message.
            Refused: its answer's signature does not hold.
        """
        asked = self.clock.monotonic_seconds()
        answer = exchange(
            "POST",
            f"{self.url}/{service}",
            headers={"Content-Type": "application/xml"},
            body=self.wire.make(kind, **payload),
            deadline_seconds=seconds,
            answer_bytes_at_most=BYTES_AT_MOST,
            ca_file=self.ca_file,
            identity=self.identity,
        )
        self.server_clock.compare(answer.headers, self.clock.monotonic_seconds() - asked)
        if not 200 <= answer.status < 300:
            raise Unavailable("openadr2-http", f"{kind} was answered {answer.status}")
        if not answer.body.strip():
            return None
        return self.wire.open(answer.body, self.clock.wall())


def checked(answer: Message | None, asked: str, unknown: tuple[int, ...] = UNKNOWN_VEN) -> Message:
    """An answer that is there, and is no refusal.

    Args:
        answer: the server's.
        asked: what was asked, for the error.
        unknown: response codes that say that it does not know us.

    Raises:
        NotRegistered: the server does not know us.
        Refused: it does not want what was asked (``openadr2-refused``).
        Unavailable: it answered nothing.
    """
    if answer is None:
        raise Unavailable("openadr2-http", f"{asked} was answered with nothing")
    code = answer.code
    if code in unknown:
        raise NotRegistered("openadr2-not-registered", f"{asked}: {code} {answer.told}".strip())
    if code is not None and not 200 <= code < 300:
        raise Refused("openadr2-refused", f"{asked}: {code} {answer.told}".strip())
    return answer
