"""Obligation hours in local time, through both changes of the clock, and caps that are counted.

The instants are worked by hand from the rules of the zones: in 2026 the clocks of Los Angeles and
New York go forward on 8 March and back on 1 November, those of London on 29 March and 25 October.
"""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridaware.domain.errors import InvalidInput
from gridaware.domain.obligation import Cap, Obligation, Window, cap_use

EVENINGS = Obligation.of("America/Los_Angeles", ["May-Oct 16:00-21:00"])


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("at", "inside"),
    [
        ("2026-07-01T22:59", False),  # 15:59 in summer time, UTC-7
        ("2026-07-01T23:00", True),
        ("2026-07-02T03:59", True),
        ("2026-07-02T04:00", False),
        ("2026-05-01T00:00", False),  # still 30 April there, out of season
        ("2026-05-02T00:00", True),
        ("2026-11-01T00:00", True),  # 31 October, 17:00
        ("2026-11-02T01:00", False),  # 1 November, 17:00 in winter time
    ],
)
def test_hours_are_those_of_the_wall_in_season(at: str, inside: bool) -> None:
    assert EVENINGS.covers(utc(at)) is inside


def test_the_hours_move_in_utc_when_the_clock_changes() -> None:
    all_year = Obligation.of("America/New_York", ["16:00-21:00"])
    assert all_year.covers(utc("2026-03-07T21:00"))  # the day before: UTC-5
    assert not all_year.covers(utc("2026-03-07T20:00"))
    assert all_year.covers(utc("2026-03-08T20:00"))  # the day of the change: UTC-4
    assert not all_year.covers(utc("2026-03-09T01:00"))


def lengths(zone: str, window: str, start: str, end: str) -> list[float]:
    spans = Obligation.of(zone, [window]).spans(utc(start), utc(end))
    return [(b - a) / timedelta(hours=1) for a, b in spans if utc(start) <= a < utc(end)]


def test_an_hour_that_comes_twice_counts_twice_and_one_that_is_left_out_not_at_all() -> None:
    night = "00:30-01:30"
    assert lengths("Europe/London", night, "2026-10-24T23:00", "2026-10-25T12:00") == [2.0]
    assert lengths("Europe/London", night, "2026-10-25T23:00", "2026-10-26T12:00") == [1.0]
    gone = "01:00-02:00"
    assert lengths("Europe/London", gone, "2026-03-29T00:00", "2026-03-29T12:00") == [0.0]
    day = "all hours"
    assert lengths("Europe/London", day, "2026-03-28T12:00", "2026-03-29T12:00") == [23.0]
    assert lengths("Europe/London", day, "2026-10-24T12:00", "2026-10-25T12:00") == [25.0]


def test_a_window_past_midnight_belongs_to_the_day_it_began_on() -> None:
    friday = Obligation.of("UTC", ["Fri 22:00-06:00"])
    assert friday.covers(utc("2026-07-03T22:00"))  # a Friday
    assert friday.covers(utc("2026-07-04T05:59"))
    assert not friday.covers(utc("2026-07-04T06:00"))
    assert not friday.covers(utc("2026-07-03T05:00"))
    assert not friday.covers(utc("2026-07-04T22:00"))


def test_an_event_is_owed_if_any_of_it_lies_within_the_hours() -> None:
    assert EVENINGS.reaches(utc("2026-07-01T20:00"), utc("2026-07-01T23:00:01"))
    assert not EVENINGS.reaches(utc("2026-07-01T20:00"), utc("2026-07-01T23:00"))
    assert not EVENINGS.reaches(utc("2026-07-02T04:00"), utc("2026-07-02T06:00"))
    assert not EVENINGS.reaches(utc("2026-12-01T00:00"), utc("2026-12-02T00:00"))
    assert EVENINGS.reaches(utc("2026-12-01T00:00"), None)  # it gets there
    assert EVENINGS.reaches(utc("2026-07-01T20:00"), utc("2035-01-01T00:00"))


@given(
    st.integers(0, 2 * 365 * 86400),
    st.integers(0, 1439),
    st.integers(1, 1440),
)
def test_in_a_zone_without_changes_the_clock_on_the_wall_decides(
    second: int, start: int, end: int
) -> None:
    """Held against plain arithmetic of minutes."""
    hours = Obligation("UTC", (Window(start, end),))
    minute = second % 86400 / 60
    expected = start <= minute < end if end > start else minute >= start or minute < end
    assert hours.covers(utc("2026-01-01T00:00") + timedelta(seconds=second)) is expected


@pytest.mark.parametrize(
    "text",
    ["May-Oct Mon-Fri 16:00-21:00", "all hours", "Dec-Mar", "Mon,Wed 00:00-06:30", "22:00-06:00"],
)
def test_a_window_reads_back_as_it_was_written(text: str) -> None:
    assert str(Window.of(text)) == text


@pytest.mark.parametrize(
    "text", ["", "16-21", "16:00-25:00", "Foo", "Mon-", "16:00-16:00", "24:00-01:00", "Mon May Tue"]
)
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Window.of(text)
    assert refused.value.code == "obligation-hours"


def test_hours_are_counted_in_the_season_that_holds_the_day() -> None:
    cap = Cap.of("24 hours per season Dec-Mar")
    held = [
        (utc("2026-11-30T22:00"), utc("2026-12-01T08:00")),  # 10 h, 2 of them in December there
        (utc("2027-01-10T12:00"), utc("2027-01-10T15:00")),
        (utc("2027-03-31T20:00"), None),  # goes on
    ]
    use = cap_use(cap, held, utc("2027-03-31T22:30"), "America/Chicago")
    assert use is not None
    assert (use.start, use.end) == (utc("2026-12-01T06:00"), utc("2027-04-01T05:00"))
    assert use.used == pytest.approx(2.0 + 3.0 + 2.5)
    assert use.left == pytest.approx(16.5)
    assert cap_use(cap, held, utc("2027-05-01T12:00"), "America/Chicago") is None


def test_events_are_counted_where_they_began() -> None:
    cap = Cap.of("10 events per month")
    held = [(utc(f"2026-06-{day:02}T12:00"), utc(f"2026-06-{day:02}T13:00")) for day in (1, 2, 30)]
    held.append((utc("2026-07-01T01:00"), utc("2026-07-01T02:00")))  # 30 June in Los Angeles
    june = cap_use(cap, held, utc("2026-06-30T23:00"), "America/Los_Angeles")
    july = cap_use(cap, held, utc("2026-07-02T12:00"), "America/Los_Angeles")
    assert june is not None
    assert july is not None
    assert (june.used, july.used) == (3, 0)  # the last has not begun at the time of asking
    assert cap_use(cap, held, utc("2026-07-01T03:00"), "America/Los_Angeles").used == 4  # type: ignore[union-attr]


def test_a_cap_on_some_months_of_a_year_counts_those_alone() -> None:
    cap = Cap.of("60 hours per year Jun-Sep")
    held = [(utc("2026-05-31T22:00"), utc("2026-06-01T03:00"))]
    use = cap_use(cap, held, utc("2026-08-01T00:00"), "UTC")
    assert use is not None
    assert use.used == pytest.approx(3.0)


def test_days_and_weeks_begin_at_local_midnight_on_their_first_day() -> None:
    at = utc("2026-07-01T12:00")  # a Wednesday
    assert Cap.of("1 event per day").period(at, "America/Los_Angeles") == (
        utc("2026-07-01T07:00"), utc("2026-07-02T07:00"),
    )  # fmt: skip
    assert Cap.of("2 events per week").period(at, "UTC") == (
        utc("2026-06-29T00:00"), utc("2026-07-06T00:00"),
    )  # fmt: skip
    assert Cap.of("60 hours per year").period(at, "UTC") == (
        utc("2026-01-01T00:00"), utc("2027-01-01T00:00"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["60 hours", "x events per day", "12 hours per season", "1 h per day"]
)
def test_what_is_no_cap_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Cap.of(text)
    assert refused.value.code == "programme-cap"


def test_a_cap_reads_back_as_it_was_written() -> None:
    for text in ("1 event per day", "12 hours per season Apr-May", "60 hours per year"):
        assert str(Cap.of(text)) == text
