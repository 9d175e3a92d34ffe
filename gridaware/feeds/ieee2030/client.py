"""Asks an IEEE 2030.5 server: its own host alone, bounded, within one deadline, whole lists only.

From an answer that is late, cut off, not XML or not a success nothing is concluded: it raises. A
link that leads elsewhere is not followed, so our certificate is shown to nobody else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

from gridaware.clock import Clock
from gridaware.domain.errors import InvalidInput, TimedOut, Unavailable
from gridaware.domain.eventjson import printable
from gridaware.feeds.http import Answer, ClientIdentity, exchange
from gridaware.feeds.ieee2030.numbers import whole
from gridaware.feeds.ieee2030.xml import BYTES_AT_MOST, SEP, Element, read_xml

__all__ = ["MEDIA", "Calls", "Client", "Page", "Reply"]

MEDIA = "application/sep+xml"
CALL_SECONDS = 5.0
PAGE = 100
PAGES_AT_MOST = 100
HREF_AT_MOST = 1000


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, and when it was asked for and had."""

    status: int
    body: bytes
    location: str
    sent_at: datetime
    answered_at: datetime

    @property
    def good(self) -> bool:
        """Whether it is a success."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Page:
    """A whole list."""

    items: tuple[Element, ...]
    poll_seconds: int | None
    """How often the server wants it asked for, as far as it says."""


class Client:
    """One server; any thread. :meth:`by` gives what asks it."""

    def __init__(
        self, url: str, clock: Clock, identity: ClientIdentity | None, ca_file: str | None
    ) -> None:
        self.url = url
        self.clock = clock
        self._identity = identity
        self._ca_file = ca_file

    def by(self, seconds: float) -> "Calls":
        """Calls that are all over within ``seconds`` from now."""
        return Calls(self, self.clock.monotonic_seconds() + seconds)

    def resolve(self, href: str) -> str:
        """The URL that a link of this server leads to.

        Raises:
            Unavailable: it leads to another one (``ieee2030-elsewhere``).
        """
        try:
            url = urljoin(self.url, href)
            same = _origin(url) == _origin(self.url) and href.isprintable()
        except ValueError:
            same = False
        if not same or len(href) > HREF_AT_MOST:
            told = f"the link {printable(href)!r} leads away from the server"
            raise Unavailable("ieee2030-elsewhere", told)
        return url

    def send(self, method: str, url: str, body: bytes | None, deadline_seconds: float) -> Answer:
        """One exchange."""
        headers = {"Accept": MEDIA}
        if body is not None:
            headers["Content-Type"] = MEDIA
        return exchange(
            method,
            url,
            headers=headers,
            body=body,
            deadline_seconds=deadline_seconds,
            answer_bytes_at_most=BYTES_AT_MOST,
            ca_file=self._ca_file,
            identity=self._identity,
        )


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls with one deadline for all of them."""

    client: Client
    until_seconds: float

    def ask(self, method: str, href: str, body: bytes | None = None) -> Reply:
        """One call.

        Raises:
            Unavailable: no answer in time, or the link leads elsewhere.
        """
        clock = self.client.clock
        url = self.client.resolve(href)
        left = self.until_seconds - clock.monotonic_seconds()
        if left <= 0:
            raise TimedOut("answer-too-late", "the server took too long altogether")
        sent_at = clock.wall()
        answer = self.client.send(method, url, body, min(CALL_SECONDS, left))
        location = next((v for k, v in answer.headers.items() if k.lower() == "location"), "")
        return Reply(answer.status, answer.body, location, sent_at, clock.wall())

    def get(self, href: str, name: str) -> Element:
        """The resource of that name.

        Raises:
            Unavailable: it was not had (``ieee2030-refused``), or is something else
                (``ieee2030-xml``, ``ieee2030-namespace``).
        """
        return self.read(self.ask("GET", href), href, name)

    def read(self, reply: Reply, href: str, name: str) -> Element:
        """What an answer holds; see :meth:`get`."""
        shown = printable(href)
        if reply.status != 200:
            raise Unavailable("ieee2030-refused", f"GET {shown} was answered {reply.status}")
        try:
            root = read_xml(reply.body)
        except InvalidInput as error:
            raise Unavailable(error.code, f"{shown}: {error.message}") from error
        if root.space != SEP:
            told = f"{shown}: the vocabulary {printable(root.space)!r} is not known"
            raise Unavailable("ieee2030-namespace", told)
        if root.name != name:
            told = f"{shown}: it is a {printable(root.name)}, not a {name}"
            raise Unavailable("ieee2030-xml", told)
        return root

    def whole_list(
        self,
        href: str,
        name: str,
        wanted: Callable[[Element], bool] | None = None,
    ) -> Page:
        """Every item of a list, page by page; where one is ``wanted`` it ends with that.

        Raises:
            Unavailable: the list is not whole (``ieee2030-truncated``), or was not had.
        """
        items: list[Element] = []
        seen: set[str] = set()
        rates: list[int] = []
        for _ in range(PAGES_AT_MOST):
            root = self.get(_paged(href, len(items)), name)
            page = list(root.all(name.removesuffix("List")))
            total, results = _count(root, "all"), _count(root, "results")
            if results != len(page):
                raise _truncated(href, f"a page says {results} and holds {len(page)}")
            if root.attributes.get("pollRate", "").isdecimal():
                rates.append(int(root.attributes["pollRate"][:9]))
            for each in page:
                items.append(each)
                if wanted is not None and wanted(each):
                    return Page((each,), None)
            marks = {each.attributes.get("href") or str(id(each)) for each in page}
            if marks & seen:
                raise _truncated(href, "an item is listed twice: it changed, or pages repeat")
            seen |= marks
            if len(items) == total:
                return Page(() if wanted else tuple(items), min(rates, default=None))
            if not page or len(items) > total:
                raise _truncated(href, f"it says {total} and holds {len(items)}")
        raise _truncated(href, f"it has more than {PAGES_AT_MOST} pages")


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, parts.hostname or "", port


def _paged(href: str, start: int) -> str:
    parts = urlsplit(href)
    query = [(k, v) for k, v in parse_qsl(parts.query) if k not in {"s", "l"}]
    asked = urlencode([*query, ("s", str(start)), ("l", str(PAGE))])
    return urlunsplit(parts._replace(query=asked))


def _count(root: Element, attribute: str) -> int:
    text = Element(SEP, attribute, {}, [root.attributes.get(attribute, "")])
    try:
        return whole(text, 0, 2**32 - 1)
    except InvalidInput:
        raise _truncated(root.name, f"it does not say {attribute}") from None


def _truncated(href: str, why: str) -> Unavailable:
    return Unavailable("ieee2030-truncated", f"{printable(href)}: {why}")
