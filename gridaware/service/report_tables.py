"""The tables of a report, once: text, CSV and HTML are drawn from the same rows.

A column has the name it bears in CSV, with its unit, and the heading it has where people read.
Schemas are fixed and versioned: a column is never renamed, moved or left out; an unknown value is
empty.
"""

from operator import attrgetter

from gridaware.service import quantities
from gridaware.service.report_columns import (
    Cell,
    Column,
    Table,
    count,
    flags,
    joules,
    millis,
    number,
    share,
    time,
    watts,
    words,
)
from gridaware.service.report_response import escalation_table, gpu_table, response_table
from gridaware.service.report_words import LINE_NAMES
from gridaware.settlement.energy_report import EnergyReport
from gridaware.settlement.event_report import EventReport

__all__ = ["Cell", "Column", "Table", "energy_tables", "event_tables"]


def event_tables(report: EventReport) -> tuple[Table, ...]:
    """The tables of an event report, the settlement intervals first."""
    return (
        _intervals(report),
        _impacts(report),
        _pauses(report),
        _nodes(report),
        _lines(report.energy),
        _evidence(report),
        response_table(report),
        gpu_table(report),
        escalation_table(report),
    )


def energy_tables(report: EnergyReport) -> tuple[Table, ...]:
    """The tables of an energy report: lines, jobs, teams, GPUs."""
    return (_lines(report), _jobs(report), _teams(report), _gpus(report))


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
            time("start_utc", "From (UTC)", "start"),
            time("end_utc", "To", "end"),
            Column("scored", attrgetter("scored"), "Scored", lambda v: "yes" if v else "ramp"),
            watts("limit_watts", "Limit", like),
            watts("mean_watts", "Measured", like),
            watts("owed_watts", "Owed", like),
            watts("delivered_watts", "Delivered", like),
            watts("shortfall_watts", "Short", like),
            watts("over_watts", "Over", like),
            count("owed_joules"),
            count("delivered_joules"),
            share("coverage_fraction", "Coverage", "coverage"),
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
        "stepped, less the steps it made; negative means it gained. It is right to within ±.",
        (
            words("job_id", "Job"),
            words("team", "Team"),
            words("tier", "Tier"),
            count("gpus", "GPUs"),
            words("state", ""),
            Column(
                "work_lost_seconds",
                attrgetter("seconds_lost"),
                "Work lost",
                lambda v: quantities.duration(number(v)),
            ),
            Column("steps_lost", attrgetter("steps_lost"), "Steps lost", quantities.whole),
            share("throughput_fraction", "Throughput", "throughput"),
            count("steps_done"),
            count("reference_steps_per_second"),
            count("alive_seconds"),
            watts("mean_watts", ""),
            joules("energy_joules", "Energy", like),
            joules("energy_band_joules", "±", like),
            joules("held_idle_joules", "Held idle", like),
            words("energy_method", "Method"),
            count("coverage_fraction", attr="coverage"),
            Column(
                "work_lost_band_seconds",
                attrgetter("seconds_band"),
                "Work lost ±",
                lambda v: quantities.duration(number(v)),
            ),
            count("steps_lost_band", attr="steps_band"),
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
            words("job_id", "Job"),
            count("attempt"),
            words("request_id", ""),
            time("requested_at_utc", "Asked (UTC)", "requested_at"),
            time("verified_at_utc", "Verified", "verified_at"),
            count("step_saved", "Step saved"),
            time("resumed_at_utc", "Resumed", "resumed_at"),
            count("step_resumed", "Step resumed"),
            count("steps_redone", "Steps redone"),
            words("outcome", ""),
            words("checkpoint_path", "Checkpoint"),
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
            words("node_id", "Node"),
            count("gpus", "GPUs"),
            count("gpus_accepted", "Accepted", "accepted"),
            millis("median_milliseconds", "Median", "median_ms"),
            millis("slowest_milliseconds", "Slowest", "slowest_ms"),
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
            words("series", "Series"),
            words("meter", "Meter"),
            words("boundary", "Boundary"),
            words("method", "Method"),
            count("readings", "Readings"),
            time("start_utc", "From", "start", date=True),
            time("end_utc", "To", "end", date=True),
            share("coverage_fraction", "Coverage", "coverage"),
            share("accuracy_fraction", "Within ±", "accuracy_share"),
        ),
        report.evidence,
    )


def _lines(report: EnergyReport) -> Table:
    whole = report.meter.joules
    energy = attrgetter("joules")
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
            joules("energy_joules", "Energy", whole, "joules"),
            count("energy_kwh", attr="kwh"),
            Column(
                "share_fraction",
                lambda row: energy(row) / whole if whole else None,
                "Share",
                lambda v: quantities.percent(number(v)),
            ),
            joules("band_joules", "±", whole),
            words("method", "Method"),
            share("coverage_fraction", "Coverage", "coverage"),
            count("readings"),
            flags(),
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
            words("job_id", "Job"),
            words("team", "Team"),
            words("tier", "Tier"),
            count("gpus", "GPUs"),
            joules("running_joules", "Running", like, "running.joules"),
            joules("running_band_joules", "±", like, "running.band_joules"),
            joules("held_idle_joules", "Held idle", like, "held_idle.joules"),
            joules("held_idle_band_joules", "±", like, "held_idle.band_joules"),
            joules("energy_joules", "Together", like),
            count("energy_kwh"),
            words("method", "Method", "running.method"),
            share("coverage_fraction", "Coverage", "running.coverage"),
            count("readings", attr="running.readings"),
            flags("running.flags"),
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
            words("team", "Team"),
            count("jobs", "Jobs"),
            joules("running_joules", "Running", like),
            joules("held_idle_joules", "Held idle", like),
            joules("energy_joules", "Together", like),
            count("energy_kwh", attr="kwh"),
            joules("band_joules", "±", like),
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
            words("gpu_id", "GPU", "name"),
            joules("energy_joules", "Energy", like, "joules"),
            count("energy_kwh", attr="kwh"),
            joules("band_joules", "±", like),
            words("method", "Method"),
            share("coverage_fraction", "Coverage", "coverage"),
            count("readings", "Readings"),
            flags(),
        ),
        report.gpus,
    )
