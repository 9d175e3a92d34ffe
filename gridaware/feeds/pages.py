"""Pages of a publisher, asked as rarely as it wants: with conditions, bounded, once for all feeds.

Publishers of public data block whoever asks too often, by address. So a page is asked no faster
than its publisher's rate, whatever polls it, and feeds that read the same page share what came:
two feeds on one dashboard (a feed speaks for one programme) cost its publisher one request.

What a publisher answers in error never becomes data: a page counts once it could be read, and its
ETag is kept only then, or an error page served with 200 would be confirmed by 304 for ever.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar
from weakref import WeakKeyDictionary

from gridaware.clock import Clock
from gridaware.domain.errors import InvalidInput, Unavailable
from gridaware.feeds.http import Answer, exchange, host_of

__all__ = ["PublishedPage", "Rate", "Read", "page_of"]

BYTES_AT_MOST = 8 << 20
DEADLINE_SECONDS = 10.0
TOO_MANY_SECONDS = 60.0
FORBIDDEN_SECONDS = 300.0
WAIT_SECONDS_AT_MOST = 3600.0
GONE_SECONDS = 300.0
"""A page that nobody wanted for so long waits no more."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rate:
    """How often a publisher lets itself be asked; pages of one rate are counted together."""

    name: str
    least_seconds: float
    """Between two requests."""


@dataclass(frozen=True, slots=True)
class Read:
    """A page as it is published now."""

    body: bytes
    received_at: datetime
    """When it came, or was last confirmed to be the present one."""
    received_seconds: float
    modified_at: datetime | None
    """By the publisher's Last-Modified, where it says so."""


class PublishedPage:
    """One page; any thread. Made by :func:`page_of`."""

    def __init__(
        self,
        clock: Clock,
        url: str,
        asking: "_Asking",
        headers: Mapping[str, str],
        deadline_seconds: float,
    ) -> None:
        self._clock = clock
        self._name = self._url = url
        self._asking = asking
        self._headers = dict(headers)
        self._deadline_seconds = deadline_seconds
        self._lock = threading.Lock()
        self._read: Read | None = None
        self._validators: dict[str, str] = {}
        self._failure: Unavailable | None = None

    def aim(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        """Ask there, and so, from now on: its window has moved, or its token was renewed."""
        sent = {**self._headers, **(headers or {})}
        with self._lock:
            if (url, sent) != (self._url, self._headers):
                self._url, self._headers, self._validators = url, sent, {}

    def read(self, understand: Callable[[Read], T]) -> T:
        """The page as ``understand`` reads it: asked for now, or the one that came lately.

        Raises:
            Unavailable: it did not answer as it should, or not since it may be asked again.
        """
        with self._lock:
            if self._asking.may_ask(self._name, self._clock.monotonic_seconds()):
                self._ask()
            if self._failure is not None:
                raise self._failure
            if self._read is None:
                raise Unavailable(
                    "page-asked-lately", f"{host_of(self._url)} was asked a moment ago"
                )
            try:
                return understand(self._read)
            except (InvalidInput, RecursionError, ArithmeticError) as error:
                self._validators = {}  # or it would be confirmed by 304 for ever
                raise Unavailable("page-garbled", f"{host_of(self._url)}: {error}") from None

    def _ask(self) -> None:
        clock = self._clock
        now, seconds = clock.wall(), clock.monotonic_seconds()
        headers = self._headers | (self._validators if self._read is not None else {})
        try:
            answer = exchange(
                "GET",
                self._url,
                headers=headers,
                deadline_seconds=self._deadline_seconds,
                answer_bytes_at_most=BYTES_AT_MOST,
            )
            self._failure = None
            if answer.status == 304 and self._read is not None:
                self._read = replace(self._read, received_at=now, received_seconds=seconds)
                return
            self._check(answer, now, seconds)
        except Unavailable as error:
            self._failure = error
            return
        head = {name.lower(): value for name, value in answer.headers.items()}
        self._read = Read(answer.body, now, seconds, _http_date(head.get("last-modified")))
        self._validators = {
            condition: head[validator]
            for validator, condition in (
                ("etag", "If-None-Match"),
                ("last-modified", "If-Modified-Since"),
            )
            if validator in head
        }

    def _check(self, answer: Answer, now: datetime, seconds: float) -> None:
        """Refuse what is no page.

        Raises:
            Unavailable: with a code that names what to do.
        """
        status, host = answer.status, host_of(self._url)
        if status == 200:
            return
        if status == 429:
            wait = _retry_after(answer, now, TOO_MANY_SECONDS)
            self._asking.wait(seconds + wait)
            raise Unavailable("page-too-often", f"{host} wants to be left alone for {wait:.0f} s")
        if status in {401, 403}:
            self._asking.wait(seconds + _retry_after(answer, now, FORBIDDEN_SECONDS))
            raise Unavailable("page-forbidden", f"{host} answered {status}")
        if status in {301, 302, 303, 307, 308, 404, 410}:
            raise Unavailable("page-moved", f"{host} answered {status}: the page is not there")
        self._asking.wait(seconds + _retry_after(answer, now, 0.0))
        raise Unavailable("page-unavailable", f"{host} answered {status}")


@dataclass(slots=True)
class _Asking:
    """When a publisher was asked last, when it may be asked again, and who is next."""

    rate: Rate
    _not_before: float = float("-inf")
    _waiting: dict[str, float] = field(default_factory=dict)
    """Pages in the order in which they began to wait, and when each wanted to be asked last."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def may_ask(self, name: str, seconds: float) -> bool:
        """Whether to ask for a page now; the answer yes is used up. Pages take turns."""
        with self._lock:
            self._waiting[name] = seconds
            if seconds < self._not_before:
                return False
            gone = seconds - max(GONE_SECONDS, 4 * self.rate.least_seconds)
            self._waiting = {page: at for page, at in self._waiting.items() if at > gone}
            if next(iter(self._waiting)) != name:
                return False
            del self._waiting[name]
            self._not_before = seconds + self.rate.least_seconds
            return True

    def wait(self, until_seconds: float) -> None:
        """Ask no sooner than that."""
        with self._lock:
            self._not_before = max(self._not_before, until_seconds)


@dataclass(slots=True)
class _Known:
    """What the feeds of one process share."""

    askings: dict[str, _Asking] = field(default_factory=dict)
    pages: dict[tuple[str, tuple[tuple[str, str], ...]], PublishedPage] = field(
        default_factory=dict
    )


_KNOWN: "WeakKeyDictionary[Clock, _Known]" = WeakKeyDictionary()
"""By the clock of the process: each test has one of its own."""
_LOCK = threading.Lock()


def page_of(
    clock: Clock,
    url: str,
    rate: Rate,
    headers: Mapping[str, str] | None = None,
    deadline_seconds: float | None = None,
) -> PublishedPage:
    """The page at ``url``, shared with every feed of this process that reads it.

    Args:
        clock: of the process.
        url: with its query.
        rate: of its publisher; where two feeds name one rate differently, the slower one holds.
        headers: sent with each request, such as a key.
        deadline_seconds: for a whole answer; None = 10 s.
    """
    sent = {"Accept": "application/json", **(headers or {})}
    key = (url, tuple(sorted(sent.items())))
    with _LOCK:
        known = _KNOWN.setdefault(clock, _Known())
        asking = known.askings.setdefault(rate.name, _Asking(rate))
        if rate.least_seconds > asking.rate.least_seconds:
            asking.rate = rate
        if key not in known.pages:
            wait = DEADLINE_SECONDS if deadline_seconds is None else deadline_seconds
            known.pages[key] = PublishedPage(clock, url, asking, sent, wait)
        return known.pages[key]


def _http_date(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _retry_after(answer: Answer, now: datetime, otherwise: float) -> float:
    """Seconds that the publisher wants to be left alone (RFC 9110, 10.2.3)."""
    text = next((v for k, v in answer.headers.items() if k.lower() == "retry-after"), "")
    if text.isascii() and text.isdigit() and len(text) < 10:
        wait = float(text)
    else:
        at = _http_date(text)
        wait = otherwise if at is None else (at - now).total_seconds()
    return min(max(wait, 0.0), WAIT_SECONDS_AT_MOST)
