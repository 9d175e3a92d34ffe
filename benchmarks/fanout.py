"""One controller, a thousand agents: how long an order takes to reach all, what each costs.

``python -m benchmarks.fanout --agents 1000 -o json``

A process is the controller's link (``gridaware/node/link.py``) and the dispatcher in front of it;
at most four more are light agents: each with a TLS identity of its own and the real uplink, saying
Hello with 8 GPUs, a sample a second, and answering each desired state as soon as it is there. All
run on this machine and share its cores.

``fanout_ms``: from a decision (a lease for each node, every limit new) to the last complete
acknowledgement. ``raw_tcp_fanout_ms``: the very same frames, written to as many plain TCP
connections of the same processes by asyncio's streams and answered with four bytes, in rounds that
alternate with the others. ``bytes_per_idle_agent``: growth of the link process's resident memory,
from listening to everybody connected, welcomed and sending samples. ``reconnect_seconds``: the link
is killed and stays away for ``--down-seconds``; from the new one's first accepted connection to the
moment the last agent has its Welcome. ``reconnect_accepts``: connections that took, where the
number of agents is one each and more is a storm.

``--relays N`` shares the agents out to N relays (``gridaware/node/relay.py``), a process each,
whose streams are then all that the link has.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from benchmarks import fanout_agents, fanout_link, fanout_relay
from benchmarks.program import arguments, quantiles_ms, report
from gridaware.clock import SystemClock
from gridaware.wiring.identity import issue, make_ca

PROCESSES = 4
IDLE_SECONDS = 5.0
ANSWER_SECONDS = 120.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print one JSON object."""
    parser = arguments("fanout", __doc__)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--gpus-per-agent", type=int, default=8)
    parser.add_argument("--relays", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--down-seconds", type=float, default=6.0)
    return report(measure, parser.parse_args(argv))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Start everything, measure, and end it."""
    with tempfile.TemporaryDirectory(prefix="gwfan") as name:
        folder = Path(name)
        _identities(folder, options)
        site = _Site(folder, options)
        try:
            return _figures(site, options)
        finally:
            site.end()


def _figures(site: "_Site", options: argparse.Namespace) -> dict[str, Any]:
    site.start_link(epoch=1)
    site.start_relays()
    before = site.ask_link("memory")
    site.start_agents()
    site.ask_link("all-here")
    _note("all agents are connected")
    time.sleep(IDLE_SECONDS)
    each = (site.ask_link("memory") - before) / options.agents
    site.ask_agents("dial-raw")
    fanout, raw = site.ask_link("rounds", options.rounds)
    _note("the rounds are done")
    site.kill_link()
    time.sleep(options.down_seconds)
    site.start_link(epoch=2)
    welcomed = max(site.ask_agents("welcomed", 2))
    accepted, accepts = site.ask_link("accepts")
    return {
        "agents": options.agents,
        "agent_processes": site.processes,
        "relays": options.relays,
        "gpus_per_agent": options.gpus_per_agent,
        "rounds": options.rounds,
        "seed": options.seed,
        "fanout_ms": quantiles_ms(fanout, highest=False),
        "raw_tcp_fanout_ms": quantiles_ms(raw, highest=False),
        "ratio_to_raw_p50": round(statistics.median(fanout) / statistics.median(raw), 2),
        "bytes_per_idle_agent": round(each),
        "down_seconds": options.down_seconds,
        "reconnect_seconds": round(welcomed - accepted, 2),
        "reconnect_accepts": accepts,
    }


def _identities(folder: Path, options: argparse.Namespace) -> None:
    clock = SystemClock()
    make_ca(folder, clock)
    issue(folder, "controller", clock, "controller")
    for number in range(options.relays):
        issue(folder, fanout_relay.relay_name(number), clock, "relay")
    for number in range(options.agents):
        issue(folder, fanout_agents.node_name(number), clock)


class _Site:
    """The processes, and a pipe to each."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._context = get_context("spawn")
        self._folder, self._options = folder, options
        self._port = 0
        self._link: tuple[BaseProcess, Connection] | None = None
        self._relays: list[tuple[BaseProcess, Connection]] = []
        self._dialled: list[int] = []
        """Ports, to be shared by the agents."""
        self._agents: list[tuple[BaseProcess, Connection]] = []

    @property
    def processes(self) -> int:
        """How many are agents."""
        return len(self._agents)

    def start_link(self, epoch: int) -> None:
        """Let a controller's link listen, on the same port as an earlier one."""
        options = self._options
        self._link = self._start(
            fanout_link.main,
            self._folder,
            self._port,
            epoch,
            options.agents,
            options.gpus_per_agent,
            options.seed,
        )
        self._port = _answer(self._link[1])

    def start_relays(self) -> None:
        """Let relays listen, where there are any; agents dial these or the link."""
        for number in range(self._options.relays):
            relay = self._start(fanout_relay.main, self._folder, self._port, number)
            self._relays.append(relay)
            self._dialled.append(_answer(relay[1]))
        self._dialled = self._dialled or [self._port]

    def start_agents(self) -> None:
        """Share the agents out."""
        options = self._options
        for process in range(min(PROCESSES, options.agents)):
            numbers = range(process, options.agents, PROCESSES)
            self._agents.append(
                self._start(
                    fanout_agents.main,
                    self._folder,
                    self._dialled,
                    list(numbers),
                    options.gpus_per_agent,
                    options.seed,
                )
            )

    def ask_link(self, question: str, argument: Any = None) -> Any:
        """What the link answers."""
        assert self._link is not None
        self._link[1].send((question, argument))
        return _answer(self._link[1])

    def ask_agents(self, question: str, argument: Any = None) -> list[Any]:
        """What each process of agents answers."""
        for _, pipe in self._agents:
            pipe.send((question, argument))
        return [_answer(pipe) for _, pipe in self._agents]

    def kill_link(self) -> None:
        """As the kernel's out-of-memory killer would."""
        assert self._link is not None
        self._link[0].kill()
        self._link[0].join()

    def end(self) -> None:
        """End what was started."""
        link = [self._link] if self._link is not None else []
        for process, _ in [*self._agents, *self._relays, *link]:
            process.kill()
            process.join()

    def _start(self, target: Any, *arguments: Any) -> tuple[BaseProcess, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=target, args=(theirs, *arguments), daemon=True)
        process.start()
        theirs.close()
        return process, ours


def _answer(pipe: Connection) -> Any:
    if not pipe.poll(ANSWER_SECONDS):
        raise TimeoutError("a process of the benchmark does not answer")
    kind, value = pipe.recv()
    if kind == "failed":
        raise RuntimeError(value)
    return value


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
