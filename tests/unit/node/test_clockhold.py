"""Clock locks beside limits: journalled before they are set, given back like them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.domain.fleet import ClockRange, LimitRange
from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.domain.programme import SignalLoss
from gridaware.domain.wire import Desired, LockHeld
from gridaware.node.actions import (
    Acknowledge,
    Device,
    Fault,
    Inventory,
    Journal,
    LimitReading,
    LockClocks,
    Locked,
    WriteLimits,
    Written,
)
from gridaware.node.holder import LeaseHolder

WALL = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS, CLOCKS = LimitRange(100.0, 400.0, 400.0), ClockRange(210.0, 1410.0)


class Node:
    """Two GPUs: ``a`` has clock locks, ``b`` has none."""

    def __init__(self) -> None:
        self.locks: dict[str, float | None] = {"a": None, "b": None}
        self.limits = {"a": 400.0, "b": 400.0}
        self.now, self.boot, self.epoch = 100.0, "boot-1", "driver-1"
        self.can_set = True
        self.record = None
        self.faults: list[str] = []
        self.order: list[str] = []
        self.refuse: tuple[str, str] | None = None
        self.slow = False
        """Locks are not answered before :meth:`answer`."""
        self.unanswered: list[Locked] = []
        self.told: list[tuple[bool, LockHeld | None]] = []
        """Of each acknowledgement: whether it was complete, and the lock of ``a``."""
        self.sequence = 0
        self.start()

    def start(self) -> None:
        self.holder = LeaseHolder(self.boot, self.record)
        self.find()

    def find(self) -> None:
        devices = tuple(
            Device(
                gpu_id,
                index,
                "m",
                LIMITS,
                self.can_set,
                watts,
                watts,
                clocks=CLOCKS if gpu_id == "a" else None,
            )
            for index, (gpu_id, watts) in enumerate(self.limits.items())
        )
        inventory = Inventory(self.epoch, "gpu", devices)
        self.carry(self.holder.on_inventory(inventory, self.now, WALL))

    def carry(self, actions) -> None:
        for action in actions:
            self.order.append(type(action).__name__)
            if isinstance(action, Journal):
                self.record = action.record
            elif isinstance(action, WriteLimits):
                self.limits |= dict(action.limits_watts)
                done = [Written(g, action.ticket, w) for g, w in action.limits_watts]
                self.carry(self.holder.on_written(done, self.now))
            elif isinstance(action, LockClocks):
                code, kind = self.refuse or (None, None)
                if self.refuse is None:
                    self.locks |= dict(action.clocks_mhz)
                done = [Locked(g, action.ticket, m, code, kind) for g, m in action.clocks_mhz]
                self.unanswered += done
                if not self.slow:
                    self.answer()
            elif isinstance(action, Acknowledge):
                locks = [r.lock for r in action.results if r.gpu_id == "a"]
                self.told.append((action.complete, locks[0] if locks else None))
            elif isinstance(action, Fault):
                self.faults.append(f"{action.code} over" if action.over else action.code)

    def answer(self) -> None:
        """The driver has set the locks, or refused them."""
        done, self.unanswered = self.unanswered, []
        self.carry(self.holder.on_locked(done, self.now))

    def read(self, seconds: float, mhz: float) -> None:
        """So much later the clock of ``a`` is read."""
        self.until(self.now - 100.0 + seconds)
        watts = self.limits["a"]
        reading = LimitReading("a", self.holder._ticket, watts, watts, clock_mhz=mhz)
        self.carry(self.holder.on_readings([reading], self.now))

    def lease(self, clocks, seconds=60.0, limits=(), **more) -> None:
        self.sequence += 1
        expires = None if seconds is None else WALL + timedelta(seconds=seconds)
        lease = Lease(f"l{self.sequence}", tuple(limits), seconds, clocks_mhz=tuple(clocks), **more)
        desired = Desired(1, self.sequence, f"d{self.sequence}", WALL, expires, lease)
        self.carry(self.holder.on_desired(desired, self.now, WALL))

    def until(self, seconds: float) -> None:
        end = 100.0 + seconds
        while (due := self.holder.next_deadline(self.now)) is not None and due <= end:
            self.now = max(due, self.now)
            self.carry(self.holder.on_tick(self.now))
        self.now = end
        self.carry(self.holder.on_tick(self.now))


def test_a_lock_is_in_the_journal_before_it_is_set_and_after_the_limit():
    node = Node()
    node.order.clear()
    node.lease([("a", 900.0)], limits=[("a", 200.0)])
    steps = [step for step in node.order if step in {"Journal", "WriteLimits", "LockClocks"}]
    assert steps[:3] == ["Journal", "WriteLimits", "LockClocks"]
    assert node.record.clocks_mhz == (("a", 900.0),)
    assert (node.limits["a"], node.locks["a"]) == (200.0, 900.0)


def test_a_lock_without_a_limit_is_held_for_the_lease_and_then_undone():
    node = Node()
    node.lease([("a", 900.0)])
    assert node.locks["a"] == 900.0
    assert node.holder.holding
    node.until(59.9)
    assert node.locks["a"] == 900.0
    node.until(60.0)
    assert node.locks["a"] is None
    assert not node.holder.holding
    assert node.record.clocks_mhz == ()


def test_on_the_way_back_the_clock_rises_with_the_slot():
    node = Node()
    node.lease([("a", 810.0)], slot=RestoreSlot(10.0, 4.0))
    for seconds, mhz in ((65.0, 810.0), (71.0, 960.0), (72.0, 1110.0), (73.0, 1260.0)):
        node.until(seconds)
        assert node.locks["a"] == mhz  # a straight line from 810 to 1410 MHz over 4 s
    node.until(74.0)
    assert node.locks["a"] is None


def test_a_lease_that_names_it_no_longer_unlocks_it_at_once():
    node = Node()
    node.lease([("a", 900.0)], limits=[("a", 200.0)])
    node.lease([], limits=[("a", 200.0)])
    assert (node.limits["a"], node.locks["a"]) == (200.0, None)


@pytest.mark.parametrize(("asked", "set_"), [(100.0, 210.0), (5000.0, 1410.0), (700.0, 700.0)])
def test_a_lock_is_moved_into_what_the_gpu_accepts(asked, set_):
    node = Node()
    node.lease([("a", asked)])
    assert node.locks["a"] == set_


def test_a_gpu_without_clock_locks_is_left_alone():
    node = Node()
    node.lease([("b", 900.0)], limits=[("b", 200.0)])
    assert node.locks["b"] is None
    assert node.limits["b"] == 200.0


@pytest.mark.parametrize("mhz", [0.0, -5.0, float("nan"), float("inf")])
def test_a_lock_that_makes_no_sense_is_refused_with_the_whole_wish(mhz):
    node = Node()
    node.lease([("a", mhz)], limits=[("a", 200.0)])
    assert node.faults == ["desired-refused"]
    assert node.limits["a"] == 400.0


def test_killed_and_restarted_it_undoes_the_lock_at_the_end():
    node = Node()
    node.lease([("a", 900.0)])
    node.start()
    assert node.locks["a"] == 900.0
    node.until(61.0)
    assert node.locks["a"] is None
    assert node.record.clocks_mhz == ()


def test_a_driver_that_was_loaded_anew_gets_the_lock_again_while_the_lease_lasts():
    node = Node()
    node.lease([("a", 900.0)])
    node.locks["a"], node.epoch = None, "driver-2"
    node.find()
    assert node.locks["a"] == 900.0


@pytest.mark.parametrize(("boot", "epoch"), [("boot-2", "driver-2"), ("boot-1", "driver-2")])
def test_a_lock_that_a_reboot_or_reload_has_taken_is_not_undone_twice(boot, epoch):
    """What stands now is the site's own, from its start-up script perhaps."""
    node = Node()
    node.lease([("a", 900.0)], 60.0)
    node.now += 100.0
    node.boot, node.epoch = boot, epoch
    node.record = type(node.record)(
        **{f: getattr(node.record, f) for f in node.record.__slots__ if f != "lease"}, lease=None
    )
    node.locks["a"] = 1200.0
    node.start()
    assert node.locks["a"] == 1200.0


@pytest.mark.parametrize("kind", ["DeviceNotSupported", "DeviceOutOfRange"])
def test_a_refusal_for_good_is_told_once_and_not_tried_again(kind):
    node = Node()
    node.refuse = ("device-says-no", kind)
    node.lease([("a", 900.0)])
    node.order.clear()
    node.until(50.0)
    assert node.faults == ["clock-lock-not-set"]
    assert "LockClocks" not in node.order


@pytest.mark.parametrize("kind", ["DeviceError", "DeviceNoPermission"])
def test_a_lock_that_fails_is_tried_again_ever_more_rarely(kind):
    node = Node()
    node.refuse = ("device-bad", kind)
    node.lease([("a", 900.0)], 600.0)
    node.order.clear()
    node.until(60.0)
    assert node.order.count("LockClocks") == 5  # after 1, 2, 4, 8 and 16 s; next after 30
    assert node.faults == ["clock-lock-not-set"]
    node.refuse = None
    node.until(120.0)
    assert node.locks["a"] == 900.0


def test_without_permission_nothing_is_locked():
    node = Node()
    node.can_set = False
    node.find()
    node.lease([("a", 900.0)])
    assert node.locks["a"] is None


def test_the_fall_back_of_a_silent_controller_is_a_limit_and_no_lock():
    node = Node()
    node.lease([("a", 900.0)], None, limits=[("a", 200.0)], signal_loss=SignalLoss(10.0, 0.5))
    node.until(5.0)
    assert node.locks["a"] == 900.0
    node.until(30.0)
    assert node.holder.phase(node.now) == "fallback"
    assert (node.limits["a"], node.locks["a"]) == (200.0, None)


def test_a_hung_gpu_is_unlocked_once_it_answers_again():
    node = Node()
    node.lease([("a", 900.0)])
    node.carry(node.holder.on_hung(["a"], node.now))
    node.until(100.0)
    assert node.locks["a"] == 900.0, "nothing is written to a GPU that hangs"
    node.find()
    assert node.locks["a"] is None


def test_a_lock_is_acknowledged_once_the_driver_took_it_and_again_once_the_clock_shows_it():
    node = Node()
    node.slow = True
    node.lease([("a", 905.0)], limits=[("a", 200.0), ("b", 200.0)])
    assert node.told == [(False, None)], "in part: b alone"
    node.answer()
    assert node.told[1:] == [(True, LockHeld(905.0, "set"))]
    node.read(0.5, 1410.0)  # it has not settled
    assert node.told[2:] == []
    node.read(0.6, 900.0)
    assert node.told[2:] == [(True, LockHeld(905.0, "kept", 900.0))]
    node.read(1.0, 885.0)  # nothing new
    assert len(node.told) == 3


def test_a_lock_beside_limits_that_stand_already_is_not_acknowledged_before_it_is_set():
    node = Node()
    node.lease([], limits=[("a", 200.0)])
    node.slow = True
    node.lease([("a", 900.0)], limits=[("a", 200.0)])
    assert node.told == [(True, None)], "of the lease before"
    node.answer()
    assert node.told[1:] == [(True, LockHeld(900.0, "set"))]


def test_another_lock_is_never_acknowledged_by_the_state_of_the_one_before():
    node = Node()
    node.lease([("a", 900.0)], limits=[("a", 200.0)])
    node.read(1.5, 900.0)
    node.slow = True
    node.lease([("a", 600.0)], limits=[("a", 200.0)])
    assert node.told[-1] == (True, LockHeld(900.0, "kept", 900.0))
    node.answer()
    assert node.told[-1] == (True, LockHeld(600.0, "set"))


def test_a_clock_above_its_lock_is_told_and_locked_again_ever_more_rarely():
    node = Node()
    node.lease([("a", 900.0)], limits=[("a", 200.0)])
    node.locks["a"] = None  # nvidia-smi -rgc
    node.read(1.2, 1410.0)
    assert node.faults == ["clock-lock-lost"]
    assert node.told[-1] == (True, LockHeld(900.0, "exceeded", 1410.0))
    assert node.locks["a"] == 900.0
    node.locks["a"] = None
    node.read(1.2, 1410.0)
    assert node.faults == ["clock-lock-lost"], "told once"
    assert node.locks["a"] is None, "a second's patience with whoever does it"
    node.until(node.now - 100.0 + 1.0)
    assert node.locks["a"] == 900.0
    node.read(1.2, 900.0)
    assert node.faults == ["clock-lock-lost", "clock-lock-lost over"]
    assert node.told[-1] == (True, LockHeld(900.0, "kept", 900.0))


def test_a_lock_that_cannot_be_set_is_acknowledged_with_the_reason():
    node = Node()
    node.refuse = ("device-no-permission", "DeviceNoPermission")
    node.lease([("a", 900.0)], limits=[("a", 200.0)])
    assert node.told[-1] == (True, LockHeld(900.0, "device-no-permission"))
    node.refuse = None
    node.until(2.0)
    assert node.told[-1] == (True, LockHeld(900.0, "set"))
    assert node.faults == ["clock-lock-not-set", "clock-lock-not-set over"]


def test_a_gpu_without_clock_locks_says_so_and_its_limit_is_acknowledged():
    node = Node()
    told = []
    carry = node.carry
    node.carry = lambda actions: carry([told.append(a) or a for a in actions])
    node.lease([("b", 900.0)], limits=[("b", 200.0)])
    (done,) = [a for a in told if isinstance(a, Acknowledge)][-1].results
    assert (done.enforced_watts, done.error) == (200.0, None)
    assert done.lock == LockHeld(900.0, "device-not-supported")


def test_a_gpu_whose_limit_fails_is_acknowledged_without_waiting_for_its_lock():
    node = Node()
    node.slow = True
    node.lease([("a", 900.0)], limits=[("a", 200.0)])
    node.carry(node.holder.on_hung(["a"], node.now))
    assert node.told == [(True, LockHeld(900.0, "device-hung"))]


def reload(node: Node) -> None:
    node.locks["a"], node.epoch = None, node.epoch + "+"
    node.find()


def lose_driver(node: Node) -> None:
    node.carry(node.holder.on_driver_gone(node.now))
    node.find()


MISHAPS = {
    "the agent is killed": Node.start,
    "a fresh child takes over": Node.find,
    "the driver is reloaded": reload,
    "the driver goes and comes": lose_driver,
    "a call hangs": lambda node: node.carry(node.holder.on_hung(["a"], node.now)),
    "the journal's disk refuses": lambda node: node.carry(node.holder.on_journal_failed(node.now)),
    "locks fail": lambda node: setattr(node, "refuse", ("device-error", "DeviceError")),
    "locks work": lambda node: setattr(node, "refuse", None),
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lock"), st.floats(210.0, 1410.0)),
        st.tuples(st.just("cap"), st.floats(100.0, 400.0)),
        st.tuples(st.just("pass"), st.floats(0.1, 40.0)),
        st.tuples(st.sampled_from(sorted(MISHAPS)), st.just(0.0)),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_whatever_happens_no_lock_is_set_unrecorded_and_none_outlives_its_lease(steps):
    node = Node()
    for step, number in steps:
        if step == "lock":
            node.lease([("a", number)], 30.0)
        elif step == "cap":
            node.lease([], 30.0, limits=[("a", number)])
        elif step == "pass":
            node.until(node.now - 100.0 + number)
        else:
            MISHAPS[step](node)
        held = dict(node.record.clocks_mhz) if node.record else {}
        assert node.locks["a"] is None or "a" in held
    node.refuse = None
    node.find()  # whatever hung answers again
    node.until(node.now)  # a hundred seconds more
    assert node.locks["a"] is None
    assert not node.record or node.record.clocks_mhz == ()
    assert not node.holder.holding
