"""Responses that a node holds ready, and what becomes of the lease in force when one is fired.

A store without clock or I/O, inside the lease holder. Times are boot seconds. What is armed expires
with its own lease: after that it is never fired, since jobs have come and gone since. A scheduled
response is different: it stands for the window that it was accepted for, however long ago.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import isfinite

from gridaware.domain.lease import ArmedResponse, Lease, RestoreSlot, ScheduledResponse
from gridaware.domain.wire import Armed, Fired, Trigger
from gridaware.node.actions import ArmedRecord, Firing, GpuRecord, JournalRecord
from gridaware.node.gpuhold import GpuHold
from gridaware.node.order import wrong_with_lease
from gridaware.node.term import Term

__all__ = ["ArmedResponses", "joined", "still_told", "told_of", "triggered"]

_MOST_RESPONSES = 256
"""Of one kind; a controller that sends more has gone mad."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An event's lease for the rest of its window, and this machine's wall clock at that."""

    lease: Lease
    wall: datetime


class ArmedResponses:
    """The newest set of them."""

    def __init__(self, record: JournalRecord | None, boot_id: str) -> None:
        kept = record is not None and record.boot_id == boot_id  # the boot clock goes on
        self.record = record.armed if record is not None and kept else None
        """For the journal, so that what is armed outlives this process."""
        self._caps = _caps(self.record)
        firing = record.firing if record is not None and kept else None
        self._last = {} if firing is None else {firing.programme_id: firing}
        """Programme → what this node fired for it by itself and has not let go of."""

    def take(self, armed: Armed, now: float, wall: datetime) -> str | None:
        """Hold this set and no other; what is wrong with it, where it is refused."""
        wrong = _wrong_with(armed)
        if wrong is None:
            self.record = ArmedRecord(armed, now, wall)
            self._caps = _caps(self.record)
        return wrong

    def find(
        self, programme_id: str, level: int, now: float, revision: tuple[int, int] | None = None
    ) -> ArmedResponse | None:
        """The response to fire; None where none is held, or it has expired.

        Args:
            programme_id: which programme asks.
            level: how deep.
            now: boot seconds.
            revision: (controller epoch, revision) that it must be of; None = of any.
        """
        armed = self.record.armed if self.record is not None else None
        held = None if armed is None else (armed.controller_epoch, armed.revision)
        for response in self.ready(now) if revision in {None, held} else ():
            if (response.programme_id, response.level) == (programme_id, level):
                return response
        return None

    def ready(self, now: float) -> tuple[ArmedResponse, ...]:
        """Everything that may be fired now."""
        if self.record is None or now >= self._expires_at(self.record):
            return ()
        return self.record.armed.responses

    def fired(
        self,
        response: ArmedResponse,
        cause: str,
        measured: float | None,
        now: float,
        wall: datetime,
    ) -> tuple[Lease, Firing]:
        """The lease of a response that the node fires by itself, and what is told of it."""
        programme_id, lease = response.programme_id, response.lease
        lease_id = f"{cause}-{programme_id}-{round(now * 1000)}"
        firing = self._last[programme_id] = Firing(
            programme_id=programme_id,
            level=response.level,
            depth=response.depth,
            lease_id=lease_id,
            cause=cause,
            measured=measured,
            at=now,
            wall=wall,
            duration_seconds=lease.duration_seconds,
        )
        return replace(lease, lease_id=lease_id, event_ids=(f"{cause}.{programme_id}",)), firing

    @property
    def own_ids(self) -> set[str]:
        """Under which event ids the node has fired what it has not let go of."""
        return {f"{last.cause}.{last.programme_id}" for last in self._last.values()}

    def let_go(self, programme_id: str, now: float) -> tuple[str, Firing] | None:
        """The event id under which it fired for a programme, and what is told of its end."""
        last = self._last.pop(programme_id, None)
        if last is None:
            return None
        wall = last.wall + timedelta(seconds=now - last.at)
        told = replace(last, level=None, depth=0.0, at=now, wall=wall, duration_seconds=None)
        return f"{last.cause}.{programme_id}", told

    def begun(self, now: float, silent_at: float, term: Term) -> "Begun | None":
        """The event that has begun without a controller (away from ``silent_at`` on), told once."""
        if self.record is None or now < silent_at:
            return None
        served = set(term.lease.event_ids) if term.lease is not None else set()
        for response, starts_at, ends_at in self._windows(self.record):
            if not (starts_at <= now and (ends_at is None or now < ends_at)):
                continue
            lease = response.lease
            self._forget(response)
            if not served.issuperset(lease.event_ids):
                left = None if ends_at is None else ends_at - now
                wall = self.record.wall + timedelta(seconds=now - self.record.at)
                return Begun(replace(lease, duration_seconds=left), wall)
        return None

    def deadline(self, now: float, silent_at: float) -> float | None:
        """When a scheduled event begins, should the controller stay away until then."""
        if self.record is None:
            return None
        starts = (max(starts_at, silent_at) for _, starts_at, _ in self._windows(self.record))
        return min((at for at in starts if at > now), default=None)

    def ahead(self, found_watts: Mapping[str, float]) -> tuple[GpuRecord, ...]:
        """What the journal must know before any of these is fired; by GPU, the limit found now."""
        return tuple(
            GpuRecord(gpu_id, found_watts[gpu_id], caps)
            for gpu_id, caps in self._caps.items()
            if gpu_id in found_watts
        )

    def _forget(self, response: ScheduledResponse) -> None:
        assert self.record is not None
        armed = self.record.armed
        left = tuple(other for other in armed.scheduled if other is not response)
        self.record = replace(self.record, armed=replace(armed, scheduled=left))

    @staticmethod
    def _expires_at(record: ArmedRecord) -> float:
        return record.at + (record.armed.expires_at - record.armed.sent_at).total_seconds()

    @staticmethod
    def _windows(record: ArmedRecord) -> list[tuple[ScheduledResponse, float, float | None]]:
        windows = []
        for response in record.armed.scheduled:
            starts_at = record.at + response.starts_in_seconds
            duration = response.lease.duration_seconds
            windows.append(
                (response, starts_at, None if duration is None else starts_at + duration)
            )
        return windows


def triggered(response: ArmedResponse, trigger: Trigger) -> Lease:
    """The lease of a response that the controller fires."""
    return replace(
        response.lease,
        lease_id=trigger.decision_id,
        duration_seconds=trigger.duration_seconds,
        event_ids=(trigger.event_id,),
    )


def joined(
    term: Term,
    holds: Iterable[GpuHold],
    lease: Lease,
    standing_watts: Mapping[str, float],
    now: float,
) -> tuple[Lease, timedelta | None]:
    """The fired lease on top of the one in force: nothing is raised, nothing ends sooner.

    Args:
        term: what is in force.
        holds: the node's GPUs.
        lease: what is fired.
        standing_watts: ceilings that stand all the time.
        now: boot seconds.

    Returns:
        The lease to hold, and for how long (None = until signal loss lets go). Its slot is that of
        whichever is stricter everywhere, else the sum of both: slots follow one another in the same
        order in each, so their sums do, too, and the longer one has room for both raises. What
        fires again beside another event, as a droop does, keeps its way back.
    """
    fired, levels = dict(lease.limits_watts), {}
    for hold in holds:
        gpu_id, found = hold.gpu_id, hold.found_watts
        if found is not None and (level := term.level_watts(gpu_id, found, now)) < found:
            levels[gpu_id] = level
    limits = fired | {g: min(fired.get(g, watts), watts) for g, watts in levels.items()}
    lease = replace(
        lease,
        limits_watts=tuple(limits.items()),
        standing_watts=tuple(standing_watts.items()),
    )
    held, seconds = term.lease, lease.duration_seconds
    if held is None:
        return lease, None if seconds is None else timedelta(seconds=seconds)
    if limits == fired:
        slot = lease.slot
    elif limits == levels or set(lease.event_ids) <= set(held.event_ids):
        slot = held.slot
    else:
        slot = RestoreSlot(
            held.slot.delay_seconds + lease.slot.delay_seconds,
            held.slot.duration_seconds + lease.slot.duration_seconds,
        )
    clocks = dict(lease.clocks_mhz)
    for gpu_id, mhz in held.clocks_mhz:
        clocks[gpu_id] = min(clocks.get(gpu_id, mhz), mhz)
    lease = replace(lease, slot=slot, clocks_mhz=tuple(clocks.items()))
    if (other := term.in_force(now)) is not None:
        open_ended = other.ends_at is None
        if not open_ended and seconds is not None:
            seconds = max(seconds, (other.ends_at or now) - now)
        else:
            seconds = None
        lease = replace(
            lease,
            event_ids=tuple(dict.fromkeys((*other.lease.event_ids, *lease.event_ids))),
            signal_loss=other.lease.signal_loss if open_ended else lease.signal_loss,
            duration_seconds=seconds,
        )
    return lease, None if seconds is None else timedelta(seconds=seconds)


def told_of(firing: Firing, node_id: str, now: float) -> Fired:
    """The same, as the controller hears it."""
    return Fired(
        node_id=node_id,
        programme_id=firing.programme_id,
        level=firing.level,
        depth=firing.depth,
        lease_id=firing.lease_id,
        cause=firing.cause,
        measured=firing.measured,
        at=firing.wall,
        age_seconds=max(now - firing.at, 0.0),
        duration_seconds=firing.duration_seconds,
    )


def _caps(record: ArmedRecord | None) -> dict[str, tuple[float, ...]]:
    """GPU → every limit that firing something may put on it."""
    caps: dict[str, dict[float, None]] = {}
    if record is not None:
        leases = [r.lease for r in record.armed.responses]
        leases += [s.lease for s in record.armed.scheduled]
        for lease in leases:
            for gpu_id, watts in lease.limits_watts:
                caps.setdefault(gpu_id, {})[watts] = None
    return {gpu_id: tuple(watts) for gpu_id, watts in caps.items()}


def _wrong_with(armed: Armed) -> str | None:
    """Why a set cannot be held; None = it can."""
    if armed.sent_at.tzinfo is None or armed.expires_at.tzinfo is None:
        return "its times are naive"
    if max(len(armed.responses), len(armed.scheduled)) > _MOST_RESPONSES:
        return f"more than {_MOST_RESPONSES} responses"
    leases = [r.lease for r in armed.responses] + [s.lease for s in armed.scheduled]
    for lease in leases:
        seconds = lease.duration_seconds
        if seconds is not None and not (isfinite(seconds) and seconds > 0):
            return "a response would not last"
        if (wrong := wrong_with_lease(lease)) is not None:
            return wrong
    if not all(isfinite(s.starts_in_seconds) for s in armed.scheduled):
        return "a response has no start"
    return None


def still_told(firing: Firing | None, term: Term) -> Firing | None:
    """What a Hello says of a firing: that it happened, for as long as its lease is in force."""
    lease = term.lease
    return firing if firing is not None and lease and lease.lease_id == firing.lease_id else None
