"""JSON over HTTP for drivers in the privileged child: standard library only, and bounded.

One deadline covers a whole exchange: connecting, TLS, request, headers and body, however slowly
the other side drips. Answers are bounded in size; redirects are not followed. Each thread keeps a
connection of its own, since a driver is called from one thread for each GPU.
"""

import http.client
import io
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, cast

from gridaware.clock import Clock
from gridaware.domain.errors import GridawareError, InvalidInput, TimedOut, Unavailable

__all__ = ["Answer", "Connect", "JsonHttp", "tcp", "tls", "unix"]

MOST_BYTES: Final = 4 * 1024 * 1024
"""Of an answer: the largest Redfish collections are some hundred kilobytes."""

Connect = Callable[[float], socket.socket]
"""Seconds left → a connected socket."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: object
    """What the JSON says; None where there is none."""


def unix(path: Path) -> Connect:
    """To a UNIX socket."""

    def connect(seconds: float) -> socket.socket:
        return _dial(socket.socket(socket.AF_UNIX), str(path), seconds)

    return connect


def tcp(host: str, port: int) -> Connect:
    """To a TCP port, without TLS: for a daemon on this machine."""
    return lambda seconds: _dial_tcp(host, port, seconds)


def tls(host: str, port: int, context: ssl.SSLContext, server_name: str) -> Connect:
    """To a TCP port, with TLS; the certificate must name ``server_name``."""

    def connect(seconds: float) -> socket.socket:
        plain = _dial_tcp(host, port, seconds)
        try:
            return context.wrap_socket(plain, server_hostname=server_name)
        except BaseException:
            plain.close()
            raise

    return connect


class JsonHttp:
    """Exchanges JSON with one server.

    Args:
        connect: how to reach it.
        host: for the ``Host`` header.
        clock: for the deadline.
        seconds: for one whole exchange.
    """

    def __init__(self, connect: Connect, host: str, clock: Clock, seconds: float) -> None:
        self._connect = connect
        self._host = host
        self._clock = clock
        self.seconds = seconds
        self._kept: dict[int, http.client.HTTPConnection] = {}
        """By thread."""

    def close(self) -> None:
        """Close every connection; a later request opens a new one."""
        for thread in list(self._kept):
            self._kept.pop(thread).close()

    def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request and its answer, whatever its status.

        Raises:
            TimedOut: ``http-timeout``; it was not all there in time.
            Unavailable: ``http-unreachable``; no connection, or it broke.
            InvalidInput: ``http-answer``; what came back is no bounded JSON over HTTP.
        """
        until = self._clock.monotonic_seconds() + self.seconds
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        sent = {"Accept": "application/json", **(headers or {})}
        if data is not None:
            sent["Content-Type"] = "application/json"
        try:
            return self._answer(*self._respond(until, method, target, data, sent))
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            kept = self._kept.pop(threading.get_ident(), None)
            if kept is not None:
                kept.close()
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> GridawareError:
        if isinstance(error, TimeoutError):
            return TimedOut("http-timeout", f"{self._host}: no answer in {self.seconds:g} s")
        if isinstance(error, OSError):
            return Unavailable("http-unreachable", f"{self._host}: {error}")
        return InvalidInput("http-answer", f"{self._host}: {error!r}")

    def _respond(
        self, until: float, method: str, target: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        """Over the thread's connection, or a fresh one where the server has closed that."""
        kept = self._kept.get(threading.get_ident())
        if kept is not None and kept.sock is not None:
            cast("_Wire", kept.sock).until = until
            try:
                kept.request(method, target, data, dict(headers))
                return kept.getresponse(), kept
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                kept.close()
        fresh = self._fresh(until)
        fresh.request(method, target, data, dict(headers))
        return fresh.getresponse(), fresh

    def _fresh(self, until: float) -> http.client.HTTPConnection:
        left = until - self._clock.monotonic_seconds()
        if left <= 0:
            raise TimeoutError
        connection = http.client.HTTPConnection(self._host)
        connection.auto_open = 0
        wire = _Wire(self._connect(left), until, self._clock)
        connection.sock = cast("socket.socket", wire)
        self._kept[threading.get_ident()] = connection
        return connection

    def _answer(
        self, response: http.client.HTTPResponse, connection: http.client.HTTPConnection
    ) -> Answer:
        with response:
            data = response.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
        if response.will_close:
            connection.close()
        headers = {name.lower(): value for name, value in response.getheaders()}
        is_json = "json" in headers.get("content-type", "")
        body = json.loads(data, parse_constant=_refuse) if data and is_json else None
        return Answer(response.status, headers, body)


class _Wire:
    """What ``http.client`` takes for a socket; no call on it outlasts the deadline."""

    def __init__(self, connected: socket.socket, until: float, clock: Clock) -> None:
        self.until = until
        self._socket = connected
        self._clock = clock
        self._readers = 0
        self._closing = False

    def sendall(self, data: bytes) -> None:
        self._socket.settimeout(self._left())
        self._socket.sendall(data)

    def receive_into(self, buffer: memoryview) -> int:
        self._socket.settimeout(self._left())
        return self._socket.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        self._readers += 1
        return io.BufferedReader(_Incoming(self))

    def close(self) -> None:
        """Close, once the answer that is being read is through."""
        self._closing = True
        if self._readers == 0:
            self._socket.close()

    def release(self) -> None:
        """An answer is through."""
        self._readers -= 1
        if self._closing:
            self.close()

    def _left(self) -> float:
        left = self.until - self._clock.monotonic_seconds()
        if left <= 0:
            raise TimeoutError
        return left


class _Incoming(io.RawIOBase):
    """The receiving half of a wire."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._wire.release()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        return self._wire.receive_into(cast("memoryview", buffer))


def _dial_tcp(host: str, port: int, seconds: float) -> socket.socket:
    made = socket.create_connection((host, port), seconds)
    # A request is one small write: it must not wait for others.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _dial(made: socket.socket, address: str, seconds: float) -> socket.socket:
    try:
        made.settimeout(seconds)
        made.connect(address)
    except BaseException:
        made.close()
        raise
    return made


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number in JSON")
