"""How fast the site responded: latencies, ramp rates, and the curve that shows it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from gridaware.domain.event import Clocks
from gridaware.domain.stepseries import StepSeries
from gridaware.domain.target import Ramp

__all__ = [
    "RAMP_WINDOW_SECONDS",
    "Latencies",
    "NodeClock",
    "NodeLatency",
    "PowerCurve",
    "Rates",
    "latencies",
    "node_latencies",
    "power_curve",
    "ramp_rates",
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
class Rates:
    """Steepest change between the means of neighbouring 10 s windows, watts a minute."""

    down_watts_per_minute: float | None
    up_watts_per_minute: float | None
    down_limit_watts_per_minute: float | None
    up_limit_watts_per_minute: float | None
    down_kept: bool
    up_kept: bool


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Power at the meter and what was owed, as drawn. Gaps are None."""

    start: datetime
    step_seconds: float
    """0 where the points are the readings themselves, else each is a mean over so long."""
    offsets_seconds: tuple[float, ...]
    watts: tuple[float | None, ...]
    limit_offsets_seconds: tuple[float, ...]
    """Corners of the stepped limit."""
    limit_watts: tuple[float, ...]


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


def power_curve(
    meter: StepSeries, limits: StepSeries, start: float, end: float, points: int = 1200
) -> PowerCurve:
    """What a figure needs: the readings where they are few enough, else means of equal windows."""
    inside = [(t, w) for t, w in zip(meter.times, meter.watts, strict=True) if start <= t <= end]
    step = 0.0
    rows: list[tuple[float, float | None]] = []
    if len(inside) <= points:
        for t, watts in inside:
            if rows and not meter.integral(rows[-1][0] + start, t).covered_seconds:
                rows.append((rows[-1][0], None))
            rows.append((t - start, watts))
    else:
        step = (end - start) / points
        edges = [start + i * step for i in range(points + 1)]
        rows = [
            ((s.start_seconds + s.end_seconds) / 2 - start, s.mean_watts)
            for s in meter.resample(edges)
        ]
    return PowerCurve(
        start=datetime.fromtimestamp(start, UTC),
        step_seconds=step,
        offsets_seconds=tuple(at for at, _ in rows),
        watts=tuple(watts for _, watts in rows),
        limit_offsets_seconds=tuple(t - start for t in limits.times),
        limit_watts=limits.watts,
    )


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
