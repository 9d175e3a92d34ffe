"""Commands from the web process: one JSON object a line over a UNIX socket, answered in order.

``{"id", "command", "args", "actor", "idempotency_key"}`` → ``{"id", "ok": true, "result"}`` or
``{"id", "ok": false, "error": {"code", "kind", "message", "facts", "retryable"}}``.
"""

import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from gridaware.clock import Clock
from gridaware.control.codec import to_builtins
from gridaware.domain.errors import Bug, GridawareError, InvalidInput

__all__ = ["Answers", "CommandDesk", "Handler", "tell_holder"]

Handler = Callable[[Mapping[str, Any], str], Awaitable[dict[str, Any]]]
"""(args, actor) → result."""
LINE_BYTES_AT_MOST = 1 << 20
TELL_SECONDS = 2.0
_log = logging.getLogger(__name__)


class Answers(Protocol):
    """Answers already given (the store's idempotency table)."""

    def find(self, key: str, command: str, args: object) -> bytes | None:
        """The answer given to that key before, if any."""
        ...

    def remember(
        self, key: str, command: str, args: object, actor: str, response: bytes, at: Any
    ) -> None:
        """Keep an answer."""
        ...


class CommandDesk:
    """Listens on a socket that only this user may open, and hands commands to their handlers."""

    def __init__(
        self, path: Path, handlers: Mapping[str, Handler], answers: Answers, clock: Clock
    ) -> None:
        self._path = path
        self._handlers = handlers
        self._answers = answers
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._keyed = asyncio.Lock()

    async def start(self) -> None:
        """Listen; a socket file left by a dead controller is replaced."""
        with suppress(FileNotFoundError):
            self._path.unlink()
        old = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, path=str(self._path), limit=LINE_BYTES_AT_MOST
            )
        finally:
            os.umask(old)

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
        with suppress(FileNotFoundError):
            self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                answer = await self._answer(line)
                writer.write(
                    json.dumps(answer, separators=(",", ":"), default=to_builtins).encode()
                )
                writer.write(b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:
            _log.warning("a command connection ended: %s", error)
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        request_id: str | None = None
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise InvalidInput("command-malformed", "a command is one JSON object")
            request_id = request.get("id")
            result = await self._carry_out(request)
        except GridawareError as error:
            return {"id": request_id, "ok": False, "error": describe(error)}
        except ValueError as error:
            refusal = InvalidInput("command-malformed", f"not a command: {error}")
            return {"id": request_id, "ok": False, "error": describe(refusal)}
        except Exception as error:  # noqa: BLE001 - logged; the desk must go on
            _log.exception("a command failed")
            bug = Bug("bug", f"{type(error).__name__}: {error}")
            return {"id": request_id, "ok": False, "error": describe(bug)}
        return {"id": request_id, "ok": True, "result": result}

    async def _carry_out(self, request: Mapping[str, Any]) -> dict[str, Any]:
        command, args = str(request.get("command")), request.get("args") or {}
        actor, key = str(request.get("actor") or "unknown"), request.get("idempotency_key")
        handler = self._handlers.get(command)
        if handler is None:
            raise InvalidInput("command-unknown", f"no command is called {command!r}")
        if not isinstance(args, dict):
            raise InvalidInput("command-malformed", "args must be an object")
        if key is None:
            return await handler(args, actor)
        async with self._keyed:  # two requests with one key are one request
            known = await asyncio.to_thread(self._answers.find, str(key), command, args)
            if known is not None:
                before: dict[str, Any] = json.loads(known)
                return before
            result = await handler(args, actor)
            body = json.dumps(result, default=to_builtins).encode()
            self._answers.remember(str(key), command, args, actor, body, self._clock.wall())
            return result


def tell_holder(path: Path, refusal: GridawareError) -> None:
    """Tell the controller that holds the store of one that was refused, for its ledger."""
    told = {"command": "controller.start", "args": {"pid": os.getpid()}, "actor": "second"}
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(TELL_SECONDS)
        line.connect(str(path))
        line.sendall(json.dumps(told | {"id": refusal.code}).encode() + b"\n")
        line.recv(1)  # answered: it is in the ledger


def describe(error: GridawareError) -> dict[str, Any]:
    """An error as the other side of the socket makes it again."""
    return {
        "code": error.code,
        "kind": type(error).__name__,
        "message": error.message,
        "facts": error.facts,
        "retryable": error.retryable,
    }
