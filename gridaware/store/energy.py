"""Energy by line, job and GPU, in short periods that add up to any report.

Control writes the figures of each period (a minute, or less around events and changes of jobs)
once, so that a report over days is a sum in the database, and a restart loses nothing of it.
"""

from collections.abc import Iterator

from sqlalchemy import Engine

from gridaware.settlement.attribution import Line
from gridaware.settlement.energy_report import EnergyFigure, EnergyReport
from gridaware.store.schema import energy
from gridaware.store.times import epoch_milliseconds
from gridaware.store.upsert import upsert
from gridaware.store.writer import Row, StoreWriter

__all__ = ["GPU_LINE", "METER_LINE", "SqlEnergy"]

METER_LINE = "meter"
GPU_LINE = "gpu"
_OF_JOBS = {Line.JOB.value, Line.HELD_IDLE.value}


class SqlEnergy:
    """Writes one period's figures at a time."""

    def __init__(self, engine: Engine, writer: StoreWriter) -> None:
        self._writer = writer
        self._upsert = upsert(engine, energy)

    def append(self, report: EnergyReport) -> None:
        """Add the figures of one period; the next one starts where this ends.

        Raises:
            Unavailable: the disk refuses writes.
        """
        for row in _rows(report):
            self._writer.submit(self._upsert, row)


def _rows(report: EnergyReport) -> Iterator[Row]:
    yield _row(report, METER_LINE, report.meter)
    for figure in report.lines:
        if figure.name not in _OF_JOBS:  # the rows of the jobs add up to those two
            yield _row(report, figure.name, figure)
    for job in report.jobs:
        who = {"subject": job.job_id, "team": job.team, "tier": job.tier, "gpus": job.gpus}
        yield _row(report, Line.JOB.value, job.running) | who
        if job.held_idle.joules:
            yield _row(report, Line.HELD_IDLE.value, job.held_idle) | who
    for figure in report.gpus:
        yield _row(report, GPU_LINE, figure) | {"subject": figure.name}


def _row(report: EnergyReport, line: str, figure: EnergyFigure) -> dict[str, object]:
    return {
        "end_at": epoch_milliseconds(report.end),
        "line": line,
        "subject": "",
        "start_at": epoch_milliseconds(report.start),
        "team": "",
        "tier": "",
        "gpus": 1 if line == GPU_LINE else 0,
        "joules": float(figure.joules),
        "band_joules": float(figure.band_joules),
        "seconds": float(report.seconds),
        "covered_seconds": float(figure.coverage * report.seconds),
        "method": figure.method,
        "flags": " ".join(figure.flags),
    }
