"""The controller of ``benchmarks.fanout``: link and dispatcher in a process of their own."""

import asyncio
import gc
import random
import re
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.fanout_agents import gpu_names, node_name, require_open_files, serve_pipe
from benchmarks.rawtcp import fan_out
from gridaware.clock import SystemClock
from gridaware.control.dispatch import Dispatcher
from gridaware.control.instructions import SendLease
from gridaware.control.state import State
from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.domain.moment import Moment
from gridaware.domain.wire import Acknowledged, Desired, Hello
from gridaware.node.frames import encode
from gridaware.node.link import AgentMessage, LinkServer
from gridaware.node.tls import controller_context
from gridaware.wiring.identity import voucher

PAUSE_SECONDS = 0.1
WARM_UP = 5
CLOCK = SystemClock()


def main(
    pipe: Connection, folder: Path, port: int, epoch: int, agents: int, gpus: int, seed: int
) -> None:
    """Serve the questions of the main process until it kills this one."""
    asyncio.run(_Controller(agents, gpus, epoch, seed).run(pipe, folder, port))


class _CountingLink(LinkServer):
    """Notes who dials."""

    first_seconds = 0.0
    accepts = 0

    def opened(self, connection: Any) -> None:
        """Another connection."""
        if not self.accepts:
            self.first_seconds = CLOCK.monotonic_seconds()
        self.accepts += 1
        super().opened(connection)


class _Controller:
    """Hears the agents, and orders in rounds."""

    def __init__(self, agents: int, gpus: int, epoch: int, seed: int) -> None:
        self._agents, self._gpus, self._epoch = agents, gpus, epoch
        self._draw = random.Random(seed)
        self._link = _CountingLink(CLOCK)
        self._state = State(controller_epoch=epoch)
        self._dispatcher = Dispatcher(self._link, self, CLOCK)  # type: ignore[arg-type]
        self._here: set[str] = set()
        self._all_here = asyncio.Event()
        self._awaited: set[str] = set()
        self._all_done = asyncio.Event()
        self._sequence = 0
        self._raw: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._raw_port = 0

    async def run(self, pipe: Connection, folder: Path, port: int) -> None:
        """Listen, and answer until the pipe closes."""
        require_open_files(2 * self._agents + 100)
        context = controller_context(
            folder / "ca.pem", folder / "controller.pem", folder / "controller.key"
        )
        server = await asyncio.start_server(self._raw_joined, "127.0.0.1", 0, backlog=1024)
        self._raw_port = server.sockets[0].getsockname()[1]
        gc.freeze()
        vouch = voucher(folder / "ca.pem", CLOCK)
        bound = await self._link.start("127.0.0.1", port, context, self._epoch, self, vouch)
        (folder / "raw-port").write_text(str(self._raw_port), encoding="ascii")
        pipe.send(("done", bound))
        await serve_pipe(
            pipe,
            {
                "memory": self._memory,
                "all-here": self._wait_for_all,
                "rounds": self._rounds,
                "accepts": self._accepts,
            },
        )

    # What the agents say ------------------------------------------------------------------------

    def on_hello(self, hello: Hello, moment: Moment) -> None:
        """An agent is here."""
        del moment
        self._here.add(hello.node_id)
        if len(self._here) == self._agents:
            self._all_here.set()

    def on_message(self, node_id: str, message: AgentMessage, moment: Moment) -> None:
        """An acknowledgement counts, a sample does not."""
        del moment
        if (
            isinstance(message, Acknowledged)
            and message.complete
            and message.sequence == self._sequence
        ):
            self._awaited.discard(node_id)
            if not self._awaited:
                self._all_done.set()

    def on_lost(self, node_id: str, moment: Moment) -> None:
        """An agent is gone."""
        del moment
        self._here.discard(node_id)

    # What the main process asks -----------------------------------------------------------------

    async def _memory(self, _: Any) -> int:
        """Resident bytes of this process."""
        status = Path("/proc/self/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return 1024 * int(found[1])

    async def _wait_for_all(self, _: Any) -> None:
        await self._all_here.wait()

    async def _accepts(self, _: Any) -> tuple[float, int]:
        return self._link.first_seconds, self._link.accepts

    async def _rounds(self, rounds: int) -> tuple[list[float], list[float]]:
        """(seconds of each fan-out, seconds of each raw one)."""
        ordered: list[float] = []
        raw: list[float] = []
        for number in range(-WARM_UP, rounds):
            leases = self._decide()
            await asyncio.sleep(PAUSE_SECONDS)
            seconds = await self._order(leases)
            await asyncio.sleep(PAUSE_SECONDS)
            plain = await fan_out(self._raw, [self._frame(lease) for lease in leases])
            if number >= 0:
                ordered.append(seconds)
                raw.append(plain)
        return ordered, raw

    def _decide(self) -> list[SendLease]:
        """A new lease for every node."""
        self._sequence += 1
        decision = f"d{self._epoch}-{self._sequence}"
        return [
            SendLease(node_name(n), self._sequence, decision, self._lease(n, decision))
            for n in range(self._agents)
        ]

    def _lease(self, number: int, decision: str) -> Lease:
        limits = tuple((g, self._draw.uniform(150, 400)) for g in gpu_names(number, self._gpus))
        slot = RestoreSlot(0.05 * number, 30.0)
        return Lease(decision, limits, 3600.0, slot, event_ids=("event-1",))

    async def _order(self, leases: Sequence[SendLease]) -> float:
        self._awaited = set(self._here)
        assert len(self._awaited) == self._agents
        self._all_done.clear()
        began = CLOCK.monotonic_seconds()
        self._dispatcher.carry_out(leases, self._state)
        await asyncio.wait_for(self._all_done.wait(), 30)
        return CLOCK.monotonic_seconds() - began

    def _frame(self, order: SendLease) -> bytes:
        """The frame that the link sends for it."""
        now = CLOCK.wall()
        return encode(
            Desired(self._epoch, order.sequence, order.decision_id, now, now, order.lease)
        )

    def _raw_joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._raw.append((reader, writer))
