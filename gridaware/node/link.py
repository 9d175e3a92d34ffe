"""The controller's end of the agent streams: a TLS server that never blocks its caller.

Written on :class:`~gridaware.node.tlsstream.TlsStream` rather than asyncio's streams: frames of all
nodes go out in one pass without awaiting in between (``python -m benchmarks.fanout`` measures it).
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from gridaware.clock import Clock
from gridaware.domain.errors import InvalidInput
from gridaware.domain.moment import Moment
from gridaware.domain.wire import PROTOCOL_VERSION, Command, Heartbeat, Hello, Welcome
from gridaware.node.frames import encode
from gridaware.node.nodeend import (
    HEARTBEAT_SECONDS,
    AgentMessage,
    LinkHandler,
    NodeEnd,
)
from gridaware.node.relayend import RelayEnd
from gridaware.node.tls import is_relay, peer_name
from gridaware.node.tlsstream import TlsStream, listen, read_buffer

__all__ = ["AgentMessage", "LinkHandler", "LinkServer", "Vouch"]

Vouch = Callable[[bytes], str]
"""The node whose certificate (DER) it is. Raises InvalidInput where our CA has not issued it."""

_BEAT_SECONDS: Final = 0.1


class LinkServer:
    """Listens for agents and relays; implements :class:`gridaware.control.ports.AgentLink`.

    A node is who its certificate says. Its newest connection wins; a newer ``Desired`` replaces an
    older one that could not be written yet.

    Args:
        clock: The controller's.
        silence_seconds: A peer that says nothing for so long is lost.
        sample_hz: What agents are told at first.
    """

    def __init__(
        self, clock: Clock, *, silence_seconds: float = 5.0, sample_hz: float = 1.0
    ) -> None:
        self.clock = clock
        self.silence_seconds = silence_seconds
        self.sample_hz = sample_hz
        self.epoch = 0
        self.handler: LinkHandler | None = None
        self._vouch: Vouch | None = None
        self._nodes: dict[str, NodeEnd] = {}
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._beat: asyncio.Task[None] | None = None
        self._encoded: tuple[object, bytes] = (None, b"")

    async def start(
        self,
        host: str,
        port: int,
        ssl_context: ssl.SSLContext,
        epoch: int,
        handler: LinkHandler,
        vouch: Vouch | None = None,
    ) -> int:
        """Listen; returns the port, which the system chooses where ``port`` is 0.

        ``epoch`` grows with each start of a controller on the same store; agents that have
        obeyed a greater one refuse us. ``vouch`` judges the nodes that relays bring; without it
        relays are refused.
        """
        self.epoch = epoch
        self.handler = handler
        self._vouch = vouch
        buffer = read_buffer()
        self._server = await listen(lambda: _Connection(self, ssl_context, buffer), host, port)
        self._beat = asyncio.create_task(self._beats(), name="link-heartbeats")
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and drop every stream; the agents keep their leases."""
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        self._nodes.clear()
        for connection in tuple(self._connections):
            connection.abort()
        if self._server is not None:
            await self._server.wait_closed()

    def send(self, node_id: str, message: Command) -> bool:
        """Queue a frame; False where that node is not connected."""
        node = self._nodes.get(node_id)
        return node is not None and node.send(message)

    def connected(self) -> Sequence[str]:
        """Nodes with a live stream."""
        return tuple(self._nodes)

    # For the ends of the streams -------------------------------------------------------------

    def moment(self) -> Moment:
        """Now, on both clocks."""
        return Moment(self.clock.monotonic_seconds(), self.clock.wall())

    def frame(self, message: object) -> bytes:
        """The message as bytes; encoded once when it goes to many nodes in a row."""
        if self._encoded[0] is not message:
            self._encoded = (message, encode(message))
        return self._encoded[1]

    def welcome(self) -> Welcome:
        """What a peer that is accepted is told first."""
        return Welcome(
            PROTOCOL_VERSION, self.epoch, self.clock.wall(), self.silence_seconds, self.sample_hz
        )

    def vouch(self, certificate: bytes) -> str:
        """The node whose certificate a relay shows.

        Raises:
            InvalidInput: it is no certificate of a node of ours (``relay-identity``).
        """
        if self._vouch is None:
            raise InvalidInput("relay-identity", "this controller takes no relays")
        return self._vouch(certificate)

    def joined(self, node: NodeEnd, hello: Hello) -> None:
        """A stream has proved whose it is."""
        older = self._nodes.get(hello.node_id)
        self._nodes[hello.node_id] = node
        if older is not None and older is not node:
            older.refuse("superseded", "a newer connection of this node took over")
        if self.handler is not None:
            self.handler.on_hello(hello, self.moment())

    def left(self, node: NodeEnd) -> None:
        """A stream ended; the handler hears of it unless another has replaced it."""
        node_id = node.node_id
        if node_id is not None and self._nodes.get(node_id) is node:
            del self._nodes[node_id]
            if self.handler is not None:
                self.handler.on_lost(node_id, self.moment())

    def opened(self, connection: "_Connection") -> None:
        """A peer has dialled us."""
        self._connections.add(connection)

    def closed(self, connection: "_Connection") -> None:
        """A peer's socket is closed."""
        self._connections.discard(connection)

    async def _beats(self) -> None:
        """Every peer once a second, few of them at a time: an order may be due meanwhile."""
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            now = self.clock.monotonic_seconds()
            beat = Heartbeat(self.clock.wall())
            for connection in tuple(self._connections):
                if now >= connection.beat_due and connection.end is not None:
                    connection.beat_due = now + HEARTBEAT_SECONDS
                    connection.end.beat(now, beat)


class _Connection(TlsStream):
    """One peer. Its certificate tells what it is: a node, or a relay with many of them."""

    def __init__(self, server: LinkServer, ssl_context: ssl.SSLContext, buffer: memoryview) -> None:
        super().__init__(ssl_context, buffer)
        self._server = server
        self.beat_due = server.clock.monotonic_seconds() + HEARTBEAT_SECONDS
        self.end: NodeEnd | RelayEnd | None = None
        """None until the certificate is verified."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has dialled us."""
        self._server.opened(self)
        super().connection_made(transport)

    def secured(self) -> None:
        """Its certificate is verified."""
        certificate = self.certificate()
        name = peer_name(certificate)
        if name is not None and is_relay(certificate):
            self.end = RelayEnd(self._server, self, name)
        else:
            self.end = NodeEnd(self._server, self, name)

    def received(self, data: memoryview) -> None:
        """Frames, or a part of one."""
        if self.end is not None:
            self.end.received(data)

    def flow(self, *, paused: bool) -> None:
        """The peer reads slower than we write, or has caught up."""
        if self.end is not None:
            self.end.flow(paused=paused)

    def gone(self) -> None:
        """The peer closed, or the network did."""
        self._server.closed(self)
        if self.end is not None:
            self.end.gone()
