"""Commands to control: one JSON line each way over a UNIX socket, one connection a command."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from gridaware.domain import errors
from gridaware.domain.errors import Bug, GridawareError, InvalidInput, TimedOut, Unavailable

__all__ = ["ControlClient"]

_ANSWER_BYTES_AT_MOST = 32 << 20
"""A job's output is the largest answer."""
_KINDS = {
    name: kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, GridawareError)
}


class _Error(msgspec.Struct):
    code: str
    kind: str = "Bug"
    message: str = ""
    facts: dict[str, str | int | float | bool | None] = {}


class _Answer(msgspec.Struct):
    ok: bool
    result: msgspec.Raw = msgspec.Raw(b"{}")
    error: _Error | None = None


_DECODER = msgspec.json.Decoder(_Answer)


class ControlClient:
    """Asks control to do something and waits for its word."""

    def __init__(self, socket: Path, timeout_seconds: float) -> None:
        self._socket = socket
        self._timeout_seconds = timeout_seconds

    async def send(
        self,
        command: str,
        args: Mapping[str, Any],
        *,
        actor: str,
        idempotency_key: str | None = None,
    ) -> bytes:
        """What control answers, as JSON.

        Raises:
            GridawareError: control refuses; the very error that it raised.
            InvalidInput: a text of ``args`` is no Unicode.
            Unavailable: control does not answer (``control-unreachable``), or not in time.
        """
        request = {
            "id": uuid4().hex,
            "command": command,
            "args": dict(args),
            "actor": actor,
            "idempotency_key": idempotency_key,
        }
        try:
            sent = msgspec.json.encode(request) + b"\n"
        except UnicodeEncodeError as error:
            raise InvalidInput("text-not-unicode", "a text holds half a character") from error
        try:
            async with asyncio.timeout(self._timeout_seconds):
                line = await self._exchange(sent)
        except TimeoutError:
            raise TimedOut(
                "control-slow",
                f"control did not answer {command} within {self._timeout_seconds:g} s",
                command=command,
            ) from None
        except (OSError, ValueError) as error:
            raise Unavailable(
                "control-unreachable", f"control does not answer: {error}", command=command
            ) from error
        return _result(line, command)

    async def _exchange(self, line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(
            self._socket, limit=_ANSWER_BYTES_AT_MOST
        )
        try:
            writer.write(line)
            await writer.drain()
            return await reader.readline()
        finally:
            writer.close()


def _result(line: bytes, command: str) -> bytes:
    if not line.endswith(b"\n"):
        raise Unavailable("control-unreachable", "control closed the connection", command=command)
    try:
        answer = _DECODER.decode(line)
    except msgspec.MsgspecError as error:
        raise Bug("control-answer-malformed", f"control answered nonsense: {error}") from error
    if answer.ok:
        return bytes(answer.result)
    if answer.error is None:
        raise Bug("control-answer-malformed", "control refused without an error")
    refusal = answer.error
    raise _KINDS.get(refusal.kind, Bug)(refusal.code, refusal.message, **refusal.facts)
