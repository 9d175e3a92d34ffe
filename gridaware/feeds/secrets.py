"""Secrets by reference: ``env:NAME`` or ``file:/path``. The secret itself is stored nowhere."""

import os
import stat
from pathlib import Path

from gridaware.domain.errors import ConfigError
from gridaware.feeds.plain_file import open_plain

__all__ = ["REFERENCE_PATTERN", "read_ascii_secret", "read_secret", "read_secret_text"]

REFERENCE_PATTERN = r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$"
BYTES_AT_LEAST = 16
BYTES_AT_MOST = 4096


def read_secret(reference: str) -> bytes:
    """The secret that ``reference`` names; white space around it is not part of it.

    Raises:
        ConfigError: ``secret-reference``, ``secret-missing``, ``secret-exposed`` (a file that
            others than its owner may read or write) or ``secret-short``.
    """
    scheme, _, name = reference.partition(":")
    if scheme == "env" and name:
        value = os.environ.get(name)
        if value is None:
            raise ConfigError(
                "secret-missing", f"the environment has no {name}", reference=reference
            )
        secret = value.encode("utf-8", "surrogateescape").strip()
    elif scheme == "file" and name.startswith("/"):
        secret = _read_private(Path(name), reference).strip()
    else:
        raise ConfigError("secret-reference", "a secret is named env:NAME or file:/path")
    if len(secret) < BYTES_AT_LEAST:
        raise ConfigError(
            "secret-short",
            f"the secret {reference} has {len(secret)} bytes, fewer than {BYTES_AT_LEAST}",
            reference=reference,
        )
    return secret


def read_secret_text(reference: str) -> str:
    """The secret that ``reference`` names, where a protocol sends it as text.

    Raises:
        ConfigError: as :func:`read_secret`; or it is no line of UTF-8 (``secret-not-text``).
    """
    try:
        text = read_secret(reference).decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text or any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise ConfigError(
            "secret-not-text",
            f"the secret {reference} is not one line of text",
            reference=reference,
        )
    return text


def read_ascii_secret(reference: str) -> str:
    """The secret that ``reference`` names, where it is sent in a header.

    Raises:
        ConfigError: as :func:`read_secret_text`; or it is not ASCII (``secret-not-text``).
    """
    text = read_secret_text(reference)
    if not text.isascii():
        raise ConfigError(
            "secret-not-text", f"the secret {reference} is not ASCII", reference=reference
        )
    return text


def _read_private(path: Path, reference: str) -> bytes:
    try:
        with open_plain(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            secret = file.read(BYTES_AT_MOST)
    except OSError as error:
        raise ConfigError(
            "secret-missing", f"{path}: {error.strerror}", reference=reference
        ) from None
    if mode & 0o077:
        raise ConfigError(
            "secret-exposed", f"{path} has mode {mode:04o}, not 0600", reference=reference
        )
    return secret
