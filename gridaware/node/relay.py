"""A relay: carries the streams of many agents to the controller, and decides nothing.

::

    agents ⇄ TLS, one stream each ⇄ Relay ⇄ TLS, one stream ⇄ controller

It proves who each agent is and then passes bytes, both ways, as they are: orders, acknowledgements,
samples, and the heartbeats too, so that agent and controller judge each other and never the relay.
While there is no controller there is no relay either: it hangs up on every agent, and on whoever
dials. Agents hold their leases then, as they do without a controller, and say Hello when it is
back.
"""

import asyncio
import logging
import ssl
from random import Random

from gridaware import __version__
from gridaware.clock import Clock
from gridaware.domain.errors import ConfigError, InvalidInput
from gridaware.domain.wire import (
    PROTOCOL_VERSION,
    Heartbeat,
    RelayClosed,
    Relayed,
    RelayHello,
    RelayOpened,
    Welcome,
)
from gridaware.node.dialler import Dialler
from gridaware.node.outbox import Outbox
from gridaware.node.settings import RelaySettings
from gridaware.node.tls import peer_name
from gridaware.node.tlsstream import TlsStream, listen, read_buffer

__all__ = ["Relay"]

_log = logging.getLogger(__name__)

_MOST_UNSENT_BYTES = 1024 * 1024
"""An agent that leaves more than this unread is hung up on; it dials again and starts afresh."""


class Relay(Dialler):
    """One relay: :meth:`listen`, then :meth:`run`.

    Args:
        settings: Where it listens, and where the controller is.
        listen: TLS for agents: no one is heard without a certificate of our CA.
        dial: TLS for the controller.
        clock: Of this machine.
        random: Spreads reconnections.
    """

    def __init__(
        self,
        settings: RelaySettings,
        listen: ssl.SSLContext,
        dial: ssl.SSLContext,
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__(settings.controller, dial, clock, random)
        self.listen_context = listen
        self.buffer = read_buffer()
        self._relay = settings
        self._agents: dict[int, _Agent] = {}
        self._channels = 0
        self._outbox = Outbox(self.say)
        self._server: asyncio.Server | None = None

    async def listen(self) -> int:
        """Listen; returns the port, which the system chooses where the settings' is 0.

        Raises:
            ConfigError: the address cannot be used (``relay-listen``).
        """
        host, port = self._relay.listen.host, self._relay.listen.port
        try:
            server = await listen(lambda: _Agent(self), host, port)
        except OSError as error:
            raise ConfigError("relay-listen", f"cannot listen on {host}:{port}: {error}") from error
        self._server = server
        return int(server.sockets[0].getsockname()[1])

    async def run(self) -> None:
        """Carry until cancelled, then hang up on everybody."""
        try:
            await super().run()
        finally:
            self.lost()
            if self._server is not None:
                self._server.close()
                await self._server.wait_closed()

    # Agents ----------------------------------------------------------------------------------

    def opened(self, agent: "_Agent") -> int:
        """An agent has proved who it is; its channel."""
        self._channels += 1
        self._agents[self._channels] = agent
        self._outbox.flush()
        self.say(RelayOpened(self._channels, agent.certificate_bytes()))
        if self.paused:
            agent.pause_reading()
        return self._channels

    def put(self, channel: int, data: bytes) -> None:
        """An agent said something."""
        self._outbox.put(channel, data)

    def closed(self, channel: int) -> None:
        """An agent's stream is over."""
        if self._agents.pop(channel, None) is not None:
            self._outbox.close(channel)

    # The controller --------------------------------------------------------------------------

    def hello(self) -> RelayHello:
        """Who we are."""
        return RelayHello(PROTOCOL_VERSION, self._relay.relay_id, __version__)

    def welcome(self, welcome: Welcome) -> bool:
        """Whether a controller is obeyed is for each agent to say."""
        _log.info("carrying to the controller of epoch %d", welcome.controller_epoch)
        return True

    def heard(self, message: object) -> None:
        """Something for agents."""
        if isinstance(message, Relayed):
            for channels, data in message.parcels:
                for channel in channels:
                    if (agent := self._agents.get(channel)) is not None:
                        agent.pass_on(data)
        elif isinstance(message, RelayClosed):
            if (agent := self._agents.pop(message.channel, None)) is not None:
                agent.close()
        elif not isinstance(message, Heartbeat):
            raise InvalidInput("frame-direction", f"not for a relay: {type(message).__name__}")

    def flow(self, *, paused: bool) -> None:
        """What the controller does not take must not pile up here: agents feel it themselves."""
        for agent in self._agents.values():
            if paused:
                agent.pause_reading()
            else:
                agent.resume_reading()

    def lost(self) -> None:
        """Without a controller there is nobody to speak for: hang up on everybody."""
        agents = tuple(self._agents.values())
        self._agents.clear()
        self._outbox.clear()
        if agents:
            _log.warning("the controller is gone: hanging up on %d agents", len(agents))
        for agent in agents:
            agent.abort()


class _Agent(TlsStream):
    """One agent that has dialled us."""

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay.listen_context, relay.buffer)
        self._relay = relay
        self._channel = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Without a controller it hears what it would hear from none: the end of the stream."""
        super().connection_made(transport)
        if not self._relay.connected:
            self.abort()

    def secured(self) -> None:
        """Its certificate is verified; the controller judges it again."""
        if not self._relay.connected:
            self.abort()
            return
        self._channel = self._relay.opened(self)
        _log.info("channel %d: %s", self._channel, peer_name(self.certificate()))

    def received(self, data: memoryview) -> None:
        """Whatever it is, it is not for us."""
        self._relay.put(self._channel, bytes(data))

    def pass_on(self, data: bytes) -> None:
        """Bytes of the controller."""
        self.write(data)
        if self.unsent_bytes > _MOST_UNSENT_BYTES:
            _log.warning("channel %d does not read: hanging up", self._channel)
            self.abort()

    def gone(self) -> None:
        """Its stream is over."""
        self._relay.closed(self._channel)
