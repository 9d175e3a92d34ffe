"""``webhook``: the sender pushes signed event requests; each push is the signal.

What is not authentic, not new or not well formed never reaches control. A message is new once:
its code (HMAC over time and body) is remembered for as long as its timestamp could be accepted
again. That memory is in this process alone and need not outlive it: whatever is replayed after a
restart still carries the id and revision that control's ledger knows, so it is answered as a
duplicate or as superseded and changes nothing.
"""

import threading
from collections import OrderedDict
from datetime import datetime
from typing import Annotated

from pydantic import Field

from gridaware.clock import Clock
from gridaware.control.ports import FeedReport
from gridaware.domain.errors import Refused
from gridaware.domain.eventjson import event_from_json
from gridaware.domain.signal import Signal
from gridaware.domain.signing import (
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    WINDOW_SECONDS,
    verify,
)
from gridaware.feeds.kind import FEED_KINDS, Feed, FeedContext, FeedSettings, Parsed, Push, row_of
from gridaware.feeds.rate import Bucket
from gridaware.feeds.secrets import REFERENCE_PATTERN, read_secret
from gridaware.feeds.tell import StatusCaller, check_status_url

__all__ = ["ReplayMemory", "Webhook", "WebhookSettings"]

REMEMBERED_AT_MOST = 20_000

SecretReference = Annotated[str, Field(pattern=REFERENCE_PATTERN, max_length=500)]


class WebhookSettings(FeedSettings):
    """Settings of a webhook feed."""

    secrets: tuple[SecretReference, ...] = Field(min_length=1, max_length=4)
    """References of the secrets that the sender may sign with; two while one is replaced."""
    window_seconds: float = Field(default=WINDOW_SECONDS, ge=10, le=3600)
    """How far the sender's clock may be from ours, either way."""
    rate_per_second: float = Field(default=10.0, gt=0, le=1000)
    """Authentic messages a second, on average; five times as many at once."""
    status_url: str | None = Field(default=None, max_length=2000)
    """Where to tell the sender what became of its events; https, or http on this machine."""
    status_secret: SecretReference | None = None
    """What those messages are signed with; the first of ``secrets`` where unset."""


class ReplayMemory:
    """The codes of messages already heard, for as long as they could be heard again.

    Kept by age on the monotonic clock: a timestamp is accepted from ``window`` ahead of the wall
    clock to ``window`` behind it, hence no longer than twice that. When it is full the next message
    is refused: forgetting one instead would open the door that this is here to keep shut.
    """

    def __init__(self, clock: Clock, window_seconds: float) -> None:
        self._clock = clock
        self._keep_seconds = 2 * window_seconds + 1
        self._heard: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def claim(self, code: str) -> None:
        """Remember ``code``.

        Raises:
            Refused: it was heard before (``webhook-replayed``), or too many are remembered
                (``webhook-busy``).
        """
        now = self._clock.monotonic_seconds()
        with self._lock:
            while self._heard and now - next(iter(self._heard.values())) > self._keep_seconds:
                self._heard.popitem(last=False)
            if code in self._heard:
                raise Refused("webhook-replayed", "this very message was received before")
            if len(self._heard) >= REMEMBERED_AT_MOST:
                raise Refused("webhook-busy", "too many messages came in a short time")
            self._heard[code] = now

    def forget(self, code: str) -> None:
        """Let ``code`` be heard once more."""
        with self._lock:
            self._heard.pop(code, None)


@FEED_KINDS.register("webhook")
class Webhook(Feed[WebhookSettings]):
    """Hears signed event requests, and calls the sender back where it gave a URL."""

    settings_model = WebhookSettings

    def __init__(self, context: FeedContext, settings: WebhookSettings) -> None:
        super().__init__(context, settings)
        self._secrets = [read_secret(reference) for reference in settings.secrets]
        self._memory = ReplayMemory(context.clock, settings.window_seconds)
        rate = settings.rate_per_second
        self._rate = Bucket(context.clock, rate, max(5 * rate, 1))
        self._caller: StatusCaller | None = None
        if settings.status_url is not None:
            check_status_url(settings.status_url)
            reference = settings.status_secret or settings.secrets[0]
            self._caller = StatusCaller(settings.status_url, read_secret(reference), context.clock)

    def hear(self, push: Push) -> Signal:
        """Verify a push, remember it, and read it.

        Raises:
            Refused: a code of :func:`gridaware.domain.signing.verify`, ``rate-exceeded``,
                ``webhook-replayed`` or ``webhook-busy``.
            InvalidInput: a code of :mod:`gridaware.domain.eventjson`.
        """
        code = self._verify(push)
        # Counted behind the signature: a stranger's flood must not shut the true sender out.
        if not self._rate.take():
            raise Refused(
                "rate-exceeded",
                f"more than {self.settings.rate_per_second:g} messages a second came",
            )
        self._memory.claim(code)
        return event_from_json(
            push.body,
            feed_id=self.context.feed_id,
            received_at=push.received_at,
            received_seconds=push.received_seconds,
        )

    def unhear(self, push: Push) -> None:
        """Let the very same message come once more."""
        self._memory.forget(self._verify(push))

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: WebhookSettings | None) -> Parsed:
        """One event request; signatures are left to the listener.

        Raises:
            InvalidInput: a code of :mod:`gridaware.domain.eventjson`.
        """
        del settings
        signal = event_from_json(body, feed_id="file", received_at=now, received_seconds=0.0)
        return Parsed((row_of(signal, now),))

    def can_tell(self) -> bool:
        """Whether there is a status URL."""
        return self._caller is not None

    def tell(self, report: FeedReport) -> None:
        """Call the status URL.

        Raises:
            Refused: the receiver does not want it.
            Unavailable: it could not be reached in time.
        """
        if self._caller is not None:
            self._caller.tell(report)

    def _verify(self, push: Push) -> str:
        return verify(
            self._secrets,
            push.headers.get(TIMESTAMP_HEADER.lower()),
            push.body,
            push.headers.get(SIGNATURE_HEADER.lower()),
            push.received_at.timestamp(),
            self.settings.window_seconds,
        )
