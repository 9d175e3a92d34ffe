"""`gridaware release`: give every limit back, whatever runs and whatever does not."""

import asyncio
import getpass
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

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
    tell,
)
from gridaware.cli.problem import ExitCode
from gridaware.domain.errors import InvalidInput, Refused, Unavailable

if TYPE_CHECKING:
    from gridaware.wiring.config import Settings

__all__ = ["add_to"]

FLEET = "fleet"
"""What must be typed to release all of it."""
LOOK_SECONDS = 0.5
CONTROL_SECONDS = 15.0
CONTROL_SOCKET = "control.sock"
"""In the site's state_dir."""
UNCONFIRMED = {"lease-alive", "release-ramp-unconfirmed", "release-unconfirmed"}
FLEET_COLUMNS = (Column("NODE", "node_id"), Column("STATE", "state"), Column("DETAIL", "detail"))


def add_to(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command()(release)


def release(
    context: typer.Context,
    fleet: Annotated[bool, typer.Option("--fleet", help="Every node, not this one alone.")] = False,
    uninstall: Annotated[
        bool, typer.Option("--uninstall", help="This node for good: its agent ends afterwards.")
    ] = False,
    now: Annotated[
        bool, typer.Option("--now", help="At once, faster than the site's ramp allows.")
    ] = False,
    confirm: Annotated[
        str | None, typer.Option(help="The node's id, or `fleet`: typed, it confirms.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Told to the programmes beside your name.")] = "",
    wait: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait until every limit is back.")
    ] = 600.0,
    socket: Annotated[
        Path | None, typer.Option(help="The root-only socket of this node's agent.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="The site's settings: with control down, --fleet needs it."),
    ] = None,
    after_epoch: Annotated[
        int, typer.Option(min=0, help="With --fleet and a lost store: the epoch agents obeyed.")
    ] = 0,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Restore the limits that were found, within the site's ramp.

    On this node, as root, also with control down; or on the whole fleet: through control, or, with
    control down, through a stand-in that listens in its place (on control's host, with --config).
    During an event, or faster than the ramp, it must be confirmed with a reason, and the event's
    programme is told. Exit status 1 if not everything is back in time, 4 if it is refused.
    """
    form = form_of(output, as_json)
    given = {"confirm": confirm, "reason": reason or None, "at_once": "true" if now else None}
    arguments = {key: value for key, value in given.items() if value is not None}
    if fleet and uninstall:
        raise InvalidInput("release-both", "--fleet and --uninstall exclude each other")
    if fleet:
        _release_fleet(context, arguments, config, wait, after_epoch, form)
    else:
        _release_node(socket, arguments, wait, form, uninstall=uninstall)


def _release_node(
    socket: Path | None, arguments: dict[str, str], wait: float, form: Form, *, uninstall: bool
) -> None:
    from gridaware.wiring.ask_agent import ADMIN_SOCKET, ask_agent

    path, command = socket or ADMIN_SOCKET, "uninstall" if uninstall else "release"
    arguments["actor"] = _who()
    try:
        status = ask_agent(path, command, arguments)
    except Refused as refusal:
        node_id = str(ask_agent(path, "status")["node_id"])
        arguments |= _typed(refusal, node_id, arguments)
        status = ask_agent(path, command, arguments)
    left = wait
    while not _is_back(status, uninstall=uninstall) and left > 0:
        sleep(LOOK_SECONDS)
        left -= LOOK_SECONDS
        try:
            status = ask_agent(path, "status")
        except Unavailable:
            if not uninstall:
                raise
            status |= {"released": True, "holding": False, "phase": "uninstalled"}
    show_record(status, form)
    if not _is_back(status, uninstall=uninstall):
        raise typer.Exit(ExitCode.FAILED)


def _is_back(status: dict[str, Any], *, uninstall: bool) -> bool:
    return bool(status["released"]) and not (uninstall and status["holding"])


def _release_fleet(
    context: typer.Context,
    arguments: dict[str, str],
    config: Path | None,
    wait: float,
    after_epoch: int,
    form: Form,
) -> None:
    try:
        answer = _through_api(context, arguments)
    except Unavailable:
        if config is None:
            tell("With control down, run this on its host with --config FILE.")
            raise
    else:
        show_record(answer, form)
        return
    from gridaware.wiring.config import load_settings

    settings = load_settings(config)
    if "confirm" not in arguments:
        refusal = Refused("release-unconfirmed", "control is down: whether events act is not known")
        arguments |= _typed(refusal, FLEET, arguments)
    _check_confirmation(arguments)
    try:
        nodes = _through_stand_in(settings, arguments, wait, after_epoch)
    except Refused as refusal:
        if refusal.code != "store-locked":
            raise
        show_record(_through_control(settings, arguments), form)
        return
    show_rows(nodes, FLEET_COLUMNS, form)
    if not nodes or any(node["state"] != "released" for node in nodes):
        raise typer.Exit(ExitCode.FAILED)


def _through_api(context: typer.Context, arguments: dict[str, str]) -> dict[str, Any]:
    client = connect(context)
    try:
        return client.release(**_wish(arguments))
    except Refused as refusal:
        arguments |= _typed(refusal, FLEET, arguments)
        return client.release(**_wish(arguments))


def _through_control(settings: "Settings", arguments: dict[str, str]) -> dict[str, Any]:
    """Control lives and only the web process does not answer: ask control itself."""
    from gridaware.service.control_client import ControlClient

    wish = _wish(arguments)
    args = {"confirm": "opt out", "reason": wish["reason"], "at_once": wish["at_once"]}
    client = ControlClient(settings.state_dir / CONTROL_SOCKET, CONTROL_SECONDS)
    answer = asyncio.run(client.send("fleet.release", args, actor=_who()))
    result: dict[str, Any] = json.loads(answer)
    return result


def _through_stand_in(
    settings: "Settings", arguments: dict[str, str], wait: float, after_epoch: int
) -> list[dict[str, Any]]:
    from gridaware.clock import SystemClock
    from gridaware.domain.wire import Release
    from gridaware.wiring.release import NodeRelease, release_fleet

    def say(node: NodeRelease) -> None:
        tell(f"{node.node_id}: {node.state} {node.detail}".rstrip())

    order = Release(_who(), arguments["reason"], "at_once" in arguments)
    nodes = release_fleet(
        settings, SystemClock(), order, wait_seconds=wait, after_epoch=after_epoch, say=say
    )
    return [asdict(node) for node in nodes]


def _wish(arguments: dict[str, str]) -> dict[str, Any]:
    confirmed = "confirm" in arguments
    if confirmed:
        _check_confirmation(arguments)
    return {
        "opt_out": confirmed,
        "reason": arguments.get("reason", ""),
        "at_once": "at_once" in arguments,
    }


def _check_confirmation(arguments: dict[str, str]) -> None:
    if arguments["confirm"] != FLEET:
        raise InvalidInput(
            "release-confirmation", f"{arguments['confirm']!r} was typed, not {FLEET!r}"
        )
    if not arguments.get("reason"):
        raise InvalidInput("release-reason", "the programmes are told why: a reason is missing")


def _typed(refusal: Refused, word: str, arguments: dict[str, str]) -> dict[str, str]:
    """What a person at the keyboard types to confirm; scripts must have said it before.

    Raises:
        Refused: the refusal, where it cannot be overcome or nobody is at the keyboard.
    """
    if refusal.code not in UNCONFIRMED or "confirm" in arguments or not sys.stdin.isatty():
        raise refusal
    tell(f"{refusal.message}.\nThe programmes are told that you opted out, and why.")
    typed = typer.prompt(f"Type {word} to go on", err=True)
    reason = arguments.get("reason") or typer.prompt("Reason", err=True)
    return {"confirm": typed, "reason": reason}


def _who() -> str:
    """The person, also behind sudo."""
    return os.environ.get("SUDO_USER") or getpass.getuser()
