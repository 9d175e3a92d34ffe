"""The lease in force and its times: when it ends, who is silent, how far the way back has come.

What a node fires by itself while an event holds it lies on top of that event's lease, which goes on
beneath: once what fired is over, limits return to the lease beneath and not to the found ones.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.node import slot
from gridaware.node.actions import Beneath, JournalRecord

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
        self.beneath = record.beneath if record else None
        """What goes on beneath a lease that this node has fired by itself."""

    def take(
        self,
        lease: Lease,
        left: timedelta | None,
        now: float,
        wall: datetime,
        beneath: Beneath | None = None,
    ) -> None:
        """Hold another lease from now on; ``left`` None = an event without an end."""
        self.beneath = beneath
        self._hold(lease)
        self.silent_since, self.fallen_back = None, False
        self.ends_at = None if left is None else now + left.total_seconds()
        self.expires_at = None if left is None else wall + left

    def drop(self) -> None:
        """Hold none."""
        self.lease, self.limits, self._clocks_mhz, self.beneath = None, {}, {}, None
        self.ends_at = self.expires_at = self.silent_since = None
        self.fallen_back = False

    def let_go_of(self, event_id: str, now: float) -> None:
        """One of the lease's events is over; where it was on top of all others, limits return."""
        if self.lease is None or event_id not in self.lease.event_ids:
            return
        under = self._under(now)
        left = tuple(other for other in self.lease.event_ids if other != event_id)
        if not set(left) <= set(self.beneath.lease.event_ids if self.beneath is not None else ()):
            self.lease = replace(self.lease, event_ids=left)
        elif under is not None and self.fallen_back:
            self._uncover(under)  # of both the fall-back is left, which is the same
        else:
            slot_ends_at = now + self.lease.slot.delay_seconds + self.lease.slot.duration_seconds
            until = now
            if under is not None and under.ends_at is not None and under.ends_at <= slot_ends_at:
                until, self.beneath = under.ends_at, None  # one way back for both
            self._end(until)

    def in_force(self, now: float) -> Beneath | None:
        """The lease that holds now, and its end: the one on top, or the one it returns to."""
        if self.lease is not None and not self.over(now):
            return Beneath(self.lease, self.ends_at, self.expires_at)
        return self._under(now)

    def goes_on(self, own_ids: Collection[str], now: float) -> Beneath | None:
        """What goes on beneath that which a node now fires; ``own_ids``: of what it has fired."""
        under = self._under(now) or self.in_force(now)
        return under if under is not None and set(under.lease.event_ids) - set(own_ids) else None

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
        self.beneath = None
        self._end(now)
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
        base, under = found_watts, self._under(now)
        if under is not None:
            base = min(found_watts, dict(under.lease.limits_watts).get(gpu_id, found_watts))
        return level + (max(base, level) - level) * self.progress(now)

    def clock_mhz(self, gpu_id: str) -> float | None:
        """The lease's clock lock of a GPU. What the fall-back leaves is a limit alone."""
        return None if self.fallen_back else self._clocks_mhz.get(gpu_id)

    def unlocked(self, now: float) -> float:
        """How far clock locks are on their way back; what a node fires has none of its own."""
        return 0.0 if self._under(now) is not None else self.progress(now)

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
                under = self._under(now)
                if under is None:
                    self.drop()
                else:
                    self._uncover(under)
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
        self.beneath = None  # nobody lets go of what was fired before: it holds to the last end
        if self.ends_at is not None:
            left = (self.expires_at - wall) if self.expires_at else timedelta(0)
            self.ends_at = now + left.total_seconds()
            if left <= timedelta(0):
                self.drop()
        elif self.silent_since is not None:
            self.silent_since = now

    # Rules ---------------------------------------------------------------------------------

    def _hold(self, lease: Lease) -> None:
        self.lease, self.limits = lease, dict(lease.limits_watts)
        self._clocks_mhz = dict(lease.clocks_mhz)

    def _end(self, at: float) -> None:
        self.ends_at = at if self.ends_at is None else min(self.ends_at, at)
        self.expires_at = None  # after a reboot nothing of it is left

    def _under(self, now: float) -> Beneath | None:
        """The lease beneath, while it holds."""
        under = self.beneath
        holds = under is not None and (under.ends_at is None or now < under.ends_at)
        return under if holds else None

    def _uncover(self, under: Beneath) -> None:
        """What was on top is gone."""
        self._hold(under.lease)
        self.ends_at, self.expires_at, self.beneath = under.ends_at, under.expires_at, None
