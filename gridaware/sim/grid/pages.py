"""A server of pages, as market operators publish them: any path, any answer, any misbehaviour.

::

    with Pages() as pages:
        pages.put("/daily-prc.json", ercot_prc(at, prc_megawatts=13885))
        pages.quirks.add(PageQuirk.TOO_MANY)        # may be switched while it runs
        pages.asked[-1].headers["if-none-match"]    # what was asked, and when

A page is found by its path with the query, else by its path alone. What it answers is one
:class:`Page`, a list of them (one an answer, the last for ever), or a function of the request.
Pages carry an ETag and a Last-Modified, and are answered 304 to whoever has them already.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime, parsedate_to_datetime
from enum import StrEnum
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from gridaware.clock import Clock, SystemClock
from gridaware.sim.grid.served import Served

__all__ = ["Asked", "Page", "PageQuirk", "Pages", "ercot_prc"]

BODY_AT_MOST = 1 << 20
OVERSIZE_BYTES = 8 << 20
SLOW_SECONDS = 3.0
DRIP_SECONDS = 1.0
HALF_OPEN_SECONDS = 600.0
RETRY_AFTER_SECONDS = 30
_ERROR_PAGE = b"<html><head><title>Error</title></head><body>Request Rejected</body></html>"


class PageQuirk(StrEnum):
    """One way to misbehave, on every page; any number may be on at a time."""

    HTML_ERROR = "html-error"
    """A firewall's error page, with 200."""
    TOO_MANY = "too-many"
    """429, with a Retry-After of 30 s."""
    UNAVAILABLE = "unavailable"
    """503."""
    MOVED = "moved"
    """404 for what was there: the publisher moved it."""
    REDIRECT = "redirect"
    """302 to another path of the same server."""
    EMPTY = "empty"
    """200, and nothing."""
    TRUNCATED = "truncated"
    """The first half of the page, as if it were all."""
    OVERSIZE = "oversize"
    """The page, followed by 8 MiB of blanks."""
    SLOW = "slow"
    """Each answer takes three seconds."""
    DRIPPING = "dripping"
    """An answer comes a byte a second."""
    HALF_OPEN = "half-open"
    """A request is read, and never answered."""
    NO_CONDITIONS = "no-conditions"
    """No ETag, no Last-Modified, never 304."""
    NO_ETAG = "no-etag"
    """Last-Modified alone, as static files of CAISO have it."""


@dataclass(frozen=True, slots=True)
class Page:
    """One answer."""

    body: bytes = b""
    status: int = 200
    media: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    modified_at: datetime | None = None
    """Its Last-Modified; None = when it was put."""
    delay_seconds: float = 0.0
    """Before the answer begins."""
    drip_seconds: float = 0.0
    """Between two bytes of the body."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    """With the query."""
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    at_seconds: float
    """On the server's monotonic clock."""


Answers = Page | Sequence[Page] | Callable[[Asked], Page]


class Pages(Served):
    """One server on a free port of this machine. Use it as a context manager, or close it.

    Args:
        clock: of its Date and Last-Modified headers, and of ``asked``.
        quirks: may be changed while it runs.
    """

    def __init__(self, *, clock: Clock | None = None, quirks: Iterable[PageQuirk] = ()) -> None:
        self.clock = clock or SystemClock()
        self.quirks: set[PageQuirk] = set(quirks)
        self.asked: list[Asked] = []
        """Every request, in order."""
        self._lock = threading.Lock()
        self._answers: dict[str, Callable[[Asked], Page]] = {}
        super().__init__(type("Bound", (_Handler,), {"pages": self}))

    @property
    def url(self) -> str:
        """Its base URL."""
        return self.root_url

    def put(self, path: str, body: object, **answer: Any) -> None:
        """Publish a page: bytes, text, or anything else as JSON; other fields as in `Page`."""
        if isinstance(body, str):
            body = body.encode()
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.serve(path, Page(body, **{"modified_at": self.clock.wall(), **answer}))

    def serve(self, path: str, answers: Answers) -> None:
        """Publish what a path answers from now on."""
        with self._lock:
            self._answers[path] = _in_turn(answers)

    def remove(self, path: str) -> None:
        """Publish it no more: 404."""
        with self._lock:
            self._answers.pop(path, None)

    def asked_of(self, path: str) -> list[Asked]:
        """The requests for one path, whatever their query."""
        return [asked for asked in self.asked if urlsplit(asked.path).path == path]

    def answer(self, asked: Asked) -> Page:
        """What a request is answered, quirks left out."""
        with self._lock:
            self.asked.append(asked)
            found = self._answers.get(asked.path) or self._answers.get(urlsplit(asked.path).path)
            return Page(_ERROR_PAGE, 404, "text/html") if found is None else found(asked)


def ercot_prc(
    at: datetime,
    *,
    prc_megawatts: float,
    eea_level: int = 0,
    state: str = "normal",
    prc_as_text: bool = True,
    lines: int = 3,
) -> dict[str, Any]:
    """A page in the shape of ERCOT's ``daily-prc.json``, published at ``at``.

    ``prc_value`` is a text with a comma ("18,983") or a whole number (13885): ERCOT sends both.
    """
    central = at.astimezone(ZoneInfo("America/Chicago"))
    shown = round(prc_megawatts)
    epoch = int(at.timestamp())
    return {
        "lastUpdated": f"{central:%Y-%m-%d %H:%M:%S%z}",
        "current_condition": {
            "state": state,
            "title": "Normal Conditions" if state == "normal" else state,
            "condition_note": "",
            "eea_level": eea_level,
            "energy_level_value": eea_level,
            "prc_value": f"{shown:,}" if prc_as_text else shown,
            "datetime": epoch,
        },
        "data": [
            {
                "timestamp": f"{central:%Y-%m-%d %H:%M:%S%z}",
                "epoch": (epoch - 10 * back) * 1000,
                "prc": prc_megawatts,
            }
            for back in reversed(range(lines))
        ],
    }


def _in_turn(answers: Answers) -> Callable[[Asked], Page]:
    if isinstance(answers, Page):
        page = answers
        return lambda _: page
    if callable(answers):
        return answers
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    pages: ClassVar[Pages]
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: `Pages.asked` tells."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The Date header, of the server's own clock."""
        del timestamp
        return format_datetime(self.pages.clock.wall(), usegmt=True)

    def _serve(self) -> None:
        length = min(int(self.headers.get("Content-Length") or 0), BODY_AT_MOST)
        asked = Asked(
            self.command,
            self.path,
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(length),
            self.pages.clock.monotonic_seconds(),
        )
        page = self.pages.answer(asked)
        quirks = self.pages.quirks
        if PageQuirk.HALF_OPEN in quirks:
            time.sleep(HALF_OPEN_SECONDS)
        time.sleep(page.delay_seconds + (SLOW_SECONDS if PageQuirk.SLOW in quirks else 0.0))
        try:
            self._send(asked, _spoilt(page, quirks))
        except ConnectionError:
            self.close_connection = True  # whoever asked had enough of it

    def _send(self, asked: Asked, page: Page) -> None:
        quirks = self.pages.quirks
        headers = {} if page.status != 200 else _validators(page, quirks)
        if headers and _has_it(asked, headers):
            self._begin(304, headers)
            return
        headers |= {"Content-Type": page.media, "Content-Length": str(len(page.body))}
        self._begin(page.status, headers | dict(page.headers))
        if asked.method == "HEAD":
            return
        drip = DRIP_SECONDS if PageQuirk.DRIPPING in quirks else page.drip_seconds
        if not drip:
            self.wfile.write(page.body)
            return
        for byte in page.body:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(drip)

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _spoilt(page: Page, quirks: set[PageQuirk]) -> Page:
    """The page as the quirks have it."""
    wait = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    whole = {
        PageQuirk.HTML_ERROR: Page(_ERROR_PAGE, 200, "text/html"),
        PageQuirk.TOO_MANY: Page(_ERROR_PAGE, 429, "text/html", wait),
        PageQuirk.UNAVAILABLE: Page(_ERROR_PAGE, 503, "text/html"),
        PageQuirk.MOVED: Page(_ERROR_PAGE, 404, "text/html"),
        PageQuirk.REDIRECT: Page(b"", 302, "text/html", {"Location": "/elsewhere"}),
        PageQuirk.EMPTY: Page(b"", 200, page.media),
        PageQuirk.TRUNCATED: Page(page.body[: len(page.body) // 2], 200, page.media),
        PageQuirk.OVERSIZE: Page(page.body + b" " * OVERSIZE_BYTES, 200, page.media),
    }
    return next((instead for quirk, instead in whole.items() if quirk in quirks), page)


def _validators(page: Page, quirks: set[PageQuirk]) -> dict[str, str]:
    if PageQuirk.NO_CONDITIONS in quirks:
        return {}
    found = {}
    if PageQuirk.NO_ETAG not in quirks:
        found["ETag"] = f'"{hashlib.sha256(page.body).hexdigest()[:16]}"'
    if page.modified_at is not None:
        found["Last-Modified"] = format_datetime(page.modified_at, usegmt=True)
    return found


def _has_it(asked: Asked, validators: Mapping[str, str]) -> bool:
    """Whether the one who asks holds this very page (RFC 9110, 13.1: If-None-Match comes first)."""
    tags = asked.headers.get("if-none-match")
    if tags is not None:
        return validators.get("ETag") in {tag.strip() for tag in tags.split(",")}
    since, modified = asked.headers.get("if-modified-since"), validators.get("Last-Modified")
    if since is None or modified is None:
        return False
    try:
        return parsedate_to_datetime(modified) <= parsedate_to_datetime(since)
    except ValueError:
        return False
