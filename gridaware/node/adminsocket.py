"""The agent's root-only UNIX socket: `release` and `status`, one JSON object a line.

``{"id", "command", "args"}`` is answered by ``{"id", "ok": true, "result"}``, or by ``"ok": false``
and ``"error": {"code", "kind", "message", "facts", "retryable"}``. The kernel names the peer; only
root and the agent's own user are heard. It works with no controller anywhere.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from struct import Struct

import msgspec

from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput, NotFound, Refused

__all__ = ["AdminSocket", "Command"]

_LINE_BYTES = 64 * 1024
_IDLE_SECONDS = 30.0
_UCRED = Struct("=iII")
_SOCKET_PATH_BYTES = 107

Command = Callable[[Mapping[str, str]], object]
"""Takes the arguments, returns what JSON can say, raises a :class:`GridawareError`."""


class _Request(msgspec.Struct):
    command: str
    id: str = ""
    args: dict[str, str] = {}


class AdminSocket:
    """Listens at ``path`` for ``commands`` by name."""

    def __init__(self, path: Path, commands: Mapping[str, Command]) -> None:
        self._path = path
        self._commands = commands
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; what an earlier agent left there is replaced.

        Raises:
            ConfigError: the path cannot be used (``socket-path``).
        """
        if len(os.fsencode(self._path)) > _SOCKET_PATH_BYTES:
            raise ConfigError("socket-path", f"{self._path} is longer than 107 bytes")
        before = os.umask(0o177)
        try:
            self._path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(
                self._serve, self._path, limit=_LINE_BYTES
            )
        except OSError as error:
            raise ConfigError("socket-path", f"cannot listen at {self._path}: {error}") from error
        finally:
            os.umask(before)

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            trusted = _trusted(writer.get_extra_info("socket"))
            while True:
                async with asyncio.timeout(_IDLE_SECONDS):
                    line = await reader.readline()
                if not line:
                    return
                writer.write(self._answer(line, trusted=trusted) + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            return
        finally:
            writer.close()

    def _answer(self, line: bytes, *, trusted: bool) -> bytes:
        request = _Request("")
        try:
            if not trusted:
                raise Refused("peer-untrusted", "only root and the agent's own user are heard")
            try:
                request = msgspec.json.decode(line, type=_Request)
            except (msgspec.MsgspecError, ValueError) as error:
                raise InvalidInput("request-malformed", str(error)) from error
            command = self._commands.get(request.command)
            if command is None:
                known = ", ".join(self._commands)
                raise NotFound("command-unknown", f"the agent's commands are {known}")
            answer: dict[str, object] = {"ok": True, "result": command(request.args)}
        except GridawareError as error:
            answer = {
                "ok": False,
                "error": {
                    "code": error.code,
                    "kind": type(error).__name__,
                    "message": error.message,
                    "facts": error.facts,
                    "retryable": error.retryable,
                },
            }
        return msgspec.json.encode({"id": request.id, **answer})


def _trusted(connection: socket.socket) -> bool:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    _pid, uid, _gid = _UCRED.unpack(raw)
    return uid in {0, os.geteuid()}
