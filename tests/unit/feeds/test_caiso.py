"""CAISO's page: words that inform, rules that name them, Pacific times without a zone."""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import ConfigError, InvalidInput
from gridaware.feeds import check_settings
from gridaware.feeds.caiso import Caiso, CaisoSettings, read_outlook
from gridaware.feeds.kind import Disposition
from gridaware.feeds.page_values import json_page
from gridaware.feeds.pages import Read

DATA = Path(__file__).parents[2] / "data" / "feeds" / "caiso"
AT = datetime(2026, 9, 7, 0, 5, tzinfo=UTC)
"""17:05 in California, seven hours behind."""


def page(name: str) -> dict[str, Any]:
    return json_page((DATA / name).read_bytes())


def settings(when: dict[str, object]) -> CaisoSettings:
    rule = {"name": "r", "when": when, "target": {"reduce_percent": 30}}
    checked = check_settings("caiso", json.dumps({"acts": [rule]}))
    assert isinstance(checked, CaisoSettings)
    return checked


def test_a_pacific_time_is_an_instant() -> None:
    outlook = read_outlook(page("flex_alert.json"), AT)
    assert outlook.at == AT
    assert outlook.words == ("Flex Alert", "Restricted Maintenance Operations")
    assert outlook.reserve_megawatts == 3480.0
    assert outlook.eea_level == 0


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2026-11-01T08:33:00+00:00", "2026-11-01T08:30:00+00:00"),
        ("2026-11-01T09:33:00+00:00", "2026-11-01T09:30:00+00:00"),
    ],
)
def test_of_an_hour_that_comes_twice_the_one_when_it_was_written(written: str, meant: str) -> None:
    outlook = read_outlook(page("autumn.json"), datetime.fromisoformat(written))
    assert outlook.at == datetime.fromisoformat(meant)


def test_an_hour_that_never_comes_is_refused() -> None:
    shown = page("normal.json") | {"slotDate": "2026-03-08 02:30:00"}
    with pytest.raises(InvalidInput, match="skip"):
        read_outlook(shown, AT)


@pytest.mark.parametrize(
    "slot", ["09/06/2026 17:05:00", "2026-09-06T17:05", "2026-09-06 17:05:00.123"]
)
def test_other_ways_to_write_the_same_time(slot: str) -> None:
    outlook = read_outlook(page("normal.json") | {"slotDate": slot}, AT)
    assert outlook.at == AT


@pytest.mark.parametrize(
    "slot", [None, "", "yesterday", 5, "2026-13-01 00:00:00", "2026-02-30 10:00"]
)
def test_a_page_without_a_time_is_no_page(slot: object) -> None:
    with pytest.raises(InvalidInput):
        read_outlook(page("normal.json") | {"slotDate": slot}, AT)


@pytest.mark.parametrize(
    ("word", "level"),
    [("EEA 1", 1), ("eea2", 2), ("Energy Emergency Alert 3", 3), ("EEA Watch", 0), ("Normal", 0)],
)
def test_words_that_name_a_level(word: str, level: int) -> None:
    shown = page("normal.json") | {"gridstatus": ["Flex Alert", word]}
    assert read_outlook(shown, AT).eea_level == level


@pytest.mark.parametrize(
    ("when", "file", "acts"),
    [
        ({"gridstatus": ["flex alert"]}, "flex_alert.json", True),
        ({"gridstatus": ["EEA 2", "FLEX-ALERT"]}, "flex_alert.json", True),
        ({"gridstatus": ["Flex Alert"]}, "eea3.json", False),
        ({"eea_level": 2}, "eea3.json", True),
        ({"eea_level": 1}, "flex_alert.json", False),
        ({"reserve_below_mw": 3500}, "flex_alert.json", True),
        ({"reserve_below_mw": 3500}, "normal.json", False),
        ({"eea_level": 1}, "unknown_word.json", False),
    ],
)
def test_a_file_is_told_what_it_would_do(when: dict[str, Any], file: str, acts: bool) -> None:
    parsed = Caiso.parse((DATA / file).read_bytes(), AT, settings(when))
    assert any(row.disposition is Disposition.ACT for row in parsed.events) is acts
    assert any(row.type == "alert" for row in parsed.events)


def test_a_page_that_is_old_by_the_given_time_would_not_act() -> None:
    body = (DATA / "eea3.json").read_bytes()
    first, *_ = Caiso.parse(body, AT + timedelta(seconds=901), settings({"eea_level": 1})).events
    assert (first.disposition, first.reason) == (
        Disposition.REFUSED,
        "the outlook page is 901 s old",
    )


def test_without_rules_nothing_acts_whatever_the_word() -> None:
    for file in sorted(DATA.glob("*.json")):
        parsed = Caiso.parse(file.read_bytes(), AT, None)
        assert {row.disposition for row in parsed.events} == {Disposition.ADVISORY}


@pytest.mark.parametrize(
    "when",
    [
        {},
        {"gridstatus": []},
        {"gridstatus": ["--"]},
        {"gridstatus": ["EEA 1"], "eea_level": 1},
        {"reserve_clear_mw": 5},
        {"reserve_below_mw": 500, "reserve_clear_mw": 400},
    ],
)
def test_a_rule_names_one_condition_that_makes_sense(when: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        settings(when)


def test_an_unknown_word_is_logged_once_and_asks_for_nothing(
    opened: Callable[..., Any], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rule = {"name": "r", "when": {"eea_level": 1}, "target": {"limit_kw": 1}}
    feed = opened("caiso", acts=[rule])
    here = clock.wall() - timedelta(hours=8)  # November: Pacific standard time
    body = {"slotDate": f"{here:%Y-%m-%d %H:%M:%S}", "gridstatus": ["Heat Bulletin"]}

    class Stub:
        def read(self, understand: Callable[[Read], Any]) -> Any:
            return understand(Read(json.dumps(body).encode(), clock.wall(), 0.0, None))

    feed._page = Stub()
    with caplog.at_level(logging.WARNING):
        assert feed.poll() == []
        assert feed.poll() == []
    assert [record.getMessage() for record in caplog.records] == [
        "feed utility: the state 'Heat Bulletin' is not known"
    ]
