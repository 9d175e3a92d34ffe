"""Which GPUs follow their caps, and which rung is next for those that do not: the rules alone."""

from itertools import pairwise

import pytest

from gridaware.control.escalation import Astray, Follow, Rung, Sight, last_rung
from gridaware.domain.fleet import ClockRange

CLOCKS = ClockRange(405.0, 1380.0)


def sight(
    power: float,
    enforced: float = 250.0,
    *,
    acked: bool = True,
    error: str | None = None,
    floor: float = 0.0,
) -> Sight:
    return Sight(power, enforced, acked, error, lambda cap: max(cap, floor))


def capped(power: float, seconds: float = 3.0, **how) -> Follow:
    """A GPU that went from 400 W to a cap of 250 W at 100 s, seen ten times a second since."""
    follow = Follow.of(250.0, 400.0, 100.0)
    for tenth in range(round(10 * seconds) + 1):
        follow = follow.see(sight(power, **how), 100.0 + 0.1 * tenth)
    return follow


def test_a_gpu_within_its_sensors_error_of_the_cap_follows() -> None:
    assert capped(250.0 * 1.05 * 1.01).astray == ""


def test_a_gpu_that_ignores_an_enforced_cap_is_known_two_seconds_after_it() -> None:
    """1.5 s for silicon, sensor and a one-second mean, and half a second of proof."""
    assert capped(380.0, seconds=1.9).astray == ""
    follow = capped(380.0, seconds=2.1)
    assert follow.astray == Astray.IGNORED


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"enforced": 400.0}, Astray.NOT_ENFORCED),
        ({"enforced": 400.0, "acked": False}, Astray.UNACKNOWLEDGED),
        ({"error": "device-error"}, Astray.REFUSED),
        ({}, Astray.IGNORED),
    ],
)
def test_why_it_does_not_follow_is_told_apart(how: dict, why: Astray) -> None:
    assert capped(380.0, **how).astray == why


def test_a_draw_that_the_model_has_at_that_cap_is_no_disobedience() -> None:
    """A40 under 100 W draws 20.7 % more than its cap (Zeus traces): its clock floor."""
    assert capped(250.0 * 1.207).astray == Astray.IGNORED
    assert capped(250.0 * 1.207, floor=250.0 * 1.207).astray == ""


def test_one_reading_too_high_proves_nothing() -> None:
    follow = capped(250.0)
    follow = follow.see(sight(380.0), 110.0).see(sight(250.0), 110.1).see(sight(380.0), 110.7)
    assert follow.astray == ""


def test_a_cap_that_falls_each_second_is_judged_all_the_same() -> None:
    follow = Follow.of(390.0, 400.0, 100.0)
    for tenth in range(1, 80):
        if tenth % 10 == 0:
            follow = follow.want(390.0 - tenth, 100.0 + 0.1 * tenth)
        follow = follow.see(sight(400.0, enforced=320.0), 100.0 + 0.1 * tenth)
    assert follow.astray == Astray.IGNORED


def test_a_higher_cap_is_followed_at_once() -> None:
    follow = capped(380.0).want(390.0, 104.0).see(sight(380.0, enforced=390.0), 104.0)
    assert follow.astray == ""


def test_rungs_come_mildest_first_and_each_has_its_time() -> None:
    follow = capped(380.0)
    taken = []
    for tenth in range(270):
        now = 103.0 + 0.1 * tenth
        follow = follow.see(sight(380.0, enforced=100.0), now)
        follow, rung = follow.climb(380.0, 100.0, CLOCKS, now)
        if rung:
            taken.append((tenth, rung, follow.deeper_watts, follow.lock_mhz))
    assert taken[0] == (0, Rung.DEEPER_CAP, 250.0 - 130.0, None)  # by what it draws too much
    assert taken[1][1:] == (Rung.DEEPER_CAP, 100.0, None)
    assert taken[2][1:] == (Rung.LOCK_CLOCKS, 100.0, round(1380.0 * 250.0 / 380.0))
    assert {later[0] - sooner[0] for sooner, later in pairwise(taken)} <= {20, 21}
    assert taken[-1][3] == CLOCKS.least_mhz
    assert follow.spent(100.0, CLOCKS, 130.0)


def test_a_driver_without_clock_locks_has_one_rung_less() -> None:
    follow, rung = capped(380.0).climb(380.0, 100.0, None, 103.0)
    assert rung is Rung.DEEPER_CAP
    follow = follow.see(sight(380.0, enforced=120.0), 105.0)
    follow, rung = follow.climb(380.0, 100.0, None, 105.0)
    assert (rung, follow.deeper_watts) == (Rung.DEEPER_CAP, 100.0)
    follow = follow.see(sight(380.0, enforced=100.0), 107.1)
    assert follow.climb(380.0, 100.0, None, 107.1)[1] is Rung.NONE
    assert follow.spent(100.0, None, 107.1)


def test_a_limit_that_is_refused_cannot_be_set_deeper() -> None:
    follow = capped(380.0, error="device-error")
    assert follow.climb(380.0, 100.0, None, 103.0)[1] is Rung.NONE
    assert follow.spent(100.0, None, 103.0)
    assert follow.climb(380.0, 100.0, CLOCKS, 103.0)[1] is Rung.LOCK_CLOCKS


def test_what_a_deeper_cap_holds_keeps_it_until_caps_are_obeyed_again() -> None:
    follow, _ = capped(290.0).climb(290.0, 100.0, None, 103.0)
    assert follow.deeper_watts == pytest.approx(210.0)
    held = follow.see(sight(249.0, enforced=210.0), 106.0)
    assert (held.astray, held.deeper_watts) == (Astray.IGNORED, pytest.approx(210.0))
    assert held.climb(249.0, 100.0, None, 106.0)[1] is Rung.NONE  # it draws what is wanted
    free = held.see(sight(209.0, enforced=210.0), 107.0)
    assert (free.astray, free.deeper_watts) == ("", None)


@pytest.mark.parametrize(
    ("late", "short", "pausable", "may_stop", "rung"),
    [
        (False, False, True, True, Rung.NONE),  # the others give it, and there is time
        (False, True, True, False, Rung.PAUSE),  # nobody else can: there is no use in waiting
        (True, False, True, False, Rung.PAUSE),
        (True, False, False, False, Rung.NONE),
        (False, True, False, True, Rung.NONE),  # a stop waits for the deadline
        (True, False, False, True, Rung.STOP),
    ],
)
def test_a_job_is_paused_or_stopped_only_as_far_as_its_owner_agreed(
    late: bool, short: bool, pausable: bool, may_stop: bool, rung: Rung
) -> None:
    assert last_rung(late=late, short=short, pausable=pausable, may_stop=may_stop) is rung
