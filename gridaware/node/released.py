"""What persons have released on this node, until a controller has surely heard of it.

A release breaks into a promise, so the programme must be told who did it and why, also where no
controller could be reached at that moment and the agent was restarted since. Each release is kept
in a file of its own beside the journal and said in every Hello; a controller takes the same one
twice without harm. It is dropped once a controller that was told of it has been heard for a
minute after: long enough for it to be on that controller's disk.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from gridaware.domain.lease import Lease
from gridaware.domain.wire import Desired, Released

__all__ = ["Releases"]

_MOST = 64
_MOST_BYTES = 1024 * 1024
_TOLD_SECONDS = 60.0
_DECODER = msgspec.json.Decoder(tuple[Released, ...])


class Releases:
    """The releases of one node, in ``releases`` of its state directory."""

    def __init__(self, directory: Path, fault: Callable[[str, str], None]) -> None:
        """Read what an earlier agent left; ``fault(code, message)`` hears of an unreadable file."""
        self._path = directory / "releases"
        self._next = directory / "releases.next"
        self._fault = fault
        self._kept = self._load()
        self._told_at: float | None = None
        self.retiring = False
        """The agent is being removed: it takes no limit any more."""

    @property
    def told(self) -> bool:
        """Whether a controller has heard of all of them."""
        return self._told_at is not None or not self._kept

    def all(self) -> tuple[Released, ...]:
        """What every Hello says."""
        return self._kept

    def add(self, released: Released) -> None:
        """A person has released the node."""
        self._kept = (*self._kept, released)[-_MOST:]
        self._told_at = None
        self._save()

    def note_restored(self) -> bool:
        """Every found limit stands; whether that is news to whom a release was told."""
        if all(released.restored for released in self._kept):
            return False
        self._kept = tuple(replace(released, restored=True) for released in self._kept)
        self._told_at = None
        self._save()
        return True

    def on_told(self, now: float) -> None:
        """A controller has welcomed the Hello that says them; ``now`` on the boot clock."""
        self._told_at = now if self._kept else None

    def on_lost(self) -> None:
        """That controller is gone: the next one is told again."""
        self._told_at = None

    def on_tick(self, now: float) -> None:
        """Forget what has been told long enough and is over."""
        told = self._told_at is not None and now - self._told_at >= _TOLD_SECONDS
        if told and all(released.restored for released in self._kept):
            self._kept, self._told_at = (), None
            self._save()

    def spared(self, desired: Desired, held: Lease | None) -> Desired | None:
        """The wish without limits for events that a person has set this node free of.

        A controller that has not heard yet would lower again what a person let go. While the node
        is on its way back by the ramp it is left to the controller's pace. None: obey nothing.
        """
        lease = desired.lease
        if self.retiring:
            return None
        over = [released for released in self._kept if released.at_once or held is None]
        free = {event_id for released in over for event_id in released.event_ids}
        if lease.limits_watts and lease.event_ids and free.issuperset(lease.event_ids):
            return replace(desired, lease=replace(lease, limits_watts=(), duration_seconds=0.0))
        return desired

    def _load(self) -> tuple[Released, ...]:
        try:
            with self._path.open("rb") as file:
                return _DECODER.decode(file.read(_MOST_BYTES))[-_MOST:]
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.MsgspecError) as error:
            self._fault("releases-unreadable", f"{self._path} is lost: {error}")
            return ()

    def _save(self) -> None:
        try:
            with self._next.open("wb") as file:
                file.write(msgspec.json.encode(self._kept))
                file.flush()
                os.fsync(file.fileno())
            self._next.replace(self._path)
        except OSError as error:
            # The release itself must not wait for a disk: it is said while this process lives.
            self._fault("releases-write", f"cannot write {self._path}: {error}")
