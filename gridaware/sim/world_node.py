"""One node of the seeded world: the real lease holder on the simulated driver, in virtual time."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from gridaware import __version__
from gridaware.clock import ManualClock
from gridaware.domain.errors import DeviceError, DeviceNotSupported, DriverGone
from gridaware.domain.fleet import ClockRange
from gridaware.domain.wire import (
    PROTOCOL_VERSION,
    Acknowledged,
    Armed,
    ArmedAcknowledged,
    CheckpointRequest,
    Desired,
    Fired,
    Hello,
    NodeFault,
    SampleRate,
    Trigger,
)
from gridaware.node.actions import (
    Acknowledge,
    Action,
    ArmedHeld,
    Device,
    Fault,
    Firing,
    Inventory,
    Journal,
    JournalRecord,
    LimitReading,
    LockClocks,
    Locked,
    WriteLimits,
    Written,
)
from gridaware.node.armed import told_of
from gridaware.node.boards import gpus_of
from gridaware.node.childwire import GpuTick, Tick
from gridaware.node.holder import LeaseHolder
from gridaware.node.sampling import Sampling
from gridaware.sim.driver import SimDriver, SimGpu
from gridaware.sim.window import Window

if TYPE_CHECKING:
    from gridaware.sim.world_jobs import SimRay

__all__ = ["SimNode"]

Later = Callable[[float, Callable[[], None]], None]
LIMITS_SECONDS = 1.0
"""Between two readings of all limits."""
FRESH_SECONDS = 15.0
"""A GPU that does not answer is tried with a fresh driver child this often."""


class SimNode:
    """The agent of one node. Its journal is its only memory across :meth:`kill`."""

    def __init__(
        self,
        node_id: str,
        index: int,
        window: Window,
        clock: ManualClock,
        ray: "SimRay",
        later: Later,
        latency: Callable[[], float],
    ) -> None:
        self.node_id = node_id
        self.index = index
        self.clock = clock
        self.ray = ray
        self.later = later
        self.latency = latency
        self.driver = SimDriver(lambda: window, index, clock, wait=None)
        self.disk: JournalRecord | None = None
        self.life = 0
        """Counts lives: what an earlier one planned is void."""
        self.alive = False
        self.connected = False
        self.connections = 0
        """Counts connections to a controller."""
        self.hz = 1.0
        self.faults: list[Fault] = []
        self.to_control: Callable[[object], None] = lambda *_: None
        self._due: float | None = None
        self._done_ticket = 0
        self._write_at = 0.0
        """When the last write that was asked for is carried out."""
        self._child = False
        """Whether a driver child is at work."""

    # Lives -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Come up, with whatever the journal says."""
        self.life += 1
        self.alive = True
        self.hz = 1.0
        self._done_ticket = 0
        self.holder = LeaseHolder("boot-1", self.disk)
        self.sampling = Sampling(self.node_id, self.clock, self, self._send)
        self._spawn()
        self._every(LIMITS_SECONDS, self._read_limits, self.life)
        self._every(FRESH_SECONDS, self._wish_fresh, self.life)
        self._sample(self.life)

    def kill(self) -> None:
        """``kill -9``: limits stand, everything but the journal is gone."""
        self.alive = self.connected = self._child = False
        self.life += 1
        self._due = None

    def _spawn(self) -> None:
        """A driver child comes up, and tells what it found."""
        self._child = True
        self._done_ticket = 0
        self.driver.open()
        self.inventory = self._inventory()
        self.sampling.found(self.inventory)
        now = self.clock.boot_seconds()
        self._carry(self.holder.on_inventory(self.inventory, now, self.clock.wall()))
        self._send(self.hello())

    def _wish_fresh(self) -> None:
        """A GPU does not answer: try a fresh child."""
        if self._child and self.holder.blocked:
            self._spawn()

    def _driver_gone(self) -> None:
        """The driver went away: the child ends, and another comes up a second later."""
        if not self._child:
            return
        self._child = False
        self._carry(self.holder.on_driver_gone(self.clock.boot_seconds()))
        life = self.life
        self.later(1.0, lambda: self._spawn() if life == self.life else None)

    def _inventory(self) -> Inventory:
        devices = tuple(self._device(gpu) for gpu in self.driver.gpus())
        return Inventory(self.driver.epoch(), self.driver.boundary, devices)

    def _device(self, gpu: SimGpu) -> Device:
        driver, gpu_id = self.driver, gpu.gpu_id
        try:
            return Device(
                gpu_id,
                gpu.index,
                gpu.model,
                driver.limit_range(gpu_id),
                driver.can_set(gpu_id),
                driver.requested_limit_watts(gpu_id),
                driver.enforced_limit_watts(gpu_id),
                clocks=self._clocks(gpu_id),
                board=driver.board_state(gpu_id),
            )
        except DeviceError as error:
            kind = type(error).__name__
            return Device(gpu_id, gpu.index, gpu.model, None, False, None, None, error.code, kind)

    def _clocks(self, gpu_id: str) -> ClockRange | None:
        try:
            return self.driver.clock_range(gpu_id)
        except DeviceNotSupported:
            return None

    # The job desk's part -----------------------------------------------------------------------

    def owners(self) -> dict[str, tuple[str, int]]:
        """GPU → (job, attempt)."""
        found = {}
        for device in self.inventory.devices:
            owner = self.ray.owner_of(device.gpu_id)
            if owner is not None:
                found[device.gpu_id] = owner
        return found

    def managed_pids(self) -> frozenset[int]:
        """Processes of jobs."""
        return frozenset(job.pid for job in self.ray.running.values())

    # The stream --------------------------------------------------------------------------------

    def hello(self) -> Hello:
        """Who it is and what it holds."""
        now = self.clock.boot_seconds()
        return Hello(
            PROTOCOL_VERSION,
            self.node_id,
            __version__,
            self.holder.boot_id,
            self.inventory.driver_epoch,
            gpus_of(self.inventory, self.holder),
            ("limits", "samples", "jobs"),
            self.holder.epoch,
            self.holder.held,
            self.holder.lease_left_seconds(now),
            fired=self._told(self.holder.firing),
        )

    def _told(self, firing: Firing | None) -> Fired | None:
        now = self.clock.boot_seconds()
        return None if firing is None else told_of(firing, self.node_id, now)

    def fire(self, programme_id: str, level: int | None) -> None:
        """The node's own watch fires an armed response; None = lets go of it."""
        if self.alive:
            now, wall = self.clock.boot_seconds(), self.clock.wall()
            if level is None:
                self._carry(self.holder.let_go(programme_id, now))
            else:
                self._carry(self.holder.fire(programme_id, level, now, wall, "frequency", 49.5))

    def welcome(self, epoch: int, silence_seconds: float, hz: float) -> None:
        """A controller accepts it: it says what it holds, and who is here."""
        self.connected = True
        self.connections += 1
        self.hz = hz
        self._send(self.hello())
        now = self.clock.boot_seconds()
        self._carry(self.holder.on_welcome(epoch, silence_seconds, now))
        for message in self.ray.announcements(self.node_id):
            self._send(message)

    def hear(self, message: object) -> None:
        """A frame of the controller."""
        if not self.alive:
            return
        now = self.clock.boot_seconds()
        match message:
            case Desired():
                self._carry(self.holder.on_desired(message, now, self.clock.wall()))
            case Armed():
                self._carry(self.holder.arm(message, now, self.clock.wall()))
            case Trigger():
                self._carry(self.holder.trigger(message, now, self.clock.wall()))
            case SampleRate(sample_hz=hz):
                self.hz = hz
            case CheckpointRequest():
                self.ray.request(self.node_id, message)
            case _:
                self._carry(self.holder.on_heard(now))

    def send(self, message: object) -> None:
        """A message of this node's job desk to the controller."""
        self._send(message)

    def _send(self, message: object) -> None:
        if self.alive and self.connected:
            self.to_control(message)

    # Carrying out ------------------------------------------------------------------------------

    def _carry(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Journal(record=record):
                    self.disk = record
                case WriteLimits():
                    self._write(action, self.life)
                case LockClocks():
                    self.later(0.001, partial(self._lock, action, self.life))
                case Acknowledge():
                    self._send(
                        Acknowledged(
                            self.node_id,
                            action.controller_epoch,
                            action.sequence,
                            action.decision_id,
                            action.results,
                            action.complete,
                            self.clock.wall(),
                        )
                    )
                case ArmedHeld(controller_epoch=epoch, revision=revision):
                    self._send(ArmedAcknowledged(self.node_id, epoch, revision))
                case Firing():
                    self._send(self._told(action))
                case Fault():
                    self.faults.append(action)
                    told = (action.code, action.gpu_id, action.message, action.over)
                    self._send(NodeFault(self.node_id, *told))
                case _:
                    self.connected = False
        self._arm()

    def _write(self, action: WriteLimits, life: int) -> None:
        """Set each limit, and read it back once the silicon has taken it in."""

        def set_all() -> None:
            if life != self.life:
                return  # killed in the middle: nobody knows which limits were written
            if not self._child:
                return  # as above
            errors = {g: self._set(g, watts) for g, watts in action.limits_watts}
            self.later(0.002, lambda: read_back(errors))

        def read_back(errors: dict[str, DeviceError | None]) -> None:
            if life != self.life or not self._child:
                return
            self._done_ticket = action.ticket
            results = tuple(self._read_back(g, action.ticket, e) for g, e in errors.items())
            self._carry(self.holder.on_written(results, self.clock.boot_seconds()))

        # One worker writes what a GPU is told, in the order in which it was told.
        now = self.clock.boot_seconds()
        self._write_at = max(now + self.latency() / 4 + 0.001, self._write_at + 0.003)
        self.later(self._write_at - now, set_all)

    def _lock(self, action: LockClocks, life: int) -> None:
        if life != self.life or not self._child:
            return
        results = []
        for gpu_id, most_mhz in action.clocks_mhz:
            code = kind = None
            try:
                if most_mhz is None:
                    self.driver.unlock_clocks(gpu_id)
                else:
                    self.driver.lock_clocks(gpu_id, most_mhz)
            except DeviceError as error:
                code, kind = error.code, type(error).__name__
            results.append(Locked(gpu_id, action.ticket, most_mhz, code, kind))
        self._carry(self.holder.on_locked(results, self.clock.boot_seconds()))

    def _set(self, gpu_id: str, watts: float) -> DeviceError | None:
        try:
            self.driver.set_limit_watts(gpu_id, watts)
        except DriverGone as gone:
            self._driver_gone()
            return gone
        except DeviceError as error:
            return error
        return None

    def _read_back(self, gpu_id: str, ticket: int, error: DeviceError | None) -> Written:
        try:
            if error is not None:
                raise error
            enforced = self.driver.enforced_limit_watts(gpu_id)
            return Written(gpu_id, ticket, enforced, read_at=self.clock.boot_seconds())
        except DeviceError as failure:
            return Written(gpu_id, ticket, None, failure.code, type(failure).__name__)

    def _read_limits(self) -> None:
        readings: list[LimitReading] = []
        for device in self.inventory.devices:
            ticket = self._done_ticket
            try:
                readings.append(
                    LimitReading(
                        device.gpu_id,
                        ticket,
                        self.driver.requested_limit_watts(device.gpu_id),
                        self.driver.enforced_limit_watts(device.gpu_id),
                        clock_mhz=self.driver.clock_mhz(device.gpu_id),
                    )
                )
            except DriverGone:
                self._driver_gone()
                return
            except DeviceError as error:
                readings.append(
                    LimitReading(
                        device.gpu_id, ticket, None, None, error.code, type(error).__name__
                    )
                )
        self._carry(self.holder.on_readings(readings, self.clock.boot_seconds()))

    def _sample(self, life: int) -> None:
        if life != self.life:
            return
        ticks = tuple(self._gpu_tick(device.gpu_id) for device in self.inventory.devices)
        self.sampling.take(Tick(self.clock.boot_seconds(), ticks), sample_hz=self.hz)
        self.later(1.0 / self.hz, lambda: self._sample(life))

    def _gpu_tick(self, gpu_id: str) -> GpuTick:
        try:
            power = self.driver.power_watts(gpu_id).watts
            energy = self.driver.energy_joules(gpu_id).joules
            limits = LimitReading(
                gpu_id,
                self._done_ticket,
                self.driver.requested_limit_watts(gpu_id),
                self.driver.enforced_limit_watts(gpu_id),
            )
            binds = self.driver.cap_binds(gpu_id)
            pids = self.driver.processes(gpu_id)
        except DeviceError:
            return GpuTick(gpu_id, False, None, None, None, None, None, 0.0)
        return GpuTick(gpu_id, True, power, energy, limits, pids, binds, 0.0)

    def _every(self, seconds: float, work: Callable[[], None], life: int) -> None:
        def again() -> None:
            if life == self.life:
                work()
                self.later(seconds, again)

        self.later(seconds, again)

    def _arm(self) -> None:
        due = self.holder.next_deadline(self.clock.boot_seconds())
        if due is None or due == self._due:
            return
        self._due, life = due, self.life

        def tick() -> None:
            if life == self.life:
                self._due = None
                self._carry(self.holder.on_tick(self.clock.boot_seconds()))

        self.later(max(due - self.clock.boot_seconds(), 0.0) + 1e-6, tick)
