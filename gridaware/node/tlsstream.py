"""One end of a TLS stream on an asyncio socket, small enough to have a thousand of.

asyncio's own TLS takes a read buffer of 256 KiB a connection and copies each frame through two
queues. Here every stream of one owner reads into the same buffer (``asyncio``'s selector loop fills
it and hands it over in one call), and what is written goes through OpenSSL into the socket at once.
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import cast

__all__ = ["TlsStream", "listen", "read_buffer"]

_log = logging.getLogger(__name__)

_BUFFER_BYTES = 64 * 1024
_HANDSHAKE_SECONDS = 10.0
_CLOSE_SECONDS = 5.0
_BACKLOG = 1024
"""All nodes of a site may come back in the same moment; the kernel keeps them in a queue."""
_ACCEPTS = 32
"""Taken from it in one turn of the event loop: their handshakes hold up all else by some 25 ms."""


def read_buffer() -> memoryview:
    """A buffer that all streams of one event loop may share."""
    return memoryview(bytearray(_BUFFER_BYTES))


async def listen(make: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> asyncio.Server:
    """Listen for peers, of which a thousand may dial at once.

    Raises:
        OSError: the address cannot be used.
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(make, host, port, backlog=_ACCEPTS)
    for listening in server.sockets:
        # asyncio means by its backlog both the queue and what it takes of it in one turn.
        with socket.socket(fileno=os.dup(listening.fileno())) as same:
            same.listen(_BACKLOG)
    return server


class TlsStream(asyncio.BufferedProtocol):
    """One connection: a subclass says what its life means.

    Args:
        context: Both certificates are verified by it before anything is heard.
        buffer: See :func:`read_buffer`; what :meth:`received` is given is valid only while it runs.
        server_name: The name that the server must prove; None = this end is the server.
    """

    def __init__(
        self, context: ssl.SSLContext, buffer: memoryview, server_name: str | None = None
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._secure = self._closing = False
        self._deadline: asyncio.TimerHandle | None = None

    # For the subclass ------------------------------------------------------------------------

    def secured(self) -> None:
        """The handshake is done: from now on frames may be written."""

    def received(self, data: memoryview) -> None:
        """Bytes of the peer; must be used or copied before this returns."""

    def flow(self, *, paused: bool) -> None:
        """The peer reads slower than we write, or has caught up."""

    def gone(self) -> None:
        """The connection is over, whoever ended it."""

    # What can be done with it ----------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._closing or not self._secure

    @property
    def unsent_bytes(self) -> int:
        """What the kernel has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def certificate(self) -> object:
        """The peer's verified certificate as :mod:`ssl` gives it; see ``tls.peer_name``."""
        return self._tls.getpeercert()

    def certificate_bytes(self) -> bytes:
        """The peer's verified certificate, DER."""
        return self._tls.getpeercert(binary_form=True) or b""

    def write(self, data: bytes) -> None:
        """Send; what the kernel does not take waits, and :meth:`flow` says so."""
        if self.closing:
            return
        try:
            sent = self._tls.write(data)
            while sent < len(data):
                sent += self._tls.write(memoryview(data)[sent:])
        except ssl.SSLError as error:
            self._fail(error)
        else:
            self._flush()

    def pause_reading(self) -> None:
        """Hear nothing for now; the peer notices in time."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Hear again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Send what was written, say that this was all, and wait a little for the peer to agree.

        Closing a socket with something unread would make the kernel throw away what is sent.
        """
        if self.closing or self._transport is None:
            self.abort()
            return
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()
        self._closing = True
        with contextlib.suppress(OSError):
            self._transport.write_eof()
        self._abort_in(_CLOSE_SECONDS)

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # What asyncio says -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected: begin the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        # Whatever the kernel does not take is called paused, so that the owner can still replace
        # what has not been sent.
        self._transport.set_write_buffer_limits(high=0)
        self._abort_in(_HANDSHAKE_SECONDS)
        self._shake_hands()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        """The socket is closed."""
        self._transport = None
        self._closing = True
        if self._deadline is not None:
            self._deadline.cancel()
        self.gone()

    def pause_writing(self) -> None:
        """The kernel takes no more."""
        self.flow(paused=True)

    def resume_writing(self) -> None:
        """It took everything."""
        self.flow(paused=False)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's name
        """Where to read into."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came; after :meth:`close` they no longer matter."""
        if self._closing:
            return
        self._incoming.write(self._buffer[:nbytes])
        if self._secure or self._shake_hands():
            self._decrypt()

    # TLS -------------------------------------------------------------------------------------

    def _shake_hands(self) -> bool:
        """Take the handshake as far as it goes; whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._fail(error)
            return False
        self._secure = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._flush()
        self.secured()
        return True

    def _decrypt(self) -> None:
        tls, incoming, buffer = self._tls, self._incoming, self._buffer
        try:
            while not self._closing:
                # The buffer is free again: OpenSSL has its own copy of what was read.
                count = cast("int", tls.read(len(buffer), buffer))
                if not count:
                    self.close()
                    return
                self.received(buffer[:count])
                if not incoming.pending and not tls.pending():
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
        if self._outgoing.pending:
            self._flush()

    def _flush(self) -> None:
        if self._transport is not None and not self._closing:
            self._transport.write(self._outgoing.read())

    def _fail(self, error: ssl.SSLError) -> None:
        """The peer is not who it should be, or the stream was tampered with: say so and go."""
        if self._transport is None or self._closing:
            return
        _log.info("%s: %s", self._transport.get_extra_info("peername"), error)
        self._flush()
        self._closing = True
        self._transport.close()
        self._abort_in(_CLOSE_SECONDS)

    def _abort_in(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)
