"""JWS in compact form (RFC 7515): signed, or checked against keys that are known beforehand.

The algorithm is the key's, never the message's: a header that names another one is refused, so a
public key cannot be used as the secret of an HMAC, and ``none`` is no algorithm.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput, Refused
from gridaware.domain.eventjson import json_object, printable

__all__ = ["SignedPayload", "Signer", "VerifyKey", "read_payload", "signer_of", "verify"]

RSA_BITS_AT_LEAST = 2048
_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_P256_HALF = 32
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""FIPS 186-4, D.1.2.3."""

Public = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey
Private = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class SignedPayload:
    """What was signed."""

    payload: bytes
    fingerprint: str
    """Of the signature and what it signs: equal for a copy, whatever a thief made of its form."""


@dataclass(frozen=True, slots=True)
class VerifyKey:
    """A public key, and the one algorithm it is for."""

    algorithm: str
    key: Public

    @classmethod
    def from_pem(cls, pem: bytes, name: str) -> "VerifyKey":
        """Read a public key.

        Raises:
            ConfigError: it is none of P-256, RSA of at least 2048 bits and Ed25519 in PEM
                (``dsx-key``).
        """
        try:
            key = load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm):
            raise ConfigError("dsx-key", f"{name} is no public key in PEM") from None
        return cls(_algorithm(key, name), key)  # type: ignore[arg-type]

    def matches(self, signature: bytes, signed: bytes) -> bool:
        """Whether ``signature`` is this key's of ``signed``."""
        try:
            if isinstance(self.key, ec.EllipticCurvePublicKey):
                r, s = _halves(signature)
                self.key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(SHA256()))
            elif isinstance(self.key, rsa.RSAPublicKey):
                self.key.verify(signature, signed, padding.PKCS1v15(), SHA256())
            else:
                self.key.verify(signature, signed)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key with its name."""

    kid: str
    algorithm: str
    key: Private

    def sign(self, payload: bytes) -> str:
        """The compact form of ``payload``, signed."""
        header = json.dumps({"alg": self.algorithm, "kid": self.kid}, separators=(",", ":"))
        signed = f"{_encoded(header.encode())}.{_encoded(payload)}"
        return f"{signed}.{_encoded(self._signature(signed.encode('ascii')))}"

    def _signature(self, signed: bytes) -> bytes:
        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            r, s = decode_dss_signature(self.key.sign(signed, ec.ECDSA(SHA256())))
            return r.to_bytes(_P256_HALF, "big") + s.to_bytes(_P256_HALF, "big")
        if isinstance(self.key, rsa.RSAPrivateKey):
            return self.key.sign(signed, padding.PKCS1v15(), SHA256())
        return self.key.sign(signed)


def signer_of(pem: bytes, kid: str, name: str) -> Signer:
    """Read a private key, without a password.

    Raises:
        ConfigError: it is none of P-256, RSA of at least 2048 bits and Ed25519 in PEM
            (``dsx-key``).
    """
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(
            "dsx-key", f"{name} is no private key in PEM without a password"
        ) from None
    return Signer(kid, _algorithm(key, name), key)  # type: ignore[arg-type]


def verify(text: str, keys: Mapping[str, VerifyKey]) -> SignedPayload:
    """What ``text`` signs, where one of ``keys`` (by ``kid``) signed it.

    Raises:
        InvalidInput: it has not the compact form (``jws-malformed``).
        Refused: ``jws-key-unknown``, ``jws-algorithm`` or ``jws-signature``.
    """
    header, payload, signature = _parts(text)
    kid = header.get("kid")
    if not isinstance(kid, str) or kid not in keys:
        said = printable(kid) if isinstance(kid, str) else "none"
        raise Refused("jws-key-unknown", f"no key of the settings is called {said!r}")
    key = keys[kid]
    if header.get("alg") != key.algorithm:
        said = printable(str(header.get("alg")), 20)
        raise Refused("jws-algorithm", f"the header says {said}; the key is for {key.algorithm}")
    if "crit" in header:
        raise Refused("jws-algorithm", "the header asks for extensions that are not known here")
    signed = text.rpartition(".")[0].encode("ascii")
    if not key.matches(signature, signed):
        raise Refused("jws-signature", f"the signature is not that of the key {printable(kid)!r}")
    return SignedPayload(payload, _fingerprint(key, signed, signature))


def read_payload(text: str) -> bytes:
    """What ``text`` carries, whoever signed it: for a person who looks at a file.

    Raises:
        InvalidInput: it has not the compact form (``jws-malformed``).
    """
    return _parts(text)[1]


def _parts(text: str) -> tuple[dict[str, object], bytes, bytes]:
    match = _COMPACT.fullmatch(text)
    if match is None:
        raise InvalidInput("jws-malformed", "the data is not of the form header.payload.signature")
    header, payload, signature = (_decoded(part) for part in match.groups())
    try:
        return json_object(header), payload, signature
    except GridawareError as error:
        raise InvalidInput("jws-malformed", f"the header of the signature: {error}") from None


def _algorithm(key: object, name: str) -> str:
    if isinstance(key, ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey):
        if isinstance(key.curve, ec.SECP256R1):
            return "ES256"
    elif isinstance(key, rsa.RSAPublicKey | rsa.RSAPrivateKey):
        if key.key_size >= RSA_BITS_AT_LEAST:
            return "RS256"
    elif isinstance(key, ed25519.Ed25519PublicKey | ed25519.Ed25519PrivateKey):
        return "EdDSA"
    raise ConfigError("dsx-key", f"{name} is neither P-256, nor RSA of 2048 bits, nor Ed25519")


def _halves(signature: bytes) -> tuple[int, int]:
    if len(signature) != 2 * _P256_HALF:
        raise ValueError("an ES256 signature has 64 bytes")
    return tuple(  # type: ignore[return-value]
        int.from_bytes(half, "big") for half in (signature[:_P256_HALF], signature[_P256_HALF:])
    )


def _fingerprint(key: VerifyKey, signed: bytes, signature: bytes) -> str:
    if key.algorithm == "ES256":
        # (r, s) and (r, n - s) are both valid: whoever has one has the other.
        r, s = _halves(signature)
        least = min(s, _P256_ORDER - s)
        signature = r.to_bytes(_P256_HALF, "big") + least.to_bytes(_P256_HALF, "big")
    return hashlib.sha256(signed + b"." + signature).hexdigest()[:32]


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decoded(text: str) -> bytes:
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise InvalidInput("jws-malformed", "a part of the signed data is no base64url") from None
    if _encoded(data) != text:
        raise InvalidInput("jws-malformed", "a part of the signed data is no canonical base64url")
    return data
