"""The agent's end of the stream: dials the controller, for as long as it takes."""

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from random import Random
from typing import Protocol, cast

from gridaware.clock import Clock
from gridaware.domain.errors import InvalidInput
from gridaware.domain.wire import (
    PROTOCOL_VERSION,
    CheckpointRequest,
    Desired,
    Fenced,
    Heartbeat,
    Hello,
    NodeFault,
    SampleBatch,
    SampleRate,
    Welcome,
)
from gridaware.node.frames import FrameReader, encode
from gridaware.node.settings import ControllerSettings

__all__ = ["Uplink", "UplinkEvents"]

_log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 0.2
_LAST_RETRY_SECONDS = 10.0
_HEARTBEAT_SECONDS = 1.0
_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 5.0
_MOST_FAULTS = 256


class UplinkEvents(Protocol):
    """What the agent hears of the controller, on the event loop."""

    def hello(self) -> Hello:
        """What to say first."""
        ...

    def on_welcome(self, welcome: Welcome) -> bool:
        """Accepted; False = this controller is not obeyed."""
        ...

    def on_command(self, message: Desired | SampleRate | CheckpointRequest) -> None:
        """An order."""
        ...

    def on_heard(self) -> None:
        """Any frame."""
        ...


class Uplink:
    """Keeps one stream to the controller.

    What is said while there is none is lost, except faults, of which the newest 256 wait: every
    connection begins with the whole state on both sides.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        ssl_context: ssl.SSLContext,
        clock: Clock,
        random: Random,
        events: UplinkEvents,
    ) -> None:
        self._settings = settings
        self._ssl = ssl_context
        self._random = random
        self._faults: deque[NodeFault] = deque(maxlen=_MOST_FAULTS)
        self._stream: _Stream | None = None
        self.clock = clock
        self.events = events

    @property
    def connected(self) -> bool:
        """Whether a controller has welcomed us and is heard."""
        return self._stream is not None and self._stream.welcomed

    def send(self, message: object) -> bool:
        """Write a frame; False where it is lost. Samples are the first to be dropped."""
        if self._stream is None or not self._stream.welcomed:
            return False
        if self._stream.paused and isinstance(message, SampleBatch):
            return False
        self._stream.write(message)
        return True

    def fault(self, fault: NodeFault) -> None:
        """Report a fault, now or with the next connection."""
        if not self.send(fault):
            self._faults.append(fault)

    def fence(self, fenced: Fenced) -> None:
        """Tell the controller that it is not obeyed, and leave it."""
        if self._stream is not None:
            self._stream.write(fenced)
            self._stream.close()

    def greet_again(self) -> None:
        """The node has changed: say Hello once more on the same stream."""
        if self._stream is not None:
            self._stream.write(self.events.hello())

    def welcomed(self) -> None:
        """Say what waited."""
        while self._faults and self.send(self._faults[0]):
            self._faults.popleft()

    async def run(self) -> None:
        """Dial until cancelled, ever more rarely while nobody answers."""
        delay = _FIRST_RETRY_SECONDS
        while True:
            if await self._connection():
                delay = _FIRST_RETRY_SECONDS
            await asyncio.sleep(delay * self._random.uniform(0.5, 1.0))
            delay = min(2 * delay, _LAST_RETRY_SECONDS)

    async def _connection(self) -> bool:
        """One connection from dialling to its end; whether it was welcomed."""
        loop = asyncio.get_running_loop()
        settings = self._settings
        stream = _Stream(self, loop)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await loop.create_connection(
                    lambda: stream,
                    settings.host,
                    settings.port,
                    ssl=self._ssl,
                    server_hostname=settings.server_name or settings.host,
                    ssl_shutdown_timeout=1.0,
                )
        except (OSError, TimeoutError, ssl.SSLError) as error:
            _log.info("controller %s:%d: %s", settings.host, settings.port, error)
            return False
        self._stream = stream
        try:
            await self._watch(stream)
        finally:
            self._stream = None
            stream.abort()
        return stream.was_welcomed

    async def _watch(self, stream: "_Stream") -> None:
        """Heartbeats, and the end of a controller that is silent."""
        while not stream.closed.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(stream.closed), _HEARTBEAT_SECONDS)
            now = self.clock.monotonic_seconds()
            if now - stream.heard_seconds > stream.silence_seconds:
                _log.warning("the controller has been silent for %g s", stream.silence_seconds)
                return
            if stream.welcomed and now - stream.sent_seconds >= _HEARTBEAT_SECONDS / 2:
                stream.write(Heartbeat(self.clock.wall()))


class _Stream(asyncio.Protocol):
    """One connection."""

    def __init__(self, uplink: Uplink, loop: asyncio.AbstractEventLoop) -> None:
        self.closed: asyncio.Future[None] = loop.create_future()
        self.welcomed = False
        self.was_welcomed = False
        self.paused = False
        self.heard_seconds = self.sent_seconds = uplink.clock.monotonic_seconds()
        self.silence_seconds = _SILENCE_SECONDS
        self._uplink = uplink
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Both certificates are verified."""
        self._transport = cast("asyncio.Transport", transport)
        self.write(self._uplink.events.hello())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        """The controller or the network ended it."""
        self._transport = None
        self.welcomed = False
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        """The controller reads slower than we write."""
        self.paused = True

    def resume_writing(self) -> None:
        """It caught up."""
        self.paused = False

    def data_received(self, data: bytes) -> None:
        """Frames. Of several Desired that came together only the newest is carried out."""
        self.heard_seconds = self._uplink.clock.monotonic_seconds()
        try:
            messages = list(self._reader.feed(data))
            newest = max((i for i, m in enumerate(messages) if type(m) is Desired), default=-1)
            for index, message in enumerate(messages):
                if type(message) is not Desired or index == newest:
                    self._take(message)
        except InvalidInput as error:
            _log.error("the controller's frame is refused: %s", error)
            self.write(Fenced(error.code, error.message))
            self.close()

    def write(self, message: object) -> None:
        """Write one frame."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(message))
            self.sent_seconds = self._uplink.clock.monotonic_seconds()

    def close(self) -> None:
        """Close once what was written is out."""
        self.welcomed = False
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.welcomed = False
        if self._transport is not None:
            self._transport.abort()

    def _take(self, message: object) -> None:
        events = self._uplink.events
        if isinstance(message, Welcome):
            self._welcome(message)
        elif isinstance(message, Fenced):
            _log.error("the controller refuses this agent: %s: %s", message.code, message.message)
            self.close()
        elif not self.welcomed:
            raise InvalidInput("welcome-missing", "the first frame must be a Welcome")
        elif isinstance(message, Desired | SampleRate | CheckpointRequest):
            events.on_heard()
            events.on_command(message)
        elif isinstance(message, Heartbeat):
            events.on_heard()
        else:
            raise InvalidInput("frame-direction", f"no order: {type(message).__name__}")

    def _welcome(self, welcome: Welcome) -> None:
        if welcome.protocol_version != PROTOCOL_VERSION:
            raise InvalidInput("protocol-version", f"the controller: {welcome.protocol_version}")
        self.silence_seconds = welcome.silence_seconds
        if self._uplink.events.on_welcome(welcome):
            self.welcomed = self.was_welcomed = True
            self._uplink.welcomed()
