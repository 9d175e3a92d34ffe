"""One GPU in the holder's hands: quarantine, permission, ailing reads, and who raised its limit."""

from datetime import UTC, datetime, timedelta

import pytest

from gridaware.domain.fleet import LimitRange
from gridaware.domain.lease import Lease
from gridaware.domain.wire import Desired
from gridaware.node.actions import (
    Acknowledge,
    Device,
    Fault,
    Inventory,
    LimitReading,
    WriteLimits,
    Written,
)
from gridaware.node.holder import LeaseHolder

RANGE = LimitRange(100.0, 400.0, 400.0)
WALL = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Node:
    """One GPU whose writes can be made to fail."""

    def __init__(self, found: float = 350.0) -> None:
        self.limit, self.now, self.ticket = found, 100.0, 0
        self.fails: tuple[str, str] | None = None
        self.can_set = True
        self.faults: list[Fault] = []
        self.acknowledged: list[Acknowledge] = []
        self.tries = 0
        self.holder = LeaseHolder("boot")
        self.find()

    def find(self, error: tuple[str, str] | None = None) -> None:
        """A fresh driver child; where it fails to try a write, it says why."""
        watts = None if error else self.limit
        code, kind = error or (None, None)
        device = Device("a", 0, "m", RANGE, self.can_set and not error, watts, watts, code, kind)
        self.ticket = 0
        self.carry(self.holder.on_inventory(Inventory("e", "gpu", (device,)), self.now, WALL))

    def carry(self, actions) -> None:
        for action in actions:
            if isinstance(action, Fault):
                self.faults.append(action)
            elif isinstance(action, Acknowledge):
                self.acknowledged.append(action)
            elif isinstance(action, WriteLimits):
                self.tries += 1
                self.ticket = action.ticket
                if self.fails:
                    done = Written("a", action.ticket, None, *self.fails)
                else:
                    self.limit = action.limits_watts[0][1]
                    done = Written("a", action.ticket, self.limit)
                self.carry(self.holder.on_written([done], self.now))

    def order(self, watts: float = 200.0) -> None:
        lease = Lease("l", (("a", watts),), 1000.0)
        desired = Desired(1, 1, "d", WALL, WALL + timedelta(seconds=1000), lease)
        self.carry(self.holder.on_desired(desired, self.now, WALL))

    def read(self, watts: float | None = None, error=(None, None), can_set=None) -> None:
        value = self.limit if watts is None and error[0] is None else watts
        reading = LimitReading("a", self.ticket, value, value, *error, can_set)
        self.carry(self.holder.on_readings([reading], self.now))

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.holder.next_deadline(self.now)) is not None and due <= end:
            self.now = max(due, self.now)
            self.carry(self.holder.on_tick(self.now))
        self.now = end

    def codes(self) -> list[str]:
        return [fault.code for fault in self.faults]


@pytest.mark.parametrize("code", ["device-reset-required", "device-in-use"])
def test_a_gpu_that_wants_a_reset_is_left_alone_until_a_fresh_child_could_write_to_it(code):
    node = Node()
    node.fails = (code, "DeviceResetRequired")
    node.order()
    assert node.acknowledged[-1].results[0].error == code
    for _ in range(60):
        node.pass_time(1.0)
        node.read()  # reads work all the while
    node.carry(node.holder.on_hung(["a"], node.now))
    assert (node.tries, node.codes()) == (1, [code])
    assert node.holder.blocked, "so that a fresh child is tried"
    node.find(error=(code, "DeviceResetRequired"))
    assert (node.tries, node.codes()) == (1, [code])
    node.fails = None
    node.find()
    assert node.codes() == [code, "gpu-back"]
    assert node.limit == 200.0


@pytest.mark.parametrize("kind", ["DeviceLost", "DeviceHung"])
def test_a_gpu_that_was_silent_is_told_back_by_a_fresh_child_too(kind):
    node = Node()
    node.fails = ("device-bad", kind)
    node.order()
    node.fails = None
    node.find()
    assert node.codes() == ["device-bad", "gpu-back"]
    assert node.limit == 200.0


def test_a_write_without_permission_makes_it_read_only_until_permission_is_back():
    node = Node()
    node.fails = ("device-no-permission", "DeviceNoPermission")
    node.order()
    assert node.holder.settable == frozenset()
    assert node.acknowledged[-1].results[0].error == "device-no-permission"
    node.pass_time(120.0)
    assert node.tries == 1
    node.fails = None
    node.read(can_set=True)
    assert node.holder.settable == {"a"}
    assert node.limit == 200.0
    assert node.codes() == ["device-no-permission", "permission-back"]


def test_a_gpu_found_read_only_is_taken_into_the_lease_once_it_may_be_set():
    node = Node()
    node.can_set = False
    node.find()
    node.order()
    assert (node.tries, node.limit) == (0, 350.0)
    node.read(can_set=False)
    assert node.tries == 0
    node.read(can_set=True)
    assert node.limit == 200.0
    node.pass_time(1001.0)
    assert node.limit == 350.0, "what was found, not the default"


@pytest.mark.parametrize("code", ["device-insufficient-power", "device-inforom", "device-irq"])
def test_a_reading_that_fails_is_told_once_and_so_is_its_end(code):
    node = Node()
    for _ in range(5):
        node.read(error=(code, "DeviceError"))
    assert node.codes() == [code]
    node.read()
    node.read()
    assert node.codes() == [code, "gpu-back"]
    for _ in range(30):  # now and then it fails again: no flood
        node.read(error=(code, "DeviceError"))
        node.read()
        node.now += 1.0
    assert node.codes().count(code) == 1
    node.now += 60.0
    node.read(error=(code, "DeviceError"))
    assert node.codes().count(code) == 2


def test_bug_24_lium_1229_a_raised_limit_is_attributed_set_again_and_reported():
    node = Node()
    node.order()
    node.limit = 400.0  # the card's default
    node.read()
    node.pass_time(60.0)
    node.limit = 300.0  # neither the default nor ours
    node.read()
    node.pass_time(60.0)
    assert node.codes() == ["limit-drift-reset", "limit-drift"]
    assert "persistence" in node.faults[0].message
    assert "program of this host" in node.faults[1].message
    assert node.limit == 200.0


def test_bug_25_club_3090_699_what_is_restored_is_the_limit_that_was_found():
    node = Node(found=250.0)
    node.order()
    node.pass_time(1001.0)
    assert node.limit == 250.0


def test_bug_23_gpu_operator_942_a_node_that_comes_up_anew_takes_the_desired_state():
    """Nothing is remembered there: what is wanted is told whole, and holds again."""
    old, new = Node(), Node(found=400.0)
    old.order()
    new.order()
    assert (old.limit, new.limit) == (200.0, 200.0)
