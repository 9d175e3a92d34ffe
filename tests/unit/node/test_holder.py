"""The lease holder, rule by rule (DESIGN §5; notes/power.md §6, cases 23 to 27)."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from gridaware.domain.errors import Refused
from gridaware.domain.fleet import LimitRange
from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.domain.programme import SignalLoss
from gridaware.domain.wire import Desired
from gridaware.node.actions import (
    Acknowledge,
    Device,
    Fault,
    Fence,
    Inventory,
    Journal,
    JournalRecord,
    LimitReading,
    WriteLimits,
    Written,
)
from gridaware.node.holder import LeaseHolder

RANGE = LimitRange(100.0, 400.0, 400.0)
WALL = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Node:
    """A holder, its hardware and its disk; writes are carried out at once unless told otherwise."""

    def __init__(self, **standing: float) -> None:
        self.limits = standing or {"a": 400.0, "b": 400.0}
        self.ticket = dict.fromkeys(self.limits, 0)
        self.range = RANGE
        self.can_set = True
        self.now, self.wall, self.boot, self.epoch = 100.0, WALL, "boot-1", "driver-1"
        self.record: JournalRecord | None = None
        self.faults: list[str] = []
        self.acknowledged: list[Acknowledge] = []
        self.fenced: list[Fence] = []
        self.written: list[tuple[str, float]] = []
        self.errors: dict[str, tuple[str, str]] = {}
        self.sequence = 0
        self.start()

    def start(self, *, distrust: bool = False) -> None:
        """A new agent process on what is on the disk and in the hardware."""
        self.holder = LeaseHolder(self.boot, self.record, distrust=distrust)
        self.find()

    def find(self) -> None:
        """A new driver child."""
        self.ticket = dict.fromkeys(self.limits, 0)
        devices = tuple(
            Device(g, i, "m", self.range, self.can_set, w, w)
            for i, (g, w) in enumerate(self.limits.items())
        )
        self.carry(
            self.holder.on_inventory(Inventory(self.epoch, "gpu", devices), self.now, self.wall)
        )

    def carry(self, actions: Iterable[object], *, write: bool = True) -> None:
        for action in actions:
            if isinstance(action, Journal):
                self.record = action.record
            elif isinstance(action, WriteLimits):
                if write:
                    self.carry(self.holder.on_written(self.write(action), self.now))
            elif isinstance(action, Acknowledge):
                self.acknowledged.append(action)
            elif isinstance(action, Fault):
                self.faults.append(action.code)
            else:
                assert isinstance(action, Fence)
                self.fenced.append(action)

    def write(self, action: WriteLimits) -> list[Written]:
        results = []
        for gpu_id, watts in action.limits_watts:
            if gpu_id in self.errors:
                code, kind = self.errors[gpu_id]
                results.append(Written(gpu_id, action.ticket, None, code, kind))
                continue
            self.limits[gpu_id], self.ticket[gpu_id] = watts, action.ticket
            self.written.append((gpu_id, watts))
            results.append(Written(gpu_id, action.ticket, watts))
        return results

    def desired(self, limits: dict[str, float], seconds: float | None = 60.0, **lease) -> Desired:
        self.sequence += 1
        epoch = lease.pop("epoch", 1)
        expires = None if seconds is None else WALL + timedelta(seconds=seconds)
        made = Lease(f"l{self.sequence}", tuple(limits.items()), seconds, **lease)
        return Desired(epoch, self.sequence, f"d{self.sequence}", WALL, expires, made)

    def order(self, limits: dict[str, float], seconds: float | None = 60.0, **lease) -> None:
        desired = self.desired(limits, seconds, **lease)
        self.carry(self.holder.on_desired(desired, self.now, self.wall))

    def pass_time(self, seconds: float) -> list[tuple[float, float]]:
        """Tick at each deadline; returns (seconds from now, limit of ``a``) after each."""
        began, until, seen = self.now, self.now + seconds, []
        while (due := self.holder.next_deadline(self.now)) is not None and due <= until:
            self.now = max(due, self.now)
            self.carry(self.holder.on_tick(self.now))
            seen.append((self.now - began, self.limits["a"]))
        self.now = until
        self.carry(self.holder.on_tick(self.now))
        return seen

    def read(self) -> None:
        readings = [LimitReading(g, self.ticket[g], w, w) for g, w in self.limits.items()]
        self.carry(self.holder.on_readings(readings, self.now))


def test_limits_return_on_a_staircase_below_the_straight_line_of_the_slot():
    node = Node()
    node.order({"a": 200.0}, 60.0, slot=RestoreSlot(5.0, 4.0))
    seen = node.pass_time(100.0)
    # From 200 to 400 W over 4 s, 5 s after the end at 60 s: 50 W each second.
    assert [s for s in seen if s[1] > 200.0] == [
        (66.0, 250.0),
        (67.0, 300.0),
        (68.0, 350.0),
        (69.0, 400.0),
    ]
    assert node.holder.phase(node.now) == "idle"
    assert node.record is not None
    assert node.record.gpus == ()


def test_a_lease_is_counted_on_the_boot_clock_so_a_clock_step_neither_frees_nor_binds():
    node = Node()
    node.wall += timedelta(hours=9)  # this machine's clock is wrong, and then steps back
    node.order({"a": 200.0}, 60.0)
    node.wall -= timedelta(days=2)
    node.pass_time(59.9)
    assert node.limits["a"] == 200.0
    node.pass_time(0.1)
    assert node.limits["a"] == 400.0


@pytest.mark.parametrize(
    ("asked", "written"), [(50.0, 100.0), (399.0, 350.0), (1e6, 350.0), (100.0, 100.0)]
)
def test_limits_are_moved_into_the_range_and_never_above_the_found_one(asked, written):
    node = Node(a=350.0)
    node.order({"a": asked})
    assert node.limits["a"] == written


def test_a_gpu_that_a_later_wish_does_not_name_returns_to_its_found_limit():
    node = Node(a=350.0, b=400.0)
    node.order({"a": 200.0, "b": 200.0})
    node.order({"b": 150.0})
    assert node.limits == {"a": 350.0, "b": 150.0}
    assert {r.gpu_id for r in node.acknowledged[-1].results} == {"a", "b"}


def test_found_limits_follow_the_site_until_they_are_needed_and_are_then_frozen():
    node = Node(a=400.0)
    node.limits["a"] = 300.0  # the operator, before any event
    node.read()
    node.order({"a": 200.0})
    node.order({"a": 250.0})
    node.pass_time(61.0)
    assert node.limits["a"] == 300.0


def test_an_older_controller_is_fenced_and_a_newer_one_starts_its_own_sequence():
    node = Node()
    node.order({"a": 200.0}, epoch=7)
    old = node.desired({"a": 100.0}, epoch=6)
    node.carry(node.holder.on_desired(old, node.now, node.wall))
    assert node.fenced[0].code == "controller-epoch-old"
    assert node.limits["a"] == 200.0
    node.sequence = 0
    node.order({"a": 300.0}, epoch=8)
    assert node.limits["a"] == 300.0
    assert node.record is not None
    assert node.record.controller_epoch == 8
    assert [type(a) for a in node.holder.on_welcome(7, 5.0, node.now)] == [Fence]


def test_the_same_wish_twice_is_acknowledged_twice_and_extends_nothing():
    node = Node()
    desired = node.desired({"a": 200.0}, 60.0)
    node.carry(node.holder.on_desired(desired, node.now, node.wall))
    node.pass_time(30.0)
    node.carry(node.holder.on_desired(desired, node.now, node.wall))
    assert len(node.acknowledged) == 2
    assert node.acknowledged[0] == node.acknowledged[1]
    assert node.holder.lease_left_seconds(node.now) == 30.0
    assert node.written == [("a", 200.0)]


def test_an_older_wish_that_arrives_late_is_dropped():
    node = Node()
    late = node.desired({"a": 100.0})
    node.order({"a": 250.0})
    assert node.holder.on_desired(late, node.now, node.wall) == []
    assert node.limits["a"] == 250.0


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({"a": float("nan")}, 60.0),
        ({"a": float("inf")}, 60.0),
        ({"a": -5.0}, 60.0),
        ({"a": 0.0}, 60.0),
        ({"a": 200.0}, 0.0),
        ({"a": 200.0}, -1.0),
    ],
)
def test_a_wish_that_makes_no_sense_changes_nothing_and_is_reported(limits, seconds):
    node = Node()
    node.order({"b": 300.0})
    node.order(limits, seconds)
    assert node.faults == ["desired-refused"]
    assert node.limits == {"a": 400.0, "b": 300.0}
    assert node.holder.lease is not None
    assert node.holder.lease.lease_id == "l1"


def test_a_limit_raised_by_someone_is_set_again_at_once_and_then_ever_more_rarely():
    node = Node()
    node.order({"a": 200.0}, 10_000.0)
    tries = []
    for second in range(60):
        if node.limits["a"] != 400.0:
            tries.append(second)
        node.limits["a"] = 400.0
        node.read()
        node.pass_time(1.0)
    # At once, then after 1, 2, 4, 8, 16 and 30 s at the least.
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert gaps == sorted(gaps)
    assert 5 <= len(tries) <= 8
    assert set(node.faults) == {"limit-drift-reset"}, "the card's default: no host script"
    assert len(node.faults) == len(tries)


def test_a_lower_foreign_limit_is_never_fought_nor_raised_over_even_after_a_restart():
    node = Node()
    node.order({"a": 250.0, "b": 250.0}, 60.0)
    node.limits["a"] = 130.0
    node.read()
    node.read()
    assert node.faults == ["limit-foreign"], "said once"
    node.order({"a": 300.0, "b": 300.0}, 60.0)
    assert node.limits == {"a": 130.0, "b": 300.0}
    node.order({"a": 110.0, "b": 110.0}, 60.0)
    assert node.limits == {"a": 110.0, "b": 110.0}
    node.start()
    node.pass_time(100.0)
    assert node.limits == {"a": 130.0, "b": 400.0}
    assert node.record is not None
    assert node.record.gpus == ()


def test_a_foreign_limit_that_was_lifted_again_is_forgotten():
    node = Node()
    node.order({"a": 250.0}, 60.0)
    for foreign in (130.0, 180.0, 250.0):
        node.limits["a"] = foreign
        node.read()
    assert node.limits["a"] == 250.0
    node.pass_time(61.0)
    assert node.limits["a"] == 400.0


def test_a_limiter_outside_the_host_is_reported_once_and_not_counted_as_ours():
    node = Node()
    desired = node.desired({"a": 300.0})
    actions = node.holder.on_desired(desired, node.now, node.wall)
    ticket = next(a.ticket for a in actions if isinstance(a, WriteLimits))
    node.carry(node.holder.on_written([Written("a", ticket, 210.0)], node.now))
    node.carry(node.holder.on_readings([LimitReading("a", ticket, 300.0, 210.0)], node.now))
    assert node.faults == ["limit-out-of-band"]
    assert node.acknowledged[-1].results[0].enforced_watts == 210.0


def test_answers_and_readings_from_before_the_newest_write_say_nothing():
    node = Node()
    node.order({"a": 300.0})
    first = node.ticket["a"]
    newest = node.holder.on_desired(node.desired({"a": 200.0}), node.now, node.wall)
    node.carry(newest, write=False)
    node.carry(node.holder.on_written([Written("a", first, 300.0)], node.now))
    node.carry(node.holder.on_readings([LimitReading("a", first, 300.0, 300.0)], node.now))
    assert node.faults == []
    assert not any(a.sequence == 2 and a.complete for a in node.acknowledged)


def test_a_reading_that_was_taken_before_a_write_and_comes_after_it_is_no_drift():
    node = Node()
    node.order({"a": 200.0})
    node.carry(node.holder.on_readings([LimitReading("a", 0, 400.0, 400.0)], node.now))
    assert node.faults == []
    assert node.written == [("a", 200.0)]


def test_a_write_that_landed_unseen_two_wishes_ago_is_still_known_as_ours():
    node = Node(a=350.0)
    node.order({"a": 150.0})
    for watts in (217.0, 300.0):  # neither is answered before the kill
        desired = node.desired({"a": watts})
        node.carry(node.holder.on_desired(desired, node.now, node.wall), write=False)
    node.limits["a"] = 217.0
    node.start()
    assert node.limits["a"] == 300.0
    assert node.faults == []


@pytest.mark.parametrize("done", [True, False])
def test_killed_between_journal_and_write_it_takes_neither_limit_for_a_foreign_one(done):
    node = Node(a=350.0)
    node.order({"a": 150.0})
    actions = node.holder.on_desired(node.desired({"a": 217.0}), node.now, node.wall)
    node.carry(actions, write=False)
    if done:
        node.limits["a"] = 217.0
    node.start()
    assert node.limits["a"] == 217.0
    assert node.faults == []
    node.pass_time(61.0)
    assert node.limits["a"] == 350.0


def test_restarted_within_the_slot_it_goes_on_and_after_it_it_rises_from_then_on():
    node = Node()
    node.order({"a": 200.0}, 60.0, slot=RestoreSlot(0.0, 10.0))
    node.pass_time(64.0)
    assert node.limits["a"] == 280.0
    node.now += 2.0
    node.start()
    assert node.limits["a"] == 320.0
    node.now += 500.0
    node.start()
    assert node.limits["a"] == 320.0, "no jump, and no way back down"
    seen = [watts for _, watts in node.pass_time(11.0)]
    assert seen == sorted(seen)
    assert node.limits["a"] == 400.0


def test_killed_after_the_last_step_it_does_not_begin_again():
    node = Node()
    node.order({"a": 200.0}, 60.0, slot=RestoreSlot(0.0, 10.0))
    record = node.record
    node.pass_time(80.0)
    node.record = record
    node.start()
    node.pass_time(20.0)
    assert set(node.written[-1:]) == {("a", 400.0)}
    assert min(watts for _, watts in node.written[1:]) > 200.0


def test_after_a_reboot_limits_are_captured_anew_and_the_rest_of_the_lease_is_kept():
    node = Node(a=350.0)
    node.order({"a": 200.0}, 600.0)
    node.boot, node.now, node.limits["a"] = "boot-2", 20.0, 400.0
    node.wall += timedelta(seconds=400)
    node.start()
    assert node.limits["a"] == 200.0
    assert node.holder.lease_left_seconds(node.now) == 200.0
    node.pass_time(201.0)
    assert node.limits["a"] == 400.0, "what the reboot left, not what stood before it"


def test_a_lease_that_ran_out_during_a_reboot_is_over():
    node = Node(a=350.0)
    node.order({"a": 200.0}, 600.0)
    node.boot, node.now, node.limits["a"] = "boot-2", 20.0, 400.0
    node.wall += timedelta(seconds=601)
    node.start()
    assert node.limits["a"] == 400.0
    assert node.holder.phase(node.now) == "idle"


def test_a_found_limit_that_is_one_of_ours_is_not_trusted():
    node = Node(a=350.0)
    node.order({"a": 200.0}, 600.0)
    node.boot, node.now = "boot-2", 20.0  # something has put our 200 W back at boot
    node.wall += timedelta(seconds=601)
    node.start()
    node.pass_time(1.0)
    assert node.faults == ["found-limit-distrusted"]
    assert node.limits["a"] == 350.0


def test_a_reload_of_the_driver_in_a_lease_keeps_the_limit_found_before_it():
    node = Node(a=250.0)
    node.order({"a": 150.0}, 60.0)
    node.carry(node.holder.on_driver_gone(node.now))
    node.epoch, node.limits["a"] = "driver-2", 400.0
    node.find()
    assert node.limits["a"] == 150.0
    assert "driver-reloaded" in node.faults
    node.pass_time(61.0)
    assert node.limits["a"] == 250.0


def test_a_wish_that_comes_while_no_driver_is_up_is_answered_once_one_is():
    node = Node()
    node.order({"a": 300.0})
    node.carry(node.holder.on_driver_gone(node.now))
    told = len(node.acknowledged)
    node.order({"a": 200.0})
    assert len(node.acknowledged) == told, "300 W still stand, and nobody may call that accepted"
    node.find()
    assert node.limits["a"] == 200.0
    assert node.acknowledged[-1].complete
    assert node.acknowledged[-1].results[0].enforced_watts == 200.0


def test_a_write_whose_driver_died_is_answered_as_such_and_made_by_the_next_one():
    node = Node()
    desired = node.desired({"a": 200.0})
    node.carry(node.holder.on_desired(desired, node.now, node.wall), write=False)
    node.carry(node.holder.on_driver_gone(node.now))
    assert node.acknowledged[-1].results[0].error == "driver-gone"
    node.find()
    assert node.limits["a"] == 200.0
    assert node.acknowledged[-1].results[0].error is None


def test_without_its_journal_a_limit_below_the_default_is_taken_as_found_and_reported():
    node = Node(a=250.0, b=400.0)
    node.start(distrust=True)
    assert node.faults == ["found-limit-distrusted"]
    node.order({"a": 200.0})
    node.pass_time(61.0)
    assert node.limits["a"] == 250.0


def test_an_open_event_holds_while_the_controller_is_heard_and_then_follows_its_programme():
    node = Node()
    node.order({"a": 200.0}, None, signal_loss=SignalLoss(100.0), slot=RestoreSlot(0.0, 2.0))
    for _ in range(100):
        node.pass_time(4.0)
        node.carry(node.holder.on_heard(node.now))
    assert node.limits["a"] == 200.0
    node.pass_time(50.0)
    assert node.holder.phase(node.now) == "silent"
    node.carry(node.holder.on_heard(node.now))
    assert node.holder.phase(node.now) == "holding", "a voice in time starts the count again"
    seen = node.pass_time(110.0)
    assert [s for s in seen if s[1] > 200.0] == [(101.0, 300.0), (102.0, 400.0)]


def test_an_open_event_may_fall_back_and_stay_there():
    node = Node()
    node.order({"a": 150.0}, None, signal_loss=SignalLoss(100.0, 0.6))
    node.pass_time(5000.0)
    assert node.limits["a"] == 240.0
    node.start()
    node.pass_time(5000.0)
    assert node.limits["a"] == 240.0
    node.carry(node.holder.release(node.now, force=False))
    assert node.limits["a"] == 400.0


def test_an_open_event_may_hold_until_a_person_releases_it():
    node = Node()
    node.order({"a": 150.0}, None, signal_loss=SignalLoss(None))
    with pytest.raises(Refused) as refused:
        node.holder.release(node.now, force=False)
    assert refused.value.code == "lease-alive"
    node.pass_time(1e6)
    assert node.limits["a"] == 150.0
    node.carry(node.holder.release(node.now, force=False))
    assert node.limits["a"] == 400.0


def test_a_person_in_haste_skips_the_slot_and_the_ceiling_stays():
    node = Node()
    slot = RestoreSlot(5.0, 10.0)
    node.order({"a": 200.0, "b": 200.0}, 60.0, standing_watts=(("b", 300.0),), slot=slot)
    node.carry(node.holder.release(node.now, force=True, at_once=True))
    assert node.limits == {"a": 400.0, "b": 300.0}
    assert node.holder.released
    assert "released-by-person" in node.faults


def test_haste_on_the_way_back_ends_it():
    node = Node()
    node.order({"a": 200.0}, 10.0, slot=RestoreSlot(5.0, 10.0))
    node.pass_time(12.0)
    assert node.limits["a"] == 200.0
    node.carry(node.holder.release(node.now, force=False, at_once=True))
    assert node.limits["a"] == 400.0


def test_a_node_that_is_retired_rises_in_its_slot_and_keeps_no_ceiling():
    node = Node()
    slot = RestoreSlot(1.0, 2.0)
    node.order({"a": 200.0}, 60.0, standing_watts=(("a", 300.0), ("b", 300.0)), slot=slot)
    node.carry(node.holder.release(node.now, force=True))
    node.carry(node.holder.retire(node.now, at_once=False))
    assert node.limits == {"a": 200.0, "b": 300.0}
    assert node.pass_time(5.0) == [(1.0, 200.0), (2.0, 300.0), (3.0, 400.0)]
    assert node.limits == {"a": 400.0, "b": 400.0}
    assert not node.holder.holding


def test_a_ceiling_alone_is_retired_over_a_minute_or_at_once():
    for at_once, seconds in ((False, 61.0), (True, 0.0)):
        node = Node()
        node.order({}, 0.0, standing_watts=(("a", 300.0),))
        node.carry(node.holder.retire(node.now, at_once=at_once))
        seen = [watts for _, watts in node.pass_time(seconds)]
        assert seen == sorted(seen)
        assert node.limits["a"] == 400.0
        assert not node.holder.holding


def test_a_gpu_that_is_back_before_anything_was_written_is_not_told_lost_again():
    node = Node()
    lost = LimitReading("a", 0, None, None, "device-lost", "DeviceLost")
    node.carry(node.holder.on_readings((lost,), node.now))
    node.order({"a": 200.0, "b": 200.0}, 600.0)
    assert [r.error for r in node.acknowledged[-1].results] == ["device-lost", None]
    node.read()
    assert "gpu-back" in node.faults
    assert [r.error for r in node.acknowledged[-1].results] == [None, None]
    assert node.limits["a"] == 200.0


def test_a_released_lease_does_not_come_back_after_a_reboot():
    node = Node()
    node.order({"a": 200.0}, 600.0, slot=RestoreSlot(60.0, 60.0))
    node.carry(node.holder.release(node.now, force=True))
    node.boot, node.now, node.limits = "boot-2", 9.0, {"a": 400.0, "b": 400.0}
    node.start()
    assert node.limits == {"a": 400.0, "b": 400.0}
    assert node.holder.released


def test_a_standing_ceiling_holds_before_during_and_after_a_lease_and_over_a_reboot():
    node = Node()
    standing = (("a", 300.0),)
    node.order({}, 0.0, standing_watts=standing)
    assert node.limits == {"a": 300.0, "b": 400.0}
    node.order({"a": 200.0, "b": 200.0}, 60.0, standing_watts=standing)
    node.pass_time(100.0)
    assert node.limits == {"a": 300.0, "b": 400.0}
    node.start()
    assert node.limits == {"a": 300.0, "b": 400.0}
    node.boot, node.now, node.limits = "boot-2", 9.0, {"a": 400.0, "b": 400.0}
    node.start()
    assert node.limits == {"a": 300.0, "b": 400.0}
    node.order({}, 0.0)
    assert node.limits == {"a": 400.0, "b": 400.0}


def test_a_standing_ceiling_is_told_though_no_lease_is_held():
    node = Node()
    assert node.holder.held is None
    node.order({}, 0.0, standing_watts=(("a", 300.0),))
    assert node.holder.lease is None
    assert node.holder.held == Lease("", standing_watts=(("a", 300.0),))
    node.start()
    assert node.holder.held == Lease("", standing_watts=(("a", 300.0),))


def test_a_disk_that_refuses_the_journal_keeps_new_limits_from_being_written():
    node = Node()
    node.order({"b": 300.0})
    actions = node.holder.on_desired(node.desired({"a": 200.0, "b": 200.0}), node.now, node.wall)
    assert isinstance(actions[0], Journal)
    assert actions[0].durable
    # What the agent does then: nothing of the list, but tell the holder.
    node.carry(node.holder.on_journal_failed(node.now))
    assert node.limits == {"a": 400.0, "b": 200.0}, "b's found limit was already safe"
    node.pass_time(1.5)
    assert node.limits == {"a": 200.0, "b": 200.0}


@pytest.mark.parametrize("kind", ["DeviceLost", "DeviceHung"])
def test_a_gpu_that_does_not_answer_holds_up_nobody_and_is_served_once_it_is_back(kind):
    node = Node()
    node.errors["a"] = ("device-bad", kind)
    node.order({"a": 200.0, "b": 200.0})
    assert node.limits == {"a": 400.0, "b": 200.0}
    results = {r.gpu_id: r for r in node.acknowledged[-1].results}
    assert node.acknowledged[-1].complete
    assert results["a"].error == "device-bad"
    node.pass_time(30.0)
    assert node.faults == ["device-bad"]
    node.errors.clear()
    node.read()
    assert node.limits == {"a": 200.0, "b": 200.0}
    assert node.faults == ["device-bad", "gpu-back"]
    assert all(r.error is None for r in node.acknowledged[-1].results)


def test_a_gpu_that_may_not_be_changed_is_never_touched():
    node = Node()
    node.can_set = False
    node.start()
    node.order({"a": 200.0})
    assert node.acknowledged[-1].results[0].error == "device-no-permission"
    assert node.acknowledged[-1].complete
    assert not node.holder.holding
    assert node.written == []


def test_an_unknown_gpu_is_answered_as_such():
    node = Node()
    node.order({"zz": 200.0, "a": 200.0})
    errors = {r.gpu_id: r.error for r in node.acknowledged[-1].results}
    assert errors == {"zz": "gpu-unknown", "a": None}


def test_a_write_that_the_device_ignores_is_tried_again_and_reported():
    node = Node()
    desired = node.desired({"a": 200.0})
    actions = node.holder.on_desired(desired, node.now, node.wall)
    ticket = next(a.ticket for a in actions if isinstance(a, WriteLimits))
    node.carry(node.holder.on_written([Written("a", ticket, 400.0)], node.now))
    assert node.faults == ["limit-not-taken"]
    assert node.acknowledged[-1].results[0].error == "limit-not-taken"
    node.pass_time(1.0)
    assert node.limits["a"] == 200.0
    assert node.acknowledged[-1].results[0].error is None


def test_an_agent_that_lost_its_journal_is_reminded_of_what_was_found():
    node = Node(a=390.0, b=380.0)
    node.order({"a": 200.0, "b": 200.0}, 60.0)
    node.record = None
    node.start()
    assert node.holder.fresh
    assert node.holder.found_watts("a") == 200.0, "all that it can see"
    desired = node.desired({"a": 200.0, "b": 200.0}, 50.0)
    found = (("a", 390.0), ("b", 380.0))
    node.carry(node.holder.on_desired(replace(desired, found_watts=found), node.now, node.wall))
    assert node.limits == {"a": 200.0, "b": 200.0}
    assert node.faults.count("found-limit-remembered") == 2
    assert not node.holder.fresh
    node.pass_time(60.0)
    assert node.limits == {"a": 390.0, "b": 380.0}


def test_a_reminder_never_raises_what_a_journal_knows_nor_beyond_the_device():
    node = Node(a=390.0, b=380.0)
    node.order({"a": 200.0}, 60.0)
    desired = node.desired({"a": 200.0}, 60.0)
    node.carry(
        node.holder.on_desired(replace(desired, found_watts=(("a", 400.0),)), node.now, node.wall)
    )
    assert node.holder.found_watts("a") == 390.0
    node.record = None
    node.start()
    desired = node.desired({"a": 200.0}, 60.0)
    node.carry(
        node.holder.on_desired(replace(desired, found_watts=(("a", 900.0),)), node.now, node.wall)
    )
    node.pass_time(70.0)
    assert node.limits["a"] == RANGE.greatest_watts
