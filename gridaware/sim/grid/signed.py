"""The grid's side in the demo, the benchmarks and the tests: sends signed webhooks."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import requests

from gridaware.clock import Clock
from gridaware.domain.errors import Unavailable
from gridaware.domain.signing import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign

__all__ = ["Sent", "send_signed", "signed_headers"]


@dataclass(frozen=True, slots=True)
class Sent:
    """What a sender saw."""

    status: int
    answer: Mapping[str, object]
    sent_seconds: float
    """Monotonic, just before the message was sent: *received* of the benchmarks."""
    answered_seconds: float


def signed_headers(secret: bytes, body: bytes, clock: Clock) -> dict[str, str]:
    """The headers of a message signed now."""
    timestamp = int(clock.wall().timestamp())
    return {
        "Content-Type": "application/json",
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: sign(secret, timestamp, body),
    }


def send_signed(
    url: str,
    secret: bytes,
    body: bytes | Mapping[str, object],
    clock: Clock,
    *,
    session: requests.Session | None = None,
    timeout_seconds: float = 10.0,
) -> Sent:
    """Sign ``body`` and post it to a webhook feed's URL.

    Args:
        url: such as ``http://127.0.0.1:8600/api/v1/signals/utility``.
        secret: what the feed was registered with.
        body: an event request, or the very bytes to send.
        clock: the sender's clock.
        session: keeps the connection open between messages where given.
        timeout_seconds: for each step of the exchange.

    Raises:
        Unavailable: nobody answered (``peer-unreachable``).
    """
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = signed_headers(secret, data, clock)
    with contextlib.nullcontext(session) if session is not None else requests.Session() as sender:
        # Made ready before the clock starts: what a library takes to build a request is no part
        # of what the site takes to answer it.
        ready = sender.prepare_request(requests.Request("POST", url, headers=headers, data=data))
        return _sent(sender, ready, clock, timeout_seconds)


def _sent(
    sender: requests.Session,
    ready: requests.PreparedRequest,
    clock: Clock,
    timeout_seconds: float,
) -> Sent:
    sent_seconds = clock.monotonic_seconds()
    try:
        response = sender.send(ready, timeout=timeout_seconds)
        answered_seconds = clock.monotonic_seconds()
        answer = response.json()
    except requests.RequestException as error:
        raise Unavailable("peer-unreachable", f"{ready.url}: {type(error).__name__}") from error
    return Sent(response.status_code, answer, sent_seconds, answered_seconds)
