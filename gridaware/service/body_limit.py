"""Bounds what a client may send, before anything reads it."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gridaware.domain.errors import InvalidInput
from gridaware.service.problems import problem

__all__ = ["BodyLimit"]


class BodyLimit:
    """ASGI middleware: takes a body in whole, or refuses it once it passes ``at_most`` bytes."""

    def __init__(self, app: ASGIApp, at_most: int) -> None:
        self._app = app
        self._at_most = at_most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD", "OPTIONS"}:
            await self._app(scope, receive, send)
            return
        body = await self._read(receive)
        if body is None:
            refusal = InvalidInput(
                "body-too-large", f"the body has more than {self._at_most} bytes"
            )
            await problem(refusal)(scope, receive, send)
            return
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    async def _read(self, receive: Receive) -> bytes | None:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return b"".join(chunks)  # the client went away
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > self._at_most:
                return None
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)
