"""`gridaware report`: where the energy went."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from gridaware.cli.connection import connect
from gridaware.cli.output import (
    Column,
    Form,
    JsonOption,
    OutputOption,
    form_of,
    show_record,
    show_rows,
    write,
)

__all__ = ["app"]

app = typer.Typer(help="Where the energy went.", no_args_is_help=True, rich_markup_mode=None)
_FIGURE = (
    Column("ENERGY", "joules"),
    Column("±", "band_joules"),
    Column("METHOD", "method"),
    Column("COVERAGE", "coverage"),
)


class By(StrEnum):
    """What a line of the report is."""

    TOTAL = "total"
    JOB = "job"
    TEAM = "team"
    GPU = "gpu"


COLUMNS: dict[By, tuple[Column, ...]] = {
    By.TOTAL: (Column("WHAT", "name"), *_FIGURE),
    By.JOB: (
        Column("JOB", "job_id"),
        Column("TEAM", "team"),
        Column("TIER", "tier"),
        Column("GPUS", "gpus"),
        Column("RUNNING", "running.joules"),
        Column("±", "running.band_joules"),
        Column("HELD IDLE", "held_idle.joules"),
        Column("METHOD", "running.method"),
        Column("COVERAGE", "running.coverage"),
    ),
    By.TEAM: (
        Column("TEAM", "team"),
        Column("JOBS", "jobs"),
        Column("RUNNING", "running_joules"),
        Column("HELD IDLE", "held_idle_joules"),
        Column("±", "band_joules"),
    ),
    By.GPU: (Column("GPU", "name"), *_FIGURE),
}


PARTS = {By.TOTAL: "lines", By.JOB: "jobs", By.TEAM: "teams", By.GPU: "gpus"}


@app.callback()
def group() -> None:
    """Where the energy went."""


@app.command()
def energy(
    context: typer.Context,
    by: Annotated[By, typer.Option(help="What a line of a table or of CSV is.")] = By.TOTAL,
    start: Annotated[str | None, typer.Option("--from", help="RFC 3339 with a zone.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="RFC 3339 with a zone.")] = None,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show where the energy went; the lines add up to the meter, which is the last.

    JSON is the whole report.
    """
    client = connect(context)
    form = form_of(output, as_json)
    if form is Form.JSON:
        show_record(dict(client.energy_report(start=start, end=end)), form)
        return
    report = dict(client.energy_report(by=by.value, start=start, end=end))
    part = report.get(PARTS[by])
    rows = part if isinstance(part, list) else []
    if by is By.TOTAL and isinstance(report.get("meter"), dict):
        rows = [*rows, report["meter"]]
    if form is Form.TABLE:
        write(_period(report) + "\n\n")
    show_rows(rows, COLUMNS[by], form)


def _period(report: Mapping[str, Any]) -> str:
    """What the figures cover: the whole periods that were found within what was asked."""
    start, end = report.get("start"), report.get("end")
    if start and end:
        return f"From {start} to {end}"
    asked = f"{report.get('asked_start')} and {report.get('asked_end')}"
    return f"Nothing is kept between {asked}"
