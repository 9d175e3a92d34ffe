"""Remembered pages: read once, and never older than what is in the store."""

import json
from datetime import UTC, datetime

import pytest

from gridaware.domain.errors import InvalidInput
from gridaware.service import pages
from gridaware.service.pages import PageMemory
from gridaware.store.reader import StoreReader

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


class CountingReader:
    """The store's reader, which counts how often a page is really read."""

    def __init__(self, reader: StoreReader) -> None:
        self.lists = 0
        self._reader = reader

    def list(self, kind, **rest):
        self.lists += 1
        return self._reader.list(kind, **rest)

    def version(self, kind, after):
        return self._reader.version(kind, after)


@pytest.fixture
def asked(store, settings):
    """Puts documents, and asks a memory for a page of jobs; (ids, pages really read so far)."""
    reader = StoreReader(settings.store)
    counting, memory = CountingReader(reader), PageMemory()

    def put(kind: str, name: str, state: str = "queued") -> None:
        store.documents.put(kind, name, state, {"id": name, "state": state}, NOON)
        store.ledger.flush()

    def ask(states: tuple[str, ...] = (), limit: int = 10) -> tuple[list[str], int]:
        page = json.loads(memory.page(counting, "job", states, None, limit))
        return [item["id"] for item in page["items"]], counting.lists

    ask.put = put
    yield ask
    reader.close()


def test_a_page_is_read_once_until_a_document_of_its_kind_changes(asked) -> None:
    asked.put("job", "a")
    assert asked() == (["a"], 1)
    assert asked() == (["a"], 1)
    for number in range(5):
        asked.put("node", f"n{number}")  # others may change as they like
        assert asked() == (["a"], 1)
    asked.put("job", "b")
    assert asked() == (["b", "a"], 2)
    assert asked() == (["b", "a"], 2)
    asked.put("job", "a", "running")
    assert asked(("queued",)) == (["b"], 3)
    assert asked() == (["b", "a"], 4)


def test_an_empty_list_is_remembered_too(asked) -> None:
    assert asked() == ([], 1)
    assert asked() == ([], 1)
    asked.put("job", "a")
    assert asked() == (["a"], 2)


def test_what_was_asked_for_longest_ago_is_forgotten_first(asked, monkeypatch) -> None:
    monkeypatch.setattr(pages, "MOST_PAGES", 2)
    asked.put("job", "a")
    for limit in (1, 2, 3):
        asked(limit=limit)
    assert asked(limit=3)[1] == 3
    assert asked(limit=1)[1] == 4


def test_a_refusal_is_not_remembered(asked) -> None:
    for _ in range(2):
        with pytest.raises(InvalidInput):
            asked(limit=0)
