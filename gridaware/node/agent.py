"""The agent: one process per node that keeps what the controller was promised.

It only connects things. The lease holder decides; this module gives it what happened and the boot
time, and carries out the actions in order: journal, limits, acknowledgements, faults.

::

    controller ⇄ Uplink ⇄ Agent ⇄ DriverChildren ⇄ driver
                            │ LeaseHolder, Journal, Sampling
                            ├ JobDesk       jobs of this node
                            └ AdminSocket   root of this node
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Protocol

from gridaware import __version__
from gridaware.clock import Clock, boot_id
from gridaware.control.ports import Incident
from gridaware.domain.errors import ConfigError, InvalidInput, Unavailable
from gridaware.domain.wire import (
    PROTOCOL_VERSION,
    Acknowledged,
    Armed,
    ArmedAcknowledged,
    CheckpointRequest,
    Command,
    Desired,
    Fenced,
    Hello,
    NodeFault,
    Release,
    SampleRate,
    Trigger,
    Welcome,
)
from gridaware.node.actions import (
    Acknowledge,
    Action,
    ArmedHeld,
    Fault,
    Fence,
    Firing,
    Inventory,
    Journal,
    JournalRecord,
    LockClocks,
    Locked,
    WriteLimits,
    Written,
)
from gridaware.node.adminsocket import AdminSocket
from gridaware.node.armed import told_of
from gridaware.node.boards import BoardNews, gpus_of, slices_of
from gridaware.node.childwire import Tick
from gridaware.node.driverchild import DriverChildren
from gridaware.node.holder import LeaseHolder
from gridaware.node.journal import Journal as JournalFile
from gridaware.node.journal import load, lock_state
from gridaware.node.released import Releases
from gridaware.node.root import RootDesk
from gridaware.node.sampling import JobsOnNode, Sampling
from gridaware.node.settings import AgentSettings
from gridaware.node.uplink import Uplink
from gridaware.node.watch import FrequencyWatch

__all__ = ["Agent", "Desk"]

_log = logging.getLogger(__name__)

_HOUSEKEEPING_SECONDS = 1.0
"""The holder is asked at least this often: the loop's timers stand still while a machine sleeps."""
_SYNC_SECONDS = 0.5
_RESTORE_SECONDS = 10.0
_DRIVER_SECONDS = 15.0


class Desk(JobsOnNode, Protocol):
    """The job desk, as far as the agent needs it."""

    async def start(self) -> None:
        """Listen."""
        ...

    async def stop(self) -> None:
        """Hang up."""
        ...

    def request(self, request: CheckpointRequest) -> None:
        """Ask a job to save."""
        ...

    def announce(self) -> None:
        """Say again who is here, to a controller that is new."""
        ...

    def set_gpus(
        self, gpu_ids_by_ray_index: Sequence[str], boards_by_slice: Mapping[str, str]
    ) -> None:
        """GPUs in driver order, and whose MIG slices are."""
        ...


class Agent:
    """One node's agent. ``await run()`` until :meth:`stop`."""

    def __init__(
        self,
        settings: AgentSettings,
        ssl_context: ssl.SSLContext,
        clock: Clock,
        random: Random,
        make_desk: Callable[[Callable[[object], None]], Desk] | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self._desk = make_desk(self._emit) if make_desk is not None else None
        self._journal = JournalFile(settings.state_dir)
        self._boot_id = boot_id()
        self._early: list[Action] = []
        self._lock = lock_state(settings.state_dir)
        record, distrust = self._recall()
        self.holder = LeaseHolder(self._boot_id, record, distrust=distrust)
        self.children = DriverChildren(settings.driver, self)
        self.watch = FrequencyWatch(settings.frequency, self.holder, clock, self._carry)
        self.uplink = Uplink(settings.controller, ssl_context, clock, random, self)
        self._sampling = Sampling(settings.node_id, clock, self._desk, self.uplink.send)
        self.releases = Releases(
            settings.state_dir, lambda code, text: self._fault(Fault(code, None, text))
        )
        self.root = RootDesk(
            settings.node_id,
            self.holder,
            self.releases,
            clock,
            self._carry,
            self.uplink,
            self._facts,
        )
        self._admin = AdminSocket(settings.run_dir / "admin.sock", self.root.commands())
        self._inventory: Inventory | None = None
        self.ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._released = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._sync_due: asyncio.TimerHandle | None = None
        self._syncing: asyncio.Future[None] | None = None
        self._journal_broken = False
        self._sample_hz = 1.0
        self._boards = BoardNews()
        self._told_settable: frozenset[str] = frozenset()

    # Life -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until :meth:`stop`.

        Raises:
            ConfigError: a socket cannot be used.
        """
        self.settings.run_dir.mkdir(parents=True, exist_ok=True)
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._admin.start()
            if self._desk is not None:
                await self._desk.start()
            self.children.start()
            self._carry(self._early)
            tasks.append(asyncio.create_task(self._housekeeping(), name="housekeeping"))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRIVER_SECONDS):
                    await self._ready_or_stop()
            self.watch.start()
            tasks.append(asyncio.create_task(self.uplink.run(), name="uplink"))
            await self._stop.wait()
            if self.settings.restore_on_stop:
                await self._restore()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._timer is not None:
                self._timer.cancel()
            self.children.stop()
            if self._desk is not None:
                await self._desk.stop()
            await self._admin.stop()
            if self._sync_due is not None:
                self._sync_due.cancel()
                self._sync_soon()
            if self._syncing is not None:
                await asyncio.wait([self._syncing])
            os.close(self._lock)

    def stop(self) -> None:
        """End :meth:`run`. Limits and lease stand, unless the settings say to restore."""
        self.watch.stop()
        self._stop.set()

    async def _ready_or_stop(self) -> None:
        waits = [asyncio.ensure_future(e.wait()) for e in (self.ready, self._stop)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _restore(self) -> None:
        self._released.clear()
        self._carry(self.holder.retire(self._now(), at_once=True))
        if self.holder.holding:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RESTORE_SECONDS):
                    await self._released.wait()
        if self.holder.holding:
            _log.error("not every found limit could be restored; the journal keeps them")

    async def _housekeeping(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)
            self._carry(self.holder.on_tick(self._now()))
            self.children.wish_fresh(wanted=self.holder.blocked)
            if self.releases.retiring:
                self.watch.stop()
            self.watch.look()
            if self.holder.settable != self._told_settable:
                self.uplink.greet_again()
            if self.root.on_tick(self._now()):
                self.stop()

    def _recall(self) -> tuple[JournalRecord | None, bool]:
        """The journal's record, and whether limits that stand must be distrusted."""
        try:
            return load(self._journal), False
        except InvalidInput as error:
            kept = self._journal.set_aside()
            message = f"{error.message}; kept as {kept.name}"
            self._early.append(Fault(error.code, None, message))
            return None, True
        except Unavailable as error:
            raise ConfigError(error.code, error.message) from error

    # The driver -----------------------------------------------------------------------------

    def on_found(self, inventory: Inventory) -> None:
        """A driver child is at work."""
        self._inventory = inventory
        self._sampling.found(inventory)
        if self._desk is not None:
            self._desk.set_gpus([d.gpu_id for d in inventory.devices], slices_of(inventory))
        actions = self.holder.on_inventory(inventory, self._now(), self.clock.wall())
        self._carry([*self._boards.faults(inventory), *actions])
        self.ready.set()
        self.uplink.greet_again()

    def on_results(self, results: tuple[Written, ...]) -> None:
        """Limits were set and read back, or not."""
        self._carry(self.holder.on_written(results, self._now()))

    def on_locked(self, result: Locked) -> None:
        """A clock lock was set, or was not."""
        self._carry(self.holder.on_locked([result], self._now()))

    def on_tick(self, tick: Tick) -> None:
        """A sample of all GPUs."""
        readings = [g.limits for g in tick.gpus if g.limits is not None]
        pace = self.children.pace
        hung = [g.gpu_id for g in tick.gpus if g.stalled_seconds > pace(g.gpu_id).call_seconds]
        actions = self.holder.on_readings(readings, self._now()) if readings else []
        if hung:
            actions += self.holder.on_hung(hung, self._now())
        self._carry([*actions, *self._boards.look(tick)])
        self._sampling.take(tick, sample_hz=self._sample_hz)

    def on_incident(self, incident: Incident) -> None:
        """A GPU has reported an error by itself; perhaps it must be left alone."""
        gpu_id, why = incident.gpu_id, (incident.error_code, incident.error_kind)
        actions = self.holder.on_hung([gpu_id], self._now(), why) if incident.error_code else []
        self._carry([Fault(incident.code, gpu_id, incident.message), *actions])

    def on_driver_gone(self, code: str, message: str) -> None:
        """No driver child is at work; another is on its way."""
        fault = self._boards.gone(code, message)
        self._carry([fault, *self.holder.on_driver_gone(self._now())])

    def sound(self) -> frozenset[str]:
        """GPUs that a fresh child need not try to set."""
        return self.holder.sound

    # The controller -------------------------------------------------------------------------

    def hello(self) -> Hello:
        """Who we are and what we hold."""
        now = self._now()
        settings, holder, inventory = self.settings, self.holder, self._inventory
        self._told_settable = holder.settable
        desk = self._desk is not None
        return Hello(
            PROTOCOL_VERSION,
            settings.node_id,
            __version__,
            self._boot_id,
            "" if inventory is None else inventory.driver_epoch,
            gpus_of(inventory, holder),
            ("limits", "samples", "release", *(("jobs",) if desk else ())),
            holder.epoch,
            holder.held,
            holder.lease_left_seconds(now),
            settings.cluster_id,
            str(settings.run_dir / "agent.sock") if desk else "",
            self.holder.fresh,
            self.releases.all(),
            None if holder.firing is None else told_of(holder.firing, settings.node_id, now),
        )

    def on_welcome(self, welcome: Welcome) -> bool:
        """A controller accepts us; an old one is fenced."""
        actions = self.holder.on_welcome(
            welcome.controller_epoch, welcome.silence_seconds, self._now()
        )
        self._carry(actions)
        if any(isinstance(action, Fence) for action in actions):
            return False
        self.root.on_welcome(welcome, self._now())
        self._rate(welcome.sample_hz)
        if self._desk is not None:
            asyncio.get_running_loop().call_soon(self._desk.announce)
        return True

    def on_command(self, message: Command) -> None:
        """An order of the controller."""
        if isinstance(message, Desired):
            wish = self.releases.spared(message, self.holder.lease)
            if wish is not None:
                self._carry(self.holder.on_desired(wish, self._now(), self.clock.wall()))
        elif isinstance(message, Armed | Trigger):
            self._stand_ready(message)
        elif isinstance(message, Release):
            self.root.ordered(message)
        elif isinstance(message, SampleRate):
            self._rate(message.sample_hz)
        elif self._desk is not None:
            self._desk.request(message)

    def _stand_ready(self, message: Armed | Trigger) -> None:
        """Hold responses ready, or fire one; an agent that is being removed does neither."""
        if self.releases.retiring:
            return
        now, wall = self._now(), self.clock.wall()
        if isinstance(message, Armed):
            self._carry(self.holder.arm(message, now, wall))
            self.watch.look()
        else:
            self._carry(self.holder.trigger(message, now, wall))

    def on_heard(self) -> None:
        """The controller is not silent."""
        self._carry(self.holder.on_heard(self._now()))

    # Root of this node ----------------------------------------------------------------------

    def _facts(self) -> Mapping[str, object]:
        return {
            "connected": self.uplink.connected,
            "driver_child_pid": self.children.pid,
            "gpu_ids": [d.gpu_id for d in self._inventory.devices] if self._inventory else [],
        }

    # Carrying out ---------------------------------------------------------------------------

    def _carry(self, actions: Iterable[Action]) -> None:
        """Carry out actions in order, then wait for the holder's next deadline."""
        for action in actions:
            if isinstance(action, Journal):
                if not self._write_journal(action):
                    self._carry(self.holder.on_journal_failed(self._now()))
                    return
            elif isinstance(action, WriteLimits):
                self.children.write(action.ticket, action.limits_watts)
            elif isinstance(action, LockClocks):
                self.children.lock(action.ticket, action.clocks_mhz)
            elif isinstance(action, Acknowledge):
                self.uplink.send(self._acknowledged(action))
            elif isinstance(action, ArmedHeld):
                held = (action.controller_epoch, action.revision)
                self.uplink.send(ArmedAcknowledged(self.settings.node_id, *held))
            elif isinstance(action, Firing):
                self.uplink.send(told_of(action, self.settings.node_id, self._now()))
            elif isinstance(action, Fence):
                _log.error("%s: %s", action.code, action.message)
                self.uplink.fence(Fenced(action.code, action.message))
            else:
                self._fault(action)
        if not self.holder.holding:
            self._released.set()
        self.root.on_carried()
        self._arm()

    def _write_journal(self, action: Journal) -> bool:
        """False where found limits could not be made safe, so nothing may be changed."""
        try:
            self._journal.save(action.record, durable=action.durable)
        except Unavailable as error:
            if not self._journal_broken:
                self._fault(Fault(error.code, None, error.message))
            self._journal_broken = True
            return not action.durable
        self._journal_broken = False
        if not action.durable and self._syncing is None and self._sync_due is None:
            # Later: a response under way on this node shall not wait for its disk.
            self._sync_due = asyncio.get_running_loop().call_later(_SYNC_SECONDS, self._sync_soon)
        return True

    def _sync_soon(self) -> None:
        self._sync_due = None
        self._syncing = asyncio.get_running_loop().run_in_executor(None, self._sync)
        self._syncing.add_done_callback(self._synced)

    def _sync(self) -> None:
        with contextlib.suppress(Unavailable):
            self._journal.sync()

    def _synced(self, _done: object) -> None:
        self._syncing = None

    def _fault(self, fault: Fault) -> None:
        _log.warning("%s %s: %s", fault.code, fault.gpu_id or "", fault.message)
        node_id = self.settings.node_id
        told = NodeFault(node_id, fault.code, fault.gpu_id, fault.message, fault.over)
        self.uplink.fault(told)

    def _acknowledged(self, action: Acknowledge) -> Acknowledged:
        return Acknowledged(
            self.settings.node_id,
            action.controller_epoch,
            action.sequence,
            action.decision_id,
            action.results,
            action.complete,
            self.clock.wall(),
        )

    def _arm(self) -> None:
        now = self._now()
        due = self.holder.next_deadline(now)
        if due == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at, self._timer = due, None
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - now), self._due)

    def _due(self) -> None:
        self._timer_at = self._timer = None
        self._carry(self.holder.on_tick(self._now()))

    def _rate(self, sample_hz: float) -> None:
        if sample_hz != self._sample_hz:
            self._sample_hz = sample_hz
            self._sampling.flush()
            self.children.rate(sample_hz)

    def _emit(self, message: object) -> None:
        self.uplink.send(message)

    def _now(self) -> float:
        return self.clock.boot_seconds()
