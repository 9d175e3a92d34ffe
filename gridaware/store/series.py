"""Power series, as control writes them."""

from datetime import datetime

from sqlalchemy import Engine

from gridaware.store.schema import series
from gridaware.store.times import epoch_milliseconds
from gridaware.store.upsert import upsert
from gridaware.store.writer import StoreWriter

__all__ = ["SqlSeries"]


class SqlSeries:
    """Power by name: ``meter target gpu_total baseline``, ``job:<id>``, ``node:<id>``."""

    def __init__(self, engine: Engine, writer: StoreWriter) -> None:
        self._writer = writer
        self._upsert = upsert(engine, series)

    def append(self, name: str, at: datetime, watts: float | None, quality: str = "good") -> None:
        """Add one point; a second one in the same millisecond replaces the first.

        ``watts`` None = from now on nothing holds (a target that was lifted).

        Raises:
            Unavailable: the disk refuses writes; nothing was queued.
        """
        row = {
            "series": str(name),
            "at": epoch_milliseconds(at),
            "watts": None if watts is None else float(watts),
            "quality": str(quality),
        }
        self._writer.submit(self._upsert, row)
