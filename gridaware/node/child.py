"""The driver child: the one process that loads the driver library (``-m gridaware.node.child FD``).

One thread a GPU, so that a call that hangs holds up its own GPU alone. A write goes before the
rest of a sample that is under way. A hang that never ends, an abort of the library or a driver
that went away costs the agent this process, never its stream; the agent starts another.
"""

import os
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from importlib import import_module
from queue import SimpleQueue
from typing import NoReturn, TypeVar, cast

from gridaware.clock import Clock, SystemClock
from gridaware.control.ports import Boards, ClockLocks, Driver, GpuIdentity, Paced, Parts
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceNotSupported,
    DriverGone,
    GridawareError,
)
from gridaware.domain.fleet import BoardState, ClockRange, Pace
from gridaware.node.actions import Device, LimitReading, Locked, Written
from gridaware.node.childwire import (
    ChildReader,
    Ended,
    Found,
    FromChild,
    GpuTick,
    Lock,
    LockResult,
    Rate,
    Results,
    Setup,
    Tick,
    Write,
    pack,
)

__all__ = ["load_driver", "main"]

_DESCRIBE_SECONDS = 2.0
"""A GPU that does not say who it is for this long is reported as hung; the others go on."""
_TOGETHER_SECONDS = 0.02
"""Results of one Write travel together unless one takes longer than this."""
_LIMITS_SECONDS = 1.0
_PIDS_SECONDS = 2.0
_PERMISSION_SECONDS = 30.0
"""How often permission that is missing is looked for again."""
_GATHER_SECONDS = 0.25
_LATE_SECONDS = 0.5
_EXIT_ENDED = 3

Answer = TypeVar("Answer")


class _Outlet:
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


class _Round:
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


class _Worker:
    """All calls for one GPU, on a thread of its own."""

    def __init__(self, driver: Driver, gpu: GpuIdentity, clock: Clock, outlet: _Outlet) -> None:
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
        self._may_set = True
        self._looked_at = clock.monotonic_seconds()
        self._queue: SimpleQueue[_Round | None] = SimpleQueue()
        threading.Thread(target=self._run, name=f"gpu-{gpu.index}", daemon=True).start()

    def write(self, ticket: int, watts: float) -> None:
        """Set a limit as soon as the present call is back; a newer one replaces it."""
        self._writes.append((ticket, watts))
        self._queue.put(None)

    def lock(self, ticket: int, most_mhz: float | None) -> None:
        """Lock the clock, after any limit; a newer lock replaces it."""
        self._locks.append((ticket, most_mhz))
        self._queue.put(None)

    def sample(self, sampling: _Round) -> None:
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
            _end(self._outlet, error)

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
            can_set = self._call(driver.can_set)
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

    def _read(self, sampling: _Round) -> GpuTick:
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
        return LimitReading(self.gpu_id, ticket, requested, enforced, code, kind, allowed)

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


class _Sampler:
    """Asks all workers at the wanted rate and sends what is there in time."""

    def __init__(
        self, workers: Mapping[str, _Worker], clock: Clock, outlet: _Outlet, sample_hz: float
    ) -> None:
        self._workers = tuple(workers.values())
        self._clock = clock
        self._outlet = outlet
        self._sample_hz = sample_hz
        self._changed = threading.Event()
        threading.Thread(target=self._run, name="sampler", daemon=True).start()

    def rate(self, sample_hz: float) -> None:
        """Sample this often from now on, the first time one period from now.

        The rate is raised together with new limits: sampling at once would hold up their writes and
        show nothing of them.
        """
        if sample_hz != self._sample_hz:
            self._sample_hz = sample_hz
            self._changed.set()

    def _run(self) -> None:
        due = limits_due = pids_due = self._clock.monotonic_seconds()
        while True:
            now = self._clock.monotonic_seconds()
            if self._changed.wait(max(0.0, due - now)):
                self._changed.clear()
                due = min(due, self._clock.monotonic_seconds() + 1.0 / self._sample_hz)
                continue
            now = self._clock.monotonic_seconds()
            period = 1.0 / self._sample_hz
            due = max(due + period, now + period / 2)
            limits, pids = now >= limits_due, now >= pids_due
            limits_due = now + _LIMITS_SECONDS - period / 2 if limits else limits_due
            pids_due = now + _PIDS_SECONDS - period / 2 if pids else pids_due
            self._round(min(period / 2, _GATHER_SECONDS), limits=limits, pids=pids)

    def _round(self, patience_seconds: float, *, limits: bool, pids: bool) -> None:
        at = self._clock.boot_seconds()
        free = [worker for worker in self._workers if not worker.sampling]
        sampling = _Round(len(free), limits=limits, pids=pids)
        for worker in free:
            worker.sample(sampling)
        if free:
            sampling.done.wait(patience_seconds)
        now = self._clock.monotonic_seconds()
        asked = set(free)
        ticks = tuple(self._tick(worker, now, worker in asked) for worker in self._workers)
        self._outlet.send(Tick(at, ticks))

    def _tick(self, worker: _Worker, now: float, asked: bool) -> GpuTick:
        if asked and not worker.sampling:
            return worker.values
        since = worker.call_since
        stalled = 0.0 if since is None or now - since < _LATE_SECONDS else now - since
        last = worker.values
        return GpuTick(
            worker.gpu_id, False, last.power_watts, last.energy_joules, None, None, None, stalled
        )


def load_driver(path: str, options: Mapping[str, str]) -> Driver:
    """The driver that ``open_driver`` of the module ``path`` gives; not yet opened.

    Raises:
        ConfigError: there is no such module, it exposes no driver, or the options are wrong.
    """
    try:
        module = import_module(path)
    except ImportError as error:
        raise ConfigError("driver-import", f"cannot import driver {path}: {error}") from error
    make = getattr(module, "open_driver", None)
    if make is None:
        raise ConfigError("driver-import", f"module {path} has no open_driver")
    return cast("Driver", make(options))


def main(descriptor: int) -> None:
    """Serve the agent at the other end of the socket until it goes away."""
    connection = socket.socket(fileno=descriptor)
    outlet = _Outlet(connection)
    reader = ChildReader(from_child=False)
    clock = SystemClock()
    threading.excepthook = _crashed
    messages: deque[object] = deque()
    while not messages:
        messages.extend(reader.feed(_receive(connection)))
    setup = messages.popleft()
    assert isinstance(setup, Setup)
    try:
        driver = load_driver(setup.driver, setup.options)
        driver.open()
        gpus = driver.gpus()
        workers = {gpu.gpu_id: _Worker(driver, gpu, clock, outlet) for gpu in gpus}
        outlet.send(_found(driver, workers, clock))
    except GridawareError as error:
        _end(outlet, error)
    sampler = _Sampler(workers, clock, outlet, setup.sample_hz)
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    patience: float | None = None
    while True:
        while messages:
            message = messages.popleft()
            if isinstance(message, Write):
                _spread(message, workers, outlet)
                patience = _TOGETHER_SECONDS * 1000
            elif isinstance(message, Lock):
                for gpu_id, most_mhz in message.clocks_mhz:
                    if gpu_id in workers:
                        workers[gpu_id].lock(message.ticket, most_mhz)
            elif isinstance(message, Rate):
                sampler.rate(message.sample_hz)
        if poll.poll(patience):
            messages.extend(reader.feed(_receive(connection)))
        else:
            patience = None
            outlet.patience_over()


def _spread(write: Write, workers: Mapping[str, _Worker], outlet: _Outlet) -> None:
    known = [(gpu_id, watts) for gpu_id, watts in write.limits_watts if gpu_id in workers]
    outlet.expect({gpu_id for gpu_id, _ in known})
    for gpu_id, watts in known:
        workers[gpu_id].write(write.ticket, watts)


def _found(driver: Driver, workers: Mapping[str, _Worker], clock: Clock) -> Found:
    until = clock.monotonic_seconds() + _DESCRIBE_SECONDS
    devices = []
    for worker in workers.values():
        worker.described.wait(max(0.0, until - clock.monotonic_seconds()))
        devices.append(worker.device or worker.silent_device())
    faults = tuple(driver.faults()) if isinstance(driver, Parts) else ()
    return Found(driver.epoch(), driver.boundary, tuple(devices), faults)


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        os._exit(0)  # the agent is gone; a hung thread must not keep this process
    return data


def _end(outlet: _Outlet, error: GridawareError) -> NoReturn:
    outlet.send(Ended(error.code, error.message))
    os._exit(_EXIT_ENDED)


def _crashed(arguments: threading.ExceptHookArgs) -> None:
    """A thread without its GPU would look like a hang: end, and be replaced."""
    threading.__excepthook__(arguments)
    os._exit(_EXIT_ENDED)


if __name__ == "__main__":
    main(int(sys.argv[1]))
