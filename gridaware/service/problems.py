"""Errors as RFC 9457 problems: a status, a stable code, the fact, and what to do about it."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from gridaware.domain.errors import (
    Bug,
    ConfigError,
    DeviceError,
    GridawareError,
    Infeasible,
    InvalidInput,
    NotFound,
    Refused,
    TimedOut,
    Unavailable,
)
from gridaware.domain.fixes import fix_for

__all__ = ["PROBLEM_RESPONSES", "add_problem_handlers", "problem"]

_STATUS_OF_KIND: tuple[tuple[type[GridawareError], int], ...] = (
    (InvalidInput, 422),
    (NotFound, 404),
    (Refused, 409),
    (Infeasible, 409),
    (TimedOut, 504),
    (Unavailable, 503),
    (DeviceError, 502),
    (ConfigError, 422),
)
_STATUS_OF_CODE = {
    "api-key-absent": 401,
    "api-key-unknown": 401,
    "body-too-large": 413,
    "body-malformed": 400,
    "method-not-allowed": 405,
    "store-corrupt": 500,
    "store-schema-newer": 500,
}
_RETRY_AFTER_SECONDS = 1

_PROBLEM_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "kind", "retryable"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "The fact, in one sentence."},
        "code": {"type": "string", "description": "Stable; programs go by this."},
        "kind": {"type": "string", "description": "The class of the error tree."},
        "fix": {"type": "string", "description": "What to do about it, where known."},
        "retryable": {"type": "boolean"},
        "facts": {"type": "object", "additionalProperties": True},
        "errors": {
            "type": "array",
            "description": "Everything that is wrong with the request.",
            "items": {
                "type": "object",
                "properties": {
                    "where": {"type": "string"},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}
PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {
        "description": HTTPStatus(status).phrase,
        "content": {"application/problem+json": {"schema": _PROBLEM_SCHEMA}},
    }
    for status in (401, 403, 404, 409, 422, 503)
}
"""For the OpenAPI document: what every route may answer besides its own."""


def problem(error: GridawareError, errors: Sequence[Mapping[str, str]] = ()) -> Response:
    """The response for an error; ``errors`` lists each thing that is wrong with a request."""
    status = _status(error)
    body: dict[str, object] = {
        "type": f"urn:gridaware:problem:{error.code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error.message,
        "code": error.code,
        "kind": _kind(error),
        "retryable": error.retryable,
    }
    fix = fix_for(error.code)
    if fix is not None:
        body["fix"] = fix
    if error.facts:
        body["facts"] = error.facts
    if errors:
        body["errors"] = list(errors)
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    return Response(
        msgspec.json.encode(body), status, headers, media_type="application/problem+json"
    )


def add_problem_handlers(app: FastAPI) -> None:
    """Make every error of ``app`` a problem."""

    @app.exception_handler(GridawareError)
    async def on_own(_request: Request, error: GridawareError) -> Response:
        return problem(error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        refusal, wrong = _invalid(error)
        await request.app.state.web.note_refused(request, refusal, error.body)
        return problem(refusal, wrong)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        refusal = _of_framework(request, error)
        if refusal.code == "body-malformed":
            await request.app.state.web.note_refused(request, refusal, "")
        return problem(refusal)

    @app.exception_handler(Exception)
    async def on_bug(_request: Request, error: Exception) -> Response:
        # Its traceback is in the log; what is inside is nobody's business outside.
        return problem(Bug("bug", f"an error of gridaware itself: {type(error).__name__}"))


def _status(error: GridawareError) -> int:
    if error.code in _STATUS_OF_CODE:
        return _STATUS_OF_CODE[error.code]
    if isinstance(error, Refused) and error.code.startswith("authority-"):
        return 403
    return next((code for kind, code in _STATUS_OF_KIND if isinstance(error, kind)), 500)


def _kind(error: GridawareError) -> str:
    return type(error).__name__


def _invalid(error: RequestValidationError) -> tuple[InvalidInput, list[dict[str, str]]]:
    wrong = [
        {
            "where": ".".join(str(part) for part in item["loc"]),
            "code": str(item["type"]).replace("_", "-"),
            "detail": str(item["msg"]),
        }
        for item in error.errors()
    ]
    if any(item["code"] == "json-invalid" for item in wrong):
        return InvalidInput("body-malformed", "the body is not JSON"), wrong
    things = "1 thing is" if len(wrong) == 1 else f"{len(wrong)} things are"
    first = f"{wrong[0]['where']}: {wrong[0]['detail']}" if wrong else ""
    return InvalidInput("request-invalid", f"{things} wrong with the request; {first}"), wrong


def _of_framework(request: Request, error: HTTPException) -> GridawareError:
    path = request.url.path[:200]
    if error.status_code == 404:
        return NotFound("route-unknown", f"there is nothing at {path}")
    if error.status_code == 405:
        return InvalidInput("method-not-allowed", f"{path} does not take {request.method}")
    return InvalidInput("body-malformed", str(error.detail))
