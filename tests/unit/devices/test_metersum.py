"""Meters that enclose the site together."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gridaware.devices.metersum import SumMeter
from gridaware.domain.errors import Unavailable
from gridaware.domain.reading import Boundary, EnergyReading, Method, Quality, Reading

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
A = Reading(60_000.0, NOON, Boundary.SITE, Method.METER, accuracy_share=0.005)
B = Reading(
    20_000.0, NOON - timedelta(seconds=2), Boundary.SITE, Method.METER, age_seconds=2.0,
    accuracy_share=0.01,
)  # fmt: skip


class Part:
    """Says what it is told; waits for the other where both must be asked at once."""

    pace_seconds = 0.5

    def __init__(self, said, joules=None, together: threading.Barrier | None = None) -> None:
        self.said, self.joules, self.together, self.closed = said, joules, together, False

    def read(self):
        if self.together is not None:
            self.together.wait(5)
        if isinstance(self.said, Exception):
            raise self.said
        counter = None if self.joules is None else EnergyReading(self.joules, "e", NOON)
        return self.said, counter

    def close(self) -> None:
        self.closed = True


def test_two_feeds_are_one_meter_as_old_as_the_older_and_as_sure_as_both() -> None:
    both = threading.Barrier(2)
    parts = [Part(A, 5e9, both), Part(B, 2e9, both)]
    meter = SumMeter(parts)
    reading, energy = meter.read()
    assert (reading.watts, reading.at, reading.age_seconds) == (80_000.0, B.at, 2.0)
    assert reading.accuracy_share == pytest.approx((0.005 * 60 + 0.01 * 20) / 80)
    assert (reading.boundary, reading.quality) == (Boundary.SITE, Quality.GOOD)
    assert (energy.joules, energy.epoch) == (7e9, "e+e")
    meter.close()
    assert [part.closed for part in parts] == [True, True]


def test_a_sum_with_a_part_missing_is_no_sum() -> None:
    gone = Unavailable("meter-unreachable", "feed-b: no route")
    with pytest.raises(Unavailable, match="feed-b"):
        SumMeter([Part(A), Part(gone)]).read()


def test_what_only_one_part_knows_the_sum_does_not() -> None:
    unsure = replace(B, accuracy_share=None, boundary=Boundary.NODE, quality=Quality.HELD)
    reading, energy = SumMeter([Part(A, 1.0), Part(unsure)]).read()
    assert (reading.accuracy_share, reading.quality, energy) == (None, Quality.HELD, None)
    assert reading.boundary is Boundary.NODE
