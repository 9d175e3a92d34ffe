"""Which meter speaks: what cannot be believed, how long the last word stands, who comes next."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest

from gridaware.control.meters import Devices, MeterOrder, MeterSpec
from gridaware.domain.moment import Moment
from gridaware.domain.reading import Boundary, EnergyReading, Method, Quality, Reading

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
FIXED, SLOPE = 1000.0, 1.2


class Site:
    """A site of GPUs behind an overhead; its meters show what a test says."""

    def __init__(self, *names: str, rating: float | None = None, **spec: object) -> None:
        specs = [MeterSpec(name, **spec) for name in names]
        self.order = MeterOrder(specs, rating_watts=rating)
        self.names = names
        self.seconds = 0.0
        self.gpu_watts = 8000.0
        self.whole = True
        self.gain = dict.fromkeys(names, 1.0)
        self.silent: set[str] = set()
        self.shows: dict[str, float] = {}
        self.age = dict.fromkeys(names, 0.0)

    @property
    def watts(self) -> float:
        """What the site draws."""
        return FIXED + SLOPE * self.gpu_watts

    def tick(self, seconds: float = 1.0):
        self.seconds += seconds
        now = Moment(self.seconds, NOON + timedelta(seconds=self.seconds))
        for name in self.names:
            if name in self.silent:
                self.order.fail(name, "no route to host")
                continue
            watts = self.shows.get(name, self.gain[name] * self.watts)
            taken = now.wall - timedelta(seconds=self.age[name])
            reading = Reading(watts, taken, Boundary.SITE, Method.METER, age_seconds=self.age[name])
            energy = EnergyReading(1e6, "boot", now.wall, Boundary.SITE)
            self.order.take(name, reading, energy, self.seconds)
        devices = Devices(self.gpu_watts, FIXED + SLOPE * self.gpu_watts, self.whole)
        return self.order.choose(now, devices)

    def ticks(self, seconds: int):
        for _ in range(seconds):
            choice = self.tick()
        return choice

    def until(self, name: str, most: int = 400) -> int:
        """Seconds until that meter speaks."""
        for second in range(1, most + 1):
            if self.tick().reading.meter == name:
                return second
        raise AssertionError(f"{name} did not speak for {most} s")


def state_of(choice, name: str) -> tuple[str, str]:
    state = next(state for state in choice.states if state.name == name)
    return state.state, state.problem


def test_a_site_without_meters_reads_the_sum_of_its_devices() -> None:
    choice = Site().tick()
    assert (choice.reading.watts, choice.reading.quality) == (10600.0, Quality.GOOD)
    assert (choice.reading.method, choice.reading.meter) == (Method.DEVICE_SUM, "")
    assert choice.states == ()


def test_the_first_meter_speaks_and_says_whose_word_it_is() -> None:
    choice = Site("main", "backup").tick()
    assert (choice.reading.meter, choice.reading.quality) == ("main", Quality.GOOD)
    assert choice.reading.accuracy_share == 0.01
    assert choice.energy.epoch == "main/boot"
    assert [state.state for state in choice.states] == ["well", "well", "well"]


def test_a_silent_meter_is_held_flagged_and_then_the_next_one_speaks() -> None:
    site = Site("main", "backup")
    site.gain["backup"] = 1.01
    site.ticks(20)
    site.silent = {"main"}
    held = [site.tick().reading for _ in range(5)]
    assert [r.quality for r in held] == [*[Quality.GOOD] * 2, *[Quality.HELD] * 3]
    assert {r.watts for r in held} == {site.watts}
    choice = site.tick()
    assert choice.reading.meter == "backup"
    assert choice.reading.watts == pytest.approx(1.01 * site.watts)
    assert state_of(choice, "main") == ("ill", "meter-silent")
    assert next(s for s in choice.states if s.name == "main").detail == "no route to host"
    site.silent = {"main", "backup"}
    choice = site.ticks(7)
    assert choice.reading.method is Method.DEVICE_SUM
    assert (choice.reading.meter, choice.reading.quality) == ("device_sum", Quality.SUSPECT)
    assert choice.energy is None


def test_a_better_meter_comes_back_after_a_while_and_later_each_time_it_fails() -> None:
    site = Site("main", "backup")
    site.ticks(20)
    waits = []
    for _ in range(4):
        site.silent = {"main"}
        site.until("backup")
        site.silent = set()
        waits.append(site.until("main"))
    assert waits == [11, 21, 41, 81]
    site.ticks(700)  # ten minutes without a fall
    site.silent = {"main"}
    site.until("backup")
    site.silent = set()
    assert site.until("main") == 11


def test_a_meter_that_comes_and_goes_moves_nothing() -> None:
    site = Site("main", "backup")
    site.ticks(20)
    site.silent = {"main"}
    site.until("backup")
    speakers = set()
    for second in range(120):
        site.silent = {"main"} if second % 14 < 7 else set()
        speakers.add(site.tick().reading.meter)
    assert speakers == {"backup"}


@pytest.mark.parametrize("watts", [nan, inf, -1.0, -9000.0, 1.5 * 20_000.0, 1e9])
def test_what_no_site_draws_is_never_shown(watts: float) -> None:
    site = Site("main", "backup", rating=20_000.0)
    site.ticks(20)
    site.shows["main"] = watts
    shown = [site.tick().reading for _ in range(30)]
    assert {(r.meter, r.watts) for r in shown} == {("main", site.watts), ("backup", site.watts)}
    assert [r.quality for r in shown[:5]] == [Quality.HELD] * 5
    assert shown[5].meter == "backup"
    site.ticks(300)
    assert state_of(site.tick(), "main") == ("ill", "meter-implausible")


def test_one_wild_reading_is_passed_over() -> None:
    site = Site("main")
    site.ticks(20)
    site.shows["main"] = 3 * site.watts
    assert site.tick().reading.quality is Quality.HELD
    site.shows.clear()
    choice = site.tick()
    assert (choice.reading.quality, choice.reading.watts) == (Quality.GOOD, site.watts)


def test_a_step_that_the_gpus_make_is_believed_at_once() -> None:
    site = Site("main")
    site.ticks(20)
    for gpu_watts in (2000.0, 8000.0, 500.0):
        site.gpu_watts = gpu_watts
        choice = site.tick()
        assert (choice.reading.watts, choice.reading.quality) == (site.watts, Quality.GOOD)


def test_a_meter_ahead_of_the_sensors_or_behind_them_is_no_liar() -> None:
    site = Site("main")
    site.ticks(20)
    site.shows["main"] = site.watts
    site.gpu_watts = 4000.0
    assert site.tick().reading.quality is Quality.GOOD  # the meter is late
    site.shows.clear()
    assert site.tick().reading.quality is Quality.GOOD
    site.ticks(10)
    site.shows["main"] = FIXED + SLOPE * 8000.0
    early = site.tick().reading
    assert early.quality is Quality.HELD  # the meter is early: until the sensors agree
    site.shows.clear()
    site.gpu_watts = 8000.0
    assert site.tick().reading.quality is Quality.GOOD


def test_a_load_that_is_no_gpus_is_believed_once_it_has_stayed() -> None:
    site = Site("main", "backup")
    site.ticks(20)
    site.shows["main"] = site.shows["backup"] = site.watts + 5000.0  # a chiller starts
    first = [site.tick() for _ in range(10)]
    assert {c.reading.quality for c in first} <= {Quality.HELD, Quality.SUSPECT}
    choice = site.ticks(3)
    assert state_of(choice, "main") == ("well", "")
    assert site.until("main") < 30


def test_a_meter_that_shows_less_than_the_gpus_alone_draw_is_never_believed_again() -> None:
    site = Site("main", "backup")
    site.ticks(20)
    site.gain["main"] = 0.6  # two of three phases, and less
    site.ticks(60)
    assert state_of(site.tick(), "main") == ("ill", "meter-implausible")
    assert site.tick().reading.meter == "backup"


def test_a_meter_that_repeats_itself_is_stuck_once_the_gpus_have_moved() -> None:
    site = Site("main", "backup")
    site.ticks(20)
    site.shows["main"] = site.watts
    assert state_of(site.ticks(60), "main") == ("well", "")  # nothing moves: nothing to see
    for second in range(40):
        site.gpu_watts = 8000.0 + 25.0 * second
        choice = site.tick()
    assert state_of(choice, "main") == ("ill", "meter-stuck")
    assert choice.reading.meter == "backup"
    site.shows.clear()
    assert site.until("main") == 11


def test_a_coarse_meter_is_not_called_stuck() -> None:
    site = Site("main")
    for second in range(120):
        site.gpu_watts = 8000.0 + 8.0 * second
        site.shows["main"] = 500.0 * round(site.watts / 500.0)
        choice = site.tick()
        assert choice.reading.meter in {"", "main"}
    assert state_of(choice, "main") == ("well", "")


def test_an_old_reading_is_none_and_its_age_is_told() -> None:
    site = Site("main", stale_seconds=40.0)
    site.age["main"] = 16.0
    choice = site.ticks(3)
    assert (choice.reading.quality, choice.reading.age_seconds) == (Quality.GOOD, 16.0)
    site.age["main"] = 41.0
    choice = site.tick()
    assert state_of(choice, "main") == ("ill", "meter-stale")
    assert choice.reading.method is Method.DEVICE_SUM


def test_a_meter_that_never_answers_is_told_after_its_time_and_not_before() -> None:
    site = Site("main")
    site.silent = {"main"}
    unread = [site.tick() for _ in range(6)]
    assert {state_of(c, "main") for c in unread} == {("unread", "")}
    assert {(c.reading.meter, c.reading.method) for c in unread} == {("", Method.DEVICE_SUM)}
    choice = site.tick()
    assert (choice.reading.meter, choice.reading.quality) == ("device_sum", Quality.SUSPECT)
    assert state_of(choice, "main") == ("ill", "meter-silent")
    assert choice.states[0].detail == "no route to host"


def test_nothing_is_judged_by_devices_that_are_not_all_there() -> None:
    site = Site("main")
    site.ticks(20)
    site.whole, site.gpu_watts = False, 100.0
    site.shows["main"] = 10_600.0
    choice = site.ticks(5)
    assert (choice.reading.watts, choice.reading.quality) == (10_600.0, Quality.GOOD)
    site.silent = {"main"}
    assert site.ticks(7).reading.quality is Quality.MISSING


def test_the_sum_of_devices_may_stand_before_a_slow_meter() -> None:
    specs = [
        MeterSpec("main"),
        MeterSpec("sum", accuracy_share=0.03, device_sum=True),
        MeterSpec("scraped", stale_seconds=60.0),
    ]
    site = Site("main", "scraped")
    site.order = MeterOrder(specs)
    site.ticks(20)
    site.silent = {"main"}
    choice = site.ticks(7)
    assert (choice.reading.meter, choice.reading.accuracy_share) == ("sum", 0.03)
    assert choice.reading.quality is Quality.SUSPECT
    site.whole = False
    assert site.tick().reading.meter == "scraped"
    site.whole = True
    assert site.until("sum") == 11


def test_a_declared_accuracy_goes_before_what_the_meter_says() -> None:
    said = Reading(1.0, NOON, Boundary.SITE, Method.METER, accuracy_share=0.005)
    for declared, expected in ((None, 0.005), (0.02, 0.02)):
        order = MeterOrder([MeterSpec("main", accuracy_share=declared)])
        order.take("main", replace(said), None, 1.0)
        choice = order.choose(Moment(1.0, NOON), Devices(1.0, 1.0, True))
        assert choice.reading.accuracy_share == expected
