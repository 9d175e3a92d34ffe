"""The SDK against a stub of the API: what it sends, and what becomes of answers."""

import inspect
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import gridaware
from gridaware.client import Client
from gridaware.domain.errors import (
    Bug,
    GridawareError,
    Infeasible,
    InvalidInput,
    NotFound,
    Refused,
    TimedOut,
    Unavailable,
)

from .conftest import StubApi

METHODS = {
    "advisories", "cancel_event", "close", "cordon", "energy_report", "event", "event_report",
    "event_report_file", "events", "explain_job", "feed", "feeds", "gpus", "hold_job", "job",
    "job_logs", "jobs", "ledger", "nodes", "opt_out", "pause_job", "policies", "power",
    "preview_event", "programme", "programmes", "register_feed", "release", "release_job",
    "remove_feed", "resume_job", "send_event", "status", "stop_job", "submit_job", "test_feed",
    "uncordon",
}  # fmt: skip


def test_the_public_methods_are_pinned() -> None:
    public = {name for name, _ in inspect.getmembers(Client, inspect.isfunction)}
    assert {name for name in public if not name.startswith("_")} == METHODS
    assert gridaware.Client is Client


def test_a_job_is_sent_with_its_key_and_a_fresh_idempotency_key(api: StubApi) -> None:
    api.answer("POST", "/jobs", {"id": "j", "disposition": "accepted", "message": None})
    client = Client(api.url, "secret")
    for _ in range(2):
        answer = client.submit_job(
            "python train.py", gpus=8, job_id="j", tier="flex-2", runtime_env={"a": 1}, priority=3
        )
        assert answer["disposition"] == "accepted"
    first, second = api.asked
    assert first.body == {
        "entrypoint": "python train.py", "gpus": 8, "job_id": "j", "tier": "flex-2",
        "team": "default", "runtime_env": {"a": 1}, "metadata": {}, "priority": 3,
    }  # fmt: skip
    assert first.headers["authorization"] == "Bearer secret"
    assert len(first.headers["idempotency-key"]) == 32
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


def test_a_job_without_a_name_gets_one(api: StubApi) -> None:
    api.answer("POST", "/jobs", {})
    Client(api.url).submit_job("x", gpus=1)
    assert api.asked[0].body["job_id"].startswith("job-")


@pytest.mark.parametrize(
    ("given", "body"),
    [
        ({"duration": "PT45S"}, {"start": "now", "duration": "PT45S"}),
        ({}, {"start": "now", "open_end": True}),
        (
            {
                "start": datetime(2026, 7, 1, 16, tzinfo=timezone(timedelta(hours=2))),
                "end": "2026-07-01T15:00:00Z",
            },
            {"start": "2026-07-01T14:00:00Z", "end": "2026-07-01T15:00:00Z"},
        ),
    ],
)
def test_an_event_is_sent_as_the_grid_would_send_it(
    api: StubApi, given: dict[str, Any], body: dict[str, Any]
) -> None:
    api.answer("POST", "/events", {"event_id": "admin.e"})
    Client(api.url).send_event(target={"reduce_percent": 40}, event_id="e", kind="test", **given)
    assert api.asked[0].body == {
        "id": "e", "revision": 0, "kind": "test", "target": {"reduce_percent": 40}, **body,
    }  # fmt: skip


def test_a_naive_time_never_leaves(api: StubApi) -> None:
    with pytest.raises(InvalidInput) as caught:
        Client(api.url).send_event(target={"limit_kw": 1}, start=datetime(2026, 7, 1))  # noqa: DTZ001
    assert caught.value.code == "time-naive"
    assert not api.asked


def test_a_list_is_read_page_after_page(api: StubApi) -> None:
    api.answer(
        "GET",
        "/jobs",
        {"items": [{"job_id": "a"}, {"job_id": "b"}], "next_cursor": "2"},
        {"items": [{"job_id": "c"}], "next_cursor": None},
    )
    jobs = Client(api.url).jobs(state="running")
    assert [job["job_id"] for job in jobs] == ["a", "b", "c"]
    assert [asked.query for asked in api.asked] == [
        {"state": "running"},
        {"state": "running", "cursor": "2"},
    ]


def test_a_name_cannot_leave_its_part_of_the_path(api: StubApi) -> None:
    with pytest.raises(GridawareError):
        Client(api.url).job("../events?x=1")
    assert api.asked[0].path == "/jobs/..%2Fevents%3Fx%3D1"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_what_names_the_list_or_what_lies_above_is_no_name(api: StubApi, name: str) -> None:
    api.answer("GET", "/jobs/", {"items": []})
    client = Client(api.url)
    for ask in (client.job, client.stop_job, client.event, client.cordon, client.remove_feed):
        with pytest.raises(InvalidInput) as caught:
            ask(name)
        assert caught.value.code == "api-name-malformed"
    assert api.asked == []


def test_a_number_that_is_none_is_called_so_and_never_sent(api: StubApi) -> None:
    with pytest.raises(InvalidInput) as caught:
        Client(api.url).send_event(target={"reduce_percent": float("nan")}, duration="PT1H")
    assert caught.value.code == "number-not-finite"
    assert api.asked == []


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (404, "NotFound", NotFound),
        (409, "Refused", Refused),
        (409, "Infeasible", Infeasible),
        (422, "InvalidInput", InvalidInput),
        (503, "Unavailable", Unavailable),
        (504, "TimedOut", TimedOut),
        (409, None, Refused),
        (418, "Whatever", InvalidInput),
        (500, "__class__", Bug),
    ],
)
def test_a_problem_becomes_the_error_that_the_server_raised(
    api: StubApi, status: int, kind: str | None, expected: type[GridawareError]
) -> None:
    problem = {"code": "some-code", "detail": "a fact", "kind": kind, "facts": {"watts": 3}}
    api.answer("GET", "/status", problem, status=status)
    with pytest.raises(expected) as caught:
        Client(api.url).status()
    assert type(caught.value) is expected
    assert (caught.value.code, caught.value.message) == ("some-code", "a fact")
    assert caught.value.facts == {"watts": 3}


def test_everything_that_is_wrong_with_a_request_is_in_the_message(api: StubApi) -> None:
    wrong = [{"where": "body.gpus", "detail": "too many"}, {"where": "body.x", "detail": "extra"}]
    problem = {"code": "request-invalid", "detail": "2 things are wrong", "errors": wrong}
    api.answer("POST", "/jobs", problem, status=422)
    with pytest.raises(InvalidInput) as caught:
        Client(api.url).submit_job("x", gpus=1)
    assert caught.value.message.splitlines() == [
        "2 things are wrong", "body.gpus: too many", "body.x: extra",
    ]  # fmt: skip


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'{"items": 3}', b""])
def test_an_answer_that_is_not_ours_is_called_so(api: StubApi, body: bytes) -> None:
    api.answer("GET", "/nodes", body)
    with pytest.raises(Unavailable) as caught:
        Client(api.url).nodes()
    assert caught.value.code == "api-answer-malformed"


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable) as caught:
        Client("http://127.0.0.1:9").status()
    assert caught.value.code == "api-unreachable"
    assert caught.value.retryable


def test_a_url_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidInput):
        Client("file:///etc/passwd")


def test_url_and_key_come_from_the_environment(
    api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDAWARE_URL", api.url + "/")
    monkeypatch.setenv("GRIDAWARE_API_KEY", "from-outside")
    api.answer("GET", "/status", {"site": "s"})
    with Client() as client:
        assert client.status()["site"] == "s"
    assert api.asked[0].headers["authorization"] == "Bearer from-outside"


def test_programmes_are_asked_for_by_name_and_time(api: StubApi) -> None:
    row = {"programme_id": "peak", "origin": "site"}
    api.answer("GET", "/programmes", {"items": [row], "next_cursor": None})
    api.answer("GET", "/programmes/peak", row | {"terms": []})
    client = Client(api.url)
    assert client.programmes() == [row]
    at = datetime(2023, 1, 15, 18, tzinfo=timezone(timedelta(hours=1)))
    assert client.programme("peak", at=at)["terms"] == []
    assert [(asked.path, asked.query) for asked in api.asked] == [
        ("/programmes", {}),
        ("/programmes/peak", {"at": "2023-01-15T17:00:00Z"}),
    ]
