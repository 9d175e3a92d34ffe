"""What is reported of samples, by arithmetic on constant and stepped power."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gridaware.control.ports import FeedTelemetry
from gridaware.domain.event import Clocks, EventState, GridEvent, Reference
from gridaware.domain.signal import EventRequest, Quantity, TargetSpec
from gridaware.feeds.openadr3.reading import EventReading, read_event
from gridaware.feeds.openadr3.reading_settings import ReadingSettings, rules_of
from gridaware.feeds.openadr3.reports import Due, EventReports, operating_state

NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
ALL = (
    "USAGE",
    "DEMAND",
    "BASELINE",
    "OPERATING_STATE",
    "LOAD_SHED_DELTA_AVAILABLE",
    "DATA_QUALITY",
)


def event(*kinds: str, intervals: int = 2, minutes: int = 1, **more: Any) -> EventReading:
    raw = {
        "id": "e1",
        "programID": "p",
        "intervalPeriod": {"start": "2026-11-30T14:00:00Z", "duration": f"PT{minutes}M"},
        "intervals": [
            {"id": i, "payloads": [{"type": "SIMPLE", "values": [1]}]} for i in range(intervals)
        ],
        "reportDescriptors": [{"payloadType": kind, **more} for kind in kinds],
    }
    return read_event(raw, rules_of(ReadingSettings()), now=NOW)


def grid_event(state: EventState = EventState.HOLDING, **more: Any) -> GridEvent:
    request = EventRequest(NOW, None, TargetSpec(Quantity.LIMIT_WATTS, 1.0))
    return GridEvent("f.e1", "f", "p", "e1", 0, request, state, "", NOW, NOW, Clocks(0.0), **more)


def sample(second: float, watts: float | None, **more: Any) -> FeedTelemetry:
    given = {"quality": "good" if watts is not None else "", "flexible_watts": 2e4, "act": True}
    given |= more
    return FeedTelemetry(
        at=NOW + timedelta(seconds=second),
        seconds=second,
        site_watts=watts,
        events=given.pop("events", ()),
        **given,
    )


def told(reports: EventReports, samples: Iterator[FeedTelemetry], **more: Any) -> list[Due]:
    mine = more.get("mine", ())
    return [due for each in samples for due in reports.take(each, mine)]


def values(due: Due) -> list[dict[str, object]]:
    return [{p["type"]: p["values"][0] for p in each["payloads"]} for each in due.intervals]


def test_energy_power_and_state_of_each_interval_at_the_end_of_the_last() -> None:
    mine = [grid_event(reference=Reference(120_000.0, "m", NOW, 900.0))]
    # 90 kW in the first minute, 60 kW in the second: 1.5 and 1.0 kWh.
    steps = (sample(s, 90_000.0 if s < 60 else 60_000.0) for s in range(125))
    (due,) = told(EventReports(event(*ALL), 60.0), steps, mine=mine)
    assert values(due) == [
        {
            "USAGE": pytest.approx(energy),
            "DEMAND": pytest.approx(power),
            "BASELINE": 120.0,
            "OPERATING_STATE": "RUNNING_CURTAILED",
            "LOAD_SHED_DELTA_AVAILABLE": 20.0,
            "DATA_QUALITY": "OK",
        }
        for energy, power in ((1.5, 90.0), (1.0, 60.0))
    ]
    first, second = due.intervals
    assert first["intervalPeriod"] == {"start": "2026-11-30T14:00:00Z", "duration": "PT60S"}
    assert second["intervalPeriod"]["start"] == "2026-11-30T14:01:00Z"


def test_a_missing_sample_is_said_to_be_missing_and_never_zero() -> None:
    steps = (sample(s, None if s < 60 else 60_000.0) for s in range(125))
    (due,) = told(EventReports(event("USAGE", "DEMAND", "BASELINE"), 60.0), steps)
    assert values(due) == [
        {"DATA_QUALITY": "MISSING"},
        {"USAGE": pytest.approx(1.0), "DEMAND": pytest.approx(60.0), "DATA_QUALITY": "MISSING"},
    ]


def test_a_hole_makes_energy_missing_and_power_an_estimate() -> None:
    steps = (sample(s, 90_000.0) for s in range(125) if not 10 < s < 30)
    (due,) = told(EventReports(event("USAGE", "DEMAND", "DATA_QUALITY"), 60.0), steps)
    assert values(due)[0] == {"DEMAND": pytest.approx(90.0), "DATA_QUALITY": "ESTIMATED"}
    assert values(due)[1]["USAGE"] == pytest.approx(1.5)


@pytest.mark.parametrize(("quality", "word"), [("held", "ESTIMATED"), ("suspect", "BAD")])
def test_the_quality_of_readings_is_passed_on(quality: str, word: str) -> None:
    steps = (sample(s, 90_000.0, quality=quality) for s in range(125))
    (due,) = told(EventReports(event("DEMAND", "DATA_QUALITY"), 60.0), steps)
    assert values(due)[0]["DATA_QUALITY"] == word


@pytest.mark.parametrize(
    ("reading_type", "kilowatts"), [(None, 75.0), ("PEAK", 90.0), ("MIN", 60.0)]
)
def test_demand_is_of_the_reading_type_asked_for(
    reading_type: str | None, kilowatts: float
) -> None:
    reading = event("DEMAND", intervals=1, readingType=reading_type)
    steps = (sample(s, 90_000.0 if s < 30 else 60_000.0) for s in range(65))
    (due,) = told(EventReports(reading, 60.0), steps)
    assert values(due) == [{"DEMAND": pytest.approx(kilowatts)}]


@pytest.mark.parametrize(
    ("asked", "intervals_of_reports"),
    [
        ({}, [[0, 1, 2, 3]]),
        ({"frequency": 2, "repeat": -1}, [[0, 1], [2, 3]]),
        ({"frequency": 2}, [[0, 1]]),
        ({"frequency": 1, "repeat": 3}, [[0], [1], [2]]),
        ({"frequency": 2, "repeat": -1, "numIntervals": 1}, [[1], [3]]),
        ({"startInterval": 1, "frequency": 2, "repeat": -1}, [[0, 1], [2, 3]]),
        ({"frequency": 0, "repeat": -1}, [[0], [1], [2], [3]]),
    ],
)
def test_reports_come_as_often_as_asked(
    asked: dict[str, int], intervals_of_reports: list[list[int]]
) -> None:
    reading = event("USAGE", intervals=4, **asked)
    found = told(EventReports(reading, 60.0), (sample(s, 1e4) for s in range(0, 250, 2)))
    assert [[each["id"] for each in due.intervals] for due in found] == intervals_of_reports


def test_an_open_event_is_reported_by_the_intervals_of_the_settings() -> None:
    raw = {
        "id": "live",
        "programID": "p",
        "intervalPeriod": {"start": "0001-01-01", "duration": "PT0H"},
        "reportDescriptors": [{"payloadType": "DEMAND", "repeat": -1}],
    }
    reading = read_event(raw, rules_of(ReadingSettings()), now=NOW)
    found = told(EventReports(reading, 30.0), (sample(s, 1e4) for s in range(95)))
    assert [values(due) for due in found] == [[{"DEMAND": pytest.approx(10.0)}]] * 3


@pytest.mark.parametrize("more", [{"units": "MW"}, {"historical": False}], ids=["unit", "forecast"])
def test_what_the_site_cannot_report_is_not_reported(more: dict[str, Any]) -> None:
    steps = (sample(s, 1e4) for s in range(125))
    assert told(EventReports(event("DEMAND", **more), 60.0), steps) == []


@pytest.mark.parametrize(
    ("act", "flexible", "mine", "word"),
    [
        (False, 5.0, [grid_event(EventState.ANNOUNCED)], "RUNNING_OPTED_OUT"),
        (False, 0.0, [], "IDLE_OPTED_OUT"),
        (True, 5.0, [grid_event(EventState.OPTED_OUT)], "RUNNING_OPTED_OUT"),
        (True, 0.0, [grid_event(EventState.OPTED_OUT)], "IDLE_OPTED_OUT"),
        (True, 0.0, [grid_event(EventState.HOLDING)], "RUNNING_CURTAILED"),
        (True, 5.0, [grid_event(EventState.RAMPING_DOWN)], "RUNNING_CURTAILED"),
        (True, 5.0, [grid_event(EventState.FAILED)], "ERROR"),
        (True, 5.0, [], "RUNNING_NORMAL"),
        (True, 0.0, [], "NORMAL"),
    ],
)
def test_olp_70_a_site_that_does_not_act_says_opted_out(
    act: bool, flexible: float, mine: list[GridEvent], word: str
) -> None:
    assert operating_state(sample(0, 1e4, act=act, flexible_watts=flexible), mine) == word
