"""Child processes that leave nothing behind: started by command line, ended by id.

Every process of a run carries a mark in its environment, so that whatever they started themselves
(Ray's daemons, job scripts) is found and ended too, however it was daemonised.
"""

import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep

from gridaware.clock import Clock, SystemClock
from gridaware.domain.errors import TimedOut, Unavailable

__all__ = ["Child", "Children"]

MARK = "GRIDAWARE_RUN_MARK"
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Child:
    """One started process and where its output goes."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path
    grace_seconds: float = 10.0
    """How long it may take to end when asked to."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def tail(self, lines: int = 15) -> str:
        """The end of its output, for an error message."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def end(self) -> None:
        """SIGTERM, and SIGKILL after the grace."""
        if not self.alive:
            return
        self.process.terminate()
        try:
            self.process.wait(self.grace_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)


@dataclass(slots=True)
class Children:
    """All processes of one run, ended in the reverse order of their start."""

    folder: Path
    clock: Clock = field(default_factory=SystemClock)
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    started: list[Child] = field(default_factory=list)

    def start(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        grace_seconds: float = 10.0,
    ) -> Child:
        """Start a process with this environment beside our own; it dies if we are killed.

        What one of the same name said before stays in the log.
        """
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - our own command lines
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {}), MARK: self.mark},
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, no locks
            )
        child = Child(name, process, log, grace_seconds)
        self.started.append(child)
        return child

    def wait_for(
        self, what: str, ready: Callable[[], bool], seconds: float, child: Child | None = None
    ) -> None:
        """Wait until ``ready()`` is true, and no longer than that child lives.

        Raises:
            TimedOut: it was not true in time.
            Unavailable: the child ended first; the message has the end of its output.
        """
        end = self.clock.monotonic_seconds() + seconds
        while not ready():
            if child is not None and not child.alive:
                raise Unavailable(
                    "child-ended", f"{child.name} ended before {what}:\n{child.tail()}"
                )
            if self.clock.monotonic_seconds() > end:
                told = f":\n{child.tail()}" if child is not None else ""
                raise TimedOut("child-slow", f"{what} took more than {seconds:.0f} s{told}")
            sleep(0.05)

    def end_all(self) -> None:
        """End everything, newest first, and whatever they left that carries our mark."""
        for child in reversed(self.started):
            child.end()
        for pid in list(self.marked()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for _ in range(100):
            if not any(True for _ in self.marked()):
                return
            sleep(0.02)

    def marked(self) -> Iterator[int]:
        """Pids of living processes that carry our mark in their environment, but our own."""
        needle = f"{MARK}={self.mark}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if needle in (entry / "environ").read_bytes().split(b"\0") and not _zombie(entry):
                    yield int(entry.name)
            except OSError:
                continue  # it ended meanwhile, or is not ours to read


def _zombie(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
