"""The energy of a period: total, by job, by team, by GPU, conserved line by line.

A period is whatever lies between two snapshots of one :class:`EnergyBook`: a day, an event, a
job's life. The lines sum to the meter by construction; what no line explains has its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import fsum

from gridaware.domain.errors import InvalidInput
from gridaware.settlement.attribution import Line, Snapshot, Tally, Track
from gridaware.settlement.counter import Flag
from gridaware.settlement.energy import SENSOR_GAIN_UNKNOWN, EnergyMethod, disagrees, method_of
from gridaware.settlement.meter_log import meter_warnings

__all__ = [
    "EnergyFigure",
    "EnergyReport",
    "JobEnergy",
    "MeterTime",
    "TeamEnergy",
    "energy_report",
]

JOULES_PER_KWH = 3.6e6
SCHEMA = "gridaware.energy-report/1"
COMPLETE = 0.95
"""Below this coverage a total is called incomplete."""


@dataclass(frozen=True, slots=True)
class EnergyFigure:
    """One line: how much, how it came about, and how far to trust it."""

    name: str
    joules: float
    kwh: float
    method: str
    """``counter``, ``integrated``, ``estimated``, ``mixed``, ``remainder`` or ``none``."""
    coverage: float
    band_joules: float
    """The truth lies within ± this, up to the sensors' own gain."""
    readings: int = 0
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobEnergy:
    """What one job drew: while it ran, and while it held GPUs without running."""

    job_id: str
    team: str
    tier: str
    gpus: int
    energy_joules: float
    """Both together."""
    energy_kwh: float
    running: EnergyFigure
    held_idle: EnergyFigure


@dataclass(frozen=True, slots=True)
class TeamEnergy:
    """What one team's jobs drew together."""

    team: str
    jobs: int
    running_joules: float
    held_idle_joules: float
    energy_joules: float
    """Both together."""
    kwh: float
    band_joules: float


@dataclass(frozen=True, slots=True)
class MeterTime:
    """For how long one meter was read."""

    meter: str
    """Its name; "" where the site has but one source."""
    method: str
    boundary: str
    seconds: float


@dataclass(frozen=True, slots=True)
class EnergyReport:
    """Where a period's energy went."""

    schema: str
    start: datetime
    end: datetime
    seconds: float
    """On the steady clock, so a step of the wall clock is no energy."""
    boundary: str
    """What the meter encloses; ``mixed`` where meters of several were read."""
    meter_method: str
    """How its power came about; ``mixed`` where that changed."""
    meter: EnergyFigure
    lines: tuple[EnergyFigure, ...]
    """Jobs, held idle, unallocated, unmanaged, overhead, unexplained: they sum to the meter."""
    jobs: tuple[JobEnergy, ...]
    teams: tuple[TeamEnergy, ...]
    gpus: tuple[EnergyFigure, ...]
    overhead_quality: str
    sensor_gain_unknown: float
    """Relative; outside every band."""
    warnings: tuple[str, ...]
    meters: tuple[MeterTime, ...] = ()
    """Every meter that was read, the longest first."""


def energy_report(start: Snapshot, end: Snapshot) -> EnergyReport:
    """The energy between two snapshots of one book.

    Raises:
        InvalidInput: the end is not after the start.
    """
    if not end.seconds > start.seconds:
        raise InvalidInput("window-empty", "an energy period must end after it starts")
    booked: dict[Line, list[Tally]] = {line: [] for line in Line}
    by_job: dict[str, dict[Line, Tally]] = {}
    for (line, job_id), tally in end.accounts.items():
        part = _difference(start.accounts.get((line, job_id)), tally)
        if part.seconds == 0:
            continue
        booked[line].append(part)
        if job_id:
            by_job.setdefault(job_id, {})[line] = part
    meter = _figure("meter", [_difference(start.meter, end.meter)])
    overhead = end.overhead_joules - start.overhead_joules
    lines = [
        _figure(line.value, booked[line])
        for line in (Line.JOB, Line.HELD_IDLE, Line.UNALLOCATED, Line.UNMANAGED)
    ]
    lines.append(_plain(Line.OVERHEAD.value, overhead, EnergyMethod.ESTIMATED.value, 0.0))
    remainder = meter.joules - fsum(line.joules for line in lines)
    band = meter.band_joules + fsum(line.band_joules for line in lines)
    lines.append(_plain(Line.UNEXPLAINED.value, remainder, "remainder", band))
    jobs = _jobs(by_job, {**start.tracks, **end.tracks})
    meters = _meters(start, end)
    return EnergyReport(
        schema=SCHEMA,
        start=start.at,
        end=end.at,
        seconds=end.seconds - start.seconds,
        boundary=_one_of(used.boundary for used in meters),
        meter_method=_one_of(used.method for used in meters),
        meter=meter,
        lines=tuple(lines),
        jobs=jobs,
        teams=_teams(jobs),
        gpus=tuple(
            _figure(gpu_id, [_difference(start.gpus.get(gpu_id), tally)])
            for gpu_id, tally in sorted(end.gpus.items())
        ),
        overhead_quality=end.overhead_quality,
        sensor_gain_unknown=SENSOR_GAIN_UNKNOWN,
        warnings=_warnings(meter, lines, meters, end),
        meters=meters,
    )


def _meters(start: Snapshot, end: Snapshot) -> tuple[MeterTime, ...]:
    """Who was read between two snapshots; where no reading came, who was read last."""
    seconds = {use: s - start.meters.get(use, 0.0) for use, s in end.meters.items()}
    used = {use: s for use, s in seconds.items() if s > 0} or {end.last_meter: 0.0}
    by_length = sorted(used.items(), key=lambda item: (-item[1], item[0]))
    return tuple(MeterTime(*use, round(s, 3)) for use, s in by_length)


def _one_of(words: Iterable[str]) -> str:
    found = set(words)
    return found.pop() if len(found) == 1 else "mixed"


def _difference(earlier: Tally | None, later: Tally) -> Tally:
    if earlier is None:
        return later
    return Tally(
        joules=later.joules - earlier.joules,
        integral_joules=later.integral_joules - earlier.integral_joules,
        checked_joules=later.checked_joules - earlier.checked_joules,
        band_joules=later.band_joules - earlier.band_joules,
        seconds=later.seconds - earlier.seconds,
        known_seconds=later.known_seconds - earlier.known_seconds,
        counter_seconds=later.counter_seconds - earlier.counter_seconds,
        readings=later.readings - earlier.readings,
        flags={k: n for k, n in later.flags.items() if n > earlier.flags.get(k, 0)},
        edge_joules=later.edge_joules + earlier.edge_joules,
    )


def _figure(name: str, parts: Iterable[Tally]) -> EnergyFigure:
    parts = list(parts)
    joules = fsum(part.joules for part in parts)
    seconds = fsum(part.seconds for part in parts)
    known = fsum(part.known_seconds for part in parts)
    counted = fsum(part.counter_seconds for part in parts)
    band = fsum(part.band_joules + part.edge_joules for part in parts)
    flags = {flag.value for part in parts for flag in part.flags}
    flags |= {
        Flag.COUNTER_DISAGREES.value
        for part in parts
        if disagrees(part.checked_joules, part.integral_joules, part.edge_joules)
    }
    method = method_of(counter_seconds=counted, integrated_seconds=known - counted)
    return EnergyFigure(
        name=name,
        joules=joules,
        kwh=joules / JOULES_PER_KWH,
        method=method.value if parts else EnergyMethod.NONE.value,
        coverage=known / seconds if seconds > 0 else 1.0,
        band_joules=band,
        readings=sum(part.readings for part in parts),
        flags=tuple(sorted(flags)),
    )


def _plain(name: str, joules: float, method: str, band_joules: float) -> EnergyFigure:
    return EnergyFigure(name, joules, joules / JOULES_PER_KWH, method, 1.0, band_joules)


def _jobs(
    by_job: Mapping[str, Mapping[Line, Tally]], tracks: Mapping[str, Track]
) -> tuple[JobEnergy, ...]:
    rows = []
    for job_id, parts in sorted(by_job.items()):
        track = tracks.get(job_id)
        running = _figure("running", [t for k, t in parts.items() if k is Line.JOB])
        held = _figure("held_idle", [t for k, t in parts.items() if k is Line.HELD_IDLE])
        joules = running.joules + held.joules
        rows.append(
            JobEnergy(
                job_id=job_id,
                team=track.team if track else "unknown",
                tier=track.tier if track else "unknown",
                gpus=track.gpus if track else 0,
                energy_joules=joules,
                energy_kwh=joules / JOULES_PER_KWH,
                running=running,
                held_idle=held,
            )
        )
    return tuple(rows)


def _teams(jobs: Iterable[JobEnergy]) -> tuple[TeamEnergy, ...]:
    by_team: dict[str, list[JobEnergy]] = {}
    for job in jobs:
        by_team.setdefault(job.team, []).append(job)
    rows = []
    for team, members in sorted(by_team.items()):
        running = fsum(job.running.joules for job in members)
        held = fsum(job.held_idle.joules for job in members)
        band = fsum(job.running.band_joules + job.held_idle.band_joules for job in members)
        both = running + held
        kwh = both / JOULES_PER_KWH
        rows.append(TeamEnergy(team, len(members), running, held, both, kwh, band))
    return tuple(rows)


def _warnings(
    meter: EnergyFigure,
    lines: Iterable[EnergyFigure],
    meters: Iterable[MeterTime],
    end: Snapshot,
) -> tuple[str, ...]:
    found = []
    if meter.coverage < COMPLETE:
        found.append("meter-incomplete")
    if any(line.coverage < COMPLETE for line in lines):
        found.append("gpus-incomplete")
    if end.overhead_quality == "assumed":
        found.append("overhead-assumed")
    return (*found, *meter_warnings((used.meter, used.method) for used in meters))
