"""Processes as the kernel tells of them: who exists, who descends from whom, what they were told.

A pid alone names nobody, for it is used again; with its start time it does.
"""

import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Process", "Processes", "ProcfsProcesses"]

_ENVIRON_BYTES = 1024 * 1024
_ANCESTORS_MOST = 64


@dataclass(frozen=True, slots=True, order=True)
class Process:
    """One process, for ever."""

    pid: int
    started_ticks: int
    """Field 22 of ``/proc/<pid>/stat``: clock ticks after boot."""


class Processes(Protocol):
    """What the agent asks about processes."""

    def find(self, pid: int) -> Process | None:
        """The process that has this pid now; None where there is none or only its remains."""
        ...

    def alive(self, process: Process) -> bool:
        """Whether it still runs; a zombie does not."""
        ...

    def descendants(self, roots: Iterable[Process]) -> Mapping[Process, frozenset[Process]]:
        """For each root its children, grandchildren and so on."""
        ...

    def told(self, pid: int, names: Iterable[str]) -> Mapping[str, str]:
        """What ``pid`` and its ancestors were given for these environment variables.

        Where several have one, the outermost counts: it was set by whoever started the job, and
        the job itself cannot change it.
        """
        ...

    def send(self, process: Process, number: signal.Signals) -> None:
        """Signal exactly this process; nothing happens where it is gone or not ours to signal."""
        ...


class ProcfsProcesses:
    """The machine's own processes, read from ``/proc``."""

    def find(self, pid: int) -> Process | None:
        """The process that has this pid now."""
        found = _stat(pid)
        return None if found is None else found[0]

    def alive(self, process: Process) -> bool:
        """Whether it still runs."""
        return self.find(process.pid) == process

    def descendants(self, roots: Iterable[Process]) -> Mapping[Process, frozenset[Process]]:
        """For each root its children, grandchildren and so on, from one pass over ``/proc``."""
        children: dict[int, list[Process]] = {}
        for name in os.listdir("/proc"):  # noqa: PTH208 - 1 Hz over hundreds of names
            found = _stat(int(name)) if name.isdigit() else None
            if found is not None:
                children.setdefault(found[1], []).append(found[0])
        result: dict[Process, frozenset[Process]] = {}
        for root in roots:
            below: set[Process] = set()
            ahead = [root.pid]
            while ahead:
                for child in children.get(ahead.pop(), ()):
                    if child not in below:
                        below.add(child)
                        ahead.append(child.pid)
            result[root] = frozenset(below)
        return result

    def told(self, pid: int, names: Iterable[str]) -> Mapping[str, str]:
        """What ``pid`` and its ancestors were given, the outermost first."""
        wanted = {name.encode() for name in names}
        values: dict[str, str] = {}
        for _ in range(_ANCESTORS_MOST):
            values.update(_environ(pid, wanted))
            found = _stat(pid)
            if found is None or found[1] <= 1:
                break
            pid = found[1]
        return values

    def send(self, process: Process, number: signal.Signals) -> None:
        """Signal exactly this process: the descriptor pins it while its start time is compared."""
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            return
        try:
            if self.alive(process):
                signal.pidfd_send_signal(descriptor, number)
        except OSError:
            return
        finally:
            os.close(descriptor)


def _stat(pid: int) -> tuple[Process, int] | None:
    """(process, parent's pid), or None for one that is gone or a zombie."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name is in brackets and may hold anything, brackets too.
    fields = raw[raw.rfind(b")") + 2 :].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[19])), int(fields[1])


def _environ(pid: int, names: set[bytes]) -> dict[str, str]:
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as file:
            raw = file.read(_ENVIRON_BYTES)
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0"))
    return {
        name.decode(): value.decode(errors="replace")
        for name, _equals, value in pairs
        if name in names
    }
