"""Opening a store: one controller, one schema, one clear refusal for each thing that is wrong."""

import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from gridaware.domain.errors import ConfigError, Refused, Unavailable
from gridaware.domain.fixes import fix_for
from gridaware.store import database
from gridaware.store.controller import ControllerStore
from gridaware.store.reader import StoreReader
from gridaware.store.schema import METADATA, SCHEMA_REVISION

_HOLDER = """
import sys
from datetime import UTC, datetime
from gridaware.store.controller import ControllerStore
store = ControllerStore(sys.argv[1], site_id="dc-1", started_at=datetime(2026, 1, 1, tzinfo=UTC))
print(store.epoch, flush=True)
sys.stdin.read()
"""


def test_a_second_controller_is_refused_with_the_pid_of_the_first_until_that_dies(store_path, noon):
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, store_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "1\n"
    with pytest.raises(Refused) as caught:
        ControllerStore(store_path, site_id="dc-1", started_at=noon)
    assert (caught.value.code, caught.value.facts["pid"]) == ("store-locked", holder.pid)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    store = ControllerStore(store_path, site_id="dc-1", started_at=noon)
    assert store.epoch == 2
    store.close()


def test_a_refused_start_earns_no_epoch(store, store_path, noon):
    with pytest.raises(Refused):
        ControllerStore(store_path, site_id="dc-1", started_at=noon)
    store.close()
    again = ControllerStore(store_path, site_id="dc-1", started_at=noon)
    assert again.epoch == store.epoch + 1
    again.close()


def test_a_new_store_begins_after_the_epoch_that_a_lost_one_had_given(store_path, noon):
    for after, epoch in ((57, 58), (57, 59), (0, 60)):
        store = ControllerStore(store_path, site_id="dc-1", started_at=noon, after_epoch=after)
        store.close()
        assert store.epoch == epoch


def test_the_migrations_build_the_tables_that_the_code_names(store):
    with store._reading.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, METADATA) == []
        assert context.get_current_revision() == SCHEMA_REVISION
    folder = Path(database.__file__).parent / "migrations"
    assert ScriptDirectory(folder).get_current_head() == SCHEMA_REVISION


def test_the_file_is_for_its_owner_alone(store, store_path):
    assert stat.S_IMODE(Path(store_path).stat().st_mode) == 0o600


def test_commits_reach_the_disk_and_readers_do_not_wait(store):
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


def test_a_store_of_a_newer_version_is_left_alone(store, store_path, noon):
    store.close()
    connection = sqlite3.connect(store_path)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    before = Path(store_path).read_bytes()
    for attempt in (
        lambda: ControllerStore(store_path, site_id="dc-1", started_at=noon),
        lambda: StoreReader(store_path),
    ):
        with pytest.raises(ConfigError) as caught:
            attempt()
        assert caught.value.code == "store-schema-newer"
    assert Path(store_path).read_bytes() == before


def test_a_file_that_is_no_database_is_a_config_error(store_path, noon):
    Path(store_path).write_bytes(b"not a database at all" * 100)
    for attempt in (
        lambda: ControllerStore(store_path, site_id="dc-1", started_at=noon),
        lambda: StoreReader(store_path),
    ):
        with pytest.raises(ConfigError) as caught:
            attempt()
        assert caught.value.code == "store-corrupt"
    assert Path(store_path).read_bytes().startswith(b"not a database")


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("sqlite://", "store-in-memory"),
        ("sqlite:///:memory:", "store-in-memory"),
        ("nonsense://host/name", "store-not-sqlite"),
        ("://", "store-url-malformed"),
        ("postgresql://host/name", "store-not-sqlite"),
    ],
)
def test_an_address_that_cannot_work_is_a_config_error(location, code, noon):
    with pytest.raises(ConfigError) as caught:
        ControllerStore(location, site_id="dc-1", started_at=noon)
    assert caught.value.code == code


def test_a_reader_before_the_first_controller_is_told_to_wait(store_path):
    for prepare in (lambda: None, lambda: Path(store_path).touch()):
        prepare()
        with pytest.raises(Unavailable) as caught:
            StoreReader(store_path)
        assert caught.value.code == "store-not-ready"


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path, noon):
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable) as caught:
        ControllerStore(str(tmp_path / "file" / "s.db"), site_id="dc-1", started_at=noon)
    assert caught.value.code == "store-cannot-open"


def test_the_heartbeat_moves_only_the_newest_epoch(store, reader, noon):
    assert reader.controller_heartbeat() == (1, noon)
    later = noon.replace(minute=5)
    store.heartbeat(later)
    store.ledger.flush()
    assert reader.controller_heartbeat() == (1, later)


def test_every_refusal_of_the_disk_comes_with_what_to_do():
    assert {code for code in database._SQLITE_CODES.values() if fix_for(code) is None} == set()


def test_a_new_store_is_told_in_one_line_of_the_log(store_path):
    program = "import logging; logging.basicConfig(level=logging.INFO)" + _HOLDER
    done = subprocess.run(  # in a process of its own, which has not imported alembic yet
        [sys.executable, "-c", program, store_path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stderr.splitlines()
    assert "the store is now at schema" in line
