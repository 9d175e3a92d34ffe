"""What counts as a disturbance of the supply, and how long the loop holds still for it."""

from datetime import UTC, datetime

from gridaware.control.ridethrough import LONGEST_SECONDS, TAIL_SECONDS, RideThrough
from gridaware.domain.reading import Boundary, Method, Quality, Reading

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def reading(
    quality: Quality = Quality.GOOD, meter: str = "main", *, disturbed: bool = False
) -> Reading:
    return Reading(1000.0, NOON, Boundary.SITE, Method.METER, quality, disturbed, meter)


def sound(seconds: float = 100.0) -> RideThrough:
    return RideThrough().look(seconds, reading(), sags=False, known=False)


def test_sound_readings_freeze_nothing() -> None:
    ride = sound()
    for tick in range(20):
        ride = ride.look(101.0 + tick, reading(), sags=False)
        assert not ride.frozen(101.0 + tick)
    assert ride.count == 0


def test_a_sag_freezes_until_two_seconds_after_its_last_reading() -> None:
    ride = sound()
    for tick in range(5):
        ride = ride.look(101.0 + 0.1 * tick, reading(), sags=True)
    ride = ride.look(101.5, reading(), sags=False)
    assert ride.frozen(101.5)
    assert ride.frozen(101.4 + 1.99)
    assert not ride.frozen(101.4 + 2.01)
    assert (ride.cause, ride.count, TAIL_SECONDS) == ("sag", 1, 2.0)


def test_six_sags_in_ninety_seconds_are_six_freezes() -> None:
    ride = sound()
    frozen = 0
    for tenth in range(900):
        now = 101.0 + 0.1 * tenth
        ride = ride.look(now, reading(), sags=tenth % 150 < 5)
        frozen += ride.frozen(now)
    assert ride.count == 6
    assert frozen == 6 * 24  # half a second each, and two seconds after its last tenth


def test_what_lasts_longer_than_any_sag_is_believed() -> None:
    ride = sound()
    now = 101.0
    while now <= 101.0 + LONGEST_SECONDS:
        ride = ride.look(now, reading(), sags=True)
        assert ride.frozen(now)
        now += 0.5
    ride = ride.look(now, reading(), sags=True)
    assert not ride.frozen(now)
    ride = ride.look(now + 30.0, reading(), sags=True)
    assert not ride.frozen(now + 30.0)
    ride = ride.look(now + 31.0, reading(), sags=False)
    ride = ride.look(now + 32.0, reading(), sags=True)
    assert ride.frozen(now + 32.0)  # another one


def test_a_meter_that_says_so_itself_is_believed() -> None:
    ride = sound().look(101.0, reading(disturbed=True), sags=False)
    assert (ride.cause, ride.frozen(102.9), ride.frozen(103.1)) == ("declared", True, False)


def test_a_gap_of_the_meter_and_its_return_freeze_but_not_the_time_between() -> None:
    ride = sound()
    for second in range(3):  # its last reading is repeated
        ride = ride.look(101.0 + second, reading(Quality.HELD), sags=False)
        assert ride.frozen(101.0 + second)
    ride = ride.look(104.0, reading(meter="feeder"), sags=False)  # another takes its place
    assert ride.frozen(105.9)
    ride = ride.look(106.1, reading(meter="feeder"), sags=False)
    assert not ride.frozen(106.1)
    ride = ride.look(120.0, reading(meter="main"), sags=False)  # it is back
    assert (ride.cause, ride.frozen(121.9), ride.frozen(122.1)) == ("meter-gap", True, False)


def test_the_sensors_sum_in_place_of_a_silent_meter_goes_on_after_two_seconds() -> None:
    ride = sound()
    ride = ride.look(101.0, reading(Quality.SUSPECT, ""), sags=False)
    assert ride.frozen(102.9)
    ride = ride.look(103.1, reading(Quality.SUSPECT, ""), sags=False)
    assert not ride.frozen(103.1)


def test_a_meter_that_is_doubted_while_a_large_command_takes_hold_freezes_nothing() -> None:
    """It shows the fall before the sensors do; the loop must see what came of its command."""
    held = reading(Quality.HELD)
    ride = sound().look(101.0, held, sags=False, responding=True)
    assert not ride.frozen(101.0)
    ride = ride.look(101.1, reading(), sags=False, responding=True)
    assert not ride.frozen(101.1)
    ride = ride.look(101.2, held, sags=True, responding=True)
    assert ride.frozen(101.2)  # a sag is a sag all the same


def test_a_blip_that_a_node_saw_freezes_like_a_sag() -> None:
    ride = sound().declared(101.0)
    assert (ride.frozen(102.9), ride.frozen(103.1), ride.count) == (True, False, 1)
    again = ride.declared(101.5)
    assert (again.frozen(103.4), again.count) == (True, 1)


def test_the_first_reading_follows_no_other() -> None:
    ride = RideThrough().look(100.0, reading(Quality.SUSPECT), sags=False, known=False)
    assert not ride.frozen(100.0)
