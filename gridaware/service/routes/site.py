"""The site now: status, policies, and the ledger."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from gridaware.domain.errors import Unavailable
from gridaware.service.context import WebContext, json_response
from gridaware.service.documents import Cursor, Limit, list_response, page_json, responses_of
from gridaware.store.chain import LedgerEntry

__all__ = ["router"]

router = APIRouter(tags=["site"])


@router.get("/status", responses=responses_of("The site now, and how old that is."))
def status(web: WebContext) -> Response:
    """Power, target, open events, counts of jobs; `controller` says whether control lives."""
    page = web.reader.list("status", limit=1)
    if not page.bodies:
        raise Unavailable("status-not-ready", "control has not looked at the site yet")
    now: dict[str, object] = msgspec.json.decode(page.bodies[0])
    return json_response(msgspec.json.encode(now | {"controller": web.controller()}))


@router.get("/policies", responses=responses_of("Policies.", page=True))
def list_policies(web: WebContext, cursor: Cursor = None, limit: Limit = 100) -> Response:
    """Every policy, and which one is in force."""
    return list_response(web, "policy", states=None, cursor=cursor, limit=limit)


@router.get("/ledger", responses=responses_of("Entries in order.", page=True))
def read_ledger(
    web: WebContext,
    from_seq: Annotated[int, Query(ge=1, le=2**62)] = 1,
    kind: Annotated[list[str] | None, Query(description="Only these; may be repeated.")] = None,
    cursor: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Limit = 100,
) -> Response:
    """The ledger from ``from_seq`` on: what came in, what was decided, with the hash chain."""
    start = from_seq if cursor is None else cursor
    entries = web.reader.ledger(from_seq=start, kinds=kind or (), limit=limit + 1)
    following = str(entries[limit].seq) if len(entries) > limit else None
    return json_response(page_json(tuple(map(_entry, entries[:limit])), following))


def _entry(entry: LedgerEntry) -> bytes:
    return msgspec.json.encode(
        {
            "seq": entry.seq,
            "at": entry.at,
            "kind": entry.kind,
            "body": msgspec.Raw(entry.body.encode()),
            "prev_hash": entry.prev_hash,
            "hash": entry.hash,
        }
    )
