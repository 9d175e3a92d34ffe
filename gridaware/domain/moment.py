"""A moment: the wall clock for people and signals, a steady clock for durations."""

from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["Moment"]


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """One reading of both clocks, taken together.

    ``wall`` is a UTC instant and may step; ``seconds`` is monotonic and never does. Windows of
    events are wall time, since that is what the grid means; every duration that we count ourselves
    (latencies, ramps, settling times, grace) is a difference of ``seconds``.
    """

    seconds: float
    wall: datetime

    def after(self, seconds: float) -> "Moment":
        """The moment ``seconds`` later on both clocks."""
        return Moment(self.seconds + seconds, self.wall + timedelta(seconds=seconds))
