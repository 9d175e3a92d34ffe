"""Real NVML clients against the virtual library, driven by a real plant process."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gridaware.sim.nvml.build import build
from gridaware.sim.plant import Plant
from gridaware.sim.site import NodeSpec, PlantSpec, build_window
from gridaware.sim.window import Window


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
