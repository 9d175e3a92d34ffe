"""`gridaware policy`: what an operator edits."""

from pathlib import Path
from typing import Annotated

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
)

__all__ = ["app"]

app = typer.Typer(
    help="Policies: one strategy plus its numbers.", no_args_is_help=True, rich_markup_mode=None
)
COLUMNS = (
    Column("NAME", "name"),
    Column("STRATEGY", "strategy"),
    Column("NUMBERS", "params"),
    Column("UNMANAGED", "unmanaged_tier"),
    Column("ACTIVE", "active"),
)


@app.command("list")
def list_policies(
    context: typer.Context, output: OutputOption = Form.TABLE, as_json: JsonOption = False
) -> None:
    """List policies, and which one is in force."""
    policies = connect(context).policies()
    show_rows((dict(policy) for policy in policies), COLUMNS, form_of(output, as_json))


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A policy file.")],
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Read a policy file and tell everything that is wrong with it."""
    from gridaware.wiring.policies import read_policy

    policy = read_policy(file)
    shown = {
        "name": policy.name,
        "strategy": policy.strategy,
        "params": policy.params,
        "unmanaged_tier": policy.unmanaged_tier,
    }
    show_record(shown, form_of(output, as_json))
