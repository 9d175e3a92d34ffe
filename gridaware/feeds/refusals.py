"""Refusals of what a grid side lists again and again: each is told once."""

import hashlib
from collections.abc import Callable

from gridaware.domain.errors import GridawareError

__all__ = ["Refusals"]

TOLD_AT_MOST = 5000
RAW_AT_MOST = 4096


class Refusals:
    """Tells what is wrong with a content once, however often it is listed. One thread at a time.

    Args:
        tell: is told the error and the raw text.
    """

    def __init__(self, tell: Callable[[GridawareError, str], None]) -> None:
        self._tell = tell
        self._told: dict[str, None] = {}

    def refuse(self, error: GridawareError, raw: str) -> None:
        """Tell of it, unless that was told already."""
        said = f"{error.code} {error.message} {raw}".encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(said).hexdigest()
        if digest in self._told:
            return
        self._told[digest] = None
        while len(self._told) > TOLD_AT_MOST:
            del self._told[next(iter(self._told))]
        self._tell(error, raw[:RAW_AT_MOST])
