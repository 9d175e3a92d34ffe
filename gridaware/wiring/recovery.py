"""The machine again after a restart: the last snapshot, and every ledgered stimulus since."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gridaware.control.loop import Watch
from gridaware.control.machine import Machine
from gridaware.control.replay import Replayed, rebuild, snapshot_of
from gridaware.control.state import State
from gridaware.domain.errors import NotFound
from gridaware.domain.event import EventState
from gridaware.domain.moment import Moment
from gridaware.planning.model import CurveBook
from gridaware.store.controller import ControllerStore
from gridaware.store.ledger import SqlLedger
from gridaware.store.reader import StoreReader

__all__ = ["SNAPSHOT", "entries_of", "quiet", "recover", "write_snapshot"]

SNAPSHOT = ("snapshot", "machine")
PAGE = 1000
_UNSETTLED = {
    EventState.RAMPING_DOWN,
    EventState.HOLDING,
    EventState.RAMPING_UP,
    EventState.RESTORED,
}


def recover(store: ControllerStore, reader: StoreReader, book: CurveBook, watch: Watch) -> Replayed:
    """The machine as the ledger left it; ``watch`` sees again what came since the snapshot."""
    try:
        snapshot = json.loads(reader.get(*SNAPSHOT))
    except NotFound:
        snapshot = None
    from_seq = 1 if snapshot is None else int(snapshot["seq"]) + 1
    return rebuild(book, snapshot, entries_of(store.ledger, from_seq), watch)


def entries_of(ledger: SqlLedger, from_seq: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(kind, body) of every ledger entry from ``from_seq`` on."""
    while page := ledger.read(from_seq, limit=PAGE):
        for entry in page:
            yield entry.kind, json.loads(entry.body)
        from_seq = page[-1].seq + 1


def quiet(state: State) -> bool:
    """Whether no event's report needs what came before now."""
    return not any(track.event.state in _UNSETTLED for track in state.events.values())


def write_snapshot(store: ControllerStore, machine: Machine, seq: int, moment: Moment) -> None:
    """Keep the state beside the ledger, so that the next start replays only what follows.

    Raises:
        Unavailable: the disk refuses writes.
    """
    body = json.dumps(snapshot_of(machine, seq, moment), default=str).encode()
    store.documents.put(*SNAPSHOT, "kept", body, moment.wall)
