"""The rule for peak days on months whose answer is counted by hand."""

from calendar import monthrange
from collections.abc import Callable
from datetime import date, timedelta

import pytest

from gridaware.domain.errors import InvalidInput
from gridaware.feeds.ercot_peaks import DayRecord, HitRate, judge, read_history, replay

SUMMER = (6, 7, 8, 9)


def month(
    peak: Callable[[int], float], forecast: Callable[[int], float] | None = None, of: int = 6
) -> list[DayRecord]:
    expected = forecast or peak
    days = range(1, monthrange(2025, of)[1] + 1)
    return [DayRecord(date(2025, of, d), peak(d), expected(d)) for d in days]


def one_hot(day: int) -> float:
    return 110 if day == 15 else 100


def test_a_month_that_rises_every_day_is_called_on_its_last() -> None:
    # each day sees a higher one ahead, but the 30th
    assert replay(month(lambda d: 1000 + d), SUMMER, 0.0) == HitRate(30, 1, 1, 1)


def test_a_month_that_falls_every_day_is_called_on_its_first() -> None:
    assert replay(month(lambda d: 1000 - d), SUMMER, 0.0) == HitRate(30, 1, 1, 1)


def test_a_flat_month_with_one_hot_day_is_called_until_the_hot_day_is_in_sight() -> None:
    # 1 to 8 tie with all they know; 9 to 14 see the 15th six days ahead; after it 100 < 110
    rate = replay(month(one_hot), SUMMER, 0.0)
    assert rate == HitRate(30, 9, 1, 1)
    assert rate.probability(called=True) == 1 / 9
    assert rate.probability(called=False) == 0.0


def test_a_peak_that_was_not_forecast_is_missed() -> None:
    # the 15th is forecast 99 and comes as 110: 1 to 14 tie at 100, 15 is below, then 110 stands
    rate = replay(month(one_hot, lambda d: 99 if d == 15 else 100), SUMMER, 0.0)
    assert rate == HitRate(30, 14, 1, 0)
    assert rate.probability(called=True) == 0.0
    assert rate.probability(called=False) == 1 / 16


def test_a_wider_margin_calls_more_days_and_misses_fewer_peaks() -> None:
    records = month(one_hot, lambda d: 99 if d == 15 else 100)
    # 99 is within 2 % of 100; after the 15th 100 is not within 2 % of 110
    assert replay(records, SUMMER, 0.02) == HitRate(30, 15, 1, 1)
    assert replay(records, SUMMER, 0.10) == HitRate(30, 30, 1, 1)


def test_two_months_add_up() -> None:
    both = month(one_hot) + month(lambda d: 1000 - d, of=7)
    assert replay(both, SUMMER, 0.0) == HitRate(61, 10, 2, 2)


def test_half_a_month_a_gap_or_another_season_counts_for_nothing() -> None:
    whole = month(one_hot)
    gap = [r if r.day.day != 20 else DayRecord(r.day, r.peak_mw, None) for r in whole]
    for records in (whole[:-1], gap, month(one_hot, of=5), []):
        rate = replay(records, SUMMER, 0.0)
        assert rate == HitRate(0, 0, 0, 0)
        assert rate.probability(called=True) is None
        assert rate.probability(called=False) is None


def test_a_day_is_judged_by_the_peak_so_far_and_by_the_days_to_come() -> None:
    day = date(2026, 8, 10)
    forecasts = {day: 84_900.0, day + timedelta(days=1): 83_000.0}
    today, tomorrow = judge(forecasts, {date(2026, 8, 5): 85_000.0}, 0.02)
    assert (today.called, today.month_peak_mw, today.ahead_mw) == (True, 85_000.0, 83_000.0)
    assert today.ratio == pytest.approx(84_900 / 85_000)
    assert not tomorrow.called  # 83,000 < 0.98 x 85,000 = 83,300
    assert tomorrow.ratio == pytest.approx(83_000 / 85_000)


def test_another_months_days_are_no_rivals() -> None:
    forecasts = {date(2026, 8, 31): 80_000.0, date(2026, 9, 1): 90_000.0}
    last, first = judge(forecasts, {date(2026, 7, 31): 99_000.0}, 0.0)
    assert (last.called, last.ratio) == (True, None)
    assert (first.called, first.month_peak_mw, first.days_known) == (True, None, 0)


def test_a_history_is_read_and_put_in_order() -> None:
    lines = (
        "\ufeffdate,forecast_mw,peak_mw,hot",
        '2026-08-02,,"80,900",y',
        "2026-08-01,80000,80100,",
    )
    body = "\r\n".join(lines)
    assert read_history(body.encode()) == (
        DayRecord(date(2026, 8, 1), 80_100.0, 80_000.0),
        DayRecord(date(2026, 8, 2), 80_900.0, None),
    )


@pytest.mark.parametrize(
    "body",
    [
        "",
        "date,peak_mw\n2026-08-01,1",
        "date,peak_mw,forecast_mw\n2026-08-01,x,1",
        "date,peak_mw,forecast_mw\n2026-08-01,-5,1",
        "date,peak_mw,forecast_mw\n2026-08-01,1e99,1",
        "date,peak_mw,forecast_mw\n01/08/2026,1,1",
        "date,peak_mw,forecast_mw\n2026-08-01,1,1\n2026-08-01,1,1",
        'date,peak_mw,forecast_mw\n"2026-08-01,1,1',
        "date,peak_mw,forecast_mw\n\x00,1,1",
    ],
)
def test_a_broken_history_is_refused_with_its_line(body: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_history(body.encode())
    assert refused.value.code in {"history-header", "history-row"}
