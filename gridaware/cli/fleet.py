"""`gridaware node` and `gridaware gpu`: the machines."""

from typing import Annotated

import typer

from gridaware.cli.connection import connect
from gridaware.cli.output import Column, Form, JsonOption, OutputOption, form_of, show_rows, tell

__all__ = ["gpus", "nodes"]

nodes = typer.Typer(
    help="Nodes, and the agents on them.", no_args_is_help=True, rich_markup_mode=None
)
gpus = typer.Typer(help="GPUs.", no_args_is_help=True, rich_markup_mode=None)
NODE_COLUMNS = (
    Column("ID", "node_id"),
    Column("STATE", "state"),
    Column("CLUSTER", "cluster_id"),
    Column("RELAY", "relay_id"),
    Column("POWER", "power_watts"),
    Column("ACKNOWLEDGED", "acknowledged"),
    Column("SEEN", "updated_at"),
)
GPU_COLUMNS = (
    Column("ID", "gpu_id"),
    Column("NODE", "node_id"),
    Column("INDEX", "index"),
    Column("MODEL", "model"),
    Column("POWER", "power_watts"),
    Column("LIMIT", "enforced_limit_watts"),
    Column("FOUND", "found_limit_watts"),
    Column("CLOCK", "asked_clock_mhz"),
    Column("LOCK", "clock_lock"),
    Column("JOB", "job_id"),
    Column("ERROR", "error"),
)
NodeId = Annotated[str, typer.Argument(help="The node's id.")]


@nodes.command("list")
def list_nodes(
    context: typer.Context, output: OutputOption = Form.TABLE, as_json: JsonOption = False
) -> None:
    """List nodes."""
    found = connect(context).nodes()
    show_rows((dict(node) for node in found), NODE_COLUMNS, form_of(output, as_json))


@nodes.command()
def cordon(context: typer.Context, node_id: NodeId) -> None:
    """Start nothing new on a node; what runs there goes on."""
    connect(context).cordon(node_id)
    tell(f"{node_id} is cordoned")


@nodes.command()
def uncordon(context: typer.Context, node_id: NodeId) -> None:
    """Let a cordoned node take jobs again."""
    connect(context).uncordon(node_id)
    tell(f"{node_id} takes jobs again")


@gpus.command("list")
def list_gpus(
    context: typer.Context, output: OutputOption = Form.TABLE, as_json: JsonOption = False
) -> None:
    """List GPUs with their power and their limits."""
    found = connect(context).gpus()
    show_rows((dict(gpu) for gpu in found), GPU_COLUMNS, form_of(output, as_json))
