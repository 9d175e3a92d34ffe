"""A report as one self-contained HTML page: no script, no outside resource, light and dark.

Everything that came from outside (job ids, teams, paths, reasons) is escaped; the page's own
content security policy forbids whatever would slip through.
"""

from html import escape
from math import fsum
from typing import Final

from gridaware import __version__
from gridaware.service.quantities import duration, energy, instant, percent, power, signed
from gridaware.service.report_figure import event_figure
from gridaware.service.report_style import STYLE
from gridaware.service.report_tables import Table, energy_tables, event_tables
from gridaware.service.report_words import (
    LINE_NAMES,
    METHOD_NAMES,
    event_summary,
    verdict,
    warning_text,
)
from gridaware.settlement.energy_report import EnergyReport
from gridaware.settlement.event_report import EventReport

__all__ = ["energy_page", "event_page"]

_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_OPEN_TABLES: Final = {"event-jobs", "event-pauses", "energy-lines", "energy-jobs", "energy-teams"}
"""Shown at once; the others unfold."""


def event_page(report: EventReport) -> str:
    """The page of one event."""
    intervals, *tables = event_tables(report)
    found = verdict(report)
    status = "Final" if report.final else "Provisional"
    head = (
        f'<p class="eyebrow">Grid event report</p>'
        f"<h1>{escape(report.event_id)}</h1>"
        f'<p class="chips"><span class="chip {found.tone}">{escape(found.text)}</span>'
        f'<span class="chip">{status}</span>'
        f'<span class="chip">{escape(report.kind)} event</span>'
        f'<span class="chip">programme {escape(_programme(report))}</span></p>'
        f'<p class="lead">{escape(event_summary(report))}</p>'
    )
    figure = (
        f'<figure><div class="wide" role="region" tabindex="0" aria-label="Power figure">'
        f"{event_figure(report)}</div>"
        f"<figcaption>{_caption(report)}</figcaption></figure>"
        f"{_unfold(intervals, 'The same as a table: settlement intervals')}"
    )
    body = [
        _tiles(report),
        _section("Power against target", figure),
        _section("How fast", _clocks(report) + _each_gpu(tables[5], tables[6])),
        _section(tables[0].title, _table(tables[0])),
        _section(tables[1].title, _table(tables[1])) if report.pauses else "",
        _section("Where the energy went", _energy_bar(report.energy) + _table(tables[3])),
        _section("How it was measured", _method(report) + _table(tables[4])),
    ]
    if report.escalations:
        body.insert(3, _section(tables[7].title, _table(tables[7])))
    if report.nodes:
        body.append(_unfold(tables[2], tables[2].title))
    return _page(
        f"Event {report.event_id}",
        head,
        _warnings(report.warnings) + "".join(body),
        _foot(report.schema, instant(report.generated_at)),
    )


def _programme(report: EventReport) -> str:
    """Its programme, and the version of the rules that settles it."""
    version = f", rules of {report.programme_version}" if report.programme_version else ""
    return f"{report.programme_id}{version}"


def energy_page(report: EnergyReport, *, title: str = "Energy report") -> str:
    """The page of one period."""
    lines, *tables = energy_tables(report)
    head = (
        f'<p class="eyebrow">Energy report</p><h1>{escape(title)}</h1>'
        f'<p class="lead">{energy(report.meter.joules)} at the {escape(report.boundary)} meter '
        f"from {instant(report.start)} to {instant(report.end)}, "
        f"{duration(report.seconds)}.</p>"
    )
    body = [_section(lines.title, _energy_bar(report) + _table(lines))]
    body += [
        _section(table.title, _table(table)) if table.name in _OPEN_TABLES else _unfold(table, "")
        for table in tables
        if table.rows
    ]
    return _page(
        title, head, _warnings(report.warnings) + "".join(body), _foot(report.schema, None)
    )


def _page(title: str, head: str, body: str, foot: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)} · gridaware</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header>{head}</header>\n<main>{body}</main>\n<footer>{foot}</footer>\n</body>\n</html>\n"
    )


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>\n"


def _tiles(report: EventReport) -> str:
    delivered, clocks = report.delivery, report.latencies
    like = report.reference.watts
    scored = [row for row in delivered.intervals if row.scored]
    seconds = fsum((row.end - row.start).total_seconds() for row in scored)
    held = None if delivered.mean_watts is None else like - delivered.mean_watts
    lost = fsum(job.proven_seconds_lost for job in report.jobs)
    tiles = [
        (
            "Delivered",
            percent(delivered.performance_ratio),
            (
                f"{energy(delivered.delivered_kwh * 3.6e6)} of "
                f"{energy(delivered.owed_kwh * 3.6e6)} owed"
            ),
        ),
        (
            "Mean reduction",
            power(held, like),
            f"{power(max(like - report.limit_watts, 0), like)} owed over {duration(seconds)}",
        ),
        (
            "Confirmed in",
            duration(_seconds(clocks.confirmed_ms)),
            f"limits read back after {duration(_seconds(clocks.accepted_ms))}",
        ),
        (
            "Above target",
            duration(delivered.seconds_above_limit),
            f"{delivered.intervals_missed} of {len(scored)} intervals missed",
        ),
        (
            "Rebound",
            "none" if delivered.rebound_watts == 0 else power(delivered.rebound_watts, like),
            "above the reference, 10 s mean",
        ),
        ("Work lost", duration(lost), f"in {len(report.jobs)} jobs, at their own pace"),
    ]
    cells = "".join(
        f"<li><span class=label>{escape(label)}</span><strong>{escape(value)}</strong>"
        f"<span class=note>{escape(note)}</span></li>"
        for label, value, note in tiles
    )
    return f'<ul class="tiles">{cells}</ul>\n'


def _caption(report: EventReport) -> str:
    curve = report.curve
    points = (
        "Every reading is drawn."
        if curve.step_seconds == 0
        else f"Each point is a mean of {duration(curve.step_seconds)}."
    )
    deadline = duration((report.ready_at - report.window_start).total_seconds())
    return (
        f"The shaded span is the event; the dotted line marks the deadline for full response, "
        f"{deadline} after its start. {points} Consumption is positive."
    )


def _clocks(report: EventReport) -> str:
    clocks = report.latencies
    steps = [
        ("Received", 0.0, "the signal arrived, before it was parsed"),
        ("Decided", clocks.decided_ms, "a plan was adopted and is in the ledger"),
        ("Accepted", clocks.accepted_ms, "every GPU's limit was read back as asked"),
        ("Confirmed", clocks.confirmed_ms, "power was at or below the target and stayed there"),
    ]
    items = "".join(
        f"<li class={'done' if at is not None else 'open'}><strong>"
        f"{'0' if at == 0 else duration(_seconds(at))}</strong>"
        f"<span class=label>{name}</span><span class=note>{note}</span></li>"
        for name, at, note in steps
    )
    rates = report.rates
    rows = [
        ("Down", rates.down_watts_per_minute, rates.down_limit_watts_per_minute, rates.down_kept),
        ("Up", rates.up_watts_per_minute, rates.up_limit_watts_per_minute, rates.up_kept),
    ]
    like = max((seen or 0.0 for _, seen, _, _ in rows), default=0.0)
    ramps = " · ".join(
        f"{name} {power(seen, like)}/min"
        + (f" of {power(limit, like)}/min allowed{'' if kept else ' — exceeded'}" if limit else "")
        for name, seen, limit, kept in rows
        if seen is not None
    )
    ramp = f"<p class=fine>Steepest ramps, 10 s means: {escape(ramps)}.</p>" if ramps else ""
    return f'<ol class="clocks">{items}</ol>{ramp}'


def _each_gpu(clocks: Table, gpus: Table) -> str:
    """The clocks over all GPUs, and GPU by GPU where somebody unfolds it."""
    return _table(clocks) + _unfold(gpus, gpus.title) if clocks.rows else ""


def _energy_bar(report: EnergyReport) -> str:
    whole = fsum(max(line.joules, 0.0) for line in report.lines)
    if whole <= 0:
        return ""
    parts = [(line.name, max(line.joules, 0.0) / whole) for line in report.lines]
    bar = "".join(
        f'<span class="part {name}" style="flex-grow:{share:.4f}"></span>'
        for name, share in parts
        if share >= 0.0005
    )
    keys = "".join(
        f'<li><span class="swatch {name}"></span>{LINE_NAMES.get(name, name)} '
        f"{percent(share, 1)}</li>"
        for name, share in parts
    )
    return f'<div class="bar" aria-hidden="true">{bar}</div><ul class="keys">{keys}</ul>'


def _method(report: EventReport) -> str:
    reference = report.reference
    after = report.reference_after_watts
    like = reference.watts
    facts = [
        (
            "Reference",
            (
                f"{power(like)}, {METHOD_NAMES.get(reference.method, reference.method)} over the "
                f"{duration(reference.window_seconds)} before {instant(reference.frozen_at)} "
                f"({reference.quality})"
            ),
        ),
        (
            "After the event",
            "not complete yet"
            if after is None
            else f"{power(after, like)} ({signed(percent((after - like) / like))} against the "
            "reference; settles nothing)",
        ),
        ("Target", power(report.limit_watts, like)),
        (
            "Paid band",
            " to ".join(percent(edge, 0) for edge in report.paid_band) + " of what is owed",
        ),
        ("Could not be shed", power(report.unresolved_watts, like)),
        ("State", f"{report.state}, {report.reason}, revision {report.revision}"),
        *([("Opted out by", report.opted_out_by)] if report.opted_out_by else ()),
        (
            "Error bands",
            (
                "± of each energy figure holds up to the sensors' own unknown gain, "
                f"{percent(report.energy.sensor_gain_unknown, 0)} by their maker"
            ),
        ),
    ]
    if report.clamped_from_watts is not None:
        facts.insert(3, ("Asked for", power(report.clamped_from_watts, like)))
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts)
    return f"<dl>{rows}</dl>"


def _table(table: Table) -> str:
    if not table.rows:
        return '<p class="fine">None.</p>'
    head = "".join(
        f'<th scope="col"{" class=right" if c.right else ""}>{escape(c.heading)}</th>'
        for c in table.shown
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=right' if c.right else ''}>{escape(text)}</td>"
            for c, text in zip(table.shown, texts, strict=True)
        )
        + "</tr>"
        for texts in table.texts()
    )
    note = f'<p class="fine">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}"
    )


def _unfold(table: Table, title: str) -> str:
    summary = escape(title or table.title)
    return f"<details><summary>{summary} ({len(table.rows)})</summary>{_table(table)}</details>\n"


def _warnings(codes: tuple[str, ...]) -> str:
    if not codes:
        return ""
    items = "".join(f"<li>{escape(warning_text(code))}</li>" for code in codes)
    return f'<aside class="warnings" aria-label="Notes on quality"><ul>{items}</ul></aside>\n'


def _foot(schema: str, generated: str | None) -> str:
    made = f" · {generated}" if generated else ""
    return f"<p>gridaware {escape(__version__)} · {escape(schema)}{made}</p>"


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
