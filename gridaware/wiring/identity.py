"""The site's private CA and the certificates of controller, agents and relays.

EC P-256, files 0600, folders 0700. Idempotent: what exists is kept, so that running ``init`` again
never locks out a node. An agent's certificate may only act as a client; its common name is the
node's id. The controller's may act as a server, for localhost and the names given. A relay is both,
and its certificate says that it is a relay: alone, it may bring other nodes' streams.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gridaware.clock import Clock
from gridaware.domain.errors import ConfigError, InvalidInput
from gridaware.node.tls import RELAY_UNIT

__all__ = ["Identity", "Kind", "issue", "make_ca", "voucher"]

Kind = Literal["agent", "controller", "relay"]

_CA_LIFE = timedelta(days=3650)
_LIFE = timedelta(days=825)
_BEFORE = timedelta(hours=1)
"""Clocks of a cluster differ a little."""
_MOST_NAME = 64
_PURPOSES = {
    "agent": [ExtendedKeyUsageOID.CLIENT_AUTH],
    "controller": [ExtendedKeyUsageOID.SERVER_AUTH],
    "relay": [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH],
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Files of one end of the stream."""

    ca: Path
    certificate: Path
    key: Path


def make_ca(directory: Path, clock: Clock) -> Path:
    """Make the CA in ``directory`` unless there is one; returns its certificate's path.

    Raises:
        ConfigError: files cannot be written (``identity-files``).
    """
    certificate, key = directory / "ca.pem", directory / "ca.key"
    if certificate.exists() and key.exists():
        return certificate
    secret = ec.generate_private_key(ec.SECP256R1())
    name = _name("gridaware CA")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    public = secret.public_key()
    built = (
        _builder(name, name, public, clock.wall(), _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(secret, hashes.SHA256())
    )
    _write(key, _pem(secret))
    _write(certificate, built.public_bytes(serialization.Encoding.PEM))
    return certificate


def issue(
    directory: Path,
    name: str,
    clock: Clock,
    kind: Kind = "agent",
    hosts: Sequence[str] = (),
) -> Identity:
    """Issue the identity ``name`` in ``directory``, where :func:`make_ca` has been.

    Args:
        directory: Holds the CA; gets ``<name>.pem`` and ``<name>.key``.
        name: Node id, relay id, or any name of the controller.
        clock: Gives the day from which it is valid.
        kind: What it may act as.
        hosts: Further names and addresses under which agents reach the controller or the relay.

    Raises:
        InvalidInput: the name cannot be a file name and a common name (``identity-name``).
        ConfigError: there is no CA there, or files cannot be written (``identity-files``).
    """
    if not name or len(name) > _MOST_NAME or not all(c.isalnum() or c in "-._" for c in name):
        raise InvalidInput("identity-name", f"{name!r} is no name of letters, digits, - . _")
    if name.startswith(".") or name == "ca":
        raise InvalidInput("identity-name", f"{name!r} is reserved")
    identity = Identity(directory / "ca.pem", directory / f"{name}.pem", directory / f"{name}.key")
    if identity.certificate.exists() and identity.key.exists():
        return identity
    authority, signer = _load_ca(directory)
    secret = ec.generate_private_key(ec.SECP256R1())
    public = secret.public_key()
    unit = RELAY_UNIT if kind == "relay" else None
    builder = (
        _builder(_name(name, unit), authority.subject, public, clock.wall(), _LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_PURPOSES[kind]), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if kind != "agent":
        alternatives = [_alternative(h) for h in dict.fromkeys(["localhost", "127.0.0.1", *hosts])]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    _write(identity.key, _pem(secret))
    signed = builder.sign(signer, hashes.SHA256())
    _write(identity.certificate, signed.public_bytes(serialization.Encoding.PEM))
    return identity


def voucher(ca: Path, clock: Clock) -> Callable[[bytes], str]:
    """What judges certificates that a relay shows; see ``LinkServer``.

    Raises:
        ConfigError: there is no CA (``identity-files``).
    """
    try:
        authority = x509.load_pem_x509_certificate(ca.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError("identity-files", f"no usable CA in {ca}: {error}") from error

    def vouch(shown: bytes) -> str:
        try:
            certificate = x509.load_der_x509_certificate(shown)
            certificate.verify_directly_issued_by(authority)
            usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
            names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
            raise InvalidInput("relay-identity", f"no certificate of our CA: {error!r}") from None
        valid = certificate.not_valid_before_utc <= clock.wall() <= certificate.not_valid_after_utc
        if not valid or list(usage) != _PURPOSES["agent"] or len(names) != 1:
            raise InvalidInput("relay-identity", "no certificate with which a node may dial")
        return str(names[0].value)

    return vouch


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + life)
    )


def _load_ca(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
        key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), None)
    except (OSError, ValueError) as error:
        raise ConfigError("identity-files", f"no usable CA in {directory}: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError("identity-files", f"the CA's key in {directory} is no EC key")
    return certificate, key


def _name(common: str, unit: str | None = None) -> x509.Name:
    names = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if unit is not None:
        names.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    return x509.Name(names)


def _alternative(host: str) -> x509.GeneralName:
    try:
        address: IPv4Address | IPv6Address = ip_address(host)
    except ValueError:
        return x509.DNSName(host)
    return x509.IPAddress(address)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, data: bytes) -> None:
    """Write a file that only its owner can ever read, all of it or nothing."""
    fresh = path.with_name(path.name + ".next")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        fresh.replace(path)
    except OSError as error:
        raise ConfigError("identity-files", f"cannot write {path}: {error}") from error
