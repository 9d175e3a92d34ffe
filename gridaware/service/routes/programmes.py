"""Programmes: the site's own contracts, and the catalogue of what grids ask."""

from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from gridaware.domain.eventjson import instant
from gridaware.service.context import Web, WebContext, json_response
from gridaware.service.documents import Name, page_json, responses_of
from gridaware.service.programmes import entry_of, held_periods, list_rows, site_of

__all__ = ["router"]

router = APIRouter(prefix="/programmes", tags=["programmes"])

At = Annotated[
    str | None,
    Query(max_length=40, description="Show the rules of this RFC 3339 time; now if left out."),
]


@router.get("", responses=responses_of("The site's own, then the catalogue's.", page=True))
def list_programmes(web: WebContext, at: At = None) -> Response:
    """Every programme in a line; there is one page."""
    settings = web.settings
    rows = list_rows(settings.catalogue(), settings.programmes, _time(web, at))
    return json_response(page_json(tuple(map(msgspec.json.encode, rows)), None))


@router.get("/{programme_id}", responses=responses_of("The programme, value by value."))
def show_programme(programme_id: Name, web: WebContext, at: At = None) -> Response:
    """One programme: each value with its source, and what was used of its caps."""
    when = _time(web, at)
    for programme in web.settings.programmes:
        if programme.programme_id == programme_id:
            held = held_periods(web.reader, programme_id) if programme.entry else []
            return json_response(msgspec.json.encode(site_of(programme, when, held)))
    entry = web.settings.catalogue().get(programme_id)
    return json_response(msgspec.json.encode(entry_of(entry, when)))


def _time(web: Web, at: str | None) -> datetime:
    return web.clock.wall() if at is None else instant(at, "at")
