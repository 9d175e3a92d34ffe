"""How fast and how far the site responded: latencies, settlement intervals, ramp rates."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from gridaware.domain.event import Clocks
from gridaware.domain.stepseries import StepSeries
from gridaware.domain.target import Ramp

__all__ = [
    "RAMP_WINDOW_SECONDS",
    "Interval",
    "Latencies",
    "NodeClock",
    "NodeLatency",
    "Rates",
    "latencies",
    "node_latencies",
    "ramp_rates",
    "settlement_intervals",
]

RAMP_WINDOW_SECONDS = 10.0
RAMP_TOLERANCE = 0.05
"""Measured ramps may exceed their limit by this share before they count as too fast."""


@dataclass(frozen=True, slots=True)
class NodeClock:
    """When one GPU's limit was read back as asked, monotonic seconds; None = never."""

    node_id: str
    gpu_id: str
    accepted_seconds: float | None


@dataclass(frozen=True, slots=True)
class NodeLatency:
    """Received to read back, over the GPUs of one node."""

    node_id: str
    gpus: int
    accepted: int
    median_ms: float | None
    slowest_ms: float | None


@dataclass(frozen=True, slots=True)
class Latencies:
    """The four clocks as milliseconds since the signal was received; None = not reached."""

    decided_ms: float | None
    accepted_ms: float | None
    confirmed_ms: float | None


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
class Rates:
    """Steepest change between the means of neighbouring 10 s windows, watts a minute."""

    down_watts_per_minute: float | None
    up_watts_per_minute: float | None
    down_limit_watts_per_minute: float | None
    up_limit_watts_per_minute: float | None
    down_kept: bool
    up_kept: bool


def latencies(clocks: Clocks) -> Latencies:
    """Milliseconds from *received* to each later clock."""
    return Latencies(
        _ms(clocks.received_seconds, clocks.decided_seconds),
        _ms(clocks.received_seconds, clocks.accepted_seconds),
        _ms(clocks.received_seconds, clocks.confirmed_seconds),
    )


def node_latencies(clocks: Clocks, rows: Iterable[NodeClock]) -> tuple[NodeLatency, ...]:
    """One row a node."""
    by_node: dict[str, list[float | None]] = {}
    for row in rows:
        lag = _ms(clocks.received_seconds, row.accepted_seconds)
        by_node.setdefault(row.node_id, []).append(lag)
    result = []
    for node_id, lags in sorted(by_node.items()):
        done = [lag for lag in lags if lag is not None]
        result.append(
            NodeLatency(
                node_id,
                len(lags),
                len(done),
                median(done) if done else None,
                max(done, default=None),
            )
        )
    return tuple(result)


def settlement_intervals(
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
    the mean of the covered part stands for the whole.
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
        delivered = 0.0 if mean is None else reference_watts - mean
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


def ramp_rates(meter: StepSeries, start: float, end: float, ramp: Ramp) -> Rates:
    """Steepest ramps seen between ``start`` and ``end``, against their limits."""
    window = RAMP_WINDOW_SECONDS
    down, up = [], []
    at = start
    while at + window <= end:
        earlier, later = meter.mean_watts(at - window, at), meter.mean_watts(at, at + window)
        if earlier is not None and later is not None:
            change = (later - earlier) * 60 / window
            down.append(max(-change, 0.0))
            up.append(max(change, 0.0))
        at += 1.0
    steepest_down, steepest_up = max(down, default=None), max(up, default=None)
    return Rates(
        steepest_down,
        steepest_up,
        ramp.down_watts_per_minute,
        ramp.up_watts_per_minute,
        _kept(steepest_down, ramp.down_watts_per_minute),
        _kept(steepest_up, ramp.up_watts_per_minute),
    )


def _kept(seen: float | None, limit: float | None) -> bool:
    return seen is None or limit is None or seen <= limit * (1 + RAMP_TOLERANCE)


def _ms(start: float, end: float | None) -> float | None:
    return None if end is None else (end - start) * 1000
