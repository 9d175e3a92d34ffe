"""The loop: takes stimuli one at a time, ledgers them, and lets the machine's answers be done.

It runs at its own pace and re-reads the world each tick. Whatever comes in goes through
:meth:`Loop.post`, on one thread: appended to the ledger first, then decided, then the decisions are
appended, then carried out. Only the durability of a signal is awaited, by whoever answers for it.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from gridaware.clock import Clock
from gridaware.control.codec import encode
from gridaware.control.dispatch import Dispatcher
from gridaware.control.instructions import (
    Alarm,
    Answer,
    Decide,
    Instruction,
    SampleAt,
    SendLease,
)
from gridaware.control.machine import Machine
from gridaware.control.ports import Ledger
from gridaware.control.state import State
from gridaware.control.stimuli import Dispatched, Stimulus, Tick
from gridaware.domain.errors import Unavailable
from gridaware.domain.moment import Moment
from gridaware.domain.reading import Observation

__all__ = ["Loop", "SteadyClock", "Watch"]

Watch = Callable[[Stimulus, Moment, State], None]
"""Sees each stimulus after the machine has taken it in."""
_LEDGERED = (Decide, SendLease, Answer, Alarm)
_log = logging.getLogger(__name__)


class SteadyClock:
    """Moments whose seconds go on across restarts, also of the machine."""

    def __init__(self, clock: Clock, last: Moment | None = None) -> None:
        self._clock = clock
        self._offset = 0.0
        if last is not None and last.seconds > clock.monotonic_seconds():
            slept = max((clock.wall() - last.wall).total_seconds(), 0.0)
            self._offset = last.seconds + slept - clock.monotonic_seconds()

    def now(self) -> Moment:
        """The present moment."""
        return Moment(self._clock.monotonic_seconds() + self._offset, self._clock.wall())


class Loop:
    """Feeds the machine and carries its instructions out."""

    def __init__(
        self,
        machine: Machine,
        steady: SteadyClock,
        ledger: Ledger,
        dispatcher: Dispatcher,
        observe: Callable[[Moment], Observation],
        watch: Watch,
        *,
        tick_seconds: float = 1.0,
    ) -> None:
        self.machine = machine
        self._steady = steady
        self._ledger = ledger
        self._dispatcher = dispatcher
        self._observe = observe
        self._watch = watch
        self._tick_seconds = tick_seconds
        self._hurry = asyncio.Event()
        self._blind = False
        self.last_seq = 0
        self.tick_lag_seconds = 0.0

    def post(self, stimulus: Stimulus) -> list[Instruction]:
        """Take one stimulus in, now. Must be called on the loop's own thread.

        While the disk refuses writes the grid's promise comes first: ticks and agents' messages
        are still handled, unledgered and alarmed; whatever asks for something new is refused.

        Raises:
            Unavailable: the ledger takes no writes, and the stimulus is not one that must go on.
        """
        now = self._steady.now()
        self._append("stimulus", stimulus, now, must=_must_be_ledgered(stimulus))
        instructions = self.machine.handle(stimulus, now)
        self._watch(stimulus, now, self.machine.state)
        for instruction in instructions:
            if isinstance(instruction, _LEDGERED):
                self._append("decision", instruction, now, must=False)
        sent = self._dispatcher.carry_out(instructions, self.machine.state)
        if sent is not None:
            # The decided clock stops here, with the frames in the sockets' buffers.
            self.post(Dispatched(sent))
        if any(isinstance(i, SampleAt) for i in instructions):
            self._hurry.set()
        return instructions

    async def run(self) -> None:
        """Tick until cancelled: once a second, ten times as often around commands."""
        due = self._steady.now().seconds
        while True:
            now = self._steady.now()
            self.tick_lag_seconds = max(now.seconds - due, 0.0)
            try:
                self.post(Tick(self._observe(now)))
            except Exception:  # noqa: BLE001 - logged with its trace
                # A bug in one tick must not end the loop that keeps the promise.
                _log.exception("a tick failed")
            hz = self.machine.state.sample_hz
            period = self._tick_seconds if hz <= 1.0 else 1.0 / hz
            due = max(due + period, now.seconds)
            self._hurry.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(due - self._steady.now().seconds, 0.0)):
                    await self._hurry.wait()
                # What was asked is decided already; this tick is to see what comes of it, so it
                # leaves the limits one fast period, and the acknowledgements a free loop.
                due = min(due, self._steady.now().seconds + 1.0 / self.machine.state.sample_hz)
                await asyncio.sleep(max(due - self._steady.now().seconds, 0.0))

    def _append(self, kind: str, thing: Stimulus | Instruction, now: Moment, *, must: bool) -> None:
        try:
            self.last_seq = self._ledger.append(kind, encode(thing, now), now.wall)
            self._blind = False
        except Unavailable as error:
            if must:
                raise
            if not self._blind:
                _log.error("the ledger takes no writes: %s", error)
            self._blind = True


def _must_be_ledgered(stimulus: Stimulus) -> bool:
    return type(stimulus).__name__ in {
        "SignalReceived",
        "FeedAdded",
        "FeedRemoved",
        "JobSubmitted",
        "JobCommanded",
        "EventCommanded",
    }
