"""`gridaware status|doctor|replay`: the site as a whole."""

from pathlib import Path
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
from gridaware.cli.problem import ExitCode
from gridaware.domain.errors import InvalidInput

__all__ = ["add_to"]

CHECK_COLUMNS = (
    Column("", "verdict"),
    Column("CHECK", "name"),
    Column("FACT", "fact"),
    Column("FIX", "fix"),
)
ConfigOption = Annotated[Path | None, typer.Option("--config", help="The site's settings.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file to the root."""
    app.command()(status)
    app.command()(doctor)
    app.command()(replay)


def status(
    context: typer.Context, output: OutputOption = Form.TABLE, as_json: JsonOption = False
) -> None:
    """Show the site now.

    Power and target, open events, jobs and nodes by state, alarms.
    """
    show_record(dict(connect(context).status()), form_of(output, as_json))


def doctor(
    parts: Annotated[
        list[str] | None, typer.Argument(help="Only these parts; all of them if left out.")
    ] = None,
    config: ConfigOption = None,
    driver: Annotated[
        str, typer.Option(help="Import path of the GPU driver.")
    ] = "gridaware.devices.nvml",
    driver_option: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE for the driver; repeatable.")
    ] = None,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Look at every part of this installation.

    Nothing is changed. Exit status 1 if a part fails.
    """
    from gridaware.cli.jobs import pairs_of
    from gridaware.clock import SystemClock
    from gridaware.wiring.config import load_settings
    from gridaware.wiring.doctor import PARTS, Question, Verdict, diagnose

    for part in parts or ():
        if part not in PARTS:
            known = ", ".join(PARTS)
            raise InvalidInput("doctor-part-unknown", f"there is no part {part!r}; known: {known}")
    question = Question(load_settings(config), SystemClock(), driver, pairs_of(driver_option or []))
    form = form_of(output, as_json)
    checks: list[dict[str, Any]] = []
    for check in diagnose(question, tuple(parts or ())):
        checks.append(
            {"verdict": check.verdict, "name": check.name, "fact": check.fact, "fix": check.fix}
        )
        if form is Form.TABLE:  # each as soon as it is known: a hung driver takes its time
            write(f"{check.verdict:<5} {check.name:<28} {check.fact}\n")
            if check.fix and check.verdict is not Verdict.OK:
                write(f"      {'fix:':<28} {check.fix}\n")
    if form is not Form.TABLE:
        show_rows(checks, CHECK_COLUMNS, form)
    if any(check["verdict"] == Verdict.FAIL for check in checks):
        raise typer.Exit(ExitCode.FAILED)


def replay(
    event_id: Annotated[str, typer.Argument(help="The event's id.")],
    config: ConfigOption = None,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Decide an event again from its ledger, and compare.

    Reads the store directly; exit status 1 if a decision comes out differently.
    """
    from gridaware.wiring.config import load_settings
    from gridaware.wiring.replay import replay_event

    result = replay_event(load_settings(config), event_id)
    show_record(result, form_of(output, as_json))
    if result["differences"]:
        raise typer.Exit(ExitCode.FAILED)
