"""The agents of ``benchmarks.fanout``: many light ones in a process, each with the real uplink."""

import asyncio
import gc
import random
import traceback
from collections.abc import Awaitable, Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.rawtcp import answer
from gridaware.clock import SystemClock
from gridaware.domain.fleet import Gpu, LimitRange
from gridaware.domain.wire import (
    PROTOCOL_VERSION,
    Acknowledged,
    Desired,
    GpuResult,
    GpuSample,
    Hello,
    Sample,
    SampleBatch,
    Welcome,
)
from gridaware.node.openfiles import raise_open_files
from gridaware.node.settings import ControllerSettings
from gridaware.node.tls import agent_context
from gridaware.node.uplink import Uplink

CLOCK = SystemClock()
LIMITS = LimitRange(100.0, 400.0, 400.0)

Questions = Mapping[str, Callable[[Any], Awaitable[Any]]]


def node_name(number: int) -> str:
    """The id of a node."""
    return f"node-{number:04}"


def gpu_names(node: int, gpus: int) -> list[str]:
    """UUIDs of a node's GPUs, as long as NVML's."""
    return [f"GPU-{node:08x}-0000-0000-0000-{index:012x}" for index in range(gpus)]


def require_open_files(count: int) -> None:
    """Raise the limit of open files.

    Raises:
        RuntimeError: it does not go so far.
    """
    most = raise_open_files()
    if most < count:
        raise RuntimeError(f"needs {count} open files, may have {most}: raise `ulimit -Hn`")


async def serve_pipe(pipe: Connection, questions: Questions) -> None:
    """Answer the main process until it is gone."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            question, argument = await loop.run_in_executor(None, pipe.recv)
        except EOFError:
            return
        try:
            pipe.send(("done", await questions[question](argument)))
        except Exception:
            pipe.send(("failed", traceback.format_exc()))


def main(
    pipe: Connection, folder: Path, ports: list[int], numbers: list[int], gpus: int, seed: int
) -> None:
    """Run these agents, which dial the ports in turn, until the main process kills this one."""
    asyncio.run(_run(pipe, folder, ports, numbers, gpus, seed))


async def _run(
    pipe: Connection, folder: Path, ports: list[int], numbers: list[int], gpus: int, seed: int
) -> None:
    require_open_files(2 * len(numbers) + 100)
    agents = [
        _Agent(folder, ports[i % len(ports)], n, gpus, random.Random(f"{seed} {n}"))
        for i, n in enumerate(numbers)
    ]
    gc.freeze()  # as every agent does when it starts
    tasks = [asyncio.ensure_future(work) for a in agents for work in (a.uplink.run(), a.samples())]

    async def welcomed(epoch: int) -> float:
        while any(a.epoch != epoch for a in agents):
            await asyncio.sleep(0.05)
        return max(a.welcomed_seconds for a in agents)

    async def dial_raw(_: Any) -> None:
        raw_port = int((folder / "raw-port").read_text(encoding="ascii"))
        tasks.extend(asyncio.ensure_future(answer(raw_port)) for _ in agents)
        await asyncio.sleep(1.0)

    await serve_pipe(pipe, {"welcomed": welcomed, "dial-raw": dial_raw})


class _Agent:
    """One node's agent without GPUs: it does at once what it is asked."""

    def __init__(
        self, folder: Path, port: int, number: int, gpus: int, draw: random.Random
    ) -> None:
        name = self._name = node_name(number)
        self._gpus = gpu_names(number, gpus)
        self._draw = draw
        self.epoch = 0
        self.welcomed_seconds = 0.0
        context = agent_context(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
        self.uplink = Uplink(ControllerSettings("127.0.0.1", port), context, CLOCK, draw, self)

    async def samples(self) -> None:
        """One of all GPUs a second, as an agent sends them outside events."""
        await asyncio.sleep(self._draw.random())
        while True:
            gpus = tuple(
                GpuSample(g, 250.0, 1e9, 400.0, 400.0, "good", "job-1", 1, False, False)
                for g in self._gpus
            )
            self.uplink.send(SampleBatch(self._name, "e1", (Sample(CLOCK.wall(), gpus),)))
            await asyncio.sleep(1.0)

    # What the uplink asks -----------------------------------------------------------------------

    def hello(self) -> Hello:
        """A node with its GPUs."""
        gpus = tuple(Gpu(g, i, "A100", LIMITS, 400.0) for i, g in enumerate(self._gpus))
        return Hello(
            PROTOCOL_VERSION,
            self._name,
            "0",
            "boot",
            "e1",
            gpus,
            ("limits", "samples"),
            self.epoch,
            None,
            None,
        )

    def on_welcome(self, welcome: Welcome) -> bool:
        """A controller accepts us."""
        self.epoch = welcome.controller_epoch
        self.welcomed_seconds = CLOCK.monotonic_seconds()
        return True

    def on_command(self, message: Any) -> None:
        """Acknowledge a desired state."""
        if isinstance(message, Desired):
            results = tuple(GpuResult(g, w, w, None) for g, w in message.lease.limits_watts)
            self.uplink.send(
                Acknowledged(
                    self._name,
                    message.controller_epoch,
                    message.sequence,
                    message.decision_id,
                    results,
                    True,
                    CLOCK.wall(),
                )
            )

    def on_heard(self) -> None:
        """The controller is there."""
