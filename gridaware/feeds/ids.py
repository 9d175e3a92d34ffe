"""Names of signals, made from whatever a sender calls its events."""

import hashlib
import re

__all__ = ["source_id"]

AT_MOST = 64
_FIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_UNFIT = re.compile(r"[^A-Za-z0-9._:-]+")
_KEPT = 40


def source_id(*parts: str | int) -> str:
    """One id of 1 to 64 characters for ``parts``, joined by dots.

    What does not fit is shortened to what is readable of it and 16 digits of its SHA-256, so that
    two names that differ anywhere stay two.
    """
    whole = ".".join(str(part) for part in parts)
    if _FIT.fullmatch(whole):
        return whole
    digest = hashlib.sha256("\0".join(str(part) for part in parts).encode("utf-8", "surrogatepass"))
    readable = _UNFIT.sub("-", whole).lstrip("._:-")[:_KEPT] or "x"
    return f"{readable}.{digest.hexdigest()[:16]}"
