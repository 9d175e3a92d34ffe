"""An HTTP server on a thread of its own: what the grid sides of the kit stand on."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

__all__ = ["Served"]


class Served:
    """Serves on a free port of this machine, from the end of ``__init__`` until it is closed.

    Args:
        handler: of each connection, on a thread of its own. With TLS it shakes hands there: a slow
            client holds up nobody else.
        tls: speaks TLS where given.
    """

    def __init__(
        self, handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None
    ) -> None:
        self._server = _Server(("127.0.0.1", 0), handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def root_url(self) -> str:
        """Of its root, without a slash at the end."""
        host, port = self._server.server_address[:2]
        return f"{self._scheme}://{host!s}:{port}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a handshake that failed, or of a client that hung up."""
