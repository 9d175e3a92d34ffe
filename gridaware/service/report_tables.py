"""The tables of a report, once: text, CSV and HTML are drawn from the same rows.

A column has the name it bears in CSV, with its unit, and the heading it has where people read.
Schemas are fixed and versioned: a column is never renamed, moved or left out; an unknown value is
empty.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from gridaware.service import quantities
from gridaware.service.report_words import LINE_NAMES
from gridaware.settlement.energy_report import EnergyReport
from gridaware.settlement.event_report import EventReport

__all__ = ["Cell", "Column", "Table", "energy_tables", "event_tables"]

Cell = str | float | int | bool | datetime | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of any table."""

    name: str
    """In CSV."""
    value: Callable[[object], Cell]
    heading: str = ""
    """Where people read; empty = in CSV only."""
    text: Callable[[Cell], str] = quantities.plain
    right: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind and how to show them."""

    name: str
    version: int
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: Sequence[object]

    @property
    def schema(self) -> str:
        """Name and version, repeated on every line of CSV."""
        return f"gridaware.{self.name}/{self.version}"

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that people see."""
        return tuple(column for column in self.columns if column.heading)

    def texts(self) -> list[list[str]]:
        """The rows as people see them."""
        return [[c.text(c.value(row)) for c in self.shown] for row in self.rows]

    def values(self) -> list[list[Cell]]:
        """The rows as CSV has them."""
        return [[c.value(row) for c in self.columns] for row in self.rows]


def event_tables(report: EventReport) -> tuple[Table, ...]:
    """The tables of an event report: intervals, jobs, pauses, nodes, energy lines, evidence."""
    return (
        _intervals(report),
        _impacts(report),
        _pauses(report),
        _nodes(report),
        _lines(report.energy),
        _evidence(report),
    )


def energy_tables(report: EnergyReport) -> tuple[Table, ...]:
    """The tables of an energy report: lines, jobs, teams, GPUs."""
    return (_lines(report), _jobs(report), _teams(report), _gpus(report))


def _words(name: str, heading: str, attr: str = "") -> Column:
    return Column(name, attrgetter(attr or name), heading, right=False)


def _count(name: str, heading: str = "", attr: str = "") -> Column:
    return Column(name, attrgetter(attr or name), heading)


def _watts(name: str, heading: str, like: float | None = None, attr: str = "") -> Column:
    return Column(
        name, attrgetter(attr or name), heading, lambda v: quantities.power(_float(v), like)
    )


def _joules(name: str, heading: str, like: float | None = None, attr: str = "") -> Column:
    return Column(
        name, attrgetter(attr or name), heading, lambda v: quantities.energy(_float(v), like)
    )


def _share(name: str, heading: str, attr: str) -> Column:
    return Column(name, attrgetter(attr), heading, lambda v: quantities.percent(_float(v), 0))


def _time(name: str, heading: str, attr: str, *, date: bool = False) -> Column:
    return Column(
        name,
        attrgetter(attr),
        heading,
        lambda v: quantities.instant(v if isinstance(v, datetime) else None, date=date),
    )


def _millis(name: str, heading: str, attr: str) -> Column:
    return Column(
        name,
        attrgetter(attr),
        heading,
        lambda v: quantities.duration(None if v is None else (_float(v) or 0.0) / 1000),
    )


def _flags(attr: str = "flags") -> Column:
    get = attrgetter(attr)
    return Column("flags", lambda row: " ".join(get(row)), "Notes", right=False)


def _float(value: Cell) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _intervals(report: EventReport) -> Table:
    rows = report.delivery.intervals
    like = report.reference.watts
    return Table(
        "event-intervals",
        1,
        "Settlement intervals",
        "Owed is the reference less the limit; delivered is the reference less what was measured. "
        "The interval up to the deadline is shown and not scored.",
        (
            _time("start_utc", "From (UTC)", "start"),
            _time("end_utc", "To", "end"),
            Column("scored", attrgetter("scored"), "Scored", lambda v: "yes" if v else "ramp"),
            _watts("limit_watts", "Limit", like),
            _watts("mean_watts", "Measured", like),
            _watts("owed_watts", "Owed", like),
            _watts("delivered_watts", "Delivered", like),
            _watts("shortfall_watts", "Short", like),
            _watts("over_watts", "Over", like),
            _count("owed_joules"),
            _count("delivered_joules"),
            _share("coverage_fraction", "Coverage", "coverage"),
        ),
        rows,
    )


def _impacts(report: EventReport) -> Table:
    like = max((job.energy_joules for job in report.jobs), default=0.0)
    return Table(
        "event-jobs",
        1,
        "What it cost each job",
        "Work lost is the job's own pace over the minute before, times the time it could have "
        "stepped, less the steps it made; negative means it gained.",
        (
            _words("job_id", "Job"),
            _words("team", "Team"),
            _words("tier", "Tier"),
            _count("gpus", "GPUs"),
            _words("state", ""),
            Column(
                "work_lost_seconds",
                attrgetter("seconds_lost"),
                "Work lost",
                lambda v: quantities.duration(_float(v)),
            ),
            Column("steps_lost", attrgetter("steps_lost"), "Steps lost", quantities.whole),
            _share("throughput_fraction", "Throughput", "throughput"),
            _count("steps_done"),
            _count("reference_steps_per_second"),
            _count("alive_seconds"),
            _watts("mean_watts", ""),
            _joules("energy_joules", "Energy", like),
            _joules("energy_band_joules", "±", like),
            _joules("held_idle_joules", "Held idle", like),
            _words("energy_method", "Method"),
            _count("coverage_fraction", attr="coverage"),
        ),
        report.jobs,
    )


def _pauses(report: EventReport) -> Table:
    return Table(
        "event-pauses",
        1,
        "Pauses and their checkpoints",
        "A pause counts only once the agent has verified the checkpoint's manifest.",
        (
            _words("job_id", "Job"),
            _count("attempt"),
            _words("request_id", ""),
            _time("requested_at_utc", "Asked (UTC)", "requested_at"),
            _time("verified_at_utc", "Verified", "verified_at"),
            _count("step_saved", "Step saved"),
            _time("resumed_at_utc", "Resumed", "resumed_at"),
            _count("step_resumed", "Step resumed"),
            _count("steps_redone", "Steps redone"),
            _words("outcome", ""),
            _words("checkpoint_path", "Checkpoint"),
        ),
        report.pauses,
    )


def _nodes(report: EventReport) -> Table:
    return Table(
        "event-nodes",
        1,
        "Limits read back",
        "From the receipt of the signal until the driver enforced the new limit.",
        (
            _words("node_id", "Node"),
            _count("gpus", "GPUs"),
            _count("gpus_accepted", "Accepted", "accepted"),
            _millis("median_milliseconds", "Median", "median_ms"),
            _millis("slowest_milliseconds", "Slowest", "slowest_ms"),
        ),
        report.nodes,
    )


def _evidence(report: EventReport) -> Table:
    return Table(
        "event-evidence",
        2,
        "Readings behind the figures",
        "",
        (
            _words("series", "Series"),
            _words("meter", "Meter"),
            _words("boundary", "Boundary"),
            _words("method", "Method"),
            _count("readings", "Readings"),
            _time("start_utc", "From", "start", date=True),
            _time("end_utc", "To", "end", date=True),
            _share("coverage_fraction", "Coverage", "coverage"),
            _share("accuracy_fraction", "Within ±", "accuracy_share"),
        ),
        report.evidence,
    )


def _lines(report: EnergyReport) -> Table:
    whole = report.meter.joules
    joules = attrgetter("joules")
    return Table(
        "energy-lines",
        1,
        "Where the energy went",
        "The lines sum to the meter. What no line explains has its own, with its sign.",
        (
            Column(
                "line",
                attrgetter("name"),
                "Line",
                lambda v: LINE_NAMES.get(str(v), "Meter"),
                right=False,
            ),
            _joules("energy_joules", "Energy", whole, "joules"),
            _count("energy_kwh", attr="kwh"),
            Column(
                "share_fraction",
                lambda row: joules(row) / whole if whole else None,
                "Share",
                lambda v: quantities.percent(_float(v)),
            ),
            _joules("band_joules", "±", whole),
            _words("method", "Method"),
            _share("coverage_fraction", "Coverage", "coverage"),
            _count("readings"),
            _flags(),
        ),
        (*report.lines, report.meter),
    )


def _jobs(report: EnergyReport) -> Table:
    like = max((job.running.joules for job in report.jobs), default=0.0)
    return Table(
        "energy-jobs",
        1,
        "Energy by job",
        "Held idle is what a job's GPUs drew while it was paused or starting.",
        (
            _words("job_id", "Job"),
            _words("team", "Team"),
            _words("tier", "Tier"),
            _count("gpus", "GPUs"),
            _joules("running_joules", "Running", like, "running.joules"),
            _joules("running_band_joules", "±", like, "running.band_joules"),
            _joules("held_idle_joules", "Held idle", like, "held_idle.joules"),
            _joules("held_idle_band_joules", "±", like, "held_idle.band_joules"),
            _joules("energy_joules", "Together", like),
            _count("energy_kwh"),
            _words("method", "Method", "running.method"),
            _share("coverage_fraction", "Coverage", "running.coverage"),
            _count("readings", attr="running.readings"),
            _flags("running.flags"),
        ),
        report.jobs,
    )


def _teams(report: EnergyReport) -> Table:
    like = max((team.running_joules for team in report.teams), default=0.0)
    return Table(
        "energy-teams",
        1,
        "Energy by team",
        "",
        (
            _words("team", "Team"),
            _count("jobs", "Jobs"),
            _joules("running_joules", "Running", like),
            _joules("held_idle_joules", "Held idle", like),
            _joules("energy_joules", "Together", like),
            _count("energy_kwh", attr="kwh"),
            _joules("band_joules", "±", like),
        ),
        report.teams,
    )


def _gpus(report: EnergyReport) -> Table:
    like = max((gpu.joules for gpu in report.gpus), default=0.0)
    return Table(
        "energy-gpus",
        1,
        "Energy by GPU",
        "",
        (
            _words("gpu_id", "GPU", "name"),
            _joules("energy_joules", "Energy", like, "joules"),
            _count("energy_kwh", attr="kwh"),
            _joules("band_joules", "±", like),
            _words("method", "Method"),
            _share("coverage_fraction", "Coverage", "coverage"),
            _count("readings", "Readings"),
            _flags(),
        ),
        report.gpus,
    )
