"""``python -m gridaware.wiring.agent --config FILE``: the privileged agent of one node.

Standard library, msgspec and PyYAML only (and nvidia-ml-py in the driver child): nothing of the
CLI, the web or the cluster runs with its privileges.
"""

import argparse
import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from gridaware.clock import SystemClock
from gridaware.domain.errors import ConfigError, GridawareError
from gridaware.node.agent import Agent
from gridaware.node.desk import JobDesk
from gridaware.node.settings import AgentSettings, load_settings
from gridaware.node.tls import agent_context

__all__ = ["main"]

_FAILED = 1
_USAGE = 2


def main(arguments: list[str] | None = None) -> int:
    """Run the agent until SIGTERM or SIGINT; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gridaware.wiring.agent", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the agent's settings (YAML)")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning"))
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        settings = load_settings(options.config)
        asyncio.run(_serve(settings))
    except ConfigError as error:
        print(f"{error.code}: {error.message}", file=sys.stderr)  # noqa: T201 - the command's answer
        return _USAGE
    except GridawareError as error:
        print(f"{error.code}: {error.message}", file=sys.stderr)  # noqa: T201
        return _FAILED
    return 0


async def _serve(settings: AgentSettings) -> None:
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
    await agent.run()


if __name__ == "__main__":
    sys.exit(main())
