"""The one thread that writes: whatever is queued goes into one transaction.

A commit to disk costs the same for one row as for a thousand, so rows gather for at most
``batch_seconds``; when somebody waits for durability, they are committed at once. Rows leave the
queue only after their commit, in their order: a full disk delays them and loses none.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.sql import Executable

from gridaware.domain.errors import Bug, GridawareError, Unavailable
from gridaware.store.database import translated

__all__ = ["Row", "StoreWriter"]

Row = Mapping[str, Any]
Told = Callable[[GridawareError | None], None]

_log = logging.getLogger(__name__)


class StoreWriter:
    """Queues rows from any thread and commits them in groups, first in, first out.

    Whoever submits a row has made its values plain numbers, text and bytes: one that the database
    cannot take would hold up all that follow.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        batch_seconds: float = 0.05,
        retry_seconds: float = 0.5,
        most_pending: int = 200_000,
    ) -> None:
        self._engine = engine
        self._batch_seconds = batch_seconds
        self._retry_seconds = retry_seconds
        self._most_pending = most_pending
        self._pending: deque[tuple[Executable, Row]] = deque()
        self._waiting: list[Told] = []
        self._changed = threading.Condition()
        self._closing = False
        self._ended = False
        self._failure: GridawareError | None = None
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> GridawareError | None:
        """Why the last commit failed; None while the disk takes what it is given."""
        return self._failure

    def submit(self, statement: Executable, row: Row, *, patient: bool = False) -> None:
        """Queue one row and return at once; a ``patient`` one waits for a disk that refuses now.

        Raises:
            Unavailable: the disk refuses, or too much waits for it already; nothing was queued.
        """
        with self._changed:
            self._refuse_if_stuck(patient=patient)
            self._pending.append((statement, row))
            if len(self._pending) == 1:
                self._changed.notify()

    def flush(self, timeout_seconds: float = 30.0) -> None:
        """Return once everything queued so far is on disk.

        Raises:
            Unavailable: the commit failed (the rows stay queued), or took longer than this.
        """
        done = threading.Event()
        outcome: list[GridawareError | None] = []

        def told(error: GridawareError | None) -> None:
            outcome.append(error)
            done.set()

        self.when_durable(told)
        if not done.wait(timeout_seconds):
            raise Unavailable("store-slow", f"no commit within {timeout_seconds:g} s")
        if outcome[0] is not None:
            raise outcome[0]

    def when_durable(self, told: Told) -> None:
        """Call ``told`` with None once everything queued so far is on disk, or with the error.

        It is called on the writer's thread, or here where nothing is queued.
        """
        with self._changed:
            if self._pending and not self._ended:
                self._waiting.append(told)
                self._changed.notify()
                return
            stuck = bool(self._pending)
        told(_closed() if stuck else None)

    def close(self) -> None:
        """Commit what is queued and end the thread.

        Raises:
            Unavailable: the last commit failed; its rows are lost with this process.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        if self._pending:
            raise self._failure or _closed()

    def _refuse_if_stuck(self, *, patient: bool) -> None:
        if self._closing:
            raise _closed()
        if self._failure is not None and not patient:
            raise self._failure
        if len(self._pending) >= self._most_pending:
            raise Unavailable("store-backlog", f"{len(self._pending)} rows wait for the disk")

    def _run(self) -> None:
        while self._wait_for_work():
            with self._changed:
                batch, told = list(self._pending), self._waiting
                self._waiting = []
            error = self._commit(batch)
            with self._changed:
                if error is None:
                    for _ in batch:
                        self._pending.popleft()
                self._note(error)
                if error is not None and self._closing:
                    self._ended = True
                    told += self._waiting
            for tell in told:
                tell(error)
            if self._ended:
                return

    def _wait_for_work(self) -> bool:
        """Sleep until a commit is due; False = closing and nothing is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._waiting or self._closing)
            pause = self._batch_seconds if self._failure is None else self._retry_seconds
            self._changed.wait_for(lambda: self._waiting or self._closing, timeout=pause)
            return bool(self._pending or self._waiting)

    def _commit(self, batch: list[tuple[Executable, Row]]) -> GridawareError | None:
        if not batch:
            return None
        try:
            with translated("write to the store"), self._engine.begin() as connection:
                # Tables are independent of each other: rows of one statement go together, and
                # keep their order, since sorting is stable.
                batch.sort(key=lambda item: id(item[0]))
                for _, group in groupby(batch, key=lambda item: id(item[0])):
                    rows = list(group)
                    connection.execute(rows[0][0], list(map(itemgetter(1), rows)))
        except GridawareError as error:
            return error
        except Exception as error:  # noqa: BLE001 - this thread must outlive any row
            return Bug("store-row", f"the database cannot take a row: {error}")
        return None

    def _note(self, error: GridawareError | None) -> None:
        if error is not None and self._failure is None:
            _log.error("the store refuses writes: %s", error)
        elif error is None and self._failure is not None:
            _log.warning("the store takes writes again")
        self._failure = error


def _closed() -> Unavailable:
    return Unavailable("store-closed", "the store is closed")
