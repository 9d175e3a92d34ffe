"""How much was delivered: settlement intervals, totals, and what came back afterwards."""

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import fsum

from gridaware.domain.stepseries import StepSeries

__all__ = ["Delivery", "Interval", "delivery"]

JOULES_PER_KWH = 3.6e6
REBOUND_MEAN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Interval:
    """One settlement interval. Intervals before the deadline are shown and not scored."""

    start: datetime
    end: datetime
    scored: bool
    limit_watts: float
    mean_watts: float | None
    """Measured; None without a reading."""
    owed_watts: float
    """The reduction owed: reference less limit."""
    delivered_watts: float
    shortfall_watts: float
    over_watts: float
    owed_joules: float
    delivered_joules: float
    coverage: float


@dataclass(frozen=True, slots=True)
class Delivery:
    """The window against what was owed. Totals are over the scored intervals."""

    intervals: tuple[Interval, ...]
    owed_kwh: float
    delivered_kwh: float
    """Over-delivery counts, and intervals above the reference count against it."""
    delivered_in_ramp_kwh: float
    """Between start and deadline; not owed."""
    performance_ratio: float | None
    """Delivered over owed; None where nothing was scored or owed."""
    mean_watts: float | None
    """Measured, over the scored part of the window."""
    highest_watts: float | None
    """Highest reading of the scored part."""
    seconds_above_limit: float
    """After the deadline, by the readings themselves."""
    intervals_missed: int
    """Scored intervals whose mean lies above the limit."""
    rebound_watts: float | None
    """Highest 10 s mean after the end above the reference; 0 = none, None = not yet measured."""


def delivery(
    meter: StepSeries,
    limits: StepSeries,
    reference_watts: float,
    *,
    start: float,
    ready: float,
    end: float,
    step: float,
) -> Delivery:
    """Measure a window ``[start, end)`` that is scored from ``ready`` on, all UTC seconds."""
    intervals = _intervals(
        meter, limits, reference_watts, start=start, ready=ready, end=end, step=step
    )
    scored = [row for row in intervals if row.scored]
    owed = fsum(row.owed_joules for row in scored)
    delivered = fsum(row.delivered_joules for row in scored)
    early = fsum(row.delivered_joules for row in intervals if not row.scored)
    return Delivery(
        intervals=intervals,
        owed_kwh=owed / JOULES_PER_KWH,
        delivered_kwh=delivered / JOULES_PER_KWH,
        delivered_in_ramp_kwh=early / JOULES_PER_KWH,
        performance_ratio=delivered / owed if owed > 0 else None,
        mean_watts=meter.mean_watts(ready, end),
        highest_watts=meter.highest_watts(ready, end),
        seconds_above_limit=_seconds_above(meter, limits, ready, end),
        intervals_missed=sum(row.shortfall_watts > 0 for row in scored),
        rebound_watts=_rebound(meter, reference_watts, end),
    )


def _intervals(
    meter: StepSeries,
    limits: StepSeries,
    reference_watts: float,
    *,
    start: float,
    ready: float,
    end: float,
    step: float,
) -> tuple[Interval, ...]:
    """The window in intervals: one up to the deadline, then one every ``step`` seconds.

    The last one is as long as what is left. An interval without a reading delivered nothing that
    could be proven: its delivered energy is 0 and its coverage says why. Where coverage is partial
    only the covered part counts as delivered; an excess over the reference counts for the whole.
    """
    edges = [start]
    if ready > start:
        edges.append(ready)
    while edges[-1] < end:
        edges.append(min(edges[-1] + step, end))
    rows = []
    for stretch in meter.resample(edges):
        limit = limits.mean_watts(stretch.start_seconds, stretch.end_seconds) or 0.0
        mean = stretch.mean_watts
        owed = max(reference_watts - limit, 0.0)
        seen = 0.0 if mean is None else reference_watts - mean
        delivered = seen * (stretch.coverage if seen > 0 else 1.0)
        rows.append(
            Interval(
                start=datetime.fromtimestamp(stretch.start_seconds, UTC),
                end=datetime.fromtimestamp(stretch.end_seconds, UTC),
                scored=stretch.start_seconds >= ready,
                limit_watts=limit,
                mean_watts=mean,
                owed_watts=owed,
                delivered_watts=delivered,
                shortfall_watts=max(owed - delivered, 0.0),
                over_watts=max(delivered - owed, 0.0),
                owed_joules=owed * stretch.seconds,
                delivered_joules=delivered * stretch.seconds,
                coverage=stretch.coverage,
            )
        )
    return tuple(rows)


def _seconds_above(meter: StepSeries, limits: StepSeries, start: float, end: float) -> float:
    edges = [start, *(t for t in limits.times if start < t < end), end]
    parts = []
    for a, b in pairwise(edges):
        limit = limits.value_at(a)
        if limit is not None:
            parts.append(meter.seconds_above(limit, a, b))
    return fsum(parts)


def _rebound(meter: StepSeries, reference_watts: float, end: float) -> float | None:
    last = meter.times[-1] if len(meter) else end
    means = []
    at = end
    while at + REBOUND_MEAN_SECONDS <= last:
        mean = meter.mean_watts(at, at + REBOUND_MEAN_SECONDS)
        if mean is not None:
            means.append(mean)
        at += REBOUND_MEAN_SECONDS / 2
    return max(max(means) - reference_watts, 0.0) if means else None
