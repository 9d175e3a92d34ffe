"""The loop: takes stimuli one at a time, ledgers them, and lets the machine's answers be done.

It runs at its own pace and re-reads the world each tick. Whatever comes in goes through
:meth:`Loop.post`, on one thread: appended to the ledger first, then decided, then the decisions are
appended, then carried out. Only the durability of a signal is awaited, by whoever answers for it.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from gridaware.clock import Clock
from gridaware.control.codec import encode
from gridaware.control.dispatch import Dispatcher
from gridaware.control.instructions import (
    Alarm,
    Answer,
    Decide,
    Instruction,
    SampleAt,
    SendArms,
    SendLease,
    SendTrigger,
)
from gridaware.control.machine import Machine
from gridaware.control.ports import Ledger
from gridaware.control.state import State
from gridaware.control.stimuli import Dispatched, SignalReceived, Stimulus, Tick
from gridaware.domain.errors import Unavailable
from gridaware.domain.event import EventState
from gridaware.domain.moment import Moment
from gridaware.domain.reading import Observation
from gridaware.domain.signal import Signal

__all__ = ["Loop", "SteadyClock", "Watch"]

Watch = Callable[[Stimulus, Moment, State], None]
"""Sees each stimulus after the machine has taken it in."""
STEP = timedelta(seconds=2)
"""A wall clock that is this far from where time has brought it was set by somebody."""
_KEPT = {
    EventState.RAMPING_DOWN,
    EventState.HOLDING,
    EventState.RAMPING_UP,
    EventState.RESTORED,
}
"""Events in these states run, and are settled, on the wall clock by which they began."""
_LEDGERED = (Decide, SendLease, SendTrigger, SendArms, Answer, Alarm)
_log = logging.getLogger(__name__)


class SteadyClock:
    """Moments whose seconds go on across restarts, also of the machine.

    The wall clock is followed while it moves as time does. A step is held back until :meth:`follow`
    is called, so that setting a clock neither ends an event nor begins one; sleep is no step.
    """

    def __init__(self, clock: Clock, last: Moment | None = None) -> None:
        self._clock = clock
        self._offset = 0.0
        if last is not None and last.seconds > clock.monotonic_seconds():
            slept = max((clock.wall() - last.wall).total_seconds(), 0.0)
            self._offset = last.seconds + slept - clock.monotonic_seconds()
        self._seen = (clock.boot_seconds(), clock.wall())

    def now(self) -> Moment:
        """The present moment."""
        return Moment(self._clock.monotonic_seconds() + self._offset, self._wall())

    def stepped(self) -> timedelta:
        """By how much the system's wall clock is ahead of the one that is held."""
        return self._clock.wall() - self._wall()

    def follow(self) -> timedelta:
        """Take the system's wall clock as it is now; by how much it was stepped."""
        step = self.stepped()
        self._seen = (self._clock.boot_seconds(), self._clock.wall())
        return step

    def on_held_time(self, signal: Signal) -> Signal:
        """A signal that was stamped by the system's clock, as the held one would have done it."""
        step = self.stepped()
        late = signal.received_at - self._wall()
        if abs(step) < STEP or abs(late) <= abs(late - step):  # a person's has the held stamp
            return signal
        request = signal.request
        if request is not None and request.immediate:
            end = None if request.end is None else request.end - step
            request = replace(request, start=request.start - step, end=end)
        return replace(signal, received_at=signal.received_at - step, request=request)

    def _wall(self) -> datetime:
        boot_seconds, wall = self._clock.boot_seconds(), self._clock.wall()
        seen_seconds, seen_wall = self._seen
        held = seen_wall + timedelta(seconds=boot_seconds - seen_seconds)
        if abs(wall - held) >= STEP:
            return held
        self._seen = (boot_seconds, wall)
        return wall


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
        if isinstance(stimulus, Tick):
            self._follow_wall()
        elif isinstance(stimulus, SignalReceived):
            stimulus = SignalReceived(self._steady.on_held_time(stimulus.signal))
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

    def _follow_wall(self) -> None:
        """Take a step of the wall clock over once no event is being kept by the old one."""
        events = self.machine.state.events.values()
        if abs(self._steady.stepped()) >= STEP and not any(t.event.state in _KEPT for t in events):
            step = self._steady.follow()
            _log.warning("the wall clock was set by %+.0f s", step.total_seconds())

    def _append(self, kind: str, thing: Stimulus | Instruction, now: Moment, *, must: bool) -> None:
        try:
            self.last_seq = self._ledger.append(kind, encode(thing, now), now.wall, must=must)
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
        "FleetReleased",
    }
