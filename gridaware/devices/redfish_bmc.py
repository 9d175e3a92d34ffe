"""A Redfish service (a BMC) with its sign-in, its errors and nothing of what is behind it.

TLS always, against a CA that the settings name: BMCs sign their own certificates, so theirs may be
that CA. Sign-in is by session (DSP0266 §13: a token that is renewed when it has run out and deleted
at the end) or, where a BMC has no session service, by basic authentication.
"""

import base64
import contextlib
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from gridaware.clock import Clock, SystemClock
from gridaware.devices.jsonhttp import Answer, JsonHttp, tls
from gridaware.devices.options import absolute_path, choice, needed, positive, secret_from
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceHung,
    DeviceLost,
    DeviceNoPermission,
    DeviceNotSupported,
    DeviceOutOfRange,
    DriverGone,
    GridawareError,
    InvalidInput,
    TimedOut,
    Unavailable,
)

__all__ = ["OPTIONS", "Bmc", "Resource", "bmc_from", "number_of"]

OPTIONS: Final[Mapping[str, str]] = {
    "address": "`https://host[:port]` of the BMC; an IP address needs no name server",
    "ca": "absolute path of the CA (or of the BMC's own certificate) in PEM",
    "server_name": "the name to expect in its certificate; default: the host of `address`",
    "name_check": "`yes` (default) or `no`: `ca` is the BMC's own certificate, which names nothing",
    "username": "whom to sign in as",
    "password_file": "absolute path of a file whose first line is the password",
    "sign_in": "`session` (default) or `basic`",
    "call_seconds": "how long one exchange may take; default 5",
}
CALL_SECONDS: Final = 5.0
SESSIONS: Final = "/redfish/v1/SessionService/Sessions"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as it was read."""

    path: str
    body: Mapping[str, object]
    etag: str | None
    allows: frozenset[str] | None
    """Methods of its ``Allow`` header; None where it has none."""

    def part(self, name: str) -> Mapping[str, object]:
        """An object within it; empty where it is missing or something else."""
        value = self.body.get(name)
        return value if isinstance(value, dict) else {}

    def text(self, name: str) -> str:
        """A text in it; empty where it is missing or something else."""
        value = self.body.get(name)
        return value if isinstance(value, str) else ""

    def link(self, name: str) -> str | None:
        """Where a reference in it leads."""
        return _link(self.body.get(name))

    def members(self) -> list[str]:
        """Where the members of a collection are."""
        members = self.body.get("Members")
        found = [_link(member) for member in members] if isinstance(members, list) else []
        return [path for path in found if path is not None]


def bmc_from(options: Mapping[str, str], name: str) -> "Bmc":
    """The BMC that the options name; nothing is asked yet.

    Raises:
        ConfigError: an option is missing or malformed, or a file cannot be read.
    """
    parts = urlsplit(needed(options, "address", name))
    try:
        port = parts.port or 443
    except ValueError as error:
        raise ConfigError(f"{name}-options", f"{name}: {error}") from error
    if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.username:
        raise ConfigError(f"{name}-options", f"{name}: address must be https://host[:port]")
    ca = absolute_path(needed(options, "ca", name), "ca", name)
    try:
        context = ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{name}-options", f"{name}: cannot use {ca}: {error}") from error
    context.check_hostname = choice(options, "name_check", ("yes", "no"), name) == "yes"
    secret = absolute_path(needed(options, "password_file", name), "password_file", name)
    clock = SystemClock()
    connect = tls(parts.hostname, port, context, options.get("server_name") or parts.hostname)
    seconds = positive(options, "call_seconds", CALL_SECONDS, name)
    return Bmc(
        JsonHttp(connect, parts.netloc, clock, seconds),
        needed(options, "username", name),
        secret_from(secret, name),
        clock,
        sessions=choice(options, "sign_in", ("session", "basic"), name) == "session",
    )


class Bmc:
    """Reads and patches resources, signed in.

    Args:
        http: the exchange with it.
        username: whom to sign in as.
        password: with what.
        clock: for whoever stamps what was read.
        sessions: sign in by a session; else by basic authentication.
    """

    def __init__(
        self, http: JsonHttp, username: str, password: str, clock: Clock, *, sessions: bool = True
    ) -> None:
        self.clock = clock
        self.seconds = http.seconds
        """How long one exchange may take."""
        self._http = http
        self._username = username
        self._password = password
        self._sessions = sessions
        self._signing = threading.Lock()
        self._session: tuple[str, str] | None = None
        """Token, and where to delete it."""

    def close(self) -> None:
        """Sign out and hang up."""
        with self._signing:
            session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(GridawareError):
                self._http.ask("DELETE", session[1], headers={"X-Auth-Token": session[0]})
        self._http.close()

    def get(self, path: str) -> Resource:
        """Read a resource.

        Raises:
            DeviceError: of the kind that :func:`refusal` says.
        """
        answer = self._signed("GET", path, None, {})
        if answer.status != 200:
            raise refusal(answer, f"GET {path}")
        if not isinstance(answer.body, dict):
            raise DeviceError("redfish-answer", f"BMC: {path} is no resource")
        allow = answer.headers.get("allow")
        allows = None if allow is None else frozenset(m.strip().upper() for m in allow.split(","))
        body = answer.body
        etag = answer.headers.get("etag") or body.get("@odata.etag")
        return Resource(path, body, etag if isinstance(etag, str) else None, allows)

    def patch(self, resource: Resource, change: Mapping[str, object]) -> None:
        """Change a resource as it was read; one that has changed meanwhile is read once more.

        Raises:
            DeviceError: of the kind that :func:`refusal` says.
        """
        for last in (False, True):
            headers = {} if resource.etag is None else {"If-Match": resource.etag}
            answer = self._signed("PATCH", resource.path, change, headers)
            if answer.status == 412 and not last:
                resource = self.get(resource.path)
                continue
            if answer.status not in {200, 202, 204}:
                raise refusal(answer, f"PATCH {resource.path}")
            return

    def _signed(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> Answer:
        """An exchange, once more with a new session where the old one has run out."""
        signed = self._sign_in()
        answer = self._exchange(method, path, body, {**headers, **signed})
        if answer.status == 401 and self._sessions:
            answer = self._exchange(method, path, body, {**headers, **self._sign_in(signed)})
        return answer

    def _sign_in(self, stale: Mapping[str, str] | None = None) -> Mapping[str, str]:
        """The header that says who we are; a new one where ``stale`` is the present one."""
        if not self._sessions:
            pair = f"{self._username}:{self._password}".encode()
            return {"Authorization": "Basic " + base64.b64encode(pair).decode()}
        with self._signing:
            if self._session is None or (stale or {}).get("X-Auth-Token") == self._session[0]:
                self._session = self._new_session()
            return {"X-Auth-Token": self._session[0]}

    def _new_session(self) -> tuple[str, str]:
        who = {"UserName": self._username, "Password": self._password}
        answer = self._exchange("POST", SESSIONS, who, {})
        token = answer.headers.get("x-auth-token")
        if answer.status not in {200, 201} or not token:
            if answer.status < 400:
                raise DeviceNotSupported("redfish-answer", "BMC: gave no session token")
            raise refusal(answer, "sign-in")
        place = urlsplit(answer.headers.get("location", SESSIONS))
        return token, place.path

    def _exchange(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> Answer:
        try:
            return self._http.ask(method, path, body, headers)
        except TimedOut as error:
            raise DeviceHung("device-hung", f"BMC: {error.message}") from error
        except Unavailable as error:
            raise DriverGone("redfish-unreachable", f"BMC: {error.message}") from error
        except InvalidInput as error:
            raise DeviceError("redfish-answer", f"BMC: {error.message}") from error


def refusal(answer: Answer, call: str) -> DeviceError:
    """The error for a status that is no success, with the BMC's own words."""
    kind, code = _KINDS.get(answer.status, (DeviceError, "redfish-failed"))
    words = f"BMC: answers {answer.status} to {call}"
    said = _message(answer.body)
    return kind(code, f"{words}: {said}" if said else words, status=answer.status)


_KINDS: Final[dict[int, tuple[type[DeviceError], str]]] = {
    400: (DeviceOutOfRange, "device-out-of-range"),
    401: (DeviceNoPermission, "redfish-refused"),
    403: (DeviceNoPermission, "redfish-refused"),
    404: (DeviceLost, "device-lost"),
    405: (DeviceNotSupported, "device-not-supported"),
    412: (DeviceHung, "device-timeout"),
    501: (DeviceNotSupported, "device-not-supported"),
    503: (DeviceHung, "device-timeout"),
}


def number_of(value: object) -> float | None:
    """A reading: a number, or a sensor excerpt with a ``Reading``; None for anything else."""
    if isinstance(value, dict):
        value = value.get("Reading")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _message(body: object) -> str:
    """What a Redfish error says for people (DSP0266 §8.6)."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return ""
    details = error.get("@Message.ExtendedInfo")
    if isinstance(details, list) and details and isinstance(details[0], dict):
        error = {"message": details[0].get("Message")}
    said = error.get("message")
    return " ".join(said.split())[:200] if isinstance(said, str) else ""


def _link(value: object) -> str | None:
    """A reference, as far as it stays on this service."""
    path = value.get("@odata.id") if isinstance(value, dict) else None
    if not isinstance(path, str) or not path.startswith("/redfish/") or not path.isprintable():
        return None
    return None if " " in path else path
