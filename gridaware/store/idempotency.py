"""Answers already given, so that a repeated request is answered again and not done again."""

import hashlib
from datetime import datetime

from sqlalchemy import Engine, select

from gridaware.domain.errors import InvalidInput
from gridaware.store.chain import canonical
from gridaware.store.database import translated
from gridaware.store.schema import idempotency
from gridaware.store.times import rfc3339
from gridaware.store.upsert import upsert
from gridaware.store.writer import StoreWriter

__all__ = ["SqlIdempotency"]


class SqlIdempotency:
    """Remembers one response for each key; used by the controller's command desk alone."""

    def __init__(self, engine: Engine, writer: StoreWriter) -> None:
        self._engine = engine
        self._writer = writer
        self._upsert = upsert(engine, idempotency)

    def find(self, key: str, command: str, args: object) -> bytes | None:
        """The response once given to this request; None where the key is new.

        Raises:
            InvalidInput: the key was used for another request (``idempotency-key-reused``).
            Unavailable: the disk refuses.
        """
        self._writer.flush()
        query = select(idempotency).where(idempotency.c.key == key)
        with translated("read the answers"), self._engine.connect() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        if (row.command, row.fingerprint) != (command, _fingerprint(args)):
            raise InvalidInput(
                "idempotency-key-reused",
                "this idempotency key was used for another request",
                command=row.command,
            )
        return bytes(row.response)

    def remember(
        self, key: str, command: str, args: object, actor: str, response: bytes, at: datetime
    ) -> None:
        """Keep the response given to this request.

        Raises:
            Unavailable: the disk refuses writes; nothing was queued.
        """
        row = {
            "key": key,
            "command": command,
            "fingerprint": _fingerprint(args),
            "actor": actor,
            "response": response,
            "at": rfc3339(at),
        }
        self._writer.submit(self._upsert, row)


def _fingerprint(args: object) -> str:
    return hashlib.sha256(canonical(args)).hexdigest()
