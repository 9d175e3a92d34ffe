"""Public pages over real HTTP, well behaved or not: asked rarely, held through what is bad."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import Unavailable
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import Signal
from gridaware.feeds import ercot as ercot_module
from gridaware.feeds import pages as pages_module
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.page_values import json_page
from gridaware.feeds.pages import PublishedPage, Rate, page_of
from gridaware.feeds.runner import RunningFeed
from gridaware.sim.grid.pages import Page, PageQuirk, Pages, ercot_prc

NOW = datetime(2026, 7, 30, 21, 0, tzinfo=UTC)
DATA = Path(__file__).parents[1] / "data" / "feeds"
PATH = "/daily-prc.json"
FLOOR = 4.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def pages(clock: ManualClock) -> Iterator[Pages]:
    with Pages(clock=clock) as served:
        yield served


def page(pages: Pages, clock: ManualClock, path: str = PATH) -> PublishedPage:
    return page_of(clock, pages.url + path, Rate(path, FLOOR))


def asked(found: PublishedPage) -> Any:
    return found.read(lambda read: json_page(read.body))


def refusal(found: PublishedPage) -> str:
    with pytest.raises(Unavailable) as failed:
        asked(found)
    return failed.value.code


# A page ---------------------------------------------------------------------------------------


def test_a_page_is_asked_no_faster_than_its_publisher_lets(
    pages: Pages, clock: ManualClock
) -> None:
    pages.put(PATH, {"n": 1})
    found = page(pages, clock)
    for _ in range(400):  # forty seconds of somebody who polls ten times a second
        asked(found)
        clock.advance(0.1)
    times = [each.at_seconds for each in pages.asked]
    assert min(b - a for a, b in pairwise(times)) >= FLOOR - 1e-6
    assert len(times) == 10


def test_two_feeds_on_one_page_cost_its_publisher_one_request(
    pages: Pages, clock: ManualClock
) -> None:
    pages.put(PATH, {"n": 1})
    for _ in range(3):
        assert asked(page(pages, clock)) == {"n": 1}
    assert len(pages.asked) == 1
    assert asked(page(pages, ManualClock(NOW))) == {"n": 1}  # another process would ask itself
    assert len(pages.asked) == 2


def test_pages_of_one_rate_wait_for_each_other(pages: Pages, clock: ManualClock) -> None:
    pages.put("/a", {"n": 1})
    pages.put("/b", {"n": 2})
    one = page_of(clock, pages.url + "/a", Rate("both", 30))
    other = page_of(clock, pages.url + "/b", Rate("both", 30))
    assert asked(one) == {"n": 1}
    assert refusal(other) == "page-asked-lately"
    clock.advance(30)
    assert asked(other) == {"n": 2}
    assert asked(one) == {"n": 1}  # what came lately
    assert len(pages.asked) == 2


@pytest.mark.parametrize("quirks", [(), (PageQuirk.NO_ETAG,), (PageQuirk.NO_CONDITIONS,)])
def test_what_has_not_changed_is_not_sent_again(
    pages: Pages, clock: ManualClock, quirks: tuple[PageQuirk, ...]
) -> None:
    pages.quirks.update(quirks)
    pages.put(PATH, {"n": 1})
    found = page(pages, clock)
    reads = []
    for n in (1, 1, 2):
        if n == 2:
            pages.put(PATH, {"n": 2})
        reads.append(asked(found)["n"])
        clock.advance(FLOOR)
    assert reads == [1, 1, 2]
    conditional = "if-modified-since" in pages.asked[1].headers
    assert conditional is (PageQuirk.NO_CONDITIONS not in quirks)


def test_an_error_page_with_200_is_never_confirmed(pages: Pages, clock: ManualClock) -> None:
    pages.put(PATH, {"n": 1})
    found = page(pages, clock)
    asked(found)
    pages.quirks.add(PageQuirk.HTML_ERROR)
    for _ in range(3):
        clock.advance(FLOOR)
        assert refusal(found) == "page-garbled"
    pages.quirks.clear()
    clock.advance(FLOOR)
    assert asked(found) == {"n": 1}
    assert "if-none-match" not in pages.asked[-1].headers


@pytest.mark.parametrize(
    ("quirk", "code"),
    [
        (PageQuirk.HTML_ERROR, "page-garbled"),
        (PageQuirk.EMPTY, "page-garbled"),
        (PageQuirk.TRUNCATED, "page-garbled"),
        (PageQuirk.TOO_MANY, "page-too-often"),
        (PageQuirk.UNAVAILABLE, "page-unavailable"),
        (PageQuirk.MOVED, "page-moved"),
        (PageQuirk.REDIRECT, "page-moved"),
        (PageQuirk.OVERSIZE, "answer-too-large"),
        (PageQuirk.HALF_OPEN, "answer-too-late"),
        (PageQuirk.DRIPPING, "answer-too-late"),
    ],
)
def test_what_is_no_page_says_what_it_is(
    pages: Pages,
    clock: ManualClock,
    quirk: PageQuirk,
    code: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages_module, "DEADLINE_SECONDS", 0.2)
    pages.put(PATH, {"n": 1})
    pages.quirks.add(quirk)
    found = page(pages, clock)
    assert refusal(found) == code
    clock.advance(1)
    assert refusal(found) == code  # remembered, not asked again
    assert len(pages.asked) == 1


def test_who_asks_too_often_waits_as_long_as_it_is_told(pages: Pages, clock: ManualClock) -> None:
    pages.put(PATH, {"n": 1})
    pages.quirks.add(PageQuirk.TOO_MANY)
    found = page(pages, clock)
    refusal(found)
    pages.quirks.clear()
    for _ in range(29):
        clock.advance(1)
        assert refusal(found) == "page-too-often"
    clock.advance(1)
    assert asked(found) == {"n": 1}
    assert len(pages.asked) == 2


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {}, 60),
        (429, {"Retry-After": "Thu, 30 Jul 2026 21:02:00 GMT"}, 120),
        (429, {"Retry-After": "99999999"}, 3600),
        (429, {"Retry-After": "soon"}, 60),
        (403, {}, 300),
        (503, {"Retry-After": "90"}, 90),
        (503, {}, FLOOR),
    ],
)
def test_how_long_a_publisher_is_left_alone(
    pages: Pages, clock: ManualClock, status: int, headers: dict[str, str], seconds: float
) -> None:
    pages.serve(PATH, [Page(b"", status, headers=headers), Page(b"{}")])
    found = page(pages, clock)
    refusal(found)
    clock.advance(seconds - 0.5)
    refusal(found)
    assert len(pages.asked) == 1
    clock.advance(0.5)
    assert asked(found) == {}


# ERCOT's conditions through a feed ------------------------------------------------------------


class Texas:
    """A feed on the served page, with what control would get."""

    def __init__(self, pages: Pages, clock: ManualClock, folder: Path, **more: object) -> None:
        self.pages, self.clock, self.folder = pages, clock, folder
        rule = {"name": "eea", "when": {"eea_level": 2}, "target": {"reduce_percent": 40}}
        settings = {
            "base_url": pages.url,
            "price_point": None,
            "frequency_page": None,
            "acts": [rule],
            **more,
        }
        self.spec = FeedSpec("texas", "ercot", "emergency", settings_json=json.dumps(settings))
        self.refused: list[tuple[str, str, str, str]] = []
        self.told: list[Signal] = []
        self.open()

    def open(self) -> None:
        memory = FeedMemory(self.folder / "texas.json")
        self.running = RunningFeed(
            self.spec, NOW, self.clock, lambda *what: self.refused.append(what), memory=memory
        )

    def publish(self, level: int = 0, **more: Any) -> None:
        given = {"prc_megawatts": 9000, **more}
        self.pages.put(PATH, ercot_prc(self.clock.wall(), eea_level=level, **given))

    def poll(self, seconds: float = 10.0) -> None:
        self.running.poll_once(self.told.append)
        self.clock.advance(seconds)

    @property
    def asks(self) -> list[bool]:
        return [signal.request is not None for signal in self.told]


@pytest.fixture
def texas(pages: Pages, clock: ManualClock, tmp_path: Path) -> Texas:
    return Texas(pages, clock, tmp_path)


def test_an_emergency_acts_and_its_end_releases(texas: Texas) -> None:
    for level, minutes in ((0, 1), (2, 20), (0, 7)):
        for _ in range(minutes):
            texas.publish(level)
            texas.poll(60)
    assert texas.asks == [True, False]
    begun, over = texas.told
    assert begun.source_id == over.source_id == "eea-2026-07-30T21.01.00Z"
    assert begun.request is not None
    assert begun.request.start == NOW + timedelta(minutes=1)
    assert over.revision > begun.revision
    assert texas.refused == []
    told = {(a.quantity, a.value) for a in texas.running.advisories()}
    assert ("eea_level", 2.0) in told
    assert ("reserve_watts", 9e9) in told


@pytest.mark.parametrize(
    "quirk",
    [
        None,
        PageQuirk.HTML_ERROR,
        *(
            pytest.param(quirk, marks=pytest.mark.slow)
            for quirk in (
                PageQuirk.TOO_MANY,
                PageQuirk.UNAVAILABLE,
                PageQuirk.MOVED,
                PageQuirk.REDIRECT,
                PageQuirk.EMPTY,
                PageQuirk.TRUNCATED,
            )
        ),
    ],
)
def test_bad_data_never_releases(texas: Texas, quirk: PageQuirk | None) -> None:
    texas.publish(2)
    texas.poll()
    if quirk is not None:
        texas.publish(0)
        texas.pages.quirks.add(quirk)
    for _ in range(25):  # the page of 21:00 goes on being served, past the end of what it asks
        texas.poll(600)
    assert texas.asks == [True]
    assert texas.running.health.now().state == "failing"
    ((_, code, message, _),) = texas.refused
    assert code in {
        "page-stale",
        "page-garbled",
        "page-too-often",
        "page-unavailable",
        "page-moved",
    }
    assert "eea is held until 2026-07-31T01:" in message


def test_only_fresh_readings_release_after_a_gap(texas: Texas) -> None:
    texas.publish(2)
    texas.poll(20 * 60)
    texas.pages.quirks.add(PageQuirk.UNAVAILABLE)
    texas.poll(20 * 60)
    texas.pages.quirks.clear()
    for _ in range(5):
        texas.publish(0)
        texas.poll(60)
    assert texas.asks == [True]
    for _ in range(2):
        texas.publish(0)
        texas.poll(60)
    assert texas.asks == [True, False]


def test_a_server_that_lags_behind_the_others_shows_nothing(texas: Texas) -> None:
    texas.publish(2)
    texas.poll(60)
    texas.publish(2)
    texas.poll(60 * 14)
    texas.publish(2)
    texas.poll(0)
    behind = texas.clock.wall() - timedelta(seconds=90)
    for _ in range(30):  # a replica that stands still, well within the age that is allowed
        texas.pages.put(PATH, ercot_prc(behind, prc_megawatts=9000, eea_level=0))
        texas.poll(3)
    assert texas.asks == [True]
    assert not texas.refused


def test_a_restart_goes_on_where_it_was(texas: Texas) -> None:
    texas.publish(2)
    texas.poll(60)
    texas.open()
    texas.told.clear()
    texas.publish(2)
    texas.poll()
    (again,) = texas.told
    assert again.source_id == "eea-2026-07-30T21.00.00Z"
    assert again.revision == 0


def test_after_a_restart_into_an_outage_what_stands_is_said_again(texas: Texas) -> None:
    texas.publish(2)
    texas.poll(60)
    texas.pages.quirks.add(PageQuirk.UNAVAILABLE)
    texas.open()
    texas.told.clear()
    texas.poll()
    assert texas.asks == [True]


def test_what_control_could_not_take_is_said_again_though_the_page_is_gone(texas: Texas) -> None:
    def away(_: Signal) -> None:
        raise Unavailable("store-away", "the disk is full")

    texas.publish(2)
    texas.running.poll_once(away)
    texas.pages.quirks.add(PageQuirk.UNAVAILABLE)
    texas.clock.advance(60)
    texas.poll()
    assert texas.asks == [True]


@pytest.mark.parametrize("minutes", [-5, 5])
def test_a_page_of_another_time_shows_nothing(
    texas: Texas, clock: ManualClock, minutes: float
) -> None:
    elsewhere = clock.wall() + timedelta(minutes=minutes)
    texas.pages.put(PATH, ercot_prc(elsewhere, prc_megawatts=9000, eea_level=3))
    texas.poll()
    assert texas.told == []
    assert texas.running.health.now().reason_code == "page-stale"


def test_prices_that_fail_spoil_no_emergency(
    pages: Pages, clock: ManualClock, tmp_path: Path
) -> None:
    texas = Texas(pages, clock, tmp_path, price_point="hbHubAvg")
    pages.serve("/system-wide-prices.json", Page(b"<html>", 503))
    for level in (0, 0, 2):
        texas.publish(level)
        texas.poll()
    assert texas.asks == [True]
    assert texas.running.health.now().state == "ok"
    ((_, code, message, _),) = texas.refused
    assert code == "page-unavailable"
    assert message.startswith("prices: ")


def test_prices_that_hang_keep_no_emergency_waiting(
    pages: Pages, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ercot_module, "BESIDE_SECONDS", 0.1)  # else three: the other pages have ten
    texas = Texas(pages, clock, tmp_path, price_point="hbHubAvg")
    pages.serve("/system-wide-prices.json", Page(b"{}", delay_seconds=5))
    texas.publish(2)
    texas.poll()
    assert texas.asks == [True]
    assert [code for _, code, _, _ in texas.refused] == ["answer-too-late"]


def test_an_emergency_that_fails_spoils_no_price(
    pages: Pages, clock: ManualClock, tmp_path: Path
) -> None:
    rule = {"name": "dear", "when": {"price_above": 1000}, "target": {"reduce_percent": 10}}
    texas = Texas(pages, clock, tmp_path, price_point="hbHubAvg", acts=[rule])
    end = int(NOW.timestamp() * 1000)
    row = {"interval": end, "hbHubAvg": "1,500.25", "timestamp": "2026-07-30 16:00:00-0500"}
    pages.put("/system-wide-prices.json", {"rtSppData": [row]})
    texas.poll()
    assert texas.asks == [True]
    assert texas.running.health.now().state == "ok"  # something new was to be said
    for _ in range(3):
        texas.poll()
    assert texas.asks == [True]
    assert texas.running.health.now().reason_code == "page-moved"


# Other publishers -----------------------------------------------------------------------------


def running(kind: str, clock: ManualClock, **settings: object) -> RunningFeed:
    spec = FeedSpec(kind, kind, "p", settings_json=json.dumps(settings))
    return RunningFeed(spec, NOW, clock, lambda *_: None)


def test_all_tables_of_neso_together_are_searched_twice_a_minute(
    pages: Pages, clock: ManualClock
) -> None:
    pages.put("/datastore_search", {"success": True, "result": {"records": []}})
    tables = ("3635fd80-49d7-4d02-964d-cc8c08d50302", "00000000-0000-0000-0000-000000000000")
    feeds = [running("neso_dfs", clock, base_url=pages.url, resource_id=table) for table in tables]
    for _ in range(300):
        for feed in feeds:
            feed.poll_once(lambda _: None)
        clock.advance(2)
    times = [each.at_seconds for each in pages.asked]
    assert min(b - a for a, b in pairwise(times)) >= 30.0
    assert len(times) >= 15
    assert {each.path.split("=")[1].split("&")[0] for each in pages.asked} == set(tables)


@pytest.mark.parametrize(
    ("written", "state"),
    [("2026-11-01T09:31:00+00:00", "ok"), ("2026-11-01T08:31:00+00:00", "failing")],
)
def test_of_an_hour_that_comes_twice_the_writing_of_the_page_tells_which(
    pages: Pages, clock: ManualClock, written: str, state: str
) -> None:
    now = datetime(2026, 11, 1, 9, 32, tzinfo=UTC)
    clock.advance((now - NOW).total_seconds())
    pages.quirks.add(PageQuirk.NO_ETAG)
    body = {"slotDate": "2026-11-01 01:30:00", "gridstatus": ["Normal"]}
    pages.put("/stats.txt", body, modified_at=datetime.fromisoformat(written))
    feed = running("caiso", clock, url=f"{pages.url}/stats.txt")
    for _ in range(2):  # the second time by 304
        feed.poll_once(lambda _: None)
        clock.advance(60)
    assert feed.health.now().state == state
    assert len(pages.asked) == 2


def test_a_called_peak_day_is_heard_over_http(pages: Pages, clock: ManualClock) -> None:
    body = (DATA / "ercot_4cp" / "supply_demand.json").read_bytes()
    now = datetime(2026, 8, 10, 15, 3, tzinfo=UTC)
    clock.advance((now - NOW).total_seconds())
    pages.put("/supply-demand.json", body)
    window = {"target": {"reduce_percent": 40}}
    feed = running("ercot_4cp", clock, base_url=pages.url, acts=window)
    told: list[Signal] = []
    feed.poll_once(told.append)
    assert [signal.source_id for signal in told] == ["4cp-2026-08-10"]
    assert len(feed.advisories()) == 7
