"""The clock locks of a node: asked for by the lease beside its limits, and given back like them.

No driver can say which lock stands, so the found one is taken to be *unlocked* (or the site's own,
which the driver's options name): giving back means unlocking. A lock is in the journal before it
is written, so that a restarted agent knows what it has to undo. On the way back it rises in a
straight line to the full clock, with the limits.

What shows of a lock is the clock: once it has settled it is read at or below the lock. One that is
read above it has lost the lock to somebody else, and it is set again, ever more rarely.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from gridaware.domain.fleet import ClockRange
from gridaware.domain.wire import LockHeld
from gridaware.node.actions import (
    Fault,
    Inventory,
    JournalRecord,
    LimitReading,
    LockClocks,
    Locked,
)
from gridaware.node.gpuhold import GpuHold, retry_seconds
from gridaware.node.term import Term

__all__ = ["ClockHolds"]

_FOR_GOOD = frozenset({"DeviceNotSupported", "DeviceOutOfRange"})
_SETTLE_SECONDS = 1.0
"""A clock that was read sooner after the lock says nothing of it."""
_STEP_MHZ = 15.0
"""Clocks come in such steps; the lock is at the step at or below what is asked."""


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
    set_at: float = 0.0
    """When the driver took what is asked, boot seconds."""
    state: str = ""
    """As :class:`LockHeld` has it; "" = on its way."""
    clock_mhz: float | None = None
    losses: int = 0
    """Times it was read above the lock, since it was last seen to be kept."""


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
            lock.state, lock.clock_mhz = "", None

    def settle(self, term: Term, holds: Mapping[str, GpuHold], now: float) -> list[LockClocks]:
        """What must be written now; it is in :attr:`record` from here on."""
        writes: list[tuple[str, float | None]] = []
        for gpu_id, lock in self._locks.items():
            hold = holds.get(gpu_id)
            if hold is None or not hold.can_set or hold.blocked_by is not None:
                continue
            wanted = _wanted(lock, term.clock_mhz(gpu_id), term.unlocked(now))
            if not _due(lock, wanted, now):
                continue
            if wanted is not None:
                lock.may_stand_mhz = wanted
            if wanted != lock.asked_mhz:
                lock.state, lock.clock_mhz = "", None
            lock.asked_mhz, lock.in_flight, lock.confirmed = wanted, True, False
            writes.append((gpu_id, wanted))
        if not writes:
            return []
        self._ticket += 1
        return [LockClocks(self._ticket, tuple(writes))]

    def finish(self, results: Iterable[Locked], now: float) -> list[Fault]:
        """Locks were set, or not. An answer to an older write says nothing."""
        faults: list[Fault] = []
        for result in results:
            lock = self._locks.get(result.gpu_id)
            if lock is None or not lock.in_flight or result.most_mhz != lock.asked_mhz:
                continue
            lock.in_flight = False
            if result.error_code is None:
                faults += _over(lock, "clock-lock-not-set", result.gpu_id)
                lock.confirmed, lock.failures, lock.told = True, 0, ""
                lock.may_stand_mhz = lock.asked_mhz
                lock.set_at = now
                lock.state = lock.state if lock.state == "exceeded" else "set"
                continue
            lock.failures += 1
            lock.state, lock.clock_mhz = result.error_code, None
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

    def observe(self, reading: LimitReading, now: float) -> list[Fault]:
        """A clock was read: does it keep to the lock?"""
        lock, mhz = self._locks.get(reading.gpu_id), reading.clock_mhz
        if lock is None or mhz is None or lock.asked_mhz is None or not lock.confirmed:
            return []
        if lock.in_flight or now - lock.set_at < _SETTLE_SECONDS or not isfinite(mhz):
            return []
        kept = mhz <= lock.asked_mhz + _STEP_MHZ
        state = "kept" if kept else "exceeded"
        if state != lock.state:
            lock.state, lock.clock_mhz = state, mhz
        if kept:
            lost, lock.losses = lock.losses > 0, 0
            words = f"its clock keeps to the lock of {lock.asked_mhz:g} MHz again"
            return [Fault("clock-lock-lost", reading.gpu_id, words, over=True)] if lost else []
        lock.confirmed, lock.retry_at = False, now + retry_seconds(lock.losses)
        lock.losses += 1
        if lock.losses > 1:
            return []
        words = f"its clock is {mhz:g} MHz above a lock of {lock.asked_mhz:g} MHz: set again"
        return [Fault("clock-lock-lost", reading.gpu_id, words)]

    def held(self, term: Term) -> dict[str, LockHeld | None]:
        """What became of each lock that the lease asks; None = it is on its way."""
        return {
            gpu_id: self._held(gpu_id, asked_mhz)
            for gpu_id, _ in term.clocks_mhz
            if (asked_mhz := term.clock_mhz(gpu_id)) is not None
        }

    def _held(self, gpu_id: str, asked_mhz: float) -> LockHeld | None:
        lock = self._locks.get(gpu_id)
        if lock is None or lock.range is None:
            return LockHeld(asked_mhz, "device-not-supported")
        newest = lock.state and lock.asked_mhz == _wanted(lock, asked_mhz, 0.0)
        return LockHeld(asked_mhz, lock.state, lock.clock_mhz) if newest else None

    def hung(self, gpu_ids: Iterable[str]) -> None:
        """Driver calls for these GPUs do not return."""
        for gpu_id in gpu_ids:
            if (lock := self._locks.get(gpu_id)) is not None and lock.in_flight:
                lock.in_flight = lock.confirmed = False
                lock.state, lock.clock_mhz = "device-hung", None

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


def _over(lock: _Lock, code: str, gpu_id: str) -> list[Fault]:
    """What was told of it holds no longer."""
    return [Fault(code, gpu_id, "the clock lock was set", over=True)] if lock.told else []


def _due(lock: _Lock, wanted: float | None, now: float) -> bool:
    if lock.in_flight or lock.refused or now < lock.retry_at:
        return False
    if wanted is None and lock.may_stand_mhz is None:
        return False
    return wanted != lock.asked_mhz or not lock.confirmed
