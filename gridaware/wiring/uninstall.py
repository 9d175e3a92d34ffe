"""Removing the agent of a node: it gives everything back first, whether it still runs or not.

Where an agent runs it is asked to, over its root-only socket. Where none does (it was stopped, or
it crashed for good) one is started for nothing else: it goes on from the journal, gives everything
back in its slot of the ramp, tells a controller that can be reached, and ends.
"""

import asyncio
from collections.abc import Callable, Mapping
from time import sleep

from gridaware.domain.errors import GridawareError, Unavailable
from gridaware.node.agent import Agent
from gridaware.node.settings import AgentSettings
from gridaware.wiring.ask_agent import ask_agent

__all__ = ["retire", "uninstall"]

LOOK_SECONDS = 0.5


def uninstall(
    settings: AgentSettings,
    arguments: Mapping[str, str],
    start: Callable[[Mapping[str, str]], None],
    wait_seconds: float,
) -> bool:
    """Give everything back; whether all of it was back before the time was over.

    ``start`` runs an agent that does it, where none does.

    Raises:
        Refused: a lease is alive, and nobody has confirmed.
        InvalidInput: the wrong word was typed, or the reason is missing.
    """
    path = settings.run_dir / "admin.sock"
    try:
        ask_agent(path, "uninstall", arguments)
    except Unavailable:
        start(arguments)
        return True
    left = wait_seconds
    while left > 0:
        sleep(LOOK_SECONDS)
        left -= LOOK_SECONDS
        try:
            ask_agent(path, "status")
        except Unavailable:
            return True
    return False


async def retire(agent: Agent, arguments: Mapping[str, str]) -> None:
    """Have an agent of this process give everything back once its driver answers, and end.

    Raises:
        GridawareError: it is refused; the agent ends all the same, and limits stand.
    """
    running = asyncio.ensure_future(agent.run())
    try:
        await asyncio.wait(
            [running, asyncio.ensure_future(agent.ready.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        agent.root.uninstall(arguments)
    except GridawareError:
        agent.stop()
        raise
    finally:
        await running
