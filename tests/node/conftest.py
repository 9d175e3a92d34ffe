"""Real agent processes over TLS, a real link server, the simulated driver on a window in a file."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import SystemClock
from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.domain.moment import Moment
from gridaware.domain.wire import Acknowledged, Desired, Hello, NodeFault
from gridaware.node.link import LinkServer
from gridaware.node.tls import controller_context
from gridaware.sim.site import NodeSpec, PlantSpec, build_window
from gridaware.sim.window import GpuSlot, Window
from gridaware.wiring.identity import issue, make_ca, voucher

CLOCK = SystemClock()
AT_ONCE = RestoreSlot()


@dataclass
class Heard:
    """What a controller heard, in order."""

    hellos: list[Hello] = field(default_factory=list)
    messages: list[tuple[str, Any]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def on_hello(self, hello: Hello, moment: Moment) -> None:
        self.hellos.append(hello)
        self.news.set()

    def on_message(self, node_id: str, message: Any, moment: Moment) -> None:
        self.messages.append((node_id, message))
        self.news.set()

    def on_lost(self, node_id: str, moment: Moment) -> None:
        self.lost.append(node_id)
        self.news.set()

    def of(self, kind: type) -> list[Any]:
        return [message for _, message in self.messages if isinstance(message, kind)]

    def faults(self) -> set[str]:
        return {fault.code for fault in self.of(NodeFault)}

    async def until(self, ready: Callable[[], Any], seconds: float = 15.0) -> Any:
        """Wait for news until ``ready`` says something true."""
        async with asyncio.timeout(seconds):
            while not (found := ready()):
                self.news.clear()
                await self.news.wait()
        return found


class Rig:
    """One node's files, its virtual GPUs and the process of its agent."""

    def __init__(self, folder: Path, gpus: int = 4) -> None:
        self.folder = folder
        spec = PlantSpec((NodeSpec("a100-400", gpus),), residuals=False)
        self.window: Window = build_window(spec, 1, folder / "window")
        make_ca(folder / "ca", CLOCK)
        self.controller = issue(folder / "ca", "controller", CLOCK, "controller")
        issue(folder / "ca", "n0", CLOCK)
        (folder / "agent.log").touch()
        self.process: subprocess.Popen[bytes] | None = None
        self.sequence = 0

    @property
    def gpus(self) -> list[GpuSlot]:
        return self.window.gpus_of(0)

    @property
    def gpu_ids(self) -> list[str]:
        return [gpu.uuid.decode() for gpu in self.gpus]

    def enforced(self) -> list[float]:
        return [gpu.enforced_watts for gpu in self.gpus]

    def start(
        self,
        port: int,
        *,
        identity: str = "n0",
        restore_on_stop: bool = False,
        frequency: Mapping[str, Any] | None = None,
    ) -> None:
        config = self.folder / "agent.yaml"
        config.write_text(
            json.dumps(
                {
                    "node_id": "n0",
                    "controller": {"host": "localhost", "port": port},
                    "tls": {
                        "ca": "ca/ca.pem",
                        "certificate": f"ca/{identity}.pem",
                        "key": f"ca/{identity}.key",
                    },
                    "driver": {
                        "module": "gridaware.sim.driver",
                        "options": {"window": str(self.folder / "window"), "node": "0"},
                    },
                    "state_dir": "state",
                    "run_dir": "run",
                    "restore_on_stop": restore_on_stop,
                    **({"frequency": frequency} if frequency else {}),
                }
            )
        )
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gridaware.wiring.agent", "--config", str(config)],
                stderr=log,
            )

    def kill(self) -> None:
        """kill -9, as the kernel's out-of-memory killer would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)

    def desired(
        self,
        watts: float | dict[str, float],
        seconds: float | None = 60.0,
        *,
        epoch: int = 1,
        slot: RestoreSlot = AT_ONCE,
    ) -> Desired:
        """The next Desired: the same limit for every GPU, or limits by GPU."""
        self.sequence += 1
        limits = watts if isinstance(watts, dict) else dict.fromkeys(self.gpu_ids, watts)
        now = CLOCK.wall()
        expires = None if seconds is None else now + timedelta(seconds=seconds)
        lease = Lease(f"l{self.sequence}", tuple(limits.items()), seconds, slot)
        return Desired(epoch, self.sequence, f"d{self.sequence}", now, expires, lease)

    async def ask(self, command: str, **arguments: str) -> Any:
        """One line to the agent's root socket and its answer."""
        reader, writer = await asyncio.open_unix_connection(self.folder / "run" / "admin.sock")
        writer.write(
            json.dumps({"id": "1", "command": command, "args": arguments}).encode() + b"\n"
        )
        answer = json.loads(await reader.readline())
        writer.close()
        return answer

    @contextlib.asynccontextmanager
    async def link(
        self, heard: Heard, *, epoch: int = 1, port: int = 0, silence_seconds: float = 5.0
    ) -> AsyncIterator[tuple[LinkServer, int]]:
        """A controller's end of the stream."""
        files = self.controller
        server = LinkServer(CLOCK, silence_seconds=silence_seconds)
        context = controller_context(files.ca, files.certificate, files.key)
        vouch = voucher(files.ca, CLOCK)
        bound = await server.start("127.0.0.1", port, context, epoch, heard, vouch)
        try:
            yield server, bound
        finally:
            await server.stop()

    async def applied(self, heard: Heard, server: LinkServer, desired: Desired) -> Acknowledged:
        """Send and wait for the complete acknowledgement."""
        await heard.until(lambda: "n0" in server.connected())
        assert server.send("n0", desired)
        return await heard.until(
            lambda: next(
                (
                    a
                    for a in heard.of(Acknowledged)
                    if a.sequence == desired.sequence and a.complete
                ),
                None,
            )
        )

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self.window.close()


async def _eventually(true: Callable[[], Any], seconds: float = 15.0) -> None:
    """Look at the hardware's registers until they show it."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.02)


@pytest.fixture
def eventually() -> Callable[..., Any]:
    return _eventually


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def rig() -> Iterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        made = Rig(Path(folder))
        try:
            yield made
        finally:
            made.close()
            print((Path(folder) / "agent.log").read_text())
