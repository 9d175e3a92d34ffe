"""Documents: what people read, written by control as whole JSON bodies."""

import hashlib
import threading
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, func, select

from gridaware.store.chain import canonical
from gridaware.store.database import translated
from gridaware.store.schema import document
from gridaware.store.times import rfc3339
from gridaware.store.upsert import upsert
from gridaware.store.writer import StoreWriter

__all__ = ["REMOVED", "SqlDocuments"]

REMOVED = "removed"
"""State of a document that is gone; followers of changes see it go."""


class SqlDocuments:
    """Puts and removes documents; each change of any of them has its own rising version."""

    def __init__(self, engine: Engine, writer: StoreWriter) -> None:
        self._writer = writer
        self._upsert = upsert(engine, document, keep=("created",))
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], tuple[str, bytes]] = {}
        with translated("read the documents"), engine.connect() as connection:
            newest = connection.execute(select(func.max(document.c.version))).scalar()
        self._version = newest or 0

    def put(self, kind: str, document_id: str, state: str, body: Any, at: datetime) -> bool:
        """Write a document; False where state and body are what was put last.

        ``body`` is anything that becomes JSON, or JSON bytes.

        Raises:
            Unavailable: the disk refuses writes; nothing was queued.
        """
        data = body if isinstance(body, bytes) else canonical(body)
        return self._write(kind, document_id, state, data, at)

    def remove(self, kind: str, document_id: str, at: datetime) -> bool:
        """Take a document away; False where that was the last thing done to it.

        Raises:
            Unavailable: the disk refuses writes; nothing was queued.
        """
        return self._write(kind, document_id, REMOVED, None, at)

    def _write(
        self, kind: str, document_id: str, state: str, body: bytes | None, at: datetime
    ) -> bool:
        looks = (str(state), b"" if body is None else hashlib.sha256(body).digest())
        with self._lock:
            if self._seen.get((kind, document_id)) == looks:
                return False
            version = self._version + 1
            row = {
                "kind": str(kind),
                "id": str(document_id),
                "state": looks[0],
                "body": body,
                "updated_at": rfc3339(at),
                "version": version,
                "created": version,
            }
            self._writer.submit(self._upsert, row)
            self._version = version
            self._seen[kind, document_id] = looks
        return True
