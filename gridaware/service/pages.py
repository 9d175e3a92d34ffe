"""Pages of documents, remembered for as long as no document of their kind has changed.

Whoever polls a list asks for the same page again and again; the store says in microseconds whether
it is still the same one.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass

import msgspec

from gridaware.store.reader import StoreReader

__all__ = ["PageMemory", "page_json"]

MOST_PAGES = 64
MOST_BYTES = 32 * 1024 * 1024
"""Of all remembered pages together."""

_Key = tuple[str, tuple[str, ...], str | None, int]


@dataclass(slots=True)
class _Page:
    version: int
    """Of all documents, when the page was last known to be the newest."""
    body: bytes


class PageMemory:
    """The pages that were asked for last. Safe from any thread."""

    def __init__(self) -> None:
        self._pages: OrderedDict[_Key, _Page] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def page(
        self,
        reader: StoreReader,
        kind: str,
        states: tuple[str, ...],
        cursor: str | None,
        limit: int,
    ) -> bytes:
        """One page as JSON, newest first.

        Raises:
            InvalidInput: the cursor is none of ours, or the limit is out of range.
        """
        key = (kind, states, cursor, limit)
        with self._lock:
            known = self._pages.get(key)
        # Asked before the page is read: what changes in between is found by the next request.
        version, of_kind = reader.version(kind, 0 if known is None else known.version)
        if known is not None and of_kind <= known.version:
            known.version = version
            return known.body
        found = reader.list(kind, states=states, cursor=cursor, limit=limit)
        body = page_json(found.bodies, found.next_cursor)
        self._remember(key, _Page(version, body))
        return body

    def _remember(self, key: _Key, page: _Page) -> None:
        with self._lock:
            before = self._pages.pop(key, None)
            self._bytes += len(page.body) - (0 if before is None else len(before.body))
            self._pages[key] = page
            while self._pages and (len(self._pages) > MOST_PAGES or self._bytes > MOST_BYTES):
                _, oldest = self._pages.popitem(last=False)
                self._bytes -= len(oldest.body)


def page_json(items: tuple[bytes, ...], next_cursor: str | None) -> bytes:
    """The JSON of a page from items that are JSON already."""
    return b'{"items":[%b],"next_cursor":%b}' % (b",".join(items), msgspec.json.encode(next_cursor))
