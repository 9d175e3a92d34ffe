"""From what the site is asked for, period by period, to events that control can carry out. Pure.

A period of one limit is one event, a **piece**: named by the message that asked for it and by its
start. When the periods change, what is new is said before anything old is shortened or taken back,
so at no instant is less asked than before or after; where both hold, the stricter one does.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gridaware.domain.signal import EventRequest, Quantity, TargetSpec
from gridaware.feeds.dsx.timeline import Ask
from gridaware.feeds.ids import source_id

__all__ = ["Piece", "Step", "name_of", "plan"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One event, as control knows it."""

    name: str
    """Its source id."""
    revision: int
    start: datetime
    end: datetime | None
    watts: float

    def request(self) -> EventRequest:
        """What it asks for."""
        return EventRequest(self.start, self.end, TargetSpec(Quantity.LIMIT_WATTS, self.watts))


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to say of a piece."""

    piece: Piece
    """As it is once that was said."""
    taken_back: bool = False
    releases: bool = False
    """It lets go of something: to be said only once all that is new was accepted."""


def plan(pieces: Mapping[str, Piece], asks: Sequence[Ask], now: datetime) -> tuple[Step, ...]:
    """What has to be said, in this order, so that ``pieces`` become what ``asks`` ask for.

    Args:
        pieces: those that control has, by name, none of them over.
        asks: what is asked from now on; periods just over tell how their pieces ended.
        now: nothing that is over by now begins.
    """
    wanted = {name_of(ask): ask for ask in asks}
    holding: list[Step] = []
    releasing: list[Step] = []
    for name, ask in wanted.items():
        piece = pieces.get(name)
        if piece is None:
            if ask.end is None or ask.end > now:
                new = Piece(name, 0, ask.start, ask.end, ask.watts)
                holding.append(Step(new))
            continue
        if (piece.end, piece.watts) == (ask.end, ask.watts):
            continue
        after = replace(piece, revision=piece.revision + 1, end=ask.end, watts=ask.watts)
        releases = after.watts > piece.watts or _sooner(after.end, piece.end)
        (releasing if releases else holding).append(Step(after, releases=releases))
    for name, piece in pieces.items():
        if name not in wanted:
            after = replace(piece, revision=piece.revision + 1)
            releasing.append(Step(after, taken_back=True, releases=True))
    return (*_by_start(holding), *_by_start(releasing))


def name_of(ask: Ask) -> str:
    """The source id of the event for ``ask``.

    What a message asked for at an instant is replaced and never comes back, so no name is used
    for two things.
    """
    load = ask.newest
    return source_id(load.message_id, load.order.index, int(ask.start.timestamp() * 1_000_000))


def _sooner(one: datetime | None, other: datetime | None) -> bool:
    return one is not None and (other is None or one < other)


def _by_start(steps: Iterable[Step]) -> list[Step]:
    return sorted(steps, key=lambda step: step.piece.start)
