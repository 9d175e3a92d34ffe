"""What every route may use: the store's reader, control, the keys and the clock."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.responses import Response

from gridaware.clock import Clock
from gridaware.domain.errors import GridawareError, InvalidInput
from gridaware.service.control_client import ControlClient
from gridaware.service.keys import KeyRing
from gridaware.service.pages import PageMemory
from gridaware.service.settings import WebSettings
from gridaware.store.reader import StoreReader

__all__ = ["Actor", "IdempotencyKey", "Web", "WebContext", "json_response", "require_actor"]

_KEY_CHARACTERS_AT_MOST = 200


class Web:
    """The parts of one web process. It may start before the store exists."""

    def __init__(self, settings: WebSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.keys = KeyRing.from_file(settings.api_key_file)
        self.control = ControlClient(settings.control_socket, settings.command_seconds)
        self.pages = PageMemory()
        self.streams_open = 0
        self._lock = threading.Lock()
        self._reader: StoreReader | None = None

    @property
    def reader(self) -> StoreReader:
        """The store, opened at its first use.

        Raises:
            Unavailable: no controller has prepared it yet.
            ConfigError: it is damaged, or made by a newer gridaware.
        """
        with self._lock:
            if self._reader is None:
                self._reader = StoreReader(self.settings.store)
            return self._reader

    def close(self) -> None:
        """Let go of the store."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    async def note_refused(self, request: Request, refusal: GridawareError, body: object) -> None:
        """Have control write into the ledger what was refused here; only for holders of a key."""
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or request.method not in {"POST", "DELETE"}:
            return
        told = {
            "door": f"{request.method} {request.url.path}"[:200],
            "code": refusal.code,
            "message": refusal.message[:1000],
            "raw": ascii(body)[:4096],
        }
        with suppress(GridawareError):
            await self.control.send("input.refused", told, actor=self.keys.holder(key))

    def controller(self) -> dict[str, Any]:
        """Which controller runs, and how long ago it gave a sign of life."""
        found = self.reader.controller_heartbeat()
        if found is None:
            return {"epoch": None, "heartbeat_at": None, "age_seconds": None, "alive": False}
        epoch, at = found
        age = max((self.clock.wall() - at).total_seconds(), 0.0)
        alive = age <= self.settings.alive_seconds
        return {"epoch": epoch, "heartbeat_at": at, "age_seconds": round(age, 3), "alive": alive}


# What a request depends on is asynchronous, or the framework would hop to a thread for each.


async def _web(request: Request) -> Web:
    web: Web = request.app.state.web
    return web


WebContext = Annotated[Web, Depends(_web)]

_bearer = HTTPBearer(
    auto_error=False, scheme_name="API key", description="The key that `gridaware init` showed."
)


async def require_actor(
    web: WebContext,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> str:
    """Whose key the request carries; whatever depends on it is closed to everybody else."""
    return web.keys.holder(None if credentials is None else credentials.credentials)


Actor = Annotated[str, Depends(require_actor)]
"""Who asks: the name of the key's holder, for the ledger."""


async def _idempotency_key(
    idempotency_key: Annotated[
        str | None,
        Header(description="The same key with the same request is answered again, not done again."),
    ] = None,
) -> str | None:
    key = idempotency_key
    if key is None:
        return None
    if not (1 <= len(key) <= _KEY_CHARACTERS_AT_MOST and key.isascii() and key.isprintable()):
        raise InvalidInput(
            "idempotency-key-malformed",
            f"an idempotency key is 1 to {_KEY_CHARACTERS_AT_MOST} printable ASCII characters",
        )
    return key


IdempotencyKey = Annotated[str | None, Depends(_idempotency_key)]


def json_response(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """JSON that is ready as it is."""
    return Response(body, status, headers, media_type="application/json")
