"""The rules of NvGrid as algebra of intervals. Pure.

For each instant, and each power feed, the newest target that covers it rules; a target without an
end holds until a newer one covers it; a null target brings the default back. (NvGrid's
``SetLoadTarget``, API reference of DPS 0.7.6.) The order in which targets *arrive* is of no
matter beyond that: a timeline keeps, for each instant, the one of the highest order that was ever
painted.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import zip_longest

__all__ = ["Ask", "Load", "Order", "Segment", "Timeline", "paint", "prune", "site_asks"]


@dataclass(frozen=True, slots=True, order=True)
class Order:
    """Which of two targets is newer."""

    time: datetime
    """When its sender said it."""
    serial: int
    """Of two messages of one instant the one that came later rules: clocks of a second are common,
    and a broker keeps the order of one sender."""
    index: int
    """Within a message the later one rules."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one target says of one power feed."""

    order: Order
    watts: float | None
    """None = back to the default."""
    message_id: str = ""
    value: float = 0.0
    """As it was said, in ``unit``; told back as it was said."""
    unit: str = "watt"
    best_effort: bool = False
    correlation_id: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """A period in which one load rules; ``end`` None = until it is replaced."""

    start: datetime
    end: datetime | None
    load: Load

    def covers(self, at: datetime) -> bool:
        """Whether ``at`` lies in it."""
        return self.start <= at and (self.end is None or at < self.end)


Timeline = tuple[Segment, ...]
"""Segments in order, none overlapping another, neighbours of one load joined."""


def paint(timeline: Timeline, start: datetime, end: datetime | None, load: Load) -> Timeline:
    """The timeline once ``load`` was said for ``start`` to ``end``."""
    parts: list[Segment] = []
    free: datetime | None = start
    """From where on nothing ruled yet; None = something rules for ever."""
    for segment in timeline:
        low, high = max(segment.start, start), _earlier(segment.end, end)
        if high is not None and high <= low:
            parts.append(segment)
            continue
        if segment.start < low:
            parts.append(replace(segment, end=low))
        if free is not None and free < low:
            parts.append(Segment(free, low, load))
        newer = load if load.order > segment.load.order else segment.load
        parts.append(Segment(low, high, newer))
        if high is not None and high != segment.end:
            parts.append(replace(segment, start=high))
        free = high
    if free is not None and (end is None or free < end):
        parts.append(Segment(free, end, load))
    return _joined(sorted(parts, key=lambda part: part.start))


def prune(timeline: Timeline, now: datetime, defaults_before: datetime) -> Timeline:
    """What still matters of a timeline.

    Args:
        timeline: to prune.
        now: what ended by then is over.
        defaults_before: null targets said before it are left out: an older target, over which they
            would rule, is no longer accepted.
    """
    return tuple(
        segment
        for segment in timeline
        if (segment.end is None or segment.end > now)
        and not (segment.load.watts is None and segment.load.order.time < defaults_before)
    )


@dataclass(frozen=True, slots=True)
class Ask:
    """A period in which the whole site is asked for one limit."""

    start: datetime
    end: datetime | None
    watts: float
    newest: Load
    """Of the targets that make the limit; names it."""


def site_asks(
    timelines: Mapping[str, Timeline], default_watts: Mapping[str, float]
) -> tuple[Ask, ...]:
    """What the site meter may show: the power feeds' limits added up, a default where none rules.

    Periods in which every power feed is at its default ask for nothing.
    """
    cuts = sorted({at for timeline in timelines.values() for at in _ends(timeline)})
    found: list[tuple[tuple[Load | None, ...], Ask]] = []
    for here, there in zip_longest(cuts, cuts[1:]):
        ruling = tuple(_load_at(timelines.get(tag, ()), here) for tag in default_watts)
        limits = [load for load in ruling if load is not None and load.watts is not None]
        if not limits:
            continue
        watts = sum(
            default if load is None or load.watts is None else load.watts
            for load, default in zip(ruling, default_watts.values(), strict=True)
        )
        newest = max(limits, key=lambda load: load.order)
        if found and found[-1][0] == ruling and found[-1][1].end == here:
            found[-1] = (ruling, replace(found[-1][1], end=there))
        else:
            found.append((ruling, Ask(here, there, watts, newest)))
    return tuple(ask for _, ask in found)


def _ends(timeline: Iterable[Segment]) -> Iterable[datetime]:
    for segment in timeline:
        yield segment.start
        if segment.end is not None:
            yield segment.end


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _load_at(timeline: Timeline, at: datetime) -> Load | None:
    index = bisect_right(timeline, at, key=lambda segment: segment.start) - 1
    return timeline[index].load if index >= 0 and timeline[index].covers(at) else None


def _joined(parts: Sequence[Segment]) -> Timeline:
    joined: list[Segment] = []
    for part in parts:
        if joined and joined[-1].end == part.start and joined[-1].load == part.load:
            joined[-1] = replace(joined[-1], end=part.end)
        else:
            joined.append(part)
    return tuple(joined)
