"""Whatever is sent, the answer is a problem with a stable code, never an error of our own."""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NAMES = ("id", "job_id", "feed_id", "gpus", "target", "start", "tier", "authority", "metadata")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["now", "firm", "a", "python x.py", "webhook"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), inner, max_size=6)
    ),
    max_leaves=12,
)
POSTS = ("jobs", "events", "events/preview", "feeds", "release", "jobs/a/pause", "events/a/cancel")
GETS = ("jobs", "jobs/{x}", "events/{x}/report", "gpus", "power", "ledger", "reports/energy")
CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
FUZZ = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def check(answer) -> None:
    assert answer.status_code < 500 or answer.json()["code"] == "control-unreachable", answer.text
    if answer.status_code >= 400:
        problem = answer.json()
        assert CODE.fullmatch(problem["code"]), problem
        assert problem["status"] == answer.status_code
        assert problem["detail"]


@FUZZ
@given(path=st.sampled_from(POSTS), body=JSON | st.binary(max_size=40))
def test_bodies(client, path, body):
    content = body if isinstance(body, bytes) else json.dumps(body)
    headers = {"Content-Type": "application/json"}
    check(client.post(f"/api/v1/{path}", content=content, headers=headers))


@FUZZ
@given(
    path=st.sampled_from(GETS),
    word=st.text(min_size=1, max_size=12),
    query=st.dictionaries(
        st.sampled_from(["limit", "cursor", "state", "from_seq", "kind", "start", "end", "series"])
        | st.sampled_from(["step_seconds", "by", "format"]),
        st.text(max_size=12) | st.integers().map(str) | st.floats().map(str),
        max_size=4,
    ),
)
def test_queries_and_paths(client, store, path, word, query):
    from urllib.parse import quote

    where = path.replace("{x}", quote(word, safe=""))
    check(client.get(f"/api/v1/{where}", params=query))


@pytest.mark.parametrize(
    "start", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-02-30T00:00:00Z"]
)
def test_times_at_the_ends_of_the_calendar(client, store, start):
    check(client.get("/api/v1/power", params={"series": "meter", "start": start}))
    check(client.get("/api/v1/reports/energy", params={"end": start}))


@pytest.mark.parametrize("where", ["settings", "feed_id"])
def test_half_a_character_is_the_senders_fault(client, where):
    feed = {"feed_id": "grid", "kind": "webhook", "programme_id": "p"}
    feed[where] = {"a": "\ud800"} if where == "settings" else "\ud800"
    answer = client.post("/api/v1/feeds", content=json.dumps(feed))
    assert answer.status_code == 422
    assert answer.json()["code"] in {"text-not-unicode", "request-invalid"}
