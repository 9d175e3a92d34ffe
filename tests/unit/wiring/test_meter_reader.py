"""Reading meters: each on its own thread, opened late, told of failures, never waited for."""

import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from types import ModuleType

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import ConfigError, DeviceError, Unavailable
from gridaware.domain.reading import Boundary, Method, Reading
from gridaware.wiring.config import Settings
from gridaware.wiring.meter_reader import MeterReader, meter_order, meter_readers, open_meter

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
READING = Reading(5000.0, NOON, Boundary.SITE, Method.METER)


class Heard:
    """Keeps what came, and lets a test wait for it."""

    def __init__(self) -> None:
        self.readings: list[tuple[str, float]] = []
        self.failures: list[tuple[str, str]] = []
        self._news = threading.Condition()

    def on_meter(self, name, reading, energy, seconds) -> None:
        with self._news:
            self.readings.append((name, reading.watts))
            self._news.notify_all()

    def on_meter_failed(self, name, message) -> None:
        with self._news:
            self.failures.append((name, message))
            self._news.notify_all()

    def wait_for(self, what: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(what, 5)


@pytest.fixture
def module() -> Iterator[ModuleType]:
    made = ModuleType("meter_of_a_test")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


class Scripted:
    """A meter that does in turn what it was told; the last for ever."""

    pace_seconds = 0.001

    def __init__(self, *acts: object) -> None:
        self.acts, self.closed = list(acts), False

    def read(self):
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        if isinstance(act, BaseException):
            raise act
        return act, None

    def close(self) -> None:
        self.closed = True


def reader(heard: Heard, name: str = "main") -> MeterReader:
    clock = ManualClock(NOON)
    opens = partial(open_meter, "meter_of_a_test", {})
    return MeterReader(name, opens, clock, heard, lambda: 500.0)


def test_a_failure_is_told_and_reading_goes_on(module, caplog) -> None:
    meter = Scripted(
        READING,
        Unavailable("meter-unreachable", "no route"),
        DeviceError("meter-answer", "garbage"),
        ZeroDivisionError(),
        READING,
    )
    module.open_meter = lambda options: meter
    heard = Heard()
    thread = reader(heard)
    thread.start()
    heard.wait_for(lambda: len(heard.readings) >= 3)
    thread.stop()
    assert heard.readings[0] == ("main", 5000.0)
    assert [m for _, m in heard.failures] == ["no route", "garbage", "ZeroDivisionError"]
    assert meter.closed
    told = [record.message for record in caplog.records if "is not read" in record.message]
    assert len(told) == 1  # the first failure, until it answers again


def test_a_meter_that_is_not_there_yet_is_opened_later(module) -> None:
    tries = []

    def late(options):
        tries.append(options)
        if len(tries) < 3:
            raise Unavailable("meter-silent", "not there yet")
        return Scripted(READING)

    module.open_meter = late
    heard = Heard()
    thread = reader(heard)
    assert heard.failures == [("main", "not there yet")]
    thread.start()
    heard.wait_for(lambda: bool(heard.readings))
    thread.stop()


def test_one_meter_that_hangs_holds_up_neither_another_nor_the_end(module) -> None:
    release = threading.Event()

    class Hanging(Scripted):
        def read(self):
            release.wait(10)
            return super().read()

    heard = Heard()
    module.open_meter = lambda options: Hanging(READING)
    hung = reader(heard, "hung")
    module.open_meter = lambda options: Scripted(READING)
    well = reader(heard, "well")
    hung.start()
    well.start()
    heard.wait_for(lambda: len(heard.readings) >= 5)
    assert {name for name, _ in heard.readings} == {"well"}
    release.set()
    well.stop()
    hung.stop()


def test_a_module_that_is_no_meter_is_refused_at_the_start() -> None:
    for name in ("gridaware.devices.nowhere", "gridaware.clock"):
        with pytest.raises(ConfigError) as refused:
            open_meter(name, {})
        assert refused.value.code == "meter-module"


def test_a_map_is_one_of_ours_by_its_bare_name() -> None:
    opened = open_meter("gridaware.devices.modbus", {"host": "m", "map": "schneider-pm5000"})
    assert opened.pace_seconds == 0.2
    with pytest.raises(ConfigError) as refused:
        open_meter("gridaware.devices.modbus", {"host": "m", "map": "shneider"})
    assert refused.value.code == "meter-map"
    assert "schneider-pm5000" in refused.value.message


def test_the_sum_of_devices_needs_no_reader(module) -> None:
    module.open_meter = lambda options: Scripted(READING)
    site = {
        "meters": [
            {"name": "main", "module": "meter_of_a_test"},
            {"name": "sum", "module": "device_sum"},
        ]
    }
    settings = Settings(flags={}, file={"site": site})
    readers = meter_readers(settings, ManualClock(NOON), Heard(), lambda: 1.0)
    assert [each.name for each in readers] == ["main"]
    meter_order(settings).take("main", READING, None, 1.0)
    with pytest.raises(KeyError):
        meter_order(settings).take("sum", READING, None, 1.0)
