"""Series, tables and tariffs: what is read, what is left out, and what clocks do to them."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import ValidationError

from gridaware.domain.advisory import AdvisoryQuality
from gridaware.domain.errors import InvalidInput
from gridaware.feeds.series import Beliefs, Point, tidy
from gridaware.feeds.table import Columns, Table, read_table
from gridaware.feeds.tariff import Tariff, tariff_series
from gridaware.feeds.threshold import Threshold, spans

SHARED = Path(__file__).parents[3].parent / "shared" / "data"

NOON = datetime(2026, 7, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
PUBLISHED = AdvisoryQuality.PUBLISHED


def columns(**more: object) -> Columns:
    return Columns.model_validate_json(json.dumps({"start": "t", "value": "p", **more}))


def read(document: object, near: datetime = NOON, **more: object) -> Table:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_table(body, columns(**more), PUBLISHED, near)


def shown(points: list[Point]) -> list[tuple[str, float, float]]:
    return [
        (f"{p.start:%d %H:%M}", (p.end - p.start).total_seconds() / 60, p.value) for p in points
    ]


# Series ---------------------------------------------------------------------------------------


def test_rows_are_put_in_order_without_doubles_and_overlaps() -> None:
    def point(start: float, end: float, value: float) -> Point:
        return Point(NOON + start * HOUR, NOON + end * HOUR, value, PUBLISHED)

    given = [point(2, 3, 5), point(0, 1.5, 1), point(1, 2, 2), point(1, 2, 3), point(4, 4, 9)]
    assert tidy(given) == [point(0, 1, 1), point(1, 2, 3), point(2, 3, 5)]


def test_case_27_a_false_value_now_and_then_is_passed_over_and_a_true_leap_is_not() -> None:
    beliefs, taken = Beliefs(), []
    for value in [400, 410, 405, 45, 398, 402, 45, 405, 120, 125, 130]:
        beliefs, good = beliefs.take(value)
        if good:
            taken.append(value)
    assert taken == [400, 410, 405, 398, 402, 405, 125, 130]


# Tables ---------------------------------------------------------------------------------------


def test_json_rows_of_objects_of_lists_and_columns_beside_one_another_are_the_same() -> None:
    times = ["2026-07-30T12:00Z", "2026-07-30T13:00:00+00:00", "2026-07-30 16:00+02:00"]
    prices = [10, "1,020.5", -3]
    objects = [{"t": t, "p": p} for t, p in zip(times, prices, strict=True)]
    one = read(objects)
    assert shown(one.points) == [
        ("30 12:00", 60, 10.0), ("30 13:00", 60, 1020.5), ("30 14:00", 60, -3.0)
    ]  # fmt: skip
    assert read({"data": {"rows": objects}}, rows="data.rows") == one
    assert read(list(zip(times, prices, strict=True)), start="0", value="1") == one
    assert read({"t": times, "p": prices}) == one
    epochs = [1785412800, 1785416400.0, "1785420000000"]
    assert read({"t": epochs, "p": prices}).points == one.points


def test_csv_in_local_time_reads_the_hour_that_comes_twice_twice() -> None:
    rows = ["t;p"] + [f"2026-10-25 {h:02}:00;{n}" for n, h in enumerate((1, 2, 2, 3))]
    table = read(
        "\r\n".join(rows).encode(), datetime(2026, 10, 24, 12, tzinfo=UTC), format="csv",
        delimiter=";", timezone="Europe/Berlin",
    )  # fmt: skip
    assert shown(table.points) == [
        ("24 23:00", 60, 0.0), ("25 00:00", 60, 1.0), ("25 01:00", 60, 2.0), ("25 02:00", 60, 3.0)
    ]  # fmt: skip


def test_case_26_a_day_of_25_hours_and_rows_of_no_length() -> None:
    """ERCOT's files have a second 01:00 in November, doubles, and rows of no length."""
    hours = [0, 1, 1, 2, 2, *range(3, 24)]  # 02:00 twice in the file: one is a double
    rows = [{"t": f"2026-11-01 {h:02}:00:00", "p": h} for h in hours]
    near = datetime(2026, 11, 1, tzinfo=UTC)
    table = read(rows, near, timezone="America/Chicago")
    starts = [point.start for point in table.points]
    assert len(starts) == 25
    assert starts[0] == datetime(2026, 11, 1, 5, tzinfo=UTC)
    assert {b - a for a, b in pairwise(starts)} == {HOUR}
    empty = [{"t": "2026-11-01T01:00Z", "e": "2026-11-01T01:00Z", "p": 9}]
    full = [{"t": "2026-11-01T02:00Z", "e": "2026-11-01T02:30Z", "p": 7}]
    assert shown(read(empty + full, end="e").points) == [("01 02:00", 30, 7.0)]


@pytest.mark.parametrize(
    "row",
    [
        {"t": "2026-07-30T12:00Z", "p": float("nan")},
        {"t": "2026-07-30T12:00Z", "p": float("inf")},
        {"t": "2026-07-30T12:00Z", "p": "1e5"},
        {"t": "2026-07-30T12:00Z", "p": True},
        {"t": "2026-07-30T12:00Z", "p": {"x": 1}},
        {"t": "2026-07-30T12:00", "p": 1},
        {"t": "12:00", "p": 1},
        {"t": None, "p": 1},
        {"t": 1e30, "p": 1},
        {"t": "9999-12-31T23:59-14:00", "p": 1},
        {"t": "2026-13-40T12:00Z", "p": 1},
        {"p": 1},
    ],
)
def test_a_bad_row_is_refused_alone(row) -> None:
    good = {"t": "2026-07-30T13:00Z", "p": 5}
    table = read([row, good])
    assert shown(table.points) == [("30 13:00", 60, 5.0)]
    (refused,) = table.refused
    assert (refused.where, bool(refused.reason)) == ("row 1", True)


def test_a_row_without_a_value_yet_is_no_fault() -> None:
    table = read([{"t": "2026-07-30T12:00Z", "p": None}, {"t": "2026-07-30T13:00Z", "p": 5}])
    assert (len(table.points), table.refused) == (1, ())


@pytest.mark.parametrize(
    ("document", "more", "code"),
    [
        (b"<html>", {}, "table-shape"),
        (b"\xff\xfe", {}, "table-shape"),
        (b"[" * 100_000, {}, "table-shape"),
        ({"a": 1}, {"rows": "b"}, "table-shape"),
        ({"t": [1, 2], "p": [1]}, {}, "table-shape"),
        ({"t": 1, "p": 2}, {}, "table-shape"),
        ([], {}, "table-empty"),
        ([{"t": "x", "p": "y"}], {}, "table-empty"),
        (b"a,b\n1,2\n", {"format": "csv"}, "table-shape"),
        (b"", {"format": "csv"}, "table-shape"),
        (b't,p\n"2026,1\n', {"format": "csv"}, "table-shape"),
    ],
)
def test_a_document_that_is_no_series_says_why(document, more, code) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(document, **more)
    assert refused.value.code == code


def test_rows_last_as_long_as_most_do_or_as_is_said_and_what_is_missing_is_a_gap() -> None:
    rows = [{"t": f"2026-07-30T{t}Z", "p": 1} for t in ("12:00", "12:15", "13:00")]
    assert [p[1] for p in shown(read(rows).points)] == [15, 15, 15]
    rows[1]["p"] = "garbled"
    more = [{"t": f"2026-07-30T{t}Z", "p": 1} for t in ("13:15", "13:30")]
    assert [p[1] for p in shown(read(rows + more).points)] == [15, 15, 15, 15]
    rows[1]["p"] = 1
    assert [p[1] for p in shown(read(rows, minutes=15).points)] == [15, 15, 15]
    assert [p[2] for p in shown(read(rows, factor=1000).points)] == [1000, 1000, 1000]


ERCOT = {
    "format": "csv", "start": "DeliveryDate", "hour_ending": "HourEnding",
    "value": "SettlementPointPrice", "where": {"SettlementPoint": "HB_SOUTH"},
    "timezone": "America/Chicago",
}  # fmt: skip


def ercot(rows: list[tuple[str, str, str, str]]) -> bytes:
    head = "DeliveryDate,HourEnding,SettlementPoint,SettlementPointPrice,DSTFlag"
    return "\n".join([head, *(",".join((*row, "N")) for row in rows)]).encode()


def test_case_26_a_day_and_the_hour_that_ends_of_one_place_among_many() -> None:
    """03/14/2027 has 23 hours in Texas, of which the file has no 03:00; 25 is an hour of none."""
    endings = [f"{h:02}:00" for h in range(1, 25) if h != 3]
    rows = [("03/14/2027", e, place, f"{n}.5")
            for n, e in enumerate(endings) for place in ("HB_NORTH", "HB_SOUTH")]  # fmt: skip
    body = ercot([*rows, ("03/14/2027", "25:00", "HB_SOUTH", "9")])
    table = read(body, datetime(2027, 3, 14, tzinfo=UTC), **ERCOT)
    assert [p.value for p in table.points] == [n + 0.5 for n in range(23)]
    assert table.points[0].start == datetime(2027, 3, 14, 6, tzinfo=UTC)
    assert table.points[-1].end == datetime(2027, 3, 15, 5, tzinfo=UTC)
    assert {p.end - p.start for p in table.points} == {HOUR}
    assert [(part.where, part.code) for part in table.refused] == [("row 47", "table-row")]


def test_case_26_a_skipped_hour_is_refused_and_one_that_comes_twice_is_two() -> None:
    spring = ercot([("03/14/2027", f"{h:02}:00", "HB_SOUTH", "1") for h in (2, 3, 4)])
    table = read(spring, datetime(2027, 3, 14, tzinfo=UTC), **ERCOT)
    assert [part.where for part in table.refused] == ["row 2"]
    assert shown(table.points) == [("14 07:00", 60, 1.0), ("14 08:00", 60, 1.0)]
    hours = [1, 2, 2, *range(3, 25)]
    autumn = ercot([("11/01/2026", f"{h:02}:00", "HB_SOUTH", str(n)) for n, h in enumerate(hours)])
    table = read(autumn, datetime(2026, 11, 1, tzinfo=UTC), **ERCOT)
    assert [p.value for p in table.points] == list(range(25))
    assert table.points[-1].end == datetime(2026, 11, 2, 6, tzinfo=UTC)


@pytest.mark.parametrize("wrong", [{"timezone": None}, {"end": "e"}, {"factor": 0}])
def test_columns_that_make_no_sense_are_refused(wrong) -> None:
    with pytest.raises(ValidationError):
        columns(**{**ERCOT, **wrong})


def test_more_rows_than_a_year_has_are_cut_off() -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    table = read([{"t": first + 900 * n, "p": n} for n in range(36_005)])
    assert len(table.points) == 36_000
    assert table.refused[-1].code == "table-too-long"


def test_real_prices_of_texas_are_worth_what_is_published_of_them() -> None:
    """1 MW not drawn from 19:00 to 21:00 on 20 August 2024 was worth $4,732.24 in real time."""
    path = SHARED / "ercot_price" / "ercot_hb_south_15min_2024-06_2025-03.csv"
    if not path.is_file():
        pytest.skip("ERCOT's prices (../shared/data/ercot_price) are not here")
    texas = {"format": "csv", "start": "ts_local", "timezone": "America/Chicago"}
    body, near = path.read_bytes(), datetime(2024, 6, 1, tzinfo=UTC)
    table = read_table(body, columns(**texas, value="HB_SOUTH_RTM"), PUBLISHED, near)
    begin = datetime(2024, 8, 21, tzinfo=UTC)
    worth = sum(
        p.value * ((p.end - p.start) / HOUR)
        for p in table.points
        if begin <= p.start < begin + 2 * HOUR
    )
    assert round(worth, 2) == 4732.24
    # The file is a plain grid of 300 days: spring's hour does not exist, autumn's second is absent.
    assert len(table.points) == 300 * 96 - 4
    assert [part.where for part in table.refused] == [f"row {n}" for n in range(26985, 26989)]
    gaps = [(a.end, b.start) for a, b in pairwise(table.points) if a.end != b.start]
    assert gaps == [(datetime(2024, 11, 3, 7, tzinfo=UTC), datetime(2024, 11, 3, 8, tzinfo=UTC))]
    # Runs above $200, counted by their text and in no other way.
    lines = body.decode().splitlines()[1:]
    high = [float(line.split(",")[2]) > 200 for line in lines]
    runs = sum(now and not before for before, now in pairwise([False, *high]))
    rule = Threshold(name="dear", above=200, target={"reduce_percent": 20})
    assert len(spans(table.points, rule)) == runs > 50


# Tariffs --------------------------------------------------------------------------------------

TARIFF = {
    "timezone": "America/Los_Angeles",
    "otherwise": 150,
    "periods": [
        {"name": "summer peak", "price": 520, "begins": "16:00", "until": "21:00",
         "days": "weekdays", "months": [6, 7, 8, 9]},
        {"name": "night", "price": 90, "begins": "23:00", "until": "06:00"},
    ],
    "holidays": ["2026-09-07"],
}  # fmt: skip


def tariff(**more: object) -> Tariff:
    return Tariff.model_validate_json(json.dumps({**TARIFF, **more}))


def price_at(points: list[Point], local: datetime) -> float:
    return next(p.value for p in points if p.start <= local < p.end)


@pytest.mark.parametrize(
    ("at", "price"),
    [
        ("2026-07-30T15:59-07:00", 150),  # a Thursday
        ("2026-07-30T16:00-07:00", 520),
        ("2026-07-30T20:59-07:00", 520),
        ("2026-07-30T21:00-07:00", 150),
        ("2026-07-30T23:00-07:00", 90),
        ("2026-07-31T05:59-07:00", 90),
        ("2026-07-31T06:00-07:00", 150),
        ("2026-08-01T17:00-07:00", 150),  # a Saturday
        ("2026-09-07T17:00-07:00", 150),  # Labor Day, a Monday
        ("2026-09-08T17:00-07:00", 520),
        ("2026-12-03T17:00-08:00", 150),  # winter
    ],
)
def test_a_tariff_follows_the_sites_wall_clock(at: str, price: float) -> None:
    instant = datetime.fromisoformat(at)
    points = tariff_series(tariff(), instant.astimezone(UTC), timedelta(hours=30))
    assert price_at(points, instant) == price


@pytest.mark.parametrize(
    ("day", "night_hours"),
    [("2026-03-07", 6), ("2026-03-14", 7), ("2026-10-31", 8)],
)
def test_a_night_is_an_hour_shorter_in_spring_and_longer_in_autumn(day, night_hours) -> None:
    now = datetime.fromisoformat(f"{day}T20:00-08:00").astimezone(UTC)
    points = tariff_series(tariff(), now, timedelta(hours=24))
    night = next(p for p in points if p.value == 90 and p.start > now - HOUR)
    assert (night.end - night.start) / HOUR == night_hours


def test_the_series_is_whole_and_without_gaps_whatever_the_hour() -> None:
    now = datetime(2026, 10, 31, 7, 30, tzinfo=UTC)
    points = tariff_series(tariff(), now, timedelta(hours=72))
    assert points[0].start <= now - timedelta(hours=24)
    assert points[-1].end >= now + timedelta(hours=72)
    assert all(a.end == b.start for a, b in pairwise(points))
    assert all(a.value != b.value for a, b in pairwise(points))


@pytest.mark.parametrize(
    "wrong",
    [
        {"timezone": "Mars/Olympus"},
        {"holidays": ["4 July"]},
        {"periods": []},
        {"periods": [{"name": "x", "price": 1, "months": [13]}]},
        {"periods": [{"name": "x", "price": 1, "begins": "24:00"}]},
        {"otherwise": 1e9},
    ],
)
def test_a_tariff_that_makes_no_sense_is_refused(wrong) -> None:
    with pytest.raises(ValidationError):
        tariff(**wrong)


def test_a_year_of_a_tariff_costs_what_its_hours_cost() -> None:
    """Closed form: 2027 has 365 nights of 7 h, one an hour shorter and one an hour longer, and
    June to September has 87 weekdays without Labor Day (6 September), 5 peak hours each."""
    local = [datetime.fromisoformat(f"{year}-01-01T00:00-08:00") for year in (2027, 2028)]
    begin, end = (at.astimezone(UTC) for at in local)
    points = tariff_series(tariff(holidays=["2027-09-06"]), begin, end - begin)
    hours = {
        price: sum(
            (min(p.end, end) - max(p.start, begin)) / HOUR
            for p in points
            if p.value == price and p.end > begin and p.start < end
        )
        for price in (520, 90, 150)
    }
    weekdays = 88 - 1
    assert hours == {520: weekdays * 5, 90: 365 * 7, 150: 8760 - weekdays * 5 - 365 * 7}
