"""The OpenADR 3 client against a VTN that is wrong in every way seen in the field.

Numbers in names are the rows of servers' and clients' bug reports that each of them came from:
olp = OpenLEADR for Python, olr = openleadr-rs, ri = the Alliance's reference server.
"""

import json
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self

import pytest

from gridaware.clock import ManualClock, SystemClock
from gridaware.domain.advisory import Advisory
from gridaware.domain.errors import ConfigError, GridawareError, Unavailable
from gridaware.domain.fixes import fix_for
from gridaware.domain.signal import Signal
from gridaware.feeds import check_settings
from gridaware.feeds.kind import FeedContext
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.openadr3.kind import OpenAdr3
from gridaware.sim.grid.vtn3 import Quirk, Vtn
from gridaware.wiring.identity import issue, make_ca

NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
SECRET = "a-secret-of-the-ven"
FOR_EVER = {"start": "0001-01-01", "duration": "P9999Y"}


def level(value: object = 2, **period: object) -> dict[str, Any]:
    period = period or {"start": "2026-11-30T14:10:00Z", "duration": "PT1H"}
    return {
        "intervalPeriod": period,
        "intervals": [{"id": 0, "payloads": [{"type": "SIMPLE", "values": [value]}]}],
    }


class Site:
    """One feed, and what it said."""

    def __init__(self, vtn: Vtn, clock: ManualClock, folder: Path, **settings: object) -> None:
        self.vtn, self.clock, self.folder = vtn, clock, folder
        self.given = {
            "vtn_url": vtn.url,
            "client_id": "ven-client",
            "client_secret": "env:VTN_SECRET",
        } | settings
        self.given = {key: value for key, value in self.given.items() if value is not None}
        self.refused: list[str] = []
        self.advice: list[Advisory] = []
        self.feed = self.open()

    def open(self) -> OpenAdr3:
        def refuse(error: GridawareError, raw: str) -> None:
            assert fix_for(error.code), error.code
            assert len(raw) <= 4096
            self.refused.append(error.code)

        memory = FeedMemory(self.folder / "memory.json")
        context = FeedContext(
            "grid", self.clock, NOW, refuse, memory=memory, advise=self.advice.append
        )
        settings = check_settings("openadr3", json.dumps(self.given))
        return OpenAdr3(context, settings)  # type: ignore[arg-type]

    def restart(self) -> None:
        self.feed = self.open()

    def poll(self, after: float = 0) -> list[Signal]:
        self.clock.advance(after)
        return list(self.feed.poll())

    def asks(self, after: float = 0) -> dict[str, float | None]:
        """Source id → fraction to shed; None = taken back."""
        return {
            s.source_id: None if s.request is None else s.request.target.value
            for s in self.poll(after)
        }


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def vtn(clock: ManualClock) -> Iterator[Vtn]:
    with Vtn(clock=clock) as made:
        yield made


@pytest.fixture
def site(
    vtn: Vtn, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Site]:
    monkeypatch.setenv("VTN_SECRET", SECRET)
    return lambda **settings: Site(vtn, clock, tmp_path, **settings)


Sites = Callable[..., Site]


def only(asks: dict[str, float | None]) -> float | None:
    (value,) = asks.values()
    return value


# What is heard -----------------------------------------------------------------------------------


def test_an_event_becomes_one_signal_with_its_raw_text(vtn: Vtn, site: Sites) -> None:
    event = vtn.add_event(vtn.add_program("dr"), level())
    (signal,) = site().poll()
    assert signal.source_id.startswith(f"{event['id']}.")
    assert json.loads(signal.raw) == event
    assert (signal.revision, signal.received_at) == (0, NOW)
    assert signal.request is not None
    assert signal.request.target.value == 0.25
    assert signal.request.start == datetime(2026, 11, 30, 14, 10, tzinfo=UTC)
    assert signal.request.end == datetime(2026, 11, 30, 15, 10, tzinfo=UTC)


def test_one_unreadable_event_hides_no_other_and_is_told_once(vtn: Vtn, site: Sites) -> None:
    vtn.quirks.add(Quirk.ONE_BAD_EVENT)
    vtn.add_event(vtn.add_program("dr"), level())
    ours = site()
    assert only(ours.asks()) == only(ours.asks(5)) == 0.25
    assert len(ours.refused) == 1


@pytest.mark.parametrize("count", [49, 50, 51, 120])
def test_every_page_of_a_list_is_read(vtn: Vtn, site: Sites, count: int) -> None:
    program = vtn.add_program("dr")
    for _ in range(count):
        vtn.add_event(program, level())
    assert len(site().poll()) == count


def test_pages_shorter_than_asked_for_are_read_to_the_end(vtn: Vtn, site: Sites) -> None:
    vtn.quirks.add(Quirk.TRUNCATES_PAGES)
    program = vtn.add_program("dr")
    for _ in range(33):
        vtn.add_event(program, level())
    assert len(site().poll()) == 33


def test_ri_8_an_event_of_2020_that_is_still_listed_asks_for_nothing(vtn: Vtn, site: Sites) -> None:
    vtn.quirks.add(Quirk.IGNORES_ACTIVE)
    program = vtn.add_program("dr")
    vtn.add_event(program, level(start="2020-01-01T00:00:00Z", duration="PT1H"))
    vtn.add_event(program, level(1))
    ours = site()
    assert only(ours.asks()) == 0.1
    assert ours.refused == []


def test_ri_9_numbers_as_strings_are_read_and_a_level_9_is_refused(vtn: Vtn, site: Sites) -> None:
    vtn.quirks.add(Quirk.STRINGS_FOR_NUMBERS)
    program = vtn.add_program("dr")
    vtn.add_event(program, level(2))
    vtn.add_event(program, level(9))
    ours = site()
    assert only(ours.asks()) == 0.25
    assert ours.refused == ["payload-level"]


def test_olr_41_an_event_without_intervals_asks_for_nothing(vtn: Vtn, site: Sites) -> None:
    program = vtn.add_program("dr")
    vtn.add_event(program, {"intervalPeriod": FOR_EVER})
    vtn.add_event(program, level())
    assert only(site().asks()) == 0.25


def test_olp_154_a_private_unit_on_a_limit_is_refused(vtn: Vtn, site: Sites) -> None:
    body = level()
    body["payloadDescriptors"] = [{"payloadType": "IMPORT_CAPACITY_LIMIT", "units": "FURLONG"}]
    body["intervals"][0]["payloads"] = [{"type": "IMPORT_CAPACITY_LIMIT", "values": [5.0]}]
    vtn.add_event(vtn.add_program("dr"), body)
    ours = site()
    assert ours.asks() == {}
    assert ours.refused == ["payload-unit"]


def test_units_are_inherited_from_the_program(vtn: Vtn, site: Sites) -> None:
    descriptors = [{"payloadType": "IMPORT_CAPACITY_LIMIT", "units": "KW"}]
    body = level()
    body["intervals"][0]["payloads"] = [{"type": "IMPORT_CAPACITY_LIMIT", "values": [5.0]}]
    vtn.add_event(vtn.add_program("dr", payloadDescriptors=descriptors), body)
    assert only(site().asks()) == 5000.0


def test_an_alert_and_a_price_only_inform(vtn: Vtn, site: Sites) -> None:
    body = level()
    body["payloadDescriptors"] = [{"payloadType": "PRICE", "units": "KWH", "currency": "USD"}]
    body["intervals"][0]["payloads"] = [
        {"type": "ALERT_GRID_EMERGENCY", "values": ["shed everything at once"]},
        {"type": "PRICE", "values": [0.25]},
    ]
    vtn.add_event(vtn.add_program("prices"), body)
    ours = site()
    assert ours.asks() == {}
    assert [(a.quantity, a.value, a.unit) for a in ours.advice] == [
        ("alert", None, ""),
        ("price_per_mwh", 250.0, "USD/MWh"),
    ]


def test_randomize_start_is_drawn_once_and_outlives_a_restart(vtn: Vtn, site: Sites) -> None:
    period = {"start": "2026-11-30T16:00:00Z", "duration": "PT1H", "randomizeStart": "PT10M"}
    for _ in range(8):
        vtn.add_event(vtn.add_program(f"dr-{_}"), level(**period))
    ours = site()
    first = {s.source_id: s.request for s in ours.poll()}
    starts = {request.start for request in first.values() if request is not None}
    assert len(starts) > 1
    middle = datetime(2026, 11, 30, 16, tzinfo=UTC)
    assert all(abs(start - middle) <= timedelta(minutes=10) for start in starts)
    ours.restart()
    assert {s.source_id: s.request for s in ours.poll(60)} == first


def test_now_means_when_it_was_heard_of_first_also_after_a_restart(vtn: Vtn, site: Sites) -> None:
    vtn.add_event(vtn.add_program("dr"), level(**FOR_EVER))
    ours = site()
    (first,) = ours.poll()
    ours.restart()
    (later,) = ours.poll(3600)
    assert first.request == later.request
    assert first.request is not None
    assert (first.request.start, first.request.end, first.request.immediate) == (NOW, None, True)


# What changes ------------------------------------------------------------------------------------


def test_two_updates_within_a_second_are_two_revisions(vtn: Vtn, site: Sites) -> None:
    vtn.quirks.add(Quirk.ONE_SECOND_STAMPS)
    event = vtn.add_event(vtn.add_program("dr"), level(1))
    ours = site()
    told = [ours.poll()[0].revision]
    for value in (2, 3, 3):
        vtn.change_event(event["id"], level(value))
        told.append(ours.poll()[0].revision)
    assert told == [0, 1, 2, 2]


def test_olp_169_a_cancellation_that_stays_listed_is_said_once_and_hides_nothing(
    vtn: Vtn, site: Sites
) -> None:
    program = vtn.add_program("dr")
    event = vtn.add_event(program, level())
    ours = site()
    ours.poll()
    vtn.change_event(event["id"], level(start="0001-01-01", duration="PT0S"))
    (taken,) = ours.poll(5)
    assert (taken.request, taken.revision) == (None, 1)
    vtn.add_event(program, level(3))
    again = {s.source_id: (s.revision, s.request is None) for s in ours.poll(600)}
    assert again.pop(taken.source_id) == (1, True)
    assert list(again.values()) == [(0, False)]


def test_an_interval_that_its_sender_left_out_is_taken_back(vtn: Vtn, site: Sites) -> None:
    body = level()
    body["intervals"].append({"id": 1, "payloads": [{"type": "SIMPLE", "values": [3]}]})
    event = vtn.add_event(vtn.add_program("dr"), body)
    ours = site()
    assert list(ours.asks().values()) == [0.25, 0.5]
    vtn.change_event(event["id"], level())
    assert list(ours.asks(5).values()) == [0.25, None]


@pytest.mark.parametrize("value", [9, "x", None])
def test_a_change_that_cannot_be_read_leaves_standing_what_was_asked(
    vtn: Vtn, site: Sites, value: object
) -> None:
    event = vtn.add_event(vtn.add_program("dr"), level())
    ours = site()
    ours.poll()
    vtn.change_event(event["id"], level(value))
    assert ours.asks(5) == {}
    assert len(ours.refused) == 1


def test_what_has_ended_by_itself_is_not_taken_back(vtn: Vtn, site: Sites) -> None:
    event = vtn.add_event(vtn.add_program("dr"), level())
    ours = site()
    ours.poll()
    vtn.remove_event(event["id"])
    assert ours.asks(2 * 3600) == {}
    assert ours.asks(61) == {}


# What vanishes -----------------------------------------------------------------------------------


def test_olp_42_a_deleted_event_is_cancelled_after_two_reads_a_minute_apart(
    vtn: Vtn, site: Sites
) -> None:
    event = vtn.add_event(vtn.add_program("dr"), level())
    ours = site()
    ours.poll()
    ours.poll(5)
    vtn.remove_event(event["id"])
    assert only(ours.asks(5)) == 0.25
    assert only(ours.asks(59)) == 0.25
    assert only(ours.asks(1)) is None
    ours.restart()
    (again,) = ours.poll(5)
    assert (again.request, again.revision) == (None, 1)


def test_an_event_that_is_changed_after_it_was_cancelled_or_over_is_another_to_control(
    vtn: Vtn, site: Sites
) -> None:
    # Control begins nothing again under a name that is closed.
    program = vtn.add_program("dr")
    event = vtn.add_event(program, level())
    ours = site()
    (first,) = ours.poll()
    for number, window in enumerate(("2026-11-30T16:00:00Z", "2026-11-30T18:00:00Z"), 1):
        ours.clock.advance(2 * 3600)  # what was asked is over
        vtn.change_event(event["id"], level(start=window, duration="PT1H"))
        (next_one,) = [signal for signal in ours.poll() if signal.request is not None]
        assert (next_one.source_id, next_one.revision) == (f"{first.source_id}.r{number}", 0)
    vtn.change_event(event["id"], level(start="0001-01-01", duration="PT0S"))
    (gone,) = ours.poll(5)
    assert (gone.source_id, gone.request) == (next_one.source_id, None)
    vtn.change_event(event["id"], level(start="2026-11-30T18:30:00Z", duration="PT1H"))
    (again,) = [signal for signal in ours.poll(5) if signal.request is not None]
    assert again.source_id == f"{first.source_id}.r3"


def test_olp_92_an_empty_list_from_a_restarted_server_cancels_nothing(
    vtn: Vtn, site: Sites
) -> None:
    vtn.add_event(vtn.add_program("dr"), level(**FOR_EVER))
    ours = site()
    ours.poll()
    ours.poll(5)
    vtn.restart()
    for _ in range(60):
        assert only(ours.asks(60)) == 0.25
    assert ours.refused == ["openadr3-server-restarted"]
    assert [ven["venName"] for ven in vtn.kept("vens")] == ["gridaware-grid"]


def test_ri_7_a_reused_id_names_another_event(vtn: Vtn, site: Sites) -> None:
    vtn.quirks.add(Quirk.REUSED_IDS)
    first = vtn.add_event(vtn.add_program("dr"), level(**FOR_EVER))
    ours = site()
    ours.poll()
    ours.poll(5)
    vtn.restart()
    ours.clock.advance(5)
    second = vtn.add_event(vtn.add_program("dr"), level(3))
    assert first["id"] == second["id"]
    asks = ours.asks(5)
    assert list(asks.values()) == [0.5, 0.25]
    for _ in range(5):
        assert ours.asks(60) == asks


def test_events_that_a_restarted_server_still_has_may_be_cancelled_by_it_later(
    vtn: Vtn, site: Sites
) -> None:
    vtn.quirks.add(Quirk.KEEPS_EVENTS)
    event = vtn.add_event(vtn.add_program("dr"), level(**FOR_EVER))
    ours = site()
    ours.poll()
    vtn.restart()
    for _ in range(3):
        assert only(ours.asks(61)) == 0.25
    vtn.remove_event(event["id"])
    assert only(ours.asks(5)) == 0.25
    assert only(ours.asks(61)) is None


def test_a_scope_that_was_taken_away_cancels_nothing(vtn: Vtn, site: Sites) -> None:
    vtn.add_event(vtn.add_program("dr"), level(**FOR_EVER))
    ours = site()
    ours.poll()
    ours.poll(5)
    vtn.quirks.add(Quirk.SCOPE_LOST)
    for _ in range(5):
        assert only(ours.asks(61)) == 0.25
    assert "openadr3-scope-lost" in ours.refused
    assert len(vtn.kept("vens")) == 1


@pytest.mark.parametrize("quirk", [Quirk.BROKEN_PAGE, Quirk.HTML_ERRORS])
def test_a_list_that_is_not_whole_concludes_nothing(vtn: Vtn, site: Sites, quirk: Quirk) -> None:
    event = vtn.add_event(vtn.add_program("dr"), level(**FOR_EVER))
    ours = site()
    ours.poll()
    ours.poll(5)
    vtn.remove_event(event["id"])
    program = vtn.add_program("more")
    for _ in range(60):
        vtn.add_event(program, level(1))
    vtn.quirks.add(quirk)
    for _ in range(3):
        with pytest.raises(Unavailable):
            ours.poll(61)
    vtn.quirks.clear()
    assert ours.asks(61)[next(iter(ours.asks()))] is not None


def test_without_our_own_objects_nothing_that_vanishes_is_cancelled(vtn: Vtn, site: Sites) -> None:
    event = vtn.add_event(vtn.add_program("dr"), level(**FOR_EVER))
    ours = site(register_ven=False)
    ours.poll()
    vtn.remove_event(event["id"])
    for _ in range(3):
        assert only(ours.asks(61)) == 0.25
    assert vtn.kept("vens") == []


def test_a_server_that_was_restarted_while_we_were_down_is_noticed(vtn: Vtn, site: Sites) -> None:
    vtn.add_event(vtn.add_program("dr"), level(**FOR_EVER))
    ours = site()
    ours.poll()
    ours.poll(5)
    vtn.restart()
    ours.restart()
    for _ in range(4):
        assert ours.asks(61) == {}
    assert ours.refused == ["openadr3-server-restarted"]


def test_one_read_and_a_restart_of_ours_begin_the_count_anew(vtn: Vtn, site: Sites) -> None:
    event = vtn.add_event(vtn.add_program("dr"), level(**FOR_EVER))
    ours = site()
    ours.poll()
    ours.poll(5)
    vtn.remove_event(event["id"])
    ours.poll(5)
    ours.restart()
    assert [ours.asks(61), ours.asks(61)] == [{}, {}]  # held: nothing is taken back
    assert only(ours.asks(61)) is None


# Whose it is -------------------------------------------------------------------------------------


def test_ri_4_events_of_other_programs_are_left_alone(vtn: Vtn, site: Sites) -> None:
    mine, other = vtn.add_program("mine"), vtn.add_program("other")
    vtn.add_event(mine, level(1))
    vtn.add_event(other, level(3))
    assert only(site(program_ids=[mine["id"]]).asks()) == 0.1
    assert only(site(program_names=["mine"]).asks()) == 0.1


def test_a_program_that_the_server_does_not_show_is_told(vtn: Vtn, site: Sites) -> None:
    vtn.add_event(vtn.add_program("dr"), level())
    ours = site(program_names=["drr"])
    assert ours.asks() == {}
    ours.poll(61)
    assert ours.refused == ["openadr3-program-unknown"]


def test_olr_441_events_for_others_are_left_alone_and_ours_are_asked_for(
    vtn: Vtn, site: Sites
) -> None:
    program = vtn.add_program("dr")
    vtn.add_event(program, level(1) | {"targets": ["site-1"]})
    vtn.add_event(program, level(2))
    vtn.add_event(program, level(3) | {"targets": ["site-2"]})
    ours = site(targets=["site-1"])
    assert sorted(value or 0 for value in ours.asks().values()) == [0.1, 0.25]
    assert any("targets=site-1" in path for _, path in vtn.asked)


def test_targets_of_301_are_asked_for_by_type_and_values(
    clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTN_SECRET", SECRET)
    with Vtn(version="3.0.1", clock=clock) as vtn:
        typed = [{"type": "GROUP", "values": ["site-1"]}]
        vtn.add_event(vtn.add_program("dr"), level(1) | {"targets": typed})
        ours = Site(vtn, clock, tmp_path, version="3.0.1", targets=["site-1"])
        assert only(ours.asks()) == 0.1
        assert any("targetType=GROUP&targetValues=site-1" in path for _, path in vtn.asked)


# Tokens ------------------------------------------------------------------------------------------


def tokens_asked(vtn: Vtn) -> int:
    return sum(path == "/auth/token" for _, path in vtn.asked)


def test_a_token_is_asked_for_where_the_server_says_and_renewed_at_half_its_life(
    vtn: Vtn, site: Sites
) -> None:
    vtn.token_seconds = 600
    ours = site()
    ours.poll()
    ours.poll(299)
    assert tokens_asked(vtn) == 1
    ours.poll(2)
    assert tokens_asked(vtn) == 2
    assert ("GET", "/auth/server") in vtn.asked


def test_basic_is_tried_after_a_form_and_remembered(vtn: Vtn, site: Sites) -> None:
    vtn.quirks.add(Quirk.BASIC_TOKENS)
    ours = site()
    ours.poll()
    assert tokens_asked(vtn) == 2
    ours.restart()
    ours.poll()
    assert tokens_asked(vtn) == 3


@pytest.mark.parametrize("quirk", [Quirk.NO_AUTH_SERVER, Quirk.NO_EXPIRES_IN])
def test_servers_that_say_less_about_tokens_are_understood(
    vtn: Vtn, site: Sites, quirk: Quirk
) -> None:
    vtn.quirks.add(quirk)
    vtn.add_event(vtn.add_program("dr"), level())
    assert only(site().asks()) == 0.25


@pytest.mark.parametrize("quirks", [set(), {Quirk.EXPIRED_IS_403}])
def test_an_expired_token_is_replaced_once_whether_401_or_403_is_said(
    vtn: Vtn, site: Sites, quirks: set[Quirk]
) -> None:
    vtn.quirks |= quirks
    vtn.add_event(vtn.add_program("dr"), level())
    ours = site()
    ours.poll()
    vtn.expire_tokens()
    assert only(ours.asks(60)) == 0.25
    assert tokens_asked(vtn) == 2


def test_olr_22_a_server_that_refuses_every_token_gets_no_storm(vtn: Vtn, site: Sites) -> None:
    ours = site()
    ours.poll()
    vtn.token_seconds = 0
    vtn.expire_tokens()
    for _ in range(20):
        with pytest.raises(Unavailable) as caught:
            ours.poll(1)
    assert caught.value.code == "openadr3-unauthorized"
    assert tokens_asked(vtn) <= 1 + 21


def test_a_wrong_secret_is_told_as_one(
    vtn: Vtn, site: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = site()
    monkeypatch.setenv("VTN_SECRET", "another-secret-of-it")
    ours.restart()
    with pytest.raises(Unavailable) as caught:
        ours.poll()
    assert caught.value.code == "openadr3-token"
    assert "secret" not in caught.value.message


def test_an_anonymous_server_is_asked_without_a_token(vtn: Vtn, site: Sites) -> None:
    vtn.quirks.add(Quirk.ANONYMOUS)
    vtn.add_event(vtn.add_program("dr"), level())
    ours = site(client_id=None, client_secret=None)
    assert only(ours.asks()) == 0.25
    assert tokens_asked(vtn) == 0


# Our own objects ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.0.1", "3.1"])
def test_ven_and_resource_are_registered_once_in_the_shape_of_the_version(
    version: str, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTN_SECRET", SECRET)
    with Vtn(version="3.0.1" if version == "3.0.1" else "3.1.0", clock=clock) as vtn:
        vtn.quirks.add(Quirk.REFUSES_NULLS)
        ours = Site(vtn, clock, tmp_path, version=version, ven_name="hall", resource_name="row-1")
        ours.poll()
        ours.restart()
        ours.poll(5)
        (ven,), (resource,) = vtn.kept("vens"), vtn.kept("resources")
        assert (ven["venName"], resource["resourceName"]) == ("hall", "row-1")
        assert resource["venID"] == ven["id"]
        posted = f"/vens/{ven['id']}/resources" if version == "3.0.1" else "/resources"
        assert [path for verb, path in vtn.asked if verb == "POST" and "resour" in path] == [posted]
        assert ours.refused == []


def test_ri_2_what_was_stored_and_answered_500_is_not_made_twice(vtn: Vtn, site: Sites) -> None:
    vtn.quirks |= {Quirk.STORES_THEN_500, Quirk.NO_ECHO}
    ours = site(resource_name="row-1", callback_url="https://site.invalid/hook")
    for _ in range(3):
        try:
            ours.poll(6)
        except Unavailable:
            continue
    assert [len(vtn.kept(kind)) for kind in ("vens", "resources", "subscriptions")] == [1, 1, 1]


def test_a_lost_subscription_is_made_anew_and_concludes_nothing(vtn: Vtn, site: Sites) -> None:
    vtn.quirks |= {Quirk.LOSES_SUBSCRIPTIONS, Quirk.NO_ECHO}
    event = vtn.add_event(vtn.add_program("dr"), level(**FOR_EVER))
    ours = site(callback_url="https://site.invalid/hook")
    ours.poll()
    vtn.remove_event(event["id"])
    for _ in range(4):
        assert only(ours.asks(61)) == 0.25
    assert "openadr3-subscription-lost" in ours.refused
    vtn.quirks.remove(Quirk.LOSES_SUBSCRIPTIONS)
    for _ in range(4):
        ours.poll(61)
    assert len(vtn.kept("subscriptions")) == 1


def test_419_a_server_without_webhooks_is_polled_and_asked_again_later(
    vtn: Vtn, site: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridaware.sim.grid.vtn3.http._WRITABLE", {"vens"})
    vtn.quirks.add(Quirk.NO_ECHO)
    event = vtn.add_event(vtn.add_program("dr"), level(**FOR_EVER))
    ours = site(callback_url="https://site.invalid/hook")
    assert only(ours.asks()) == only(ours.asks(5)) == 0.25
    assert ours.refused == ["openadr3-not-registered"]
    vtn.remove_event(event["id"])
    ours.poll(5)
    assert only(ours.asks(61)) is None
    monkeypatch.undo()
    ours.poll(300)
    assert len(vtn.kept("subscriptions")) == 1


def test_a_subscription_of_an_earlier_life_is_replaced(
    vtn: Vtn, site: Sites, tmp_path: Path
) -> None:
    vtn.quirks.add(Quirk.NO_ECHO)
    ours = site(callback_url="https://site.invalid/hook")
    ours.poll()
    (before,) = vtn.kept("subscriptions")
    (tmp_path / "memory.json").unlink()
    ours.restart()
    ours.poll(5)
    (after,) = vtn.kept("subscriptions")
    bearers = [each["objectOperations"][0]["bearerToken"] for each in (before, after)]
    assert bearers[0] != bearers[1]
    assert all(len(bearer.encode()) >= 32 for bearer in bearers)


# How it answers ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("quirk", [Quirk.DRIPPING, Quirk.HALF_OPEN])
def test_a_server_that_never_ends_its_answer_is_left_in_time(
    vtn: Vtn, site: Sites, quirk: Quirk
) -> None:
    vtn.quirks.add(quirk)
    with pytest.raises(Unavailable) as caught:
        site().poll()
    assert caught.value.code in {"answer-too-late", "peer-unreachable"}


def test_a_clock_that_differs_is_told_once(vtn: Vtn, site: Sites) -> None:
    ours = site()
    ours.poll()
    assert ours.refused == []
    vtn.quirks.add(Quirk.CLOCK_OFF)
    ours.poll(5)
    ours.poll(5)
    assert ours.refused == ["openadr3-clock-offset"]


class Stub:
    """A server that says one thing."""

    def __init__(self, status: int, body: bytes, tls: ssl.SSLContext | None = None, **more: str):
        self.asked: list[str] = []
        outer = self

        class Door(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Door)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_a_server_that_asks_to_be_left_alone_is(site: Sites) -> None:
    with Stub(503, b'{"title": "busy"}', Retry_After="30") as stub:
        url = f"http://127.0.0.1:{stub.server.server_port}"
        ours = site(vtn_url=url, client_id=None, client_secret=None)
        codes = []
        for _ in range(4):
            with pytest.raises(Unavailable) as caught:
                ours.poll(10)
            codes.append(caught.value.code)
        assert codes == ["openadr3-refused", *["openadr3-told-to-wait"] * 2, "openadr3-refused"]
        assert len(stub.asked) == 2


def test_a_problem_document_is_told_in_its_own_words(site: Sites) -> None:
    with Stub(404, b'{"title": "Not Found", "detail": "no such path here"}') as stub:
        url = f"http://127.0.0.1:{stub.server.server_port}"
        ours = site(vtn_url=url, client_id=None, client_secret=None)
        with pytest.raises(Unavailable, match="404 no such path here"):
            ours.poll()


def test_olp_56_a_certificate_that_nobody_we_trust_has_signed_is_refused(
    site: Sites, tmp_path: Path
) -> None:
    clock = SystemClock()
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    trusted, other = make_ca(ours, clock), make_ca(theirs, clock)
    identity = issue(ours, "vtn", clock, "controller")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(identity.certificate, identity.key)
    with Stub(200, b"[]", tls) as stub:
        url = f"https://127.0.0.1:{stub.server.server_port}"
        given = {"vtn_url": url, "client_id": None, "client_secret": None, "register_ven": False}
        for more in ({}, {"ca_file": str(other)}):
            with pytest.raises(Unavailable) as caught:
                site(**given, **more).poll()
            assert caught.value.code == "peer-certificate"
        assert stub.asked == []
        assert site(**given, ca_file=str(trusted)).poll() == []
    with pytest.raises(ConfigError):
        site(ca_file=str(tmp_path / "absent.pem"))


def test_a_server_on_https_cannot_send_the_secret_elsewhere_in_the_clear(
    site: Sites, tmp_path: Path
) -> None:
    clock = SystemClock()
    ca = make_ca(tmp_path / "ca", clock)
    identity = issue(tmp_path / "ca", "vtn", clock, "controller")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(identity.certificate, identity.key)
    with Stub(200, b'{"tokenURL": "http://127.0.0.1:9/token"}', tls) as stub:
        url = f"https://127.0.0.1:{stub.server.server_port}"
        with pytest.raises(Unavailable, match="not https"):
            site(vtn_url=url, ca_file=str(ca)).poll()


@pytest.mark.parametrize(
    "settings",
    [
        {"vtn_url": "http://vtn.example/openadr3"},
        {"vtn_url": "ftp://vtn.example"},
        {"token_url": "http://idp.example/token"},
        {"callback_url": "http://site.example/hook"},
    ],
)
def test_nothing_is_said_over_an_open_network_in_the_clear(
    site: Sites, settings: dict[str, str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        site(**settings)
    assert caught.value.code == "openadr3-url"
