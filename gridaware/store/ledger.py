"""The ledger's writing end: appends return at once and keep their order."""

import asyncio
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, func, insert, select

from gridaware.domain.errors import ConfigError, GridawareError
from gridaware.store.chain import (
    LedgerEntry,
    canonical,
    genesis_hash,
    read_entries,
    seal,
    verify_chain,
)
from gridaware.store.database import translated
from gridaware.store.schema import ledger
from gridaware.store.times import rfc3339
from gridaware.store.writer import StoreWriter

__all__ = ["SqlLedger"]

_INSERT = insert(ledger)


class SqlLedger:
    """The :class:`gridaware.control.ports.Ledger` on the store; safe from any thread.

    Raises:
        ConfigError: the store belongs to another site, or its last entry was altered.
    """

    def __init__(self, engine: Engine, writer: StoreWriter, site_id: str) -> None:
        self._engine = engine
        self._writer = writer
        self._site_id = site_id
        self._lock = threading.Lock()
        self._last_seq, self._last_hash = self._find_end()
        self._durable_seq = self._last_seq

    @property
    def last_seq(self) -> int:
        """Sequence number of the newest entry, durable or not; 0 while there is none."""
        return self._last_seq

    @property
    def failure(self) -> GridawareError | None:
        """Why the disk refuses writes at present; None while it takes them."""
        return self._writer.failure

    def append(
        self, kind: str, body: Mapping[str, Any], at: datetime, *, must: bool = False
    ) -> int:
        """Add an entry and return its sequence number; it is durable within 50 ms.

        While the disk refuses, entries wait in memory and keep their order; one that ``must`` be
        there before anybody acts on it is refused. The body is read now: dataclasses, enums and
        instants in it become JSON. NaN becomes null.

        Raises:
            Unavailable: the disk refuses what must be there, or too much waits for it already;
                nothing was added.
        """
        text, when = canonical(dict(body)).decode(), rfc3339(at)
        with self._lock:
            seq = self._last_seq + 1
            digest = seal(self._last_hash, seq, when, kind, text)
            row = {
                "seq": seq,
                "at": when,
                "kind": kind,
                "body": text,
                "prev_hash": self._last_hash,
                "hash": digest,
            }
            self._writer.submit(_INSERT, row, patient=not must)
            self._last_seq, self._last_hash = seq, digest
        return seq

    def flush(self) -> None:
        """Return once everything appended so far is durable.

        Raises:
            Unavailable: the disk refuses it; the entries stay queued, in order.
        """
        self._writer.flush()

    async def durable(self, seq: int) -> None:
        """Wait, without holding the event loop, until entry ``seq`` is durable.

        Raises:
            Unavailable: the disk refuses it; the entry stays queued, in order.
        """
        if seq <= self._durable_seq:
            return
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        reached = self._last_seq

        def settle(error: GridawareError | None) -> None:
            if error is None:
                self._durable_seq = max(self._durable_seq, reached)
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def told(error: GridawareError | None) -> None:
            # A loop that was closed meanwhile has nobody left to tell.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, error)

        self._writer.when_durable(told)
        await done

    def read(
        self, from_seq: int = 1, kinds: Collection[str] = (), limit: int = 1000
    ) -> list[LedgerEntry]:
        """Durable entries from ``from_seq`` on, of these kinds (none given = all)."""
        with translated("read the ledger"), self._engine.connect() as connection:
            return read_entries(connection, from_seq=from_seq, kinds=kinds, limit=limit)

    def verify(self) -> int:
        """Compute the whole chain again and return its length.

        Raises:
            BrokenChain: an entry was altered, removed, added or moved.
        """
        with translated("verify the ledger"), self._engine.connect() as connection:
            return verify_chain(connection, self._site_id)

    def _find_end(self) -> tuple[int, str]:
        genesis = genesis_hash(self._site_id)
        with translated("read the ledger"), self._engine.connect() as connection:
            last = connection.execute(select(func.max(ledger.c.seq))).scalar()
            if last is None:
                return 0, genesis
            first = read_entries(connection, limit=1)[0]
            end = read_entries(connection, from_seq=last, limit=1)[0]
        if first.prev_hash != genesis:
            raise ConfigError(
                "store-wrong-site",
                f"the store is not of site {self._site_id!r}",
                site_id=self._site_id,
            )
        if seal(end.prev_hash, end.seq, end.at, end.kind, end.body) != end.hash:
            raise ConfigError("ledger-altered", f"entry {end.seq} was altered", seq=end.seq)
        return end.seq, end.hash
