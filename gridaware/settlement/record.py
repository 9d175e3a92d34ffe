"""The response record: the four clocks of every GPU to which an event gave a new limit.

* **received**: the signal arrived; the zero of all others, the same for all.
* **decided**: the frames of the event's first decision were on their way; the same for all.
* **accepted**: the GPU's enforced limit was read back as asked. The agent counts on its own boot
  clock from the frame's receipt to each read-back. Where it is known, the GPU of an acknowledgement
  that was read back last is placed at the acknowledgement's *arrival*, and the others so much
  before it as they were read back earlier: no figure leaves out the way back over the network.
* **confirmed**: the first reading of the GPU's own power, after that, from which on it stayed at or
  below its limit for :data:`STAY_SECONDS`. Its sensor may be wrong by 5 %, so a reading within
  :data:`WITHIN_SHARE` of the limit counts.

Rows of every GPU are kept up to :data:`MOST_ROWS`, beyond that those of the slowest; the spread is
over all of them.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gridaware.domain.reading import NodeObservation, Quality
from gridaware.domain.wire import Acknowledged

__all__ = [
    "BOUNDS_SECONDS",
    "ClockSpread",
    "GpuResponse",
    "Recorder",
    "ResponseRecord",
]

STAY_SECONDS = 1.0
"""Silicon that undershoots has settled within half of it."""
WITHIN_SHARE = 0.06
"""5 % of sensor gain (arXiv 2312.02741) and the noise of one reading."""
ACCEPTED_WATTS = 1.0
"""An enforced limit this far above the one asked for is another limit."""
MOST_ROWS = 256
BOUNDS_SECONDS = (
    0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0,
)  # fmt: skip
"""Upper bounds of the counts of a spread."""


@dataclass(frozen=True, slots=True)
class GpuResponse:
    """One GPU's clocks, milliseconds since *received*; None = not reached."""

    node_id: str
    gpu_id: str
    limit_watts: float
    """That the first decision gave it."""
    decided_ms: float | None
    accepted_ms: float | None
    confirmed_ms: float | None
    placed_by: str
    """``agent``: accepted by its read-back; ``arrival``: by the acknowledgement's arrival alone."""


@dataclass(frozen=True, slots=True)
class ClockSpread:
    """One clock over all GPUs, milliseconds since *received*."""

    clock: str
    gpus: int
    reached: int
    p50_ms: float | None
    p99_ms: float | None
    """By nearest rank."""
    max_ms: float | None
    sum_ms: float
    counts: tuple[int, ...]
    """GPUs up to each of :data:`BOUNDS_SECONDS`, and beyond the last."""


@dataclass(frozen=True, slots=True)
class ResponseRecord:
    """What a response was, GPU by GPU."""

    gpus: int
    clocks: tuple[ClockSpread, ...]
    """``decided``, ``accepted``, ``confirmed``."""
    rows: tuple[GpuResponse, ...]
    """Slowest first."""
    rows_left_out: int
    bounds_seconds: tuple[float, ...] = BOUNDS_SECONDS


class _Gpu:
    """One GPU while its clocks run."""

    __slots__ = ("accepted", "below_since", "by_agent", "confirmed", "limit_watts", "node_id")

    def __init__(self, node_id: str, limit_watts: float) -> None:
        self.node_id = node_id
        self.limit_watts = limit_watts
        self.accepted: float | None = None
        self.by_agent = False
        self.below_since: float | None = None
        self.confirmed: float | None = None


class Recorder:
    """Watches the response to one event; all times are monotonic seconds of the controller.

    Args:
        decision_id: its first decision.
        limits_watts: what that gave to each GPU, by node.
        sequences: by node, of the frame that said so; an acknowledgement of a later one counts too.
    """

    def __init__(
        self,
        decision_id: str,
        limits_watts: Mapping[str, Mapping[str, float]],
        sequences: Mapping[str, int],
    ) -> None:
        self.decision_id = decision_id
        self._sequences = dict(sequences)
        self._gpus = {
            gpu_id: _Gpu(node_id, watts)
            for node_id, limits in limits_watts.items()
            for gpu_id, watts in limits.items()
        }
        self._open = set(self._gpus)

    @property
    def running(self) -> bool:
        """Whether a clock still runs."""
        return bool(self._open)

    def close(self) -> None:
        """Nothing that comes later is the response."""
        self._open.clear()

    def acknowledged(self, ack: Acknowledged, now_seconds: float) -> None:
        """Limits were read back on a node."""
        due = self._sequences.get(ack.node_id)
        if due is None or ack.sequence < due or not self._open:
            return
        read_back = [r.after_seconds for r in ack.results if r.after_seconds is not None]
        last = max(read_back, default=0.0)
        for result in ack.results:
            gpu = self._gpus.get(result.gpu_id)
            enforced = result.enforced_watts
            if gpu is None or gpu.accepted is not None or enforced is None:
                continue
            if enforced <= result.asked_watts + ACCEPTED_WATTS:
                after = result.after_seconds
                gpu.by_agent = after is not None
                gpu.accepted = now_seconds - (0.0 if after is None else last - after)

    def observed(
        self,
        nodes: Iterable[NodeObservation],
        limits_watts: Mapping[str, Mapping[str, float]],
        now_seconds: float,
    ) -> None:
        """Power was read.

        Args:
            nodes: the readings.
            limits_watts: in force now, by node: the loop moves them meanwhile.
            now_seconds: when they came together.
        """
        if not self._open:
            return
        for node in nodes:
            now_held = limits_watts.get(node.node_id, {})
            at = now_seconds - node.age_seconds
            for seen in node.gpus:
                gpu = self._gpus.get(seen.gpu_id)
                if gpu is None or seen.gpu_id not in self._open or gpu.accepted is None:
                    continue
                if at < gpu.accepted or seen.quality is not Quality.GOOD:
                    continue
                limit = max(gpu.limit_watts, now_held.get(seen.gpu_id, 0.0))
                if seen.power_watts > limit * (1.0 + WITHIN_SHARE):
                    gpu.below_since = None
                elif gpu.below_since is None:
                    gpu.below_since = at
                elif at - gpu.below_since >= STAY_SECONDS:
                    gpu.confirmed = gpu.below_since
                    self._open.discard(seen.gpu_id)

    def accepted_by_gpu(self) -> list[tuple[str, str, float | None]]:
        """(node, GPU, when its limit was read back) of every GPU."""
        return [(gpu.node_id, gpu_id, gpu.accepted) for gpu_id, gpu in self._gpus.items()]

    def record(
        self, received_seconds: float, decided_seconds: float | None
    ) -> ResponseRecord | None:
        """The record so far; None where no GPU got a new limit."""
        if not self._gpus:
            return None
        decided = _since(received_seconds, decided_seconds)
        rows = [
            GpuResponse(
                node_id=gpu.node_id,
                gpu_id=gpu_id,
                limit_watts=gpu.limit_watts,
                decided_ms=decided,
                accepted_ms=_since(received_seconds, gpu.accepted),
                confirmed_ms=_since(received_seconds, gpu.confirmed),
                placed_by="agent" if gpu.by_agent else "arrival",
            )
            for gpu_id, gpu in self._gpus.items()
        ]
        rows.sort(key=_slowness, reverse=True)
        return ResponseRecord(
            gpus=len(rows),
            clocks=(
                _spread("decided", [row.decided_ms for row in rows]),
                _spread("accepted", [row.accepted_ms for row in rows]),
                _spread("confirmed", [row.confirmed_ms for row in rows]),
            ),
            rows=tuple(rows[:MOST_ROWS]),
            rows_left_out=max(len(rows) - MOST_ROWS, 0),
        )


def _since(start: float, end: float | None) -> float | None:
    return None if end is None else round((end - start) * 1000, 3)


def _slowness(row: GpuResponse) -> tuple[float, float, str]:
    never = math.inf
    accepted = never if row.accepted_ms is None else row.accepted_ms
    confirmed = never if row.confirmed_ms is None else row.confirmed_ms
    return confirmed, accepted, row.gpu_id


def _spread(clock: str, values: Sequence[float | None]) -> ClockSpread:
    reached = sorted(value for value in values if value is not None)
    counts = [0] * (len(BOUNDS_SECONDS) + 1)
    for value in reached:
        counts[bisect_left(BOUNDS_SECONDS, value / 1000)] += 1
    return ClockSpread(
        clock=clock,
        gpus=len(values),
        reached=len(reached),
        p50_ms=_rank(reached, 0.5),
        p99_ms=_rank(reached, 0.99),
        max_ms=reached[-1] if reached else None,
        sum_ms=round(math.fsum(reached), 3),
        counts=tuple(counts),
    )


def _rank(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that is at or above that share of all of them."""
    if not ordered:
        return None
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
