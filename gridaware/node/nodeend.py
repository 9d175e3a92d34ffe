"""The controller's end of one node's stream, whichever way its bytes come.

It knows what may be said and when; :mod:`gridaware.node.link` knows all nodes, and a
:class:`Carrier` takes the bytes: the node's own TLS stream, or a channel through a relay.
"""

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

from gridaware.domain.errors import InvalidInput
from gridaware.domain.moment import Moment
from gridaware.domain.wire import (
    PROTOCOL_VERSION,
    Acknowledged,
    Armed,
    ArmedAcknowledged,
    CheckpointReport,
    Command,
    Desired,
    Fenced,
    Fired,
    Heartbeat,
    Hello,
    JobGone,
    JobProgress,
    JobRegistered,
    NodeFault,
    SampleBatch,
    SampleRate,
    Trigger,
)
from gridaware.node.frames import FrameReader, encode

if TYPE_CHECKING:
    from gridaware.node.link import LinkServer

__all__ = ["HEARTBEAT_SECONDS", "AgentMessage", "Carrier", "LinkHandler", "NodeEnd"]

AgentMessage = (
    Acknowledged
    | SampleBatch
    | JobRegistered
    | JobProgress
    | JobGone
    | CheckpointReport
    | NodeFault
    | ArmedAcknowledged
    | Fired
    | Fenced
)
"""What a handler hears of a node after its Hello."""
HEARTBEAT_SECONDS = 1.0
_FROM_AGENT = frozenset(AgentMessage.__args__) | {Heartbeat, Hello}
_HELLO_SECONDS = 10.0
_QUEUE_REQUESTS = 256
_NEWEST = (SampleRate, Trigger, Armed, Desired)
"""Of these only the newest waits for a slow peer; they follow one another in this order, so that a
trigger finds the responses that it was decided with."""


class LinkHandler(Protocol):
    """Who hears the agents. Called on the event loop; must not block."""

    def on_hello(self, hello: Hello, moment: Moment) -> None:
        """A node is connected (again), or its GPUs changed; it now holds what it says."""
        ...

    def on_message(self, node_id: str, message: AgentMessage, moment: Moment) -> None:
        """A connected node said something. ``Fenced``: it obeys a newer controller than us."""
        ...

    def on_lost(self, node_id: str, moment: Moment) -> None:
        """The node's stream is gone or silent; its agent keeps its lease."""
        ...


class Carrier(Protocol):
    """What takes a node's bytes."""

    @property
    def closing(self) -> bool:
        """Whether nothing more can be written."""
        ...

    def write(self, data: bytes) -> None:
        """Send."""
        ...

    def close(self) -> None:
        """Send what was written, then end it."""
        ...

    def abort(self) -> None:
        """End it at once."""
        ...


class NodeEnd:
    """One node's stream. Its owner tells it what happens to the carrier."""

    def __init__(
        self, server: "LinkServer", carrier: Carrier, name: str | None, relay_id: str = ""
    ) -> None:
        self.node_id: str | None = None
        """None until its Hello."""
        self._server = server
        self._carrier = carrier
        self._name = name
        self._relay_id = relay_id
        self._reader = FrameReader()
        self._heard_seconds = server.clock.monotonic_seconds()
        self._sent_seconds = 0.0
        self._paused = False
        self._waiting: dict[type, Command] = {}
        self._requests: deque[Command] = deque()

    # What happens to the carrier ------------------------------------------------------------

    def received(self, data: bytes | memoryview) -> None:
        """Frames, or a part of one."""
        if self.node_id is not None:  # before its Hello, talking buys no time
            self._heard_seconds = self._server.clock.monotonic_seconds()
        try:
            for message in self._reader.feed(data):
                if self._carrier.closing:
                    return
                self._take(message)
        except InvalidInput as error:
            self.refuse(error.code, error.message)

    def flow(self, *, paused: bool) -> None:
        """The node reads slower than we write; or it caught up: send the newest of each kind."""
        self._paused = paused
        if paused:
            return
        newest = (self._waiting.get(kind) for kind in _NEWEST)
        waiting = [message for message in newest if message is not None]
        waiting += self._requests
        self._waiting.clear()
        self._requests.clear()
        for message in waiting:
            self.send(message)

    def gone(self) -> None:
        """The carrier ended."""
        self._server.left(self)

    def beat(self, now_seconds: float, beat: Heartbeat) -> None:
        """Once a second: speak if nothing was said, drop the node if it says nothing."""
        allowed = _HELLO_SECONDS if self.node_id is None else self._server.silence_seconds
        if now_seconds - self._heard_seconds > allowed:
            self._carrier.abort()
            return
        quiet = now_seconds - self._sent_seconds >= HEARTBEAT_SECONDS / 2
        if quiet and self.node_id is not None and not self._paused:
            self._write(self._server.frame(beat))

    # What the controller says ---------------------------------------------------------------

    def send(self, message: Command) -> bool:
        """Write, or keep until the peer reads; False once it is closed or its queue is full."""
        if self._carrier.closing:
            return False
        if not self._paused:
            self._write(self._server.frame(message))
        elif isinstance(message, _NEWEST):
            if isinstance(message, Desired):  # it says all that a trigger said
                self._waiting.pop(Trigger, None)
            self._waiting[type(message)] = message
        elif len(self._requests) >= _QUEUE_REQUESTS:
            return False
        else:
            self._requests.append(message)
        return True

    def refuse(self, code: str, message: str) -> None:
        """Tell the peer why, and close."""
        if not self._carrier.closing:
            self._write(encode(Fenced(code, message)))
            self._carrier.close()

    def _write(self, frame: bytes) -> None:
        self._carrier.write(frame)
        self._sent_seconds = self._server.clock.monotonic_seconds()

    # What the node says ---------------------------------------------------------------------

    def _take(self, message: object) -> None:
        if type(message) not in _FROM_AGENT:
            raise InvalidInput("frame-direction", f"agents do not send {type(message).__name__}")
        if isinstance(message, Hello):
            self._greet(message)
        elif self.node_id is None:
            raise InvalidInput("hello-missing", "the first frame must be a Hello")
        elif getattr(message, "node_id", self.node_id) != self.node_id:
            raise InvalidInput("node-identity", "the frame names another node than its sender")
        elif not isinstance(message, Heartbeat) and self._server.handler is not None:
            self._server.handler.on_message(
                self.node_id, cast("AgentMessage", message), self._server.moment()
            )

    def _greet(self, hello: Hello) -> None:
        server = self._server
        if hello.node_id != self._name:
            raise InvalidInput(
                "node-identity",
                f"the certificate is of {self._name!r}, the Hello of {hello.node_id!r}",
            )
        if hello.protocol_version != PROTOCOL_VERSION:
            raise InvalidInput(
                "protocol-version",
                f"the agent speaks version {hello.protocol_version}, this side {PROTOCOL_VERSION}",
            )
        if hello.last_epoch > server.epoch:
            fenced = Fenced(
                "controller-epoch-old",
                f"the agent obeyed epoch {hello.last_epoch}, this controller is {server.epoch}",
            )
            if server.handler is not None:
                server.handler.on_message(hello.node_id, fenced, server.moment())
            self.refuse(fenced.code, fenced.message)
            return
        self.node_id = hello.node_id
        self._heard_seconds = server.clock.monotonic_seconds()
        self._write(encode(server.welcome()))
        # Which way a node came is for us to know, not for it to say.
        server.joined(self, replace(hello, relay_id=self._relay_id))
