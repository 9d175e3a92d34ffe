"""The answer of ``/reports/energy``: sums of stored periods, by whatever was asked for."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import fsum
from typing import Any

from gridaware.settlement.attribution import Line
from gridaware.settlement.energy_report import JOULES_PER_KWH
from gridaware.store.energy import GPU_LINE, METER_LINE
from gridaware.store.reader import EnergySum

__all__ = ["energy_answer"]

Json = dict[str, Any]
_OF_JOBS = {Line.JOB.value, Line.HELD_IDLE.value}


def energy_answer(sums: Iterable[EnergySum], by: str, start: datetime, end: datetime) -> Json:
    """Energy of the whole periods within what was asked.

    ``site`` are the lines that sum to ``meter``; ``lines`` are the same joules by job, team or
    GPU (``total`` repeats the site's). ``start`` and ``end`` bound the periods that were found.
    """
    sums = list(sums)
    meter = [s for s in sums if s.line == METER_LINE]
    site = _lines(sums)
    found = {
        "start": min((s.start for s in meter), default=None),
        "end": max((s.end for s in meter), default=None),
    }
    return {
        "by": by,
        "asked_start": start,
        "asked_end": end,
        **found,
        "meter": _figure(meter),
        "site": site,
        "lines": {
            "total": lambda: site,
            "gpu": lambda: _gpus(sums),
            "job": lambda: _jobs(sums),
        }.get(by, lambda: _teams(sums))(),
    }


def _lines(sums: list[EnergySum]) -> list[Json]:
    return [
        {"line": line.value} | _figure([s for s in sums if s.line == line.value]) for line in Line
    ]


def _gpus(sums: list[EnergySum]) -> list[Json]:
    groups = _grouped((s.subject, s) for s in sums if s.line == GPU_LINE)
    return [{"gpu_id": gpu_id} | _figure(group) for gpu_id, group in groups.items()]


def _jobs(sums: list[EnergySum]) -> list[Json]:
    groups = _grouped((s.subject, s) for s in sums if s.line in _OF_JOBS)
    return [
        {"job_id": job_id, "team": group[-1].team, "tier": group[-1].tier}
        | _figure(group)
        | _held(group)
        for job_id, group in groups.items()
    ]


def _teams(sums: list[EnergySum]) -> list[Json]:
    groups = _grouped((s.team, s) for s in sums if s.line in _OF_JOBS)
    return [
        {"team": team, "jobs": len({s.subject for s in group})} | _figure(group) | _held(group)
        for team, group in groups.items()
    ]


def _held(group: list[EnergySum]) -> Json:
    """How much of it went into GPUs that were held without running."""
    return {"held_idle_joules": fsum(s.joules for s in group if s.line == Line.HELD_IDLE.value)}


def _grouped(pairs: Iterable[tuple[str, EnergySum]]) -> Mapping[str, list[EnergySum]]:
    groups: dict[str, list[EnergySum]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return dict(sorted(groups.items()))


def _figure(group: list[EnergySum]) -> Json:
    joules = fsum(s.joules for s in group)
    seconds = fsum(s.seconds for s in group)
    methods = {s.method for s in group}
    return {
        "joules": joules,
        "kwh": joules / JOULES_PER_KWH,
        "band_joules": fsum(s.band_joules for s in group),
        "coverage": fsum(s.covered_seconds for s in group) / seconds if seconds else None,
        "method": methods.pop() if len(methods) == 1 else ("mixed" if methods else None),
        "flags": sorted({flag for s in group for flag in s.flags.split()}),
    }
