"""Whether this process lives, and whether it can serve."""

from fastapi import APIRouter
from starlette.responses import Response

from gridaware.domain.errors import Unavailable
from gridaware.service.context import WebContext, json_response

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Response:
    """The web process answers. Says nothing about control or the store; open to all."""
    return json_response(b'{"ok":true}')


@router.get("/readyz")
def readyz(web: WebContext) -> Response:
    """The store can be read and a controller lives; 503 otherwise. Open to all."""
    controller = web.controller()
    if not controller["alive"]:
        raise Unavailable(
            "controller-gone",
            "no controller has given a sign of life lately",
            age_seconds=controller["age_seconds"],
        )
    return json_response(b'{"ready":true}')
