"""Control's own small HTTP listener: ``/api/v1/signals/{feed}`` and ``GET /healthz``.

The shortest way from a signal to control: the moment of receipt is taken first, the body is bounded
while it streams in, the feed verifies and reads it, and the answer 200 is sent only once control
has made it durable. A protocol whose calls have a shape of their own (a challenge by GET, several
signals in one call) answers them itself. Every refusal is an RFC 9457 problem with a stable code
and a fix, and is reported so that it reaches the ledger.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from gridaware.clock import Clock
from gridaware.control.ports import Receipt
from gridaware.domain.errors import (
    Bug,
    GridawareError,
    InvalidInput,
    NotFound,
    Refused,
    TimedOut,
    Unavailable,
)
from gridaware.domain.eventjson import BODY_BYTES_AT_MOST
from gridaware.domain.fixes import fix_for
from gridaware.domain.signal import Signal
from gridaware.feeds.kind import Hears, Hooks, Push, check_provenance
from gridaware.feeds.runner import FeedRunner, RunningFeed

__all__ = ["Accept", "build_app", "problem"]

log = logging.getLogger(__name__)

Accept = Callable[[Signal], Awaitable[Receipt]]
"""Hands a signal to control; returns once it is durable, raises what control refuses. It is
cancelled after 5 s, and must then leave nothing half done."""

BODY_SECONDS = 5.0
ACCEPT_SECONDS = 5.0

_STATUS_OF_CODE = {
    "event-too-large": 413,
    "content-type-unsupported": 415,
    "event-not-json": 400,
    "event-not-utf8": 400,
    "event-not-object": 400,
    "webhook-replayed": 409,
    "webhook-busy": 429,
    "rate-exceeded": 429,
    "body-too-slow": 408,
    "method-not-allowed": 405,
}
_METHOD = Refused("method-not-allowed", "that method is not served here")
_UNAUTHENTIC = ("signature-", "timestamp-")
_STATUS_OF_KIND = ((NotFound, 404), (InvalidInput, 422), (Refused, 409), (Unavailable, 503))


def build_app(runner: FeedRunner, accept: Accept, clock: Clock) -> Starlette:
    """The listener as an ASGI application.

    Args:
        runner: knows the feeds, and takes note of refusals.
        accept: control's door; on the event loop.
        clock: for the moment of receipt.
    """

    async def signals(request: Request) -> Response:
        received_seconds = clock.monotonic_seconds()
        received_at = clock.wall()
        feed_id = request.path_params["feed"]
        try:
            running = runner.get(feed_id)
        except NotFound as error:
            runner.refused_stranger(feed_id[:64], error)
            return problem(error)
        if request.method != "POST" and not isinstance(running.feed, Hooks):
            return problem(_METHOD)
        body = b""
        try:
            feed = _taking(running, request)
            body = await _body(request)
            query = {key[:64]: value[:1024] for key, value in request.query_params.items()}
            push = Push(
                dict(request.headers), body, received_at, received_seconds, request.method, query
            )
            if isinstance(feed, Hooks):
                return await _hooked(accept, running, feed, push)
            signal = check_provenance(feed_id, feed.hear(push))
            running.health.succeeded()
            receipt = await _accepted(accept, signal, lambda: feed.unhear(push))
            running.health.count(signals=1)
        except _RefusedByControl as refusal:
            running.health.count(refused=1)  # control has recorded it
            return problem(refusal.error)
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        except GridawareError as error:
            running.refused(error, _shown(body))
            return problem(error)
        except Exception:
            log.exception("a signal for feed %s failed", feed_id)
            fault = Bug("internal", "the signal could not be handled")
            running.refused(fault, _shown(body))
            return problem(fault)
        return _json(HTTPStatus.OK, asdict(receipt))

    async def healthz(_: Request) -> Response:
        return _json(HTTPStatus.OK, {"status": "ok"})

    async def http_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            return problem(_METHOD, headers=error.headers)
        return problem(NotFound("route-unknown", "there is nothing at that path"))

    return Starlette(
        routes=[
            Route("/api/v1/signals/{feed}", signals, methods=["POST", "GET"]),
            # Where the reference server of OpenADR 3.1 sends its challenge (2026).
            Route("/api/v1/signals/{feed}/echo", signals, methods=["GET"]),
            Route("/healthz", healthz, methods=["GET"]),
        ],
        exception_handlers={HTTPException: http_error},
    )


def problem(error: GridawareError, headers: Mapping[str, str] | None = None) -> Response:
    """An error as an RFC 9457 problem."""
    status = HTTPStatus(_status(error))
    body = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": error.message,
        "code": error.code,
        "fix": fix_for(error.code),
        "retryable": error.retryable or status == HTTPStatus.TOO_MANY_REQUESTS,
        "facts": error.facts,
    }
    extra = dict(headers or {})
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        extra.setdefault("Allow", "POST")
    if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        extra["Retry-After"] = "1"
    return _json(status, body, "application/problem+json", extra)


def _status(error: GridawareError) -> int:
    if error.code in _STATUS_OF_CODE:
        return _STATUS_OF_CODE[error.code]
    if isinstance(error, Refused) and error.code.startswith(_UNAUTHENTIC):
        return 401
    for kind, status in _STATUS_OF_KIND:
        if isinstance(error, kind):
            return status
    return 500


def _json(
    status: HTTPStatus,
    body: Mapping[str, object],
    media_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Response:
    # ASCII, so that no odd character of a message can break the answer about it.
    content = json.dumps(body, allow_nan=False).encode("ascii")
    return Response(content, status, headers, media_type)


def _taking(running: RunningFeed, request: Request) -> Hears | Hooks:
    feed = running.feed
    if isinstance(feed, Hooks):
        return feed
    if not isinstance(feed, Hears):
        raise Refused("feed-not-pushed", f"feed {running.spec.feed_id} takes no pushes")
    _check_content_type(request)
    return feed


async def _hooked(accept: Accept, running: RunningFeed, feed: Hooks, push: Push) -> Response:
    """Serve a call-back: its signals are durable before it is answered.

    One that control refuses keeps none of the others from control; the sender is answered with the
    refusal where nothing of its call was taken.
    """
    hooked = feed.hook(push)
    running.health.succeeded()
    refusal: _RefusedByControl | None = None
    taken = 0
    for signal in hooked.signals:
        check_provenance(running.spec.feed_id, signal)
        try:
            await _accepted(accept, signal, lambda: feed.unhook(push))
        except _RefusedByControl as refused:
            if refused.error.retryable:
                raise  # the sender says it all again
            running.health.count(refused=1)
            refusal = refused
        else:
            taken += 1
    running.health.count(signals=taken)
    if hooked.wake:
        running.wake()
    if refusal is not None and not taken:
        return problem(refusal.error)
    return Response(hooked.body, hooked.status, media_type=hooked.content_type)


def _check_content_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise InvalidInput("content-type-unsupported", "the body is not application/json")


async def _body(request: Request) -> bytes:
    """The body, never more than 64 KiB of it in memory."""
    length = request.headers.get("content-length", "0")
    if len(length) > 9 or (length.isdigit() and int(length) > BODY_BYTES_AT_MOST):
        raise InvalidInput("event-too-large", "the message has more than 64 KiB")
    chunks = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                chunks += chunk
                if len(chunks) > BODY_BYTES_AT_MOST:
                    raise InvalidInput("event-too-large", "the message has more than 64 KiB")
    except TimeoutError:
        raise TimedOut(
            "body-too-slow", f"the body was not there after {BODY_SECONDS:g} s"
        ) from None
    return bytes(chunks)


class _RefusedByControl(Exception):
    """What control answered, told apart from what was refused at this door."""

    def __init__(self, error: GridawareError) -> None:
        super().__init__(error.code)
        self.error = error


async def _accepted(accept: Accept, signal: Signal, forget: Callable[[], None]) -> Receipt:
    try:
        async with asyncio.timeout(ACCEPT_SECONDS):
            return await accept(signal)
    except TimeoutError:
        forget()
        late = TimedOut("accept-timeout", "control did not take the signal in time")
        raise _RefusedByControl(late) from None
    except GridawareError as error:
        if error.retryable:
            forget()
        raise _RefusedByControl(error) from error
    except Exception:
        forget()
        raise


def _shown(body: bytes) -> str:
    return body.decode("utf-8", "backslashreplace")
