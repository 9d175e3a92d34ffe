"""The hash chain of the ledger.

Entry *n* is sealed with SHA-256 over five lines of text exactly as they are stored: the hash of
entry *n - 1*, seq, at, kind, body (no newline at the end). Entry 1 names the site's own beginning
as its predecessor. A changed, removed, added or moved entry, or one of another site, breaks every
hash after it, and anybody can check a copy with ``sha256sum`` alone.
"""

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection, select

from gridaware.domain.errors import Bug, GridawareError, InvalidInput
from gridaware.store.schema import ledger

__all__ = [
    "BrokenChain",
    "LedgerEntry",
    "canonical",
    "genesis_hash",
    "read_entries",
    "seal",
    "verify_chain",
]

_PAGE = 1000


class BrokenChain(GridawareError):
    """The ledger is not what was written: ``facts`` name the first bad entry."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One entry; ``body`` is the stored canonical JSON text."""

    seq: int
    at: str
    kind: str
    body: str
    prev_hash: str
    hash: str


def canonical(body: object) -> bytes:
    """JSON with sorted keys and no spaces; takes dataclasses, enums and instants too.

    NaN and infinities become null, as JSON has none.

    Raises:
        InvalidInput: a text holds half a character (a lone surrogate), which is no Unicode.
        Bug: something in it has no JSON form.
    """
    try:
        return msgspec.json.encode(body, order="sorted")
    except UnicodeEncodeError as error:
        raise InvalidInput("text-not-unicode", f"a text is not Unicode: {error.reason}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise Bug("store-not-json", f"this has no JSON form: {error}") from error


def genesis_hash(site_id: str) -> str:
    """What the first entry of a site names as its predecessor."""
    return hashlib.sha256(f"gridaware-ledger-1:{site_id}".encode()).hexdigest()


def seal(prev_hash: str, seq: int, at: str, kind: str, body: str) -> str:
    """The hash of one entry, hexadecimal."""
    return hashlib.sha256(f"{prev_hash}\n{seq}\n{at}\n{kind}\n{body}".encode()).hexdigest()


def read_entries(
    connection: Connection, *, from_seq: int = 1, kinds: Collection[str] = (), limit: int = _PAGE
) -> list[LedgerEntry]:
    """At most ``limit`` entries from ``from_seq`` on, of these kinds (none given = all)."""
    query = select(ledger).where(ledger.c.seq >= from_seq).order_by(ledger.c.seq).limit(limit)
    if kinds:
        query = query.where(ledger.c.kind.in_(tuple(kinds)))
    return [LedgerEntry(*row) for row in connection.execute(query)]


def verify_chain(connection: Connection, site_id: str) -> int:
    """Compute every hash again and return the number of entries.

    Raises:
        BrokenChain: the first entry that does not fit, in ``facts['seq']``.
    """
    previous, expected = genesis_hash(site_id), 1
    for entry in _all_entries(connection):
        if entry.seq != expected:
            raise BrokenChain(
                "ledger-gap", f"entry {expected} is missing", seq=expected, found=entry.seq
            )
        if entry.prev_hash != previous:
            code = "ledger-foreign" if expected == 1 else "ledger-unlinked"
            raise BrokenChain(
                code, f"entry {entry.seq} does not follow its neighbour", seq=expected
            )
        if seal(previous, entry.seq, entry.at, entry.kind, entry.body) != entry.hash:
            raise BrokenChain("ledger-altered", f"entry {entry.seq} was altered", seq=expected)
        previous, expected = entry.hash, expected + 1
    return expected - 1


def _all_entries(connection: Connection) -> Iterator[LedgerEntry]:
    start = -(2**62)  # an entry slipped in before the first would be found too
    while page := read_entries(connection, from_seq=start):
        yield from page
        start = page[-1].seq + 1
