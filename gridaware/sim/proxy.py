"""A network between two processes that can be cut: TCP through loopback, in this process.

A cut is silent, as a pulled cable is: nothing is closed, nothing answers, and what was sent waits
in buffers. Mended, it flows again where the ends still want it.
"""

import contextlib
import socket
import threading
from typing import Self

__all__ = ["Proxy"]

_CHUNK_BYTES = 65536


class Proxy:
    """Listens on ``port`` and passes everything on to ``to_port``, both on 127.0.0.1."""

    def __init__(self, to_port: int) -> None:
        self._to = ("127.0.0.1", to_port)
        self._flows = threading.Event()
        self._flows.set()
        self._ended = threading.Event()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def cut(self) -> None:
        """Let nothing through any more."""
        self._flows.clear()

    def mend(self) -> None:
        """Let everything through again."""
        self._flows.set()

    def close(self) -> None:
        """Listen no more, and close every connection."""
        self._ended.set()
        self._flows.set()
        for opened in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(near)
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._flows.wait()
        try:
            far = socket.create_connection(self._to, timeout=5.0)
        except OSError:
            self._hang_up(near)
            return
        far.settimeout(None)
        self._open.add(far)
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._pump, args=(near, far), daemon=True).start()
        self._pump(far, near)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(_CHUNK_BYTES):
                self._flows.wait()
                sink.sendall(data)
        except OSError:
            pass
        self._flows.wait()  # a cut hides also that an end has closed
        self._hang_up(source)
        self._hang_up(sink)

    def _hang_up(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
        self._open.discard(one)
