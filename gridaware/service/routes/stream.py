"""Server-sent events: first the state, then every change, resumed by ``Last-Event-ID``."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from gridaware.domain.errors import InvalidInput, Unavailable
from gridaware.service.context import Web, WebContext
from gridaware.service.documents import page_json, responses_of
from gridaware.store.reader import Change

__all__ = ["router"]

router = APIRouter(tags=["stream"])

KINDS = ("status", "event", "job", "node", "feed", "policy", "report")
_STATE_ITEMS = 200
_CHANGES_AT_ONCE = 500
_KEEPALIVE_SECONDS = 15.0
_NO_ID = -1


@router.get(
    "/stream",
    responses=responses_of("`state`, then `change` and `remove`.", media="text/event-stream"),
)
async def stream(
    web: WebContext,
    kind: Annotated[list[str] | None, Query(description="Only these; may be repeated.")] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """The site as it changes.

    ``state`` carries the newest 200 documents of each kind, ``change`` one document, ``remove``
    the kind and id of one that is gone. After a pause the changes in between arrive as each
    document's latest body.
    """
    kinds = tuple(kind) if kind else KINDS
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise InvalidInput(
            "stream-kind-unknown", f"nothing of kind {unknown[0][:40]!r} is streamed"
        )
    if web.streams_open >= web.settings.streams_at_most:
        raise Unavailable("stream-full", f"{web.streams_open} streams are open already")
    await run_in_threadpool(lambda: web.reader)  # not ready is better said before than within
    return StreamingResponse(
        _counted(web, _events(web, kinds, _resumed(last_event_id))),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _counted(web: Web, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    web.streams_open += 1
    try:
        async for event in events:
            yield event
    finally:
        web.streams_open -= 1


async def _events(web: Web, kinds: tuple[str, ...], version: int) -> AsyncIterator[bytes]:
    newest, pages = await run_in_threadpool(web.reader.state, kinds, _STATE_ITEMS)
    if not 0 <= version <= newest:  # a new follower, or one of another store
        version = newest
        parts = (
            b'"%b":%b' % (k.encode(), page_json(p.bodies, p.next_cursor)) for k, p in pages.items()
        )
        yield _event(version, b"state", b"{%b}" % b",".join(parts))
    quiet_seconds = 0.0
    while True:
        changes = await run_in_threadpool(
            web.reader.changes, version, kinds=kinds, limit=_CHANGES_AT_ONCE
        )
        for change in changes:
            version = change.version
            yield _event(version, b"remove" if change.body is None else b"change", _data(change))
        if len(changes) == _CHANGES_AT_ONCE:
            continue
        quiet_seconds = 0.0 if changes else quiet_seconds + web.settings.stream_poll_seconds
        if quiet_seconds >= _KEEPALIVE_SECONDS:
            quiet_seconds = 0.0
            yield b": still here\n\n"
        await asyncio.sleep(web.settings.stream_poll_seconds)


def _data(change: Change) -> bytes:
    shown: dict[str, object] = {"kind": change.kind, "id": change.document_id}
    if change.body is not None:
        shown |= {"state": change.state, "body": msgspec.Raw(change.body)}
    return msgspec.json.encode(shown)


def _event(version: int, name: bytes, data: bytes) -> bytes:
    # A line break would end the field; in JSON it can only be white space.
    line = data.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (version, name, line)


def _resumed(last_event_id: str | None) -> int:
    text = last_event_id or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else _NO_ID
