"""What the journal knows: no limit is changed before the found one is on the disk."""

from collections.abc import Iterable

from gridaware.node.actions import Journal, JournalRecord
from gridaware.node.gpuhold import GpuHold

__all__ = ["Safekeeping"]

_RETRY_SECONDS = 1.0


class Safekeeping:
    """Remembers the last record, and which found limits it made safe. One holder's."""

    def __init__(self, record: JournalRecord | None) -> None:
        self.retry_at = float("-inf")
        """After a record that could not be written: boot seconds of the next try."""
        self._record = record
        kept = (*record.gpus, *record.ahead) if record else ()
        self._ahead = {gpu.gpu_id: gpu.found_watts for gpu in kept}
        """GPU → found limit, of all that have been in each record since one that was durable."""
        self._unsafe: frozenset[str] = frozenset()
        """GPUs whose found limit was in the last record for the first time."""

    def touch(self, hold: GpuHold) -> None:
        """Freeze a GPU's found limit; one that is known ahead of time is safe already."""
        if not hold.touched:
            hold.touch()
            hold.safe = hold.found_watts is not None and (
                self._ahead.get(hold.gpu_id) == hold.found_watts
            )

    def deadline(self, now: float) -> float | None:
        """When the next try is due; None = the disk takes records."""
        return self.retry_at if self.retry_at > now else None

    def write(self, record: JournalRecord, holds: Iterable[GpuHold]) -> list[Journal]:
        """The record, where it says anything new; from then on it counts as written."""
        if record == self._record:
            return []
        ours = [hold for hold in holds if hold.touched]
        fresh = {
            gpu.gpu_id: gpu.found_watts
            for gpu in record.ahead
            if self._ahead.get(gpu.gpu_id) != gpu.found_watts
        }
        self._unsafe = frozenset([h.gpu_id for h in ours if not h.safe]) | fresh.keys()
        # A record that leaves a GPU out lets its found limit go from the disk, too.
        self._ahead = {g.gpu_id: g.found_watts for g in (*record.gpus, *record.ahead)}
        for hold in ours:
            hold.safe = True
        self._record = record
        return [Journal(record, durable=bool(self._unsafe))]

    def failed(self, holds: Iterable[GpuHold], now: float) -> None:
        """The durable record was not written: GPUs that it was to make safe wait for the next."""
        self._record = None
        self.retry_at = now + _RETRY_SECONDS
        for hold in holds:
            if hold.gpu_id in self._unsafe:
                hold.safe = False
        for gpu_id in self._unsafe:
            self._ahead.pop(gpu_id, None)
