"""Delivers what one feed has to say, in order, without ever holding up who says it."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from gridaware.domain.errors import Bug, GridawareError, Unavailable

__all__ = ["DeliveryQueue"]

log = logging.getLogger(__name__)

Item = TypeVar("Item")


class DeliveryQueue(Generic[Item]):
    """Things waiting to be delivered, on a thread of their own.

    Args:
        deliver: delivers one; may be slow, may raise.
        failed: hears of each that was not delivered.
        at_most: may wait; beyond it the oldest gives way.
        name: of the thread.
    """

    def __init__(
        self,
        deliver: Callable[[Item], None],
        failed: Callable[[Item, GridawareError], None],
        *,
        at_most: int,
        name: str,
    ) -> None:
        self._deliver = deliver
        self._failed = failed
        self._at_most = at_most
        self._name = name
        self._waiting: deque[Item] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def put(self, item: Item) -> None:
        """Take one; returns at once."""
        dropped = None
        with self._changed:
            if self._closed:
                return
            if len(self._waiting) >= self._at_most:
                dropped = self._waiting.popleft()
            self._waiting.append(item)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()
        if dropped is not None:
            self._failed(dropped, Unavailable("tell-overflow", f"{self._at_most} wait already"))

    def close(self) -> None:
        """Deliver nothing more."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._closed):
                    self._changed.wait()
                if self._closed:
                    return
                item = self._waiting.popleft()
            try:
                self._deliver(item)
            except GridawareError as error:
                self._failed(item, error)
            except Exception as error:  # a kind of a third party may raise anything
                log.exception("%s failed", self._name)
                self._failed(item, Bug("feed-failed", f"{type(error).__name__} in the feed"))
