"""An event again, from its ledger: the same stimuli must give the same decisions."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gridaware.control.machine import Machine
from gridaware.control.replay import Replayed, replay
from gridaware.domain.errors import NotFound
from gridaware.domain.reasons import sentence
from gridaware.store.reader import StoreReader
from gridaware.wiring.config import Settings
from gridaware.wiring.curves import load_curves

__all__ = ["replay_event"]

PAGE = 1000


def replay_event(settings: Settings, event_id: str) -> dict[str, Any]:
    """Replay the site's whole ledger and say how the event came out.

    Raises:
        NotFound: the ledger knows no such event.
        Unavailable: there is no store yet.
    """
    reader = StoreReader(settings.store_url)
    try:
        run = replay(Replayed(Machine(load_curves())), _entries(reader))
    finally:
        reader.close()
    track = run.machine.state.events.get(event_id)
    if track is None:
        raise NotFound("event-unknown", f"the ledger knows no event {event_id!r}")
    event = track.event
    return {
        "event_id": event_id,
        "state": event.state.value,
        "reason": event.reason,
        "why": sentence(event.reason, {"limit_watts": event.limit_watts or 0.0}),
        "limit_watts": event.limit_watts,
        "unresolved_watts": event.unresolved_watts,
        "stimuli": run.stimuli,
        "decisions": run.decisions,
        "differences": run.differences or [],
    }


def _entries(reader: StoreReader) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(kind, body) of every entry, in order."""
    next_seq = 1
    while entries := reader.ledger(from_seq=next_seq, limit=PAGE):
        for entry in entries:
            yield entry.kind, json.loads(entry.body)
        next_seq = entries[-1].seq + 1
