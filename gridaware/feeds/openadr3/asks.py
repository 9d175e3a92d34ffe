"""What the events that stand ask of the site, by the names that their signals get.

A subscribed capacity is a limit of its own, and a reservation of the same program that overlaps it
adds to it: the limit is cut where a reservation begins or ends.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gridaware.domain.signal import EventRequest, TargetSpec
from gridaware.feeds.ids import source_id
from gridaware.feeds.kind import Disposition
from gridaware.feeds.openadr3.payloads import RESERVATION, SUBSCRIPTION
from gridaware.feeds.openadr3.reading import EventReading, Part

__all__ = ["Asked", "asks_of", "with_reservations"]

RESERVATIONS_AT_MOST = 200
"""Those beyond are left out, which is the stricter."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One thing that is asked."""

    event: str
    """The name of its event."""
    request: EventRequest


def asks_of(readings: Mapping[str, EventReading], now: datetime) -> dict[str, Asked]:
    """Everything that acts and is not over, by source id.

    An ask that is gone from one call to the next while its event still stands was taken back by
    it, unless its end has come.

    Args:
        readings: every event that stands, by a name that no other has, over restarts of its server
            too.
        now: what is over is judged by it.
    """
    reserved = _reservations(list(readings.values()))
    asks: dict[str, Asked] = {}
    for name, reading in readings.items():
        for part in reading.parts:
            if part.meaning.disposition is not Disposition.ACT or part.meaning.target is None:
                continue
            cuts = [part]
            if part.kind == SUBSCRIPTION:
                cuts = list(_with(part, reserved.get(reading.program_id, ())))
            for number, cut in enumerate(cuts):
                if cut.end is not None and cut.end <= now:
                    continue
                parts = (part.name, f"c{number}") if number else (part.name,)
                request = _request(cut, reading.priority)
                asks[source_id(name, *parts)] = Asked(name, request)
    return asks


def with_reservations(readings: Sequence[EventReading]) -> list[EventReading]:
    """The same, with reservations that add to a subscription of theirs as acting."""
    subscribed = {
        reading.program_id
        for reading in readings
        for part in reading.parts
        if part.kind == SUBSCRIPTION and part.meaning.disposition is Disposition.ACT
    }
    return [
        replace(reading, parts=tuple(_acting(part) for part in reading.parts))
        if reading.program_id in subscribed
        else reading
        for reading in readings
    ]


def _acting(part: Part) -> Part:
    if part.kind != RESERVATION or part.meaning.disposition is not Disposition.ADVISORY:
        return part
    meaning = replace(
        part.meaning, disposition=Disposition.ACT, reason="adds to the subscribed capacity"
    )
    return replace(part, meaning=meaning)


def _request(part: Part, priority: int | None) -> EventRequest:
    target = part.meaning.target
    assert target is not None
    return EventRequest(part.start, part.end, target, priority=priority, immediate=part.immediate)


def _reservations(readings: Sequence[EventReading]) -> dict[str | None, list[Part]]:
    found: dict[str | None, list[Part]] = {}
    for reading in readings:
        if not reading.ours:
            continue
        mine = found.setdefault(reading.program_id, [])
        for part in reading.parts:
            known = part.kind == RESERVATION and part.meaning.target is not None
            if known and len(mine) < RESERVATIONS_AT_MOST:
                mine.append(part)
    return found


def _with(part: Part, reserved: Sequence[Part]) -> Iterator[Part]:
    """A subscription's interval, cut where reservations begin and end."""
    edges = {part.start}
    for each in reserved:
        edges.update(
            edge
            for edge in (each.start, each.end)
            if edge is not None and part.start < edge and (part.end is None or edge < part.end)
        )
    starts = sorted(edges)
    for start, end in zip(starts, [*starts[1:], part.end], strict=True):
        target = part.meaning.target
        assert target is not None
        added = sum(_watts(each) for each in reserved if _holds(each, start))
        total = TargetSpec(target.quantity, target.value + added)
        yield replace(part, start=start, end=end, meaning=replace(part.meaning, target=total))


def _holds(part: Part, at: datetime) -> bool:
    return part.start <= at and (part.end is None or at < part.end)


def _watts(part: Part) -> float:
    return 0.0 if part.meaning.target is None else part.meaning.target.value
