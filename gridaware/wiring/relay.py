"""``python -m gridaware.wiring.relay --config FILE``: carries the streams of many agents.

Above some 1,000 nodes a few of these stand between agents and controller. It needs no privilege, no
store and no more of gridaware than the agent does.
"""

import argparse
import asyncio
import contextlib
import gc
import logging
import signal
import sys
from pathlib import Path
from random import Random

from gridaware.clock import SystemClock
from gridaware.domain.errors import GridawareError
from gridaware.domain.fixes import fix_for
from gridaware.node.openfiles import raise_open_files
from gridaware.node.relay import Relay
from gridaware.node.settings import RelaySettings, load_relay_settings
from gridaware.node.tls import agent_context, controller_context

__all__ = ["main"]

_USAGE = 2


def main(arguments: list[str] | None = None) -> int:
    """Run the relay until SIGTERM or SIGINT; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gridaware.wiring.relay", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the relay's settings (YAML)")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning"))
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        settings = load_relay_settings(options.config)
        asyncio.run(_serve(settings))
    except GridawareError as error:
        fix = fix_for(error.code)
        told = f"error[{error.code}]: {error.message}\n" + (f"  fix      {fix}\n" if fix else "")
        sys.stderr.write(told)
        return _USAGE
    return 0


async def _serve(settings: RelaySettings) -> None:
    clock, tls = SystemClock(), settings.tls
    raise_open_files()
    jitter = Random(f"{settings.relay_id} {clock.wall()}")  # noqa: S311 - spreads reconnections
    relay = Relay(
        settings,
        controller_context(tls.ca, tls.certificate, tls.key),
        agent_context(tls.ca, tls.certificate, tls.key),
        clock,
        jitter,
    )
    await relay.listen()
    task = asyncio.ensure_future(relay.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    gc.freeze()
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    sys.exit(main())
