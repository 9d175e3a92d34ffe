"""From ticks of the driver child to the samples that travel: quality, jobs, batches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from gridaware.clock import Clock
from gridaware.domain.reading import Quality
from gridaware.domain.wire import GpuSample, Sample, SampleBatch
from gridaware.node.actions import Inventory, LimitReading
from gridaware.node.childwire import GpuTick, Tick

__all__ = ["JobsOnNode", "Sampling"]

_MOST_SAMPLES = 10
"""In one frame."""
_BATCH_SECONDS = 0.5
"""A sample waits no longer than this for others."""
_HELD_SECONDS = 5.0
"""A last good value may stand in for this long; then the reading is missing."""
_PLAUSIBLE = 1.5
"""Readings above this share of the greatest limit are not power (notes/power.md §6, case 32)."""


class JobsOnNode(Protocol):
    """Who is on which GPU, as the job desk knows."""

    def owners(self) -> Mapping[str, tuple[str, int]]:
        """GPU → (job, attempt)."""
        ...

    def managed_pids(self) -> frozenset[int]:
        """Processes of jobs and their descendants."""
        ...


@dataclass(slots=True)
class _Gpu:
    """What was last known of a GPU."""

    most_watts: float
    power_watts: float = 0.0
    energy_joules: float | None = None
    good_at: float | None = None
    requested_watts: float = 0.0
    enforced_watts: float = 0.0
    pids: tuple[int, ...] = ()
    cap_binds: bool | None = None


class Sampling:
    """Turns ticks into batches: at 1 Hz each sample at once, faster ones up to ten together."""

    def __init__(
        self,
        node_id: str,
        clock: Clock,
        jobs: JobsOnNode | None,
        send: Callable[[SampleBatch], object],
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._jobs = jobs
        self._send = send
        self._driver_epoch = ""
        self._gpus: dict[str, _Gpu] = {}
        self._waiting: list[Sample] = []
        self._since = 0.0

    def found(self, inventory: Inventory) -> None:
        """A new driver child: what was known of GPUs that are still there is kept."""
        if inventory.driver_epoch != self._driver_epoch:
            self.flush()
        self._driver_epoch = inventory.driver_epoch
        for device in inventory.devices:
            most = device.limits.greatest_watts if device.limits is not None else float("inf")
            gpu = self._gpus.setdefault(device.gpu_id, _Gpu(most))
            gpu.most_watts = most
            if device.requested_watts is not None and device.enforced_watts is not None:
                gpu.requested_watts = device.requested_watts
                gpu.enforced_watts = device.enforced_watts

    def take(self, tick: Tick, *, sample_hz: float) -> None:
        """One tick; sends a batch when it is due."""
        wall = self._clock.wall()
        boot = self._clock.boot_seconds()
        at = wall - timedelta(seconds=max(0.0, boot - tick.boot_seconds))
        if not self._waiting:
            self._since = tick.boot_seconds
        self._waiting.append(self._sample(tick, at))
        due = tick.boot_seconds - self._since + 1 / sample_hz > _BATCH_SECONDS
        if due or len(self._waiting) >= _MOST_SAMPLES:
            self.flush()

    def flush(self) -> None:
        """Send what waits."""
        if self._waiting:
            self._send(SampleBatch(self._node_id, self._driver_epoch, tuple(self._waiting)))
            self._waiting.clear()

    def _sample(self, tick: Tick, at: datetime) -> Sample:
        owners = self._jobs.owners() if self._jobs is not None else {}
        managed = self._jobs.managed_pids() if self._jobs is not None else frozenset()
        return Sample(
            at,
            tuple(
                self._gpu_sample(gpu, tick.boot_seconds, owners.get(gpu.gpu_id), managed)
                for gpu in tick.gpus
            ),
        )

    def _gpu_sample(
        self,
        tick: GpuTick,
        at_boot: float,
        owner: tuple[str, int] | None,
        managed: frozenset[int],
    ) -> GpuSample:
        gpu = self._gpus.setdefault(tick.gpu_id, _Gpu(float("inf")))
        quality = _update(gpu, tick, at_boot)
        job_id, attempt = owner or (None, 0)
        missing = quality is Quality.MISSING
        return GpuSample(
            tick.gpu_id,
            0.0 if missing else gpu.power_watts,
            None if missing else gpu.energy_joules,
            gpu.enforced_watts,
            gpu.requested_watts,
            quality.value,
            job_id,
            attempt,
            any(pid not in managed for pid in gpu.pids),
            gpu.cap_binds,
        )


def _update(gpu: _Gpu, tick: GpuTick, at_boot: float) -> Quality:
    """Remember what the tick brings, and say how good the power in it is."""
    if tick.limits is not None:
        _update_limits(gpu, tick.limits)
        gpu.cap_binds = tick.cap_binds
    if tick.pids is not None:
        gpu.pids = tick.pids
    if tick.fresh and tick.power_watts is not None:
        if 0 <= tick.power_watts <= _PLAUSIBLE * gpu.most_watts:  # false for NaN, too
            gpu.power_watts = tick.power_watts
            gpu.energy_joules = tick.energy_joules
            gpu.good_at = at_boot
            return Quality.GOOD
        return Quality.MISSING if gpu.good_at is None else Quality.SUSPECT
    if tick.limits is not None and tick.limits.error_kind == "DeviceLost":
        gpu.good_at = None  # off the bus: what it drew last is no guess any more
    if gpu.good_at is None or at_boot - gpu.good_at > _HELD_SECONDS:
        return Quality.MISSING
    return Quality.HELD


def _update_limits(gpu: _Gpu, reading: LimitReading) -> None:
    if reading.requested_watts is not None and reading.enforced_watts is not None:
        gpu.requested_watts = reading.requested_watts
        gpu.enforced_watts = reading.enforced_watts
