"""Signatures of 2.0b messages, against openleadr's: the right one, and every wrong one."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from gridaware.clock import SystemClock
from gridaware.domain.errors import ConfigError, GridawareError, Refused
from gridaware.feeds.openadr2.signature import (
    Signer,
    Verifier,
    fingerprint_of,
    read_fingerprint,
)
from gridaware.feeds.openadr2.wire import Wire

messaging = pytest.importorskip("openleadr.messaging")
utils = pytest.importorskip("openleadr.utils")


class Keys:
    """A self-signed certificate with its key, as files."""

    def __init__(self, folder: Path, name: str, kind: str = "ec") -> None:
        key = (
            rsa.generate_private_key(public_exponent=65537, key_size=2048)
            if kind == "rsa"
            else ec.generate_private_key(ec.SECP256R1())
        )
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
            .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
            .sign(key, hashes.SHA256())
        )
        self.certificate = made.public_bytes(serialization.Encoding.PEM)
        self.der = made.public_bytes(serialization.Encoding.DER)
        self.key = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        self.certificate_file = folder / f"{name}.pem"
        self.key_file = folder / f"{name}.key"
        self.certificate_file.write_bytes(self.certificate)
        self.key_file.write_bytes(self.key)

    @property
    def fingerprint(self) -> str:
        return str(utils.certificate_fingerprint(self.certificate.decode()))

    def signed(self, ven_id: str = "VEN-1") -> bytes:
        """A message signed by openleadr, now."""
        body = messaging.create_message(
            "oadrResponse",
            cert=self.certificate.decode(),
            key=self.key,
            response={"response_code": 200, "response_description": "OK", "request_id": "r"},
            ven_id=ven_id,
        )
        return str(body).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def vtn(folder: Path) -> Keys:
    return Keys(folder, "vtn")


@pytest.fixture(scope="module")
def stranger(folder: Path) -> Keys:
    return Keys(folder, "stranger")


def moment(body: bytes) -> datetime:
    """When a message was signed."""
    found = re.search(rb"<(?:\w+:)?timestamp>([^<]+)Z<", body)
    assert found is not None
    return datetime.fromisoformat(found[1].decode()).replace(tzinfo=UTC)


def code_of(verifier: Verifier, body: bytes, at: datetime | None = None) -> str:
    with pytest.raises(GridawareError) as refused:
        verifier.verify(body, at or moment(body))
    return refused.value.code


@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_a_message_that_openleadr_signed_is_taken(folder: Path, kind: str) -> None:
    keys = Keys(folder, f"vtn-{kind}", kind)
    body = keys.signed()
    message = Verifier(keys.fingerprint).verify(body, moment(body))
    assert message.kind == "oadrResponse"
    assert message.content.said("venID") == "VEN-1"


@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_openleadr_takes_a_message_that_we_signed(folder: Path, kind: str) -> None:
    keys = Keys(folder, f"ven-{kind}", kind)
    signer = Signer(str(keys.certificate_file), str(keys.key_file), SystemClock().wall)
    body = Wire(sign=signer.sign).make("oadrPoll", ven_id="VEN-1 & <co>")
    tree = messaging.validate_xml_schema(body)
    messaging.validate_xml_signature(tree, keys.fingerprint)
    kind_of, payload = messaging.parse_message(body)
    assert (kind_of, payload["ven_id"]) == ("oadrPoll", "VEN-1 & <co>")


def test_a_whole_fingerprint_is_as_good_as_openadrs_short_one(vtn: Keys) -> None:
    import hashlib

    digest = hashlib.sha256(vtn.der).digest()
    whole = ":".join(f"{byte:02x}" for byte in digest)
    assert fingerprint_of(vtn.der) == vtn.fingerprint == whole.upper()[-29:]
    body = vtn.signed()
    assert Verifier(whole).verify(body, moment(body)).kind == "oadrResponse"


def test_case_11_a_wrong_fingerprint_is_refused(vtn: Keys, stranger: Keys) -> None:
    body = vtn.signed()
    assert code_of(Verifier(stranger.fingerprint), body) == "openadr2-fingerprint-other"
    forged = stranger.signed()
    assert code_of(Verifier(vtn.fingerprint), forged) == "openadr2-fingerprint-other"


def test_case_11_an_unsigned_message_is_refused(vtn: Keys) -> None:
    body = str(
        messaging.create_message(
            "oadrResponse",
            response={"response_code": 200, "response_description": "OK", "request_id": "r"},
            ven_id="VEN-1",
        )
    ).encode()
    assert code_of(Verifier(vtn.fingerprint), body, SystemClock().wall()) == "openadr2-unsigned"


def test_case_11_a_changed_message_is_refused(vtn: Keys) -> None:
    body = vtn.signed()
    assert code_of(Verifier(vtn.fingerprint), body.replace(b"VEN-1", b"VEN-2")) == (
        "openadr2-signature"
    )


def test_our_certificate_around_a_strangers_signature_is_refused(vtn: Keys, stranger: Keys) -> None:
    def inner(keys: Keys) -> bytes:
        found = re.search(rb"<(?:\w+:)?X509Certificate>(.*?)<", keys.signed(), re.DOTALL)
        assert found is not None
        return found[1]

    body = stranger.signed().replace(inner(stranger), inner(vtn))
    assert code_of(Verifier(vtn.fingerprint), body) == "openadr2-signature"


def test_a_message_wrapped_around_a_signed_one_is_not_what_is_read(vtn: Keys) -> None:
    """The signed object is kept, and another one is put where a reader would look for it."""
    body = vtn.signed()
    found = re.search(rb"<oadr:oadrSignedObject.*</oadr:oadrSignedObject>", body, re.DOTALL)
    assert found is not None
    forged = found[0].replace(b"VEN-1", b"VEN-2").replace(b'oadr:Id="oadrSignedObject"', b"")
    wrapped = body.replace(found[0], forged + b"<oadr:aside>" + found[0] + b"</oadr:aside>")
    try:
        message = Verifier(vtn.fingerprint).verify(wrapped, moment(body))
    except GridawareError:
        return
    assert message.content.said("venID") == "VEN-1"


def test_two_objects_of_one_name_are_refused(vtn: Keys) -> None:
    body = vtn.signed()
    found = re.search(rb"<oadr:oadrSignedObject.*</oadr:oadrSignedObject>", body, re.DOTALL)
    assert found is not None
    forged = found[0].replace(b"VEN-1", b"VEN-2")
    for twice in (forged + found[0], found[0] + forged):
        with pytest.raises(Refused):
            Verifier(vtn.fingerprint).verify(body.replace(found[0], twice), moment(body))


def test_a_message_counts_once_and_within_a_minute(vtn: Keys) -> None:
    verifier = Verifier(vtn.fingerprint)
    body = vtn.signed()
    late, early = moment(body) + timedelta(seconds=61), moment(body) - timedelta(seconds=61)
    assert code_of(verifier, body, late) == "openadr2-replayed"
    assert code_of(verifier, body, early) == "openadr2-replayed"
    verifier.verify(body, moment(body))
    assert code_of(verifier, body) == "openadr2-replayed"
    assert verifier.verify(vtn.signed(), SystemClock().wall()).kind == "oadrResponse"


@pytest.mark.parametrize(
    "body",
    [b"", b"<a/>", b"<a><Signature xmlns='http://www.w3.org/2000/09/xmldsig#'/></a>", b"\xff"],
)
def test_what_is_no_signed_message_is_refused(vtn: Keys, body: bytes) -> None:
    assert code_of(Verifier(vtn.fingerprint), body, SystemClock().wall())


@pytest.mark.parametrize("text", ["", "AB", "AB:CD", "G0" + ":00" * 9, "00:" * 10])
def test_a_fingerprint_that_is_none_is_a_wrong_setting(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_fingerprint(text)
    assert refused.value.code == "openadr2-fingerprint"


def test_case_13_a_signing_key_that_cannot_be_used_is_told_at_the_start(
    folder: Path, vtn: Keys, stranger: Keys
) -> None:
    def code(certificate: Path, key: Path) -> str:
        with pytest.raises(ConfigError) as refused:
            Signer(str(certificate), str(key), SystemClock().wall)
        return refused.value.code

    empty = folder / "empty.pem"
    empty.write_bytes(b"")
    for certificate, key in (
        (folder / "absent", vtn.key_file),
        (vtn.certificate_file, folder / "absent"),
        (vtn.certificate_file, empty),
        (empty, vtn.key_file),
        (vtn.certificate_file, stranger.key_file),
        (vtn.certificate_file, vtn.certificate_file),
    ):
        assert code(certificate, key) == "openadr2-signing-key"
