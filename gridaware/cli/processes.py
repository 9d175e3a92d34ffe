"""`gridaware demo|init|serve|agent|relay`: the commands that start or prepare something."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gridaware.cli.output import tell, write

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file to the root."""
    app.command()(demo)
    app.command()(init)
    app.command()(serve)
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=passed_on)(agent)
    app.command(context_settings=passed_on)(relay)


def demo(
    folder: Annotated[
        Path, typer.Option("--folder", help="Where the event's report is written.")
    ] = Path("gridaware-demo"),
) -> None:
    """See it all at work, on a simulated cluster with real Ray.

    16 simulated GPUs, three training jobs, one signed signal; two minutes.

    Needs no GPU. Exit status 5 if the target was missed.
    """
    from gridaware.sim.demo import run

    raise typer.Exit(run(folder))


def init(
    folder: Annotated[Path, typer.Argument(help="The site's folder.")],
    node: Annotated[
        list[str] | None, typer.Option(help="Also make an identity for this node; repeatable.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address that agents dial the controller by; repeatable."),
    ] = None,
    relay: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=HOST",
            help="Also make an identity for a relay that agents dial as HOST; repeatable.",
        ),
    ] = None,
    via: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="The relay that these nodes dial."),
    ] = None,
) -> None:
    """Prepare a site in a folder.

    Commented settings, the CA, certificates, and an API key that is shown once. What is there
    already is kept, so that a node can be added later.
    """
    from gridaware.cli.jobs import pairs_of
    from gridaware.clock import SystemClock
    from gridaware.wiring.initialise import initialise

    relays = pairs_of(relay or [])
    made = initialise(
        folder,
        SystemClock(),
        nodes=tuple(node or ()),
        hosts=tuple(host or ()),
        relays=relays,
        via=via,
    )
    for path in made.kept:
        tell(f"kept   {path}")
    for path in made.written:
        tell(f"wrote  {path}")
    for name in node or ():
        tell(f"copy {folder / 'nodes' / name} to {name}, and start its agent there as root")
    for name, dialled in relays.items():
        tell(f"copy {folder / 'relays' / name} to {dialled}, and start the relay there")
    if made.api_key is None:
        return
    tell("\nThe API key, shown this once (only its hash is kept):")
    write(f"{made.api_key}\n")
    tell("\nNext:")
    tell("  export GRIDAWARE_API_KEY=<the key above>")
    tell(f"  gridaware doctor --config {made.settings}")
    tell(f"  gridaware serve --config {made.settings}")


def serve(
    config: Annotated[Path, typer.Option("--config", help="The site's settings.")],
    act: Annotated[
        bool | None, typer.Option("--act/--no-act", help="Whether anything may be touched.")
    ] = None,
    after_epoch: Annotated[
        int | None,
        typer.Option(
            min=0, help="Where the store was lost: the epoch that the agents say they obeyed."
        ),
    ] = None,
) -> None:
    """Run the controller and the web process until stopped."""
    from gridaware.wiring.serve import run

    if after_epoch is not None:
        os.environ["GRIDAWARE__CONTROL__AFTER_EPOCH"] = str(after_epoch)
    if act is not None:  # both processes read the environment, which yields to a flag only so
        os.environ["GRIDAWARE__CONTROL__ACT"] = str(act).lower()
    raise typer.Exit(run(config))


def agent(context: typer.Context) -> None:
    """Run the agent of this node, as root, or remove it (`--uninstall`).

    `gridaware agent --config FILE` is `python -m gridaware.wiring.agent --config FILE`, which
    needs nothing of this command line.
    """
    # In the place of this process, so that the privileged one carries no library of ours too many.
    command = [sys.executable, "-m", "gridaware.wiring.agent", *context.args]
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


def relay(context: typer.Context) -> None:
    """Run a relay: it carries the streams of many agents to the controller.

    `gridaware relay --config FILE` is `python -m gridaware.wiring.relay --config FILE`. Needed
    above some 1,000 nodes; needs no privilege.
    """
    command = [sys.executable, "-m", "gridaware.wiring.relay", *context.args]
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted
