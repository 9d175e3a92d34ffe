"""One controller to a store: a lock that dies with its process, and the epoch it earns.

The kernel lets go of the lock when the process ends, however it ends, so there is no stale lock to
clear. The epoch rises durably at each start; agents obey the highest they have met.
"""

import fcntl
import os
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine, func, insert, select

from gridaware.domain.errors import Refused, Unavailable
from gridaware.store.database import translated
from gridaware.store.schema import controller
from gridaware.store.times import rfc3339

__all__ = ["ControllerLock", "begin_epoch"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ControllerLock:
    """Held from construction to :meth:`release`, or to the end of the process."""

    def __init__(self, store_file: Path) -> None:
        """Take the lock of the store in ``store_file``.

        Raises:
            Refused: another controller holds it (``store-locked``, with its ``pid``).
            Unavailable: the lock's file cannot be made.
        """
        path = store_file.with_name(store_file.name + ".lock")
        try:
            self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unavailable(
                "store-cannot-open", f"cannot make {path}: {error.strerror}"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise Refused(
                "store-locked",
                f"another controller (pid {holder or 'unknown'}) runs on the store {store_file}",
                pid=int(holder) if holder.isdigit() else None,
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go; harmless when done twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def begin_epoch(engine: Engine, at: datetime, after: int = 0) -> int:
    """Write down that a controller starts, durably, and return its epoch (1, 2, …).

    ``after``: the epoch is greater than this one, too, which a store that was lost had given.

    Raises:
        Unavailable: the disk refuses.
    """
    when = rfc3339(at)
    with translated("begin the controller's epoch"), engine.begin() as connection:
        last = connection.execute(select(func.max(controller.c.epoch))).scalar() or 0
        last = max(last, after)
        row = {
            "epoch": last + 1,
            "boot_id": _boot_id(),
            "pid": os.getpid(),
            "started_at": when,
            "heartbeat_at": when,
        }
        connection.execute(insert(controller), row)
    return int(last + 1)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
