"""When control does not answer: a 503 that says so, and nothing else is disturbed."""

import dataclasses
import socket
import tempfile
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gridaware.service.app import build_app


def test_without_control_commands_are_unavailable_and_reads_go_on(client, store):
    refusal = client.post("/api/v1/jobs/train/pause")
    assert (refusal.status_code, refusal.json()["code"]) == (503, "control-unreachable")
    assert refusal.json()["retryable"] is True
    assert client.get("/api/v1/jobs").status_code == 200


def test_a_control_that_takes_a_command_and_says_nothing_times_out(settings, clock, client):
    with tempfile.TemporaryDirectory(prefix="gw") as folder, socket.socket(socket.AF_UNIX) as mute:
        path = Path(folder) / "c"
        mute.bind(str(path))
        mute.listen()
        settings = dataclasses.replace(settings, control_socket=path, command_seconds=0.01)
        with TestClient(build_app(settings, clock), headers=client.headers) as hurried:
            refusal = hurried.post("/api/v1/release")
    assert (refusal.status_code, refusal.json()["code"]) == (504, "control-slow")


# Signals


@pytest.fixture
def forwarding(settings, clock, listener):
    settings = dataclasses.replace(settings, signals_url=listener.url)
    with TestClient(build_app(settings, clock)) as client:
        yield client


def test_a_signal_is_forwarded_byte_for_byte_with_its_signature(forwarding, listener):
    body = b'{"id": "dr-1",   "odd": "\xc3\xa9"}'
    headers = {
        "X-Gridaware-Signature": "v1=abc",
        "X-Gridaware-Timestamp": "1764504000",
        "Content-Type": "application/json",
        "Authorization": "Bearer not-for-control",
        "Cookie": "nor=this",
    }
    answer = forwarding.post("/api/v1/signals/grid", content=body, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"disposition": "accepted"})
    [(path, passed, received)] = listener.requests
    assert (path, received) == ("/api/v1/signals/grid", body)
    assert passed["x-gridaware-signature"] == "v1=abc"
    assert passed["x-gridaware-timestamp"] == "1764504000"
    assert {"Authorization", "authorization", "cookie"}.isdisjoint(passed)


@pytest.mark.parametrize("status", [401, 409, 422, 503])
def test_controls_own_status_is_passed_on(forwarding, listener, status):
    listener.status = status
    assert forwarding.post("/api/v1/signals/grid", content=b"{}").status_code == status


def test_a_signal_to_a_feed_that_cannot_be_is_not_forwarded(forwarding, listener):
    assert forwarding.post("/api/v1/signals/a%20b", content=b"{}").status_code == 422
    assert forwarding.post("/api/v1/signals/a/b", content=b"{}").status_code == 404
    assert listener.requests == []


def test_a_signal_is_never_answered_200_when_control_is_down(client):
    refusal = client.post("/api/v1/signals/grid", content=b"{}")
    assert (refusal.status_code, refusal.json()["code"]) == (503, "control-unreachable")
