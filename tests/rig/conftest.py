"""Real NVML clients against the virtual library, driven by a real plant process."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest

from gridaware.clock import SystemClock
from gridaware.devices.nvml import open_driver
from gridaware.domain.lease import Lease
from gridaware.domain.wire import Acknowledged, Desired, NodeFault
from gridaware.node.link import LinkServer
from gridaware.node.tls import controller_context
from gridaware.planning.model import CurveBook
from gridaware.sim.nvml.build import build
from gridaware.sim.plant import Plant
from gridaware.sim.site import NodeSpec, PlantSpec, build_window
from gridaware.sim.window import Window
from gridaware.wiring.curves import load_curves
from gridaware.wiring.identity import issue, make_ca

CLOCK = SystemClock()


def start(arguments: list[str], **more: str) -> subprocess.Popen[str]:
    """A Python child of this interpreter with some more environment."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, **more},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


@dataclass
class Site:
    """A plant that runs, and its window seen from the test."""

    path: Path
    window: Window
    library: Path
    plant: subprocess.Popen[str] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What makes an NVML client find this site's first node."""
        return {
            "GRIDAWARE_SIM_WINDOW": str(self.path),
            "GRIDAWARE_SIM_NODE": "0",
            "LD_LIBRARY_PATH": str(self.library.parent),
        }


@pytest.fixture
def eventually():
    """Waits until something holds: the plant and its jobs run in real time."""

    def wait(condition, seconds=10.0):
        deadline = time.monotonic() + seconds  # noqa: TID251
        while not condition():
            assert time.monotonic() < deadline, "it did not come to pass"  # noqa: TID251
            time.sleep(0.01)

    return wait


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def make_site(tmp_path, library, monkeypatch):
    plants, windows = [], []

    def make(gpu: str = "a100-400", gpus: int = 2) -> Site:
        path = tmp_path / "window"
        arguments = ["--gpu", gpu, "--gpus-per-node", str(gpus), "--window", str(path)]
        plant = start(["-m", "gridaware.sim.plant", "--seed", "1", *arguments])
        plants.append(plant)
        assert json.loads(plant.stdout.readline())["ready"]
        windows.append(Window.open(path))
        monkeypatch.setenv("GRIDAWARE_SIM_WINDOW", str(path))
        monkeypatch.setenv("GRIDAWARE_SIM_NODE", "0")
        return Site(path, windows[-1], library, plant)

    yield make
    for plant in plants:
        end(plant)
    for window in windows:
        window.close()


@pytest.fixture
def still_site(tmp_path, library, monkeypatch):
    """One GPU whose registers stand still, so that a test may write what a sensor shows."""
    spec = PlantSpec((NodeSpec("a100-400", 1),))
    window = build_window(spec, 1, tmp_path / "window")
    Plant(window, spec, 1)
    monkeypatch.setenv("GRIDAWARE_SIM_WINDOW", str(tmp_path / "window"))
    return Site(tmp_path / "window", window, library)


class Bench(Site):
    """A site without a plant process: time passes when the test says so."""

    physics: Plant

    def after(self, seconds: float) -> None:
        """Let time pass."""
        self.physics.advance(self.physics.now_seconds + seconds)

    def work(self, gpu: int, workload: str, until: float = 1e9) -> None:
        """A process takes a GPU and keeps work queued until a time."""
        load = self.window.gpu(gpu).load(0)
        load.claim(workload, 1000 + gpu, 1)
        load.until_seconds = until
        self.after(0.0)


@pytest.fixture(scope="session")
def curves() -> CurveBook:
    return load_curves()


@pytest.fixture
def make_bench(tmp_path, library, monkeypatch, curves):
    """Benches of a GPU class; every process on them lives."""
    windows = []

    def make(gpu: str = "h100-700", gpus: int = 2) -> Bench:
        spec = PlantSpec((NodeSpec(gpu, gpus),), residuals=False)
        path = tmp_path / f"bench-{len(windows)}"
        window = build_window(spec, 1, path, curves)
        windows.append(window)
        monkeypatch.setenv("GRIDAWARE_SIM_WINDOW", str(path))
        monkeypatch.setenv("GRIDAWARE_SIM_NODE", "0")
        bench = Bench(path, window, library)
        bench.physics = Plant(window, spec, 1, lives=lambda _pid, _ticks: True, curves=curves)
        bench.after(2.0)
        return bench

    yield make
    for window in windows:
        window.close()


@pytest.fixture
def open_nvml(library):
    """Opens our driver on the virtual library, in this process."""
    opened = []

    def make(**options: str):
        driver = open_driver({"library": str(library), **options})
        driver.open()
        opened.append(driver)
        return driver

    yield make
    for driver in opened:
        driver.close()


@pytest.fixture
def make_job():
    """Starts processes that train on virtual GPUs until the test ends."""
    jobs = []

    def make(site: Site, workload: str, indices: str) -> subprocess.Popen[str]:
        code = (
            "import sys\n"
            "from gridaware.sim.workloads import virtual_gpus\n"
            "with virtual_gpus(sys.argv[1]) as gpus:\n"
            "    while True:\n"
            "        print(gpus.step(0.05), flush=True)\n"
        )
        job = start(["-c", code, workload], **site.environment, CUDA_VISIBLE_DEVICES=indices)
        jobs.append(job)
        assert float(job.stdout.readline()) > 0
        return job

    yield make
    for job in jobs:
        end(job)


class Node:
    """A real agent process on the virtual NVML, and a controller's end of its stream."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.messages: list = []
        self.hellos: list = []
        self.sequence = 0
        make_ca(folder / "ca", CLOCK)
        self._files = issue(folder / "ca", "controller", CLOCK, "controller")
        issue(folder / "ca", "n0", CLOCK)
        self._process: subprocess.Popen[bytes] | None = None
        self._server: LinkServer | None = None
        self._port = 0

    def on_hello(self, hello, moment) -> None:
        self.hellos.append(hello)

    def on_message(self, node_id, message, moment) -> None:
        self.messages.append(message)

    def on_lost(self, node_id, moment) -> None:
        pass

    def faults(self) -> list[tuple[str, str | None]]:
        return [(m.code, m.gpu_id) for m in self.messages if isinstance(m, NodeFault)]

    @property
    def gpu_ids(self) -> list[str]:
        return [slot.uuid.decode() for slot in self.site.window.gpus_of(0)]

    async def __aenter__(self) -> Self:
        context = controller_context(self._files.ca, self._files.certificate, self._files.key)
        self._server = LinkServer(CLOCK)
        self._port = await self._server.start("127.0.0.1", 0, context, 1, self)
        self.start()
        await self.until(lambda: self.hellos and "n0" in self._server.connected())
        return self

    async def __aexit__(self, *_error) -> None:
        await self._server.stop()
        self.kill()

    def start(self, **options: str) -> None:
        config = self.folder / "agent.yaml"
        config.write_text(
            json.dumps(
                {
                    "node_id": "n0",
                    "controller": {"host": "localhost", "port": self._port},
                    "tls": {
                        "ca": "ca/ca.pem",
                        "certificate": "ca/n0.pem",
                        "key": "ca/n0.key",
                    },
                    "driver": {
                        "module": "gridaware.devices.nvml",
                        "options": {"library": str(self.site.library), **options},
                        "environment": {
                            "GRIDAWARE_SIM_WINDOW": str(self.site.path),
                            "GRIDAWARE_SIM_NODE": "0",
                        },
                    },
                    "state_dir": "state",
                    "run_dir": "run",
                }
            )
        )
        with (self.folder / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gridaware.wiring.agent", "--config", str(config)],
                stderr=log,
            )

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(10)

    async def until(self, holds, seconds: float = 20.0):
        async with asyncio.timeout(seconds):
            while not (found := holds()):
                await asyncio.sleep(0.02)
        return found

    async def order(self, limits: dict[str, float], seconds: float = 60.0, **more) -> Acknowledged:
        """Send a lease and wait until every GPU of it has a result."""
        self.sequence += 1
        now = CLOCK.wall()
        lease = Lease(f"l{self.sequence}", tuple(limits.items()), seconds, **more)
        desired = Desired(
            1, self.sequence, f"d{self.sequence}", now, now + timedelta(seconds=seconds), lease
        )
        await self.until(lambda: self._server.send("n0", desired))
        return await self.until(
            lambda: next(
                (
                    m
                    for m in self.messages
                    if isinstance(m, Acknowledged) and m.sequence == self.sequence and m.complete
                ),
                None,
            )
        )


@pytest.fixture
def make_node():
    """Agents on NVML; their logs are shown where a test fails."""
    with contextlib.ExitStack() as folders:
        made = []

        def make(site: Site) -> Node:
            folder = folders.enter_context(tempfile.TemporaryDirectory(prefix="gw"))
            made.append(Node(site, Path(folder)))
            return made[-1]

        yield make
        for node in made:
            log = node.folder / "agent.log"
            print(log.read_text() if log.exists() else "no agent ran")
