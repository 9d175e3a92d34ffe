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
from collections.abc import Mapping
from importlib import import_module
from typing import cast

from gridaware.clock import Clock, SystemClock
from gridaware.control.ports import Driver, Parts
from gridaware.domain.errors import ConfigError, GridawareError
from gridaware.node.childwire import ChildReader, Found, GpuTick, Lock, Rate, Setup, Tick, Write
from gridaware.node.childworker import EXIT_ENDED, Outlet, Round, Worker, end

__all__ = ["load_driver", "main"]

_DESCRIBE_SECONDS = 2.0
"""A GPU that does not say who it is for this long is reported as hung; the others go on."""
_TOGETHER_SECONDS = 0.02
"""Results of one Write travel together unless one takes longer than this."""
_LIMITS_SECONDS = 1.0
_PIDS_SECONDS = 2.0
_GATHER_SECONDS = 0.25
_LATE_SECONDS = 0.5


class _Sampler:
    """Asks all workers at the wanted rate and sends what is there in time."""

    def __init__(
        self, workers: Mapping[str, Worker], clock: Clock, outlet: Outlet, sample_hz: float
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
        sampling = Round(len(free), limits=limits, pids=pids)
        for worker in free:
            worker.sample(sampling)
        if free:
            sampling.done.wait(patience_seconds)
        now = self._clock.monotonic_seconds()
        asked = set(free)
        ticks = tuple(self._tick(worker, now, worker in asked) for worker in self._workers)
        self._outlet.send(Tick(at, ticks))

    def _tick(self, worker: Worker, now: float, asked: bool) -> GpuTick:
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
    outlet = Outlet(connection)
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
        workers = {
            gpu.gpu_id: Worker(driver, gpu, clock, outlet, settable=gpu.gpu_id in setup.settable)
            for gpu in gpus
        }
        outlet.send(_found(driver, workers, clock))
    except GridawareError as error:
        end(outlet, error)
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


def _spread(write: Write, workers: Mapping[str, Worker], outlet: Outlet) -> None:
    known = [(gpu_id, watts) for gpu_id, watts in write.limits_watts if gpu_id in workers]
    outlet.expect({gpu_id for gpu_id, _ in known})
    for gpu_id, watts in known:
        workers[gpu_id].write(write.ticket, watts)


def _found(driver: Driver, workers: Mapping[str, Worker], clock: Clock) -> Found:
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


def _crashed(arguments: threading.ExceptHookArgs) -> None:
    """A thread without its GPU would look like a hang: end, and be replaced."""
    threading.__excepthook__(arguments)
    os._exit(EXIT_ENDED)


if __name__ == "__main__":
    main(int(sys.argv[1]))
