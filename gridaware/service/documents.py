"""Serves stored documents as they are: bodies are joined, never parsed."""

from typing import Annotated, Any

from fastapi import Path, Query
from starlette.responses import Response

from gridaware.service.context import Web, json_response
from gridaware.service.pages import page_json
from gridaware.store.reader import MOST_PER_PAGE

__all__ = [
    "Cursor",
    "Limit",
    "Name",
    "States",
    "item_response",
    "list_response",
    "page_json",
    "responses_of",
]

Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,159}$")]
Cursor = Annotated[
    str | None, Query(description="`next_cursor` of the page before; opaque.", max_length=40)
]
Limit = Annotated[int, Query(ge=1, le=MOST_PER_PAGE, description="Items a page.")]
States = Annotated[
    list[str] | None, Query(alias="state", description="Only these states; may be repeated.")
]


def list_response(
    web: Web, kind: str, *, states: list[str] | None, cursor: str | None, limit: int
) -> Response:
    """One page of documents of a kind, newest first."""
    return json_response(web.pages.page(web.reader, kind, tuple(states or ()), cursor, limit))


def item_response(web: Web, kind: str, document_id: str) -> Response:
    """One document."""
    return json_response(web.reader.get(kind, document_id))


def responses_of(
    description: str, *, page: bool = False, status: int = 200, media: str = "application/json"
) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI document: what a route answers, since its body is passed through."""
    schema: dict[str, Any] = {"type": "object", "additionalProperties": True}
    if page:
        cursor = {"type": ["string", "null"], "description": "Null on the last page."}
        schema = {
            "type": "object",
            "required": ["items", "next_cursor"],
            "properties": {
                "items": {"type": "array", "items": schema},
                "next_cursor": cursor,
            },
        }
    if media != "application/json":
        schema = {"type": "string"}
    return {status: {"description": description, "content": {media: {"schema": schema}}}}
