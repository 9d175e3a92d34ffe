"""Recurring windows through the clock changes of Chicago and London.

The instants are worked out by hand from the rules in force in 2026: Chicago goes to UTC-5 on 8
March at 08:00Z and back to UTC-6 on 1 November at 07:00Z; London goes to UTC+1 on 29 March at
01:00Z and back on 25 October at 01:00Z.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import ConfigError, GridawareError
from gridaware.domain.signal import Quantity, TargetSpec
from gridaware.feeds.schedule import Window, crontab, first_instant, occurrences

CHICAGO, LONDON = "America/Chicago", "Europe/London"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def window(cron: str, **end: str) -> Window:
    return Window(name="peak", cron=cron, target={"reduce_percent": 40.0}, **end)


def found(win: Window, zone: str, day: str, days: int = 1) -> list[tuple[str, str]]:
    """Windows that start on the days from ``day`` (UTC), as text."""
    now = at(day)
    pairs = occurrences(win, ZoneInfo(zone), now, now + timedelta(days=days))
    return [
        (f"{start:%d %H:%M}", f"{end:%d %H:%M}")
        for start, end in pairs
        if now <= start < now + timedelta(days=days)
    ]


@pytest.mark.parametrize(
    ("zone", "day", "cron", "end", "expected"),
    [
        # An ordinary winter day: 14:00 to 18:00 in Chicago is UTC-6.
        (CHICAGO, "2026-01-15", "0 14 * * *", {"until": "18:00"}, [("15 20:00", "16 00:00")]),
        (CHICAGO, "2026-07-15", "0 14 * * *", {"until": "18:00"}, [("15 19:00", "15 23:00")]),
        # Spring: 02:00 to 03:00 does not exist. A start in it is the jump, 08:00Z.
        (CHICAGO, "2026-03-08", "30 2 * * *", {"until": "04:00"}, [("08 08:00", "08 09:00")]),
        (CHICAGO, "2026-03-08", "30 2 * * *", {"duration": "PT2H"}, [("08 08:00", "08 10:00")]),
        (CHICAGO, "2026-03-08", "0 1 * * *", {"until": "02:30"}, [("08 07:00", "08 08:00")]),
        (CHICAGO, "2026-03-08", "10 2 * * *", {"until": "02:50"}, []),
        (CHICAGO, "2026-03-08", "0 1 * * *", {"until": "04:00"}, [("08 07:00", "08 09:00")]),
        (CHICAGO, "2026-03-08", "0 1 * * *", {"duration": "PT3H"}, [("08 07:00", "08 10:00")]),
        # Four starts of the skipped hour are one instant, hence one window.
        (CHICAGO, "2026-03-08", "*/15 2 * * *", {"duration": "PT1H"}, [("08 08:00", "08 09:00")]),
        # Autumn: 01:00 to 02:00 comes twice. A start or an end in it is the first.
        (CHICAGO, "2026-11-01", "30 1 * * *", {"until": "04:00"}, [("01 06:30", "01 10:00")]),
        (CHICAGO, "2026-11-01", "30 1 * * *", {"duration": "PT2H"}, [("01 06:30", "01 08:30")]),
        (CHICAGO, "2026-11-01", "0 1 * * *", {"until": "01:30"}, [("01 06:00", "01 06:30")]),
        (CHICAGO, "2026-11-01", "0 0 * * *", {"until": "00:00"}, [("01 05:00", "02 06:00")]),
        (LONDON, "2026-03-29", "30 1 * * *", {"until": "03:00"}, [("29 01:00", "29 02:00")]),
        (LONDON, "2026-03-29", "30 1 * * *", {"duration": "PT1H"}, [("29 01:00", "29 02:00")]),
        (LONDON, "2026-03-29", "0 1 * * *", {"until": "01:45"}, []),
        (LONDON, "2026-10-25", "30 1 * * *", {"until": "02:30"}, [("25 00:30", "25 02:30")]),
        (LONDON, "2026-10-25", "30 1 * * *", {"duration": "PT1H"}, [("25 00:30", "25 01:30")]),
        (LONDON, "2026-10-25", "0 16 * * *", {"until": "19:00"}, [("25 16:00", "25 19:00")]),
    ],
)
def test_windows_keep_their_wall_hours_or_their_length(
    zone: str, day: str, cron: str, end: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    assert found(window(cron, **end), zone, day) == expected


@pytest.mark.parametrize("zone", [CHICAGO, LONDON, "Australia/Lord_Howe", "Asia/Kathmandu"])
def test_a_wall_time_is_the_first_instant_that_shows_or_passes_it(zone: str) -> None:
    # Held against a search minute by minute over days with and without a change.
    tz = ZoneInfo(zone)
    for month, day in ((3, 8), (3, 29), (4, 5), (10, 4), (10, 25), (11, 1), (6, 1)):
        minute = datetime(2026, month, day, tzinfo=UTC) - timedelta(hours=20)
        highest = minute.astimezone(tz).replace(tzinfo=None)
        for _ in range(60 * 44):
            minute += timedelta(minutes=1)
            shown = minute.astimezone(tz).replace(tzinfo=None)
            while highest < shown:
                highest += timedelta(minutes=1)
                if highest.minute % 15 == 0:
                    assert first_instant(highest, tz) == minute


def test_a_season_has_one_window_a_day_whatever_the_clocks_do() -> None:
    for zone in (CHICAGO, LONDON):
        pairs = found(window("30 1 * * *", duration="PT1H"), zone, "2026-01-01", days=365)
        assert len(pairs) == 365


def test_weekdays_are_those_of_crontab() -> None:
    # 30 November 2026 is a Monday.
    days = found(window("0 12 * * 1-5", duration="PT1H"), "UTC", "2026-11-29", days=8)
    assert [start[:2] for start, _ in days] == ["30", "01", "02", "03", "04"]
    assert crontab_days("0 12 * * 0") == crontab_days("0 12 * * 7") == crontab_days("0 12 * * SUN")
    assert crontab_days("0 12 * * sun") == ["29", "06"]
    assert crontab_days("0 12 * * fri-mon/2") == ["29", "04", "06"]
    assert crontab_days("0 12 * * */2") == ["29", "01", "03", "05", "06"]


def crontab_days(cron: str) -> list[str]:
    pairs = found(window(cron, duration="PT1H"), "UTC", "2026-11-29", days=8)
    return [start[:2] for start, _ in pairs]


@pytest.mark.parametrize(
    ("cron", "code"),
    [
        ("* * * *", "cron-malformed"),
        ("0 25 * * *", "cron-malformed"),
        ("0 12 * * 8", "cron-malformed"),
        ("0 12 * * mon-", "cron-malformed"),
        ("0 12 * * *-5", "cron-malformed"),
        ("@daily", "cron-malformed"),
        ("0 12 1 * mon", "cron-day-ambiguous"),
        ("0 12 30 2 *", "cron-never"),
    ],
)
def test_cron_fields_without_one_clear_meaning_are_refused(cron: str, code: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        crontab(cron)
    assert refusal.value.code == code


def settings(**changes: object) -> dict[str, object]:
    win = {
        "name": "peak",
        "cron": "0 14 * * *",
        "until": "18:00",
        "target": {"limit_kw": 12},
        "priority": 2,
    }
    return {"timezone": CHICAGO, "windows": [{**win, **changes}]}


def test_each_occurrence_has_one_id_at_every_poll(
    opened: Callable[..., Any], clock: ManualClock
) -> None:
    # 14:00Z is 08:00 in Chicago: two days ahead lie two windows.
    feed = opened("schedule", **settings())
    first = feed.poll()
    assert [signal.source_id for signal in first] == [
        "peak-2026-11-30T20:00Z",
        "peak-2026-12-01T20:00Z",
    ]
    assert first[0].request.target == TargetSpec(Quantity.LIMIT_WATTS, 12_000.0)
    assert (first[0].request.end - first[0].request.start) == timedelta(hours=4)
    assert first[0].received_at == clock.wall()
    clock.advance(8 * 3600)  # the first is under way: a restart must find it again
    again = opened("schedule", **settings()).poll()
    assert [s.source_id for s in again[:2]] == [s.source_id for s in first]
    assert [s.request for s in again[:2]] == [s.request for s in first]
    clock.advance(2 * 3600)  # 18:00 in Chicago: over
    assert [s.source_id for s in feed.poll()] == [
        "peak-2026-12-01T20:00Z",
        "peak-2026-12-02T20:00Z",
    ]


def test_a_flood_of_windows_is_cut_to_the_next_ones(opened: Callable[..., Any]) -> None:
    feed = opened("schedule", **settings(cron="* * * * *", until=None, duration="PT1M"))
    signals = feed.poll()
    assert len(signals) == 2000
    assert signals[0].source_id == "peak-2026-11-30T14:00Z"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"until": None}, "feed-settings-invalid"),
        ({"duration": "PT1H"}, "feed-settings-invalid"),
        ({"until": "25:00"}, "feed-settings-invalid"),
        ({"name": "a name"}, "feed-settings-invalid"),
        ({"revision": True}, "feed-settings-invalid"),
        ({"untill": "18:00"}, "feed-settings-invalid"),
        ({"until": None, "duration": "P1M"}, "duration-calendar"),
        ({"until": None, "duration": "P32D"}, "window-too-long"),
        ({"target": {"limit_w": 1}}, "target-key-unknown"),
        ({"target": {"reduce_percent": 140}}, "target-percent-range"),
        ({"target": {"limit_kw": 1, "reduce_kw": 1}}, "target-count"),
        ({"cron": "0 14 31 2 *"}, "cron-never"),
    ],
)
def test_a_window_that_means_nothing_is_refused_when_it_is_registered(
    opened: Callable[..., Any], changes: dict[str, object], code: str
) -> None:
    with pytest.raises(GridawareError) as refusal:
        opened("schedule", **settings(**changes))
    assert refusal.value.code == code


def test_zones_and_names_are_checked(opened: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"timezone: .*not a time zone"):
        opened("schedule", **{**settings(), "timezone": "Mars/Olympus"})
    with pytest.raises(ConfigError, match="not a time zone"):
        opened("schedule", **{**settings(), "timezone": "../../etc/passwd"})
    twice = settings()
    twice["windows"] = [*twice["windows"], *twice["windows"]]  # type: ignore[misc]
    with pytest.raises(ConfigError, match="same name"):
        opened("schedule", **twice)
