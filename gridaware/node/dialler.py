"""Dials the controller, for as long as it takes, and keeps one stream to it: agents and relays."""

import asyncio
import logging
import ssl
from collections.abc import Iterable
from random import Random

from gridaware.clock import Clock
from gridaware.domain.errors import InvalidInput
from gridaware.domain.wire import PROTOCOL_VERSION, Fenced, Heartbeat, Welcome
from gridaware.node.frames import FrameReader, encode
from gridaware.node.settings import ControllerSettings
from gridaware.node.tlsstream import TlsStream, read_buffer

__all__ = ["Dialler"]

_log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 0.5
_LAST_RETRY_SECONDS = 2.0
"""A controller that comes back hears everybody within about this, spread evenly over it: a thousand
handshakes are a second's work (``python -m benchmarks.fanout``)."""
_LEAST_RETRY = 0.1
"""Share of a delay that no chance takes away."""
_HEARTBEAT_SECONDS = 1.0
_CONNECT_SECONDS = 3.0
_WELCOME_SECONDS = 10.0
"""Longer than for a heartbeat: a controller that has just come back greets a whole fleet, and
whoever dials once more makes it later for all."""


class Dialler:
    """One stream at a time; a subclass says what is said and heard on it."""

    def __init__(
        self,
        settings: ControllerSettings,
        ssl_context: ssl.SSLContext,
        clock: Clock,
        random: Random,
    ) -> None:
        self.clock = clock
        self._settings = settings
        self._ssl = ssl_context
        self._random = random
        self._buffer = read_buffer()
        self._stream: _Stream | None = None

    # For the subclass ------------------------------------------------------------------------

    def hello(self) -> object:
        """What to say first."""
        raise NotImplementedError

    def welcome(self, welcome: Welcome) -> bool:
        """The controller accepts us; False = it is not obeyed."""
        raise NotImplementedError

    def welcomed(self) -> None:
        """From now on :meth:`say` is heard."""

    def sift(self, messages: list[object]) -> Iterable[object]:
        """Of what came together, what matters."""
        return messages

    def heard(self, message: object) -> None:
        """Any frame after the Welcome.

        Raises:
            InvalidInput: it is not for us.
        """
        raise NotImplementedError

    def flow(self, *, paused: bool) -> None:
        """The controller reads slower than we write, or has caught up."""

    def lost(self) -> None:
        """A stream that was welcomed is over."""

    # What can be done with it ----------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether a controller has welcomed us and is heard."""
        return self._stream is not None and self._stream.welcomed

    @property
    def paused(self) -> bool:
        """Whether the controller reads slower than we write."""
        return self._stream is not None and self._stream.paused

    def say(self, message: object) -> bool:
        """Write a frame; False where there is nobody to hear it."""
        if self._stream is None or not self._stream.welcomed:
            return False
        self._stream.say(message)
        return True

    async def run(self) -> None:
        """Dial until cancelled, ever more rarely while nobody answers."""
        delay = _FIRST_RETRY_SECONDS
        while True:
            if await self._connection():
                delay = _FIRST_RETRY_SECONDS
                self.lost()
            await asyncio.sleep(delay * self._random.uniform(_LEAST_RETRY, 1.0))
            delay = min(2 * delay, _LAST_RETRY_SECONDS)

    async def _connection(self) -> bool:
        """One connection from dialling to its end; whether it was welcomed."""
        loop = asyncio.get_running_loop()
        settings = self._settings
        name = settings.server_name or settings.host
        stream = _Stream(self, loop.create_future(), self._ssl, self._buffer, name)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await loop.create_connection(lambda: stream, settings.host, settings.port)
        except (OSError, TimeoutError) as error:
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
        while not stream.ended.done():
            await asyncio.wait((stream.ended,), timeout=_HEARTBEAT_SECONDS)
            if stream.closing:  # or not secure yet: both end by themselves
                continue
            now = self.clock.monotonic_seconds()
            if now - stream.heard_seconds > stream.silence_seconds:
                _log.warning("the controller has been silent for %g s", stream.silence_seconds)
                return
            if stream.welcomed and now - stream.sent_seconds >= _HEARTBEAT_SECONDS / 2:
                stream.say(Heartbeat(self.clock.wall()))


class _Stream(TlsStream):
    """One connection."""

    def __init__(
        self,
        dialler: Dialler,
        ended: asyncio.Future[None],
        ssl_context: ssl.SSLContext,
        buffer: memoryview,
        server_name: str,
    ) -> None:
        super().__init__(ssl_context, buffer, server_name)
        self.ended = ended
        self.welcomed = False
        self.was_welcomed = False
        self.paused = False
        self.heard_seconds = self.sent_seconds = dialler.clock.monotonic_seconds()
        self.silence_seconds = _WELCOME_SECONDS
        self._dialler = dialler
        self._reader = FrameReader()

    def secured(self) -> None:
        """Both certificates are verified."""
        self.heard_seconds = self._dialler.clock.monotonic_seconds()
        self.say(self._dialler.hello())

    def gone(self) -> None:
        """The controller or the network ended it."""
        self.welcomed = False
        if not self.ended.done():
            self.ended.set_result(None)

    def flow(self, *, paused: bool) -> None:
        """The controller reads slower than we write, or has caught up."""
        self.paused = paused
        self._dialler.flow(paused=paused)

    def received(self, data: memoryview) -> None:
        """Frames, or a part of one."""
        self.heard_seconds = self._dialler.clock.monotonic_seconds()
        try:
            for message in self._dialler.sift(list(self._reader.feed(data))):
                if self.closing:
                    return
                self._take(message)
        except InvalidInput as error:
            _log.error("the controller's frame is refused: %s", error)
            self.say(Fenced(error.code, error.message))
            self.close()

    def say(self, message: object) -> None:
        """Write one frame."""
        if not self.closing:
            self.write(encode(message))
            self.sent_seconds = self._dialler.clock.monotonic_seconds()

    def close(self) -> None:
        """Close once what was written is out."""
        self.welcomed = False
        super().close()

    def abort(self) -> None:
        """Close at once."""
        self.welcomed = False
        super().abort()

    def _take(self, message: object) -> None:
        if isinstance(message, Welcome):
            self._welcome(message)
        elif isinstance(message, Fenced):
            _log.error("the controller refuses us: %s: %s", message.code, message.message)
            self.close()
        elif not self.welcomed:
            raise InvalidInput("welcome-missing", "the first frame must be a Welcome")
        else:
            self._dialler.heard(message)

    def _welcome(self, welcome: Welcome) -> None:
        if welcome.protocol_version != PROTOCOL_VERSION:
            raise InvalidInput("protocol-version", f"the controller: {welcome.protocol_version}")
        self.silence_seconds = welcome.silence_seconds
        if self._dialler.welcome(welcome):
            self.welcomed = self.was_welcomed = True
            self._dialler.welcomed()
