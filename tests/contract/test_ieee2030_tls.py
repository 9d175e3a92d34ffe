"""The IEEE 2030.5 client over real mutual TLS: each side is who it says, or nothing is heard."""

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gridaware.clock import SystemClock
from gridaware.domain.errors import ConfigError, Unavailable
from gridaware.domain.signal import Signal
from gridaware.feeds.ieee2030.identity import lfdi_of_file
from gridaware.feeds.ieee2030.kind import Ieee2030
from gridaware.feeds.kind import FeedContext
from gridaware.sim.grid.der_server import DerServer, TlsFiles
from gridaware.wiring.identity import Identity, issue, make_ca

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ours")
    make_ca(folder, CLOCK)
    issue(folder, "device", CLOCK)
    issue(folder, "neighbour", CLOCK)
    issue(folder, "server", CLOCK, "controller")
    return folder


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strangers")
    make_ca(folder, CLOCK)
    issue(folder, "device", CLOCK)
    return folder


@pytest.fixture
def server(ours: Path) -> Iterator[DerServer]:
    files = TlsFiles(ours / "server.pem", ours / "server.key", ours / "ca.pem")
    with DerServer(tls=files) as server:
        publish(server, ours)
        yield server


def publish(server: DerServer, folder: Path) -> None:
    server.add_device(lfdi_of_file(str(folder / "device.pem")))
    server.add_program("F1")
    server.add_control("F1", "A1", start=server.now + 600, watts=250_000)


Opens = Callable[..., Ieee2030]


@pytest.fixture
def open_feed(ours: Path) -> Opens:
    def opened(server: DerServer, folder: Path = ours, name: str = "device", **more: object):
        given = {
            "server_url": server.url,
            "certificate_file": str(folder / f"{name}.pem"),
            "key_file": str(folder / f"{name}.key"),
            "ca_file": str(ours / "ca.pem"),
        } | more
        settings = Ieee2030.settings_model.model_validate(given)
        context = FeedContext("utility", CLOCK, CLOCK.wall(), lambda *_: None)
        return Ieee2030(context, settings)

    return opened


def signals_of(feed: Ieee2030) -> Sequence[Signal]:
    """What a poll brings; its answers are given before the server closes."""
    signals = feed.poll()
    for thread in threading.enumerate():
        if thread.name == "feed-utility-respond":
            thread.join(10)
    return signals


def code_of(feed: Ieee2030) -> str:
    with pytest.raises(Unavailable) as caught:
        feed.poll()
    return caught.value.code


def test_a_limit_comes_over_mutual_tls(server: DerServer, open_feed: Opens) -> None:
    (signal,) = signals_of(open_feed(server))
    assert signal.request is not None
    assert signal.request.target.value == 250_000
    assert server.responses[0]["status"] == "1"


def test_the_server_tells_devices_apart_by_their_certificates(
    server: DerServer, open_feed: Opens
) -> None:
    assert code_of(open_feed(server, name="neighbour")) == "ieee2030-not-listed"


def test_a_certificate_that_the_server_does_not_trust_hears_nothing(
    server: DerServer, open_feed: Opens, strangers: Path
) -> None:
    server.asked.clear()
    # TLS 1.3 tells a client only after its request, and a reset may come before the alert.
    assert code_of(open_feed(server, strangers)) in {"peer-certificate", "peer-unreachable"}
    assert server.asked == []


def test_a_server_that_we_do_not_trust_is_not_heard(
    server: DerServer, open_feed: Opens, strangers: Path
) -> None:
    server.asked.clear()
    for ca_file in (str(strangers / "ca.pem"), None):  # None: the system's authorities
        assert code_of(open_feed(server, ca_file=ca_file)) == "peer-certificate"
    assert server.asked == []


def test_a_server_by_another_name_is_not_heard(ours: Path, open_feed: Opens) -> None:
    elsewhere = server_for(ours, "utility.example")
    files = TlsFiles(elsewhere.certificate, elsewhere.key, ours / "ca.pem")
    with DerServer(tls=files) as server:
        publish(server, ours)
        server.asked.clear()
        assert code_of(open_feed(server)) == "peer-certificate"
        assert server.asked == []


def test_a_server_without_a_host_name_is_known_by_its_lfdi_alone(
    ours: Path, open_feed: Opens
) -> None:
    elsewhere = server_for(ours, "utility.example")
    files = TlsFiles(elsewhere.certificate, elsewhere.key, ours / "ca.pem")
    lfdi = lfdi_of_file(str(elsewhere.certificate))
    neighbour = lfdi_of_file(str(ours / "neighbour.pem"))
    with DerServer(tls=files) as server:
        publish(server, ours)
        server.asked.clear()
        # Whoever has a certificate of the same authority is not the server by that.
        assert code_of(open_feed(server, server_lfdi=neighbour)) == "peer-certificate"
        assert server.asked == []
        assert len(signals_of(open_feed(server, server_lfdi=lfdi))) == 1


def test_an_lfdi_does_not_stand_in_for_who_signed_it(
    server: DerServer, open_feed: Opens, ours: Path, strangers: Path
) -> None:
    lfdi = lfdi_of_file(str(ours / "server.pem"))
    feed = open_feed(server, server_lfdi=lfdi, ca_file=str(strangers / "ca.pem"))
    assert code_of(feed) == "peer-certificate"


def test_a_server_of_the_mandatory_cipher_suite_alone_is_heard_where_it_is_offered(
    ours: Path, open_feed: Opens
) -> None:
    files = TlsFiles(ours / "server.pem", ours / "server.key", ours / "ca.pem", ccm8_alone=True)
    with DerServer(tls=files) as server:
        publish(server, ours)
        assert code_of(open_feed(server)) in {"peer-certificate", "peer-unreachable"}
        assert len(signals_of(open_feed(server, ccm8=True))) == 1
        lfdi = lfdi_of_file(str(ours / "server.pem"))
        assert len(signals_of(open_feed(server, ccm8=True, server_lfdi=lfdi))) == 1


def test_a_key_of_another_certificate_is_refused_with_the_settings(
    server: DerServer, open_feed: Opens, ours: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        open_feed(server, key_file=str(ours / "neighbour.key"))
    assert caught.value.code == "client-certificate"


def server_for(folder: Path, host: str) -> Identity:
    """A certificate of our authority for one host name, and no other."""
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = CLOCK.wall()
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
        .sign(signer, hashes.SHA256())
    )
    identity = Identity(folder / "ca.pem", folder / f"{host}.pem", folder / f"{host}.key")
    identity.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    identity.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return identity
