"""Opening the database: address, pragmas, migrations, and errors in our own words."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from gridaware.domain.errors import ConfigError, GridawareError, Unavailable
from gridaware.store.schema import SCHEMA_REVISION

__all__ = ["database_file", "migrate", "open_engine", "require_schema", "translated"]

_log = logging.getLogger(__name__)
_BUSY_SECONDS = 5
_MIGRATIONS = Path(__file__).parent / "migrations"

_SQLITE_CODES = {
    "SQLITE_FULL": "store-full",
    "SQLITE_READONLY": "store-read-only",
    "SQLITE_PERM": "store-no-permission",
    "SQLITE_AUTH": "store-no-permission",
    "SQLITE_CANTOPEN": "store-cannot-open",
    "SQLITE_BUSY": "store-busy",
    "SQLITE_LOCKED": "store-busy",
    "SQLITE_IOERR": "store-io",
}


def open_engine(location: str, *, writing: bool) -> Engine:
    """An engine for the store at ``location``: a database URL or the path of an SQLite file.

    A writing engine creates the file (mode 0600) where it is missing, and its commits reach the
    disk before they return. A reading one cannot write at all.

    Raises:
        ConfigError: the address means nothing, or its database driver is not installed.
        Unavailable: a reader found no store yet, or the file cannot be made.
    """
    url = _url(location)
    path = database_file(location)
    if path is not None:
        _prepare_file(path, writing=writing)
    options: dict[str, Any] = {
        "pool_size": 1 if writing else 8,
        "max_overflow": 0 if writing else 8,
    }
    try:
        engine = create_engine(url, **options)
    except (ModuleNotFoundError, SQLAlchemyError) as error:
        raise ConfigError(
            "store-driver-missing", f"no driver for the store's database: {error}", url=str(url)
        ) from error
    if path is not None:
        _prepare_sqlite(engine, writing=writing)
    return engine


def database_file(location: str) -> Path | None:
    """The SQLite file behind ``location``; None for a database server.

    Raises:
        ConfigError: SQLite without a file, which two processes could not share.
    """
    url = _url(location)
    if url.get_backend_name() != "sqlite":
        return None
    if not url.database or url.database == ":memory:":
        raise ConfigError("store-in-memory", "the store needs a file: two processes share it")
    return Path(url.database)


def migrate(engine: Engine) -> None:
    """Bring the tables to :data:`SCHEMA_REVISION`.

    Raises:
        ConfigError: the file is damaged, or a newer gridaware made it.
        Unavailable: the database does not answer.
    """
    with translated("open the store"), engine.connect() as connection:
        found = _revision(connection)
    if found == SCHEMA_REVISION:
        return
    # Alembic is heavy to import, and most starts do not need it.
    # Before the import: it tells of each plugin that it sets up.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise _newer(found)
    with translated("migrate the store"), engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    _log.info("the store is now at schema %s (was %s)", SCHEMA_REVISION, found or "new")


def require_schema(engine: Engine) -> None:
    """Check that the tables are the ones this version knows.

    Raises:
        ConfigError: the file is damaged, or a newer gridaware made it.
        Unavailable: no controller has prepared (or brought up to date) the store yet.
    """
    with translated("open the store"), engine.connect() as connection:
        found = _revision(connection)
    if found == SCHEMA_REVISION:
        return
    if found is None or found < SCHEMA_REVISION:
        raise Unavailable("store-not-ready", "no controller has prepared the store yet")
    raise _newer(found)


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Turn database errors inside the block into the project's own.

    Raises:
        ConfigError: the file is damaged or no database (``store-corrupt``).
        Unavailable: anything else; the code says what (``store-full``, ``store-io``, …).
    """
    try:
        yield
    except SQLAlchemyError as error:
        raise _translate(error, action) from error


def _translate(error: SQLAlchemyError, action: str) -> GridawareError:
    if not isinstance(error, DBAPIError):
        return Unavailable("store-unavailable", f"cannot {action}: {error}")
    name = str(getattr(error.orig, "sqlite_errorname", ""))
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return ConfigError("store-corrupt", f"cannot {action}: {error.orig}", sqlite=name)
    base = "_".join(name.split("_")[:2])
    code = _SQLITE_CODES.get(base, "store-unavailable")
    return Unavailable(code, f"cannot {action}: {error.orig}", sqlite=name or None)


def _newer(found: str) -> ConfigError:
    return ConfigError(
        "store-schema-newer",
        f"the store has schema {found!r}; this version of gridaware knows {SCHEMA_REVISION!r}",
        found=found,
        known=SCHEMA_REVISION,
    )


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def _url(location: str) -> URL:
    if "://" not in location:
        return URL.create("sqlite", database=str(Path(location).absolute()))
    try:
        return make_url(location)
    except ArgumentError as error:
        raise ConfigError("store-url-malformed", f"not a database URL: {location!r}") from error


def _prepare_file(path: Path, *, writing: bool) -> None:
    if not writing:
        if not path.exists():
            raise Unavailable("store-not-ready", "no controller has made the store yet")
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The ledger holds what users submitted: nobody else's business.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise Unavailable(
            "store-cannot-open", f"cannot make the store at {path}: {error.strerror}"
        ) from error


def _prepare_sqlite(engine: Engine, *, writing: bool) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where we say, see on_begin
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
        if writing:
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute("PRAGMA synchronous = FULL")
        else:
            cursor.execute("PRAGMA query_only = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
