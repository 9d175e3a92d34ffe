"""The threads of a driver child: one for the calls of each GPU, one for what is done beside them.

A call that hangs holds up its own GPU alone. A write goes before the rest of a sample that is under
way. Errors that a GPU reports by itself are waited for beside the calls, so that one whose calls
hang is still heard; and there it is seen whether its board has changed (slices, power smoothing).
"""

import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import NoReturn, TypeVar

from gridaware.clock import Clock
from gridaware.control.ports import (
    Boards,
    ClockLocks,
    Driver,
    GpuIdentity,
    Incidents,
    Paced,
)
from gridaware.domain.errors import DeviceError, DeviceNotSupported, DriverGone, GridawareError
from gridaware.domain.fleet import BoardState, ClockRange, Pace
from gridaware.node.actions import Device, LimitReading, Locked, Written
from gridaware.node.childwire import (
    Ended,
    FromChild,
    GpuTick,
    Happened,
    LockResult,
    Outdated,
    Results,
    pack,
)

__all__ = ["EXIT_ENDED", "Outlet", "Round", "Worker", "end"]

EXIT_ENDED = 3
_PERMISSION_SECONDS = 30.0
"""How often permission that is missing is looked for again."""
_LISTEN_SECONDS = 1.0
_LISTEN_AGAIN_SECONDS = 30.0
_BOARD_SECONDS = 30.0
"""How often it is seen whether a board is still in the state that was told."""
_SAME_SECONDS = 60.0
"""An error that a GPU reports over and over is told this often."""

Answer = TypeVar("Answer")


class Outlet:
    """The way to the agent, shared by all threads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        self._ready: list[Written] = []

    def send(self, message: FromChild) -> None:
        """Write one frame; the process ends when the agent is gone."""
        with self._lock:
            self._put(message)

    def expect(self, gpu_ids: set[str]) -> None:
        """A Write has begun: its results are kept until all are there."""
        with self._lock:
            self._flush()
            self._waiting = gpu_ids

    def add(self, result: Written) -> None:
        """One result."""
        with self._lock:
            self._waiting.discard(result.gpu_id)
            self._ready.append(result)
            if not self._waiting:
                self._flush()

    def patience_over(self) -> None:
        """Send what is there; each later result goes at once."""
        with self._lock:
            self._waiting = set()
            self._flush()

    def _flush(self) -> None:
        if self._ready:
            self._put(Results(tuple(self._ready)))
            self._ready.clear()

    def _put(self, message: FromChild) -> None:
        try:
            self._connection.sendall(pack(message))
        except OSError:
            os._exit(0)


class Round:
    """One sampling of all GPUs that are free."""

    def __init__(self, waiting: int, *, limits: bool, pids: bool) -> None:
        self.limits = limits
        self.pids = pids
        self._waiting = waiting
        self._lock = threading.Lock()
        self.done = threading.Event()

    def finished(self) -> None:
        """One GPU is through."""
        with self._lock:
            self._waiting -= 1
            if self._waiting == 0:
                self.done.set()


class Worker:
    """All calls for one GPU, on a thread of its own."""

    def __init__(
        self,
        driver: Driver,
        gpu: GpuIdentity,
        clock: Clock,
        outlet: Outlet,
        *,
        settable: bool = False,
    ) -> None:
        self.gpu_id = gpu.gpu_id
        self.device: Device | None = None
        self.described = threading.Event()
        self.call_since: float | None = None
        self.sampling = False
        self.values: GpuTick = GpuTick(gpu.gpu_id, False, None, None, None, None, None, 0.0)
        self._gpu = gpu
        self._driver = driver
        self._clock = clock
        self._outlet = outlet
        self._ticket = 0
        self._read_limits = True
        self._writes: deque[tuple[int, float]] = deque()
        self._locks: deque[tuple[int, float | None]] = deque()
        self._settable = settable
        """Known without trying."""
        self._may_set = True
        self._looked_at = clock.monotonic_seconds()
        self._queue: SimpleQueue[Round | None] = SimpleQueue()
        self._beside = _Beside(driver, gpu, clock, outlet)
        self._locked = False
        """A lock of ours stands, so the clock shows whether it is kept."""
        threading.Thread(target=self._run, name=f"gpu-{gpu.index}", daemon=True).start()

    def write(self, ticket: int, watts: float) -> None:
        """Set a limit as soon as the present call is back; a newer one replaces it."""
        self._writes.append((ticket, watts))
        self._queue.put(None)

    def lock(self, ticket: int, most_mhz: float | None) -> None:
        """Lock the clock, after any limit; a newer lock replaces it."""
        self._locks.append((ticket, most_mhz))
        self._queue.put(None)

    def sample(self, sampling: Round) -> None:
        """Read the GPU; not before the last reading is through."""
        self.sampling = True
        self._queue.put(sampling)

    def silent_device(self) -> Device:
        """What is known of a GPU that does not say who it is."""
        gpu = self._gpu
        return Device(
            gpu.gpu_id, gpu.index, gpu.model, None, False, None, None, "device-hung", "DeviceHung"
        )

    def _run(self) -> None:
        try:
            self._describe()
            while True:
                sampling = self._queue.get()
                self._write_newest()
                self._lock_newest()
                if sampling is not None:
                    self.values = self._read(sampling)
                    self.sampling = False
                    sampling.finished()
        except DriverGone as error:
            end(self._outlet, error)

    def _call(self, function: Callable[[str], Answer]) -> Answer:
        self.call_since = self._clock.monotonic_seconds()
        try:
            return function(self.gpu_id)
        finally:
            self.call_since = None

    def _describe(self) -> None:
        driver = self._driver
        limits = requested = enforced = code = kind = None
        can_set = False
        try:
            limits = self._call(driver.limit_range)
            can_set = self._settable or self._call(driver.can_set)
            requested = self._call(driver.requested_limit_watts)
            enforced = self._call(driver.enforced_limit_watts)
        except DriverGone:
            raise
        except DeviceError as error:
            code, kind = error.code, type(error).__name__
        gpu, self._may_set = self._gpu, can_set
        clocks, board = self._extras()
        self.device = Device(
            gpu.gpu_id,
            gpu.index,
            gpu.model,
            limits,
            can_set,
            requested,
            enforced,
            code,
            kind,
            clocks,
            board,
            pace=driver.pace(gpu.gpu_id) if isinstance(driver, Paced) else Pace(),
        )
        self.described.set()
        self._beside.told = self.device.board

    def _extras(self) -> tuple[ClockRange | None, BoardState]:
        """What not every driver has, nor every GPU."""
        driver = self._driver
        locks = driver if isinstance(driver, ClockLocks) else None
        boards = driver if isinstance(driver, Boards) else None
        clocks = None if locks is None else self._optional(locks.clock_range)
        board = None if boards is None else self._optional(boards.board_state)
        return clocks, board or BoardState()

    def _write_newest(self) -> None:
        newest = None
        while self._writes:
            newest = self._writes.popleft()
        if newest is None:
            return
        ticket, watts = newest
        enforced = code = kind = read_at = None
        try:
            self._call(lambda gpu_id: self._driver.set_limit_watts(gpu_id, watts))
            enforced = self._call(self._driver.enforced_limit_watts)
            read_at = self._clock.boot_seconds()
        except DriverGone:
            raise
        except DeviceError as error:
            code, kind = error.code, type(error).__name__
        self._may_set = self._may_set and kind != "DeviceNoPermission"
        self._ticket = ticket
        self._read_limits = True
        self._outlet.add(Written(self.gpu_id, ticket, enforced, code, kind, read_at))

    def _lock_newest(self) -> None:
        newest = None
        while self._locks:
            newest = self._locks.popleft()
        if newest is None:
            return
        ticket, most_mhz = newest
        code = kind = None
        try:
            self._call(lambda gpu_id: self._set_lock(gpu_id, most_mhz))
            self._locked = most_mhz is not None
        except DriverGone:
            raise
        except DeviceError as error:
            code, kind = error.code, type(error).__name__
        self._outlet.send(LockResult(Locked(self.gpu_id, ticket, most_mhz, code, kind)))

    def _set_lock(self, gpu_id: str, most_mhz: float | None) -> None:
        driver = self._driver
        if not isinstance(driver, ClockLocks):
            raise DeviceNotSupported("device-not-supported", f"GPU {gpu_id}: no clock lock")
        if most_mhz is None:
            driver.unlock_clocks(gpu_id)
        else:
            driver.lock_clocks(gpu_id, most_mhz)

    def _read(self, sampling: Round) -> GpuTick:
        values = GpuTick(self.gpu_id, False, None, None, None, None, None, 0.0)
        try:
            values.power_watts = self._call(self._driver.power_watts).watts
            values.fresh = True
        except DriverGone:
            raise
        except DeviceError as error:
            code, kind = error.code, type(error).__name__
            values.limits = LimitReading(self.gpu_id, self._ticket, None, None, code, kind)
            return values
        self._write_newest()
        values.energy_joules = self._optional(
            lambda gpu_id: self._driver.energy_joules(gpu_id).joules
        )
        self._write_newest()
        if sampling.limits or self._read_limits:
            values.limits = self._limits()
            self._write_newest()
            values.cap_binds = self._optional(self._driver.cap_binds)
            self._write_newest()
        if sampling.pids:
            values.pids = self._optional(self._driver.processes)
            self._write_newest()
        return values

    def _limits(self) -> LimitReading:
        self._read_limits = False
        ticket = self._ticket
        requested = enforced = code = kind = None
        try:
            requested = self._call(self._driver.requested_limit_watts)
            enforced = self._call(self._driver.enforced_limit_watts)
        except DriverGone:
            raise
        except DeviceError as error:
            code, kind = error.code, type(error).__name__
        allowed = self._look_for_permission()
        clock = self._optional(self._clock_mhz) if self._locked else None
        return LimitReading(self.gpu_id, ticket, requested, enforced, code, kind, allowed, clock)

    def _clock_mhz(self, gpu_id: str) -> float | None:
        driver = self._driver
        return driver.clock_mhz(gpu_id) if isinstance(driver, ClockLocks) else None

    def _look_for_permission(self) -> bool | None:
        """Whether permission that was missing is there now; None = it was not looked for."""
        now = self._clock.monotonic_seconds()
        if self._may_set or now - self._looked_at < _PERMISSION_SECONDS:
            return None
        self._looked_at = now
        self._may_set = bool(self._optional(self._driver.can_set))
        return self._may_set

    def _optional(self, function: Callable[[str], Answer]) -> Answer | None:
        """What the GPU may lack or fail to say just now."""
        try:
            return self._call(function)
        except DriverGone:
            raise
        except DeviceError:
            return None


class _Beside:
    """What is done for one GPU beside its calls: listening to it, and looking at its board.

    On a thread of its own, so that neither holds up a write.
    """

    def __init__(self, driver: Driver, gpu: GpuIdentity, clock: Clock, outlet: Outlet) -> None:
        self.told: BoardState | None = None
        """What the agent knows of the board; None = nothing yet."""
        self._incidents = driver if isinstance(driver, Incidents) else None
        self._boards = driver if isinstance(driver, Boards) else None
        self._gpu_id = gpu.gpu_id
        self._clock = clock
        self._outlet = outlet
        self._news: dict[str, float] = {}
        self._other: BoardState | None = None
        self._look_at = clock.monotonic_seconds() + _BOARD_SECONDS
        if self._incidents is not None or self._boards is not None:
            threading.Thread(target=self._run, name=f"beside-{gpu.index}", daemon=True).start()

    def _run(self) -> None:
        """Until the driver goes away: calls to the GPU will tell that."""
        pause_seconds = 0.0
        while True:
            try:
                self._pause(pause_seconds)
                pause_seconds = _BOARD_SECONDS
                if self._incidents is not None:
                    self._listen(self._incidents)
            except DriverGone:
                return
            except DeviceNotSupported:
                self._incidents = None
            except DeviceError:
                pause_seconds = _LISTEN_AGAIN_SECONDS

    def _listen(self, incidents: Incidents) -> None:
        incidents.watch(self._gpu_id)
        while True:
            incident = incidents.incident(self._gpu_id, _LISTEN_SECONDS)
            now = self._clock.monotonic_seconds()
            if incident is not None and self._is_news(incident.message, now):
                self._outlet.send(Happened(incident))
            if now >= self._look_at:
                self._look()

    def _pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)
        if self._clock.monotonic_seconds() >= self._look_at:
            self._look()

    def _is_news(self, message: str, now: float) -> bool:
        last = self._news.get(message)
        if last is not None and now - last < _SAME_SECONDS:
            return False
        self._news[message] = now
        return True

    def _look(self) -> None:
        """Two looks that agree with each other and not with what was told: it has changed."""
        self._look_at = self._clock.monotonic_seconds() + _BOARD_SECONDS
        if self._boards is None or self.told is None:
            return
        try:
            seen = self._boards.board_state(self._gpu_id)
        except DriverGone:
            raise
        except DeviceError:
            return
        if seen.persistence is None and self.told.persistence is not None:
            return  # it does not answer just now, which is no change of its board
        if seen == self._other != self.told:
            self.told = seen
            self._outlet.send(Outdated(self._gpu_id))
        self._other = seen


def end(outlet: Outlet, error: GridawareError) -> NoReturn:
    """Say why this process cannot go on, and leave."""
    outlet.send(Ended(error.code, error.message))
    os._exit(EXIT_ENDED)
