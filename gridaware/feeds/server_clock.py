"""How far a server's clock is from ours, by the Date of its answers."""

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime

from gridaware.clock import Clock
from gridaware.domain.errors import GridawareError, Unavailable

__all__ = ["OFF_SECONDS", "ServerClock"]

OFF_SECONDS = 2.0


class ServerClock:
    """Compares two clocks; any thread.

    Args:
        clock: ours.
        alarm: hears once that they differ, and again when they did not in between.
        code: of that alarm.
    """

    def __init__(self, clock: Clock, alarm: Callable[[GridawareError], None], code: str) -> None:
        self._clock = clock
        self._alarm = alarm
        self._code = code
        self._lock = threading.Lock()
        self._off = False
        self.offset_seconds: float | None = None
        """How far the server's clock is ahead of ours, by its last Date header."""

    def compare(self, headers: Mapping[str, str], took_seconds: float) -> None:
        """Look at the headers of an answer that has just come, so long after its request."""
        date = next((v for k, v in headers.items() if k.lower() == "date"), None)
        if date is None:
            return
        try:
            said = parsedate_to_datetime(date)
            sent = self._clock.wall() - timedelta(seconds=took_seconds / 2)
            # The header is cut off to whole seconds: its middle is the better guess.
            offset = (said - sent).total_seconds() + 0.5
        except (ValueError, TypeError, OverflowError):
            return
        self.offset_seconds = offset
        off = abs(offset) - 0.5 - took_seconds / 2 > OFF_SECONDS
        with self._lock:
            alarm, self._off = off and not self._off, off
        if alarm:
            ahead = "ahead of" if offset > 0 else "behind"
            self._alarm(Unavailable(self._code, f"its clock is {abs(offset):.0f} s {ahead} ours"))
