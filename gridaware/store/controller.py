"""The controller's end of the store: the only writer there is."""

from datetime import datetime

from sqlalchemy import bindparam, update

from gridaware.domain.errors import ConfigError
from gridaware.store.database import database_file, migrate, open_engine
from gridaware.store.documents import SqlDocuments
from gridaware.store.energy import SqlEnergy
from gridaware.store.idempotency import SqlIdempotency
from gridaware.store.ledger import SqlLedger
from gridaware.store.lock import ControllerLock, begin_epoch
from gridaware.store.schema import controller
from gridaware.store.series import SqlSeries
from gridaware.store.times import rfc3339
from gridaware.store.writer import StoreWriter

__all__ = ["ControllerStore"]

_HEARTBEAT = (
    update(controller)
    .where(controller.c.epoch == bindparam("of_epoch"))
    .values(heartbeat_at=bindparam("now"))
)


class ControllerStore:
    """Everything a controller writes, under its exclusive lock.

    All parts share one writer thread, so what is written together is committed together; every
    write returns at once, and raises ``Unavailable`` while the disk refuses.
    """

    def __init__(
        self, location: str, *, site_id: str, started_at: datetime, after_epoch: int = 0
    ) -> None:
        """Lock the store at ``location`` (SQLite path or URL), migrate it, begin a new epoch.

        ``after_epoch``: greater than this one, which agents obeyed and the store has lost.

        Raises:
            Refused: another controller runs on it (``store-locked``).
            ConfigError: it is damaged, of another site, or made by a newer gridaware.
            Unavailable: the disk refuses.
        """
        path = database_file(location)
        if path is None:
            raise ConfigError("store-not-sqlite", "this version keeps its store in SQLite only")
        self._writer: StoreWriter | None = None
        self._engine = open_engine(location, writing=True)
        self._reading = open_engine(location, writing=False)
        self._lock = ControllerLock(path)
        try:
            migrate(self._engine)
            self.epoch = begin_epoch(self._engine, started_at, after_epoch)
            writer = self._writer = StoreWriter(self._engine)
            self.ledger = SqlLedger(self._reading, writer, site_id)
            self.documents = SqlDocuments(self._reading, writer)
            self.series = SqlSeries(self._reading, writer)
            self.energy = SqlEnergy(self._reading, writer)
            self.idempotency = SqlIdempotency(self._reading, writer)
        except BaseException:
            self.close()
            raise

    def heartbeat(self, at: datetime) -> None:
        """Note that this controller lives.

        Raises:
            Unavailable: the disk refuses writes.
        """
        writer = self._writer
        if writer is not None:
            writer.submit(_HEARTBEAT, {"of_epoch": self.epoch, "now": rfc3339(at)})

    def close(self) -> None:
        """Commit what is queued and let go of the lock.

        Raises:
            Unavailable: the last rows could not be written.
        """
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._engine.dispose()
            self._reading.dispose()
            self._lock.release()
