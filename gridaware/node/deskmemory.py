"""Which processes were registered, kept over a restart of the agent.

Jobs come back by themselves within seconds; until then, and for those that ended meanwhile, the
next life of the agent knows from this file whose GPUs are whose and whom to report gone. It lies in
the run directory, which ends with the machine; a damaged or missing file costs only those seconds.
"""

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from gridaware.domain.errors import InvalidInput
from gridaware.domain.jobword import Register, decode_line, encode_line
from gridaware.node.handshake import Rank
from gridaware.node.processes import Process

__all__ = ["recall_ranks", "remember_ranks"]

_log = logging.getLogger(__name__)


def remember_ranks(path: Path, ranks: Iterable[Rank]) -> None:
    """Write who is registered; a disk that does not take it is no reason to stop."""
    body = [
        {
            "pid": rank.process.pid,
            "started_ticks": rank.process.started_ticks,
            "owner": rank.owner,
            "line": encode_line(rank.line).decode(),
        }
        for rank in ranks
    ]
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_text(json.dumps(body), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        _log.warning("who is registered could not be kept for a restart: %s", error)


def recall_ranks(path: Path) -> list[Rank]:
    """Who was registered; nobody where the file is not there or not whole."""
    ranks = []
    try:
        for item in json.loads(path.read_text(encoding="utf-8")):
            line = decode_line(item["line"].encode())
            if isinstance(line, Register):
                process = Process(int(item["pid"]), int(item["started_ticks"]))
                uid, gid = item["owner"]
                ranks.append(Rank(process, (int(uid), int(gid)), line, ()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InvalidInput):
        return []
    return ranks
