"""Feeds: list, register, test, remove; and the signed signals, which are only forwarded."""

from typing import Any

import requests
from fastapi import APIRouter, Request
from requests.adapters import HTTPAdapter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from gridaware.domain.errors import TimedOut, Unavailable
from gridaware.service.bodies import FeedBody
from gridaware.service.context import Actor, IdempotencyKey, WebContext, json_response
from gridaware.service.documents import (
    Cursor,
    Limit,
    Name,
    States,
    item_response,
    list_response,
    responses_of,
)

__all__ = ["SignalForwarder", "router", "signals_router"]

router = APIRouter(prefix="/feeds", tags=["feeds"])
signals_router = APIRouter(prefix="/signals", tags=["signals"])

_FORWARD_SECONDS = (2.0, 15.0)
_NOT_FORWARDED = {
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}


@router.get("", responses=responses_of("Feeds, newest first.", page=True))
def list_feeds(
    web: WebContext,
    state: States = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Response:
    """Every registered feed."""
    return list_response(web, "feed", states=state, cursor=cursor, limit=limit)


@router.post("", status_code=201, responses=responses_of("The feed.", status=201))
async def register_feed(
    body: FeedBody, web: WebContext, actor: Actor, key: IdempotencyKey
) -> Response:
    """Register a source of signals, or replace its settings."""
    result = await web.control.send("feed.add", body.given(), actor=actor, idempotency_key=key)
    return json_response(result, 201)


@router.get("/{feed_id}", responses=responses_of("The feed."))
def show_feed(feed_id: Name, web: WebContext) -> Response:
    """One feed."""
    return item_response(web, "feed", feed_id)


@router.delete("/{feed_id}", responses=responses_of("What was removed."))
async def remove_feed(feed_id: Name, web: WebContext, actor: Actor) -> Response:
    """Forget a feed; its open events go on."""
    return json_response(await web.control.send("feed.remove", {"feed_id": feed_id}, actor=actor))


@router.post("/{feed_id}/test", responses=responses_of("What the feed answered."))
async def try_feed(feed_id: Name, web: WebContext, actor: Actor) -> Response:
    """Try a feed's settings without concluding anything from what it says."""
    return json_response(await web.control.send("feed.test", {"feed_id": feed_id}, actor=actor))


@router.get("/{feed_id}/advisories", responses=responses_of("What it heard that only informs."))
async def feed_advisories(feed_id: Name, web: WebContext, actor: Actor) -> Response:
    """What a feed heard that only informs, the newest first: prices, alerts, forecasts."""
    args = {"feed_id": feed_id}
    return json_response(await web.control.send("feed.advisories", args, actor=actor))


class SignalForwarder:
    """Hands signals to control's own listener, byte for byte."""

    def __init__(self, signals_url: str) -> None:
        self._url = signals_url.rstrip("/")
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy stands between two processes of one machine
        self._session.mount("http://", HTTPAdapter(pool_maxsize=32))

    def close(self) -> None:
        """Let go of the connections."""
        self._session.close()

    def forward(
        self, method: str, feed_id: str, query: str, headers: dict[str, str], body: bytes
    ) -> Response:
        """Control's own answer to a signal or a call-back.

        Raises:
            Unavailable: control does not listen, or not in time. Nothing was accepted.
        """
        try:
            answer = self._session.request(
                method,
                f"{self._url}/api/v1/signals/{feed_id}",
                params=query,
                data=body,
                headers=headers,
                timeout=_FORWARD_SECONDS,
                allow_redirects=False,
            )
        except requests.Timeout as error:
            raise TimedOut("control-slow", "control did not answer the signal in time") from error
        except requests.RequestException as error:
            raise Unavailable("control-unreachable", "control does not take signals") from error
        media = answer.headers.get("Content-Type", "application/json")
        passed = {"Content-Type": media}
        if "Retry-After" in answer.headers:
            passed["Retry-After"] = answer.headers["Retry-After"]
        return Response(answer.content, answer.status_code, passed)


_RAW_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {}}}}
}


@signals_router.post(
    "/{feed_id}", responses=responses_of("Durable, and what became of it."), openapi_extra=_RAW_BODY
)
async def forward_signal(feed_id: Name, request: Request) -> Response:
    """A feed's signed webhook. Control checks the signature; no API key is needed."""
    return await _forward(feed_id, request)


@signals_router.get("/{feed_id}", responses=responses_of("The answer to the challenge."))
async def forward_challenge(feed_id: Name, request: Request) -> Response:
    """A challenge of a protocol that tries a call-back before it uses it. Control answers."""
    return await _forward(feed_id, request)


@signals_router.get("/{feed_id}/echo", include_in_schema=False)
async def forward_echo(feed_id: Name, request: Request) -> Response:
    """The same, where some servers append a path of their own. Control answers."""
    return await _forward(f"{feed_id}/echo", request)


async def _forward(feed_id: str, request: Request) -> Response:
    forwarder: SignalForwarder = request.app.state.forwarder
    headers = {k: v for k, v in request.headers.items() if k.lower() not in _NOT_FORWARDED}
    query = request.url.query[:2048]
    body = await request.body()
    return await run_in_threadpool(forwarder.forward, request.method, feed_id, query, headers, body)
