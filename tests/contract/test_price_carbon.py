"""Prices and carbon intensities over real HTTP: announced, revised, held through what is bad."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput
from gridaware.domain.fixes import FIXES
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import Signal
from gridaware.feeds import check_settings
from gridaware.feeds.carbon import Carbon, CarbonSettings
from gridaware.feeds.kind import Disposition, Parsed
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.price import Price, PriceSettings
from gridaware.feeds.runner import RunningFeed
from gridaware.sim.grid.pages import Asked, Page, PageQuirk, Pages

DATA = Path(__file__).parents[1] / "data" / "feeds"
NOW = datetime(2026, 7, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECRET = "0123456789abcdef-key"
COLUMNS = {
    "rows": "data",
    "start": "start_timestamp",
    "end": "end_timestamp",
    "value": "marketprice",
}
DEAR = {"name": "dear", "above": 220, "clear": 200, "target": {"reduce_percent": 30}}


def payload(kind: str, name: str) -> bytes:
    return (DATA / kind / name).read_bytes()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def pages(clock: ManualClock) -> Iterator[Pages]:
    with Pages(clock=clock) as served:
        yield served


class Side:
    """A feed with what control would get."""

    def __init__(self, kind: str, clock: ManualClock, folder: Path, **settings: object) -> None:
        self.spec = FeedSpec("grid", kind, "emergency", settings_json=json.dumps(settings))
        self.clock, self.folder = clock, folder
        self.refused: list[tuple[str, str, str, str]] = []
        self.told: list[Signal] = []
        self.open()

    def open(self) -> None:
        self.running = RunningFeed(
            self.spec,
            NOW,
            self.clock,
            lambda *what: self.refused.append(what),
            memory=FeedMemory(self.folder / "grid.json"),
        )

    def poll(self, seconds: float = 0.0) -> list[Signal]:
        self.clock.advance(seconds)
        self.told.clear()
        self.running.poll_once(self.told.append)
        return list(self.told)

    @property
    def codes(self) -> list[str]:
        return [code for _, code, _, _ in self.refused]

    @property
    def advised(self) -> list[tuple[str, float | None, str, str]]:
        return [
            (f"{a.start:%H:%M}", a.value, a.unit, a.quality.value)
            for a in sorted(self.running.advisories(), key=lambda a: a.start)
        ]


def window(signal: Signal) -> tuple[float, float]:
    assert signal.request is not None
    assert signal.request.end is not None
    return (signal.request.start - NOW) / HOUR, (signal.request.end - NOW) / HOUR


# Prices ---------------------------------------------------------------------------------------


@pytest.fixture
def market(pages: Pages, clock: ManualClock, tmp_path: Path) -> Side:
    pages.serve("/prices", Page(payload("price", "rows.json")))
    source = {"url": f"{pages.url}/prices", "columns": COLUMNS}
    return Side("price", clock, tmp_path, currency="EUR", source=source, acts=[DEAR])


def with_prices(pages: Pages, clock: ManualClock, *prices: float) -> None:
    begin = clock.wall().replace(minute=0, second=0, microsecond=0).timestamp()
    rows = [
        {"start_timestamp": begin + 3600 * n, "end_timestamp": begin + 3600 * (n + 1),
         "marketprice": price}
        for n, price in enumerate(prices)
    ]  # fmt: skip
    pages.put("/prices", {"data": rows})


def test_prices_of_tomorrow_are_events_announced_today(market: Side) -> None:
    (signal,) = market.poll()
    assert window(signal) == (1, 4)  # 1 250, 240 and 225, above the 200 at which it is clear
    assert signal.source_id == "dear-2026-07-30T13.00Z"
    assert market.advised[:2] == [
        ("12:00", 91.2, "EUR/MWh", "published"),
        ("13:00", 1250.4, "EUR/MWh", "published"),
    ]
    assert market.poll(60) == []  # nothing new
    market.open()
    again = market.poll(60)
    assert [(s.source_id, s.revision) for s in again] == [(signal.source_id, 0)]


def test_a_page_that_fails_or_ends_releases_nothing(
    market: Side, pages: Pages, clock: ManualClock
) -> None:
    market.poll()
    clock.advance(3600 + 60)  # it acts
    for quirk in (PageQuirk.UNAVAILABLE, PageQuirk.HTML_ERROR, PageQuirk.MOVED, PageQuirk.EMPTY):
        pages.quirks = {quirk}
        for _ in range(4):
            assert market.poll(60) == []
    pages.quirks = set()
    assert market.codes.count("page-unavailable") >= 1
    assert any("held" in message for _, _, message, _ in market.refused)
    pages.put("/prices", {"data": [{"start_timestamp": 1785412800, "marketprice": 50}]})
    for _ in range(4):
        assert market.poll(60) == []
    with_prices(pages, clock, 50, 50, 50)
    (gone,) = market.poll(60)
    assert (gone.request, gone.revision) == (None, 1)


def test_a_price_that_moves_revises_what_was_announced(
    market: Side, pages: Pages, clock: ManualClock
) -> None:
    (first,) = market.poll()
    with_prices(pages, clock, 50, 50, 300, 50)
    (moved,) = market.poll(60)
    assert (moved.source_id, moved.revision) == (first.source_id, 1)
    assert window(moved) == (2, 3)


def test_a_key_is_sent_and_a_bad_row_reported_once(
    pages: Pages, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRICE_KEY", SECRET)
    body = {"t": [1785412800, "soon", 1785420000], "p": [1, 2, 3]}
    pages.put("/p", body)
    source = {
        "url": f"{pages.url}/p",
        "columns": {"start": "t", "value": "p"},
        "key": "env:PRICE_KEY",
        "key_prefix": "Bearer ",
        "forecast": True,
    }
    side = Side("price", clock, tmp_path, currency="USD", source=source)
    for _ in range(3):
        side.poll(60)
    assert pages.asked[0].headers["authorization"] == f"Bearer {SECRET}"
    assert side.codes == ["table-row"]
    assert side.advised[0] == ("12:00", 1.0, "USD/MWh", "forecast")


def test_a_tariff_needs_nobody(clock: ManualClock, tmp_path: Path) -> None:
    tariff = {
        "timezone": "Europe/Berlin",
        "otherwise": 200,
        "periods": [{"name": "peak", "price": 400, "begins": "17:00", "until": "20:00"}],
    }
    side = Side("price", clock, tmp_path, currency="EUR", tariff=tariff, acts=[DEAR])
    assert [window(signal) for signal in side.poll()] == [(3, 6), (27, 30)]
    assert side.poll(60) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"currency": "EUR"},
        {"currency": "euro", "source": {"url": "https://x.example", "columns": COLUMNS}},
        {"currency": "EUR", "source": {"url": "http://x.example", "columns": COLUMNS}},
        {"currency": "EUR", "source": {"url": "file:///etc/passwd", "columns": COLUMNS}},
        {"currency": "EUR", "source": {"url": "https://x.example", "columns": {"start": "t"}}},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        check_settings("price", json.dumps(wrong))


def rows_of(parsed: Parsed) -> list[tuple[str, str, object, str]]:
    return [
        (f"{r.start:%d %H:%M}", f"{r.end:%d %H:%M}", r.value, r.disposition.value)
        for r in parsed.events
        if r.start is not None and r.end is not None
    ]


def test_a_file_of_a_day_with_25_hours_is_read_by_its_settings() -> None:
    columns = {"format": "csv", "start": "time", "value": "price", "timezone": "Europe/Berlin"}
    source = {"url": "https://x.example", "columns": columns}
    settings = PriceSettings.model_validate_json(
        json.dumps({"currency": "EUR", "source": source, "acts": [DEAR]})
    )
    now = datetime(2026, 10, 24, 20, tzinfo=UTC)
    parsed = Price.parse(payload("price", "hourly.csv"), now, settings)
    assert rows_of(parsed)[0] == ("25 00:00", "25 02:00", 0.3, "act")  # 02:00 both times
    assert [part.where for part in parsed.refused] == ["row 8"]
    prices = {start: value for start, _, value, kind in rows_of(parsed) if kind == "advisory"}
    assert prices["25 00:00"] == 300
    assert prices["25 01:00"] == 310
    assert prices["25 02:00"] == 53  # of two rows of one hour the later one


# Carbon ---------------------------------------------------------------------------------------


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CARBON_KEY", SECRET)
    return "env:CARBON_KEY"


def electricity_maps(
    pages: Pages, clock: ManualClock, folder: Path, key: str, **more: object
) -> Side:
    given = {"provider": "electricity_maps", "place": "DE", "key": key, "base_url": pages.url}
    dirty = {"name": "dirty", "above": 450, "clear": 420, "target": {"reduce_percent": 10}}
    return Side("carbon", clock, folder, **{**given, "acts": [dirty], **more})


def test_electricity_maps_now_and_ahead(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str
) -> None:
    pages.serve("/carbon-intensity/latest", Page(payload("carbon", "electricity_maps_latest.json")))
    forecast = Page(payload("carbon", "electricity_maps_forecast.json"))
    pages.serve("/carbon-intensity/forecast", forecast)
    side = electricity_maps(pages, clock, tmp_path, key)
    (signal,) = side.poll()
    assert window(signal) == (1, 4)  # 455, 470, and 430 that is not clear yet
    assert side.advised[:2] == [
        ("12:00", 412.0, "gCO2/kWh", "measured"),
        ("13:00", 455.0, "gCO2/kWh", "forecast"),
    ]
    assert "shouldUseFallbackCallerLookup=false" in pages.asked[0].path
    assert {each.headers["auth-token"] for each in pages.asked} == {SECRET}


def test_an_estimate_stays_one_and_another_zone_is_refused(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str
) -> None:
    estimated = payload("carbon", "electricity_maps_estimated.json")
    pages.serve("/carbon-intensity/latest", Page(estimated))
    side = electricity_maps(pages, clock, tmp_path, key, forecast=False)
    side.poll()
    assert side.advised == [("12:00", 412.0, "gCO2/kWh", "estimated")]
    pages.put("/carbon-intensity/latest", {**json.loads(estimated), "zone": "FR"})
    side.poll(60)
    assert "zone FR" in side.running.health.now().reason


def test_case_27_a_false_value_is_passed_over_while_an_event_stands(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str
) -> None:
    latest = json.loads(payload("carbon", "electricity_maps_latest.json"))
    side = electricity_maps(pages, clock, tmp_path, key, forecast=False)
    told = []
    for hour, grams in enumerate((430, 440, 460, 470, 45, 480, 400)):
        at = NOW + hour * HOUR
        pages.put(
            "/carbon-intensity/latest",
            {**latest, "carbonIntensity": grams, "datetime": at.isoformat()},
        )
        told += [(hour, s.request is not None) for s in side.poll(60 if hour == 0 else 3600)]
    # From 460 on it acts, longer at each reading, not released by the 45; over at 400.
    assert told[0] == (2, True)
    assert told[-1] == (6, False)
    assert all(asks for hour, asks in told if hour < 6)
    assert side.codes == ["carbon-spike"]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (503, "page-unavailable"),
        (401, "page-forbidden"),
        (404, "page-moved"),
        (429, "page-too-often"),
    ],
)
def test_case_27_each_failure_is_told_as_what_it_is(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str, status: int, code: str
) -> None:
    pages.serve("/carbon-intensity/latest", Page(b"", status))
    side = electricity_maps(pages, clock, tmp_path, key, forecast=False)
    for _ in range(4):
        side.poll(0.1)
    assert side.running.health.now().reason_code == code
    assert code in FIXES
    assert len(pages.asked) == 1  # no storm


class WattTimeServer:
    """Signs in, and answers with the forecast whoever has the last token."""

    def __init__(self, pages: Pages) -> None:
        self.pages, self.logins, self.good = pages, 0, True
        pages.serve("/login", self.login)
        pages.serve("/v3/forecast", self.forecast)

    def login(self, asked: Asked) -> Page:
        self.logins += 1
        if not self.good or not asked.headers["authorization"].startswith("Basic "):
            return Page(b"", 403)
        return Page(json.dumps({"token": f"t{self.logins}"}).encode())

    def forecast(self, asked: Asked) -> Page:
        good = asked.headers.get("authorization") == f"Bearer t{self.logins}"
        return Page(payload("carbon", "watttime_forecast.json")) if good else Page(b"", 401)


def watttime(pages: Pages, clock: ManualClock, folder: Path, key: str) -> Side:
    return Side(
        "carbon", clock, folder, provider="watttime", place="CAISO_NORTH", user="me", key=key,
        base_url=pages.url,
    )  # fmt: skip


def test_watttimes_pounds_are_grams_here(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str
) -> None:
    server = WattTimeServer(pages)
    side = watttime(pages, clock, tmp_path, key)
    side.poll()
    # 1 lb = 453.59237 g by definition: 1 000 lb/MWh are 453.6 g/kWh.
    found = {start: value for start, value, _, _ in side.advised}
    assert found["12:10"] == pytest.approx(453.59237)
    assert {quality for *_, quality in side.advised} == {"forecast"}
    for _ in range(14):
        side.poll(60)
    assert server.logins == 1
    side.poll(90)
    assert server.logins == 2  # renewed at half its life


def test_a_wrong_password_is_not_tried_at_every_poll(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str
) -> None:
    server = WattTimeServer(pages)
    server.good = False
    side = watttime(pages, clock, tmp_path, key)
    for _ in range(14):
        side.poll(60)
    assert server.logins == 1
    assert side.running.health.now().reason_code == "page-forbidden"
    server.good = True
    side.poll(120)
    assert server.logins == 2
    assert side.advised


@pytest.mark.parametrize(
    ("place", "name"), [("", "uk_intensity.json"), ("RG10", "uk_regional.json")]
)
def test_the_uk_by_half_hours_and_its_window_moves(
    pages: Pages, clock: ManualClock, tmp_path: Path, place: str, name: str
) -> None:
    def answer(_: Asked) -> Page:
        return Page(payload("carbon", name))

    begin = "/regional/intensity" if place else "/intensity"
    end = "/fw24h/postcode/RG10" if place else "/fw24h"
    for at in ("12:00", "12:30"):
        pages.serve(f"{begin}/2026-07-30T{at}Z{end}", answer)
    dirty = {"name": "dirty", "above": 200, "target": {"reduce_percent": 10}}
    side = Side(
        "carbon", clock, tmp_path, provider="uk_carbon_intensity", place=place,
        base_url=pages.url, acts=[dirty],
    )  # fmt: skip
    (signal,) = side.poll()
    assert window(signal) == (0.5, 1.5)
    assert side.advised[0] == ("12:00", 190.0, "gCO2/kWh", "forecast")
    side.poll(31 * 60)
    assert pages.asked[-1].path == f"{begin}/2026-07-30T12:30Z{end}"
    assert side.running.health.now().failures == 0


@pytest.mark.parametrize(
    ("name", "basis"),
    [
        ("electricity_maps_latest.json", "life cycle"),
        ("electricity_maps_forecast.json", "life cycle"),
        ("watttime_forecast.json", "marginal"),
        ("uk_intensity.json", "combustion"),
        ("uk_regional.json", "combustion"),
    ],
)
def test_a_file_is_told_by_its_shape_and_says_what_its_figure_is(name: str, basis: str) -> None:
    parsed = Carbon.parse(payload("carbon", name), NOW, None)
    assert parsed.events
    assert {row.disposition for row in parsed.events} == {Disposition.ADVISORY}
    assert all(basis in row.reason for row in parsed.events)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"data": []},
        {"data": [{"from": "2026-07-30T12:00Z"}]},
        {"data": [{"data": 5}]},
        {"zone": "DE", "carbonIntensity": -4, "datetime": "2026-07-30T12:00Z"},
        {"zone": "DE", "carbonIntensity": 40_000, "datetime": "2026-07-30T12:00Z"},
        {"zone": "DE", "carbonIntensity": 400, "datetime": "2026-07-30T12:00"},
        {"zone": "DE", "forecast": 5},
        {"meta": {"units": "percentile", "signal_type": "co2_moer"}, "data": []},
        {"meta": 5},
    ],
)
def test_a_document_that_is_no_intensity_is_refused(document: Any) -> None:
    with pytest.raises(InvalidInput):
        Carbon.parse(json.dumps(document).encode(), NOW, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"provider": "nobody"},
        {"provider": "electricity_maps", "place": "DE"},
        {"provider": "watttime", "place": "CAISO_NORTH", "key": "env:X"},
        {"provider": "uk_carbon_intensity", "base_url": "http://elsewhere.example"},
        {"provider": "uk_carbon_intensity", "place": "../../x"},
        {"provider": "electricity_maps", "place": "DE", "key": "secret"},
    ],
)
def test_carbon_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(GridawareError):
        check_settings("carbon", json.dumps(wrong))
    assert CarbonSettings.model_fields["provider"].is_required()


# What goes wrong for a while -------------------------------------------------------------------


def test_a_demand_charge_acts_in_its_hours_and_is_shown_per_kilowatt(
    clock: ManualClock, tmp_path: Path
) -> None:
    tariff = {
        "charges": "demand",
        "timezone": "America/Los_Angeles",
        "otherwise": 0,
        "periods": [{"name": "peak", "price": 21.5, "begins": "16:00", "until": "21:00"}],
    }
    peak = {"name": "peak", "above": 0, "target": {"limit_kw": 800}}
    side = Side("price", clock, tmp_path, currency="USD", tariff=tariff, acts=[peak])
    assert [window(signal) for signal in side.poll()] == [(11, 16), (35, 40)]  # 16:00 PDT = 23:00Z
    assert ("23:00", 21.5, "USD/kW", "published") in side.advised
    assert {each.quantity for each in side.running.advisories()} == {"demand_charge_per_kw"}


def latest_page(pages: Pages, hour: int, grams: float) -> None:
    latest = json.loads(payload("carbon", "electricity_maps_latest.json"))
    at = (NOW + hour * HOUR).isoformat()
    pages.put("/carbon-intensity/latest", {**latest, "carbonIntensity": grams, "datetime": at})


def test_a_forecast_that_fails_does_not_blind_us_to_the_present(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str
) -> None:
    latest_page(pages, 0, 460)
    pages.serve("/carbon-intensity/forecast", Page(b"", 403))  # for paying users
    side = electricity_maps(pages, clock, tmp_path, key)
    (signal,) = side.poll()
    assert window(signal) == (0, 1.5)
    side.poll(60)
    side.poll(60)
    assert side.codes == ["page-forbidden"]
    assert side.running.health.now().failures == 0


def test_a_forecast_that_fails_takes_back_nothing_that_it_announced(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str
) -> None:
    latest_page(pages, 0, 300)
    forecast = Page(payload("carbon", "electricity_maps_forecast.json"))
    pages.serve("/carbon-intensity/forecast", [forecast, Page(b"", 503)])
    side = electricity_maps(pages, clock, tmp_path, key)
    (signal,) = side.poll()
    for _ in range(4):
        assert side.poll(300) == []
    assert side.codes == ["page-unavailable"]
    assert window(signal)[0] == 1


def test_hysteresis_holds_although_each_answer_is_one_value(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str
) -> None:
    side = electricity_maps(pages, clock, tmp_path, key, forecast=False)
    acting = []
    for hour, grams in enumerate((440, 460, 430, 445, 425, 419, 430)):  # above 450, clear at 420
        latest_page(pages, hour, grams)
        told = side.poll(60 if hour == 0 else 3600)
        if told:
            acting.append((hour, told[-1].request is not None, told[-1].source_id))
    name = "dirty-2026-07-30T13.00Z"
    assert acting == [*((hour, True, name) for hour in (1, 2, 3, 4)), (5, False, name)]


def test_case_27_a_false_value_under_an_old_time_is_passed_over_too(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str
) -> None:
    """Every 45 minutes 45 g/kWh, then the true value again, all of the same hour."""
    side = electricity_maps(pages, clock, tmp_path, key, forecast=False)
    told = []
    for hour in range(4):
        for minute, grams in ((0, 460), (15, 462), (30, 461), (45, 45)):
            latest_page(pages, hour, grams)
            told += side.poll(900)
            assert minute != 45 or side.codes.count("carbon-spike") in {hour, hour + 1}
    assert side.codes.count("carbon-spike") == 4
    assert {signal.request is not None for signal in told} == {True}
    assert all(value != 45 for _, value, _, _ in side.advised)


def test_case_27_a_false_value_right_after_a_restart_is_passed_over(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str
) -> None:
    side = electricity_maps(pages, clock, tmp_path, key, forecast=False)
    for hour in range(4):
        latest_page(pages, hour, 460 + hour)
        side.poll(3600)
    side.open()
    latest_page(pages, 4, 45)
    assert all(signal.request is not None for signal in side.poll(3600))
    assert side.codes == ["carbon-spike"]


def test_a_token_that_is_refused_costs_one_sign_in_and_a_busy_server_none(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str
) -> None:
    server = WattTimeServer(pages)
    side = watttime(pages, clock, tmp_path, key)
    side.poll()
    pages.serve("/v3/forecast", Page(b"", 503))
    for _ in range(5):
        side.poll(60)
    assert (server.logins, side.running.health.now().reason_code) == (1, "page-unavailable")
    pages.serve("/v3/forecast", Page(b"", 401))
    for _ in range(20):
        side.poll(10)
    assert (server.logins, side.running.health.now().reason_code) == (2, "page-forbidden")
    server.pages.serve("/v3/forecast", server.forecast)
    for _ in range(10):
        side.poll(60)
    assert side.running.health.now().failures == 0


@pytest.mark.parametrize(("status", "code"), [(429, "page-too-often"), (503, "page-unavailable")])
def test_case_27_a_busy_sign_in_is_not_a_wrong_password(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str, status: int, code: str
) -> None:
    server = WattTimeServer(pages)
    pages.serve("/login", Page(b"", status))
    side = watttime(pages, clock, tmp_path, key)
    side.poll()
    assert side.running.health.now().reason_code == code
    pages.serve("/login", server.login)
    side.poll(600)
    assert side.advised


def test_watttimes_points_last_as_long_as_it_says() -> None:
    page = json.loads(payload("carbon", "watttime_forecast.json"))
    page["meta"]["data_point_period_seconds"] = 1800
    page["data"] = [{"point_time": "2026-07-30T12:00:00+00:00", "value": 900}]
    (row,) = Carbon.parse(json.dumps(page).encode(), NOW, None).events
    assert row.start is not None
    assert row.end == row.start + timedelta(minutes=30)
    page["meta"]["data_point_period_seconds"] = 0
    with pytest.raises(InvalidInput):
        Carbon.parse(json.dumps(page).encode(), NOW, None)


def test_a_file_of_start_and_value_needs_no_settings() -> None:
    rows = [("2026-07-30T12:00Z", 5.0), ("2026-07-30T12:15Z", -4.5)]
    csv = "start,value\n" + "\n".join(f"{at},{price}" for at, price in rows)
    listed = json.dumps([{"start": at, "value": price} for at, price in rows])
    for body in (csv, listed):
        parsed = Price.parse(body.encode(), NOW, None)
        assert [row.value for row in parsed.events] == [5.0, -4.5]


def test_measured_values_alone_are_asked_for_and_the_place_is_never_guessed(
    pages: Pages, clock: ManualClock, tmp_path: Path, key: str
) -> None:
    latest_page(pages, 0, 300)
    pages.serve("/carbon-intensity/forecast", Page(b"", 503))
    electricity_maps(pages, clock, tmp_path, key, measured_only=True).poll()
    assert len(pages.asked) == 2
    for asked in pages.asked:
        assert "disableEstimations=true" in asked.path
        assert "shouldUseFallbackCallerLookup=false" in asked.path
