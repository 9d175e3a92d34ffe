"""What a feed knows of its sender's schedule, kept over restarts: timelines, pieces, ids seen."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gridaware.domain.errors import Refused
from gridaware.feeds.dsx.messages import CloudEvent, Target
from gridaware.feeds.dsx.pieces import Piece, Step, plan
from gridaware.feeds.dsx.timeline import Load, Order, Segment, Timeline, paint, prune, site_asks
from gridaware.feeds.memory import FeedMemory

__all__ = ["Book"]

SEEN_AT_MOST = 2048
"""Messages that are remembered: a copy of an older one is told by its age alone."""
SEGMENTS_AT_MOST = 1000
_KEY = "book"


@dataclass(slots=True)
class Book:
    """The state of one feed.

    Attributes:
        timelines: by power feed.
        pieces: what control has, by source id.
        seen: fingerprints of signatures, by id of the message.
        count: of the messages that said something.
    """

    timelines: dict[str, Timeline] = field(default_factory=dict)
    pieces: dict[str, Piece] = field(default_factory=dict)
    seen: OrderedDict[str, str] = field(default_factory=OrderedDict)
    count: int = 0

    def knows(self, event_id: str, fingerprint: str) -> bool:
        """Whether a message was taken before.

        Raises:
            Refused: what was signed came before under another id, or other words came under this
                id (``dsx-replayed``).
        """
        known = self.seen.get(event_id)
        if known is not None and known != fingerprint:
            raise Refused("dsx-replayed", "another message came before under this id")
        if known is None and fingerprint and fingerprint in self.seen.values():
            raise Refused("dsx-replayed", "this signature came before under another id")
        return known is not None

    def note(self, event_id: str, fingerprint: str) -> None:
        """A message was taken."""
        self.seen[event_id] = fingerprint
        while len(self.seen) > SEEN_AT_MOST:
            self.seen.popitem(last=False)

    def said(
        self, event: CloudEvent, targets: Sequence[Target], tags: Sequence[str], now: datetime
    ) -> "Book":
        """The book once a message was said; this one stays as it is.

        What is past is past: a target begins at the earliest when it was said.

        Raises:
            Refused: all of it is over (``dsx-over``), or the schedule would have more than 1000
                parts (``dsx-schedule-many``).
        """
        said_at = min(event.time, now)
        after = Book(
            dict(self.timelines), dict(self.pieces), OrderedDict(self.seen), self.count + 1
        )
        over = True
        for index, target in enumerate(targets):
            start = said_at if target.start is None else max(target.start, said_at)
            if target.end is not None and target.end <= max(start, now):
                continue
            over = False
            load = Load(
                Order(event.time, after.count, index),
                target.watts,
                event.event_id,
                target.value or 0.0,
                target.unit,
                target.best_effort,
                event.correlation_id or event.event_id,
            )
            for tag in tags:
                if not target.tags or tag in target.tags:
                    line = after.timelines.get(tag, ())
                    after.timelines[tag] = paint(line, start, target.end, load)
            if sum(len(line) for line in after.timelines.values()) > SEGMENTS_AT_MOST:
                raise Refused("dsx-schedule-many", f"more than {SEGMENTS_AT_MOST} parts")
        if over:
            raise Refused("dsx-over", "every target was over when it came")
        return after

    def prune(self, now: datetime, age: timedelta) -> None:
        """Forget what is over, and what no message can touch any more."""
        self.timelines = {
            tag: line
            for tag, whole in self.timelines.items()
            if (line := prune(whole, now, now - age))
        }
        self.pieces = {
            name: piece
            for name, piece in self.pieces.items()
            if piece.end is None or piece.end > now
        }

    def steps(self, default_watts: Mapping[str, float], now: datetime) -> tuple[Step, ...]:
        """What has to be said to control."""
        return plan(self.pieces, site_asks(self.timelines, default_watts), now)

    def carried_out(self, step: Step) -> None:
        """Control has taken a step."""
        if step.taken_back:
            self.pieces.pop(step.piece.name, None)
        else:
            self.pieces[step.piece.name] = step.piece

    def keep(self, memory: FeedMemory) -> None:
        """Remember it over restarts.

        Raises:
            Unavailable: it cannot be written.
        """
        memory.put(
            _KEY,
            {
                "timelines": {
                    tag: [_segment_json(segment) for segment in line]
                    for tag, line in self.timelines.items()
                },
                "pieces": [
                    [p.name, p.revision, _iso(p.start), _iso(p.end), p.watts]
                    for p in self.pieces.values()
                ],
                "seen": list(self.seen.items()),
                "count": self.count,
            },
        )

    @classmethod
    def kept(cls, memory: FeedMemory) -> "Book":
        """What was remembered; nothing where nothing was, or none of it can be read."""
        kept: Any = memory.get(_KEY)
        if not kept:
            return cls()
        try:
            pieces = [
                Piece(name, revision, datetime.fromisoformat(start), _when(end), watts)
                for name, revision, start, end, watts in kept["pieces"]
            ]
            return cls(
                {
                    tag: tuple(_segment(segment) for segment in line)
                    for tag, line in kept["timelines"].items()
                },
                {piece.name: piece for piece in pieces},
                OrderedDict((str(name), str(mark)) for name, mark in kept["seen"]),
                int(kept["count"]),
            )
        except (KeyError, TypeError, ValueError):
            return cls()


def _segment_json(segment: Segment) -> list[object]:
    load = segment.load
    order = load.order
    return [
        _iso(segment.start), _iso(segment.end), _iso(order.time), order.serial, order.index,
        load.watts, load.message_id, load.value, load.unit, load.best_effort, load.correlation_id,
    ]  # fmt: skip


def _segment(kept: Any) -> Segment:
    start, end, time, serial, index, *load = kept
    order = Order(datetime.fromisoformat(time), serial, index)
    return Segment(datetime.fromisoformat(start), _when(end), Load(order, *load))


def _iso(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()


def _when(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
