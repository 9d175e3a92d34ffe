"""Meter before, meter after: the mean just before the notice, checked against the mean after.

The oldest of ERCOT's default baselines ("Demand Response Baseline Methodologies", §2.2: the
reading of the full interval that ends before the instruction). It suits loads that follow neither
weather nor weekday, which GPU clusters do not. The *after* half settles nothing here: it tells
whether the load itself moved during the event.
"""

from gridaware.domain.errors import InvalidInput
from gridaware.domain.event import Reference
from gridaware.domain.stepseries import StepSeries
from gridaware.settlement.baselines import BASELINES, History

__all__ = ["MEASURED_COVERAGE", "meter_after_watts", "meter_before_after"]

MEASURED_COVERAGE = 0.95
"""From this share of the window on, a reference counts as measured."""


@BASELINES.register("meter_before_after")
def meter_before_after(history: History) -> Reference:
    """Mean power over the window that ends at the notice."""
    notice = history.notice_at.timestamp()
    stretch = history.meter.integral(notice - history.window_seconds, notice)
    watts = stretch.mean_watts
    if watts is None:
        raise InvalidInput(
            "baseline-no-readings",
            f"the meter has no readings in the {history.window_seconds:g} s before the notice",
            window_seconds=history.window_seconds,
        )
    measured = stretch.coverage >= MEASURED_COVERAGE
    return Reference(
        watts=watts,
        method="meter_before_after",
        frozen_at=history.notice_at,
        window_seconds=history.window_seconds,
        quality="measured" if measured else "partial",
    )


def meter_after_watts(
    meter: StepSeries, restored_seconds: float, window_seconds: float
) -> float | None:
    """Mean over the window that begins once limits are back; None until it is complete."""
    stretch = meter.integral(restored_seconds, restored_seconds + window_seconds)
    return stretch.mean_watts if stretch.coverage >= MEASURED_COVERAGE else None
