"""Whatever happens in whatever order: limits stay legal, never above the found ones, and return.

The world below is the hardware and the operating system: it executes writes late, in part or never,
kills the agent between any two of its actions, reboots, reloads drivers and loses GPUs.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gridaware.domain.fleet import LimitRange
from gridaware.domain.lease import ArmedResponse, Lease, RestoreSlot, ScheduledResponse
from gridaware.domain.programme import SignalLoss
from gridaware.domain.wire import Armed, Desired, Trigger
from gridaware.node.actions import (
    Acknowledge,
    Device,
    Inventory,
    Journal,
    JournalRecord,
    LimitReading,
    WriteLimits,
    Written,
)
from gridaware.node.holder import LeaseHolder

RANGE = LimitRange(100.0, 400.0, 400.0)
GPUS = ("g0", "g1", "g2")
START = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class Board:
    """One GPU's registers, and what stood before we came."""

    requested: float
    origin: float
    lost: bool = False
    ticket: int = 0
    queue: list[tuple[int, float]] = field(default_factory=list)


class NodeLife(RuleBasedStateMachine):
    """An agent's life with everything that may happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.boards = {g: Board(400.0, 400.0) for g in GPUS}
        self.holder: LeaseHolder | None = None
        self.record: JournalRecord | None = None
        self.boot, self.reload, self.wall, self.now = 0, 0, START, 50.0
        self.sequence = 0
        self.sent: list[Desired] = []
        self.standing: dict[str, float] = {}
        self.crash_in: int | None = None
        self.revision = 0

    @initialize(found=st.tuples(*[st.sampled_from([400.0, 350.0, 300.0])] * 3))
    def begin(self, found: tuple[float, ...]) -> None:
        for board, watts in zip(self.boards.values(), found, strict=True):
            board.requested = board.origin = watts
        self.start_agent()

    # The world ------------------------------------------------------------------------------

    def start_agent(self) -> None:
        self.holder = LeaseHolder(f"boot{self.boot}", self.record)
        self.look()

    def look(self) -> None:
        """A driver child is up."""
        for board in self.boards.values():
            board.ticket, board.queue = 0, []
        devices = tuple(
            Device(g, i, "m", RANGE, True, None, None, "device-lost", "DeviceLost")
            if b.lost
            else Device(g, i, "m", RANGE, True, b.requested, b.requested)
            for i, (g, b) in enumerate(self.boards.items())
        )
        found = Inventory(f"e{self.boot}.{self.reload}", "gpu", devices)
        self.carry(self.holder.on_inventory(found, self.now, self.wall))

    def carry(self, actions) -> None:
        """Do what the holder says; the agent may be killed between any two actions."""
        for action in actions:
            if self.crash_in is not None:
                self.crash_in -= 1
                if self.crash_in < 0:
                    self.die()
                    return
            if isinstance(action, Journal):
                kept = (*self.record.gpus, *self.record.ahead) if self.record else ()
                known = {g.gpu_id for g in kept}
                new = {g.gpu_id for g in action.record.gpus} - known
                assert action.durable or not new, "found limits must be safe first"
                self.record = action.record
                if action.record.sequence > 0:
                    self.standing = dict(self.sent[action.record.sequence - 1].lease.standing_watts)
            elif isinstance(action, WriteLimits):
                for gpu_id, watts in action.limits_watts:
                    kept = [g for g in self.record.gpus if g.gpu_id == gpu_id]
                    assert kept, "journalled before the first write"
                    self.boards[gpu_id].queue.append((action.ticket, watts))

    def die(self) -> None:
        """kill -9: what was queued in the driver child may or may not still happen."""
        self.holder, self.crash_in = None, None
        for board in self.boards.values():
            board.queue = []

    def execute(self, gpu_id: str) -> Written | None:
        """The driver works off one GPU's queue."""
        board = self.boards[gpu_id]
        if not board.queue:
            return None
        ticket, watts = board.queue[-1]
        board.queue = []
        if board.lost:
            return Written(gpu_id, ticket, None, "device-lost", "DeviceLost")
        assert RANGE.least_watts <= watts <= RANGE.greatest_watts
        assert watts <= board.origin + 1e-6, "never above what was found"
        board.requested, board.ticket = watts, ticket
        return Written(gpu_id, ticket, watts)

    def work_off(self) -> None:
        results = [r for r in map(self.execute, GPUS) if r is not None]
        if results and self.holder is not None:
            self.carry(self.holder.on_written(results, self.now))

    def read(self) -> None:
        readings = [
            LimitReading(g, b.ticket, None, None, "device-lost", "DeviceLost")
            if b.lost
            else LimitReading(g, b.ticket, b.requested, b.requested)
            for g, b in self.boards.items()
        ]
        if self.holder is not None:
            self.carry(self.holder.on_readings(readings, self.now))

    def pass_time(self, seconds: float, *, working: bool) -> None:
        """Time passes, with a tick at every deadline."""
        until = self.now + seconds
        while self.now < until:
            due = self.holder.next_deadline(self.now) if self.holder is not None else None
            step = until if due is None else min(until, max(due, self.now))
            self.wall += timedelta(seconds=step - self.now)
            self.now = step
            if self.holder is not None:
                self.carry(self.holder.on_tick(self.now))
            if working:
                self.work_off()

    # What may happen ------------------------------------------------------------------------

    @precondition(lambda self: self.holder is not None)
    @rule(
        limits=st.dictionaries(
            st.sampled_from((*GPUS, "g9")), st.sampled_from([50.0, 150.0, 217.0, 380.0, 900.0])
        ),
        standing=st.dictionaries(st.sampled_from(GPUS), st.sampled_from([180.0, 333.0])),
        seconds=st.sampled_from([None, 3.0, 20.0, 200.0]),
        delay=st.sampled_from([0.0, 4.0]),
        ramp=st.sampled_from([0.0, 0.7, 10.0]),
        loss=st.sampled_from([SignalLoss(), SignalLoss(30.0), SignalLoss(10.0, 0.5)]),
        killed_after=st.sampled_from([None, None, 0, 1]),
        finished=st.booleans(),
    )
    def order(self, limits, standing, seconds, delay, ramp, loss, killed_after, finished) -> None:
        self.sequence += 1
        lease = Lease(
            f"l{self.sequence}",
            tuple(limits.items()),
            seconds,
            RestoreSlot(delay, ramp),
            loss,
            tuple(standing.items()),
        )
        # The controller's wall clock is wrong by hours: only the difference may count.
        sent = self.wall + timedelta(hours=7)
        expires = None if seconds is None else sent + timedelta(seconds=seconds)
        desired = Desired(1, self.sequence, f"d{self.sequence}", sent, expires, lease)
        self.sent.append(desired)
        self.crash_in = killed_after
        self.carry(self.holder.on_desired(desired, self.now, self.wall))
        self.crash_in = None
        if finished:
            self.work_off()

    @precondition(lambda self: self.holder is not None)
    @rule(
        levels=st.lists(
            st.dictionaries(st.sampled_from((*GPUS, "g9")), st.sampled_from([50.0, 217.0, 390.0])),
            max_size=2,
        ),
        seconds=st.sampled_from([None, 3.0, 200.0]),
        starts_in=st.sampled_from([None, 2.0, 30.0]),
        expires=st.sampled_from([5.0, 900.0]),
        ramp=st.sampled_from([0.0, 10.0]),
    )
    def armed(self, levels, seconds, starts_in, expires, ramp) -> None:
        self.revision += 1
        loss = SignalLoss(10.0, 0.5)
        leases = [
            Lease("armed", tuple(limits.items()), seconds, RestoreSlot(1.0, ramp), loss)
            for limits in levels
        ]
        responses = tuple(ArmedResponse("p", n, 0.1, lease) for n, lease in enumerate(leases))
        scheduled = (
            ()
            if starts_in is None
            else tuple(
                ScheduledResponse(starts_in, replace(lease, event_ids=(f"f.{n}",)))
                for n, lease in enumerate(leases)
            )
        )
        until = START + timedelta(seconds=expires)
        arms = Armed(1, self.revision, START, until, responses, scheduled)
        self.carry(self.holder.arm(arms, self.now, self.wall))

    @precondition(lambda self: self.holder is not None and self.revision)
    @rule(
        level=st.integers(0, 1),
        seconds=st.sampled_from([None, 3.0, 20.0]),
        killed_after=st.sampled_from([None, None, 0, 1]),
        finished=st.booleans(),
    )
    def triggered(self, level, seconds, killed_after, finished) -> None:
        self.sequence += 1
        name = f"d{self.sequence}"
        shot = Trigger(1, self.sequence, name, self.revision, "p", level, "f.e", seconds)
        # What stands all the time is none of a trigger's business.
        lease = Lease(name, standing_watts=tuple(self.holder._standing.items()))
        self.sent.append(Desired(1, self.sequence, name, self.wall, self.wall, lease))
        self.crash_in = killed_after
        self.carry(self.holder.trigger(shot, self.now, self.wall))
        self.crash_in = None
        if finished:
            self.work_off()

    @precondition(lambda self: self.holder is not None and self.revision)
    @rule(level=st.integers(0, 1), killed_after=st.sampled_from([None, 0, 1]))
    def fired(self, level, killed_after) -> None:
        """By itself: nothing that is held is raised by it."""
        before = {g: self.holder.target_watts(g, self.now) for g in GPUS}
        self.crash_in = killed_after
        self.carry(self.holder.fire("p", level, self.now, self.wall, "frequency", 49.6))
        self.crash_in = None
        for gpu_id, watts in before.items():
            if watts is not None and self.holder is not None:
                after = self.holder.target_watts(gpu_id, self.now)
                assert after is None or after <= watts + 1e-6

    @precondition(lambda self: self.holder is not None)
    @rule()
    def let_go(self) -> None:
        self.carry(self.holder.let_go("p", self.now))

    @precondition(lambda self: self.holder is not None and self.sent)
    @rule(data=st.data())
    def repeat(self, data) -> None:
        """A frame comes twice, or late: nothing changes but a second acknowledgement."""
        desired = data.draw(st.sampled_from(self.sent))
        before = (self.holder.lease, self.holder.lease_left_seconds(self.now))
        repeated = desired.sequence == self.holder.sequence
        if desired.sequence > self.holder.sequence:
            return  # was sent to an agent that died before it journalled it
        actions = self.holder.on_desired(desired, self.now, self.wall)
        assert (self.holder.lease, self.holder.lease_left_seconds(self.now)) == before or not (
            before[1]
        )
        assert repeated or actions == []
        self.carry(actions)

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 5.0, 40.0]), working=st.booleans())
    def wait(self, seconds: float, *, working: bool) -> None:
        self.pass_time(seconds, working=working)

    @rule()
    def drivers_finish(self) -> None:
        self.work_off()

    @rule(gpu_id=st.sampled_from(GPUS))
    def one_driver_finishes(self, gpu_id: str) -> None:
        result = self.execute(gpu_id)
        if result is not None and self.holder is not None:
            self.carry(self.holder.on_written([result], self.now))

    @rule()
    def limits_are_read(self) -> None:
        self.read()

    @precondition(lambda self: self.holder is not None)
    @rule()
    def killed_with_writes_done(self) -> None:
        for gpu_id in GPUS:
            self.execute(gpu_id)
        self.die()

    @precondition(lambda self: self.holder is None)
    @rule()
    def restarted(self) -> None:
        self.start_agent()

    @rule(seconds=st.sampled_from([2.0, 300.0]))
    def rebooted(self, seconds: float) -> None:
        """Hardware resets every limit and the boot clock begins again."""
        self.die()
        self.boot += 1
        self.wall += timedelta(seconds=seconds)
        self.now = 5.0
        for board in self.boards.values():
            board.requested = board.origin = RANGE.default_watts
            board.lost = False
        self.start_agent()

    @precondition(lambda self: self.holder is not None)
    @rule()
    def driver_reloaded(self) -> None:
        """Limits are reset, also those that stood before us; the child is replaced."""
        ours = {g.gpu_id for g in self.record.gpus} if self.record else set()
        self.carry(self.holder.on_driver_gone(self.now))
        if self.holder is None:
            return
        self.reload += 1
        for gpu_id, board in self.boards.items():
            board.requested = RANGE.default_watts
            if gpu_id not in ours:
                board.origin = RANGE.default_watts
        self.look()

    @rule(gpu_id=st.sampled_from(GPUS), lost=st.booleans())
    def bus(self, gpu_id: str, *, lost: bool) -> None:
        self.boards[gpu_id].lost = lost

    @precondition(lambda self: self.holder is not None)
    @rule()
    def released(self) -> None:
        self.carry(self.holder.release(self.now, force=True))

    @precondition(lambda self: self.holder is not None)
    @rule()
    def raised_by_a_script(self) -> None:
        """Someone sets a GPU that we hold to its default: it is corrected."""
        for gpu_id, board in self.boards.items():
            held = self.holder.target_watts(gpu_id, self.now)
            if held is not None and not board.queue and not board.lost:
                board.requested = RANGE.default_watts
                self.read()
                return

    # What must hold -------------------------------------------------------------------------

    @invariant()
    def found_limits_are_remembered(self) -> None:
        if self.holder is None:
            return
        for gpu_id, board in self.boards.items():
            if self.holder.target_watts(gpu_id, self.now) is not None:
                assert self.holder.found_watts(gpu_id) <= board.origin + 1e-6

    @invariant()
    def what_should_stand_is_legal(self) -> None:
        if self.holder is None:
            return
        for gpu_id, board in self.boards.items():
            target = self.holder.target_watts(gpu_id, self.now)
            if target is not None:
                assert RANGE.least_watts <= target <= board.origin + 1e-6

    def teardown(self) -> None:
        """Everything heals, nobody speaks any more: the found limits return by themselves."""
        if self.holder is None:
            if self.boards["g0"].requested == 0:
                return
            self.start_agent()
        self.crash_in = None
        for board in self.boards.values():
            board.lost = False
        if self.holder.blocked:  # the agent then has a fresh driver child look again
            self.look()
        for _ in range(3):
            self.read()
            self.pass_time(40.0, working=True)
        self.carry(self.holder.release(self.now, force=True))
        for _ in range(90):
            self.read()
            self.pass_time(1.0, working=True)
            self.work_off()
        assert self.holder.lease is None
        for gpu_id, board in self.boards.items():
            expected = min(board.origin, self.standing.get(gpu_id, board.origin))
            assert abs(board.requested - expected) < 0.8, (gpu_id, board, self.standing)


NodeLife.TestCase.settings = settings(max_examples=200, stateful_step_count=25, deadline=None)
TestNodeLife = NodeLife.TestCase


def test_acknowledgements_tell_everything_once_it_is_known():
    holder = LeaseHolder("boot")
    devices = tuple(Device(g, 0, "m", RANGE, True, 400.0, 400.0) for g in GPUS)
    holder.on_inventory(Inventory("e", "gpu", devices), 1.0, START)
    limits = tuple((g, 200.0) for g in GPUS)
    desired = Desired(1, 1, "d", START, START + timedelta(seconds=60), Lease("l", limits, 60.0))
    ticket = next(
        a.ticket for a in holder.on_desired(desired, 2.0, START) if isinstance(a, WriteLimits)
    )

    def answers(*gpu_ids: str) -> list[Acknowledge]:
        actions = holder.on_written([Written(g, ticket, 200.0) for g in gpu_ids], 3.0)
        return [a for a in actions if isinstance(a, Acknowledge)]

    (partial,) = answers("g1")
    assert (partial.complete, [r.gpu_id for r in partial.results]) == (False, ["g1"])
    (complete,) = answers("g0", "g2")
    assert (complete.complete, [r.gpu_id for r in complete.results]) == (True, list(GPUS))
    assert answers("g0") == [], "nothing new, nothing said"
