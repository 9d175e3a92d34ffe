"""`gridaware event`: periods in which the site owes something."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gridaware.cli.connection import connect
from gridaware.cli.output import (
    Column,
    Form,
    JsonOption,
    OutputOption,
    colourful,
    form_of,
    said,
    show_record,
    show_rows,
    tell,
    write,
)
from gridaware.cli.problem import ExitCode
from gridaware.domain.errors import InvalidInput
from gridaware.domain.event import EventState
from gridaware.domain.signal import EventKind

__all__ = ["app"]

app = typer.Typer(
    help="Periods in which the site owes something.", no_args_is_help=True, rich_markup_mode=None
)
COLUMNS = (
    Column("ID", "event_id"),
    Column("FEED", "feed_id"),
    Column("KIND", "request.kind"),
    Column("STATE", "state"),
    Column("WHY", "reason"),
    Column("START", "request.start"),
    Column("END", "request.end"),
    Column("LIMIT", "limit_watts"),
    Column("REFERENCE", "reference.watts"),
    Column("UNRESOLVED", "unresolved_watts"),
)
PLAN_COLUMNS = (
    Column("JOB", "job_id"),
    Column("ACTION", "action"),
    Column("CAP", "cap_watts"),
    Column("EXPECTED", "expected_watts"),
    Column("THROUGHPUT", "expected_throughput"),
    Column("WHY", "why"),
)
EventId = Annotated[str, typer.Argument(help="The event's id, as `event list` shows it.")]
StartOption = Annotated[str, typer.Option(help="`now`, or RFC 3339 with a zone.")]
EndOption = Annotated[str | None, typer.Option(help="RFC 3339 with a zone.")]
DurationOption = Annotated[
    str | None, typer.Option("--for", help="ISO 8601 duration instead of an end: PT45S, PT1H.")
]
ReducePercent = Annotated[float | None, typer.Option(help="Per cent below the baseline.")]
ReduceKw = Annotated[float | None, typer.Option(help="Kilowatts below the baseline.")]
LimitKw = Annotated[float | None, typer.Option(help="Kilowatts at the site meter.")]
LimitPercent = Annotated[float | None, typer.Option(help="Per cent of the baseline.")]


@app.command("list")
def list_events(
    context: typer.Context,
    state: Annotated[EventState | None, typer.Option(help="Only those in this state.")] = None,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List events, newest first."""
    events = connect(context).events(state=None if state is None else state.value)
    show_rows((dict(event) for event in events), COLUMNS, form_of(output, as_json))


@app.command()
def show(
    context: typer.Context,
    event_id: EventId,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show one event."""
    # The clocks are on a steady clock of control's own; the latencies beside them are for people.
    show_record(dict(connect(context).event(event_id)), form_of(output, as_json), hide=("clocks",))


@app.command()
def send(
    context: typer.Context,
    reduce_percent: ReducePercent = None,
    reduce_kw: ReduceKw = None,
    limit_kw: LimitKw = None,
    limit_percent: LimitPercent = None,
    start: StartOption = "now",
    end: EndOption = None,
    duration: DurationOption = None,
    kind: Annotated[EventKind, typer.Option(help="Whether it counts.")] = EventKind.LIVE,
    event_id: Annotated[str | None, typer.Option("--id", help="Your name for it.")] = None,
    revision: Annotated[int, typer.Option(min=0, help="Higher replaces lower.")] = 0,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Ask the site for less.

    `gridaware event send --reduce-percent 25 --for PT1H --kind test`. Without --for and --end it
    goes on until it is cancelled.
    """
    event = connect(context).send_event(
        target=_target(reduce_percent, reduce_kw, limit_kw, limit_percent),
        start=start,
        end=end,
        duration=duration,
        kind=kind.value,
        event_id=event_id,
        revision=revision,
    )
    show_record(dict(event), form_of(output, as_json))


@app.command()
def preview(
    context: typer.Context,
    reduce_percent: ReducePercent = None,
    reduce_kw: ReduceKw = None,
    limit_kw: LimitKw = None,
    limit_percent: LimitPercent = None,
    start: StartOption = "now",
    end: EndOption = None,
    duration: DurationOption = None,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show who would be capped or paused, and what would be missing. Nothing is done.

    Exit status 5 if the target could not be met.
    """
    plan = connect(context).preview_event(
        target=_target(reduce_percent, reduce_kw, limit_kw, limit_percent),
        start=start,
        end=end,
        duration=duration,
    )
    form = form_of(output, as_json)
    jobs = plan.get("jobs", [])
    if form is Form.JSON:
        show_record(plan, form)
    else:
        show_rows(jobs, PLAN_COLUMNS, form)
        if form is Form.TABLE:
            write("\n")
            show_record(plan, form, hide=("jobs",))
    if (plan.get("unresolved_watts") or 0) > 0:
        raise typer.Exit(ExitCode.TARGET_MISSED)


@app.command()
def cancel(context: typer.Context, event_id: EventId) -> None:
    """Cancel an event that a person sent."""
    said(dict(connect(context).cancel_event(event_id)))


@app.command("opt-out")
def opt_out(context: typer.Context, event_id: EventId) -> None:
    """Opt out of an event of the grid; its sender is told where the feed can answer."""
    said(dict(connect(context).opt_out(event_id)))


@app.command()
def report(
    context: typer.Context,
    event_id: EventId,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
    html: Annotated[
        Path | None, typer.Option(help="Write the report as one HTML page to this file.")
    ] = None,
) -> None:
    """Show what an event delivered. Exit status 5 if its target was missed."""
    client = connect(context)
    form = form_of(output, as_json)
    body = client.event_report(event_id)
    if html is not None:
        page = client.event_report_file(event_id, "html")
        try:
            html.write_text(page, encoding="utf-8")
        except OSError as error:
            raise InvalidInput("report-file-unwritable", f"cannot write {html}: {error}") from error
        tell(f"wrote {html}")
    elif form is Form.CSV:
        write(client.event_report_file(event_id, "csv"))
    elif form is Form.JSON:
        write(json.dumps(body, ensure_ascii=False) + "\n")
    else:
        write(_report_table(body))
    if body.get("delivery", {}).get("intervals_missed"):
        raise typer.Exit(ExitCode.TARGET_MISSED)


def _report_table(body: dict[str, Any]) -> str:
    from rich.console import Console

    from gridaware.service.render import report_table

    return report_table(body, Console() if colourful(sys.stdout) else None)


def _target(
    reduce_percent: float | None,
    reduce_kw: float | None,
    limit_kw: float | None,
    limit_percent: float | None,
) -> dict[str, float]:
    given = {
        "reduce_percent": reduce_percent,
        "reduce_kw": reduce_kw,
        "limit_kw": limit_kw,
        "limit_percent_of_baseline": limit_percent,
    }
    target = {name: value for name, value in given.items() if value is not None}
    if len(target) != 1:
        raise InvalidInput(
            "cli-target-count",
            "give one of --reduce-percent, --reduce-kw, --limit-kw and --limit-percent",
        )
    return target
