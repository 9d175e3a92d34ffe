"""Nodes and GPUs, and the way back to the limits that were found."""

from collections.abc import Awaitable, Callable

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from gridaware.service.bodies import ReleaseBody
from gridaware.service.context import Actor, IdempotencyKey, WebContext, json_response
from gridaware.service.documents import (
    Cursor,
    Limit,
    Name,
    States,
    item_response,
    list_response,
    page_json,
    responses_of,
)

__all__ = ["router"]

router = APIRouter(tags=["fleet"])


class _NodeGpus(msgspec.Struct):
    gpus: list[msgspec.Raw] = []


_NODE = msgspec.json.Decoder(_NodeGpus)


@router.get("/nodes", responses=responses_of("Nodes, newest first.", page=True))
def list_nodes(
    web: WebContext,
    state: States = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Response:
    """Every node that ever reported."""
    return list_response(web, "node", states=state, cursor=cursor, limit=limit)


@router.get("/nodes/{node_id}", responses=responses_of("The node."))
def show_node(node_id: Name, web: WebContext) -> Response:
    """One node and its GPUs."""
    return item_response(web, "node", node_id)


@router.get("/gpus", responses=responses_of("GPUs, by node.", page=True))
def list_gpus(web: WebContext, cursor: Cursor = None, limit: Limit = 100) -> Response:
    """Every GPU with its power and limits; a page has the GPUs of up to ``limit`` nodes."""
    page = web.reader.list("node", cursor=cursor, limit=limit)
    gpus = (bytes(gpu) for body in page.bodies for gpu in _NODE.decode(body).gpus)
    return json_response(page_json(tuple(gpus), page.next_cursor))


def _command(verb: str) -> Callable[..., Awaitable[Response]]:
    async def command_node(
        node_id: Name, web: WebContext, actor: Actor, key: IdempotencyKey
    ) -> Response:
        args = {"node_id": node_id}
        return json_response(
            await web.control.send(f"node.{verb}", args, actor=actor, idempotency_key=key)
        )

    return command_node


for _verb, _what in {
    "cordon": "Start nothing new on the node.",
    "uncordon": "Let a cordoned node take jobs again.",
}.items():
    router.add_api_route(
        f"/nodes/{{node_id}}/{_verb}",
        _command(_verb),
        methods=["POST"],
        name=f"{_verb}_node",
        summary=f"{_verb.capitalize()} Node",
        description=_what,
        responses=responses_of("The node."),
    )


@router.post("/release", responses=responses_of("The events that were opted out of."))
async def release_fleet(
    web: WebContext, actor: Actor, key: IdempotencyKey, body: ReleaseBody | None = None
) -> Response:
    """Restore the limits that were found on every node, within the ramp.

    Acting events forbid it unless the body confirms that they are opted out of.
    """
    args = {} if body is None else body.given()
    return json_response(
        await web.control.send("fleet.release", args, actor=actor, idempotency_key=key)
    )
