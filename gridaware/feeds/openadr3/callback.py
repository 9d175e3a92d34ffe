"""What the server calls: a challenge to echo, and notifications, which only wake a poll.

Every server examined loses pushes or mangles them, so the list that is asked for then is what
counts, not what was pushed. The bearer is the only thing that makes a call authentic: it is drawn
by us, once a feed.
"""

import hmac
import secrets
from collections.abc import Mapping

from gridaware.clock import Clock
from gridaware.domain.errors import GridawareError, InvalidInput, Refused
from gridaware.feeds.kind import Hooked, Push
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.openadr3.shapes import decoded
from gridaware.feeds.rate import Bucket

__all__ = ["CallBack", "bearer_of", "notified"]

BEARER_BYTES = 32
CHALLENGE_AT_MOST = 256
CHALLENGES_PER_SECOND = 2.0
CHALLENGES_AT_ONCE = 20.0


def bearer_of(memory: FeedMemory) -> str:
    """The bearer that calls must carry; the same over restarts."""
    kept = memory.get("bearer")
    if isinstance(kept, str) and len(kept) >= BEARER_BYTES:
        return kept
    drawn = secrets.token_urlsafe(BEARER_BYTES)
    memory.put("bearer", drawn)
    return drawn


class CallBack:
    """Serves the calls of one server."""

    def __init__(self, bearer: str, clock: Clock) -> None:
        self._wanted = f"Bearer {bearer}".encode()
        self._challenges = Bucket(clock, CHALLENGES_PER_SECOND, CHALLENGES_AT_ONCE)

    def challenged(self, push: Push) -> Hooked:
        """Answer a challenge: the server may be anybody, so nothing is told but what it said.

        Raises:
            InvalidInput: there is nothing to echo (``echo-missing``).
            Refused: too many come (``rate-exceeded``).
        """
        word = push.query.get("echo", "")
        if not 0 < len(word) <= CHALLENGE_AT_MOST or not (word.isascii() and word.isprintable()):
            raise InvalidInput("echo-missing", "there is no word of 1 to 256 letters to echo")
        if not self._challenges.take():
            raise Refused("rate-exceeded", "too many challenges a second came")
        return Hooked(body=word.encode(), content_type="text/plain")

    def verify(self, push: Push) -> None:
        """Let a notification pass if it carries our bearer.

        Raises:
            Refused: it carries none, or another (``signature-bearer``).
        """
        given = push.headers.get("authorization", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, self._wanted):
            raise Refused("signature-bearer", "the call does not carry the subscription's bearer")


def notified(body: bytes) -> GridawareError | None:
    """What is wrong with a notification in any of the shapes in which they come; None = nothing.

    JSON, or JSON in a string of JSON; keys in camelCase or in snake_case.
    """
    try:
        said = decoded(body)
    except InvalidInput as error:
        return error
    known = isinstance(said, Mapping) and isinstance(said.get("object"), Mapping)
    if not known:
        return InvalidInput("notification-unknown", "the call holds no object that changed")
    return None
