"""XML signatures of the profile's high security level: ours made, the server's verified.

What a signature covers is the only thing that is read afterwards; everything else in the message
may have been put there by anybody. The key that made it has to be the one whose fingerprint was
agreed on outside of OpenADR, and a message counts once, within a minute.
"""

import hashlib
import hmac
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from gridaware.domain.errors import ConfigError, InvalidInput, Refused
from gridaware.feeds.openadr2.envelope import SIGNED, Message, signed_message
from gridaware.feeds.openadr2.xmltree import read_xml
from gridaware.feeds.openadr3.times import Now, read_start

__all__ = ["Signer", "Verifier", "fingerprint_of", "read_fingerprint"]

C14N = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
_OADR = "http://openadr.org/oadr-2.0b/2012/07"
_PROPERTIES = "http://openadr.org/oadr-2.0b/2012/07/xmldsig-properties"
_DSIG = "http://www.w3.org/2000/09/xmldsig#"
FRESH = timedelta(seconds=60)
NONCES_AT_MOST = 10_000
_HEX = re.compile(r"(?:[0-9A-F]{2}:){9}[0-9A-F]{2}|(?:[0-9A-F]{2}:){31}[0-9A-F]{2}")


def fingerprint_of(certificate_der: bytes) -> str:
    """A certificate's fingerprint as OpenADR writes it: the last ten bytes of its SHA-256."""
    return _written(hashlib.sha256(certificate_der).digest()[-10:])


def read_fingerprint(text: str) -> str:
    """A fingerprint of ten bytes (OpenADR's) or all 32, in upper case.

    Raises:
        ConfigError: it is none (``openadr2-fingerprint``).
    """
    found = text.strip().upper()
    if not _HEX.fullmatch(found):
        raise ConfigError(
            "openadr2-fingerprint", "a fingerprint is 10 or 32 bytes as AB:CD:..., of the SHA-256"
        )
    return found


class Signer:
    """Signs with a key that is for signatures alone.

    Args:
        certificate_file: PEM.
        key_file: PEM, without a password.
        wall: the time, in UTC.

    Raises:
        ConfigError: they cannot be read, or do not belong together (``openadr2-signing-key``).
    """

    def __init__(self, certificate_file: str, key_file: str, wall: Callable[[], datetime]) -> None:
        self._wall = wall
        try:
            self._certificate = Path(certificate_file).read_bytes()
            self._key = Path(key_file).read_bytes()
            certificate = x509.load_pem_x509_certificate(self._certificate)
            key = serialization.load_pem_private_key(self._key, None)
        except OSError as error:
            told = f"{error.filename}: {error.strerror}"
            raise ConfigError("openadr2-signing-key", told) from None
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ConfigError(
                "openadr2-signing-key", f"not PEM without a password: {error}"
            ) from None
        if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
            raise ConfigError("openadr2-signing-key", "the key is neither RSA nor of a curve")
        if key.public_key() != certificate.public_key():
            raise ConfigError("openadr2-signing-key", "the key is not that of the certificate")
        self._algorithm = "rsa-sha256" if isinstance(key, rsa.RSAPrivateKey) else "ecdsa-sha256"

    def sign(self, signed_object: str) -> str:
        """The signature of a signed object, with what protects it against being sent again."""
        from lxml import etree
        from signxml.algorithms import SignatureConstructionMethod
        from signxml.signer import XMLSigner

        protect = etree.Element(
            f"{{{_PROPERTIES}}}ReplayProtect",
            nsmap={"dsp": _PROPERTIES},
            attrib={"Id": "myid", "Target": "#mytarget"},
        )
        at = self._wall().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        etree.SubElement(protect, f"{{{_PROPERTIES}}}timestamp").text = at
        etree.SubElement(protect, f"{{{_PROPERTIES}}}nonce").text = secrets.token_hex(16)
        signer = XMLSigner(
            method=SignatureConstructionMethod.detached,
            signature_algorithm=self._algorithm,
            c14n_algorithm=C14N,
        )
        signer.namespaces["oadr"] = _OADR
        made = signer.sign(
            etree.fromstring(signed_object),
            key=self._key,
            cert=self._certificate.decode("ascii", "replace"),
            reference_uri=f"#{SIGNED}",
            signature_properties=protect,
        )
        return str(etree.tostring(made).decode())


class Verifier:
    """Verifies answers against one fingerprint; any thread.

    Args:
        fingerprint: of the certificate that the server signs with.
    """

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = read_fingerprint(fingerprint)
        self._nonces: OrderedDict[str, datetime] = OrderedDict()
        self._lock = threading.Lock()

    def verify(self, body: bytes, now: datetime) -> Message:
        """The message that is signed, read from what was signed and from nothing else.

        Raises:
            Refused: ``openadr2-unsigned``, ``openadr2-fingerprint-other``, ``openadr2-signature``
                or ``openadr2-replayed``.
            InvalidInput: what is signed is no message.
        """
        from lxml import etree

        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
        try:
            tree = etree.fromstring(body, parser)
        except (etree.XMLSyntaxError, ValueError) as error:
            raise InvalidInput("xml-malformed", f"the message is not XML: {error}") from None
        certificates = tree.findall(f".//{{{_DSIG}}}X509Certificate")
        if len(tree.findall(f".//{{{_DSIG}}}Signature")) != 1 or len(certificates) != 1:
            raise Refused(
                "openadr2-unsigned", "the message has not one signature with a certificate"
            )
        certificate = self._trusted(certificates[0].text or "")
        signed = self._signed(tree, certificate)
        protect = [each for each in signed if each.find(f".//{{{_PROPERTIES}}}nonce") is not None]
        objects = [each for each in signed if each.tag == f"{{{_OADR}}}{SIGNED}"]
        if len(objects) != 1 or len(protect) != 1:
            raise Refused("openadr2-signature", "it does not cover the message and its timestamp")
        self._once(protect[0], now)
        return signed_message(
            read_xml(etree.tostring(objects[0], with_tail=False), keep="oadrEvent")
        )

    def _trusted(self, text: str) -> x509.Certificate:
        pem = f"-----BEGIN CERTIFICATE-----\n{text.strip()}\n-----END CERTIFICATE-----\n"
        try:
            certificate = x509.load_pem_x509_certificate(pem.encode())
        except ValueError:
            raise Refused("openadr2-signature", "its certificate cannot be read") from None
        digest = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).digest()
        wanted = self._fingerprint
        found = _written(digest if len(wanted) > 30 else digest[-10:])
        if not hmac.compare_digest(found, wanted):
            raise Refused(
                "openadr2-fingerprint-other", f"the message is signed by {found}, not by {wanted}"
            )
        return certificate

    def _signed(self, tree: Any, certificate: x509.Certificate) -> list[Any]:
        from signxml.algorithms import SignatureMethod
        from signxml.exceptions import SignXMLException
        from signxml.verifier import SignatureConfiguration, XMLVerifier

        # A symmetric method would take the public key, which everybody has, for the secret.
        methods = frozenset(
            method
            for method in SignatureMethod
            if "SHA1" not in method.name and method.name.startswith(("RSA", "ECDSA"))
        )
        config = SignatureConfiguration(expect_references=2, signature_methods=methods)
        try:
            results = XMLVerifier().verify(tree, x509_cert=certificate, expect_config=config)
        except (SignXMLException, ValueError, TypeError, KeyError) as error:
            raise Refused("openadr2-signature", f"it does not hold: {str(error)[:200]}") from None
        found = results if isinstance(results, list) else [results]
        return [each.signed_xml for each in found if each.signed_xml is not None]

    def _once(self, protect: Any, now: datetime) -> None:
        nonce = (protect.findtext(f".//{{{_PROPERTIES}}}nonce") or "").strip()
        said = (protect.findtext(f".//{{{_PROPERTIES}}}timestamp") or "").strip()
        at = read_start(said, "the timestamp of the signature", None)
        if isinstance(at, Now) or abs(at - now) > FRESH or not 0 < len(nonce) <= 200:
            raise Refused("openadr2-replayed", "it was not signed within the last minute")
        with self._lock:
            if nonce in self._nonces:
                raise Refused("openadr2-replayed", "it was heard before")
            self._nonces[nonce] = now
            while self._nonces and (
                len(self._nonces) > NONCES_AT_MOST
                or next(iter(self._nonces.values())) < now - 2 * FRESH
            ):
                self._nonces.popitem(last=False)


def _written(digest: bytes) -> str:
    return ":".join(f"{byte:02X}" for byte in digest)
