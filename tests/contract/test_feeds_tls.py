"""Mutual TLS of the feeds that speak HTTP, against a server that asks for a certificate."""

import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from gridaware.clock import SystemClock
from gridaware.domain.errors import ConfigError, Unavailable
from gridaware.feeds.http import exchange, identity_from
from gridaware.wiring.identity import Identity, issue, make_ca


class Greets(BaseHTTPRequestHandler):
    """Answers with the name on the certificate of whoever asks."""

    def do_GET(self) -> None:
        shown = self.connection.getpeercert()  # type: ignore[attr-defined]
        name = dict(part[0] for part in shown["subject"])["commonName"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(name)))
        self.end_headers()
        self.wfile.write(name)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


class Quiet(HTTPServer):
    """A handshake that fails is the client's to tell of."""

    def handle_error(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ours")
    make_ca(folder, SystemClock())
    return folder


@pytest.fixture(scope="module")
def server_identity(ours: Path) -> Identity:
    return issue(ours, "server", SystemClock(), "controller")


@pytest.fixture(scope="module")
def url(server_identity: Identity) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_identity.certificate, server_identity.key)
    context.load_verify_locations(server_identity.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    # With TLS 1.3 a refusal comes after the request, and may be lost with a reset connection.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    server = Quiet(("127.0.0.1", 0), Greets)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_that_asks_is_shown_our_certificate(ours, server_identity, url) -> None:
    mine = issue(ours, "site-7", SystemClock())
    identity = identity_from(str(mine.certificate), str(mine.key))
    answer = exchange("GET", url, ca_file=str(server_identity.ca), identity=identity)
    assert (answer.status, answer.body) == (200, b"site-7")


def test_without_one_or_with_a_strangers_it_refuses_us(
    tmp_path: Path, server_identity, url
) -> None:
    make_ca(tmp_path, SystemClock())
    other = issue(tmp_path, "site-7", SystemClock())
    stranger = identity_from(str(other.certificate), str(other.key))
    for identity in (None, stranger):
        with pytest.raises(Unavailable) as refused:
            exchange("GET", url, ca_file=str(server_identity.ca), identity=identity)
        assert refused.value.code == "peer-certificate"
        assert "it ended the handshake" in str(refused.value)


def test_a_server_that_nobody_we_trust_vouches_for_is_told_nothing(
    tmp_path: Path, ours: Path, url
) -> None:
    mine = issue(ours, "site-8", SystemClock())
    make_ca(tmp_path, SystemClock())
    strange = issue(tmp_path, "strange", SystemClock())
    with pytest.raises(Unavailable) as refused:
        exchange(
            "GET",
            url,
            ca_file=str(strange.ca),
            identity=identity_from(str(mine.certificate), str(mine.key)),
        )
    assert refused.value.code == "peer-certificate"
    assert "its certificate is not trusted" in str(refused.value)


def test_files_that_are_no_identity_are_refused_before_anything_is_sent(
    tmp_path: Path, ours: Path
) -> None:
    one, two = issue(ours, "site-9", SystemClock()), issue(ours, "site-10", SystemClock())
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for certificate, key in (
        (one.certificate, two.key),
        (garbage, one.key),
        (tmp_path / "absent.pem", one.key),
        (tmp_path, one.key),
    ):
        with pytest.raises(ConfigError) as refused:
            identity_from(str(certificate), str(key))
        assert refused.value.code == "client-certificate"
