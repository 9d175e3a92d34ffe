"""The agent's end of the stream."""

import ssl
from collections import deque
from collections.abc import Iterable
from random import Random
from typing import Protocol

from gridaware.clock import Clock
from gridaware.domain.errors import InvalidInput
from gridaware.domain.wire import (
    Command,
    Desired,
    Fenced,
    Heartbeat,
    Hello,
    NodeFault,
    SampleBatch,
    Welcome,
)
from gridaware.node.dialler import Dialler
from gridaware.node.settings import ControllerSettings

__all__ = ["Uplink", "UplinkEvents"]

_MOST_FAULTS = 256


class UplinkEvents(Protocol):
    """What the agent hears of the controller, on the event loop."""

    def hello(self) -> Hello:
        """What to say first."""
        ...

    def on_welcome(self, welcome: Welcome) -> bool:
        """Accepted; False = this controller is not obeyed."""
        ...

    def on_command(self, message: Command) -> None:
        """An order."""
        ...

    def on_heard(self) -> None:
        """Any frame."""
        ...


class Uplink(Dialler):
    """Keeps one stream to the controller, or to a relay that carries it.

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
        super().__init__(settings, ssl_context, clock, random)
        self.events = events
        self._faults: deque[NodeFault] = deque(maxlen=_MOST_FAULTS)

    def send(self, message: object) -> bool:
        """Write a frame; False where it is lost. Samples are the first to be dropped."""
        if self.paused and isinstance(message, SampleBatch):
            return False
        return self.say(message)

    def fault(self, fault: NodeFault) -> None:
        """Report a fault, now or with the next connection."""
        if not self.send(fault):
            self._faults.append(fault)

    def fence(self, fenced: Fenced) -> None:
        """Tell the controller that it is not obeyed, and leave it."""
        if self._stream is not None:
            self._stream.say(fenced)
            self._stream.close()

    def greet_again(self) -> None:
        """The node has changed: say Hello once more on the same stream."""
        if self._stream is not None:
            self._stream.say(self.hello())

    # What the dialler asks -------------------------------------------------------------------

    def hello(self) -> Hello:
        """Who we are and what we hold."""
        return self.events.hello()

    def welcome(self, welcome: Welcome) -> bool:
        """The agent judges the controller."""
        return self.events.on_welcome(welcome)

    def welcomed(self) -> None:
        """Say what waited."""
        while self._faults and self.send(self._faults[0]):
            self._faults.popleft()

    def sift(self, messages: list[object]) -> Iterable[object]:
        """Of several Desired that came together only the newest is carried out."""
        if len(messages) == 1:
            return messages
        newest = max((i for i, m in enumerate(messages) if type(m) is Desired), default=-1)
        return (m for i, m in enumerate(messages) if type(m) is not Desired or i == newest)

    def heard(self, message: object) -> None:
        """An order, or a sign of life."""
        if isinstance(message, Command):
            self.events.on_heard()
            self.events.on_command(message)
        elif isinstance(message, Heartbeat):
            self.events.on_heard()
        else:
            raise InvalidInput("frame-direction", f"no order: {type(message).__name__}")
