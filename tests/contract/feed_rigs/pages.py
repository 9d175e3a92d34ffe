"""What rigs of public pages share: what is said becomes a page, read at once.

The server, the rates and the page's age have tests of their own (test_market_pages.py).
"""

from collections.abc import Callable
from typing import Any

from feed_rigs.base import Rig, Said
from gridaware.domain.errors import GridawareError, InvalidInput, Unavailable
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds.pages import Read
from gridaware.feeds.runner import RunningFeed

RULES = ("dr-1", "a", "b", "c", "d", "after")


class StubPage:
    """Takes the place of a page: asked anew at every read."""

    def __init__(self, body: Callable[[], bytes], clock: Any) -> None:
        self.body, self.clock = body, clock

    def read(self, understand: Callable[[Read], Any]) -> Any:
        now = self.clock.wall()
        try:
            return understand(Read(self.body(), now, self.clock.monotonic_seconds(), None))
        except (InvalidInput, RecursionError, ArithmeticError) as error:
            raise Unavailable("page-garbled", str(error)) from None


class PageRig(Rig):
    """A page says what the state of the grid is; each rule of the settings hears one word."""

    meant = TargetSpec(Quantity.LIMIT_WATTS, 10e3)
    asks_for_anything = False
    numbers_revisions = False
    begins_at_once = True
    is_pushed = True
    says_priority = True

    def page(self, word: str | None) -> bytes:
        """The page while the state is ``word``; None = nothing is the matter."""
        raise NotImplementedError

    def place(self, feed: Any, page: StubPage) -> None:
        """Have the feed read ``page``."""
        raise NotImplementedError

    def open(self) -> RunningFeed:
        running = super().open()
        self.raw: bytes | None = None
        self.word: str | None = None
        self.place(running.feed, StubPage(lambda: self.raw or self.page(self.word), self.clock))
        return running

    def name_of(self, signal: Signal) -> str:
        return signal.source_id

    def say(self, *events: Said) -> None:
        for event in events:
            self.word = event.name
            self.running.poll_once(self.signals.append)

    def say_raw(self, message: bytes) -> None:
        self.raw = message
        feed: Any = self.running.feed
        told = len(self.refused)
        try:
            feed.poll()
        except GridawareError as error:
            if len(self.refused) == told:  # else the feed said so itself: something is held
                self.running.refused(error, message[:100].decode("latin-1"))
        self.raw = None
