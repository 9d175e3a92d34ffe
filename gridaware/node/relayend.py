"""The controller's end of a relay's stream: many nodes' streams inside one.

A relay is known by its certificate. It may speak for a node only by showing the certificate that
the node has proved to it, which is judged here again; from then on that node's bytes are treated
as if they had come on a stream of its own, and nothing that the relay says is obeyed.
"""

import logging
from typing import TYPE_CHECKING

from gridaware.domain.errors import InvalidInput
from gridaware.domain.wire import (
    PROTOCOL_VERSION,
    Fenced,
    Heartbeat,
    RelayClosed,
    Relayed,
    RelayHello,
    RelayOpened,
)
from gridaware.node.frames import FrameReader, encode
from gridaware.node.nodeend import HEARTBEAT_SECONDS, Carrier, NodeEnd
from gridaware.node.outbox import Outbox

if TYPE_CHECKING:
    from gridaware.node.link import LinkServer

__all__ = ["RelayEnd"]

_log = logging.getLogger(__name__)


class RelayEnd:
    """One relay's stream."""

    def __init__(self, server: "LinkServer", carrier: Carrier, name: str) -> None:
        self._server = server
        self._carrier = carrier
        self._name = name
        self._reader = FrameReader()
        self._greeted = False
        self._paused = False
        self._channels: dict[int, _Channel] = {}
        self._outbox = Outbox(self._write)
        self._heard_seconds = server.clock.monotonic_seconds()
        self._sent_seconds = 0.0

    # What happens to the carrier ------------------------------------------------------------

    def received(self, data: bytes | memoryview) -> None:
        """Frames, or a part of one."""
        self._heard_seconds = self._server.clock.monotonic_seconds()
        try:
            for message in self._reader.feed(data):
                if self._carrier.closing:
                    return
                self._take(message)
        except InvalidInput as error:
            _log.error("relay %s is refused: %s", self._name, error)
            self._write(Fenced(error.code, error.message))
            self._carrier.close()

    def flow(self, *, paused: bool) -> None:
        """The relay reads slower than we write, or has caught up: so it is for every node of it."""
        self._paused = paused
        for channel in tuple(self._channels.values()):
            channel.end.flow(paused=paused)

    def gone(self) -> None:
        """The relay is gone, and with it every node behind it."""
        channels = tuple(self._channels.values())
        self._channels.clear()
        for channel in channels:
            channel.closing = True
            channel.end.gone()

    def beat(self, now_seconds: float, beat: Heartbeat) -> None:
        """Once a second: nodes hear us through the relay, never the relay in our place."""
        if now_seconds - self._heard_seconds > self._server.silence_seconds:
            self._carrier.abort()
            return
        for channel in tuple(self._channels.values()):
            channel.end.beat(now_seconds, beat)
        self._outbox.flush()
        quiet = now_seconds - self._sent_seconds >= HEARTBEAT_SECONDS / 2
        if quiet and self._greeted and not self._paused:
            self._write(beat)

    # What nodes are sent --------------------------------------------------------------------

    def put(self, number: int, data: bytes) -> None:
        """Bytes for the node of a channel."""
        self._outbox.put(number, data)

    def drop(self, number: int) -> None:
        """End a channel, after what was put for it."""
        channel = self._channels.pop(number, None)
        if channel is not None:
            self._outbox.close(number)
            channel.end.gone()

    def _write(self, message: object) -> None:
        self._carrier.write(self._server.frame(message))
        self._sent_seconds = self._server.clock.monotonic_seconds()

    # What the relay says --------------------------------------------------------------------

    def _take(self, message: object) -> None:
        if isinstance(message, RelayHello):
            self._greet(message)
        elif not self._greeted:
            raise InvalidInput("hello-missing", "the first frame must be a RelayHello")
        elif isinstance(message, Relayed):
            for numbers, data in message.parcels:
                for number in numbers:
                    if (channel := self._channels.get(number)) is not None:
                        channel.end.received(data)
        elif isinstance(message, RelayOpened):
            self._open(message)
        elif isinstance(message, RelayClosed):
            if (channel := self._channels.pop(message.channel, None)) is not None:
                channel.closing = True
                channel.end.gone()
        elif not isinstance(message, Heartbeat):
            raise InvalidInput("frame-direction", f"relays do not send {type(message).__name__}")

    def _greet(self, hello: RelayHello) -> None:
        if hello.relay_id != self._name:
            raise InvalidInput(
                "relay-identity",
                f"the certificate is of {self._name!r}, the RelayHello of {hello.relay_id!r}",
            )
        if hello.protocol_version != PROTOCOL_VERSION:
            raise InvalidInput(
                "protocol-version",
                f"the relay speaks version {hello.protocol_version}, this side {PROTOCOL_VERSION}",
            )
        self._greeted = True
        self._write(self._server.welcome())

    def _open(self, opened: RelayOpened) -> None:
        number = opened.channel
        if number in self._channels:
            raise InvalidInput("relay-channel", f"channel {number} is open already")
        try:
            name = self._server.vouch(opened.certificate)
        except InvalidInput as error:
            _log.error("relay %s: %s", self._name, error)
            self._outbox.put(number, encode(Fenced(error.code, error.message)))
            self._outbox.close(number)
            return
        channel = self._channels[number] = _Channel(self, number)
        channel.end = NodeEnd(self._server, channel, name, self._name)
        channel.end.flow(paused=self._paused)


class _Channel:
    """A node's stream inside the relay's: what carries its bytes."""

    end: NodeEnd

    def __init__(self, relay: RelayEnd, number: int) -> None:
        self.closing = False
        self._relay = relay
        self._number = number

    def write(self, data: bytes) -> None:
        """Send, together with what other nodes of the relay are sent now."""
        if not self.closing:
            self._relay.put(self._number, data)

    def close(self) -> None:
        """End it, after what was written."""
        if not self.closing:
            self.closing = True
            self._relay.drop(self._number)

    def abort(self) -> None:
        """End it: the relay's stream goes on, so there is no faster way."""
        self.close()
