"""The clock locks of a node: asked for by the lease beside its limits, and given back like them.

No driver can say which lock stands, so the found one is taken to be *unlocked* (or the site's own,
which the driver's options name): giving back means unlocking. A lock is in the journal before it
is written, so that a restarted agent knows what it has to undo. On the way back it rises in a
straight line to the full clock, with the limits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from gridaware.domain.fleet import ClockRange
from gridaware.node.actions import Fault, Inventory, JournalRecord, LockClocks, Locked
from gridaware.node.gpuhold import GpuHold, retry_seconds
from gridaware.node.term import Term

__all__ = ["ClockHolds"]

_FOR_GOOD = frozenset({"DeviceNotSupported", "DeviceOutOfRange"})


@dataclass(slots=True)
class _Lock:
    """The lock of one GPU. ``None`` is unlocked."""

    range: ClockRange | None = None
    may_stand_mhz: float | None = None
    """A lock of ours; None = certainly none."""
    asked_mhz: float | None = None
    confirmed: bool = True
    in_flight: bool = False
    refused: bool = False
    """By the driver, for good: until another child says what the GPU can do."""
    failures: int = 0
    retry_at: float = 0.0
    told: str = ""


class ClockHolds:
    """All locks of one holder. Like it without clock or I/O."""

    def __init__(self, record: JournalRecord | None, boot_id: str) -> None:
        self._locks: dict[str, _Lock] = {}
        self._ticket = 0
        self._driver_epoch = record.driver_epoch if record is not None else ""
        if record is not None and record.boot_id == boot_id:
            for gpu_id, mhz in record.clocks_mhz:
                self._locks[gpu_id] = _Lock(may_stand_mhz=mhz, asked_mhz=mhz, confirmed=False)

    @property
    def holding(self) -> bool:
        """Whether any lock is, or may still be, ours."""
        return any(lock.may_stand_mhz is not None for lock in self._locks.values())

    @property
    def record(self) -> tuple[tuple[str, float], ...]:
        """What the journal must know: locks of ours that may stand."""
        return tuple(
            (gpu_id, lock.may_stand_mhz)
            for gpu_id, lock in self._locks.items()
            if lock.may_stand_mhz is not None
        )

    def found(self, inventory: Inventory) -> None:
        """A new driver child: what stands is unknown, so it is written again.

        With a driver that was loaded anew no lock of ours stands; one that does is the site's.
        """
        self._ticket = 0
        if inventory.driver_epoch != self._driver_epoch:
            for lock in self._locks.values():
                lock.may_stand_mhz = lock.asked_mhz = None
        self._driver_epoch = inventory.driver_epoch
        for device in inventory.devices:
            lock = self._locks.setdefault(device.gpu_id, _Lock())
            lock.range = device.clocks
            lock.refused = False
            lock.retry_at = 0.0
        self.abandon()

    def abandon(self) -> None:
        """Nobody can say any more what stands."""
        for lock in self._locks.values():
            lock.confirmed = lock.may_stand_mhz is None and lock.asked_mhz is None
            lock.in_flight = False

    def settle(self, term: Term, holds: Mapping[str, GpuHold], now: float) -> list[LockClocks]:
        """What must be written now; it is in :attr:`record` from here on."""
        writes: list[tuple[str, float | None]] = []
        for gpu_id, lock in self._locks.items():
            hold = holds.get(gpu_id)
            if hold is None or not hold.can_set or hold.blocked_by is not None:
                continue
            wanted = _wanted(lock, term.clock_mhz(gpu_id), term.progress(now))
            if not _due(lock, wanted, now):
                continue
            if wanted is not None:
                lock.may_stand_mhz = wanted
            lock.asked_mhz, lock.in_flight, lock.confirmed = wanted, True, False
            writes.append((gpu_id, wanted))
        if not writes:
            return []
        self._ticket += 1
        return [LockClocks(self._ticket, tuple(writes))]

    def finish(self, results: Iterable[Locked], now: float) -> list[Fault]:
        """Locks were set, or not. An answer to an older write says nothing."""
        faults = []
        for result in results:
            lock = self._locks.get(result.gpu_id)
            if lock is None or not lock.in_flight or result.most_mhz != lock.asked_mhz:
                continue
            lock.in_flight = False
            if result.error_code is None:
                lock.confirmed, lock.failures, lock.told = True, 0, ""
                lock.may_stand_mhz = lock.asked_mhz
                continue
            lock.failures += 1
            lock.retry_at = now + retry_seconds(lock.failures)
            lock.refused = result.error_kind in _FOR_GOOD
            if lock.told != result.error_code:
                lock.told = result.error_code
                what = "unlocked" if lock.asked_mhz is None else f"{lock.asked_mhz:g} MHz"
                faults.append(
                    Fault(
                        "clock-lock-not-set",
                        result.gpu_id,
                        f"the clock lock ({what}) was not set ({result.error_code})",
                    )
                )
        return faults

    def hung(self, gpu_ids: Iterable[str]) -> None:
        """Driver calls for these GPUs do not return."""
        for gpu_id in gpu_ids:
            if (lock := self._locks.get(gpu_id)) is not None and lock.in_flight:
                lock.in_flight = lock.confirmed = False

    def deadline(self, now: float) -> float | None:
        """When a lock that failed is tried again."""
        times = [
            lock.retry_at
            for lock in self._locks.values()
            if lock.retry_at > now and not lock.confirmed and not lock.refused
        ]
        return min(times, default=None)


def _wanted(lock: _Lock, held_mhz: float | None, progress: float) -> float | None:
    """What should stand: the lease's lock, rising to the full clock on the way back."""
    if held_mhz is None or lock.range is None or not isfinite(held_mhz) or progress >= 1.0:
        return None
    held = lock.range.clamp(held_mhz)
    return round(held + (lock.range.greatest_mhz - held) * progress)


def _due(lock: _Lock, wanted: float | None, now: float) -> bool:
    if lock.in_flight or lock.refused or now < lock.retry_at:
        return False
    if wanted is None and lock.may_stand_mhz is None:
        return False
    return wanted != lock.asked_mhz or not lock.confirmed
