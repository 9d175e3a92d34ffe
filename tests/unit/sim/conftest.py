"""A plant in memory whose processes live as long as the test says."""

import math
from dataclasses import dataclass, field

import pytest

from gridaware.sim.plant import Plant
from gridaware.sim.site import NodeSpec, PlantSpec, build_window
from gridaware.sim.window import GpuSlot, Window

PID = 4711


@dataclass
class World:
    window: Window
    plant: Plant
    dead: set[int] = field(default_factory=set)

    def gpu(self, which: int = 0) -> GpuSlot:
        return self.window.gpu(which)

    def work(self, which: int, workload: str, pid: int = PID, until: float = math.inf) -> None:
        load = next(load for load in self.gpu(which).loads() if load.pid == 0)
        load.claim(workload, pid, 1)
        load.until_seconds = until

    def after(self, seconds: float) -> None:
        self.plant.advance(self.plant.now_seconds + seconds)


@pytest.fixture
def make_world():
    def make(*nodes: NodeSpec, seed: int = 1, residuals: bool = False) -> World:
        spec = PlantSpec(nodes or (NodeSpec("a100-400", 1),), residuals=residuals)
        window = build_window(spec, seed)
        dead: set[int] = set()
        plant = Plant(window, spec, seed, lives=lambda pid, _started: pid not in dead)
        return World(window, plant, dead)

    return make
