"""ERCOT's dashboards as they come: both shapes of numbers, epochs over texts, rules that hold."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.advisory import Advisory, AdvisoryQuality
from gridaware.domain.errors import ConfigError, InvalidInput
from gridaware.domain.signal import Quantity, TargetSpec
from gridaware.feeds import check_settings
from gridaware.feeds.ercot import Ercot, ErcotSettings, conditions_told
from gridaware.feeds.ercot_pages import read_conditions, read_frequency, read_prices
from gridaware.feeds.kind import Disposition
from gridaware.feeds.page_values import json_page

DATA = Path(__file__).parents[2] / "data" / "feeds" / "ercot"
AT = datetime(2026, 7, 30, 21, 0, 5, tzinfo=UTC)
"""16:00:05 in Texas, as the files' README says."""


def page(name: str) -> dict[str, Any]:
    return json_page((DATA / name).read_bytes())


def settings(*rules: dict[str, object], **more: object) -> ErcotSettings:
    checked = check_settings("ercot", json.dumps({"acts": rules, **more}))
    assert isinstance(checked, ErcotSettings)
    return checked


def test_both_shapes_of_the_reserve_are_one_number() -> None:
    assert read_conditions(page("normal_text.json")).prc_megawatts == 18_983.0
    assert read_conditions(page("normal_number.json")).prc_megawatts == 13_885.0


def test_the_conditions_carry_their_own_time_and_level() -> None:
    heard = read_conditions(page("eea2.json"))
    assert (heard.at, heard.state, heard.eea_level) == (AT, "eea2", 2)
    assert heard.prc_megawatts == 1_987.0


@pytest.mark.parametrize("odd", [0, "0", "", None])
def test_a_gap_in_the_reserve_is_no_emergency(odd: object) -> None:
    shown = page("normal_text.json")
    shown["current_condition"]["prc_value"] = odd
    heard = read_conditions(shown)
    assert heard.prc_megawatts is None
    when = (
        settings({"name": "low", "when": {"prc_below_mw": 3000}, "target": {"limit_kw": 1}})
        .acts[0]
        .when
    )
    assert when.shown(heard, stands=False) is None


@pytest.mark.parametrize("odd", [7, -1, 2.5, "two", True, [2]])
def test_a_level_that_there_is_not_is_refused(odd: object) -> None:
    shown = page("normal_text.json")
    shown["current_condition"]["eea_level"] = odd
    with pytest.raises(InvalidInput):
        read_conditions(shown)


def test_the_frequency_is_the_newest_one_by_its_epoch() -> None:
    heard = read_frequency(page("frequency.json"))
    assert (heard.at, heard.hertz) == (AT - timedelta(seconds=60), 59.981)


def test_prices_are_of_the_quarter_of_an_hour_that_ends_then() -> None:
    prices = read_prices(page("prices.json"), "hbHubAvg")
    assert [price.per_megawatt_hour for price in prices] == [41.2, 88.07, 88.07, 640.5, 1875.66]
    assert prices[-1].start == datetime(2026, 7, 30, 20, 45, tzinfo=UTC)
    assert prices[-1].end == datetime(2026, 7, 30, 21, 0, tzinfo=UTC)
    assert read_prices(page("prices.json"), "hbPan")[0].per_megawatt_hour == -5.25


def test_an_autumn_night_is_read_by_its_epochs() -> None:
    # 05:30Z to 07:15Z: 00:30 CDT to 01:15 CST, with wrong offsets, a doubled row, an hour 25
    prices = read_prices(page("prices_autumn.json"), "hbHubAvg")
    ends = [price.end for price in prices]
    begin = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert ends == [begin + timedelta(minutes=15 * i) for i in range(8)]
    assert [price.per_megawatt_hour for price in prices] == [20, 21, 22, 23, 24, 25, 26, 27]


def test_what_informs_has_its_unit_and_its_quality() -> None:
    told = {a.quantity: a for a in conditions_told(read_conditions(page("eea2.json")), "x", AT)}
    assert told["reserve_watts"].value == 1_987e6
    assert told["reserve_watts"].quality is AdvisoryQuality.MEASURED
    assert told["eea_level"].value == 2.0
    assert told["alert"].text.startswith("eea2: Energy Emergency Alert 2. Reduce")
    assert {a.start for a in told.values()} == {AT.replace(second=0)}


@pytest.mark.parametrize(
    ("when", "file", "acts"),
    [
        ({"eea_level": 2}, "eea2.json", True),
        ({"eea_level": 1}, "eea2.json", True),
        ({"eea_level": 3}, "eea2.json", False),
        ({"eea_level": 1}, "watch.json", False),
        ({"prc_below_mw": 3000}, "watch.json", True),
        ({"prc_below_mw": 2500}, "watch.json", False),
        ({"states": ["watch", "eea1"]}, "watch.json", True),
        ({"states": ["eea1"]}, "watch.json", False),
        ({"price_above": 1000}, "prices.json", True),
        ({"price_above": 2000}, "prices.json", False),
        ({"price_above": 1000}, "eea2.json", False),
    ],
)
def test_a_file_is_told_what_it_would_do(when: dict[str, Any], file: str, acts: bool) -> None:
    given = settings({"name": "r", "when": when, "target": {"reduce_percent": 40}})
    parsed = Ercot.parse((DATA / file).read_bytes(), AT, given)
    acting = [row for row in parsed.events if row.disposition is Disposition.ACT]
    assert bool(acting) is acts
    if acts:
        assert acting[0].target == TargetSpec(Quantity.REDUCTION_FRACTION, 0.4)
        assert acting[0].end == AT + timedelta(minutes=240)
    assert any(row.disposition is Disposition.ADVISORY for row in parsed.events)


def test_a_page_that_is_old_by_the_given_time_would_not_act() -> None:
    for when, file in (({"eea_level": 2}, "eea2.json"), ({"price_above": 1000}, "prices.json")):
        given = settings({"name": "r", "when": when, "target": {"reduce_percent": 40}})
        later = AT + timedelta(hours=2)
        first, *_ = Ercot.parse((DATA / file).read_bytes(), later, given).events
        assert first.disposition is Disposition.REFUSED
        assert first.reason.endswith("s old")


def test_without_rules_nothing_acts() -> None:
    for file in sorted(DATA.glob("*.json")):
        parsed = Ercot.parse(file.read_bytes(), AT, None)
        assert {row.disposition for row in parsed.events} == {Disposition.ADVISORY}


@pytest.mark.parametrize(
    "when",
    [
        {},
        {"eea_level": 1, "prc_below_mw": 3000},
        {"eea_level": 4},
        {"prc_below_mw": 3000, "prc_clear_mw": 2000},
        {"prc_clear_mw": 2000},
        {"price_above": 100, "price_clear": 200},
        {"frequency_below": 59.9},
    ],
)
def test_a_rule_names_one_condition_that_makes_sense(when: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        settings({"name": "r", "when": when, "target": {"limit_kw": 1}})


@pytest.mark.parametrize(
    "more",
    [
        {"base_url": "http://www.ercot.com/x"},
        {"base_url": "ftp://www.ercot.com/x"},
        {"poll_seconds": 1.0},
        {"price_point": "../x"},
        {"frequency_page": "../../x.json"},
    ],
)
def test_settings_that_would_be_blocked_or_cut_in_the_open_are_refused(more: Any) -> None:
    with pytest.raises(ConfigError):
        settings(**more)


def test_readings_below_and_above_the_limit_flap_no_event(
    opened: Callable[..., Any], clock: ManualClock
) -> None:
    rule = {
        "name": "low",
        "when": {"prc_below_mw": 3000, "prc_clear_mw": 3500},
        "target": {"limit_kw": 500},
        "hold_minutes": 0,
        "clear_minutes": 5,
    }
    feed = opened("ercot", acts=[rule], price_point=None, frequency_page=None)
    told: list[tuple[int, bool]] = []
    for minute, prc in enumerate(
        [4000, 2900, 3100, 3600, 3100, 3600, 3600, 3600, 3600, 3600, 3600]
    ):
        shown = page("normal_text.json")
        shown["current_condition"] |= {
            "prc_value": f"{prc:,}",
            "datetime": int(clock.wall().timestamp()),
        }
        feed._conditions = Stub(json.dumps(shown).encode(), clock)
        for signal in feed.poll():
            told.append((minute, signal.request is not None))
        clock.advance(60)
    # asked for at minute 1; 3,100 is not yet 3,500; clear for five minutes on end from minute 5
    assert told == [(m, True) for m in range(1, 10)] + [(10, False)]


class Stub:
    def __init__(self, body: bytes, clock: ManualClock) -> None:
        self.body, self.clock = body, clock

    def read(self, understand: Callable[[Any], Any]) -> Any:
        from gridaware.feeds.pages import Read

        return understand(Read(self.body, self.clock.wall(), 0.0, None))


def test_advisories_pass_their_own_check() -> None:
    for name in ("normal_text.json", "watch.json", "eea2.json"):
        for advisory in conditions_told(read_conditions(page(name)), "f", AT):
            assert isinstance(advisory, Advisory)
