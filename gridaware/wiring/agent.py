"""``python -m gridaware.wiring.agent --config FILE``: the privileged agent of one node.

Standard library, msgspec and PyYAML only (and nvidia-ml-py in the driver child): nothing of the
CLI, the web or the cluster runs with its privileges.
"""

import argparse
import asyncio
import gc
import getpass
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from gridaware.clock import SystemClock
from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput, Refused
from gridaware.node.agent import Agent
from gridaware.node.desk import JobDesk
from gridaware.node.settings import AgentSettings, load_settings
from gridaware.node.tls import agent_context
from gridaware.wiring.uninstall import retire, uninstall

__all__ = ["main"]

_FAILED = 1
_USAGE = 2
_REFUSED = 4


def main(arguments: list[str] | None = None) -> int:
    """Run the agent until SIGTERM or SIGINT; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gridaware.wiring.agent", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the agent's settings (YAML)")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning"))
    _add_removal(parser)
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        settings = load_settings(options.config)
        if options.uninstall:
            return _uninstall(settings, options)
        asyncio.run(_serve(settings))
    except Refused as error:
        print(f"{error.code}: {error.message}", file=sys.stderr)  # noqa: T201
        return _REFUSED
    except (ConfigError, InvalidInput) as error:
        print(f"{error.code}: {error.message}", file=sys.stderr)  # noqa: T201 - the command's answer
        return _USAGE
    except GridawareError as error:
        print(f"{error.code}: {error.message}", file=sys.stderr)  # noqa: T201
        return _FAILED
    return 0


def _add_removal(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("removal")
    told = "give every limit back within the ramp, and end; also where no agent runs"
    group.add_argument("--uninstall", action="store_true", help=told)
    group.add_argument("--confirm", help="the node's id: also while a lease is alive")
    group.add_argument("--reason", help="with --confirm: told to the programmes")
    group.add_argument("--now", action="store_true", help="at once; only with --confirm")
    group.add_argument("--wait", type=float, default=600.0, help="seconds, %(default)g")


def _uninstall(settings: AgentSettings, options: argparse.Namespace) -> int:
    given = {"confirm": options.confirm, "reason": options.reason}
    arguments = {key: value for key, value in given.items() if value is not None}
    arguments["actor"] = os.environ.get("SUDO_USER") or getpass.getuser()
    if options.now:
        arguments["at_once"] = "true"

    def start(arguments: Mapping[str, str]) -> None:
        asyncio.run(_serve(settings, arguments))

    if uninstall(settings, arguments, start, options.wait):
        print("every limit is as it was found; the agent has ended")  # noqa: T201
        return 0
    print(f"not everything is back after {options.wait:g} s", file=sys.stderr)  # noqa: T201
    return _FAILED


async def _serve(settings: AgentSettings, removal: Mapping[str, str] | None = None) -> None:
    clock = SystemClock()
    tls = settings.tls
    context = agent_context(tls.ca, tls.certificate, tls.key)

    def make_desk(emit: Callable[[object], None]) -> JobDesk:
        return JobDesk(
            settings.run_dir / "agent.sock",
            settings.run_dir / "jobs",
            clock,
            emit,
            node_id=settings.node_id,
        )

    jitter = Random(f"{settings.node_id} {clock.wall()}")  # noqa: S311 - spreads reconnections
    agent = Agent(settings, context, clock, jitter, make_desk)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.stop)
    gc.freeze()  # looking through all that was imported would hold up a command for milliseconds
    await (agent.run() if removal is None else retire(agent, removal))


if __name__ == "__main__":
    sys.exit(main())
