"""Events: list, send, preview, cancel, opt out, and the report."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from gridaware.service.bodies import EventBody, ReasonBody
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

__all__ = ["router"]

router = APIRouter(prefix="/events", tags=["events"])

_SELF_CONTAINED = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""A report page needs nothing else, so a browser need not let it."""
_VERBS = {
    "cancel": ("event.cancel", "Cancel an event that a person sent."),
    "opt-out": ("event.opt_out", "Opt out of an event of the grid; its feed is told if it can be."),
}


@router.get("", responses=responses_of("Events, newest first.", page=True))
def list_events(
    web: WebContext,
    state: States = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Response:
    """Every event, newest first."""
    return list_response(web, "event", states=state, cursor=cursor, limit=limit)


@router.post("", status_code=201, responses=responses_of("The event.", status=201))
async def send_event(
    body: EventBody, web: WebContext, actor: Actor, key: IdempotencyKey
) -> Response:
    """Ask the site for less, with the authority of the key's holder."""
    result = await web.control.send("event.send", body.given(), actor=actor, idempotency_key=key)
    return json_response(result, 201)


@router.post("/preview", responses=responses_of("What would be done."))
async def preview_event(body: EventBody, web: WebContext, actor: Actor) -> Response:
    """Who would be capped or paused, and what would be left over; nothing is done."""
    return json_response(await web.control.send("event.preview", body.given(), actor=actor))


@router.get("/{event_id}", responses=responses_of("The event."))
def show_event(event_id: Name, web: WebContext) -> Response:
    """One event."""
    return item_response(web, "event", event_id)


@router.get("/{event_id}/report", responses=responses_of("The report, in the form asked for."))
def event_report(
    event_id: Name,
    web: WebContext,
    form: Annotated[Literal["json", "csv", "html"], Query(alias="format")] = "json",
    table: Annotated[str, Query(max_length=64)] = "event-intervals",
) -> Response:
    """What the event delivered: clocks, baseline, kW and kWh, and each job's part.

    CSV is one table: ``event-intervals``, ``event-jobs``, ``event-gpus``, ….
    """
    body = web.reader.get("report", event_id)
    if form == "json":
        return json_response(body)
    # Rendering brings in matplotlib, which most web processes never need.
    from gridaware.service.render import event_report_csv, event_report_html

    report = msgspec.json.decode(body)
    if form == "html":
        headers = {"Content-Security-Policy": _SELF_CONTAINED}
        return Response(event_report_html(report), media_type="text/html", headers=headers)
    part = "" if table == "event-intervals" else f"-{table}"
    name = f'attachment; filename="{event_id.replace(":", "_")}{part}.csv"'
    body_csv = event_report_csv(report, table)
    return Response(body_csv, media_type="text/csv", headers={"Content-Disposition": name})


def _command(command: str) -> Callable[..., Awaitable[Response]]:
    async def command_event(
        event_id: Name,
        web: WebContext,
        actor: Actor,
        key: IdempotencyKey,
        body: ReasonBody | None = None,
    ) -> Response:
        args = {"event_id": event_id} | ({} if body is None else body.given())
        return json_response(
            await web.control.send(command, args, actor=actor, idempotency_key=key)
        )

    return command_event


for _verb, (_command_name, _what) in _VERBS.items():
    router.add_api_route(
        f"/{{event_id}}/{_verb}",
        _command(_command_name),
        methods=["POST"],
        name=_command_name.replace(".", "_"),
        summary=f"{_verb.capitalize()} Event",
        description=_what,
        responses=responses_of("The event."),
    )
