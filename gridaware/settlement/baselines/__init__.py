"""Baselines: what the site would have drawn, one file for each way of telling.

A baseline is a function of the meter's history and the instant of the first notice. Control
freezes its :class:`~gridaware.domain.event.Reference` at that instant and every event that
overlaps shares it: a second notice inside the first shed must not compound the cut
(``programmes.md`` §7). Add one by writing a file here and registering its function.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gridaware.domain.event import Reference
from gridaware.domain.registry import Registry
from gridaware.domain.stepseries import StepSeries

__all__ = ["BASELINES", "Baseline", "History", "reference_for"]


@dataclass(frozen=True, slots=True)
class History:
    """What a baseline may look at."""

    meter: StepSeries
    """Power at the site meter; UTC seconds."""
    notice_at: datetime
    """The first notice of the event or of the overlapping events it belongs to."""
    window_seconds: float = 300.0
    """How far back the method looks, where it has a window."""


class Baseline(Protocol):
    """One way of telling what would have been drawn."""

    def __call__(self, history: History) -> Reference:
        """The reference as of the notice.

        Its ``quality`` is ``measured`` where at least 95 % of the window has readings, else
        ``partial``.

        Raises:
            InvalidInput: no reading lies in the window (``baseline-no-readings``).
        """
        ...


BASELINES: Registry[Baseline] = Registry("baseline")


def reference_for(method: str, history: History) -> Reference:
    """The reference by the method of that name, as a programme states it.

    Raises:
        NotFound: no baseline is called that.
        InvalidInput: no reading lies in the window.
    """
    return BASELINES.get(method)(history)


from gridaware.settlement.baselines import meter_before_after as _  # noqa: E402, F401 - registers
