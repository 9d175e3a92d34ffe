"""A training session: what a loop tells gridaware and hears from it."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from gridaware.clock import SystemClock
from gridaware.domain.checkpoint import Manifest
from gridaware.domain.errors import GridawareError, InvalidInput
from gridaware.domain.job import PAUSED_EXIT_CODE
from gridaware.domain.jobword import (
    DEFAULT_SOCKET,
    Action,
    Progress,
    Refusal,
    Register,
    SavedLine,
    read_word,
    visible_devices,
)
from gridaware.domain.signal import check_id
from gridaware.train.files import (
    Checkpoint,
    measure_files,
    newest_checkpoint,
    newest_serial,
    write_manifest,
)
from gridaware.train.line import JobLink

__all__ = ["Request", "Session", "session"]

_log = logging.getLogger("gridaware.train")
_clock = SystemClock()

_LEAVE_SECONDS = 30.0
"""How long a job that wants to leave waits for an agent that does not answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """The grid needs this job to save."""

    request_id: str
    action: Literal["checkpoint", "pause"]
    """``pause``: call :meth:`Session.pause` once it is saved."""
    reason: str
    deadline_boot_seconds: float

    @property
    def seconds_left(self) -> float:
        """Until the deadline; negative once it has passed."""
        return self.deadline_boot_seconds - _clock.boot_seconds()


class Session:
    """One process of a training job. Use it through :func:`session`, or ``start`` and ``close``.

    Multi-process jobs: give every process its rank. Rank 0 saves, writes the manifest and leaves
    first. Ranks do not yet agree on a step by themselves: let rank 0 look and pass the decision on
    with the job's own collective.
    """

    def __init__(
        self,
        checkpoint_dir: str | os.PathLike[str],
        *,
        grace_seconds: float = 0.0,
        rank: int | None = None,
        world: int | None = None,
        gpus: Sequence[int | str] | None = None,
    ) -> None:
        environ = os.environ
        self.checkpoint_dir = Path(checkpoint_dir).absolute()
        self.job_id = environ.get("GRIDAWARE_JOB_ID", "")
        self.attempt = _number(environ, "GRIDAWARE_ATTEMPT", 0)
        self.rank = _number(environ, "RANK", 0) if rank is None else rank
        self.world = _number(environ, "WORLD_SIZE", 1) if world is None else world
        self.gpus = (
            visible_devices(environ.get("CUDA_VISIBLE_DEVICES"))
            if gpus is None
            else tuple(str(gpu) for gpu in gpus)
        )
        self.grace_seconds = grace_seconds
        self._resumed: Checkpoint | None = None
        self._step = 0
        self._told = (0, _clock.monotonic_seconds())
        self._busy: list[str] = []
        self._seen = 0
        self._request: Request | None = None
        self._saved: Request | None = None
        self._answered = ""
        self._link: JobLink | None = None

    # ------------------------------------------------------------------ beginning and end

    def start(self) -> Self:
        """Look for the newest checkpoint and register at the agent, if there is one."""
        self._resumed, skipped = newest_checkpoint(self.checkpoint_dir)
        for reason in skipped:
            _log.warning("checkpoint passed over: %s", reason)
        if self._resumed is not None:
            self._step = self._resumed.step
        self._told = (self._step, _clock.monotonic_seconds())
        if not self.job_id:
            _log.warning("not started by gridaware: training runs as if nobody were watching")
            return self
        check_id("job", self.job_id)
        path = os.environ.get("GRIDAWARE_AGENT_SOCKET", DEFAULT_SOCKET)
        self._link = JobLink(path, self._register, self._progress)
        self._link.start()
        return self

    def close(self) -> None:
        """Tell the last step and hang up. Safe to call twice."""
        link, self._link = self._link, None
        if link is not None:
            link.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ the loop's side

    def resume_from(self) -> Checkpoint | None:
        """The newest checkpoint whose every file is as its manifest says, or None.

        Damaged and unfinished ones are passed over with a warning.
        """
        return self._resumed

    def step(self, number: int) -> None:
        """Step ``number`` (counted over all attempts) is done."""
        self._step = number

    def should_checkpoint(self) -> Request | None:
        """What is asked of this job, or None; costs well under a microsecond.

        The same request is returned until it is answered by :meth:`save_done` or :meth:`refuse`, or
        is withdrawn.
        """
        link = self._link
        if link is None or link.word[1] == self._seen:
            return self._request
        return self._look(link)

    def save_done(self, path: str | os.PathLike[str], step: int) -> None:
        """A checkpoint of ``step`` lies at ``path``, a file or a directory of its own.

        Flushes and digests its files, writes the manifest atomically, and only then tells the
        agent. Call it after every save, asked for or not: :meth:`resume_from` finds only those.

        Raises:
            InvalidInput: there is no file at ``path``, or it does not lie directly in the
                session's ``checkpoint_dir``, where nobody would look for it.
        """
        checkpoint = Path(path).absolute()
        if checkpoint.parent != self.checkpoint_dir:
            raise InvalidInput(
                "checkpoint-elsewhere",
                f"{checkpoint} does not lie directly in {self.checkpoint_dir}",
            )
        request = self._request
        manifest = Manifest(
            job_id=self.job_id,
            attempt=self.attempt,
            request_id=None if request is None else request.request_id,
            step=step,
            serial=newest_serial(self.checkpoint_dir) + 1,
            path="." if checkpoint.is_dir() else checkpoint.name,
            files=measure_files(checkpoint),
            created_at=_clock.wall(),
        )
        write_manifest(checkpoint, manifest)
        self._step = max(self._step, step)
        if request is not None:
            self._done(request)
            self._saved = request
            if self._link is not None:
                self._link.answer(SavedLine(request.request_id, str(checkpoint), step))

    def refuse(self, reason: str) -> None:
        """Do not save now; whoever asked hears why. Nothing happens where nobody asked."""
        request = self._request
        if request is not None:
            self._done(request)
            if self._link is not None:
                self._link.answer(Refusal(request.request_id, reason[:1000]))

    def pause(self) -> None:
        """Leave, having saved: ends the process with exit code 42.

        Returns only if leaving is no longer wanted (the request was withdrawn meanwhile, or the
        agent found the checkpoint damaged): then simply train on.

        Raises:
            SystemExit: with code 42, which says "paused" in the cluster's own records.
        """
        request, self._saved = self._saved, None
        if request is not None and self._link is not None:
            answer = self._link.ask_to_leave(request.request_id, _LEAVE_SECONDS)
            if answer is not None and not answer.go:
                _log.warning("not leaving: %s", answer.message)
                return
        raise SystemExit(PAUSED_EXIT_CODE)

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Say that no step will be taken for a while (``with session.busy("eval"):``).

        A request that comes meanwhile waits; whoever asked knows why.
        """
        self._busy.append(what[:100])
        try:
            yield
        finally:
            self._busy.pop()

    # ------------------------------------------------------------------ the link's side

    def _look(self, link: JobLink) -> Request | None:
        word = None
        with suppress(GridawareError):
            word = read_word(link.word.cast("B"))
        if word is None:
            return self._request
        self._seen = word.sequence
        expired = word.deadline_boot_seconds <= _clock.boot_seconds()
        if word.action is Action.NONE or expired or word.request_id == self._answered:
            self._request = None
        else:
            self._request = Request(
                word.request_id,
                "pause" if word.action is Action.PAUSE else "checkpoint",
                word.reason,
                word.deadline_boot_seconds,
            )
        return self._request

    def _done(self, request: Request) -> None:
        self._answered = request.request_id
        self._request = None

    def _register(self) -> Register:
        resumed = None if self._resumed is None else self._resumed.step
        return Register(
            self.job_id,
            self.attempt,
            self.rank,
            self.world,
            self.gpus,
            self.grace_seconds,
            resumed,
        )

    def _progress(self) -> Progress:
        step, now = self._step, _clock.monotonic_seconds()
        before, since = self._told
        if now - since < 0.1:
            return Progress(step, 0.0, self._busy[-1] if self._busy else None)
        self._told = (step, now)
        rate = max(step - before, 0) / (now - since)
        return Progress(step, round(rate, 4), self._busy[-1] if self._busy else None)


def session(
    checkpoint_dir: str | os.PathLike[str],
    *,
    grace_seconds: float = 0.0,
    rank: int | None = None,
    world: int | None = None,
    gpus: Sequence[int | str] | None = None,
) -> Session:
    """A session for a ``with`` block.

    Args:
        checkpoint_dir: where this job keeps its checkpoints, each a file or a directory directly in
            it; the same for every attempt, on storage that every node reaches.
        grace_seconds: what a save takes at most. A request that allows less is refused at once
            instead of being missed.
        rank: of this process in the job; ``RANK`` where unset.
        world: number of processes; ``WORLD_SIZE`` where unset.
        gpus: indices or UUIDs of the GPUs this process uses, e.g. ``ray.get_gpu_ids()``;
            ``CUDA_VISIBLE_DEVICES`` where unset.
    """
    return Session(checkpoint_dir, grace_seconds=grace_seconds, rank=rank, world=world, gpus=gpus)


def _number(environ: "os._Environ[str]", name: str, default: int) -> int:
    value = environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() else default
