"""A token bucket on the monotonic clock."""

from gridaware.clock import Clock

__all__ = ["Bucket"]


class Bucket:
    """Lets ``per_second`` things through on average, and ``burst`` at once."""

    def __init__(self, clock: Clock, per_second: float, burst: float) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = burst
        self._left = burst
        self._at_seconds = clock.monotonic_seconds()

    def take(self) -> bool:
        """Whether one more may pass now."""
        now = self._clock.monotonic_seconds()
        self._left = min(self._burst, self._left + (now - self._at_seconds) * self._per_second)
        self._at_seconds = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
