"""OpenADR 3's instants and durations: every form that was seen, and what they add up to."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gridaware.domain.errors import InvalidInput
from gridaware.feeds.openadr3.times import ENDLESS, NOW, Duration, after, read_duration, read_start


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1H", 3600), ("PT0S", 0), ("P0D", 0), ("PT0H", 0), ("P1W", 604800), ("PT0.5S", 0.5),
        ("PT0,5S", 0.5), ("P0DT12H0M0S", 43200), ("PT1.5H", 5400), ("P1DT1M", 86460),
        ("P0Y0M0DT0H5M0S", 300), ("PT36H", 129600), ("p1dt2h", 93600), ("-PT0S", 0),
        ("+PT5M", 300), ("P1W2D", 777600),
    ],
)  # fmt: skip
def test_a_duration_in_every_iso_form_is_read(text: str, seconds: float) -> None:
    """User case 29."""
    assert read_duration(text, "it") == Duration(0, seconds)


@pytest.mark.parametrize(
    ("text", "months"), [("P1M", 1), ("P1Y", 12), ("P1Y6M", 18), ("P0.5Y", 6), ("P2M0D", 2)]
)
def test_months_and_years_stay_those_of_the_calendar(text: str, months: int) -> None:
    assert read_duration(text, "it") == Duration(months)


@pytest.mark.parametrize("text", ["P9999Y", "P9999YT1S", "P100Y", "P10000D", "PT999999999999S"])
def test_more_than_ten_years_has_no_end(text: str) -> None:
    assert read_duration(text, "it") == ENDLESS


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("1h", "duration-malformed"), ("P", "duration-malformed"), ("PT", "duration-malformed"),
        ("P1DT", "duration-malformed"), ("", "duration-malformed"), ("P1S", "duration-malformed"),
        ("PT1H1H", "duration-malformed"), ("P1.5M", "duration-malformed"),
        ("PT-5M", "duration-malformed"), ("P" + "9" * 200 + "Y", "duration-malformed"),
        ("PT\u0661H", "duration-malformed"),  # an Arabic digit
        ("-PT5M", "duration-negative"), (3600, "duration-type"), (None, "duration-type"),
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused(value: object, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_duration(value, "it")
    assert caught.value.code == code


def test_the_sign_of_a_randomisation_does_not_matter() -> None:
    assert read_duration("-PT5M", "it", signed=True) == Duration(0, 300)


@pytest.mark.parametrize(
    "text",
    ["0001-01-01", "0001-01-01T00:00:00", "0001-01-01T00:00:00Z", "0001-01-01 00:00:00.000Z",
     "0000-00-00", "0000-00-00T00:00:00Z"],
)  # fmt: skip
def test_the_beginning_of_time_means_now(text: str) -> None:
    assert read_start(text, "it", None) is NOW


@pytest.mark.parametrize(
    "text",
    ["2026-12-01T14:00:00Z", "2026-12-01T14:00:00.000Z", "2026-12-01 14:00:00.000Z",
     "2026-12-01t14:00z", "2026-12-01T08:00:00-06:00", "2026-12-01 08:00:00-0600",
     "2026-12-01T19:30:00+05:30", "2026-12-01T15+01", "2026-12-01T13:59:60Z"],
)  # fmt: skip
def test_an_instant_is_read_however_it_is_written(text: str) -> None:
    if text == "2026-12-01T15+01":
        with pytest.raises(InvalidInput):
            read_start(text, "it", None)
        return
    assert read_start(text, "it", None) == datetime(2026, 12, 1, 14, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("2026-12-01T14:00:00", "time-naive"), ("2026-12-01", "time-naive"),
        ("2026-02-30T00:00:00Z", "time-malformed"), ("12:21:14", "time-malformed"),
        ("now", "time-malformed"), ("2026-12-01T14:00:00+25:00", "time-malformed"),
        ("1999-12-31T00:00:00Z", "time-absurd"), ("9999-12-31T23:59:59Z", "time-absurd"),
        ("0001-01-02T00:00:00Z", "time-absurd"), ("0001-06-01T00:00:00+14:00", "time-absurd"),
        (1764597600, "time-type"),
    ],
)  # fmt: skip
def test_what_is_no_instant_is_refused(value: object, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_start(value, "it", None)
    assert caught.value.code == code


def test_a_naive_time_of_the_hour_that_comes_twice_is_the_earlier() -> None:
    """Corner case 9; Chicago puts its clock back at 07:00 UTC of 1 November 2026."""
    zone = ZoneInfo("America/Chicago")
    at = read_start("2026-11-01 01:30:00", "it", zone)
    assert isinstance(at, datetime)
    assert at.astimezone(UTC) == datetime(2026, 11, 1, 6, 30, tzinfo=UTC)


def test_a_naive_time_that_does_not_exist_lies_as_far_after_the_gap() -> None:
    zone = ZoneInfo("America/Chicago")
    at = read_start("2026-03-08 02:30:00", "it", zone)
    assert isinstance(at, datetime)
    assert at.astimezone(UTC) == datetime(2026, 3, 8, 8, 30, tzinfo=UTC)


def test_a_month_is_counted_in_the_zone_of_its_start() -> None:
    """31 January 22:00 in Chicago is 1 February in UTC; a month on is 28 February there."""
    start = read_start("2027-01-31T22:00:00-06:00", "it", None)
    assert isinstance(start, datetime)
    assert after(start, Duration(1)) == datetime(2027, 3, 1, 4, tzinfo=UTC)
    assert after(start, Duration(12)) == datetime(2028, 2, 1, 4, tzinfo=UTC)


def test_a_leap_day_has_its_year_on_the_28th() -> None:
    start = datetime(2028, 2, 29, tzinfo=UTC)
    assert after(start, Duration(12)) == datetime(2029, 2, 28, tzinfo=UTC)


def test_nothing_overflows() -> None:
    start = datetime(2199, 12, 31, tzinfo=UTC)
    assert after(start, ENDLESS) is None
    assert after(start, Duration(1)) is None
    assert after(start, Duration(0, 1e18)) is None
    assert after(start, Duration(0, 1)) == start + timedelta(seconds=1)
