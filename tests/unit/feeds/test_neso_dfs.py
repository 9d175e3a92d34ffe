"""DFS windows: every season's columns, British clocks, and what is a dispatch and what is not."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput
from gridaware.domain.signal import EventKind, Signal
from gridaware.feeds import check_settings
from gridaware.feeds.kind import Disposition, Parsed
from gridaware.feeds.neso_dfs import NesoDfs, NesoDfsSettings
from gridaware.feeds.neso_windows import read_rows, read_window
from gridaware.feeds.page_values import json_page
from gridaware.feeds.pages import Read

DATA = Path(__file__).parents[2] / "data" / "feeds" / "neso_dfs"
NOW = datetime(2026, 9, 8, 12, 0, tzinfo=UTC)


def records(name: str) -> list[dict[str, Any]]:
    return read_rows(json_page((DATA / name).read_bytes()))


def given(**acts: object) -> NesoDfsSettings:
    settings = {"acts": {"target": {"reduce_kw": 400}, **acts}}
    checked = check_settings("neso_dfs", json.dumps(settings))
    assert isinstance(checked, NesoDfsSettings)
    return checked


def parsed(name: str, settings: NesoDfsSettings | None, now: datetime = NOW) -> Parsed:
    return NesoDfs.parse((DATA / name).read_bytes(), now, settings)


def acting(name: str, settings: NesoDfsSettings, now: datetime = NOW) -> list[str | None]:
    rows = parsed(name, settings, now).events
    return [row.id for row in rows if row.disposition is Disposition.ACT]


def test_a_row_of_this_season() -> None:
    window = read_window(records("requirements.json")[3])
    assert window.name == "dfs.115.2026-09-08T16.30Z"
    assert (window.start, window.end) == (
        datetime(2026, 9, 8, 16, 30, tzinfo=UTC),
        datetime(2026, 9, 8, 17, 0, tzinfo=UTC),
    )
    assert (window.megawatts, window.price_gbp_per_mwh) == (500.0, 250.0)
    assert window.participants == ("northern load ltd", "example flex limited")
    assert window.zone_megawatts == {1: 0.0, 2: 500.0, 4: 250.5}


def test_rows_of_the_season_2023_24_in_winter_time() -> None:
    live, test = (read_window(row) for row in records("requirements_2324.json"))
    assert (live.start, live.megawatts) == (datetime(2023, 11, 29, 17, 0, tzinfo=UTC), 285.0)
    assert live.end - live.start == timedelta(minutes=90)
    assert (test.start, test.service) == (datetime(2023, 11, 28, 16, 30, tzinfo=UTC), "test")


def test_odd_rows_are_read_by_their_instants_or_refused_alone() -> None:
    found = parsed("odd_rows.json", None)
    assert [(row.id, row.start) for row in found.events] == [
        ("dfs.1.2026-10-25T00.30Z", datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
        ("dfs.2.2026-10-25T01.30Z", datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),
        ("dfs.3.2026-09-08T22.30Z", datetime(2026, 9, 8, 22, 30, tzinfo=UTC)),
        ("dfs.11.2026-09-08T16.00Z", datetime(2026, 9, 8, 16, 0, tzinfo=UTC)),
    ]
    assert {row.end - row.start for row in found.events if row.end and row.start} == {
        timedelta(minutes=30)
    }
    assert [part.where for part in found.refused] == [f"record {n}" for n in range(3, 10)]
    assert {part.code for part in found.refused} == {"page-value"}


def test_without_acts_a_requirement_only_informs() -> None:
    rows = parsed("requirements.json", None).events
    assert {row.disposition for row in rows} == {Disposition.ADVISORY}
    assert [row.value for row in rows] == [0.0, 1200e6, 100e6, 500e6, 500e6, 500e6]


def test_only_live_requirements_for_less_demand_act() -> None:
    both = ["dfs.115.2026-09-08T16.30Z", "dfs.115.2026-09-08T16.00Z"]
    assert acting("requirements.json", given()) == both
    assert acting("requirements.json", given(tests=True)) == ["dfs.116.2026-09-08T15.30Z", *both]
    over = datetime(2026, 9, 8, 16, 30, tzinfo=UTC)
    assert acting("requirements.json", given(), over) == both[:1]


@pytest.mark.parametrize(
    ("filters", "acts"),
    [
        ({"participant": "Example Flex Limited"}, True),
        ({"participant": "Example Flex"}, False),
        ({"zone": 2}, True),
        ({"zone": 1}, False),
        ({"zone": 9}, False),
        ({"least_price": 250}, True),
        ({"least_price": 251}, False),
        ({"unit_id": "EXAMPLE-01-Z2"}, False),
    ],
)
def test_filters_of_the_settings(filters: dict[str, object], acts: bool) -> None:
    assert bool(acting("requirements.json", given(**filters))) is acts


def test_of_bids_only_the_accepted_ones_of_the_sites_own_unit_act() -> None:
    assert acting("bids.json", given()) == []
    assert acting("bids.json", given(unit_id="EXAMPLE-01-Z2")) == [
        "dfs.115.EXAMPLE-01-Z2.2026-09-08T16.00Z"
    ]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"success":true}', b"<html>"])
def test_what_is_no_answer_of_the_portal_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        NesoDfs.parse(body, NOW, None)
    with pytest.raises(InvalidInput, match="did not succeed"):
        parsed("failed.json", None)


@pytest.mark.parametrize(
    "settings",
    [{"poll_seconds": 10.0}, {"resource_id": "../x"}, {"base_url": "http://api.neso.energy"}],
)
def test_settings_that_would_be_blocked_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        check_settings("neso_dfs", json.dumps(settings))


class Portal:
    """The feed with a table that a test writes."""

    def __init__(self, opened: Callable[..., Any], clock: ManualClock, refusals: list[Any]) -> None:
        self.clock, self.refusals = clock, refusals
        self.feed = opened("neso_dfs", acts={"target": {"reduce_kw": 400}, "tests": True})
        self.feed._page = self
        self.rows: list[dict[str, Any]] = []

    def read(self, understand: Callable[[Read], Any]) -> Any:
        body = json.dumps({"success": True, "result": {"records": self.rows}}).encode()
        return understand(Read(body, self.clock.wall(), self.clock.monotonic_seconds(), None))

    def poll(self) -> list[tuple[str, int, EventKind | None]]:
        signals: list[Signal] = self.feed.poll()
        return [(s.source_id, s.revision, s.request and s.request.kind) for s in signals]


def row(event: str = "7", **fields: object) -> dict[str, Any]:
    return {
        "Event ID": event,
        "Delivery Date": "2026-11-30",
        "From_Local": "17:00",
        "To_Local": "17:30",
        "Service Requirement MW": 500,
        "Service Requirement Type": "Live",
        **fields,
    }


NAME = "dfs.7.2026-11-30T17.00Z"
OTHER = "dfs.8.2026-11-30T17.00Z"


@pytest.fixture
def portal(
    opened: Callable[..., Any], clock: ManualClock, refusals: list[tuple[GridawareError, str]]
) -> Portal:
    return Portal(opened, clock, refusals)


def test_a_changed_row_is_a_revision_and_a_repeated_one_is_none(portal: Portal) -> None:
    portal.rows = [row()]
    assert portal.poll() == portal.poll() == [(NAME, 0, EventKind.LIVE)]
    portal.rows = [row(To_Local="18:00"), row()]  # the newest row of a window counts
    assert portal.poll() == [(NAME, 1, EventKind.LIVE)]


def test_a_test_of_the_service_is_a_test(portal: Portal) -> None:
    portal.rows = [row(**{"Service Requirement Type": "Test"})]
    assert portal.poll() == [(NAME, 0, EventKind.TEST)]


def test_a_row_that_says_so_takes_back_at_once(portal: Portal) -> None:
    portal.rows = [row()]
    portal.poll()
    portal.rows = [row(**{"Service Requirement MW": 0})]
    assert portal.poll() == [(NAME, 1, None)]
    assert portal.poll() == [(NAME, 1, None)]


def test_a_row_that_is_gone_takes_back_after_two_reads_a_minute_apart(portal: Portal) -> None:
    portal.rows = [row(), row("8")]
    portal.poll()
    portal.rows = [row("8")]
    assert portal.poll() == [(OTHER, 0, EventKind.LIVE)]
    portal.clock.advance(59)
    assert portal.poll() == [(OTHER, 0, EventKind.LIVE)]
    portal.clock.advance(1)
    assert portal.poll() == [(NAME, 1, None), (OTHER, 0, EventKind.LIVE)]


@pytest.mark.parametrize("rows", [[], [row("9", To_Local="x")], [row(To_Local="x")]])
def test_an_empty_table_or_a_row_that_cannot_be_read_takes_nothing_back(
    portal: Portal, rows: list[dict[str, Any]]
) -> None:
    portal.rows = [row()]
    portal.poll()
    portal.rows = rows
    for _ in range(5):
        assert portal.poll() == []  # it stands, and is not said again
        portal.clock.advance(60)
    portal.rows = [row()]
    assert portal.poll() == [(NAME, 0, EventKind.LIVE)]
    assert len(portal.refusals) == len(rows)  # told once, however often it is read
