"""Writes what was measured: power series each second, energy by line each minute."""

import logging

from gridaware.control.state import State
from gridaware.domain.errors import GridawareError
from gridaware.domain.reading import Observation
from gridaware.settlement.attribution import Snapshot
from gridaware.settlement.energy_report import energy_report
from gridaware.store.controller import ControllerStore
from gridaware.wiring.settle import Settler

__all__ = ["SeriesWriter"]

POINT_SECONDS = 0.95
PERIOD_SECONDS = 60.0
_log = logging.getLogger(__name__)


class SeriesWriter:
    """Turns ticks into rows of the store."""

    def __init__(self, store: ControllerStore, settler: Settler) -> None:
        self._store = store
        self._settler = settler
        self._point_seconds = -1e9
        self._period: Snapshot | None = None

    def on_tick(self, observation: Observation, state: State) -> None:
        """Write the points that are due; a disk that refuses costs points, never the loop."""
        try:
            self._write_points(observation, state)
            self._write_period(observation)
        except GridawareError as error:
            _log.debug("readings were not written: %s", error)

    def close(self) -> None:
        """Write the period that has begun."""
        begun = self._period
        if begun is not None:
            end = self._settler.book.snapshot()
            if end.seconds > begun.seconds:
                self._store.energy.append(energy_report(begun, end))

    def _write_points(self, observation: Observation, state: State) -> None:
        now = observation.moment
        if now.seconds - self._point_seconds < POINT_SECONDS:
            return
        self._point_seconds = now.seconds
        series, at = self._store.series, now.wall
        series.append("meter", at, observation.meter.watts, observation.meter.quality)
        series.append("gpu_total", at, round(observation.gpu_watts, 1))
        series.append("target", at, state.target_watts)
        references = [
            t.event.reference.watts
            for t in state.events.values()
            if t.event.reference is not None and t.event.state.acting
        ]
        series.append("baseline", at, max(references, default=None))
        for node in observation.nodes:
            watts = sum(gpu.power_watts for gpu in node.gpus)
            series.append(f"node:{node.node_id}", at, round(watts, 1))
        for job_id, track in state.jobs.items():
            if track.job.state.on_gpus:
                series.append(f"job:{job_id}", at, round(track.draw_watts, 1))

    def _write_period(self, observation: Observation) -> None:
        begun = self._period
        if begun is None:
            self._period = self._settler.book.snapshot()
        elif observation.moment.seconds - begun.seconds >= PERIOD_SECONDS:
            self._period = self._settler.book.snapshot()
            self._store.energy.append(energy_report(begun, self._period))
