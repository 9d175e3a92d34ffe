"""The lease in force and its times: when it ends, who is silent, how far the way back has come."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.node import slot
from gridaware.node.actions import JournalRecord

__all__ = ["Term"]

_UNKNOWN_SLOT = RestoreSlot(0.0, 60.0)
"""Of standing ceilings that a person lifts: no lease says how fast the site may rise."""


class Term:
    """One lease on the boot clock. Mutable, owned by one holder; knows no GPU's registers."""

    def __init__(self, record: JournalRecord | None) -> None:
        self.lease = record.lease if record else None
        self.limits = dict(self.lease.limits_watts) if self.lease else {}
        self._clocks_mhz = dict(self.lease.clocks_mhz) if self.lease else {}
        self.ends_at = record.ends_at if record else None
        """Boot seconds; None = no lease, or an event without an end."""
        self.expires_at = record.expires_at if record else None
        """The same on this machine's wall clock, for after a reboot."""
        self.silent_since = record.silent_since if record else None
        self.fallen_back = record.fallen_back if record else False

    def take(self, lease: Lease, left: timedelta | None, now: float, wall: datetime) -> None:
        """Hold another lease from now on; ``left`` None = an event without an end."""
        self.lease, self.limits = lease, dict(lease.limits_watts)
        self._clocks_mhz = dict(lease.clocks_mhz)
        self.silent_since, self.fallen_back = None, False
        self.ends_at = None if left is None else now + left.total_seconds()
        self.expires_at = None if left is None else wall + left

    def drop(self) -> None:
        """Hold none."""
        self.lease, self.limits, self._clocks_mhz = None, {}, {}
        self.ends_at = self.expires_at = self.silent_since = None
        self.fallen_back = False

    def hold_beside(self, standing_watts: Mapping[str, float]) -> None:
        """Take what stood without an end into the lease, so that it ends with it."""
        if standing_watts:
            lease = self.lease or Lease("standing", duration_seconds=0.0, slot=_UNKNOWN_SLOT)
            self.limits = dict(standing_watts) | self.limits
            self.lease = replace(lease, limits_watts=tuple(self.limits.items()))

    def end(self, now: float, *, at_once: bool) -> None:
        """A person ends it: the way back begins now, or goes on; ``at_once``: it is over."""
        if self.lease is None:
            return
        self.ends_at = now if self.ends_at is None else min(self.ends_at, now)
        self.expires_at = None  # after a reboot nothing of it is left
        if at_once:
            self.lease = replace(self.lease, slot=RestoreSlot())

    def left_seconds(self, now: float) -> float | None:
        """Until it ends; None without a lease or without an end."""
        return None if self.ends_at is None else max(0.0, self.ends_at - now)

    def over(self, now: float) -> bool:
        """Whether limits are on their way back."""
        return self.lease is None or (self.ends_at is not None and now >= self.ends_at)

    def progress(self, now: float) -> float:
        """How far limits are on their way back: 0 held, 1 found."""
        if self.lease is None:
            return 1.0
        if self.ends_at is None or now < self.ends_at:
            return 0.0
        return slot.progress(self.lease.slot, now - self.ends_at)

    def phase(self, now: float) -> str:
        """What a lease that is there does: ``holding``, ``silent``, ``fallback``, ``restoring``."""
        if self.over(now):
            return "restoring"
        if self.fallen_back:
            return "fallback"
        return "holding" if self.silent_since is None else "silent"

    def level_watts(self, gpu_id: str, found_watts: float, now: float) -> float:
        """What the lease alone leaves to a GPU now."""
        level = found_watts
        if self.fallen_back and self.lease is not None:
            level = found_watts * (self.lease.signal_loss.fallback_fraction or 1.0)
        elif gpu_id in self.limits:
            level = min(found_watts, self.limits[gpu_id])
        return level + (found_watts - level) * self.progress(now)

    def clock_mhz(self, gpu_id: str) -> float | None:
        """The lease's clock lock of a GPU. What the fall-back leaves is a limit alone."""
        return None if self.fallen_back else self._clocks_mhz.get(gpu_id)

    @property
    def clocks_mhz(self) -> tuple[tuple[str, float], ...]:
        """All clock locks of the lease."""
        return self.lease.clocks_mhz if self.lease is not None else ()

    def advance(self, now: float, heard_at: float, silence_seconds: float) -> None:
        """Let time end what it ends: the controller's voice, the hold, the ramp."""
        if self.lease is None:
            return
        if self.ends_at is not None:
            if self.progress(now) >= 1.0:
                self.drop()
            return
        if self.silent_since is None and now >= heard_at + silence_seconds:
            self.silent_since = heard_at
        loss = self.lease.signal_loss
        if self.silent_since is None or loss.hold_seconds is None or self.fallen_back:
            return
        if now >= self.silent_since + loss.hold_seconds:
            if loss.fallback_fraction is None:
                self.ends_at = now
            else:
                self.fallen_back = True

    def deadline(self, heard_at: float | None, silence_seconds: float, now: float) -> float | None:
        """When time next ends something; None = nothing waits for it."""
        if self.lease is None:
            return None
        if self.ends_at is not None:
            if now < self.ends_at:
                return self.ends_at
            return self.ends_at + slot.next_step(self.lease.slot, now - self.ends_at)
        if self.fallen_back or heard_at is None:
            return None
        if self.silent_since is None:
            return heard_at + silence_seconds
        hold_seconds = self.lease.signal_loss.hold_seconds
        return None if hold_seconds is None else self.silent_since + hold_seconds

    def resume(self, now: float) -> None:
        """The same boot, another process: what went by meanwhile is made up for."""
        if self.lease is None or self.ends_at is None:
            return
        if slot.over(self.lease.slot, now - self.ends_at):
            # The slot went by while no agent ran: rise from now on, on the same line.
            self.ends_at = now - self.lease.slot.delay_seconds

    def reboot(self, now: float, wall: datetime) -> None:
        """The boot clock began again, so only the wall clock can tell what is left."""
        if self.ends_at is not None:
            left = (self.expires_at - wall) if self.expires_at else timedelta(0)
            self.ends_at = now + left.total_seconds()
            if left <= timedelta(0):
                self.drop()
        elif self.silent_since is not None:
            self.silent_since = now
