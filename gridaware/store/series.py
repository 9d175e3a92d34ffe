"""Power series and raw energy counters, as control writes them."""

from datetime import datetime

from sqlalchemy import Engine

from gridaware.domain.reading import GpuObservation
from gridaware.store.schema import gpu_energy, series
from gridaware.store.times import epoch_milliseconds
from gridaware.store.upsert import upsert
from gridaware.store.writer import StoreWriter

__all__ = ["SqlGpuEnergy", "SqlSeries"]


class SqlSeries:
    """Power by name: ``meter target gpu_total baseline``, ``job:<id>``, ``node:<id>``."""

    def __init__(self, engine: Engine, writer: StoreWriter) -> None:
        self._writer = writer
        self._upsert = upsert(engine, series)

    def append(self, name: str, at: datetime, watts: float | None, quality: str = "good") -> None:
        """Add one point; a second one in the same millisecond replaces the first.

        ``watts`` None = from now on nothing holds (a target that was lifted).

        Raises:
            Unavailable: the disk refuses writes; nothing was queued.
        """
        row = {
            "series": name,
            "at": epoch_milliseconds(at),
            "watts": watts,
            "quality": str(quality),
        }
        self._writer.submit(self._upsert, row)


class SqlGpuEnergy:
    """Counter readings: once a minute for each GPU, and wherever it changes its job."""

    def __init__(self, engine: Engine, writer: StoreWriter) -> None:
        self._writer = writer
        self._upsert = upsert(engine, gpu_energy)

    def append(self, gpu: GpuObservation, at: datetime) -> None:
        """Add what one GPU showed at ``at``; its job holds the GPU from then on.

        Raises:
            Unavailable: the disk refuses writes; nothing was queued.
        """
        row = {
            "gpu_id": gpu.gpu_id,
            "at": epoch_milliseconds(at),
            "joules": gpu.energy_joules,
            "epoch": gpu.energy_epoch,
            "power_watts": gpu.power_watts,
            "enforced_limit_watts": gpu.enforced_limit_watts,
            "requested_limit_watts": gpu.requested_limit_watts,
            "quality": str(gpu.quality),
            "job_id": gpu.job_id,
            "attempt": gpu.attempt,
            "shares": gpu.shares,
            "unmanaged": int(gpu.unmanaged),
        }
        self._writer.submit(self._upsert, row)
