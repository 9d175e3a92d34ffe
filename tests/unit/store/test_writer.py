"""The one writer: what is queued together is committed together, in order, at once if awaited."""

import threading

import pytest
from sqlalchemy import insert

from gridaware.domain.errors import Bug, Unavailable
from gridaware.store.database import migrate, open_engine
from gridaware.store.schema import controller
from gridaware.store.writer import StoreWriter

_INSERT = insert(controller)


def _row(epoch: int) -> dict:
    return {"epoch": epoch, "boot_id": "b", "pid": 1, "started_at": "t", "heartbeat_at": "t"}


@pytest.fixture
def engine(store_path):
    engine = open_engine(store_path, writing=True)
    migrate(engine)
    yield engine
    engine.dispose()


class _Commits:
    """Counts commits, and holds the writer back while the test queues more."""

    def __init__(self, engine) -> None:
        self.sizes: list[int] = []
        self.entered, self.go = threading.Event(), threading.Event()
        self._begin = engine.begin
        engine.begin = self._held_begin
        self._engine = engine

    def _held_begin(self):
        self.entered.set()
        assert self.go.wait(10)
        return self._begin()


def test_rows_queued_during_a_commit_share_the_next_one(engine, monkeypatch):
    commits = _Commits(engine)
    writer = StoreWriter(engine, batch_seconds=60)
    sizes = []
    original = writer._commit
    monkeypatch.setattr(
        writer, "_commit", lambda batch: sizes.append(len(batch)) or original(batch)
    )
    told = []
    writer.submit(_INSERT, _row(1))
    writer.when_durable(lambda error: told.append("first"))
    assert commits.entered.wait(10)
    for epoch in range(2, 102):
        writer.submit(_INSERT, _row(epoch))
    writer.when_durable(lambda error: told.append("second"))
    commits.go.set()
    writer.flush()
    writer.close()
    assert sizes == [1, 100]
    assert told == ["first", "second"]


def test_a_waiter_whose_rows_were_just_committed_is_told(engine):
    """It asks while the commit with its rows runs, and finds an empty queue afterwards."""
    commits = _Commits(engine)
    writer = StoreWriter(engine, batch_seconds=0.0)
    writer.submit(_INSERT, _row(1))
    assert commits.entered.wait(10)
    told = threading.Event()
    writer.when_durable(lambda error: told.set())
    commits.go.set()
    assert told.wait(10)
    writer.close()


def test_nothing_queued_is_durable_at_once(engine):
    writer = StoreWriter(engine, batch_seconds=60)
    told = []
    writer.when_durable(told.append)
    assert told == [None]
    writer.close()


def test_the_queue_is_bounded(engine):
    commits = _Commits(engine)
    writer = StoreWriter(engine, batch_seconds=0.0, most_pending=3)
    for epoch in range(3):
        writer.submit(_INSERT, _row(epoch))
    with pytest.raises(Unavailable) as caught:
        writer.submit(_INSERT, _row(3))
    assert caught.value.code == "store-backlog"
    commits.go.set()
    writer.flush()
    writer.submit(_INSERT, _row(3))
    writer.close()


def test_a_slow_disk_is_reported_to_whoever_waits(engine):
    commits = _Commits(engine)
    writer = StoreWriter(engine, batch_seconds=0.0)
    writer.submit(_INSERT, _row(1))
    with pytest.raises(Unavailable) as caught:
        writer.flush(timeout_seconds=0.0)
    assert caught.value.code == "store-slow"
    commits.go.set()
    writer.close()


def test_a_row_that_the_database_cannot_take_never_ends_the_thread(engine):
    writer = StoreWriter(engine, batch_seconds=0.0, retry_seconds=60)
    writer.submit(_INSERT, _row(2**70))
    for _ in range(2):
        with pytest.raises(Bug) as caught:
            writer.flush()
        assert caught.value.code == "store-row"
    with pytest.raises(Bug):
        writer.close()
