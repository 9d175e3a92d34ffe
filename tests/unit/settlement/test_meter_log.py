"""Whose word a figure rests on: spans of time, warnings, and the energy of each meter."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf

import pytest

from gridaware.domain.moment import Moment
from gridaware.domain.reading import (
    Boundary,
    EnergyReading,
    Method,
    Observation,
    Quality,
    Reading,
)
from gridaware.domain.target import Overhead
from gridaware.settlement.attribution import EnergyBook
from gridaware.settlement.energy_report import energy_report
from gridaware.settlement.meter_log import MeterLog, meter_warnings, within

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MAIN = Reading(10_000.0, NOON, Boundary.SITE, Method.METER, meter="main", accuracy_share=0.005)
SUM = Reading(9_000.0, NOON, Boundary.SITE, Method.DEVICE_SUM, Quality.SUSPECT, meter="device_sum")


def at(reading: Reading, seconds: float) -> Reading:
    return replace(reading, at=NOON + timedelta(seconds=seconds))


def test_each_change_of_meter_starts_a_span() -> None:
    log = MeterLog()
    for second, reading in enumerate([MAIN, MAIN, SUM, SUM, MAIN]):
        log.note(at(reading, second))
    noon = NOON.timestamp()
    assert [(s.start, s.end, s.meter) for s in log.spans] == [
        (-inf, noon + 2, "main"),
        (noon + 2, noon + 4, "device_sum"),
        (noon + 4, inf, "main"),
    ]
    cut = within(log.spans, noon + 1, noon + 3.5)
    assert [(s.start, s.end, s.meter) for s in cut] == [
        (noon + 1, noon + 2, "main"),
        (noon + 2, noon + 3.5, "device_sum"),
    ]
    log.forget_before(noon + 3)
    assert [s.meter for s in log.spans] == ["device_sum", "main"]


@pytest.mark.parametrize(
    ("used", "warnings"),
    [
        ([("main", "meter")], ()),
        ([("", "device_sum")], ("meter-is-device-sum",)),
        ([("main", "meter"), ("backup", "meter")], ("meter-changed",)),
        (
            [("main", "meter"), ("device_sum", "device_sum")],
            ("meter-changed", "meter-part-device-sum"),
        ),
        ([], ()),
    ],
)
def test_what_a_reader_should_know_of_the_meters(used, warnings) -> None:
    assert meter_warnings(used) == warnings


def test_the_energy_of_a_period_says_which_meter_was_read_for_how_long() -> None:
    book = EnergyBook(Overhead())
    counter = 0.0

    def second(number: int, reading: Reading) -> None:
        nonlocal counter
        counter += 10_000.0
        energy = None
        if reading.meter == "main":
            energy = EnergyReading(counter, "main/boot", NOON, Boundary.SITE)
        moment = Moment(float(number), NOON + timedelta(seconds=number))
        book.add(Observation(moment, at(reading, number), (), meter_joules=energy), ())

    second(0, MAIN)
    begun = book.snapshot()
    for number in range(1, 61):
        second(number, SUM if 20 < number <= 35 else MAIN)
    report = energy_report(begun, book.snapshot())
    assert [(use.meter, use.method, use.seconds) for use in report.meters] == [
        ("main", "meter", 45.0),
        ("device_sum", "device_sum", 15.0),
    ]
    assert (report.meter_method, report.boundary) == ("mixed", "site")
    assert {"meter-changed", "meter-part-device-sum"} <= set(report.warnings)
    # the counter ran on unseen, and gives back what the sum of devices had missed
    assert report.meter.joules == pytest.approx(600_000.0, rel=1e-6)
    before = book.snapshot()
    second(61, MAIN)
    alone = energy_report(before, book.snapshot())
    assert (alone.meter_method, [use.meter for use in alone.meters]) == ("meter", ["main"])
