"""A relay of ``benchmarks.fanout``, in a process of its own."""

import asyncio
import gc
import random
from multiprocessing.connection import Connection
from pathlib import Path

from gridaware.clock import SystemClock
from gridaware.node.openfiles import raise_open_files
from gridaware.node.relay import Relay
from gridaware.node.settings import (
    ControllerSettings,
    ListenSettings,
    RelaySettings,
    TlsSettings,
)
from gridaware.node.tls import agent_context, controller_context


def relay_name(number: int) -> str:
    """The id of a relay."""
    return f"relay-{number}"


def main(pipe: Connection, folder: Path, controller_port: int, number: int) -> None:
    """Carry until the main process kills this one."""
    asyncio.run(_run(pipe, folder, controller_port, number))


async def _run(pipe: Connection, folder: Path, controller_port: int, number: int) -> None:
    raise_open_files()
    name = relay_name(number)
    files = folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key"
    relay = Relay(
        RelaySettings(
            name,
            ControllerSettings("127.0.0.1", controller_port),
            TlsSettings(*files),
            ListenSettings("127.0.0.1", 0),
        ),
        controller_context(*files),
        agent_context(*files),
        SystemClock(),
        random.Random(number),
    )
    gc.freeze()
    pipe.send(("done", await relay.listen()))
    await relay.run()
