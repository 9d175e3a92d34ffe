"""Peak days from the published load forecast: called, asked for in their hours, taken back."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.advisory import Advisory
from gridaware.domain.errors import ConfigError, Unavailable
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds import check_settings, open_feed
from gridaware.feeds.ercot_4cp import Ercot4cp, Ercot4cpSettings
from gridaware.feeds.ercot_pages import read_demand
from gridaware.feeds.kind import Disposition, FeedContext, ParsedRow
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.page_values import json_page
from gridaware.feeds.pages import Read

DATA = Path(__file__).parents[2] / "data" / "feeds" / "ercot_4cp"
BODY = (DATA / "supply_demand.json").read_bytes()
NOW = datetime(2026, 8, 10, 15, 3, tzinfo=UTC)
"""10:03 in Texas."""
WINDOW = {"target": {"reduce_percent": 40}}


def parsed(**settings: object) -> list[ParsedRow]:
    checked = check_settings("ercot_4cp", json.dumps(settings))
    assert isinstance(checked, Ercot4cpSettings)
    return list(Ercot4cp.parse(BODY, NOW, checked).events)


def test_the_page_holds_the_day_and_six_more() -> None:
    demand = read_demand(json_page(BODY))
    assert demand.at == datetime(2026, 8, 10, 15, 2, 11, tzinfo=UTC)
    assert (len(demand.actual), len(demand.forecast)) == (11, 13 + 6 * 24)


def test_without_a_history_the_hit_rate_is_unknown() -> None:
    rows = parsed()
    assert [row.id for row in rows] == [f"4cp-2026-08-{day}" for day in range(10, 17)]
    assert {row.value for row in rows} == {"unknown"}
    assert {row.disposition for row in rows} == {Disposition.ADVISORY}
    assert rows[0].reason == (
        "called: forecast 84,900 MW; the month's peak so far is unknown; the highest forecast of "
        "its other days 83,000 MW; hit rate unknown: no history"
    )


def test_with_a_history_the_hit_rate_is_counted_and_the_month_is_known() -> None:
    today, tomorrow, *_ = parsed(history_file=str(DATA / "history.csv"), acts=WINDOW)
    # By hand: at 2 % June and July each call 1 to 8 and the 15th (80,000 < 0.98 x 88,000)
    assert today.value == round(2 / 18, 4)
    assert today.reason == (
        "called: forecast 84,900 MW; the month's peak so far 85,000 MW (known of 9 of 9 days); the "
        "highest forecast of its other days 83,000 MW; in the history 2 of 18 called days were the "
        "month's peak, 2 of 2 peaks were called"
    )
    assert today.disposition is Disposition.ACT
    assert (today.start, today.end) == (
        datetime(2026, 8, 10, 20, 0, tzinfo=UTC),
        datetime(2026, 8, 10, 23, 0, tzinfo=UTC),
    )
    assert today.target == TargetSpec(Quantity.REDUCTION_FRACTION, 0.4)
    assert tomorrow.disposition is Disposition.ADVISORY  # 83,000 < 0.98 x 85,000
    assert tomorrow.value == 0.0


def test_a_month_that_does_not_count_has_no_peak_days() -> None:
    assert parsed(months=[6, 7]) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"acts": {"target": {"limit_kw": 1}, "start": "18:00", "end": "15:00"}},
        {"acts": {"target": {}}},
        {"acts": {"target": {"limit_kw": 1}, "start": "25:00"}},
        {"months": [0]},
        {"months": [6, 6]},
        {"poll_seconds": 1.0},
        {"margin_percent": -1},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        check_settings("ercot_4cp", json.dumps(settings))


@pytest.mark.parametrize("name", ["missing.csv", "", "supply_demand.json"])
def test_a_history_that_cannot_be_read_is_no_history(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed(history_file=str(DATA / name))
    assert refused.value.code in {"history-unreadable", "history-header", "history-row"}


class Site:
    """A feed whose page a test writes, with a memory that outlives it."""

    def __init__(self, **settings: object) -> None:
        self.clock = ManualClock(NOW)
        self.memory = FeedMemory()
        self.settings = {"acts": WINDOW, **settings}
        self.told: list[Advisory] = []
        self.open()

    def open(self) -> None:
        context = FeedContext(
            "utility", self.clock, NOW, lambda *_: None, self.memory, self.told.append
        )
        spec = FeedSpec("utility", "ercot_4cp", "p", settings_json=json.dumps(self.settings))
        self.feed: Any = open_feed(spec, context)

    def poll(self, forecasts: dict[int, float], *, old: float = 0.0) -> list[tuple[str, int, bool]]:
        """Poll a page with the peaks of August days; returns id, revision, whether it asks."""
        now = self.clock.wall()
        stamp = now - timedelta(hours=5, seconds=old)
        rows = [
            {
                "epoch": int(datetime(2026, 8, day, 5 + hour, tzinfo=UTC).timestamp() * 1000),
                "forecastedDemand": peak,
            }
            for day, peak in forecasts.items()
            for hour in range(12, 19)
            for _ in range(2)  # doubled rows
        ] + [
            {
                "epoch": int(datetime(2026, 8, day + 1, 0, tzinfo=UTC).timestamp() * 1000),
                "forecastedDemand": peak,
            }
            for day, peak in forecasts.items()
        ]
        page = {"lastUpdated": f"{stamp:%Y-%m-%d %H:%M:%S}-0500", "data": [], "forecast": rows}
        body = json.dumps(page).encode()

        class Stub:
            def read(self, understand: Callable[[Read], Any]) -> Any:
                return understand(Read(body, now, 0.0, None))

        self.feed._page = Stub()
        signals: list[Signal] = self.feed.poll()
        return [(s.source_id, s.revision, s.request is not None) for s in signals]


HIGH = {10: 84_900.0, 11: 83_000.0}
NEAR = {10: 82_000.0, 11: 84_900.0}
LOW = {10: 80_000.0, 11: 84_900.0}


def test_a_called_day_is_asked_for_and_taken_back_when_it_falls_well_below() -> None:
    site = Site()
    assert site.poll(LOW) == []
    assert site.poll(HIGH) == [("4cp-2026-08-10", 0, True)]
    assert site.poll(NEAR) == [("4cp-2026-08-10", 0, True)]  # 0.966: not called, not yet well below
    assert site.poll(LOW) == [("4cp-2026-08-10", 1, False)]
    assert site.poll(NEAR) == [("4cp-2026-08-10", 1, False)]
    assert site.poll(HIGH) == [("4cp-2026-08-10.2", 0, True)]


def test_once_it_began_it_holds_to_its_end() -> None:
    site = Site()
    site.poll(HIGH)
    site.clock.advance(5 * 3600)  # 15:03
    assert site.poll(LOW) == [("4cp-2026-08-10", 0, True)]
    site.clock.advance(3 * 3600)  # 18:03
    assert site.poll(LOW) == []
    assert site.poll(HIGH) == []


def test_an_old_forecast_concludes_nothing() -> None:
    site = Site()
    site.poll(HIGH)
    with pytest.raises(Unavailable) as failed:
        site.poll(LOW, old=3601)
    assert failed.value.code == "page-stale"
    assert site.poll(HIGH) == [("4cp-2026-08-10", 0, True)]


def test_a_restart_says_the_same_and_knows_the_month() -> None:
    site = Site()
    site.poll(HIGH)
    site.open()
    assert site.poll(NEAR) == [("4cp-2026-08-10", 0, True)]


def test_days_ahead_are_announced_only_where_that_is_asked_for() -> None:
    forecasts = {10: 84_900.0, 11: 85_000.0, 12: 70_000.0}
    assert len(Site().poll(forecasts)) == 1
    site = Site(acts={**WINDOW, "announce_days": 1})
    assert [key for key, _, _ in site.poll(forecasts)] == ["4cp-2026-08-10", "4cp-2026-08-11"]


def test_the_peak_so_far_is_learnt_from_what_was_seen() -> None:
    site = Site()
    seen = datetime(2026, 8, 9, 21, tzinfo=UTC)
    site.memory.put("peaks", {seen.date().isoformat(): 90_000.0})
    assert site.poll(HIGH) == []  # 84,900 < 0.98 x 90,000
    (today, _) = site.told
    assert "so far 90,000 MW (known of 1 of 9 days)" in today.text
    assert (today.value, today.start) == (None, datetime(2026, 8, 10, 5, tzinfo=UTC))


@pytest.mark.parametrize(("last", "known"), [(18, {}), (19, {"2026-08-10": 84_900.0})])
def test_a_day_counts_once_its_evening_was_seen(last: int, known: dict[str, float]) -> None:
    page = json.loads(BODY)
    for hour, row in enumerate(page["data"]):
        row["forecast"] = int(hour > last)
    page["lastUpdated"] = f"2026-08-10 {last}:02:00-0500"
    site = Site()
    site.clock.advance((last - 10) * 3600)
    body = json.dumps(page).encode()

    class Stub:
        def read(self, understand: Callable[[Read], Any]) -> Any:
            return understand(Read(body, site.clock.wall(), 0.0, None))

    site.feed._page = Stub()
    site.feed.poll()
    assert site.memory.get("peaks") == known


def test_a_day_whose_afternoon_is_not_forecast_is_not_judged() -> None:
    page = json.loads(BODY)
    page["forecast"] = [row for row in page["forecast"] if row["hourEnding"] != 17]
    days = Ercot4cp.parse(json.dumps(page).encode(), NOW, None).events
    assert [row.id for row in days] == ["4cp-2026-08-10"]


def test_a_day_that_is_called_ahead_of_its_announcement_only_informs() -> None:
    later = NOW - timedelta(days=1)
    given = check_settings("ercot_4cp", json.dumps({"acts": WINDOW}))
    assert isinstance(given, Ercot4cpSettings)
    rows = Ercot4cp.parse(BODY, later, given).events
    assert rows[0].reason.startswith("called")
    assert {row.disposition for row in rows} == {Disposition.ADVISORY}


def test_without_acts_nothing_is_asked_for() -> None:
    site = Site()
    site.settings = {}
    site.open()
    assert site.poll(HIGH) == []
    assert [advisory.start.date() for advisory in site.told] == [
        date(2026, 8, 10),
        date(2026, 8, 11),
    ]
