"""Asks the agent of this node over its root-only socket, also while no controller is there."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gridaware.domain import errors
from gridaware.domain.errors import GridawareError, Refused, TimedOut, Unavailable

__all__ = ["ADMIN_SOCKET", "ask_agent"]

ADMIN_SOCKET = Path("/run/gridaware/admin.sock")
WAIT_SECONDS = 10.0
_ANSWER_BYTES = 1 << 20


def ask_agent(
    path: Path, command: str, arguments: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """One command to the agent at ``path``, and its result.

    Raises:
        Unavailable: nothing listens there, or it does not answer (``agent-unreachable``).
        Refused: this user may not ask (``agent-permission``), or the agent will not.
        GridawareError: whatever else the agent answers.
    """
    question = {"id": "1", "command": command, "args": dict(arguments or {})}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(WAIT_SECONDS)
            connection.connect(str(path))
            connection.sendall(json.dumps(question).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer = json.loads(lines.readline(_ANSWER_BYTES))
    except PermissionError as error:
        raise Refused("agent-permission", f"{path} is for root alone") from error
    except TimeoutError as error:
        raise TimedOut("agent-timeout", f"the agent at {path} does not answer") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no answer"
        raise Unavailable("agent-unreachable", f"no agent answers at {path}: {why}") from error
    if answer.get("ok"):
        result: dict[str, Any] = answer["result"]
        return result
    told = answer["error"]
    kind = getattr(errors, told["kind"], GridawareError)
    raise kind(told["code"], told["message"], **told["facts"])
