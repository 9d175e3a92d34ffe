"""The lease holder: keeps a node's promise and gives the limits back, whatever happens.

A deterministic state machine without clock or I/O. What happened goes in, with the boot time it
happened at; actions come out, to be carried out in order. It is level-triggered: after every
input it compares what should stand on each GPU with what was read back and asks for the
difference, so a lost answer, a retry and a restart are all the same case.

What should stand on a GPU is the least of: its found limit; the lease's limit, or after the
lease's end a straight line from it to the found limit in the agent's slot; a standing ceiling; a
lower limit that someone else has set. It is then moved into the device's own range.
"""

from collections.abc import Iterable
from datetime import datetime

from gridaware.domain.errors import Refused
from gridaware.domain.lease import Lease
from gridaware.domain.wire import Armed, Desired, Trigger
from gridaware.node.actions import (
    Acknowledge,
    Action,
    ArmedHeld,
    Beneath,
    Fault,
    Fence,
    Firing,
    Inventory,
    Journal,
    JournalRecord,
    LimitReading,
    Locked,
    WriteLimits,
    Written,
)
from gridaware.node.armed import ArmedResponses, joined, still_told, triggered
from gridaware.node.clockhold import ClockHolds
from gridaware.node.gpuhold import HUNG, GpuHold, free_watts
from gridaware.node.level import own_target_watts
from gridaware.node.order import Order, wrong_with
from gridaware.node.restart import described, distrusted, remind, resume
from gridaware.node.safekeeping import Safekeeping
from gridaware.node.term import Term

__all__ = ["LeaseHolder"]

_SILENCE_SECONDS = 5.0
"""Until a Welcome says otherwise."""


class LeaseHolder:
    """Holds one lease for one node. See the module's page for the rules.

    Args:
        boot_id: Identity of this boot of the machine.
        record: The journal's last record, if there is one.
        distrust: The journal could not be read, so a limit that stands may be ours. It is taken
            as found all the same (raising it could exceed what the site allows), and reported.
    """

    def __init__(
        self, boot_id: str, record: JournalRecord | None = None, *, distrust: bool = False
    ) -> None:
        self.boot_id = boot_id
        self.driver_epoch = record.driver_epoch if record else ""
        self.epoch = record.controller_epoch if record else 0
        self.sequence = record.sequence if record else -1
        self.decision_id = record.decision_id if record else ""
        self._term = Term(record)
        self.armed = ArmedResponses(record, boot_id)
        self._firing = record.firing if record else None
        self._standing = dict(record.standing_watts) if record else {}
        self._resuming = record
        self._journal = Safekeeping(record)
        self._distrust = distrust
        self._silence_seconds = _SILENCE_SECONDS
        self._heard_at: float | None = None
        self._driver_up = False
        self.fresh = record is None
        """No journal, and no controller has said what it remembers."""
        self._ticket = 0
        self._holds: dict[str, GpuHold] = {}
        self._clocks = ClockHolds(record, boot_id)
        self._order: Order | None = None

    # What happened -------------------------------------------------------------------------

    def on_inventory(self, inventory: Inventory, now: float, wall: datetime) -> list[Action]:
        """A driver child is up, the first or another; ``wall`` is for an earlier boot's lease."""
        faults: list[Fault] = []
        record, self._resuming = self._resuming, None
        reloaded = inventory.driver_epoch != self.driver_epoch and self.driver_epoch != ""
        if self._heard_at is None:
            self._heard_at = now
        for device in inventory.devices:
            hold = self._holds.setdefault(device.gpu_id, GpuHold(device.gpu_id))
            faults += described(hold, device)
        self._clocks.found(inventory)
        if record is not None:
            faults += resume(self._holds, self._term, record, self.boot_id, now, wall)
        for gpu_id in self._holds.keys() - {d.gpu_id for d in inventory.devices}:
            faults += self._holds[gpu_id].block("device-lost", "DeviceLost")
        if reloaded and any(h.touched for h in self._holds.values()):
            faults.append(
                Fault("driver-reloaded", None, "the driver was reloaded and limits were reset")
            )
        self.driver_epoch = inventory.driver_epoch
        self._driver_up = True
        for device in inventory.devices:
            hold = self._holds[device.gpu_id]
            if hold.touched:
                faults += hold.resume(
                    device, self._own_target(hold, now), ramping=self._term.over(now)
                )
        if self._distrust:
            faults += distrusted(self._holds)
            self._distrust = False
        return [*faults, *self._settle(now)]

    def on_driver_gone(self, now: float) -> list[Action]:
        """The driver child died or was given up; limits stand as they are."""
        self._driver_up = False
        self._clocks.abandon()
        for hold in self._holds.values():
            hold.abandon("driver-gone" if hold.in_flight else None)
        return self._settle(now)

    def on_welcome(self, epoch: int, silence_seconds: float, now: float) -> list[Action]:
        """A controller has taken the stream; a newer one fences all older ones."""
        if epoch < self.epoch:
            return [self._fence(epoch)]
        if epoch > self.epoch:
            self.epoch, self.sequence = epoch, -1
        self._silence_seconds = silence_seconds
        self.on_heard(now)
        return self._settle(now)

    def on_heard(self, now: float) -> list[Action]:
        """Any frame of the controller: it is not silent."""
        self._heard_at = now
        term = self._term
        if term.silent_since is None or term.fallen_back or term.over(now):
            return []
        term.silent_since = None
        return self._settle(now)

    def on_desired(self, desired: Desired, now: float, wall: datetime) -> list[Action]:
        """The controller's whole wish. Older ones are dropped, the same one acknowledged again."""
        if desired.controller_epoch < self.epoch:
            return [self._fence(desired.controller_epoch)]
        wrong = wrong_with(desired) if self._heard_at is not None else "no driver has answered yet"
        if wrong is not None:
            return [Fault("desired-refused", None, f"{desired.decision_id}: {wrong}")]
        self._heard_at = now
        if (known := self._known(desired, now)) is not None:
            return known
        self._obey(desired, now)
        reminded = remind(self._holds, desired.found_watts) if self.fresh else []
        self.fresh = False
        self._take(desired, now, wall)
        self._open_order(now)
        return [*reminded, *self._settle(now)]

    def arm(self, armed: Armed, now: float, wall: datetime) -> list[Action]:
        """Hold these responses ready, and no others; told once they are in the journal."""
        if armed.controller_epoch < self.epoch:
            return [self._fence(armed.controller_epoch)]
        if wrong := self.armed.take(armed, now, wall):
            return [Fault("armed-refused", None, f"revision {armed.revision}: {wrong}")]
        return [*self._settle(now), ArmedHeld(armed.controller_epoch, armed.revision)]

    def trigger(self, trigger: Trigger, now: float, wall: datetime) -> list[Action]:
        """The controller fires an armed response: what follows is what follows a Desired."""
        if trigger.controller_epoch < self.epoch:
            return [self._fence(trigger.controller_epoch)]
        if (known := self._known(trigger, now)) is not None:
            return known
        wanted = (trigger.programme_id, trigger.level)
        response = self.armed.find(*wanted, now, (trigger.controller_epoch, trigger.revision))
        if response is None or self._heard_at is None:
            return [Fault("trigger-refused", None, f"{trigger.decision_id}: {wanted} not armed")]
        self._obey(trigger, now)
        self._firing = None
        self._put_in_force(triggered(response, trigger), now, wall)
        self._open_order(now)
        return self._settle(now)

    def fire(
        self, programme_id: str, level: int, now: float, wall: datetime, cause: str, measured: float
    ) -> list[Action]:
        """A cause on this node fires an armed response, with or without a controller.

        ``cause`` names the watch, ``measured`` is what it saw. Firing again never raises a limit.
        """
        response = self.armed.find(programme_id, level, now)
        if response is None or self._heard_at is None:
            return [Fault("trigger-refused", None, f"{cause}: {programme_id} {level} not armed")]
        beneath = self._term.goes_on(self.armed.own_ids, now)
        lease, self._firing = self.armed.fired(response, cause, measured, now, wall)
        self._put_in_force(lease, now, wall, beneath)
        self._open_order(now)
        return [*self._settle(now), self._firing]

    def let_go(self, programme_id: str, now: float) -> list[Action]:
        """What fired is gone: limits return in their slot, to what else still holds them."""
        if (ended := self.armed.let_go(programme_id, now)) is None:
            return []
        self._term.let_go_of(ended[0], now)
        if self._firing is not None and self._firing.programme_id == programme_id:
            self._firing = None
        return [*self._settle(now), ended[1]]

    def on_written(self, results: Iterable[Written], now: float) -> list[Action]:
        """Limits were set and read back, or not."""
        known = [(self._holds[r.gpu_id], r) for r in results if r.gpu_id in self._holds]
        faults = [fault for hold, result in known for fault in hold.finish(result, now)]
        return [*faults, *self._settle(now)]

    def on_locked(self, results: Iterable[Locked], now: float) -> list[Action]:
        """Clock locks were set, or not."""
        return [*self._clocks.finish(results, now), *self._settle(now)]

    def on_readings(self, readings: Iterable[LimitReading], now: float) -> list[Action]:
        """Limits as they stand, read about once a second."""
        faults: list[Fault] = []
        for hold, reading in [(self._holds.get(r.gpu_id), r) for r in readings]:
            if hold is not None:
                own = self._own_target(hold, now) if hold.touched else 0.0
                faults += hold.observe(reading, own, now)
                faults += self._clocks.observe(reading, now)
        return [*faults, *self._settle(now)]

    def on_hung(
        self, gpu_ids: Iterable[str], now: float, why: tuple[str, str] = HUNG
    ) -> list[Action]:
        """Driver calls for these GPUs do not return, or ``why`` they must be left alone."""
        hung = [self._holds[gpu_id] for gpu_id in gpu_ids if gpu_id in self._holds]
        self._clocks.hung(hold.gpu_id for hold in hung)
        faults = [fault for hold in hung for fault in hold.block(*why)]
        return [*faults, *self._settle(now)]

    def on_journal_failed(self, now: float) -> list[Action]:
        """A durable record could not be written, so what followed it was not done.

        GPUs whose found limit is on the disk go on; the others wait until it can be written.
        """
        self._journal.failed(self._holds.values(), now)
        self._clocks.abandon()
        for hold in [h for h in self._holds.values() if h.in_flight and h.ticket == self._ticket]:
            hold.abandon("journal-write")
        return self._settle(now)

    def on_tick(self, now: float) -> list[Action]:
        """Time has passed; needed at :meth:`next_deadline` at the latest."""
        return self._settle(now)

    def release(self, now: float, *, force: bool, at_once: bool = False) -> list[Action]:
        """A person ends the lease: limits return in the slot, or at once; standing ceilings stay.

        Raises:
            Refused: the lease is alive and ``force`` is not given.
        """
        term, told = self._term, list[Action]()
        if term.lease is not None and not term.over(now):
            if not force and not (term.ends_at is None and term.silent_since is not None):
                raise Refused("lease-alive", f"lease {term.lease.lease_id} is in force")
            told = [Fault("released-by-person", None, f"lease {term.lease.lease_id} was released")]
        term.end(now, at_once=at_once)
        return [*told, *self._settle(now)]

    def retire(self, now: float, *, at_once: bool) -> list[Action]:
        """Give everything back for good, standing ceilings too: in the slot, or at once."""
        standing, self._standing = self._standing, {}
        self._term.hold_beside(standing)
        self._term.end(now, at_once=at_once)
        return self._settle(now)

    # What is true --------------------------------------------------------------------------

    @property
    def lease(self) -> Lease | None:
        """The lease in force, or on its way back."""
        return self._term.lease

    @property
    def held(self) -> Lease | None:
        """What a controller must know of it: the lease, or the standing ceilings alone."""
        if self.lease is not None or not self._standing:
            return self.lease
        return Lease("", standing_watts=tuple(self._standing.items()))

    @property
    def firing(self) -> Firing | None:
        """What put the lease in force, where that was this node itself."""
        return still_told(self._firing, self._term)

    @property
    def holding(self) -> bool:
        """Whether any limit is, or may still be, ours."""
        return self._clocks.holding or any(hold.touched for hold in self._holds.values())

    @property
    def released(self) -> bool:
        """Whether no lease keeps a limit down any more: what should stand has been read back."""
        rests = all(h.settled for h in self._holds.values() if h.touched)
        rests = rests and not self._clocks.holding
        return self._driver_up and self.lease is None and rests

    @property
    def blocked(self) -> bool:
        """Whether a fresh driver child is worth a try for any GPU."""
        return any(hold.ails for hold in self._holds.values())

    @property
    def sound(self) -> frozenset[str]:
        """GPUs whose limits can be set, as nothing says otherwise."""
        return frozenset(h.gpu_id for h in self._holds.values() if h.can_set and not h.ails)

    @property
    def settable(self) -> frozenset[str]:
        """GPUs whose limits may be set, as far as was last heard."""
        return frozenset(hold.gpu_id for hold in self._holds.values() if hold.can_set)

    def found_watts(self, gpu_id: str) -> float | None:
        """The limit to restore, None where it could never be read."""
        hold = self._holds.get(gpu_id)
        if hold is None:
            return None
        return hold.standing_watts if hold.found_watts is None else hold.found_watts

    def target_watts(self, gpu_id: str, now: float) -> float | None:
        """What should stand on a GPU that we hold; None = it is not ours."""
        hold = self._holds.get(gpu_id)
        return self._target(hold, now) if hold is not None and hold.touched else None

    def lease_left_seconds(self, now: float) -> float | None:
        """Until the lease ends; None without a lease or without an end."""
        return self._term.left_seconds(now)

    def phase(self, now: float) -> str:
        """``idle``, ``holding``, ``silent`` (no controller), ``fallback`` or ``restoring``."""
        if self.lease is None:
            return "restoring" if self.holding else "idle"
        return self._term.phase(now)

    def next_deadline(self, now: float) -> float | None:
        """Boot seconds at which :meth:`on_tick` is due; None = nothing is waiting for time."""
        due = (
            self._term.deadline(self._heard_at, self._silence_seconds, now),
            self.armed.deadline(now, self._silent_at()),
            self._clocks.deadline(now),
            self._journal.deadline(now),
        )
        times = [at for at in due if at is not None]
        if self._driver_up:
            waiting = (h for h in self._holds.values() if h.touched and not h.settled)
            times += [hold.retry_at for hold in waiting if hold.retry_at > now]
        return min(times, default=None)

    # Rules ---------------------------------------------------------------------------------

    def _settle(self, now: float) -> list[Action]:
        """Everything that follows from the present state."""
        if self._driver_up and self._heard_at is not None:
            self._begin_scheduled(now)
            self._term.advance(now, self._heard_at, self._silence_seconds)
        self._touch()
        over = self._term.over(now)
        may_journal = now >= self._journal.retry_at
        writes: list[tuple[str, float]] = []
        for hold in self._holds.values():
            if not hold.touched or not self._driver_up or not (hold.safe or may_journal):
                continue
            target = self._target(hold, now)
            if hold.needs_write(target, now):
                hold.begin(target, self._ticket + 1, remember=not over or self.lease is None)
                writes.append((hold.gpu_id, target))
        if self._order is not None:
            self._order.closed = self._order.closed or (over and self.lease is not None)
        ready = self._driver_up and may_journal
        locks = self._clocks.settle(self._term, self._holds, now) if ready else []
        acknowledgement = None
        if self._order is not None:
            acknowledgement = self._order.news(self._holds, self._clocks.held(self._term))
        self._let_go(now)
        actions: list[Action] = [*self._written_down()] if may_journal else []
        if writes:
            self._ticket += 1
            actions.append(WriteLimits(self._ticket, tuple(writes)))
        actions += locks
        if acknowledgement is not None:
            actions.append(acknowledgement)
        return actions

    def _touch(self) -> None:
        """Freeze the found limits of every GPU that is about to be ours."""
        if self._driver_up:
            for gpu_id in self._term.limits.keys() | self._standing.keys():
                if gpu_id in self._holds:
                    self._journal.touch(self._holds[gpu_id])

    def _let_go(self, now: float) -> None:
        """Without a lease, a GPU that is back where it was found is no longer ours."""
        if self.lease is not None:
            return
        for hold in self._holds.values():
            back = hold.touched and hold.settled and hold.gpu_id not in self._standing
            if back and hold.asked_watts == self._target(hold, now):
                hold.let_go()

    def _open_order(self, now: float) -> None:
        """Every GPU that the newest Desired concerns owes it a result."""
        self._touch()
        asked = {h.gpu_id: self._target(h, now) for h in self._holds.values() if h.touched}
        self._order = Order(
            self.epoch, self.sequence, self.decision_id, asked | self._term.limits, now
        )

    def _silent_at(self) -> float:
        """Boot seconds from which on the controller counts as away."""
        return (self._heard_at or 0.0) + self._silence_seconds

    def _begin_scheduled(self, now: float) -> None:
        """An event begins that a controller, were it there, would have begun."""
        if (begun := self.armed.begun(now, self._silent_at(), self._term)) is not None:
            self._put_in_force(begun.lease, now, begun.wall)

    def _put_in_force(
        self, lease: Lease, now: float, wall: datetime, beneath: Beneath | None = None
    ) -> None:
        """Hold a lease of this node's own store, never above what holds now."""
        lease, left = joined(self._term, self._holds.values(), lease, self._standing, now)
        if lease.limits_watts:
            self._term.take(lease, left, now, wall, beneath)

    def _own_target(self, hold: GpuHold, now: float) -> float:
        """What we want to stand on a GPU that we hold, foreign limits aside."""
        return own_target_watts(hold, self._term, self._standing, now)

    def _target(self, hold: GpuHold, now: float) -> float:
        own = self._own_target(hold, now)
        return own if hold.foreign_watts is None else min(own, hold.foreign_watts)

    def _take(self, desired: Desired, now: float, wall: datetime) -> None:
        lease = desired.lease
        self._firing = None
        self._standing = dict(lease.standing_watts)
        if not (lease.limits_watts or lease.clocks_mhz):
            self._term.drop()
            return
        ends = desired.expires_at
        self._term.take(lease, None if ends is None else ends - desired.sent_at, now, wall)

    def _known(self, order: Desired | Trigger, now: float) -> list[Action] | None:
        """What to do about an order that is not the newest any more; None = it is."""
        if order.controller_epoch != self.epoch or order.sequence > self.sequence:
            return None
        return self._again(now) if order.sequence == self.sequence else []

    def _obey(self, order: Desired | Trigger, now: float) -> None:
        self.epoch, self.sequence = order.controller_epoch, order.sequence
        self.decision_id, self._heard_at = order.decision_id, now

    def _again(self, now: float) -> list[Action]:
        """The newest Desired came once more: answer again, extend nothing."""
        if self._order is None:  # obeyed before a restart
            self._open_order(now)
            return self._settle(now)
        actions = self._settle(now)
        if not any(isinstance(action, Acknowledge) for action in actions):
            actions.append(self._order.again())
        return actions

    def _fence(self, epoch: int) -> Fence:
        return Fence("controller-epoch-old", f"controller epoch {epoch} is older than {self.epoch}")

    def _written_down(self) -> list[Journal]:
        if self._resuming is not None:
            return []
        ahead = self.armed.ahead(free_watts(self._holds.values()))
        record = JournalRecord(
            self.boot_id,
            self.driver_epoch,
            self.epoch,
            self.sequence,
            self.decision_id,
            self.lease,
            self._term.ends_at,
            self._term.expires_at,
            self._term.silent_since,
            self._term.fallen_back,
            tuple(self._standing.items()),
            tuple(filter(None, (h.record() for h in self._holds.values()))),
            self.armed.record,
            ahead,
            self.firing,
            self._clocks.record,
            self._term.beneath,
        )
        return self._journal.write(record, self._holds.values())
