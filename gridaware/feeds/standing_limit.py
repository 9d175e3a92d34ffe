"""Limits that are set and released, as events: what follows without a gap is one event, revised."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from gridaware.domain.signal import EventRequest
from gridaware.feeds.memory import FeedMemory

__all__ = ["StandingLimit", "kept_limit"]


@dataclass(frozen=True, slots=True)
class StandingLimit:
    """The limit that stands, or the one that stood last."""

    period: int = 0
    """Counts events; 0 = there was none yet."""
    revision: int = 0
    start: str = ""
    end: str | None = None
    """None while it is active: an open end."""
    active: bool = False
    since: str = ""
    """When the first of them was asked: a feed that was registered anew, or lost what it knew,
    counts from 1 again, and what control knows by those names is over."""

    def is_active(self, at: datetime) -> bool:
        """Whether it stands at an instant."""
        return self.active and (self.end is None or datetime.fromisoformat(self.end) > at)

    def name(self, prefix: str) -> str:
        """The source id of the event."""
        return f"{prefix}-{self.period}" + (f".{self.since}" if self.since else "")

    def asked(self, request: EventRequest, at: datetime) -> tuple["StandingLimit", EventRequest]:
        """What stands once ``request`` was asked, and the request as the event now makes it.

        A revision of a limit in force does not move its beginning. One that lies ahead, since it
        was announced so or since the clock was set back, postpones nothing that is asked now.
        """
        if not self.is_active(at):
            start, end = request.start.isoformat(), _text(request.end)
            since = self.since if self.period else f"{at:%Y%m%dT%H%M%SZ}"
            return StandingLimit(self.period + 1, 0, start, end, active=True, since=since), request
        start = self.start
        if request.immediate:
            begun = min(datetime.fromisoformat(self.start), request.start)
            request = replace(request, start=begun, immediate=False)
            start = begun.isoformat()
        after = replace(self, revision=self.revision + 1, start=start, end=_text(request.end))
        return after, request

    def released(self) -> "StandingLimit":
        """What stands once it was released."""
        return replace(self, revision=self.revision + 1, active=False)

    def keep(self, memory: FeedMemory, key: str) -> None:
        """Remember it over restarts.

        Raises:
            Unavailable: it cannot be written.
        """
        memory.put(key, asdict(self))


def kept_limit(memory: FeedMemory, key: str) -> StandingLimit:
    """What was remembered; nothing where nothing was."""
    kept: Any = memory.get(key)
    try:
        return StandingLimit(**kept) if kept else StandingLimit()
    except TypeError:
        return StandingLimit()


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
