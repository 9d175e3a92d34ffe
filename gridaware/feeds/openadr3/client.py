"""Asks a server of OpenADR 3: bounded, within one deadline, with whole lists.

Absent fields are left out of what is sent, because servers refuse null. From an answer that is
late, cut off, not JSON or not a success nothing is concluded: it raises. Only what a caller can act
on is given back as a status: not found, conflict, forbidden, a bad request.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from gridaware.clock import Clock
from gridaware.domain.errors import GridawareError, InvalidInput, TimedOut, Unavailable
from gridaware.domain.eventjson import printable
from gridaware.feeds.http import Answer, exchange
from gridaware.feeds.openadr3.auth import Tokens
from gridaware.feeds.openadr3.shapes import decoded
from gridaware.feeds.server_clock import ServerClock

__all__ = ["Calls", "Client", "Query", "Reply", "quoted"]

PAGE = 50
"""The most that the specification lets one ask for."""
PAGES_AT_MOST = 200
CALL_SECONDS = 5.0
ANSWER_BYTES_AT_MOST = 16 << 20
RETRY_AFTER_SECONDS_AT_MOST = 300.0
ACTIONABLE = (400, 403, 404, 405, 409)

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that a caller can act on."""

    status: int
    value: Any
    """The JSON of it; of a refusal, its problem document or None."""

    @property
    def good(self) -> bool:
        """Whether it is a success."""
        return 200 <= self.status < 300

    @property
    def detail(self) -> str:
        """What a problem document says."""
        told = self.value if isinstance(self.value, Mapping) else {}
        return printable(str(told.get("detail") or told.get("title") or ""), 200)


def quoted(part: str) -> str:
    """One segment of a path, whatever characters it has."""
    return quote(part, safe="")


class Client:
    """One server. :meth:`by` gives what asks it; any thread.

    Args:
        base: URL, checked.
        tokens: what is sent as bearer.
        clock: of deadlines, and what the server's Date is compared with.
        alarm: hears once that the clocks differ, and again when they did not in between.
        ca_file: authorities to trust in place of the system's.
    """

    def __init__(
        self,
        base: str,
        tokens: Tokens,
        clock: Clock,
        alarm: Callable[[GridawareError], None],
        *,
        ca_file: str | None = None,
    ) -> None:
        self.base = base
        self.tokens = tokens
        self.clock = clock
        self._server_clock = ServerClock(clock, alarm, "openadr3-clock-offset")
        self._ca_file = ca_file
        self._lock = threading.Lock()
        self._good: set[tuple[str, str]] = set()
        self._not_before_seconds = float("-inf")

    def by(self, seconds: float) -> "Calls":
        """Calls that are all over within ``seconds`` from now."""
        return Calls(self, self.clock.monotonic_seconds() + seconds)

    def ask(
        self, method: str, path: str, query: Query, body: object, until_seconds: float
    ) -> Reply:
        """One call; see :meth:`Calls.ask`."""
        answer = self._answer(method, path, query, body, until_seconds, self.tokens.current())
        if answer.status == 429 or answer.status == 503:
            self._told_to_wait(answer)
        return _reply(method, path, answer)

    def _answer(
        self,
        method: str,
        path: str,
        query: Query,
        body: object,
        until_seconds: float,
        token: str | None,
    ) -> Answer:
        answer = self._send(method, path, query, body, until_seconds, token)
        kind = (method, path.split("/")[1])
        # 403 is what some servers say of an expired token; where it never was otherwise, it is
        # meant, and another token would change nothing.
        expired = answer.status == 401 or (answer.status == 403 and kind in self._good)
        if expired and token is not None and self.tokens.renew(token):
            answer = self._send(method, path, query, body, until_seconds, self.tokens.current())
        if 200 <= answer.status < 300:
            self._good.add(kind)
        elif answer.status == 403:
            self._good.discard(kind)
        return answer

    def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: object,
        until_seconds: float,
        token: str | None,
    ) -> Answer:
        now = self.clock.monotonic_seconds()
        if now < self._not_before_seconds:
            raise Unavailable("openadr3-told-to-wait", "the server has asked to be left alone")
        if now >= until_seconds:
            raise TimedOut("answer-too-late", "the server took too long altogether")
        headers = {"Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        url = f"{self.base}{path}" + (f"?{urlencode(query)}" if query else "")
        answer = exchange(
            method,
            url,
            headers=headers,
            body=None if body is None else json.dumps(body).encode(),
            deadline_seconds=min(CALL_SECONDS, until_seconds - now),
            answer_bytes_at_most=ANSWER_BYTES_AT_MOST,
            ca_file=self._ca_file,
        )
        self._server_clock.compare(answer.headers, self.clock.monotonic_seconds() - now)
        return answer

    def _told_to_wait(self, answer: Answer) -> None:
        after = next((v for k, v in answer.headers.items() if k.lower() == "retry-after"), "")
        if after.isascii() and after.isdigit() and len(after) < 10:
            wait = min(float(after), RETRY_AFTER_SECONDS_AT_MOST)
            self._not_before_seconds = self.clock.monotonic_seconds() + wait


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls with one deadline for all of them."""

    client: Client
    until_seconds: float

    def ask(self, method: str, path: str, *, query: Query = (), body: object = None) -> Reply:
        """One call.

        Raises:
            Unavailable: no answer in time, or one from which nothing can be concluded.
        """
        return self.client.ask(method, path, query, body, self.until_seconds)

    def whole_list(self, path: str, query: Query = ()) -> list[Any]:
        """Every item of a list, page by page until one is empty.

        A page that is shorter than was asked for proves nothing: servers were seen that give ten.

        Raises:
            Unavailable: a page is missing, so the list is not whole.
        """
        return [item for page in self._pages(path, query) for item in page]

    def find(self, path: str, query: Query, wanted: Callable[[Any], bool]) -> Any | None:
        """The first item of a list that is ``wanted``; None = the whole list holds none.

        Raises:
            Unavailable: a page is missing.
        """
        return next(
            (item for page in self._pages(path, query) for item in page if wanted(item)), None
        )

    def _pages(self, path: str, query: Query) -> Iterator[list[Any]]:
        count = 0
        last: list[Any] = []
        for _ in range(PAGES_AT_MOST):
            paging = [("skip", str(count)), ("limit", str(PAGE))]
            reply = self.ask("GET", path, query=[*query, *paging])
            if not reply.good or not isinstance(reply.value, list):
                raise Unavailable(
                    "openadr3-refused", f"GET {path} was answered {reply.status} {reply.detail}"
                )
            if not reply.value or reply.value == last:  # or it ignores `skip`
                return
            last = reply.value
            count += len(last)
            yield last
        raise Unavailable("openadr3-endless", f"GET {path} has more than {PAGES_AT_MOST} pages")


def _reply(method: str, path: str, answer: Answer) -> Reply:
    good = 200 <= answer.status < 300
    value: Any = None
    if answer.body.strip():
        try:
            value = decoded(answer.body)
        except InvalidInput as error:
            if good:
                told = f"{method} {path} was not answered in JSON"
                raise Unavailable("openadr3-garbled", told) from error
    reply = Reply(answer.status, value)
    if good or answer.status in ACTIONABLE:
        return reply
    code = "openadr3-unauthorized" if answer.status == 401 else "openadr3-refused"
    raise Unavailable(code, f"{method} {path} was answered {answer.status} {reply.detail}".strip())
