from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gridaware.store.controller import ControllerStore
from gridaware.store.reader import StoreReader

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture
def noon() -> datetime:
    return NOON


@pytest.fixture
def store_path(tmp_path: Path) -> str:
    return str(tmp_path / "s.db")


@pytest.fixture
def store(store_path: str) -> Iterator[ControllerStore]:
    store = ControllerStore(store_path, site_id="dc-1", started_at=NOON)
    yield store
    store.close()


@pytest.fixture
def reader(store: ControllerStore, store_path: str) -> Iterator[StoreReader]:
    reader = StoreReader(store_path)
    yield reader
    reader.close()
