"""API keys: shown once, kept as hashes, compared in constant time.

A key holds 256 random bits, so a plain hash of it cannot be guessed and needs no slow function. The
file has one key a line, ``NAME sha256:HEX``; lines that start with ``#`` are remarks.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from gridaware.domain.errors import ConfigError, Refused

__all__ = ["KeyRing", "api_key_line", "new_api_key"]

_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})\s+sha256:([0-9a-f]{64})")


def new_api_key() -> str:
    """A fresh key."""
    return f"gw_{secrets.token_urlsafe(32)}"


def api_key_line(name: str, key: str) -> str:
    """The line of the key file for ``key``, whose holder is called ``name`` in the ledger."""
    return f"{name} sha256:{_digest(key)}"


class KeyRing:
    """The keys that are let in."""

    def __init__(self, digests: Mapping[str, str]) -> None:
        self._digests = dict(digests)

    @classmethod
    def from_file(cls, path: Path) -> "KeyRing":
        """Read a key file.

        Raises:
            ConfigError: it is missing, or a line of it is malformed; no key is ever quoted.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("api-key-file-unreadable", f"cannot read {path}") from error
        digests = {}
        for number, line in enumerate(lines, start=1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            match = _LINE.fullmatch(text)
            if match is None:
                raise ConfigError(
                    "api-key-file-malformed",
                    f"{path}:{number}: a line is a name and sha256:HEX",
                    line=number,
                )
            digests[match[1]] = match[2]
        if not digests:
            raise ConfigError("api-key-file-empty", f"{path} holds no key")
        return cls(digests)

    def holder(self, key: str | None) -> str:
        """Whose key it is.

        Raises:
            Refused: none was given (``api-key-absent``), or nobody's (``api-key-unknown``).
        """
        if not key:
            raise Refused("api-key-absent", "the request carries no API key")
        digest, found = _digest(key), None
        # Every hash is compared, so that the time taken tells nothing.
        for name, known in self._digests.items():
            if hmac.compare_digest(digest, known):
                found = name
        if found is None:
            raise Refused("api-key-unknown", "the API key is none of this site's")
        return found


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
