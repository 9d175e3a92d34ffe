"""Reports as people and programs take them: text, JSON, CSV, HTML, and all of them as files.

* **table**: Rich tables at a terminal; the same without colour and never cut off in a pipe.
* **json**: the report itself, one object, its schema in ``schema``.
* **csv**: one table each, units in the column names, fixed and versioned columns.
* **html**: one page that needs nothing else.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gridaware.domain.errors import InvalidInput, NotFound
from gridaware.service.quantities import duration, energy, instant, percent, power
from gridaware.service.report_page import energy_page, event_page
from gridaware.service.report_tables import Cell, Table, energy_tables, event_tables
from gridaware.service.report_words import event_summary, verdict, warning_text
from gridaware.settlement import energy_report
from gridaware.settlement.energy_report import EnergyReport
from gridaware.settlement.event_report import EventReport

__all__ = [
    "Report",
    "event_report_csv",
    "event_report_html",
    "report_json",
    "report_of",
    "report_table",
    "table_csv",
    "tables_of",
    "write_report_files",
]

Report = EventReport | EnergyReport
Body = Mapping[str, Any]
"""A report as the API returns it: decoded JSON."""
PIPE_WIDTH = 1000
"""Wide enough that no cell is ever cut where there is no terminal."""
_TONES = {"good": "bold green", "short": "bold red", "open": "bold yellow"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def report_of(body: Report | Body) -> Report:
    """A report from its decoded JSON; a report itself is returned as it is.

    Raises:
        InvalidInput: it is no report of a schema we know (``report-malformed``).
    """
    if isinstance(body, EventReport | EnergyReport):
        return body
    energy_only = body.get("schema") == energy_report.SCHEMA
    try:
        if energy_only:
            return msgspec.convert(body, EnergyReport)
        return msgspec.convert(body, EventReport)
    except msgspec.ValidationError as error:
        raise InvalidInput("report-malformed", f"this is no report: {error}") from error


def report_json(report: Report) -> str:
    """The report as one JSON object; instants are UTC in RFC 3339."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def table_csv(table: Table) -> str:
    """One table as CSV (RFC 4180). ``schema`` leads every line."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(["schema", *(column.name for column in table.columns)])
    for values in table.values():
        writer.writerow([table.schema, *map(_csv_cell, values)])
    return buffer.getvalue()


def event_report_csv(body: EventReport | Body, table: str = "event-intervals") -> str:
    """One table of an event report as CSV: its settlement intervals, if none is named.

    Raises:
        NotFound: it has no table of that name (``report-table-unknown``).
    """
    tables = {each.name: each for each in tables_of(report_of(body))}
    if table not in tables:
        raise NotFound(
            "report-table-unknown",
            f"an event report has no table {table[:64]!r}, only {', '.join(tables)}",
        )
    return table_csv(tables[table])


def event_report_html(body: EventReport | Body) -> str:
    """An event as one page without script or outside resource."""
    return _html(report_of(body))


def report_table(body: Report | Body, console: Console | None = None) -> str:
    """A report as text.

    Args:
        body: to show.
        console: whose colours and width are used; None or one that is no terminal gives plain
            text in which nothing is cut off.

    Raises:
        InvalidInput: it is no report of a schema we know.
    """
    report = report_of(body)
    buffer = io.StringIO()
    out = _console(buffer, console)
    _head(out, report)
    for table in tables_of(report):
        if table.rows and table.name not in {"event-evidence", "energy-gpus"}:
            out.print()
            out.print(_rich(table))
    for code in report.warnings:
        out.print(Text(f"note: {warning_text(code)}", style="yellow"))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def tables_of(report: Report) -> tuple[Table, ...]:
    """Every table of a report."""
    if isinstance(report, EventReport):
        return event_tables(report)
    return energy_tables(report)


def write_report_files(report: Report, folder: Path) -> list[Path]:
    """Write a report as JSON, HTML and CSV into ``folder``; an older report there is replaced.

    Returns:
        What was written, the page first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(report, EventReport):
        stem = "event-" + re.sub(r"[^A-Za-z0-9._-]", "_", report.event_id)
        tables = (*event_tables(report), *energy_tables(report.energy)[1:])
    else:
        stem, tables = f"energy-{report.start:%Y%m%dT%H%M%SZ}", energy_tables(report)
    files = {f"{stem}.html": _html(report), f"{stem}.json": report_json(report)}
    for table in tables:
        files[f"{stem}.{table.name}.csv"] = table_csv(table)
    written = []
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8", newline="")
        written.append(path)
    return written


def _html(report: Report) -> str:
    return event_page(report) if isinstance(report, EventReport) else energy_page(report)


def _console(buffer: io.StringIO, like: Console | None) -> Console:
    terminal = like is not None and like.is_terminal
    return Console(
        file=buffer,
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        no_color=like.no_color if like is not None and terminal else True,
        width=like.width if like is not None and terminal else PIPE_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not terminal,
    )


def _head(out: Console, report: Report) -> None:
    if isinstance(report, EnergyReport):
        out.print(Text(f"Energy {instant(report.start)} to {instant(report.end)}", style="bold"))
        out.print(f"{energy(report.meter.joules)} at the {report.boundary} meter")
        return
    found = verdict(report)
    status = "final" if report.final else "provisional"
    title = Text.assemble(
        (f"Event {report.event_id}", "bold"), f"  {status}  ", (found.text, _TONES[found.tone])
    )
    out.print(title)
    out.print(event_summary(report))
    out.print()
    for label, value in _facts(report):
        out.print(Text.assemble((f"  {label:<14}", "dim"), value))


def _facts(report: EventReport) -> Iterable[tuple[str, str]]:
    delivered, clocks, like = report.delivery, report.latencies, report.reference.watts
    steps = [
        ("decided", clocks.decided_ms),
        ("accepted", clocks.accepted_ms),
        ("confirmed", clocks.confirmed_ms),
    ]
    over = duration(report.reference.window_seconds)
    yield "reference", f"{power(like)}, {report.reference.method} over {over}"
    amounts = [energy(kwh * 3.6e6) for kwh in (delivered.delivered_kwh, delivered.owed_kwh)]
    yield "delivered", f"{percent(delivered.performance_ratio)}, {amounts[0]} of {amounts[1]} owed"
    yield (
        "response",
        "received → "
        + " → ".join(f"{k} {duration(None if v is None else v / 1000)}" for k, v in steps),
    )
    yield (
        "above target",
        (
            f"{duration(delivered.seconds_above_limit)}, highest "
            f"{power(delivered.highest_watts, like)}"
        ),
    )
    yield "rebound", power(delivered.rebound_watts, like)
    if report.unresolved_watts:
        yield "not shed", power(report.unresolved_watts, like)


def _rich(table: Table) -> RichTable:
    rich = RichTable(
        title=table.title,
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    for column in table.shown:
        rich.add_column(
            column.heading, justify="right" if column.right else "left", overflow="fold"
        )
    for texts in table.texts():
        rich.add_row(*map(Text, texts))
    return rich


def _csv_cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return repr(value)
