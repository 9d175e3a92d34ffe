"""Armed responses in the lease holder: held ready, fired with and without a controller."""

from datetime import UTC, datetime, timedelta

import pytest

from gridaware.domain.fleet import LimitRange
from gridaware.domain.lease import ArmedResponse, Lease, RestoreSlot, ScheduledResponse
from gridaware.domain.programme import SignalLoss
from gridaware.domain.wire import Armed, Desired, Trigger
from gridaware.node.actions import (
    Acknowledge,
    ArmedHeld,
    Device,
    Fault,
    Fence,
    Firing,
    Inventory,
    Journal,
    JournalRecord,
    LimitReading,
    WriteLimits,
    Written,
)
from gridaware.node.holder import LeaseHolder

WALL = datetime(2026, 3, 1, 12, tzinfo=UTC)
RANGE = LimitRange(100.0, 400.0, 400.0)


class Agent:
    """A holder on two GPUs that stand at 400 W, with its disk; writes are carried out at once."""

    def __init__(self) -> None:
        self.limits = {"a": 400.0, "b": 400.0}
        self.tickets = dict.fromkeys(self.limits, 0)
        self.now, self.boot = 100.0, "boot-1"
        self.disk: JournalRecord | None = None
        self.durable: list[bool] = []
        self.actions: list[object] = []
        self.sequence = self.revision = 0
        self.start()

    def start(self) -> None:
        self.tickets = dict.fromkeys(self.limits, 0)
        self.holder = LeaseHolder(self.boot, self.disk)
        devices = tuple(
            Device(g, i, "m", RANGE, True, w, w) for i, (g, w) in enumerate(self.limits.items())
        )
        inventory = Inventory("drv", "gpu", devices)
        self.carry(self.holder.on_inventory(inventory, self.now, self.wall))

    @property
    def wall(self) -> datetime:
        return WALL + timedelta(seconds=self.now - 100.0)

    def carry(self, actions) -> list[object]:
        for action in actions:
            self.actions.append(action)
            if isinstance(action, Journal):
                self.disk = action.record
                self.durable.append(action.durable)
            elif isinstance(action, WriteLimits):
                results = []
                for gpu_id, watts in action.limits_watts:
                    self.limits[gpu_id], self.tickets[gpu_id] = watts, action.ticket
                    results.append(Written(gpu_id, action.ticket, watts))
                self.carry(self.holder.on_written(results, self.now))
        return list(actions)

    def arm(self, *levels: dict[str, float], scheduled=(), seconds: float = 900.0, **lease) -> None:
        self.revision += 1
        responses = tuple(
            ArmedResponse("p", n, 0.1 * (n + 1), made_lease(limits, **lease))
            for n, limits in enumerate(levels)
        )
        expires = WALL + timedelta(seconds=seconds)
        armed = Armed(1, self.revision, WALL, expires, responses, tuple(scheduled))
        self.carry(self.holder.arm(armed, self.now, self.wall))

    def trigger(
        self, level: int, seconds: float | None = 60.0, revision: int | None = None
    ) -> None:
        self.sequence += 1
        shot = Trigger(
            1,
            self.sequence,
            f"d{self.sequence}",
            revision or self.revision,
            "p",
            level,
            "f.e",
            seconds,
        )
        self.carry(self.holder.trigger(shot, self.now, self.wall))

    def fire(self, level: int) -> None:
        self.carry(self.holder.fire("p", level, self.now, self.wall, "frequency", 49.6))

    def desire(self, limits: dict[str, float], seconds: float | None = 60.0, **lease) -> None:
        self.sequence += 1
        expires = None if seconds is None else WALL + timedelta(seconds=seconds)
        made = Lease(f"d{self.sequence}", tuple(limits.items()), seconds, **lease)
        desired = Desired(1, self.sequence, f"d{self.sequence}", WALL, expires, made)
        self.carry(self.holder.on_desired(desired, self.now, self.wall))

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.holder.next_deadline(self.now)) is not None and due <= until:
            self.now = max(due, self.now)
            self.carry(self.holder.on_tick(self.now))
        self.now = until
        self.carry(self.holder.on_tick(self.now))

    def of(self, kind: type) -> list:
        return [action for action in self.actions if isinstance(action, kind)]

    def codes(self) -> list[str]:
        return [fault.code for fault in self.of(Fault)]


def made_lease(limits: dict[str, float], seconds: float | None = 300.0, **lease) -> Lease:
    return Lease("armed", tuple(limits.items()), seconds, **lease)


@pytest.fixture
def agent() -> Agent:
    """Two levels armed: 300 W, and 200 W on both GPUs."""
    made = Agent()
    made.arm({"a": 300.0, "b": 300.0}, {"a": 200.0, "b": 200.0})
    return made


def test_arming_changes_nothing_and_is_told_once_it_is_in_the_journal(agent: Agent) -> None:
    assert agent.limits == {"a": 400.0, "b": 400.0}
    assert agent.of(ArmedHeld) == [ArmedHeld(1, 1)]
    kinds = [type(action) for action in agent.actions]
    assert kinds.index(Journal) < kinds.index(ArmedHeld)
    assert not agent.holder.holding
    assert agent.holder.phase(agent.now) == "idle"


def test_a_trigger_does_what_a_desired_would_and_is_acknowledged_as_one(agent: Agent) -> None:
    agent.trigger(1, seconds=60.0)
    assert agent.limits == {"a": 200.0, "b": 200.0}
    acknowledged = agent.of(Acknowledge)[-1]
    assert (acknowledged.sequence, acknowledged.decision_id) == (1, "d1")
    assert acknowledged.complete
    assert [r.enforced_watts for r in acknowledged.results] == [200.0, 200.0]
    lease = agent.holder.lease
    assert lease is not None
    assert (lease.lease_id, lease.event_ids) == ("d1", ("f.e",))
    agent.pass_time(60.5)
    assert agent.limits == {"a": 400.0, "b": 400.0}


def test_found_limits_are_on_the_disk_ahead_so_firing_waits_for_none(agent: Agent) -> None:
    assert agent.durable[-1]  # when it was armed
    agent.durable.clear()
    agent.trigger(1)
    assert agent.durable
    assert not any(agent.durable)
    kinds = [type(action) for action in agent.actions]
    assert kinds.index(WriteLimits) > kinds.index(Journal)


def test_a_limit_that_was_changed_since_arming_is_made_safe_before_it_is_fired_over(
    agent: Agent,
) -> None:
    agent.durable.clear()
    agent.limits["a"] = 350.0  # somebody else's, before anything is ours
    reading = LimitReading("a", 0, 350.0, 350.0)
    agent.carry(agent.holder.on_readings([reading], agent.now))
    assert agent.durable == [True]
    agent.trigger(1)
    agent.pass_time(61.0)
    assert agent.limits == {"a": 350.0, "b": 400.0}


def test_a_trigger_of_another_revision_or_level_is_refused_and_changes_nothing(
    agent: Agent,
) -> None:
    agent.trigger(1, revision=7)
    agent.trigger(5)
    assert agent.limits == {"a": 400.0, "b": 400.0}
    assert agent.codes() == ["trigger-refused", "trigger-refused"]
    assert not agent.of(Acknowledge)


def test_a_new_set_replaces_the_whole_old_one(agent: Agent) -> None:
    agent.arm({"a": 250.0})
    agent.fire(1)
    assert agent.codes() == ["trigger-refused"]
    agent.fire(0)
    assert agent.limits == {"a": 250.0, "b": 400.0}


def test_what_is_armed_expires_on_the_boot_clock_and_is_never_fired_after(agent: Agent) -> None:
    agent.now += 899.0
    agent.fire(0)
    assert agent.limits["a"] == 300.0
    other = Agent()
    other.arm({"a": 300.0})
    other.now += 900.0
    other.fire(0)
    other.trigger(0)
    assert other.limits["a"] == 400.0
    assert other.codes() == ["trigger-refused", "trigger-refused"]


def test_an_older_controller_neither_arms_nor_fires(agent: Agent) -> None:
    agent.carry(agent.holder.on_welcome(5, 5.0, agent.now))
    agent.arm({"a": 150.0})
    agent.trigger(0)
    assert [fence.code for fence in agent.of(Fence)] == ["controller-epoch-old"] * 2
    assert agent.limits["a"] == 400.0


def test_the_same_trigger_again_is_acknowledged_again_and_extends_nothing(agent: Agent) -> None:
    agent.trigger(1, seconds=60.0)
    agent.now += 30.0
    agent.sequence -= 1
    agent.trigger(1, seconds=60.0)
    assert len(agent.of(Acknowledge)) == 2
    assert agent.holder.lease_left_seconds(agent.now) == pytest.approx(30.0)


def test_a_set_outlives_kill_nine_within_its_expiry_and_dies_with_the_boot(agent: Agent) -> None:
    agent.now += 10.0
    agent.start()
    agent.fire(1)
    assert agent.limits == {"a": 200.0, "b": 200.0}
    assert agent.codes() == []
    other = Agent()
    other.arm({"a": 300.0})
    other.boot, other.now = "boot-2", 5.0
    other.start()
    other.fire(0)
    assert other.codes() == ["trigger-refused"]


def test_what_was_fired_outlives_kill_nine_to_its_end(agent: Agent) -> None:
    agent.fire(1)
    agent.now += 10.0
    agent.start()
    assert agent.limits == {"a": 200.0, "b": 200.0}
    firing = agent.holder.firing
    assert firing is not None
    assert (firing.programme_id, firing.level, firing.measured) == ("p", 1, 49.6)
    agent.pass_time(291.0)
    assert agent.limits == {"a": 400.0, "b": 400.0}
    assert agent.holder.firing is None


def test_what_was_fired_before_kill_nine_is_let_go_after_it(agent: Agent) -> None:
    agent.fire(1)
    agent.now += 10.0
    agent.start()
    agent.carry(agent.holder.let_go("p", agent.now))
    assert agent.limits == {"a": 400.0, "b": 400.0}
    assert agent.of(Firing)[-1].level is None


def test_a_local_cause_fires_without_any_controller_and_is_told(agent: Agent) -> None:
    agent.now += 60.0  # nobody has been heard for a minute
    agent.fire(1)
    assert agent.limits == {"a": 200.0, "b": 200.0}
    (told,) = agent.of(Firing)
    assert (told.programme_id, told.level, told.cause) == ("p", 1, "frequency")
    assert told.at == agent.now
    agent.pass_time(301.0)
    assert agent.limits == {"a": 400.0, "b": 400.0}


def test_firing_never_raises_a_limit_of_a_stricter_lease_and_never_ends_it_sooner(
    agent: Agent,
) -> None:
    agent.desire({"a": 150.0}, 1000.0, event_ids=("f.x",), slot=RestoreSlot(2.0, 4.0))
    agent.fire(1)
    assert agent.limits == {"a": 150.0, "b": 200.0}
    lease = agent.holder.lease
    assert lease is not None
    assert lease.event_ids == ("f.x", "frequency.p")
    assert agent.holder.lease_left_seconds(agent.now) == pytest.approx(1000.0)
    agent.pass_time(500.0)
    assert agent.limits == {"a": 150.0, "b": 200.0}


def test_firing_deeper_lowers_and_firing_shallower_does_not_raise(agent: Agent) -> None:
    agent.fire(0)
    agent.fire(1)
    assert agent.limits == {"a": 200.0, "b": 200.0}
    agent.fire(0)
    assert agent.limits == {"a": 200.0, "b": 200.0}


def test_slots_of_both_leases_follow_one_another_so_that_the_ramp_is_kept() -> None:
    agent = Agent()
    agent.arm({"b": 200.0}, slot=RestoreSlot(10.0, 5.0))
    agent.desire({"a": 200.0}, 100.0, slot=RestoreSlot(20.0, 8.0))
    agent.fire(0)
    lease = agent.holder.lease
    assert lease is not None
    assert lease.slot == RestoreSlot(30.0, 13.0)


def test_a_droop_that_fires_again_and_again_has_one_way_back() -> None:
    agent = Agent()
    agent.arm({"b": 300.0}, {"b": 200.0}, slot=RestoreSlot(10.0, 5.0))
    for level in (0, 1, 0, 1):
        agent.fire(level)
    assert agent.holder.lease is not None
    assert agent.holder.lease.slot == RestoreSlot(10.0, 5.0)
    agent.desire({"a": 200.0}, 100.0, slot=RestoreSlot(20.0, 8.0), event_ids=("f.x",))
    for level in (0, 1, 0):
        agent.fire(level)
    assert agent.holder.lease.slot == RestoreSlot(30.0, 13.0)


def test_whichever_is_stricter_everywhere_has_its_own_slot() -> None:
    agent = Agent()
    agent.arm({"a": 300.0}, {"a": 150.0, "b": 150.0}, slot=RestoreSlot(10.0, 5.0))
    agent.desire({"a": 200.0}, 100.0, slot=RestoreSlot(20.0, 8.0))
    agent.fire(0)
    lease = agent.holder.lease
    assert lease is not None
    assert lease.slot == RestoreSlot(20.0, 8.0)
    agent.fire(1)
    agent.trigger(1)  # control takes over what is fired already
    lease = agent.holder.lease
    assert lease is not None
    assert lease.slot == RestoreSlot(10.0, 5.0)


def test_firing_on_the_way_back_holds_what_has_not_come_back_yet() -> None:
    agent = Agent()
    agent.arm({"a": 300.0, "b": 300.0})
    agent.desire({"a": 200.0, "b": 200.0}, 10.0, slot=RestoreSlot(0.0, 10.0))
    agent.pass_time(13.0)  # 3 s of the way back: 200 + 3 x 20 W
    assert agent.limits["a"] == pytest.approx(260.0)
    agent.fire(0)
    agent.pass_time(5.0)
    assert agent.limits["a"] == pytest.approx(260.0)


def test_a_standing_ceiling_stays_below_what_is_fired() -> None:
    agent = Agent()
    agent.arm({"a": 300.0, "b": 300.0})
    agent.desire({}, 0.0, standing_watts=(("a", 250.0),))
    agent.fire(0)
    assert agent.limits == {"a": 250.0, "b": 300.0}
    agent.pass_time(301.0)
    assert agent.limits == {"a": 250.0, "b": 400.0}


def test_letting_go_returns_the_limits_unless_something_else_holds_them(agent: Agent) -> None:
    agent.fire(1)
    agent.carry(agent.holder.let_go("p", agent.now))
    assert agent.limits == {"a": 400.0, "b": 400.0}
    assert [told.level for told in agent.of(Firing)] == [1, None]
    agent.desire({"a": 150.0}, 1000.0, event_ids=("f.x",))
    agent.fire(1)
    assert agent.limits == {"a": 150.0, "b": 200.0}
    agent.carry(agent.holder.let_go("p", agent.now))
    assert agent.limits == {"a": 150.0, "b": 400.0}, "the event holds one of them"
    assert agent.holder.let_go("p", agent.now) == []


def test_letting_go_over_an_event_returns_to_what_it_asks_within_the_ramp_and_then_to_its_end() -> (
    None
):
    agent = Agent()
    agent.arm({"a": 200.0, "b": 200.0}, slot=RestoreSlot(2.0, 4.0))
    agent.desire({"a": 300.0}, 100.0, event_ids=("f.x",), slot=RestoreSlot(5.0, 10.0))
    agent.pass_time(10.0)
    agent.fire(0)
    assert agent.limits == {"a": 200.0, "b": 200.0}
    agent.pass_time(10.0)
    agent.carry(agent.holder.let_go("p", agent.now))
    agent.pass_time(1.9)
    assert agent.limits == {"a": 200.0, "b": 200.0}, "its slot has not begun"
    agent.pass_time(2.2)  # 2 of its 4 s: half way to what the event leaves each of them
    assert agent.limits == {"a": 250.0, "b": 300.0}
    agent.pass_time(2.0)
    assert agent.limits == {"a": 300.0, "b": 400.0}
    lease = agent.holder.lease
    assert lease is not None
    assert (lease.lease_id, lease.event_ids) == ("d1", ("f.x",))
    assert agent.holder.lease_left_seconds(agent.now) == pytest.approx(73.9)
    agent.pass_time(78.8)  # its end, and nearly all of its delay
    assert agent.limits["a"] == 300.0
    agent.pass_time(11.0)
    assert agent.limits == {"a": 400.0, "b": 400.0}
    assert agent.holder.lease is None


def test_what_fired_over_an_event_that_ends_first_holds_on_and_returns_to_the_found_limits() -> (
    None
):
    agent = Agent()
    agent.arm({"a": 200.0}, slot=RestoreSlot(0.0, 4.0))
    agent.desire({"a": 300.0}, 20.0, event_ids=("f.x",), slot=RestoreSlot(0.0, 4.0))
    agent.fire(0)
    agent.pass_time(30.0)
    assert agent.limits["a"] == 200.0
    agent.carry(agent.holder.let_go("p", agent.now))
    agent.pass_time(2.0)
    assert agent.limits["a"] == 300.0
    agent.pass_time(2.0)
    assert agent.limits["a"] == 400.0


def test_letting_go_just_before_the_end_of_an_event_is_one_way_back_with_it() -> None:
    agent = Agent()
    agent.arm({"a": 200.0}, slot=RestoreSlot(0.0, 10.0))
    agent.desire({"a": 300.0}, 20.0, event_ids=("f.x",), slot=RestoreSlot(0.0, 10.0))
    agent.fire(0)
    agent.pass_time(15.0)
    agent.carry(agent.holder.let_go("p", agent.now))
    agent.pass_time(4.9)
    assert agent.limits["a"] == 200.0
    agent.pass_time(5.2)  # 5 of the 10 s after the event's end
    assert agent.limits["a"] == 300.0
    agent.pass_time(5.0)
    assert agent.limits["a"] == 400.0


def test_firing_again_on_the_way_back_to_an_event_never_loses_the_event() -> None:
    agent = Agent()
    agent.arm({"a": 200.0}, slot=RestoreSlot(0.0, 4.0))
    agent.desire({"a": 300.0}, 1000.0, event_ids=("f.x",))
    agent.fire(0)
    agent.carry(agent.holder.let_go("p", agent.now))
    agent.pass_time(2.0)
    assert agent.limits["a"] == 250.0
    agent.fire(0)
    assert agent.limits["a"] == 200.0
    assert agent.holder.lease_left_seconds(agent.now) == pytest.approx(998.0)
    agent.carry(agent.holder.let_go("p", agent.now))
    agent.pass_time(4.0)
    assert agent.limits["a"] == 300.0
    agent.pass_time(994.1)
    assert agent.limits["a"] == 400.0


def test_two_reserves_over_an_event_return_to_it_once_both_have_let_go() -> None:
    agent = Agent()
    leases = (made_lease({"a": 250.0}), made_lease({"a": 200.0}))
    both = tuple(ArmedResponse(p, 0, 0.1, leases[n]) for n, p in enumerate("pq"))
    armed = Armed(1, 1, WALL, WALL + timedelta(seconds=900.0), both)
    agent.carry(agent.holder.arm(armed, agent.now, agent.wall))
    agent.desire({"a": 300.0}, 1000.0, event_ids=("f.x",))
    for programme in "pq":
        agent.carry(agent.holder.fire(programme, 0, agent.now, agent.wall, "frequency", 49.6))
    agent.carry(agent.holder.let_go("p", agent.now))
    assert agent.limits["a"] == 200.0
    agent.carry(agent.holder.let_go("q", agent.now))
    assert agent.limits["a"] == 300.0


def test_an_event_beneath_what_was_fired_outlives_kill_nine() -> None:
    agent = Agent()
    agent.arm({"a": 200.0})
    agent.desire({"a": 300.0}, 1000.0, event_ids=("f.x",))
    agent.fire(0)
    agent.start()
    assert agent.limits["a"] == 200.0
    agent.carry(agent.holder.let_go("p", agent.now))
    assert agent.limits["a"] == 300.0
    agent.pass_time(1000.1)
    assert agent.limits["a"] == 400.0


def test_an_event_without_an_end_beneath_follows_its_signal_loss_after_what_was_fired() -> None:
    agent = Agent()
    agent.arm({"a": 200.0})
    loss = SignalLoss(hold_seconds=60.0)
    agent.desire({"a": 300.0}, None, event_ids=("f.x",), signal_loss=loss)
    agent.fire(0)
    agent.pass_time(30.0)
    agent.carry(agent.holder.let_go("p", agent.now))
    assert agent.limits["a"] == 300.0
    agent.pass_time(29.0)  # nobody was heard since the beginning
    assert agent.limits["a"] == 300.0
    agent.pass_time(2.0)
    assert agent.limits["a"] == 400.0


def test_what_was_let_go_of_is_not_told_as_fired_to_a_controller_that_comes_back() -> None:
    agent = Agent()
    agent.arm({"a": 200.0}, slot=RestoreSlot(0.0, 60.0))
    agent.fire(0)
    assert agent.holder.firing is not None
    agent.carry(agent.holder.let_go("p", agent.now))
    assert agent.holder.phase(agent.now) == "restoring"
    assert agent.holder.firing is None


def test_once_the_controller_has_taken_over_only_it_lets_go(agent: Agent) -> None:
    agent.fire(1)
    agent.trigger(1, seconds=300.0)
    assert agent.holder.firing is None
    lease = agent.holder.lease
    assert lease is not None
    assert lease.event_ids == ("frequency.p", "f.e")
    agent.carry(agent.holder.let_go("p", agent.now))
    assert agent.limits == {"a": 200.0, "b": 200.0}
    assert agent.of(Firing)[-1].level is None


def scheduled(starts_in: float, seconds: float | None = 30.0) -> ScheduledResponse:
    lease = Lease("armed-f.s", (("a", 220.0),), seconds, event_ids=("f.s",))
    return ScheduledResponse(starts_in, lease)


def test_an_event_that_is_known_ahead_begins_and_ends_without_a_controller() -> None:
    agent = Agent()
    agent.arm(scheduled=[scheduled(50.0)], seconds=20.0)  # its own window, not the set's expiry
    agent.pass_time(49.0)
    assert agent.limits["a"] == 400.0
    agent.pass_time(1.5)
    assert agent.limits["a"] == 220.0
    lease = agent.holder.lease
    assert lease is not None
    assert lease.event_ids == ("f.s",)
    agent.pass_time(29.0)
    assert agent.limits["a"] == 220.0
    agent.pass_time(1.0)
    assert agent.limits["a"] == 400.0
    agent.pass_time(100.0)
    assert agent.limits["a"] == 400.0


def test_while_a_controller_is_heard_it_alone_begins_events() -> None:
    agent = Agent()
    agent.arm(scheduled=[scheduled(10.0, 60.0)])
    for _ in range(20):
        agent.pass_time(1.0)
        agent.carry(agent.holder.on_heard(agent.now))
    assert agent.limits["a"] == 400.0
    agent.pass_time(4.9)
    assert agent.limits["a"] == 400.0
    agent.pass_time(0.2)  # 5 s of silence: it is gone, in the middle of the window
    assert agent.limits["a"] == 220.0
    assert agent.holder.lease_left_seconds(agent.now) == pytest.approx(70.0 - 25.1, abs=0.2)


def test_an_event_that_the_controller_began_is_not_begun_again() -> None:
    agent = Agent()
    agent.arm(scheduled=[scheduled(10.0, 60.0)])
    agent.pass_time(9.0)
    agent.desire({"a": 180.0}, 61.0, event_ids=("f.s",))
    agent.pass_time(30.0)
    assert agent.limits["a"] == 180.0
    agent.pass_time(40.0)
    assert agent.limits["a"] == 400.0


def test_an_open_ended_scheduled_event_follows_its_signal_loss() -> None:
    agent = Agent()
    lease = Lease(
        "armed-f.s", (("a", 220.0),), None, signal_loss=SignalLoss(40.0), event_ids=("f.s",)
    )
    agent.arm(scheduled=[ScheduledResponse(10.0, lease)])
    agent.pass_time(20.0)
    assert agent.limits["a"] == 220.0
    agent.pass_time(40.0)
    assert agent.limits["a"] == 400.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": float("nan")},
        {"a": -5.0},
    ],
)
def test_a_set_that_cannot_be_obeyed_is_refused_whole(agent: Agent, wrong: dict) -> None:
    agent.arm({"a": 250.0}, wrong)
    assert agent.codes() == ["armed-refused"]
    agent.fire(0)
    assert agent.limits == {"a": 300.0, "b": 300.0}  # the earlier set stands
