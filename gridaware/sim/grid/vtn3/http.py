"""The doors of the test VTN: OAuth2, lists with pages, and every way to answer badly."""

import base64
import binascii
import json
import time
from collections.abc import Mapping
from datetime import timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from gridaware.sim.grid.vtn3.objects import KINDS, is_active, targets_match
from gridaware.sim.grid.vtn3.quirks import Quirk

if TYPE_CHECKING:
    from gridaware.sim.grid.vtn3.server import Vtn

__all__ = ["Handler"]

BODY_AT_MOST = 1 << 20
PAGE = 50
TRUNCATED_PAGE = 10
SLOW_SECONDS = 3.0
DRIP_SECONDS = 1.0
HALF_OPEN_SECONDS = 600.0
_WRITABLE = {"vens", "resources", "subscriptions", "reports"}
_BAD_EVENT = {"id": "bad", "objectType": "EVENT", "programID": 7, "intervals": {"no": "list"}}


class _Answered(Exception):
    """The answer to give at once."""

    def __init__(self, status: int, body: Any) -> None:
        self.status, self.body = status, body


def _problem(status: int, title: str) -> _Answered:
    return _Answered(status, {"type": "about:blank", "title": title, "status": status})


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    vtn: ClassVar["Vtn"]
    protocol_version = "HTTP/1.1"
    # One packet an answer: headers and body in two of them cost 40 ms of delayed acknowledgement.
    wbufsize = -1

    def do_GET(self) -> None:
        """Serve one."""
        self._serve()

    def do_POST(self) -> None:
        """Serve one."""
        self._serve()

    def do_PUT(self) -> None:
        """Serve one."""
        self._serve()

    def do_DELETE(self) -> None:
        """Serve one."""
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: `Vtn.asked` tells."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The Date header, of the server's own clock."""
        del timestamp
        now = self.vtn.clock.wall()
        if Quirk.CLOCK_OFF in self.vtn.quirks:
            now += timedelta(minutes=15)
        return format_datetime(now, usegmt=True)

    def _serve(self) -> None:
        self.vtn.asked.append((self.command, self.path))
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), BODY_AT_MOST))
        quirks = self.vtn.quirks
        if Quirk.HALF_OPEN in quirks:
            time.sleep(HALF_OPEN_SECONDS)
        if Quirk.SLOW in quirks:
            time.sleep(SLOW_SECONDS)
        if Quirk.HTML_ERRORS in quirks:
            self._send(200, b"<html><body>502 Bad Gateway</body></html>", "text/html")
            return
        try:
            status, answer = self._route(body)
        except _Answered as answered:
            status, answer = answered.status, answered.body
        self._send(status, json.dumps(answer).encode(), "application/json")

    def _send(self, status: int, body: bytes, media: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if Quirk.DRIPPING in self.vtn.quirks:
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(DRIP_SECONDS)
            return
        self.wfile.write(body)

    # Routes -----------------------------------------------------------------------------------

    def _route(self, body: bytes) -> tuple[int, Any]:
        url = urlsplit(self.path)
        parts = [part for part in url.path.split("/") if part]
        query = parse_qs(url.query)
        if parts == ["auth", "token"] and self.command == "POST":
            return 200, self._token(body)
        if parts == ["auth", "server"] and self.command == "GET":
            if Quirk.NO_AUTH_SERVER in self.vtn.quirks or not self.vtn.is_31:
                raise _problem(404, "Not Found")
            return 200, {"tokenURL": f"{self.vtn.url}/auth/token"}
        client = self._client()
        if parts[:1] == ["notifiers"] and self.vtn.is_31:
            return 200, self._notifiers(parts[1:])
        return self._objects(parts, query, client, body)

    def _token(self, body: bytes) -> Any:
        basic = self.headers.get("Authorization", "")
        if Quirk.BASIC_TOKENS in self.vtn.quirks:
            try:
                pair = base64.b64decode(basic.removeprefix("Basic "), validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                pair = ""
            client, _, secret = pair.partition(":")
        else:
            form = parse_qs(body.decode("utf-8", "replace"))
            client = form.get("client_id", [""])[0]
            secret = form.get("client_secret", [""])[0]
        if not client or self.vtn.clients.get(client) != secret:
            raise _problem(401, "invalid_client")
        return self.vtn.grant(client)

    def _client(self) -> str:
        if Quirk.ANONYMOUS in self.vtn.quirks:
            return "anybody"
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer":
            raise _problem(401, "Unauthorized")
        client = self.vtn.client_of(token)
        if client is None:
            raise _problem(403 if Quirk.EXPIRED_IS_403 in self.vtn.quirks else 401, "Forbidden")
        return client

    def _notifiers(self, parts: list[str]) -> Any:
        if not parts:
            told: dict[str, Any] = {"WEBHOOK": True}
            if self.vtn.mqtt_uri:
                told["MQTT"] = {
                    "URIS": [self.vtn.mqtt_uri],
                    "serialization": "JSON",
                    "authentication": {"method": "ANONYMOUS"},
                }
            return told
        # /notifiers/mqtt/topics/{events | programs | vens/{id}/events ...}
        if not self.vtn.mqtt_uri or parts[:2] != ["mqtt", "topics"] or len(parts) < 3:
            raise _problem(404, "Not Found")
        kind = parts[-1]
        if parts[2] != "vens":
            raise _problem(403, "Forbidden")  # the global ones are not for a VEN
        verbs = {"CREATE": "create", "UPDATE": "update", "DELETE": "delete"}
        topics = {verb: f"{kind}/{word}" for verb, word in verbs.items()}
        return {"topics": topics | {"ALL": f"{kind}/all"}}

    def _objects(
        self, parts: list[str], query: Mapping[str, list[str]], client: str, body: bytes
    ) -> tuple[int, Any]:
        owner_ven = None
        if len(parts) >= 3 and parts[0] == "vens" and parts[2] == "resources":
            owner_ven, parts = parts[1], parts[2:]  # the path of 3.0.1
        if not parts or parts[0] not in KINDS or len(parts) > 2:
            raise _problem(404, "Not Found")
        kind = parts[0]
        if self.command == "POST" and len(parts) == 1:
            return self._create(kind, client, body, owner_ven)
        if self.command == "GET" and len(parts) == 1:
            return 200, self._list(kind, query, client, owner_ven)
        stored = self.vtn.stored(kind, parts[-1]) if len(parts) == 2 else None
        if stored is None or stored.owner not in {"", client}:
            raise _problem(404, "Not Found")
        if self.command == "GET":
            return 200, stored.body
        if stored.owner != client:
            raise _problem(403, "Forbidden")
        if self.command == "PUT":
            with self.vtn.lock:
                return 200, self.vtn.objects.change(kind, parts[1], self._json(body))
        if kind == "reports" and Quirk.FORBIDS_DELETE_REPORT in self.vtn.quirks:
            raise _problem(403, "Forbidden")
        with self.vtn.lock:
            return 200, self.vtn.objects.remove(kind, parts[1])

    def _create(
        self, kind: str, client: str, body: bytes, owner_ven: str | None
    ) -> tuple[int, Any]:
        if kind not in _WRITABLE:
            raise _problem(403, "Forbidden")
        given = self._json(body)
        if owner_ven is not None:
            given["venID"] = owner_ven
        name = {"vens": "venName", "resources": "resourceName"}.get(kind)
        if name is not None:
            for known in self.vtn.kept(kind):
                same = known.get("venID") == given.get("venID")
                if known.get(name) == given.get(name) and same:
                    raise _problem(409, "Conflict")
        made = self.vtn.add_of_client(kind, given, client)
        if Quirk.STORES_THEN_500 in self.vtn.quirks:
            raise _problem(500, "Internal Server Error")
        return 201, made

    def _list(
        self, kind: str, query: Mapping[str, list[str]], client: str, owner_ven: str | None
    ) -> list[Any]:
        quirks = self.vtn.quirks
        if Quirk.SCOPE_LOST in quirks:
            return []
        with self.vtn.lock:
            found = [
                stored.body
                for stored in self.vtn.objects.of(kind)
                if stored.owner in {"", client} and targets_match(stored.body, query)
            ]
        if owner_ven is not None:
            found = [body for body in found if body.get("venID") == owner_ven]
        for key, field in (("programID", "programID"), ("venName", "venName"), ("venID", "venID")):
            if key in query:
                found = [body for body in found if str(body.get(field)) == query[key][0]]
        if (
            kind == "events"
            and query.get("active") == ["true"]
            and Quirk.IGNORES_ACTIVE not in quirks
        ):
            found = [body for body in found if is_active(body, self.vtn.clock.wall())]
        return self._page(kind, found, query)

    def _page(self, kind: str, found: list[Any], query: Mapping[str, list[str]]) -> list[Any]:
        quirks = self.vtn.quirks
        skip = int(query.get("skip", ["0"])[0])
        limit = min(int(query.get("limit", [str(PAGE)])[0]), PAGE)
        if Quirk.TRUNCATES_PAGES in quirks:
            limit = min(limit, TRUNCATED_PAGE)
        if skip and Quirk.BROKEN_PAGE in quirks:
            raise _problem(500, "Internal Server Error")
        page = found[skip : skip + limit]
        if kind == "events":
            if Quirk.ONE_BAD_EVENT in quirks and not skip:
                page = [_BAD_EVENT, *page]
            if Quirk.STRINGS_FOR_NUMBERS in quirks:
                page = [_with_strings(event) for event in page]
        return page

    def _json(self, body: bytes) -> dict[str, Any]:
        try:
            given = json.loads(body)
        except ValueError:
            raise _problem(400, "Bad Request") from None
        if not isinstance(given, dict):
            raise _problem(400, "Bad Request")
        if Quirk.REFUSES_NULLS in self.vtn.quirks and None in given.values():
            raise _problem(400, "Bad Request")
        return given


def _with_strings(value: Any) -> Any:
    """The same event with its payloads' numbers as strings, which the schema lets pass."""
    if isinstance(value, dict):
        return {
            key: [
                str(v) if isinstance(v, int | float) and not isinstance(v, bool) else v
                for v in item
            ]
            if key == "values" and isinstance(item, list)
            else _with_strings(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_with_strings(item) for item in value]
    return value
