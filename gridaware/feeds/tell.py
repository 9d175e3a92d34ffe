"""Telling a webhook's sender what became of its events: signed, retried, within a deadline.

The receiver gets ``{"event_id", "id", "revision", "kind", "status", "at", "delivered_kw"}`` under
the same two headers that it signs its own messages with, at least once and in order. A status that
could not be delivered is reported; it never holds anything up.
"""

import json

import stamina

from gridaware.clock import Clock
from gridaware.control.ports import FeedReport
from gridaware.domain.errors import ConfigError, Refused, Unavailable
from gridaware.domain.signing import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from gridaware.feeds.http import Answer, exchange, host_of, is_loopback

__all__ = ["StatusCaller", "check_status_url", "check_told", "status_body"]

DEADLINE_SECONDS = 60.0
ATTEMPT_SECONDS = 10.0


def check_status_url(url: str) -> None:
    """Refuse a URL that would carry statuses over an open network in the clear.

    Raises:
        ConfigError: it is neither https nor http to this machine (``status-url-insecure``).
    """
    secure = url.startswith("https://") and host_of(url)
    if secure or (url.startswith("http://") and is_loopback(url)):
        return
    raise ConfigError(
        "status-url-insecure", "the status URL is neither https nor http to this machine"
    )


def status_body(report: FeedReport) -> bytes:
    """The JSON of one status."""
    event = report.event
    delivered = report.delivered_watts
    return json.dumps(
        {
            "event_id": event.event_id,
            "id": event.source_id,
            "revision": event.revision,
            "kind": event.request.kind.value,
            "status": report.status,
            "at": report.at.isoformat().replace("+00:00", "Z"),
            "delivered_kw": None if delivered is None else delivered / 1000,
        }
    ).encode("ascii")


def check_told(answer: Answer) -> None:
    """Read what a receiver answered to a status.

    Raises:
        Refused: it does not want it (``tell-refused``).
        Unavailable: it may want it later (``tell-unreachable``).
    """
    if answer.status in {408, 425, 429} or answer.status >= 500:
        raise Unavailable("tell-unreachable", f"the receiver answered {answer.status}")
    if not 200 <= answer.status < 300:
        raise Refused("tell-refused", f"the receiver answered {answer.status}")


class StatusCaller:
    """Posts statuses to one URL."""

    def __init__(
        self,
        url: str,
        secret: bytes,
        clock: Clock,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._url = url
        self._secret = secret
        self._clock = clock
        self._deadline_seconds = deadline_seconds

    def tell(self, report: FeedReport) -> None:
        """Post one status; tries again while the receiver is away.

        Raises:
            Refused: it answered 4xx (``tell-refused``); trying again would not help.
            Unavailable: it did not take it within the deadline.
        """
        body = status_body(report)
        for attempt in stamina.retry_context(
            on=Unavailable, attempts=None, timeout=self._deadline_seconds
        ):
            with attempt:
                self._post(body)

    def _post(self, body: bytes) -> None:
        # Signed anew each time: the timestamp of a late attempt would be stale.
        timestamp = int(self._clock.wall().timestamp())
        answer = exchange(
            "POST",
            self._url,
            headers={
                "Content-Type": "application/json",
                TIMESTAMP_HEADER: str(timestamp),
                SIGNATURE_HEADER: sign(self._secret, timestamp, body),
            },
            body=body,
            deadline_seconds=min(ATTEMPT_SECONDS, self._deadline_seconds),
            answer_bytes_at_most=64 * 1024,
        )
        check_told(answer)
