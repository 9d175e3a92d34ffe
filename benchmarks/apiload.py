"""A load on the HTTP API, as a process of its own: so many requests a second, late ones included.

``python -m benchmarks.apiload --url URL --rate 200``, the API key in ``GRIDAWARE_API_KEY``. It
rests until a line ``go`` comes on stdin and again after ``rest``; at ``end`` it prints one JSON
object. The rate does not yield to a slow server: what is due is sent as soon as a connection is
free, and its latency counts from when it was due.
"""

import argparse
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gridaware.clock import SystemClock

__all__ = ["ApiLoad", "main"]

CONNECTIONS = 8
TIMEOUT_SECONDS = 10.0
PIECE_BYTES = 1 << 20


class ApiLoad:
    """The load as the benchmark drives it."""

    def __init__(self, url: str, api_key: str, rate: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.apiload", "--url", url, "--rate", str(rate)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "GRIDAWARE_API_KEY": api_key},
            text=True,
        )

    def go(self) -> None:
        """Begin."""
        self._say("go")

    def rest(self) -> None:
        """Stop until :meth:`go`."""
        self._say("rest")

    def end(self) -> dict[str, Any]:
        """End it; what it saw."""
        out, _ = self._process.communicate("end\n", timeout=30)
        found: dict[str, Any] = json.loads(out)
        return found

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()


@dataclass
class _Seen:
    """What all connections saw together."""

    latencies: list[float] = field(default_factory=list)
    failed: int = 0
    bytes_each: int = 0
    active_seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Connection(threading.Thread):
    """One kept-alive connection with its share of the rate."""

    def __init__(self, url: str, api_key: str, period: float, phase: float, seen: _Seen) -> None:
        super().__init__(daemon=True)
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._address = (parts.hostname, parts.port or 80)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: application/json\r\n"
            f"Authorization: Bearer {api_key}\r\n\r\n"
        ).encode()
        self._period, self._phase, self._seen = period, phase, seen
        self._socket: socket.socket | None = None
        self._buffer = bytearray(PIECE_BYTES)
        self.active = threading.Event()
        self._clock = SystemClock()

    def run(self) -> None:
        """Send what is due, for as long as it is wanted."""
        due = 0.0
        while True:
            if not self.active.is_set():
                self._hang_up()  # the server would: it keeps no idle connection for long
                self.active.wait()
                due = self._clock.monotonic_seconds() + self._phase
            wait = due - self._clock.monotonic_seconds()
            if wait > 0:
                threading.Event().wait(wait)
            self._one(due)
            due += self._period

    def _one(self, due: float) -> None:
        try:
            size = self._ask()
        except OSError:
            self._hang_up()
            with self._seen.lock:
                self._seen.failed += 1
            return
        latency = self._clock.monotonic_seconds() - due
        with self._seen.lock:
            self._seen.latencies.append(latency)
            self._seen.bytes_each = size

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _ask(self) -> int:
        """One request and its whole answer; the size of the body."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, TIMEOUT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(self._request)
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self._socket.recv(65536)
            if not piece:
                raise ConnectionError("the server hung up")
            head += piece
        head, _, body = head.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        if b" 200 " not in lines[0]:
            raise ConnectionError(lines[0].decode())
        length = next(int(x.split(b":")[1]) for x in lines if x.startswith(b"content-length:"))
        got = len(body)
        while got < length:
            count = self._socket.recv_into(self._buffer)
            if not count:
                raise ConnectionError("the server hung up")
            got += count
        return length


def main() -> int:
    """Serve the benchmark until ``end`` or the end of stdin."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apiload")
    parser.add_argument("--url", required=True)
    parser.add_argument("--rate", type=float, required=True)
    options = parser.parse_args()
    seen, clock = _Seen(), SystemClock()
    period = CONNECTIONS / options.rate
    key = os.environ["GRIDAWARE_API_KEY"]
    connections = [
        _Connection(options.url, key, period, period * n / CONNECTIONS, seen)
        for n in range(CONNECTIONS)
    ]
    for connection in connections:
        connection.start()
    since: float | None = None
    for line in sys.stdin:
        word = line.strip()
        now = clock.monotonic_seconds()
        if since is not None:
            seen.active_seconds += now - since
        since = now if word == "go" else None
        for connection in connections:
            connection.active.set() if word == "go" else connection.active.clear()
        if word == "end":
            break
    sys.stdout.write(json.dumps(_summary(options.rate, seen)) + "\n")
    return 0


def _summary(rate: float, seen: _Seen) -> dict[str, Any]:
    with seen.lock:
        ordered = sorted(seen.latencies)
    if not ordered:
        return {"asked_per_second": rate, "requests": 0, "failed": seen.failed}
    return {
        "asked_per_second": rate,
        "achieved_per_second": round(len(ordered) / max(seen.active_seconds, 1e-9), 1),
        "requests": len(ordered),
        "failed": seen.failed,
        "bytes_each": seen.bytes_each,
        "latency_ms": {
            "p50": round(1e3 * statistics.median(ordered), 2),
            "p99": round(1e3 * ordered[math.ceil(0.99 * len(ordered)) - 1], 2),
        },
    }


if __name__ == "__main__":
    sys.exit(main())
