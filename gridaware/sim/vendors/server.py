"""A JSON server on a thread, for the imitations that are asked over HTTP."""

import json
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["JsonServer", "Reply", "Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked."""

    method: str
    target: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """What to answer. Text is sent as it is; anything else as JSON."""

    status: int
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


class _Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class JsonServer:
    """Answers with ``reply`` until it leaves its ``with`` block.

    Args:
        reply: what to answer.
        socket: listen on this UNIX socket; else on a free TCP port of the loopback.
        tls: with this certificate.
    """

    def __init__(
        self,
        reply: Callable[[Request], Reply],
        *,
        socket: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.delay_seconds = 0.0
        """Between a request and its answer."""
        self.asked: list[Request] = []
        handler = _handler(self, reply)
        server: socketserver.BaseServer
        if socket is not None:
            server = _Unix(str(socket), handler)
            self.port = 0
        else:
            tcp = ThreadingHTTPServer(("127.0.0.1", 0), handler)
            tcp.daemon_threads = True
            if tls is not None:
                # The handshake is the handler thread's: a client without TLS holds up itself alone.
                tcp.socket = tls.wrap_socket(
                    tcp.socket, server_side=True, do_handshake_on_connect=False
                )
            server, self.port = tcp, tcp.server_address[1]
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(owner: JsonServer, reply: Callable[[Request], Reply]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def handle(self) -> None:
            try:
                super().handle()
            except (OSError, ValueError):
                self.close_connection = True  # the client has hung up

        def _any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = json.loads(text) if text else None
            request = Request(self.command, self.path, headers, body)
            owner.asked.append(request)
            time.sleep(owner.delay_seconds)
            self._answer(reply(request))

        def _answer(self, answer: Reply) -> None:
            is_text = isinstance(answer.body, str)
            data = b"" if answer.body is None else json.dumps(answer.body).encode()
            if isinstance(answer.body, str):
                data = answer.body.encode()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if data:
                self.send_header("Content-Type", "text/plain" if is_text else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: object) -> None:
            return

        do_GET = do_POST = do_PATCH = do_DELETE = _any  # noqa: N815 - names of the base class

    return Handler
