"""The agent's side of its driver children: one at work, perhaps a fresh one getting ready.

A child that dies is replaced with back-off. While a GPU does not answer, a fresh child is tried
beside the one at work and takes over only once it is ready, so the GPUs that answer notice
nothing. The child gets a clean environment: whoever can set this process's variables could else
feed a privileged agent false power through LD_LIBRARY_PATH.
"""

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Protocol, cast

from gridaware.control.ports import Incident
from gridaware.domain.errors import Bug
from gridaware.domain.fleet import Pace
from gridaware.node.actions import Inventory, Locked, Written
from gridaware.node.childwire import (
    ChildReader,
    Ended,
    Found,
    Happened,
    Lock,
    LockResult,
    Outdated,
    Rate,
    Results,
    Setup,
    Tick,
    Write,
    pack,
)
from gridaware.node.settings import DriverSettings

__all__ = ["ChildEvents", "DriverChildren"]

_log = logging.getLogger(__name__)

_READY_SECONDS = 10.0
_RESPAWN_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_FRESH_SECONDS = (3.0, 5.0, 10.0, 10.0, 10.0, 30.0, 60.0, 300.0)
"""A limit is to be given back, so the first minute has many tries; then a person must look."""
_STEADY_SECONDS = 60.0
_LEAST_SILENCE_SECONDS = 3.0


class ChildEvents(Protocol):
    """What the agent hears of its driver."""

    def on_found(self, inventory: Inventory) -> None:
        """A new child is at work."""
        ...

    def on_results(self, results: tuple[Written, ...]) -> None:
        """Limits were set and read back, or are overdue (``device-hung``)."""
        ...

    def on_locked(self, result: Locked) -> None:
        """A clock lock was set, or was not."""
        ...

    def on_tick(self, tick: Tick) -> None:
        """A sample of all GPUs."""
        ...

    def on_incident(self, incident: Incident) -> None:
        """A GPU has reported an error by itself."""
        ...

    def on_driver_gone(self, code: str, message: str) -> None:
        """No child is at work until the next ``on_found``."""
        ...

    def sound(self) -> frozenset[str]:
        """GPUs whose limits can be set now, so that a fresh child need not try."""
        ...


class DriverChildren:
    """Starts, watches and replaces driver children. All on the event loop."""

    def __init__(self, settings: DriverSettings, events: ChildEvents) -> None:
        self._settings = settings
        self._events = events
        self._sample_hz = 1.0
        self._working: _Child | None = None
        self._coming: _Child | None = None
        self._deaths = 0
        self._fresh_tries = 0
        self._paces: dict[str, Pace] = {}
        self._incomplete = False
        self._out: dict[str, int] = {}
        """GPU → ticket of the write that has not come back."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopped = False

    def start(self) -> None:
        """Start the first child."""
        self._spawn()

    def stop(self) -> None:
        """End every child at once; limits stand."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        for child in (self._working, self._coming):
            if child is not None:
                child.end()

    @property
    def pid(self) -> int | None:
        """Of the child at work."""
        return None if self._working is None else self._working.pid

    def write(self, ticket: int, limits_watts: tuple[tuple[str, float], ...]) -> None:
        """Set limits; each is answered through ``on_results``, at the latest as hung."""
        if self._working is None:
            return
        self._working.send(Write(ticket, limits_watts))
        for gpu_id, _ in limits_watts:
            self._out[gpu_id] = ticket
        loop = asyncio.get_running_loop()
        for seconds in {self.pace(gpu_id).call_seconds for gpu_id, _ in limits_watts}:
            loop.call_later(seconds, self._overdue, ticket, seconds)

    def lock(self, ticket: int, clocks_mhz: tuple[tuple[str, float | None], ...]) -> None:
        """Lock clocks; one that hangs shows in the ticks."""
        if self._working is not None:
            self._working.send(Lock(ticket, clocks_mhz))

    def rate(self, sample_hz: float) -> None:
        """Sample this often from now on."""
        self._sample_hz = sample_hz
        for child in (self._working, self._coming):
            if child is not None:
                child.send(Rate(sample_hz))

    def pace(self, gpu_id: str) -> Pace:
        """How fast the way to a GPU is."""
        return self._paces.get(gpu_id, Pace())

    def wish_fresh(self, *, wanted: bool) -> None:
        """A GPU does not answer: try a fresh child, ever more rarely while that lasts.

        So it is while a part of the driver is missing.
        """
        if not wanted and not self._incomplete:
            self._cancel("fresh")
            self._fresh_tries = 0
        elif "fresh" not in self._timers and self._coming is None and not self._stopped:
            seconds = _FRESH_SECONDS[min(self._fresh_tries, len(_FRESH_SECONDS) - 1)]
            self._fresh_tries += 1
            self._later("fresh", seconds, self._spawn)

    # What a child tells ---------------------------------------------------------------------

    def heard(self, child: "_Child", message: object) -> None:
        """One message of a child."""
        if isinstance(message, Found):
            self._take_over(child, message)
        elif isinstance(message, Ended):
            child.ended = message
        elif child is not self._working:
            return
        elif isinstance(message, Results):
            for result in message.results:
                if self._out.get(result.gpu_id) == result.ticket:
                    del self._out[result.gpu_id]
            self._events.on_results(message.results)
        elif isinstance(message, LockResult):
            self._events.on_locked(message.result)
        elif isinstance(message, Happened):
            self._events.on_incident(message.incident)
        elif isinstance(message, Outdated):
            self._spawn()
        elif isinstance(message, Tick):
            self._watch_silence()
            self._events.on_tick(message)

    def lost(self, child: "_Child") -> None:
        """A child's socket closed."""
        if child is self._coming:
            self._coming = None
            self._cancel("ready")
            if self._working is None:
                self._gone(child)
        elif child is self._working:
            self._working = None
            self._gone(child)

    # Inside ---------------------------------------------------------------------------------

    def _spawn(self) -> None:
        if self._stopped or self._coming is not None:
            return
        self._coming = _Child(self._settings, self)
        settable = self._events.sound() if self._working is not None else ()
        self._coming.start(self._sample_hz, tuple(settable))
        self._later("ready", _READY_SECONDS, self._not_ready)

    def _not_ready(self) -> None:
        _log.warning("driver child %s is not ready after %g s", self._coming, _READY_SECONDS)
        if self._coming is not None:
            self._coming.end()
        # A machine too busy to start a process says nothing of the GPU.
        self._fresh_tries = max(self._fresh_tries - 1, 0)

    def _take_over(self, child: "_Child", found: Found) -> None:
        self._cancel("ready")
        old, self._working, self._coming = self._working, child, None
        self._out.clear()
        if old is not None:
            old.end()
        self._later("steady", _STEADY_SECONDS, self._steady)
        self._watch_silence()
        self._paces = {device.gpu_id: device.pace for device in found.devices}
        self._incomplete = bool(found.faults)
        inventory = Inventory(found.driver_epoch, found.boundary, found.devices, found.faults)
        self._events.on_found(inventory)

    def _steady(self) -> None:
        self._deaths = 0

    def _gone(self, child: "_Child") -> None:
        self._cancel("steady")
        self._cancel("silence")
        self._out.clear()
        if self._stopped:
            return
        code, message = "driver-child-died", "the driver child died"
        if child.ended is not None:
            code, message = child.ended.code, child.ended.message
        seconds = _RESPAWN_SECONDS[min(self._deaths, len(_RESPAWN_SECONDS) - 1)]
        self._deaths += 1
        _log.warning("%s: %s; another starts in %g s", code, message, seconds)
        self._later("respawn", seconds, self._spawn)
        self._events.on_driver_gone(code, message)

    def _overdue(self, ticket: int, seconds: float) -> None:
        out = [gpu_id for gpu_id, of in self._out.items() if of == ticket]
        late = [gpu_id for gpu_id in out if self.pace(gpu_id).call_seconds <= seconds]
        if late and not self._stopped:
            for gpu_id in late:
                del self._out[gpu_id]
            self._events.on_results(
                tuple(Written(g, ticket, None, "device-hung", "DeviceHung") for g in late)
            )

    def _watch_silence(self) -> None:
        silence = max(_LEAST_SILENCE_SECONDS, 3.0 / self._sample_hz)
        self._later("silence", silence, self._silent)

    def _silent(self) -> None:
        _log.error("the driver child is silent: it is ended")
        if self._working is not None:
            self._working.end()

    def _later(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        self._cancel(name)

        def due() -> None:
            self._timers.pop(name, None)
            call()

        self._timers[name] = asyncio.get_running_loop().call_later(seconds, due)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


class _Child(asyncio.Protocol):
    """One child process and the socket to it."""

    def __init__(self, settings: DriverSettings, owner: DriverChildren) -> None:
        self.ended: Ended | None = None
        self._settings = settings
        self._owner = owner
        self._reader = ChildReader(from_child=True)
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the process."""
        return None if self._process is None else self._process.pid

    def start(self, sample_hz: float, settable: tuple[str, ...]) -> None:
        """Start the process and say what to load."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-P", "-m", "gridaware.node.child", str(theirs.fileno())],
                env={"PATH": "/usr/bin:/bin", **self._settings.environment},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        ours.setblocking(False)
        options = dict(self._settings.options)
        self.send(Setup(self._settings.module, options, sample_hz, settable))
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.create_unix_connection(lambda: self, sock=ours))
        task.add_done_callback(lambda done: done.exception())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ours to use."""
        self._transport = cast("asyncio.Transport", transport)
        for frame in self._early:
            self._transport.write(frame)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        """Messages, or a part of one."""
        try:
            for message in self._reader.feed(data):
                self._owner.heard(self, message)
        except Bug as error:
            _log.error("driver child: %s", error)
            self.end()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        """The process ended, by itself or by us."""
        self._transport = None
        self.end()
        self._owner.lost(self)

    def send(self, message: Setup | Rate | Write | Lock) -> None:
        """Write one message."""
        if self._transport is None:
            self._early.append(pack(message))
        else:
            self._transport.write(pack(message))

    def end(self) -> None:
        """Kill it. One stuck in the kernel is reaped once it lets go."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._reap(0.001)
        if self._transport is not None:
            self._transport.abort()

    def _reap(self, seconds: float) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            loop = asyncio.get_running_loop()
            loop.call_later(seconds, self._reap, min(2 * seconds, 1.0))
