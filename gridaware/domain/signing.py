"""Signatures of webhooks: HMAC-SHA256 over ``<timestamp>.<body>``.

The sender puts the seconds since 1970 into ``Gridaware-Timestamp`` and ``v1=<64 hex digits>`` into
``Gridaware-Signature``. The timestamp is under the signature, so an old message cannot be sent
again later under a new time. HMAC is RFC 2104, its values are checked against RFC 4231.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence

from gridaware.domain.errors import ConfigError, Refused

__all__ = [
    "SIGNATURE_HEADER",
    "TIMESTAMP_HEADER",
    "WINDOW_SECONDS",
    "sign",
    "verify",
]

TIMESTAMP_HEADER = "Gridaware-Timestamp"
SIGNATURE_HEADER = "Gridaware-Signature"
WINDOW_SECONDS = 300.0
"""How far the sender's clock may be from ours, either way."""

_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"v1=([0-9a-fA-F]{64})")
_SIGNATURES_AT_MOST = 4


def sign(secret: bytes, timestamp: int | str, body: bytes) -> str:
    """The value of the signature header for ``body`` sent at ``timestamp`` (s since 1970)."""
    return f"v1={_mac(secret, str(timestamp), body).hex()}"


def verify(
    secrets: Sequence[bytes],
    timestamp: str | None,
    body: bytes,
    signature: str | None,
    now_seconds: float,
    window_seconds: float = WINDOW_SECONDS,
) -> str:
    """Check a message and return its authentic code (hex): the one name under which to know it.

    Either side may rotate its secret: any of ``secrets`` will do, and the header may carry up to
    four signatures separated by commas. All comparisons take constant time. The signature is
    checked before the time, so that only the true sender learns that its clock is wrong.

    Args:
        secrets: what the sender may have signed with; the newest first.
        timestamp: the header as it came, or None.
        body: the body as it came.
        signature: the header as it came, or None.
        now_seconds: seconds since 1970 on our clock.
        window_seconds: how far the timestamp may be from now, either way.

    Raises:
        Refused: ``timestamp-missing``, ``timestamp-malformed``, ``signature-missing``,
            ``signature-malformed``, ``signature-bad``, ``timestamp-stale`` or
            ``timestamp-future``.
        ConfigError: there is no secret to check with (``signature-no-secret``).
    """
    if not secrets:
        raise ConfigError("signature-no-secret", "no secret is set to check signatures with")
    if not timestamp:
        raise Refused("timestamp-missing", f"the header {TIMESTAMP_HEADER} is missing")
    if not _TIMESTAMP.fullmatch(timestamp):
        raise Refused("timestamp-malformed", f"{TIMESTAMP_HEADER} is not whole seconds since 1970")
    code = _matching(secrets, timestamp, body, _given(signature))
    age_seconds = now_seconds - int(timestamp)
    if age_seconds > window_seconds:
        raise Refused(
            "timestamp-stale",
            f"the message was signed {age_seconds:.0f} s ago; at most {window_seconds:.0f} s "
            "are allowed",
            age_seconds=age_seconds,
        )
    if age_seconds < -window_seconds:
        raise Refused(
            "timestamp-future",
            f"the message was signed {-age_seconds:.0f} s ahead of our clock; at most "
            f"{window_seconds:.0f} s are allowed",
            age_seconds=age_seconds,
        )
    return code


def _mac(secret: bytes, timestamp: str, body: bytes) -> bytes:
    return hmac.digest(secret, timestamp.encode("ascii") + b"." + body, hashlib.sha256)


def _given(signature: str | None) -> list[bytes]:
    if not signature:
        raise Refused("signature-missing", f"the header {SIGNATURE_HEADER} is missing")
    parts = signature.split(",", _SIGNATURES_AT_MOST)
    matches = [_SIGNATURE.fullmatch(part.strip()) for part in parts]
    if len(parts) > _SIGNATURES_AT_MOST or not all(matches):
        raise Refused(
            "signature-malformed", f"{SIGNATURE_HEADER} is not v1= and 64 hexadecimal digits"
        )
    return [bytes.fromhex(match[1]) for match in matches if match]


def _matching(secrets: Sequence[bytes], timestamp: str, body: bytes, given: list[bytes]) -> str:
    found = ""
    for secret in secrets:
        expected = _mac(secret, timestamp, body)
        for candidate in given:
            # No early way out: how long this takes says nothing about which secret matched.
            if hmac.compare_digest(expected, candidate):
                found = expected.hex()
    if not found:
        raise Refused("signature-bad", "the signature fits none of the feed's secrets")
    return found
