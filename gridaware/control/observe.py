"""Reduces what arrives between two ticks to one Observation, the only thing the machine sees."""

from collections.abc import Collection
from dataclasses import dataclass, field

from gridaware.control.meters import Devices, MeterOrder
from gridaware.domain.moment import Moment
from gridaware.domain.reading import (
    EnergyReading,
    GpuObservation,
    JobObservation,
    NodeObservation,
    Observation,
    Quality,
    Reading,
)
from gridaware.domain.target import Overhead
from gridaware.domain.wire import GpuSample, JobProgress, SampleBatch

__all__ = ["Observer"]

NODE_STALE_SECONDS = 5.0
"""A sum of devices that leaves out a node, or takes it at an older reading, is no reading."""


@dataclass(slots=True)
class _Gpu:
    last: GpuSample
    watts: list[float] = field(default_factory=list)
    """Of the samples since the last tick."""


@dataclass(slots=True)
class _Node:
    driver_epoch: str = ""
    arrived_seconds: float = -1e9
    gpus: dict[str, _Gpu] = field(default_factory=dict)


class Observer:
    """Collects samples, progress and meter readings; hands them over once a tick.

    Args:
        meters: the site's, in their order; None = only the sum of its devices.
    """

    def __init__(self, meters: MeterOrder | None = None) -> None:
        self._nodes: dict[str, _Node] = {}
        self._jobs: dict[tuple[str, int], dict[tuple[str, int], tuple[JobProgress, float]]] = {}
        self._meters = meters or MeterOrder()
        self._ray: tuple[float, float] | None = None

    def on_samples(self, batch: SampleBatch, seconds: float) -> None:
        """Samples of one node came in."""
        node = self._nodes.setdefault(batch.node_id, _Node())
        node.driver_epoch, node.arrived_seconds = batch.driver_epoch, seconds
        for sample in batch.samples:
            for gpu in sample.gpus:
                track = node.gpus.get(gpu.gpu_id)
                if track is None:
                    track = node.gpus[gpu.gpu_id] = _Gpu(gpu)
                track.last = gpu
                if gpu.quality == Quality.GOOD:
                    track.watts.append(gpu.power_watts)

    def on_progress(self, progress: JobProgress, seconds: float) -> None:
        """A rank of a job reported its step."""
        ranks = self._jobs.setdefault((progress.job_id, progress.attempt), {})
        ranks[progress.node_id, progress.rank] = (progress, seconds)

    def on_job_ended(self, job_id: str, attempt: int) -> None:
        """Nothing more will come of this attempt."""
        self._jobs.pop((job_id, attempt), None)

    def on_node_gone(self, node_id: str) -> None:
        """The node was removed; its last readings are forgotten."""
        self._nodes.pop(node_id, None)

    def on_meter(
        self, name: str, reading: Reading, energy: EnergyReading | None, seconds: float
    ) -> None:
        """A meter of the site was read."""
        self._meters.take(name, reading, energy, seconds)

    def on_meter_failed(self, name: str, message: str) -> None:
        """A meter of the site could not be read, and why."""
        self._meters.fail(name, message)

    def on_ray(self, counts: tuple[float, float] | None) -> None:
        """What Ray says is free and there in all; None when it did not answer."""
        self._ray = counts

    def observe(
        self, moment: Moment, overhead: Overhead, known_nodes: Collection[str] = ()
    ) -> Observation:
        """Everything since the last call, reduced.

        Args:
            moment: now.
            overhead: between the GPUs and the meters, to judge them by and to stand in for them.
            known_nodes: nodes whose GPUs belong to the site, heard of or not.
        """
        nodes = tuple(
            NodeObservation(
                node_id=node_id,
                age_seconds=round(moment.seconds - node.arrived_seconds, 3),
                gpus=tuple(_reduce(gpu, node.driver_epoch) for gpu in node.gpus.values()),
            )
            for node_id, node in self._nodes.items()
        )
        gpu_watts = sum(gpu.power_watts for node in nodes for gpu in node.gpus)
        fresh = {node.node_id for node in nodes if node.age_seconds <= NODE_STALE_SECONDS}
        whole = bool(fresh) and fresh.issuperset(known_nodes)
        devices = Devices(gpu_watts, overhead.meter_watts(gpu_watts), whole)
        choice = self._meters.choose(moment, devices)
        return Observation(
            moment=moment,
            meter=choice.reading,
            nodes=nodes,
            jobs=tuple(self._slowest_ranks(moment)),
            meter_joules=choice.energy,
            ray_free_gpus=self._ray[0] if self._ray else None,
            ray_total_gpus=self._ray[1] if self._ray else None,
            meters=choice.states,
        )

    def _slowest_ranks(self, moment: Moment) -> list[JobObservation]:
        jobs = []
        for (job_id, attempt), ranks in self._jobs.items():
            slowest, seconds = min(ranks.values(), key=lambda item: item[0].step)
            jobs.append(
                JobObservation(
                    job_id=job_id,
                    attempt=attempt,
                    step=slowest.step,
                    steps_per_second=min(p.steps_per_second for p, _ in ranks.values()),
                    age_seconds=round(moment.seconds - seconds, 3),
                    busy=slowest.busy,
                )
            )
        return jobs


def _reduce(gpu: _Gpu, driver_epoch: str) -> GpuObservation:
    sample, fresh = gpu.last, gpu.watts
    quality = Quality(sample.quality)
    if not fresh and quality is Quality.GOOD:
        quality = Quality.HELD
    watts = sum(fresh) / len(fresh) if fresh else sample.power_watts
    gpu.watts = []
    return GpuObservation(
        gpu_id=sample.gpu_id,
        power_watts=round(watts, 1),
        energy_joules=sample.energy_joules,
        energy_epoch=driver_epoch,
        enforced_limit_watts=sample.enforced_watts,
        requested_limit_watts=sample.requested_watts,
        quality=quality,
        job_id=sample.job_id,
        attempt=sample.attempt,
        unmanaged=sample.unmanaged,
        cap_binds=sample.cap_binds,
    )
