"""A Desired on its way: whether it can be obeyed, what it has come to, what to acknowledge."""

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite

from gridaware.domain.lease import Lease
from gridaware.domain.wire import Desired, GpuResult, LockHeld
from gridaware.node.actions import Acknowledge
from gridaware.node.gpuhold import GpuHold

__all__ = ["Order", "wrong_with", "wrong_with_lease"]

_MOST_SECONDS = 1e7


class Order:
    """The newest Desired and its results; a newer one replaces it.

    A result stays until a newer one for the same GPU, so what was accepted is not taken back by a
    correction in flight. Once the lease has ended the order is closed: what the limits do
    then is told by samples.
    """

    def __init__(
        self,
        epoch: int,
        sequence: int,
        decision_id: str,
        asked_watts: Mapping[str, float],
        opened_at: float,
    ) -> None:
        self._key = (epoch, sequence, decision_id)
        self._opened_at = opened_at
        """Boot seconds: from here on the time to each read-back is counted."""
        self._asked_watts = asked_watts
        self._results: dict[str, GpuResult] = {}
        self._told: dict[str, GpuResult] | None = None
        self._fresh = True
        self.closed = False

    def news(
        self, holds: Mapping[str, GpuHold], locks: Mapping[str, LockHeld | None]
    ) -> Acknowledge | None:
        """The acknowledgement that is due, None where it would say nothing new.

        What is known before any driver has answered waits for the first answer. ``locks`` are those
        that the lease asks, None where one is still on its way.
        """
        if self.closed:
            return None
        for gpu_id, asked in self._asked_watts.items():
            result = _result(gpu_id, asked, holds.get(gpu_id), self._opened_at)
            if result is None:
                continue
            if result.error is None and gpu_id in locks and locks[gpu_id] is None:
                continue
            self._results[gpu_id] = replace(result, lock=locks.get(gpu_id))
        fresh, self._fresh = self._fresh, False
        waiting = len(self._results) < len(self._asked_watts)
        if (waiting and (fresh or not self._results)) or self._results == self._told:
            return None
        return self.again()

    def again(self) -> Acknowledge:
        """Everything known so far, so the last acknowledgement always tells all."""
        self._told = dict(self._results)
        results = tuple(self._results[g] for g in self._asked_watts if g in self._results)
        return Acknowledge(*self._key, results, len(results) == len(self._asked_watts))


def wrong_with(desired: Desired) -> str | None:
    """Why a Desired cannot be obeyed; None = it can."""
    lease = desired.lease
    if (wrong := wrong_with_lease(lease)) is not None:
        return wrong
    if desired.sent_at.tzinfo is None:
        return "sent_at is a naive time"
    if desired.expires_at is not None and lease.limits_watts:
        if desired.expires_at.tzinfo is None:
            return "expires_at is a naive time"
        if desired.expires_at <= desired.sent_at:
            return "it had expired before it was sent"
    return None


def wrong_with_lease(lease: Lease) -> str | None:
    """Why a lease cannot be held; None = it can."""
    for name, pairs in (("limits", lease.limits_watts), ("standing", lease.standing_watts)):
        if any(not (isfinite(watts) and watts > 0) for _, watts in pairs):
            return f"{name} has a value that is no positive number of watts"
        if len({gpu_id for gpu_id, _ in pairs}) != len(pairs):
            return f"{name} names a GPU twice"
    if any(not (isfinite(mhz) and mhz > 0) for _, mhz in lease.clocks_mhz):
        return "clocks has a value that is no positive number of megahertz"
    slot = lease.slot
    if not all(0 <= s < _MOST_SECONDS for s in (slot.delay_seconds, slot.duration_seconds)):
        return "the restore slot has no valid length"
    return None


def _result(
    gpu_id: str, asked_watts: float, hold: GpuHold | None, opened_at: float
) -> GpuResult | None:
    """What one GPU has come to; None = still on its way."""
    if hold is None:
        return GpuResult(gpu_id, asked_watts, None, "gpu-unknown")
    if hold.touched and hold.settled:
        after = None if hold.read_at is None else max(hold.read_at - opened_at, 0.0)
        return GpuResult(gpu_id, asked_watts, hold.enforced_watts, after_seconds=after)
    if not hold.can_set and hold.blocked_by is None:
        return GpuResult(gpu_id, asked_watts, hold.enforced_watts, "device-no-permission")
    if hold.error_code is not None and not hold.in_flight:
        return GpuResult(gpu_id, asked_watts, None, hold.error_code)
    return None
