"""The first moments of a controller: what nodes hold stays until it knows what that is.

The ledger tells a controller that starts what was drawn and asked before it, not what came of it: a
node that has not been heard again seems to draw what it drew before its limits bit. A plan on that
takes the difference from the nodes that were heard first. So until every node that the last
controller spoke with was heard, or :data:`LONGEST_SECONDS` are over, nothing is planned: limits,
leases and standing ceilings hold without us, and a node that says hello is told what it holds.

Only what is owed in this time, and stands in no decision yet, is answered at once, by the nodes
that are there: a promise kept too deep costs less than one that is broken.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gridaware.domain.moment import Moment

__all__ = ["ANSWER_SECONDS", "LONGEST_SECONDS", "Takeover"]

LONGEST_SECONDS = 2.0
"""From the first look on: an agent tries its controller again within so long, at most."""
ANSWER_SECONDS = 2.0
"""What is due within so long cannot wait: a tick passes until it is looked at again, and limits,
silicon and sensors take most of a second."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """Whom a new controller still waits for. A value: each look gives a new one."""

    began: Moment | None = None
    """When the controller started."""
    until_seconds: float | None = None
    """When it waits no more; None = it has not looked yet."""
    awaited: tuple[str, ...] = ()
    """Nodes that it has not heard."""

    def begun(self, now: Moment, connected: Iterable[str]) -> "Takeover":
        """A controller starts; ``connected``: nodes that the one before it spoke with.

        Those for whom that one was still waiting are awaited, too.
        """
        return Takeover(now, None, tuple(sorted({*connected, *self.awaited})))

    def look(self, now_seconds: float, read_seconds: Mapping[str, float]) -> "Takeover":
        """Once a tick. ``read_seconds``: by connected node, when a reading of it was last seen."""
        if not self.awaited or self.began is None:
            return self
        until = now_seconds + LONGEST_SECONDS if self.until_seconds is None else self.until_seconds
        missing = tuple(
            node_id
            for node_id in self.awaited
            if read_seconds.get(node_id, self.began.seconds) <= self.began.seconds
        )
        return replace(self, until_seconds=until, awaited=missing if now_seconds < until else ())

    @property
    def waiting(self) -> bool:
        """Whether it is too early to plan."""
        return bool(self.awaited)

    def presses(self, now: Moment, due: datetime) -> bool:
        """Whether what is due then falls into the time of waiting, or too close behind it."""
        soon = now.wall + timedelta(seconds=ANSWER_SECONDS)
        return self.began is not None and self.began.wall <= due <= soon
