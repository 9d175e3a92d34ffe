"""The first tables.

Later versions of gridaware add migrations; they never edit this one, so it names every column
itself instead of importing ``schema``.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables, and the triggers that keep the ledger append-only."""
    op.create_table(
        "ledger",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.String(27), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("prev_hash", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    op.create_index("ledger_kind_seq", "ledger", ["kind", "seq"])
    op.create_table(
        "document",
        sa.Column("kind", sa.String(32), primary_key=True),
        sa.Column("id", sa.String(160), primary_key=True),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("body", sa.LargeBinary),
        sa.Column("updated_at", sa.String(27), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
    )
    op.create_index("document_version", "document", ["version"])
    op.create_index("document_kind_created", "document", ["kind", "created"])
    op.create_index("document_kind_state_created", "document", ["kind", "state", "created"])
    op.create_table(
        "series",
        sa.Column("series", sa.String(160), primary_key=True),
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("watts", sa.Float),
        sa.Column("quality", sa.String(16), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "energy",
        sa.Column("end_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("line", sa.String(16), primary_key=True),
        sa.Column("subject", sa.String(160), primary_key=True),
        sa.Column("start_at", sa.BigInteger, nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("tier", sa.String(16), nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("joules", sa.Float, nullable=False),
        sa.Column("band_joules", sa.Float, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("covered_seconds", sa.Float, nullable=False),
        sa.Column("method", sa.String(16), nullable=False),
        sa.Column("flags", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "controller",
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("boot_id", sa.String(64), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started_at", sa.String(27), nullable=False),
        sa.Column("heartbeat_at", sa.String(27), nullable=False),
    )
    op.create_table(
        "idempotency",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("command", sa.String(64), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("response", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.String(27), nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER ledger_no_{change.lower()} BEFORE {change} ON ledger "
                "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            )


def downgrade() -> None:
    """There is nothing before the first tables."""
    raise NotImplementedError
