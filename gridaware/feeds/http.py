"""One HTTP exchange with a total deadline, for every feed kind that speaks HTTP.

The time-outs of ``requests`` bound each single read, so a peer that sends a byte now and then holds
a caller for ever. Here the connection itself is cut when the deadline is over. What remains
unbounded is the resolver's own look-up of the name.
"""

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError
from urllib3.util.ssl_ import create_urllib3_context

from gridaware.domain.errors import ConfigError, TimedOut, Unavailable

__all__ = ["Answer", "ClientIdentity", "exchange", "host_of", "identity_from", "is_loopback"]

CONNECT_SECONDS = 2.0
READ_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Who we are to a server that asks for a certificate: paths of two PEM files."""

    certificate_file: str
    key_file: str
    ciphers: str | None = None
    """Of TLS 1.2, as OpenSSL writes them; None = those that today's libraries offer."""
    server_digest: str | None = None
    """Beginning of the SHA-256 of the server's certificate, hexadecimal: its certificate is
    compared with that, after who signed it, and its names are not."""


def identity_from(certificate_file: str, key_file: str) -> ClientIdentity:
    """The identity in two files, which are read once to see that they belong together.

    Raises:
        ConfigError: one is absent, is no PEM, or the key is another certificate's
            (``client-certificate``).
    """
    try:
        # A key behind a password would ask for it on the terminal, and wait.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
            certificate_file, key_file, password=""
        )
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, FileNotFoundError) else error
        raise ConfigError(
            "client-certificate", f"the certificate and key cannot be used: {said}"
        ) from None
    return ClientIdentity(certificate_file, key_file)


def exchange(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    deadline_seconds: float = 10.0,
    answer_bytes_at_most: int = 1 << 20,
    ca_file: str | None = None,
    identity: ClientIdentity | None = None,
) -> Answer:
    """Send one request and read the whole answer; redirects are not followed.

    A certificate is always verified: by the system's authorities, or by those of ``ca_file``.
    ``identity`` is shown to a server that asks for one (mutual TLS).

    Raises:
        TimedOut: the deadline passed (``answer-too-late``).
        Unavailable: no connection, or an answer that breaks off or is too large; one side does not
            trust the other's certificate (``peer-certificate``).
    """
    guard = _Guard()
    timer = threading.Timer(deadline_seconds, guard.cut)
    timer.daemon = True
    timer.start()
    try:
        with requests.Session() as session:
            # A proxy must not stand between two processes of one machine.
            session.trust_env = not is_loopback(url)
            if ca_file is not None:
                session.verify = ca_file
            if identity is not None:
                session.cert = (identity.certificate_file, identity.key_file)
            session.mount("http://", _GuardedAdapter(guard))
            session.mount("https://", _GuardedAdapter(guard, identity))
            with session.request(
                method,
                url,
                data=body,
                headers=dict(headers or {}),
                timeout=(min(CONNECT_SECONDS, deadline_seconds), READ_SECONDS),
                allow_redirects=False,
                stream=True,
            ) as response:
                content = _read(response, answer_bytes_at_most)
        if guard.is_cut:  # headers that were cut off look complete to http.client
            raise _late(url, deadline_seconds)
        return Answer(response.status_code, dict(response.headers), content)
    except (requests.RequestException, HTTPError, OSError, ValueError) as error:
        if guard.is_cut:
            raise _late(url, deadline_seconds) from None
        if (said := _tls_fault(error)) is not None:
            raise Unavailable("peer-certificate", f"{host_of(url)}: {said}") from error
        raise Unavailable("peer-unreachable", f"{host_of(url)}: {_told(error)}") from error
    finally:
        timer.cancel()
        guard.close()


def host_of(url: str) -> str:
    """The host that ``url`` names, or an empty string."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback(url: str) -> bool:
    """Whether ``url`` leads to this machine by its very name."""
    host = host_of(url)
    return host in {"localhost", "::1"} or (
        host.startswith("127.") and all(part.isdigit() for part in host.split("."))
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what is behind it: requests and urllib3 wrap one another's in three ways."""
    seen: object = error
    while isinstance(seen, BaseException):
        yield seen
        inner = getattr(seen, "reason", None) or (seen.args[0] if seen.args else None)
        seen = inner if isinstance(inner, BaseException) else seen.__cause__


def _tls_fault(error: BaseException) -> str | None:
    """What TLS said, where it is what failed: a refusal of ours, or an alert of the peer's."""
    for seen in _chain(error):
        if isinstance(seen, ssl.SSLCertVerificationError):
            said = getattr(seen, "verify_message", "") or str(seen)
            return f"its certificate is not trusted: {said}"
        if isinstance(seen, ssl.SSLError) and "ALERT" in (seen.reason or ""):
            return f"it ended the handshake: {(seen.reason or '').lower().replace('_', ' ')}"
    return None


def _told(error: BaseException) -> str:
    """What the system said of a connection, such as that it was refused; else the error's kind."""
    said = [seen.strerror for seen in _chain(error) if isinstance(seen, OSError) and seen.strerror]
    return said[-1] if said else type(error).__name__


def _late(url: str, deadline_seconds: float) -> TimedOut:
    return TimedOut(
        "answer-too-late", f"{host_of(url)} did not answer within {deadline_seconds:g} s"
    )


def _read(response: requests.Response, at_most: int) -> bytes:
    chunks = []
    size = 0
    for chunk in response.iter_content(64 * 1024):
        size += len(chunk)
        if size > at_most:
            raise Unavailable("answer-too-large", f"the answer has more than {at_most} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


class _Guard:
    """Holds a second handle on each socket of an exchange, to shut it down from a timer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.is_cut = False

    def hold(self, connected: socket.socket) -> socket.socket:
        with self._lock:
            # TLS takes the descriptor out of the socket object; a duplicate stays ours.
            self._sockets.append(connected.dup())
            if self.is_cut:
                connected.shutdown(socket.SHUT_RDWR)
        return connected

    def cut(self) -> None:
        with self._lock:
            self.is_cut = True
            for held in self._sockets:
                try:
                    held.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the peer closed it first

    def close(self) -> None:
        with self._lock:
            for held in self._sockets:
                held.close()
            self._sockets.clear()


class _GuardedAdapter(HTTPAdapter):
    """Opens connections whose sockets are known to the guard."""

    def __init__(self, guard: _Guard, identity: ClientIdentity | None = None) -> None:
        self._guard = guard
        self._identity = identity
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        identity, digest = self._identity, ""
        if identity is not None and identity.ciphers is not None:
            kwargs["ssl_context"] = create_urllib3_context(ciphers=identity.ciphers)
        if identity is not None and identity.server_digest is not None:
            kwargs["assert_hostname"] = False
            digest = identity.server_digest.lower()
        super().init_poolmanager(*args, **kwargs)
        guard = self._guard

        class Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                return guard.hold(super()._new_conn())

        class Secure(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                return guard.hold(super()._new_conn())

            def connect(self) -> None:
                super().connect()
                shown: Any = self.sock
                if digest and not sha256(shown.getpeercert(True)).hexdigest().startswith(digest):
                    raise ssl.SSLCertVerificationError("it is not the one that is expected")

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
