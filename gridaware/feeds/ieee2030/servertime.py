"""The server's clock against ours: events are executed by the server's (IEEE 2030.5, clause 11.1).

The Time resource counts whole seconds, so one reading says that the clocks differ by something
within a second. An offset once taken is kept as long as readings allow it: a start that moved by a
second with each reading would be another start each time.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from gridaware.domain.errors import GridawareError, Unavailable
from gridaware.feeds.memory import FeedMemory

__all__ = ["ServerTime"]

ALARM_SECONDS = 2.0
TOLERANCE_SECONDS = 1.0
AGREE_SECONDS = 0.5
ABSURD_SECONDS = 86400.0


class ServerTime:
    """How far the server's clock is ahead of ours.

    Args:
        memory: keeps the offset over restarts.
        alarm: hears once that the clocks differ by more than two seconds, and again when they did
            not in between.
    """

    def __init__(self, memory: FeedMemory, alarm: Callable[[GridawareError], None]) -> None:
        self._memory = memory
        self._alarm = alarm
        kept = memory.get("offset")
        self._known = isinstance(kept, int | float) and abs(kept) <= ABSURD_SECONDS
        self.offset_seconds = float(kept) if self._known else 0.0
        self._off = self._absent = False

    def measure(self, server_seconds: int, sent_at: datetime, answered_at: datetime) -> None:
        """Take a reading of the server's clock, which was made between two instants of ours.

        Raises:
            Unavailable: it is more than a day off (``ieee2030-clock-absurd``).
        """
        least = server_seconds - answered_at.timestamp()
        most = server_seconds + 1 - sent_at.timestamp()
        middle = (least + most) / 2
        if abs(middle) > ABSURD_SECONDS:
            told = f"the server's clock is {middle / 86400:.0f} days off"
            raise Unavailable("ieee2030-clock-absurd", told)
        least, most = least - TOLERANCE_SECONDS, most + TOLERANCE_SECONDS
        if not self._known or not least <= self.offset_seconds <= most:
            # The truth is within half a second of the middle.
            self.offset_seconds = 0.0 if abs(middle) <= AGREE_SECONDS else round(middle, 1)
            self._known = True
            self._keep()
        self._judge()

    def absent(self) -> None:
        """The server serves no time: the last offset stands, or none."""
        if not self._absent:
            self._alarm(Unavailable("ieee2030-no-time", "the server serves no time"))
        self._absent = True

    def now(self, ours: datetime) -> float:
        """What the server's clock shows at an instant of ours."""
        return ours.timestamp() + self.offset_seconds

    def ours(self, server: datetime) -> datetime:
        """The instant at which the server's clock shows another."""
        return server - timedelta(seconds=self.offset_seconds)

    def _keep(self) -> None:
        try:
            self._memory.put("offset", self.offset_seconds)
        except GridawareError as error:
            self._alarm(error)

    def _judge(self) -> None:
        offset = self.offset_seconds
        off = abs(offset) > ALARM_SECONDS
        if off and not self._off:
            side = "ahead of" if offset > 0 else "behind"
            told = f"the server's clock is {abs(offset):.0f} s {side} ours"
            self._alarm(Unavailable("ieee2030-clock-offset", told))
        self._off = off
