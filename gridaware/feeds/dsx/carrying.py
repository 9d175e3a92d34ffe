"""Has control carry out a changed schedule: what holds first, what releases after. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from gridaware.domain.errors import GridawareError
from gridaware.feeds.dsx.book import Book
from gridaware.feeds.dsx.pieces import Step

__all__ = ["carry_out"]

Say = Callable[[Step], object]


def carry_out(book: Book, default_watts: Mapping[str, float], now: datetime, say: Say) -> None:
    """Say every step, and note in ``book`` what was taken.

    Once something new was refused nothing is released: what stood goes on, until a message asks
    for something that can be carried out.

    Args:
        book: the schedule as it is now wanted.
        default_watts: of each power feed.
        now: the instant.
        say: hands a step to control; raises what control answers.

    Raises:
        Unavailable: a step could not be made durable; those before it are noted.
    """
    refused = False
    for step in book.steps(default_watts, now):
        if not step.releases:
            refused = not _held(book, step, say) or refused
        elif not refused:
            _release(book, step, now, say)


def _held(book: Book, step: Step, say: Say) -> bool:
    try:
        say(step)
    except GridawareError as error:
        if error.retryable:
            raise
        return False  # control has recorded why
    book.carried_out(step)
    return True


def _release(book: Book, step: Step, now: datetime, say: Say) -> None:
    try:
        say(step)
    except GridawareError as error:
        if error.retryable:
            raise
        end = step.piece.end
        if error.code == "event-closed":
            book.carried_out(replace(step, taken_back=True))  # a person was quicker
        elif not step.taken_back and end is not None and end <= now:
            # It had not begun to act: there is nothing to shorten.
            _release(book, replace(step, taken_back=True), now, say)
        return
    book.carried_out(step)
