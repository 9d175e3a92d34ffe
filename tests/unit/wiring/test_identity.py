"""Identities: usable by OpenSSL, private, and the same however often init runs."""

import ssl
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import ConfigError, InvalidInput
from gridaware.node.tls import agent_context, controller_context
from gridaware.wiring.identity import issue, make_ca, voucher

CLOCK = ManualClock(datetime.fromtimestamp(1_790_000_000, UTC))


def _openssl(*arguments: str) -> str:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_files_are_for_their_owner_only_and_made_once(tmp_path):
    folder = tmp_path / "ca"
    make_ca(folder, CLOCK)
    first = issue(folder, "n0", CLOCK)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    make_ca(folder, CLOCK)
    assert issue(folder, "n0", CLOCK) == first
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert {p.stat().st_mode & 0o777 for p in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_openssl_accepts_each_certificate_for_its_own_purpose_only(tmp_path):
    ca = make_ca(tmp_path, CLOCK)
    agent = issue(tmp_path, "n0", CLOCK)
    control = issue(tmp_path, "control", CLOCK, "controller", ["gw.example", "10.0.0.9"])
    relay = issue(tmp_path, "r1", CLOCK, "relay", ["r1.example"])
    at = ["-attime", "1790000100", "-CAfile", str(ca)]
    for files, good, bad in (
        (agent, "sslclient", "sslserver"),
        (control, "sslserver", "sslclient"),
        (relay, "sslclient", "smimesign"),
        (relay, "sslserver", "smimesign"),
    ):
        name = str(files.certificate)
        assert "OK" in _openssl("verify", *at, "-purpose", good, name)
        assert "purpose" in _openssl("verify", *at, "-purpose", bad, name)
    shown = _openssl("x509", "-in", str(control.certificate), "-noout", "-text")
    for name in ("DNS:localhost", "IP Address:127.0.0.1", "DNS:gw.example", "IP Address:10.0.0.9"):
        assert name in shown
    assert "prime256v1" in shown
    agent_context(agent.ca, agent.certificate, agent.key)
    controller_context(control.ca, control.certificate, control.key)


@pytest.mark.parametrize("name", ["", "../n0", "a b", ".hidden", "ca", "x" * 65])
def test_names_that_are_no_names_are_refused(tmp_path, name):
    make_ca(tmp_path, CLOCK)
    with pytest.raises(InvalidInput):
        issue(tmp_path, name, CLOCK)


def test_without_a_ca_nothing_is_issued_and_missing_files_are_named(tmp_path):
    with pytest.raises(ConfigError):
        issue(tmp_path, "n0", CLOCK)
    with pytest.raises(ConfigError) as refused:
        agent_context(tmp_path / "ca.pem", tmp_path / "n0.pem", tmp_path / "n0.key")
    assert refused.value.code == "tls-files"


def _shown(certificate):
    return ssl.PEM_cert_to_DER_cert(certificate.read_text())


def test_a_relay_is_vouched_for_nodes_of_our_ca_and_for_nothing_else(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        make_ca(folder, CLOCK)
    vouch = voucher(ours / "ca.pem", CLOCK)
    node = _shown(issue(ours, "n0", CLOCK).certificate)
    assert vouch(node) == "n0"
    later = ManualClock(CLOCK.wall() + timedelta(days=900))
    refused = {
        "expired": (voucher(ours / "ca.pem", later), node),
        "of another CA": (vouch, _shown(issue(theirs, "n0", CLOCK).certificate)),
        "the CA itself": (vouch, _shown(ours / "ca.pem")),
        "a controller": (vouch, _shown(issue(ours, "c", CLOCK, "controller").certificate)),
        "a relay": (vouch, _shown(issue(ours, "r", CLOCK, "relay", ["r.example"]).certificate)),
        "cut short": (vouch, node[:-1]),
        "tampered with": (vouch, node[:-1] + bytes([node[-1] ^ 1])),
        "nothing": (vouch, b""),
    }
    for judge, shown in refused.values():
        with pytest.raises(InvalidInput) as caught:
            judge(shown)
        assert caught.value.code == "relay-identity"
    with pytest.raises(ConfigError):
        voucher(tmp_path / "ca.pem", CLOCK)
