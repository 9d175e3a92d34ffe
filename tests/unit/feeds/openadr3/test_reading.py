"""One OpenADR 3 event: periods, repetitions, random starts, what is asked, what informs."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.domain.errors import ConfigError, InvalidInput
from gridaware.domain.signal import EventRequest, Quantity, TargetSpec
from gridaware.feeds.openadr3.advisories import advisories_of
from gridaware.feeds.openadr3.asks import asks_of
from gridaware.feeds.openadr3.payloads import Units
from gridaware.feeds.openadr3.reading import EventReading, read_event
from gridaware.feeds.openadr3.reading_settings import ReadingSettings, rules_of

DATA = Path(__file__).parents[3] / "data" / "feeds" / "openadr3"
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
Json = dict[str, Any]


def data(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def read(event: Any, *, now: datetime = NOW, settings: Json | None = None, **rest: Any) -> Any:
    return read_event(event, rules_of(ReadingSettings(**(settings or {}))), now=now, **rest)


def level(number: int, value: Any = 1, **period: str) -> Json:
    given = {"intervalPeriod": period} if period else {}
    return {"id": number, **given, "payloads": [{"type": "SIMPLE", "values": [value]}]}


def event(*intervals: Json, **keys: Any) -> Json:
    return {"id": "e1", "programID": "p", "intervals": list(intervals), **keys}


def starts(reading: EventReading) -> list[datetime]:
    return [part.start for part in reading.parts]


def asks(*readings: EventReading, now: datetime = NOW) -> dict[str, EventRequest]:
    named = {reading.event_id or "none": reading for reading in readings}
    return {key: asked.request for key, asked in asks_of(named, now).items()}


# When it holds -----------------------------------------------------------------------------------


def test_interval_i_of_a_default_period_starts_i_durations_after_the_start() -> None:
    """User case 20."""
    period = {"start": "2026-12-01T14:00:00Z", "duration": "PT15M"}
    reading = read(event(*[level(n) for n in range(96)], intervalPeriod=period))
    first = datetime(2026, 12, 1, 14, tzinfo=UTC)
    assert starts(reading) == [first + n * timedelta(minutes=15) for n in range(96)]


def test_monthly_intervals_from_the_31st_do_not_drift() -> None:
    """The third month from 31 January ends on 30 April, not on the 28th."""
    period = {"start": "2027-01-31T00:00:00Z", "duration": "P1M"}
    reading = read(event(*[level(n) for n in range(3)], intervalPeriod=period))
    ends = [part.end for part in reading.parts]
    assert ends == [datetime(2027, m, d, tzinfo=UTC) for m, d in ((2, 28), (3, 31), (4, 30))]


def test_an_event_without_intervals_asks_for_nothing_and_breaks_nothing() -> None:
    """User case 21: legal in 3.1, an error in 3.0.1."""
    for version in ("3.0.1", "3.1"):
        reading = read(data("without_intervals"), settings={"version": version})
        assert (reading.parts, reading.faults, reading.cancelled) == ((), (), False)


def test_an_event_that_asks_only_for_reports_is_live_now() -> None:
    reading = read(data("reports_alone"))
    assert not reading.cancelled
    assert (reading.start, reading.end) == (NOW, None)
    assert [request.payload_type for request in reading.requests] == ["OPERATING_STATE", "USAGE"]
    ad_hoc, forecast = reading.requests
    assert (ad_hoc.frequency, ad_hoc.report_intervals) == (0, "OPEN_INTERVALS")
    assert (forecast.interval_count, forecast.historical, forecast.repeat) == (24, False, -1)


@pytest.mark.parametrize(
    ("keys", "cancelled"),
    [
        ({}, True),
        ({"intervals": [level(0, 2)]}, True),
        ({"reportDescriptors": [{"payloadType": "USAGE"}]}, False),
        (
            {"intervals": [level(0, 2, start="2026-12-01T14:00:00Z", duration="PT1H")]},
            False,
        ),
    ],
)
def test_the_beginning_of_time_without_length_cancels_unless_something_lives_beside_it(
    keys: Json, cancelled: bool
) -> None:
    void = {"start": "0001-01-01", "duration": "PT0S"}
    assert read({"id": "e1", "intervalPeriod": void, **keys}).cancelled is cancelled


def test_a_set_point_left_in_a_window_made_to_have_no_length_is_not_held_for_ever() -> None:
    """Its sender cancelled it and left its report descriptors in."""
    void = {"start": "0001-01-01", "duration": "PT0S"}
    reports = [{"payloadType": "USAGE"}]
    reading = read(event(level(0, 3), intervalPeriod=void, reportDescriptors=reports))
    assert asks(reading) == {}
    assert len(reading.requests) == 1


def test_now_stays_when_the_event_was_heard_of_first() -> None:
    later = NOW + timedelta(minutes=20)
    reading = read(data("now_then_follow"), now=later, heard_at=NOW)
    assert starts(reading) == [NOW, NOW + timedelta(minutes=30)]
    assert all(part.immediate for part in reading.parts)


def test_an_event_in_the_middle_of_which_we_come_is_acted_on_from_there() -> None:
    reading = read(data("cut_off"), now=datetime(2026, 12, 1, 15, 10, tzinfo=UTC))
    assert list(asks(reading)) == ["short-1.1.SIMPLE", "short-1.2.SIMPLE"]


def test_an_interval_without_length_lasts_until_the_next_or_until_it_is_taken_back() -> None:
    reading = read(
        event(
            level(0, 1, start="2026-12-01T14:00:00Z"),
            level(1, 2, start="2026-12-01T16:00:00Z", duration="PT0S"),
        )
    )
    assert [part.end for part in reading.parts] == [datetime(2026, 12, 1, 16, tzinfo=UTC), None]


def test_what_follows_something_without_an_end_has_no_place() -> None:
    period = {"start": "2026-12-01T14:00:00Z", "duration": "P9999Y"}
    reading = read(event(level(0), level(1), intervalPeriod=period))
    assert len(reading.parts) == 1
    assert [fault.code for fault in reading.faults] == ["interval-follows-nothing"]


def test_a_first_interval_without_any_start_is_refused() -> None:
    reading = read(event(level(0, 1, duration="PT1H")))
    assert [fault.code for fault in reading.faults] == ["interval-no-start"]


def test_a_tariff_that_repeats_for_ever_is_unrolled_two_days_ahead() -> None:
    tariff = data("repeated") | {"duration": "P9999Y"}
    tariff["intervalPeriod"]["start"] = "2021-01-01T00:00:00Z"
    reading = read(tariff)
    first, last = reading.parts[0], reading.parts[-1]
    assert first.start == datetime(2026, 12, 1, tzinfo=UTC)
    assert last.start == datetime(2026, 12, 3, 16, tzinfo=UTC)
    days = (datetime(2026, 12, 1, tzinfo=UTC) - datetime(2021, 1, 1, tzinfo=UTC)).days
    assert first.name == f"0.r{days}.PRICE"
    later = read(tariff, now=NOW + timedelta(days=1))
    assert {part.name: part.start for part in later.parts}.items() >= {
        part.name: part.start for part in reading.parts[3:]
    }.items()


def test_a_monthly_list_repeats_by_the_calendar() -> None:
    period = {"start": "2026-01-31T00:00:00Z", "duration": "P1M"}
    now = datetime(2026, 2, 20, tzinfo=UTC)
    reading = read(event(level(0), intervalPeriod=period, duration="P1Y"), now=now)
    assert [start.date().isoformat()[5:] for start in starts(reading)][:4] == [
        "01-31", "02-28", "03-31", "04-30",
    ]  # fmt: skip
    assert len(reading.parts) == 12


@pytest.mark.parametrize("duration", ["P9999Y", "P1Y"])
def test_a_list_that_would_repeat_every_second_is_refused(duration: str) -> None:
    period = {"start": "2026-12-01T14:00:00Z", "duration": "PT1S"}
    with pytest.raises(InvalidInput) as caught:
        read(event(level(0), intervalPeriod=period, duration=duration))
    assert caught.value.code == "cycle-short"


def test_a_repetition_has_a_bounded_number_of_windows() -> None:
    period = {"start": "2026-12-01T14:00:00Z", "duration": "PT1S"}
    reading = read(event(*[level(n) for n in range(90)], intervalPeriod=period, duration="P7D"))
    assert 1000 <= len(reading.parts) <= 1100


# Random starts -----------------------------------------------------------------------------------


def test_a_random_start_goes_either_way_and_carries_along_what_follows() -> None:
    period = {"start": "2026-12-01T14:00:00Z", "duration": "PT1H", "randomizeStart": "-PT10M"}
    drawn: list[str] = []

    def draw(name: str) -> float:
        drawn.append(name)
        return -0.5

    reading = read(event(level(7), level(8), intervalPeriod=period), draw=draw)
    first = datetime(2026, 12, 1, 13, 55, tzinfo=UTC)
    assert starts(reading) == [first, first + HOUR]
    assert [part.end for part in reading.parts] == [first + HOUR, first + 2 * HOUR]
    assert drawn == ["7"], "drawn once, for the interval that names the event's"


def test_an_interval_with_a_randomisation_of_its_own_moves_by_it_and_so_do_later_ones() -> None:
    period = {"start": "2026-12-01T14:00:00Z", "duration": "PT1H", "randomizeStart": "PT10M"}
    intervals = (
        level(0),
        level(1, 1, start="2026-12-01T16:00:00Z"),
        level(2, 1, start="2026-12-01T18:00:00Z", randomizeStart="PT20M"),
        level(3),
    )
    draws = {"0": 1.0, "2": -1.0}
    reading = read(event(*intervals, intervalPeriod=period), draw=draws.__getitem__)
    assert [start.strftime("%H:%M") for start in starts(reading)] == [
        "14:10", "16:10", "17:40", "18:40",
    ]  # fmt: skip


@pytest.mark.parametrize("drawn", [float("nan"), float("inf"), -9.0, 9.0, 0.3])
def test_a_draw_never_leaves_its_range(drawn: float) -> None:
    period = {"start": "2026-12-01T14:00:00Z", "duration": "PT1H", "randomizeStart": "PT10M"}
    (start,) = starts(read(event(level(0), intervalPeriod=period), draw=lambda _: drawn))
    assert abs(start - datetime(2026, 12, 1, 14, tzinfo=UTC)) <= timedelta(minutes=10)


def test_nobody_starts_before_they_heard_of_it() -> None:
    period = {"start": "0001-01-01", "duration": "PT1H", "randomizeStart": "PT10M"}
    (start,) = starts(read(event(level(0), intervalPeriod=period), draw=lambda _: -1.0))
    assert start == NOW


# What it asks ------------------------------------------------------------------------------------


def test_levels_and_limits_become_what_the_site_is_asked() -> None:
    reading = read(data("now_for_ever") | {"priority": 0})
    assert asks(reading) == {
        "now-1.0.SIMPLE": EventRequest(
            NOW, None, TargetSpec(Quantity.REDUCTION_FRACTION, 0.25), priority=0, immediate=True
        )
    }
    limits = [ask.target for ask in asks(read(data("months"))).values()]
    assert limits == [TargetSpec(Quantity.LIMIT_WATTS, kw * 1e3) for kw in (1000, 1001, 1002)]


def test_the_levels_are_those_of_the_settings() -> None:
    levels = {"2": {"limit_kw": 750}}
    (ask,) = asks(read(data("now_for_ever"), settings={"levels": levels})).values()
    assert ask.target == TargetSpec(Quantity.LIMIT_WATTS, 750e3)
    reading = read(event(level(0, 3, start="0001-01-01")), settings={"levels": levels})
    assert [part.meaning.code for part in reading.parts] == ["payload-unmapped"]


@pytest.mark.parametrize(
    ("sign", "value", "target"),
    [
        ("positive_is_more", -150, TargetSpec(Quantity.REDUCTION_WATTS, 150e3)),
        ("positive_is_less", 150, TargetSpec(Quantity.REDUCTION_WATTS, 150e3)),
        ("positive_is_more", 150, None),
        ("positive_is_less", -150, None),
        (None, -150, None),
        ("positive_is_less", 0, None),
    ],
)
def test_a_relative_set_point_goes_the_way_that_the_settings_say(
    sign: str | None, value: float, target: TargetSpec | None
) -> None:
    """Corner case 6: the enumeration says one thing, the guide's example another."""
    (reading,) = [
        read(
            event(
                {"id": 0, "payloads": [{"type": "DISPATCH_SETPOINT_RELATIVE", "values": [value]}]},
                intervalPeriod={"start": "0001-01-01", "duration": "PT1H"},
                payloadDescriptors=[{"payloadType": "DISPATCH_SETPOINT_RELATIVE", "units": "KW"}],
            ),
            settings={"relative_sign": sign},
        )
    ]
    assert [ask.target for ask in asks(reading).values()] == ([] if target is None else [target])


def test_the_two_level_offsets_go_opposite_ways() -> None:
    settings = {
        "offset_percent_sign": "positive_is_more",
        "meanings": {"CONTROL_LEVEL_OFFSET": {"4": {"reduce_percent": 40}, "*": {"limit_kw": 0}}},
    }
    acting = asks(read(data("signs"), settings=settings))
    assert {name: ask.target.value for name, ask in acting.items()} == {
        "signs-1.2.CONTROL_LEVEL_OFFSET_PERCENT": 0.25,
        "signs-1.5.CONTROL_LEVEL_OFFSET": 0.4,
    }


def test_a_power_in_an_unknown_unit_is_refused_and_a_private_one_can_be_declared() -> None:
    """User case 15."""
    reading = read(data("units"))
    assert {part.meaning.code for part in reading.parts} == {"payload-unit"}
    declared = read(data("units"), settings={"units": {"mw": 1e6}, "default_unit": "KW"})
    assert {name: ask.target.value for name, ask in asks(declared).items()} == {
        "units-1.0.DISPATCH_SETPOINT": 2e6,
        "units-1.0.IMPORT_CAPACITY_SUBSCRIPTION": 3e6,
    }


def test_units_are_inherited_from_the_program_where_the_event_says_none() -> None:
    payload = {"type": "DISPATCH_SETPOINT", "values": [500]}
    plain = event(
        {"id": 0, "payloads": [payload]}, intervalPeriod={"start": "0001-01-01", "duration": "PT1H"}
    )
    assert asks(read(plain)) == {}
    (ask,) = asks(read(plain, program_units={"DISPATCH_SETPOINT": Units("KW")})).values()
    assert ask.target.value == 500e3


def test_a_reservation_raises_the_subscribed_capacity_while_it_lasts() -> None:
    subscription, reservation = (read(each) for each in data("capacity"))
    begin = datetime(2026, 12, 1, tzinfo=UTC)
    found = asks(subscription, reservation)
    assert {name: (ask.start, ask.end, ask.target.value) for name, ask in found.items()} == {
        "sub-1.0.IMPORT_CAPACITY_SUBSCRIPTION": (begin, begin + 14 * HOUR, 1000e3),
        "sub-1.0.IMPORT_CAPACITY_SUBSCRIPTION.c1": (begin + 14 * HOUR, begin + 16 * HOUR, 1250e3),
        "sub-1.0.IMPORT_CAPACITY_SUBSCRIPTION.c2": (begin + 16 * HOUR, None, 1000e3),
    }
    later = asks(subscription, reservation, now=begin + 15 * HOUR)
    assert list(later) == list(found)[1:], "what of it is over is asked no more"
    assert asks(reservation) == {}
    elsewhere = read(data("capacity")[1] | {"programID": "another"})
    assert [ask.target.value for ask in asks(subscription, elsewhere).values()] == [1000e3]


def test_no_alert_acts_by_its_text() -> None:
    reading = read(data("alerts"))
    assert asks(reading) == {}


@pytest.mark.parametrize(
    "value",
    [4, -1, 9, 1.5, True, False, None, "high", "", [], {}, float("nan"), float("inf"), "1e400"],
)
def test_a_level_that_is_none_never_acts(value: Any) -> None:
    """Corner case 10: the server took it."""
    reading = read(event(level(0, value, start="0001-01-01", duration="PT1H")))
    assert asks(reading) == {}
    assert [part.meaning.disposition.value for part in reading.parts] == ["refused"]


def test_names_stay_where_intervals_have_ids_and_are_dropped_from_the_front() -> None:
    reading = read(data("overrides"))
    assert list(asks(reading)) == [
        "own-1.7.SIMPLE", "own-1.5.SIMPLE", "own-1.6.SIMPLE", "own-1.4.SIMPLE",
    ]  # fmt: skip
    rest = data("overrides")
    del rest["intervals"][0]
    assert asks(read(rest)).items() <= asks(reading).items()


def test_ids_that_repeat_are_told_apart_by_place() -> None:
    period = {"start": "2026-12-01T14:00:00Z", "duration": "PT1H"}
    reading = read(event(level(0), level(0), level(0), intervalPeriod=period))
    assert list(asks(reading)) == ["e1.0.SIMPLE", "e1.p1.SIMPLE", "e1.p2.SIMPLE"]


def test_a_bad_priority_is_dropped_and_told() -> None:
    reading = read(data("bad_interval"))
    assert reading.priority is None
    assert "priority-range" in [fault.code for fault in reading.faults]
    assert read(data("now_for_ever") | {"priority": "2"}).priority == 2


def test_what_came_is_kept_for_the_ledger() -> None:
    reading = read(data("now_for_ever"))
    assert json.loads(reading.raw_text()) == data("now_for_ever")
    long = data("now_for_ever") | {"eventName": "x" * 100_000}
    assert len(read(long).raw_text()) == 64 * 1024


# What only informs -------------------------------------------------------------------------------


def test_prices_and_emissions_inform_in_the_units_of_the_site() -> None:
    reading = read(data("repeated"))
    heard = list(advisories_of(reading, "utility", "tariff-1", NOW))
    assert [(a.quantity, a.value, a.unit) for a in heard][:2] == [
        ("price_per_mwh", 210.0, "USD/MWh"), ("price_per_mwh", -10.0, "USD/MWh"),
    ]  # fmt: skip
    assert heard[0].end == datetime(2026, 12, 1, 16, tzinfo=UTC), "what is over is left out"
    carbon = [
        advisory
        for advisory in advisories_of(read(data("several_values")), "utility", "prices-1", NOW)
        if advisory.quantity == "carbon_grams_per_kwh"
    ]
    assert [(a.value, a.quality.value) for a in carbon] == [(400, "estimated"), (380, "estimated")]


def test_alerts_and_private_types_inform_by_their_text() -> None:
    alerts = list(advisories_of(read(data("alerts")), "utility", "alerts-1", NOW))
    assert {alert.quantity for alert in alerts} == {"alert"}
    assert alerts[0].text == "ALERT_GRID_EMERGENCY: shed 100 % of load now"
    private = list(advisories_of(read(data("informing")), "utility", "inform-1", NOW))
    assert "openadr_x_acme_shed" in {each.quantity for each in private}


# Settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"naive_timezone": "Mars/Olympus"}, "openadr3-timezone"),
        ({"naive_timezone": "../../etc/passwd"}, "openadr3-timezone"),
        ({"units": {"MW": 0.0}}, "openadr3-units"),
        ({"units": {"MW": -1.0}}, "openadr3-units"),
        ({"meanings": {"SIMPLE": {"1": {"limit_kw": 1}}}}, "openadr3-meanings"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: Json, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules_of(ReadingSettings(**settings))
    assert caught.value.code == code


def test_a_map_to_what_is_no_target_is_refused() -> None:
    with pytest.raises(InvalidInput):
        rules_of(ReadingSettings(levels={"1": {"reduce_percent": 140}}))
