"""What was heard, in the feed's memory: events by name, and what each asked for by revision.

For protocols that list what stands and number no changes (OpenADR 3 has no modification number, and
its modification time may have a resolution of a second): a changed content is the next revision. An
id may name another event after a restart of its server, so an event is named by its id and the time
of its creation.
"""

import base64
import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gridaware.domain.eventjson import event_to_json
from gridaware.domain.signal import EventRequest, Signal
from gridaware.feeds.ids import source_id
from gridaware.feeds.memory import FeedMemory

__all__ = ["Ask", "Heard", "event_name"]

EVENTS_AT_MOST = 2000
ASKS_AT_MOST = 4000
OVER_FOR = timedelta(days=1)


def event_name(event_id: str | None, created: str) -> str:
    """A name that no other event of the server has, also after its restart."""
    return source_id(event_id or "x", _digest(created)[:6])


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing that an event asked for."""

    event: str
    revision: int
    digest: str
    end: datetime | None
    taken_back: bool


class Heard:
    """The events that stand and what they asked, kept over restarts of ours.

    Args:
        memory: of the feed.
        peer: URL of the server; what another one once said is no matter of this one's.
    """

    def __init__(self, memory: FeedMemory, peer: str) -> None:
        self._memory = memory
        self._peer = peer
        kept = memory.get("heard")
        if not isinstance(kept, dict) or kept.get("vtn") != peer:
            kept = {}
        self._events: dict[str, dict[str, Any]] = dict(kept.get("events", {}))
        self._asks: dict[str, list[Any]] = dict(kept.get("asks", {}))

    def meet(self, name: str, now: datetime) -> datetime:
        """Note an event that is listed; returns when it was heard of first."""
        record = self._events.setdefault(name, {"heard": now.isoformat(), "draws": {}})
        return datetime.fromisoformat(record["heard"])

    def draw(self, name: str, interval: str) -> float:
        """A number of -1 to 1, drawn once for an interval of an event."""
        draws = self._events[name]["draws"]
        if interval not in draws:
            draws[interval] = random.uniform(-1, 1)  # noqa: S311 - it spreads load, no secret
        return float(draws[interval])

    def note(self, name: str, key: str, value: float) -> float:
        """Keep a number about an event, the first one that was noted; returns that one."""
        notes = self._events[name].setdefault("notes", {})
        return float(notes.setdefault(key, value))

    def noted(self, name: str, key: str) -> float | None:
        """What was noted about an event, also of one that is not listed; None = nothing."""
        value = self._events.get(name, {}).get("notes", {}).get(key)
        return None if value is None else float(value)

    def seen(self, names: Iterable[str], witness: str | None) -> None:
        """Note under which witness events are listed."""
        if witness is not None:
            for name in names:
                self._events[name]["under"] = witness

    @property
    def seen_under(self) -> dict[str, str | None]:
        """Every event that stands, and the witness under which it was listed last."""
        return {name: record.get("under") for name, record in self._events.items()}

    def asks(self) -> dict[str, Ask]:
        """Everything that was asked, by source id, taken back or not."""
        return {
            key: Ask(event, revision, digest, None if end is None else _time(end), bool(taken))
            for key, (event, revision, digest, end, taken) in self._asks.items()
        }

    def free(self, key: str, now: datetime) -> str:
        """The name to ask under: ``key``, or a next one where that was taken back or is over.

        Control begins nothing again under a name that is closed.
        """
        name, number = key, 0
        while name in self._asks:
            _, _, _, end, taken = self._asks[name]
            if not taken and (end is None or _time(end) > now):
                break
            number += 1
            name = source_id(key, f"r{number}")
        return name

    def ask(self, key: str, event: str, request: EventRequest) -> int:
        """Note what an event asks; returns its revision."""
        digest = _digest_of(request)
        before = self._asks.get(key)
        revision = 0
        if before is not None:
            changed = before[2] != digest or before[4]
            revision = before[1] + bool(changed)
        end = None if request.end is None else request.end.astimezone(UTC).isoformat()
        self._asks[key] = [event, revision, digest, end, False]
        return revision

    def take_back(self, key: str) -> None:
        """Note that an ask no longer stands: that is its next revision."""
        event, revision, digest, end, taken = self._asks[key]
        if not taken:
            self._asks[key] = [event, revision + 1, digest, end, True]

    def forget_event(self, name: str) -> None:
        """It is cancelled, or long over: should it be listed again, it begins anew."""
        self._events.pop(name, None)

    def keep(self, now: datetime, listed: Iterable[str]) -> None:
        """Make it durable, without what is long over."""
        there = set(listed)
        for key, (_, _, _, end, _) in list(self._asks.items()):
            if end is not None and _time(end) < now - OVER_FOR:
                del self._asks[key]
        standing = {ask[0] for ask in self._asks.values() if not ask[4]}
        for name in [n for n in self._events if n not in there and n not in standing]:
            del self._events[name]
        _trim(self._events, EVENTS_AT_MOST)
        _trim(self._asks, ASKS_AT_MOST)
        kept = {"vtn": self._peer, "events": self._events, "asks": self._asks}
        self._memory.put("heard", kept)


def _trim(kept: dict[str, Any], at_most: int) -> None:
    while len(kept) > at_most:
        del kept[next(iter(kept))]


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _digest_of(request: EventRequest) -> str:
    shown = Signal("x", "x", 0, request.start.astimezone(UTC), 0.0, request)
    said: Mapping[str, object] = event_to_json(shown)
    return _digest(json.dumps(said, sort_keys=True))


def _digest(text: str) -> str:
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(found[:10]).decode().lower()
