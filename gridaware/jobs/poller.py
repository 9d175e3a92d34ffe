"""The threads between control and a runner, so that a slow cluster never slows a decision.

One thread looks (statuses, free GPUs), one carries out submissions and stops. What they learn goes
to ``emit`` as the machine's own stimuli, from these threads.
"""

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from gridaware.clock import Clock
from gridaware.control.ports import JobRunner, RunnerStatus
from gridaware.control.stimuli import AttemptStatus, RunnerReported, SubmitFailed
from gridaware.domain.errors import GridawareError
from gridaware.domain.job import JobSpec, submission_id
from gridaware.jobs.status import split_submission

__all__ = ["JobPoller"]

_log = logging.getLogger(__name__)

COMMANDS_MOST = 4096
RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0)
PENDING_SECONDS = 600.0
"""Ray gives a waiting submission up after 900 s and may start it later all the same."""


@dataclass(frozen=True, slots=True)
class _Submit:
    spec: JobSpec
    attempt: int


@dataclass(frozen=True, slots=True)
class _Stop:
    job_id: str
    attempt: int


class JobPoller:
    """Polls a runner and carries out commands; every public method returns at once.

    Args:
        runner: the cluster.
        clock: for how long a submission has been waiting.
        emit: gets :class:`RunnerReported` with the attempts that changed, and
            :class:`SubmitFailed`; called on the poller's threads.
        interval_seconds: between two looks.
        pending_seconds: a submission that Ray has not started after this long is withdrawn and
            reported as failed.
        retry_seconds: waits between tries of one command while the cluster does not answer.
    """

    def __init__(
        self,
        runner: JobRunner,
        clock: Clock,
        emit: Callable[[RunnerReported | SubmitFailed], None],
        *,
        interval_seconds: float = 1.0,
        pending_seconds: float = PENDING_SECONDS,
        retry_seconds: tuple[float, ...] = RETRY_SECONDS,
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._emit = emit
        self._interval_seconds = interval_seconds
        self._pending_seconds = pending_seconds
        self._retry_seconds = retry_seconds
        self._commands: queue.Queue[_Submit | _Stop] = queue.Queue(COMMANDS_MOST)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._known: dict[str, AttemptStatus] = {}
        self._pending_since: dict[str, float] = {}
        self._withdrawn: set[str] = set()
        self._missed: set[str] = set()
        """Attempts that the last look did not find."""
        self._capacity: tuple[float | None, float | None] = (None, None)
        self._silent = False

    @property
    def capacity(self) -> tuple[float | None, float | None]:
        """(free, total) GPUs at the last look; None while the cluster does not answer."""
        return self._capacity

    def start(self) -> None:
        """Begin to look and to carry out."""
        for name, work in (("poll", self._poll), ("carry-out", self._carry_out)):
            thread = threading.Thread(target=work, name=f"jobs-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self, wait_seconds: float = 15.0) -> None:
        """End; commands not carried out yet are dropped and come again from the ledger."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(wait_seconds)

    def submit(self, spec: JobSpec, attempt: int) -> None:
        """Have an attempt submitted."""
        try:
            self._commands.put_nowait(_Submit(spec, attempt))
        except queue.Full:
            self._failed(spec.job_id, attempt, "runner-busy", "too many commands wait", True)

    def stop_attempt(self, job_id: str, attempt: int) -> None:
        """Have an attempt stopped."""
        try:
            self._commands.put_nowait(_Stop(job_id, attempt))
        except queue.Full:
            _log.error("no room to stop %s attempt %d: too many commands wait", job_id, attempt)

    # ------------------------------------------------------------------ the threads' work

    def look(self) -> None:
        """One look at the cluster."""
        try:
            statuses = self._runner.statuses()
            self._capacity = self._runner.free_gpus()
        except GridawareError as error:
            self._capacity = (None, None)
            if not self._silent:
                _log.warning("the cluster does not answer: %s", error)
            self._silent = True
            return
        self._silent = False
        changed = self._lost(statuses)
        for name, seen in statuses.items():
            named = split_submission(name)
            if named is None or name in self._withdrawn:
                continue
            status = AttemptStatus(*named, seen.status, seen.exit_code, seen.message)
            if seen.status == "pending":
                status = self._waiting(name, status)
            else:
                self._pending_since.pop(name, None)
            if self._known.get(name) != status:
                self._known[name] = status
                changed.append(status)
        if changed:
            self._emit(RunnerReported(tuple(changed)))

    def expect(self, job_id: str, attempt: int) -> None:
        """An attempt that an earlier controller started; before :meth:`start`."""
        name = submission_id(job_id, attempt)
        self._known[name] = AttemptStatus(job_id, attempt, "expected")

    def _lost(self, statuses: Mapping[str, RunnerStatus]) -> list[AttemptStatus]:
        """Attempts that were there and are no longer: the cluster was started again.

        One look may be wrong (a head that is just coming up lists nothing), so it takes two.
        """
        gone = {
            name
            for name, status in self._known.items()
            if name not in statuses and status.status in {"expected", "pending", "running"}
        }
        lost, self._missed = gone & self._missed, gone - self._missed
        for name in lost:
            message = "Ray does not know it any more"
            self._known[name] = replace(self._known[name], status="lost", message=message)
        return [self._known[name] for name in sorted(lost)]

    def _waiting(self, name: str, status: AttemptStatus) -> AttemptStatus:
        now = self._clock.monotonic_seconds()
        waited = now - self._pending_since.setdefault(name, now)
        if waited < self._pending_seconds:
            return status
        self._withdrawn.add(name)
        self.stop_attempt(status.job_id, status.attempt)
        return AttemptStatus(
            status.job_id,
            status.attempt,
            "failed",
            message=f"Ray did not start it within {self._pending_seconds:g} s; it was withdrawn",
        )

    def carry_out(self, command: "_Submit | _Stop") -> None:
        """One command, with its retries."""
        for wait_seconds in (*self._retry_seconds, None):
            try:
                if isinstance(command, _Submit):
                    self._runner.submit(command.spec, command.attempt)
                else:
                    self._runner.stop(command.job_id, command.attempt)
            except GridawareError as error:
                last = error
            else:
                return
            if not last.retryable or wait_seconds is None or self._stopping.wait(wait_seconds):
                break
        if isinstance(command, _Submit):
            job_id, attempt = command.spec.job_id, command.attempt
            self._failed(job_id, attempt, last.code, last.message, last.retryable)
        else:
            _log.error(
                "%s attempt %d could not be stopped: %s", command.job_id, command.attempt, last
            )

    def _failed(self, job_id: str, attempt: int, code: str, message: str, retryable: bool) -> None:
        self._emit(SubmitFailed(job_id, attempt, code, message, retryable))

    def _poll(self) -> None:
        while not self._stopping.is_set():
            self._guarded(self.look)
            self._stopping.wait(self._interval_seconds)

    def _carry_out(self) -> None:
        while not self._stopping.is_set():
            try:
                command = self._commands.get(timeout=0.2)
            except queue.Empty:
                continue
            self._guarded(partial(self.carry_out, command))

    def _guarded(self, work: Callable[[], None]) -> None:
        """A thread that dies would leave control blind; a bug costs one round and a trace."""
        try:
            work()
        except Exception:  # noqa: BLE001 - logged with its trace; the thread must go on
            _log.exception("the job poller failed")
