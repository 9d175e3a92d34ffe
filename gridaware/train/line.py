"""The job's line to the agent of its node: one thread, one socket, and the word.

The thread registers, maps the word, tells progress twice a second and comes back by itself when the
agent restarts. What answers a request is sent at once by the caller and sent again after every new
registration, so an agent that was away still hears it; the agent takes repetitions as they are.
"""

import logging
import mmap
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from gridaware.domain.errors import GridawareError
from gridaware.domain.jobword import (
    LINE_BYTES,
    WORD_BYTES,
    JobLine,
    LeaveAnswer,
    Leaving,
    Progress,
    Refusal,
    Register,
    Registered,
    Rejected,
    SavedLine,
    decode_line,
    encode_line,
)

__all__ = ["JobLink"]

_log = logging.getLogger("gridaware.train")

PROGRESS_SECONDS = 0.5
_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0)
_REJECTED_SECONDS = 30.0
_SEND_SECONDS = 2.0

Answer = SavedLine | Refusal | Leaving


class JobLink:
    """Keeps one registered connection to the agent; every method returns at once unless it waits.

    ``word`` is the shared memory as 8-byte numbers: item 1 is the sequence. Before the first
    registration it is a private page of zeros.
    """

    def __init__(
        self, path: str, register: Callable[[], Register], progress: Callable[[], Progress]
    ) -> None:
        self.word = memoryview(bytes(WORD_BYTES)).cast("Q")
        self._path = path
        self._register = register
        self._progress = progress
        self._socket: socket.socket | None = None
        self._send_lock = threading.Lock()
        self._answers: list[Answer] = []
        self._leave: LeaveAnswer | None = None
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gridaware-line", daemon=True)
        self._owner = os.getpid()
        os.register_at_fork(after_in_child=self._forget)

    def start(self) -> None:
        """Begin; returns before the agent has answered."""
        self._thread.start()

    def stop(self) -> None:
        """Tell the last step and hang up."""
        if self._owner != os.getpid():
            return
        self._stopping.set()
        connection = self._socket
        if connection is not None:
            self._send(self._progress())
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=_SEND_SECONDS)

    def answer(self, line: Answer) -> None:
        """Say what became of a request, now and after each reconnection."""
        if self._owner != os.getpid():
            return
        self._answers = [a for a in self._answers if a.request_id == line.request_id] + [line]
        self._send(line)

    def ask_to_leave(self, request_id: str, wait_seconds: float) -> LeaveAnswer | None:
        """Whether the process may end now; None where no agent answered in time."""
        self.answer(Leaving(request_id))
        with self._changed:
            self._changed.wait_for(
                lambda: self._leave is not None and self._leave.request_id == request_id,
                timeout=wait_seconds,
            )
            answer, self._leave = self._leave, None
        return answer if answer is not None and answer.request_id == request_id else None

    def _forget(self) -> None:
        """In a forked child: drop the copy of the socket, so that it closes with its owner."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def _send(self, line: JobLine) -> None:
        connection = self._socket
        if connection is None:
            return
        with self._send_lock, suppress(OSError):
            connection.sendall(encode_line(line))

    def _run(self) -> None:
        failures = 0
        silent = False
        while not self._stopping.is_set():
            wait_seconds = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
            try:
                self._converse()
                failures = 0
                silent = False
            except Rejection as rejection:
                _log.warning("the gridaware agent at %s said no: %s", self._path, rejection)
                wait_seconds = _REJECTED_SECONDS
            except (OSError, ValueError, GridawareError) as error:
                failures += 1
                if not silent:
                    _log.warning(
                        "no gridaware agent at %s (%s): training goes on, requests to save are not "
                        "heard until it is there",
                        self._path,
                        error,
                    )
                silent = True
            self._socket = None
            self._stopping.wait(wait_seconds)

    def _converse(self) -> None:
        """One connection, from registration to its end."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_SEND_SECONDS)
            connection.connect(self._path)
            connection.sendall(encode_line(self._register()))
            rest = self._registered(connection)
            connection.settimeout(PROGRESS_SECONDS)
            self._socket = connection
            for line in self._answers:
                self._send(line)
            self._listen(connection, rest)

    def _registered(self, connection: socket.socket) -> bytes:
        """Wait for the agent's first line and map the word that came with it."""
        raw, descriptors, _flags, _address = socket.recv_fds(connection, LINE_BYTES, 1)
        try:
            first, _newline, rest = raw.partition(b"\n")
            line = decode_line(first)
            if isinstance(line, Rejected):
                raise Rejection(f"{line.message} ({line.code})")
            if not isinstance(line, Registered) or not descriptors:
                raise OSError("the agent did not answer as an agent does")
            shared = mmap.mmap(descriptors[0], WORD_BYTES, prot=mmap.PROT_READ)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.word = memoryview(shared).cast("Q")
        return rest

    def _listen(self, connection: socket.socket, rest: bytes) -> None:
        told: Progress | None = None
        buffer = rest
        while not self._stopping.is_set():
            while b"\n" in buffer:
                raw, _newline, buffer = buffer.partition(b"\n")
                self._heard(raw)
            try:
                more = connection.recv(LINE_BYTES)
            except TimeoutError:
                progress = self._progress()
                if progress != told:
                    self._send(progress)
                    told = progress
                continue
            if not more or len(buffer) > LINE_BYTES:
                return
            buffer += more

    def _heard(self, raw: bytes) -> None:
        line = decode_line(raw)
        if isinstance(line, LeaveAnswer):
            with self._changed:
                self._leave = line
                self._changed.notify_all()


class Rejection(Exception):
    """The agent does not accept the registration; not worth an immediate retry."""
