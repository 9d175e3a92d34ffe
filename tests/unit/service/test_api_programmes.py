"""Programmes over the API: the site's own before the catalogue's, each value with its source."""

from dataclasses import replace
from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from gridaware.service.app import build_app
from gridaware.wiring.catalogue import load_catalogue
from gridaware.wiring.config import load_settings

from .conftest import KEY, NOON

SITE = """
programmes:
  - {id: peak, catalogue: caiso-bip, deadline_seconds: 600}
  - {id: own, mandatory: false, obligation_hours: ["Mon-Fri 13:00-19:00"]}
"""


@pytest.fixture
def settings(settings, tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text(SITE, encoding="utf-8")
    own = load_settings(path).site_programmes()
    return replace(settings, programmes=own, catalogue=load_catalogue)


def event(store, name, programme="peak", kind="live", hours=2.0, ago_hours=5.0, ended=True):
    began = NOON - timedelta(hours=ago_hours)
    body = {
        "event_id": name,
        "programme_id": programme,
        "request": {"kind": kind},
        "started_at": began,
        "released_at": began + timedelta(hours=hours) if ended else None,
    }
    store.documents.put("event", name, "settled", body, NOON)
    store.ledger.flush()


def test_the_sites_own_come_first_with_what_is_really_in_force(client):
    page = client.get("/api/v1/programmes").json()
    assert page["next_cursor"] is None
    rows = {row["programme_id"]: row for row in page["items"]}
    assert [row["programme_id"] for row in page["items"][:2]] == ["peak", "own"]
    assert set(load_catalogue().entries) < set(rows)
    peak = rows["peak"]
    assert (peak["origin"], peak["catalogue"], peak["deadline_seconds"]) == (
        "site",
        "caiso-bip",
        600,
    )
    assert rows["caiso-bip"]["deadline_seconds"] == 1800
    assert (rows["own"]["catalogue"], rows["own"]["mandatory"]) == (None, False)
    assert rows["ercot-ers-30"]["sourced"] + rows["ercot-ers-30"]["to_check"] == 29


def test_one_of_the_site_shows_which_values_are_its_own(client, store):
    shown = client.get("/api/v1/programmes/peak").json()
    terms = {term["term"]: term for term in shown["terms"]}
    deadline = terms["deadline_seconds"]
    assert (deadline["value"], deadline["words"], deadline["mark"]) == (
        600,
        "10 min",
        "site settings",
    )
    assert terms["max_duration_seconds"]["mark"] == "sourced"
    assert "Base Interruptible Program" in terms["max_duration_seconds"]["source"]
    baseline = terms["baseline"]
    assert (baseline["value"], baseline["mark"]) == ("meter_before_after", "default")
    assert baseline["note"] == "in place of firm_service_level, which is not computed here"
    own = client.get("/api/v1/programmes/own").json()
    terms = {term["term"]: term for term in own["terms"]}
    assert terms["obligation_hours"]["value"] == ["Mon-Fri 13:00-19:00"]
    assert terms["mandatory"]["mark"] == "site settings"
    assert terms["deadline_seconds"]["mark"] == "default"


def test_its_caps_are_counted_from_the_live_events_that_the_store_holds(client, store):
    event(store, "e1")
    event(store, "e2", hours=1.5, ago_hours=30.0)
    event(store, "e3", ago_hours=1.0, ended=False)
    event(store, "e4", kind="test")
    event(store, "e5", programme="own")
    used = client.get("/api/v1/programmes/peak").json()["caps_used"]
    by_cap = {use["cap"]: use for use in used}
    assert by_cap["180 hours per year"]["used"] == pytest.approx(2.0 + 1.5 + 1.0)
    assert by_cap["180 hours per year"]["left"] == pytest.approx(175.5)
    assert by_cap["10 events per month"]["used"] == 3


def test_the_rules_of_another_time_can_be_asked_for(client):
    old = client.get("/api/v1/programmes/gb-dfs?at=2023-01-15T17:00:00Z").json()
    gap = client.get("/api/v1/programmes/gb-dfs?at=2023-07-15T17:00:00Z").json()
    new = client.get("/api/v1/programmes/gb-dfs?at=2026-11-30T17:00:00Z").json()
    assert [(p["version"], p["in_force"]) for p in (old, gap, new)] == [
        ("2022/23", True), ("2022/23", False), ("2026", True),
    ]  # fmt: skip
    assert new["exclusions"][0]["programme"] == "gb-dynamic-containment"
    assert [v["version"] for v in new["versions"]] == ["2022/23", "2023/24", "2026"]
    assert new["caps_used"] is None


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("programmes/ercot-ers30", 404, "programme-not-catalogued"),
        ("programmes/gb-dfs?at=yesterday", 422, "time-malformed"),
        ("programmes?at=2026-11-30T17:00:00", 422, "time-naive"),
    ],
)
def test_what_cannot_be_shown_is_refused(client, path, status, code):
    answer = client.get(f"/api/v1/{path}")
    assert (answer.json()["code"], answer.status_code) == (code, status)


def test_nobody_without_a_key_sees_them(settings, clock):
    with TestClient(build_app(settings, clock)) as stranger:
        assert stranger.get("/api/v1/programmes").status_code == 401
    assert KEY
