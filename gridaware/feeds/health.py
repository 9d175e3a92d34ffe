"""How each feed is: last good contact, lag, failures in a row, and why."""

import threading
from dataclasses import dataclass
from datetime import datetime

from gridaware.clock import Clock
from gridaware.domain.errors import GridawareError

__all__ = ["FeedHealth", "HealthRecord"]


@dataclass(frozen=True, slots=True)
class FeedHealth:
    """One feed at one instant."""

    feed_id: str
    kind: str
    state: str
    """``waiting`` (nothing yet), ``ok``, ``failing`` or ``hung`` (a poll has not returned)."""
    last_good_at: datetime | None
    """Last poll that was answered, or last authentic push."""
    lag_seconds: float | None
    """Since then."""
    failures: int
    """In a row."""
    reason_code: str
    reason: str
    signals: int
    """Handed to control so far."""
    refused: int
    """Messages refused so far."""
    untold: int
    """Statuses that could not be delivered so far."""


class HealthRecord:
    """Collects one feed's health; any thread."""

    def __init__(self, feed_id: str, kind: str, clock: Clock, hung_after_seconds: float) -> None:
        self._feed_id = feed_id
        self._kind = kind
        self._clock = clock
        self._hung_after_seconds = hung_after_seconds
        self._lock = threading.Lock()
        self._busy_since: float | None = None
        self._good: tuple[datetime, float] | None = None
        self._failures = 0
        self._reason: tuple[str, str] = ("", "")
        self._signals = self._refused = self._untold = 0

    def began(self) -> None:
        """A poll began."""
        with self._lock:
            self._busy_since = self._clock.monotonic_seconds()

    def succeeded(self) -> None:
        """A poll was answered, or an authentic message came."""
        with self._lock:
            self._busy_since = None
            self._good = (self._clock.wall(), self._clock.monotonic_seconds())
            self._failures = 0
            self._reason = ("", "")

    def failed(self, error: GridawareError) -> int:
        """A poll failed; returns how many did in a row."""
        with self._lock:
            self._busy_since = None
            self._failures += 1
            self._reason = (error.code, error.message)
            return self._failures

    def count(self, *, signals: int = 0, refused: int = 0, untold: int = 0) -> None:
        """Add to the counters."""
        with self._lock:
            self._signals += signals
            self._refused += refused
            self._untold += untold

    @property
    def busy(self) -> bool:
        """Whether a poll is under way."""
        return self._busy_since is not None

    def now(self) -> FeedHealth:
        """The health at this instant."""
        with self._lock:
            seconds = self._clock.monotonic_seconds()
            good = self._good
            state = "ok" if good else "waiting"
            code, reason = self._reason
            if self._failures:
                state = "failing"
            if self._busy_since is not None:
                waited = seconds - self._busy_since
                if waited > self._hung_after_seconds:
                    state = "hung"
                    code, reason = "feed-hung", f"a poll has not returned for {waited:.0f} s"
            return FeedHealth(
                self._feed_id,
                self._kind,
                state,
                good[0] if good else None,
                seconds - good[1] if good else None,
                self._failures,
                code,
                reason,
                self._signals,
                self._refused,
                self._untold,
            )
