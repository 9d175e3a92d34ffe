"""The tables. ``migrations/`` builds them; a test holds the two equal."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

__all__ = [
    "METADATA",
    "SCHEMA_REVISION",
    "controller",
    "document",
    "energy",
    "idempotency",
    "ledger",
    "series",
]

SCHEMA_REVISION = "0001"
"""The newest migration: what this version of gridaware reads and writes."""

METADATA = MetaData()

ledger = Table(
    "ledger",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", String(27), nullable=False),
    Column("kind", String(64), nullable=False),
    Column("body", Text, nullable=False),
    Column("prev_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Index("ledger_kind_seq", "kind", "seq"),
)
"""Append-only (triggers refuse anything else) and hash-chained; see :mod:`.chain`."""

document = Table(
    "document",
    METADATA,
    Column("kind", String(32), primary_key=True),
    Column("id", String(160), primary_key=True),
    Column("state", String(32), nullable=False),
    Column("body", LargeBinary),
    Column("updated_at", String(27), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created", BigInteger, nullable=False),
    Index("document_version", "version"),
    Index("document_kind_created", "kind", "created"),
    Index("document_kind_state_created", "kind", "state", "created"),
)
"""What people read, one JSON body each; a removed one stays without a body, so that a follower
of changes learns of it. ``version`` rises with every change of any document, ``created`` is the
version it had at first: a page's cursor, which updates do not move."""

series = Table(
    "series",
    METADATA,
    Column("series", String(160), primary_key=True),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("watts", Float),
    Column("quality", String(16), nullable=False),
    sqlite_with_rowid=False,
)
"""Power by name and UTC epoch millisecond. ``watts`` empty = nothing holds (a lifted target)."""

energy = Table(
    "energy",
    METADATA,
    Column("end_at", BigInteger, primary_key=True, autoincrement=False),
    Column("line", String(16), primary_key=True),
    Column("subject", String(160), primary_key=True),
    Column("start_at", BigInteger, nullable=False),
    Column("team", String(64), nullable=False),
    Column("tier", String(16), nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("joules", Float, nullable=False),
    Column("band_joules", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("covered_seconds", Float, nullable=False),
    Column("method", String(16), nullable=False),
    Column("flags", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""Energy of one short period by line and subject (a job, a GPU, or nobody). Rows of consecutive
periods add up, also across restarts of the controller."""

controller = Table(
    "controller",
    METADATA,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("boot_id", String(64), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", String(27), nullable=False),
    Column("heartbeat_at", String(27), nullable=False),
)
"""One row for each start of a controller; the highest epoch is the one that agents obey."""

idempotency = Table(
    "idempotency",
    METADATA,
    Column("key", String(200), primary_key=True),
    Column("command", String(64), nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("actor", String(200), nullable=False),
    Column("response", LargeBinary, nullable=False),
    Column("at", String(27), nullable=False),
)
"""Answers already given, by the key that the caller chose."""
