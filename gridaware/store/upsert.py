"""Insert or update, in the words of either database."""

from collections.abc import Collection

from sqlalchemy import Engine, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import Executable

__all__ = ["upsert"]


def upsert(engine: Engine, table: Table, *, keep: Collection[str] = ()) -> Executable:
    """A statement that inserts a row, or updates the one with the same key but for ``keep``."""
    make = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert
    statement = make(table)
    key = [column.name for column in table.primary_key]
    changed = [c.name for c in table.columns if c.name not in key and c.name not in keep]
    return statement.on_conflict_do_update(
        index_elements=key, set_={name: statement.excluded[name] for name in changed}
    )
