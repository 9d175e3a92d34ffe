"""Bad input at the real doors: refused with a stable code, a fact and a fix; nothing changes."""

import json
import subprocess
import sys

import pytest
import requests
import yaml

from gridaware.clock import SystemClock
from gridaware.domain.errors import GridawareError
from gridaware.sim.grid import signed_headers

GOOD = {
    "id": "bad",
    "start": "2199-01-01T00:00:00Z",
    "duration": "PT1H",
    "target": {"reduce_percent": 20},
}
WRONG_EVENTS = {
    "an unknown key": ({"targt": {"reduce_percent": 20}}, "event-key-unknown"),
    "a wrong unit": ({"target": {"reduce_watts": 500}}, "target-key-unknown"),
    "more than everything": ({"target": {"reduce_percent": 120}}, "target-percent-range"),
    "two targets": ({"target": {"reduce_percent": 20, "limit_kw": 1}}, "target-count"),
    "an end before its start": (
        {"duration": None, "end": "2198-01-01T00:00:00Z"},
        "end-before-start",
    ),
    "a naive time": ({"start": "2199-01-01T00:00:00"}, "time-naive"),
    "not a number": ({"target": {"limit_kw": float("nan")}}, "number-not-finite"),
    "negative kW": ({"target": {"reduce_kw": -5}}, "target-negative"),
    "absurd kW": ({"target": {"limit_kw": 1e15}}, "target-absurd"),
    "text for a number": ({"target": {"limit_kw": "900"}}, "target-type"),
    "a window that is over": (
        {"start": "2020-01-01T00:00:00Z", "duration": "PT1H"},
        "event-over",
    ),
}


@pytest.fixture
def site(bare_site):
    """The site, and afterwards not one register has moved and no event was made."""
    before, events = bare_site.limits(), len(bare_site.client.events())
    yield bare_site
    assert bare_site.limits() == before
    assert len(bare_site.client.events()) == events
    assert bare_site.client.status()["acting_events"] == []


def is_a_problem(answer, code):
    """An RFC 9457 problem: what was wrong, as a stable code and a fact, and what to do."""
    assert answer["code"] == code, answer
    assert answer["detail"]
    assert answer["fix"]
    assert answer["status"] in range(400, 500)


@pytest.mark.parametrize("wrong", WRONG_EVENTS)
def test_a_signal_that_makes_no_sense_is_refused(site, wrong):
    change, code = WRONG_EVENTS[wrong]
    body = {key: value for key, value in (GOOD | change).items() if value is not None}
    sent = site.send(json.dumps(body).encode())
    assert sent.status == sent.answer["status"]
    is_a_problem(sent.answer, code)
    site.refusal(code, source="feed:grid" if code != "event-over" else "")


def post(site, body, headers):
    return requests.post(site.virtual.signals_url, data=body, headers=headers, timeout=10)


def test_a_bad_signature_is_refused(site):
    body = json.dumps(GOOD).encode()
    answer = post(site, body, signed_headers(b"not the secret", body, SystemClock()))
    assert answer.status_code == 401
    is_a_problem(answer.json(), "signature-bad")
    site.refusal("signature-bad", source="feed:grid")


def test_a_changed_body_is_refused(site):
    body = json.dumps(GOOD).encode()
    headers = signed_headers(site.virtual.webhook_secret.encode(), body, SystemClock())
    answer = post(site, body.replace(b"20", b"99"), headers)
    assert answer.status_code == 401
    is_a_problem(answer.json(), "signature-bad")


def test_a_replayed_webhook_is_refused(site):
    body = json.dumps({"id": "replayed", "cancel": True}).encode()
    headers = signed_headers(site.virtual.webhook_secret.encode(), body, SystemClock())
    assert post(site, body, headers).status_code == 200
    answer = post(site, body, headers)
    assert answer.status_code == 409
    is_a_problem(answer.json(), "webhook-replayed")
    site.refusal("webhook-replayed", source="feed:grid")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda c: c.send_event(target={"reduce_kw": -1}, duration="PT1H"), "target-negative"),
        (lambda c: c.send_event(target={"limit_w": 1}, duration="PT1H"), "target-key-unknown"),
        (lambda c: c.submit_job("python x.py", gpus=0), "job-gpus"),
        (lambda c: c.submit_job("python x.py", gpus=2, teer="firm"), "request-invalid"),
        (lambda c: c.submit_job("python x.py", gpus=2, min_cap_watts=0.5), "job-number-range"),
        (lambda c: c.submit_job("python x.py", gpus=99), "job-too-large"),
        (lambda c: c.pause_job("nobody"), "job-unknown"),
        (lambda c: c.opt_out("nobody"), "event-unknown"),
        (
            lambda c: c.register_feed("f", kind="webook", programme="demand-response"),
            "feed-kind-unknown",
        ),
        (
            lambda c: c.register_feed(
                "f", kind="webhook", programme="demand-response", authority={"depth": 0.1}
            ),
            "request-invalid",
        ),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(site, call, code):
    with pytest.raises(GridawareError) as refused:
        call(site.client)
    assert refused.value.code == code
    assert not refused.value.retryable
    assert refused.value.message
    site.refusal(code)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"site": {"nmae": "x"}}, "did you mean 'name'"),
        ({"site": {"ramp": {"up_kw_per_minute": 15}}}, "up_watts_per_minute"),
        ({"control": {"tick_seconds": "fast"}}, "control.tick_seconds"),
        ({"site": {"hard_limit": {"watts": -5}}}, "site.hard_limit.watts"),
    ],
)
def test_settings_with_unknown_keys_or_wrong_units_start_nothing(site, tmp_path, change, says):
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump(change))
    started = subprocess.run(
        [sys.executable, "-m", "gridaware", "serve", "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert started.returncode == 2
    assert started.stderr.startswith("error[")
    assert says in started.stderr
    assert str(path) in started.stderr
    assert "\n  fix  " in started.stderr
    assert not (tmp_path / "state").exists()


def test_a_signal_beyond_its_feeds_authority_is_clamped_and_told(bare_site):
    secret = bare_site.virtual.home / "webhook-secret"
    bare_site.client.register_feed(
        "modest",
        kind="webhook",
        programme="demand-response",
        settings={"secrets": [f"file:{secret}"]},
        authority={"greatest_depth": 0.1},
    )
    url = bare_site.virtual.signals_url.replace("/grid", "/modest")
    promise = bare_site.ask(seconds=60, reduce_percent=50, url=url)
    event = bare_site.client.event(promise.event_id)
    reference = event["reference"]["watts"]
    assert event["limit_watts"] == pytest.approx(0.9 * reference)
    assert event["clamped_from_watts"] == pytest.approx(0.5 * reference)
    bare_site.until(
        lambda: any("beyond-authority" in a for a in bare_site.client.status()["alarms"]),
        "an alarm",
        5,
    )
    bare_site.until(lambda: not bare_site.is_restored(), "what is allowed is done", 5)
    bare_site.client.opt_out(promise.event_id)
    bare_site.comes_back(promise)


def test_an_impossible_target_lowers_no_cap_below_the_device_and_says_what_is_left(bare_site):
    least = [slot.least_watts for slot in bare_site.slots()]
    with bare_site.watching() as truth:
        promise = bare_site.ask(seconds=60, target={"limit_kw": 0.2})
        bare_site.until(lambda: list(bare_site.limits().values()) == least, "all at least", 5)
        seen: tuple[float, float] = (0.0, 0.0)

        def told() -> bool:
            nonlocal seen
            left = bare_site.client.event(promise.event_id)["unresolved_watts"]
            seen = (left, bare_site.window.header.true_site_watts - 200)
            return seen[0] == pytest.approx(seen[1], rel=0.05)

        bare_site.until(told, lambda: f"left and true excess agree: {seen}", 10)
        assert any("unresolved" in alarm for alarm in bare_site.client.status()["alarms"])
        bare_site.client.opt_out(promise.event_id)
        bare_site.comes_back(promise)
    for sample in truth.samples:
        assert all(now >= floor for now, floor in zip(sample.limits_watts, least, strict=True))
