"""The answer of ``/reports/energy``: an energy report made of sums of stored periods."""

from collections.abc import Iterable
from datetime import datetime
from math import fsum
from typing import Any

from gridaware.settlement.attribution import Line
from gridaware.settlement.energy_report import JOULES_PER_KWH
from gridaware.store.energy import GPU_LINE, METER_LINE
from gridaware.store.reader import EnergySum

__all__ = ["PARTS", "energy_answer"]

Json = dict[str, Any]
PARTS = {"total": "lines", "job": "jobs", "team": "teams", "gpu": "gpus"}
"""What a report can be asked by, and the part of it that answers."""
_OF_JOBS = (Line.JOB.value, Line.HELD_IDLE.value)


def energy_answer(
    sums: Iterable[EnergySum], start: datetime, end: datetime, by: str | None = None
) -> Json:
    """Energy of the whole periods within what was asked; ``by`` leaves the other parts out.

    ``lines`` sum to ``meter``. The words are those of
    :class:`gridaware.settlement.energy_report.EnergyReport`; ``start`` and ``end`` bound the
    periods that were found, null where there was none.
    """
    sums = list(sums)
    meter = [s for s in sums if s.line == METER_LINE]
    parts = {
        "lines": [_figure(line.value, [s for s in sums if s.line == line.value]) for line in Line],
        "jobs": _jobs(sums),
        "teams": _teams(sums),
        "gpus": [
            _figure(gpu_id, group)
            for gpu_id, group in _grouped((s.subject, s) for s in sums if s.line == GPU_LINE)
        ],
    }
    return {
        "asked_start": start,
        "asked_end": end,
        "start": min((s.start for s in meter), default=None),
        "end": max((s.end for s in meter), default=None),
        "meter": _figure("meter", meter),
        **(parts if by is None else {PARTS[by]: parts[PARTS[by]]}),
    }


def _jobs(sums: list[EnergySum]) -> list[Json]:
    rows = []
    for job_id, group in _grouped((s.subject, s) for s in sums if s.line in _OF_JOBS):
        joules = fsum(s.joules for s in group)
        row = {
            "job_id": job_id,
            "team": group[-1].team,
            "tier": group[-1].tier,
            "gpus": max(s.gpus for s in group),
            "energy_joules": joules,
            "energy_kwh": joules / JOULES_PER_KWH,
            "running": _figure("running", _of(group, Line.JOB)),
            "held_idle": _figure("held_idle", _of(group, Line.HELD_IDLE)),
        }
        rows.append(row)
    return rows


def _teams(sums: list[EnergySum]) -> list[Json]:
    rows = []
    for team, group in _grouped((s.team, s) for s in sums if s.line in _OF_JOBS):
        joules = fsum(s.joules for s in group)
        row = {
            "team": team,
            "jobs": len({s.subject for s in group}),
            "running_joules": fsum(s.joules for s in _of(group, Line.JOB)),
            "held_idle_joules": fsum(s.joules for s in _of(group, Line.HELD_IDLE)),
            "energy_joules": joules,
            "kwh": joules / JOULES_PER_KWH,
            "band_joules": fsum(s.band_joules for s in group),
        }
        rows.append(row)
    return rows


def _of(group: list[EnergySum], line: Line) -> list[EnergySum]:
    return [s for s in group if s.line == line.value]


def _grouped(pairs: Iterable[tuple[str, EnergySum]]) -> list[tuple[str, list[EnergySum]]]:
    groups: dict[str, list[EnergySum]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return sorted(groups.items())


def _figure(name: str, group: list[EnergySum]) -> Json:
    joules = fsum(s.joules for s in group)
    seconds = fsum(s.seconds for s in group)
    methods = {s.method for s in group}
    return {
        "name": name,
        "joules": joules,
        "kwh": joules / JOULES_PER_KWH,
        "method": methods.pop() if len(methods) == 1 else ("mixed" if methods else None),
        "coverage": fsum(s.covered_seconds for s in group) / seconds if seconds else None,
        "band_joules": fsum(s.band_joules for s in group),
        "flags": sorted({flag for s in group for flag in s.flags.split()}),
    }
