"""Acting over the API: each route is one command to control, and its refusal is a problem."""

import dataclasses
import json

import pytest

from gridaware.domain.job import JobSpec, Placement, Tier
from gridaware.domain.programme import Authority
from gridaware.service.bodies import AuthorityBody, JobBody

JOB = {"job_id": "train", "entrypoint": "python train.py", "gpus": 8}
EVENT = {"id": "dr-1", "start": "now", "duration": "PT1H", "target": {"reduce_percent": 40}}
FEED = {"feed_id": "grid", "kind": "webhook", "programme_id": "p-1"}


@pytest.fixture
def settings(settings, control):
    return dataclasses.replace(settings, control_socket=control.path)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "command", "args"),
    [
        ("POST", "jobs", JOB, 201, "job.submit", JOB),
        ("POST", "jobs/train/pause", {}, 200, "job.pause", {"job_id": "train"}),
        ("POST", "jobs/train/resume", {}, 200, "job.resume", {"job_id": "train"}),
        ("POST", "jobs/train/hold", None, 200, "job.hold", {"job_id": "train"}),
        ("POST", "jobs/train/release", {}, 200, "job.release", {"job_id": "train"}),
        ("POST", "jobs/train/stop", {}, 200, "job.stop", {"job_id": "train"}),
        ("GET", "jobs/train/logs", None, 200, "job.logs", {"job_id": "train"}),
        ("POST", "events", EVENT, 201, "event.send", EVENT),
        ("POST", "events/preview", EVENT, 200, "event.preview", EVENT),
        ("POST", "events/grid.dr-1/cancel", {}, 200, "event.cancel", {"event_id": "grid.dr-1"}),
        ("POST", "events/grid.dr-1/opt-out", {}, 200, "event.opt_out", {"event_id": "grid.dr-1"}),
        ("POST", "feeds", FEED, 201, "feed.add", FEED),
        ("POST", "feeds/grid/test", {}, 200, "feed.test", {"feed_id": "grid"}),
        ("DELETE", "feeds/grid", None, 200, "feed.remove", {"feed_id": "grid"}),
        ("POST", "nodes/n-0/cordon", {}, 200, "node.cordon", {"node_id": "n-0"}),
        ("POST", "nodes/n-0/uncordon", {}, 200, "node.uncordon", {"node_id": "n-0"}),
        ("POST", "release", {}, 200, "fleet.release", {}),
        ("POST", "release", None, 200, "fleet.release", {}),
        ("POST", "release", {"confirm": "opt out"}, 200, "fleet.release", {"confirm": "opt out"}),
        (
            "POST",
            "events/e/opt-out",
            {"reason": "a deadline"},
            200,
            "event.opt_out",
            {"event_id": "e", "reason": "a deadline"},
        ),
    ],
)
def test_each_route_is_one_command_in_the_name_of_the_keys_holder(
    client, control, method, path, body, status, command, args
):
    answer = client.request(method, f"/api/v1/{path}", json=body)
    assert (answer.status_code, answer.json()) == (status, {"done": True})
    assert control.last == (command, args, "admin", None)


def test_every_field_of_a_job_travels_as_it_was_written(client, control):
    body = JOB | {
        "tier": "flex-3",
        "team": "vision",
        "priority": -5,
        "placement": "workers",
        "workload": "llm-train",
        "pausable": False,
        "min_cap_watts": 150.0,
        "checkpoint_grace_seconds": 30.0,
        "expected_seconds": 3600.0,
        "max_retries": 2,
        "runtime_env": {"working_dir": "s3://x", "env_vars": {"A": "1"}},
        "metadata": {"note": "none"},
        "entrypoint_num_cpus": 1.0,
        "entrypoint_resources": {"nvme": 0.5},
        "cluster_id": "east",
    }
    assert client.post("/api/v1/jobs", json=body).status_code == 201
    assert control.last[1] == body


def test_the_shapes_have_the_fields_and_defaults_of_the_domain():
    renamed = {"runtime_env_json": "runtime_env"}
    fields = {renamed.get(f.name, f.name): f for f in dataclasses.fields(JobSpec)}
    assert set(JobBody.model_fields) == set(fields)
    made = JobBody(**JOB)
    for name in ("tier", "team", "priority", "placement", "pausable", "checkpoint_grace_seconds"):
        assert getattr(made, name) == fields[name].default
    assert AuthorityBody().model_dump() == dataclasses.asdict(Authority())
    schema = JobBody.model_json_schema()["properties"]
    assert schema["tier"]["enum"] == [tier.value for tier in Tier]
    assert schema["placement"]["enum"] == [placement.value for placement in Placement]


def test_an_idempotency_key_goes_with_its_command(client, control):
    client.post("/api/v1/jobs", json=JOB, headers={"Idempotency-Key": "once-7"})
    assert control.last[3] == "once-7"


@pytest.mark.parametrize("key", ["x" * 201, "caf\u00e9", "a\tb"])
def test_an_idempotency_key_that_is_none_is_refused(client, control, key):
    headers = {"Idempotency-Key": key.encode()}
    refusal = client.post("/api/v1/jobs", json=JOB, headers=headers)
    assert (refusal.status_code, refusal.json()["code"]) == (422, "idempotency-key-malformed")
    assert control.requests == []


@pytest.mark.parametrize(
    ("kind", "code", "status"),
    [
        ("InvalidInput", "end-before-start", 422),
        ("NotFound", "job-unknown", 404),
        ("Refused", "job-not-pausable", 409),
        ("Refused", "authority-exceeded", 403),
        ("Infeasible", "plan-infeasible", 409),
        ("ConfigError", "secret-missing", 422),
        ("Unavailable", "ray-unreachable", 503),
        ("TimedOut", "ray-slow", 504),
        ("DeviceNoPermission", "device-no-permission", 502),
        ("Bug", "life-cycle-no-edge", 500),
        ("SomethingNew", "from-the-future", 500),
    ],
)
def test_controls_refusals_become_problems_of_their_kind(client, control, kind, code, status):
    control.refuse(kind, code, job_id="train")
    refusal = client.post("/api/v1/jobs/train/pause")
    assert refusal.status_code == status
    assert refusal.headers["Content-Type"] == "application/problem+json"
    problem = refusal.json()
    assert (problem["code"], problem["status"], problem["detail"]) == (code, status, "no")
    assert problem["type"] == f"urn:gridaware:problem:{code}"
    assert problem["facts"] == {"job_id": "train"}
    assert problem["kind"] == ("Bug" if kind == "SomethingNew" else kind)
    assert problem["retryable"] is (kind in {"Unavailable", "TimedOut"})


def test_a_known_code_comes_with_what_to_do(client, control):
    control.refuse("InvalidInput", "end-before-start")
    problem = client.post("/api/v1/events", json=EVENT).json()
    assert problem["fix"] == "Send an end after the start, or a duration."


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (b"", 503, "control-unreachable"),
        (b'{"ok":true', 503, "control-unreachable"),
        (b"nonsense\n", 500, "control-answer-malformed"),
        (b'{"ok":false}\n', 500, "control-answer-malformed"),
    ],
)
def test_an_answer_of_control_that_breaks_off_or_is_nonsense_is_a_problem(
    client, control, answer, status, code
):
    control.answer = answer
    refusal = client.post("/api/v1/jobs/train/pause")
    assert (refusal.status_code, refusal.json()["code"]) == (status, code)


# Bad input: never reaches control


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("jobs", {}, {"body.job_id", "body.entrypoint", "body.gpus"}),
        ("jobs", JOB | {"gpus": True}, {"body.gpus"}),
        ("jobs", JOB | {"gpus": "8"}, {"body.gpus"}),
        ("jobs", JOB | {"gpus": -1, "tier": "gold"}, {"body.gpus", "body.tier"}),
        ("jobs", JOB | {"job_id": "../etc"}, {"body.job_id"}),
        ("jobs", JOB | {"job_id": "x" * 65}, {"body.job_id"}),
        ("jobs", JOB | {"entrypoint": ""}, {"body.entrypoint"}),
        ("jobs", JOB | {"gpu": 1, "min_cap_watts": 0}, {"body.gpu", "body.min_cap_watts"}),
        ("jobs", [], {"body"}),
        ("jobs", None, {"body"}),
        ("events", {"id": "dr-1"}, {"body.start", "body.target"}),
        ("events", EVENT | {"target": {"reduce_percent": "40"}}, {"body.target.reduce_percent"}),
        ("events", EVENT | {"kind": "real", "ends": "x"}, {"body.kind", "body.ends"}),
        ("events", EVENT | {"revision": 1.5}, {"body.revision"}),
        ("feeds", FEED | {"authority": {"greatest_depth": 40}}, {"body.authority.greatest_depth"}),
        ("feeds", FEED | {"kind": 7}, {"body.kind"}),
        ("release", {"confirm": "yes"}, {"body.confirm"}),
        ("events/e/opt-out", {"because": "x"}, {"body.because"}),
    ],
)
def test_everything_wrong_with_a_body_is_told_at_once(client, control, path, body, where):
    refusal = client.post(f"/api/v1/{path}", json=body)
    assert refusal.status_code == 422
    problem = refusal.json()
    assert (problem["code"], problem["kind"]) == ("request-invalid", "InvalidInput")
    assert {error["where"] for error in problem["errors"]} == where
    assert all(error["detail"] and error["code"] for error in problem["errors"])
    for_the_ledger(control, path, "request-invalid")


def for_the_ledger(control, path, code):
    """Control was asked for nothing, and told what was refused, so that it is kept."""
    (told,) = control.requests
    assert told["command"] == "input.refused"
    assert told["args"]["door"] == f"POST /api/v1/{path}"
    assert told["args"]["code"] == code
    assert told["actor"] == "admin"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_refused(client, control, number):
    body = json.dumps(JOB)[:-1] + f', "min_cap_watts": {number}}}'
    refusal = client.post(
        "/api/v1/jobs", content=body, headers={"Content-Type": "application/json"}
    )
    assert (refusal.status_code, refusal.json()["code"]) == (422, "request-invalid")


@pytest.mark.parametrize(
    "content", [b"{", b"\xff\xfe", b"[" * 100_000, b'{"gpus": ' + b"9" * 5000 + b"}"]
)
def test_a_body_that_is_not_json_is_a_problem_too(client, control, content):
    refusal = client.post(
        "/api/v1/jobs", content=content, headers={"Content-Type": "application/json"}
    )
    assert refusal.status_code in {400, 422}
    assert refusal.json()["code"] in {"body-malformed", "request-invalid"}
    for_the_ledger(control, "jobs", refusal.json()["code"])


def test_a_body_beyond_the_limit_is_refused_whatever_it_claims(client, control):
    big = b'"' + b"x" * (1 << 20) + b'"'

    def chunks():
        yield big[: 1 << 19]
        yield big[1 << 19 :]

    for content in (big, chunks()):
        refusal = client.post("/api/v1/jobs", content=content)
        assert (refusal.status_code, refusal.json()["code"]) == (413, "body-too-large")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "jobs/nobody", 404, "job-unknown"),
        ("GET", "jobs/nobody/explain", 404, "job-unknown"),
        ("GET", "events/nothing", 404, "event-unknown"),
        ("GET", "events/nothing/report", 404, "report-unknown"),
        ("GET", "nodes/n-9", 404, "node-unknown"),
        ("GET", "feeds/f-9", 404, "feed-unknown"),
        ("GET", "jobs/..%2F..%2Fetc", 404, "route-unknown"),
        ("GET", "jobs/a%20b", 422, "request-invalid"),
        ("GET", "jobs?cursor=abc", 422, "cursor-malformed"),
        ("GET", "jobs?limit=0", 422, "request-invalid"),
        ("GET", "jobs?limit=100000", 422, "request-invalid"),
        ("GET", "ledger?from_seq=-1", 422, "request-invalid"),
        ("GET", "reports/energy?by=moon", 422, "request-invalid"),
        ("GET", "stream?kind=secrets", 422, "stream-kind-unknown"),
        ("GET", "events/x/report?format=pdf", 422, "request-invalid"),
        ("GET", "nonsense", 404, "route-unknown"),
        ("DELETE", "jobs/train", 405, "method-not-allowed"),
        ("POST", "jobs/train/explode", 404, "route-unknown"),
    ],
)
def test_whatever_is_not_there_is_a_problem_with_a_stable_code(
    client, store, control, method, path, status, code
):
    refusal = client.request(method, f"/api/v1/{path}")
    assert (refusal.status_code, refusal.json()["code"]) == (status, code)
    assert refusal.headers["Content-Type"] == "application/problem+json"
    assert control.requests == []


# Keys


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "api-key-absent"),
        ("", "api-key-absent"),
        ("Basic YWRtaW46YWRtaW4=", "api-key-absent"),
        ("Bearer gw_somebody-else", "api-key-unknown"),
        ("Bearer gw_a-key-for-test", "api-key-unknown"),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/jobs"),
        ("POST", "/api/v1/jobs"),
        ("GET", "/metrics"),
        ("POST", "/api/v1/release"),
    ],
)
def test_nobody_comes_in_without_a_key(client, store, control, method, path, header, code):
    client.headers.pop("Authorization")
    headers = {} if header is None else {"Authorization": header}
    refusal = client.request(method, path, json=JOB if method == "POST" else None, headers=headers)
    assert (refusal.status_code, refusal.json()["code"]) == (401, code)
    assert refusal.headers["WWW-Authenticate"] == "Bearer"
    assert control.requests == []


def test_every_route_but_health_signals_and_the_description_is_closed(client, store, control):
    client.headers.pop("Authorization")
    document = client.get("/api/v1/openapi.json").json()
    opened = set()
    for path, operations in document["paths"].items():
        for method in operations:
            answer = client.request(method, path.replace("{", "").replace("}", ""), json=JOB)
            if answer.status_code != 401:
                opened.add(path)
    assert opened == {"/healthz", "/readyz", "/api/v1/signals/{feed_id}"}
    assert control.requests == []
