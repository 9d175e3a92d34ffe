"""What a virtual site is made of, and what it draws beyond its GPUs.

Above the GPUs stand the node overhead and the facility, each conserved exactly::

    node at the wall = (GPUs + CPU + fixed + fans) / PSU efficiency
    fans             = 0.3 kW + 0.7 kW * (GPU power / rated GPU power) ^ 3, of an 8 x 700 W node
    site meter       = walls + cooling, fixed and proportional
"""

import math
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gridaware.domain.errors import InvalidInput
from gridaware.planning.model import CurveBook, GpuEntry
from gridaware.sim.silicon import BOARDS
from gridaware.sim.window import GpuSlot, Window
from gridaware.wiring.curves import load_curves

__all__ = ["NodeSpec", "Overhead", "PlantSpec", "SiteSpec", "build_window", "gpu_entries"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node: ``gpus`` of the GPU class ``gpu`` (a name in ``configs/curves``)."""

    gpu: str
    gpus: int


@dataclass(frozen=True, slots=True)
class SiteSpec:
    """Overheads. The watts are of an 8 x 700 W node and scale with a node's rated GPU power.

    Source of the sum: 8x H100 drew at most 8.4 kW, about 67 % of it the GPUs (arXiv 2412.08602).
    The split into parts and the facility's cooling are **assumed**, to be tuned per site.
    """

    fixed_watts: float = 900.0
    cpu_idle_watts: float = 250.0
    cpu_busy_watts: float = 400.0
    fan_idle_watts: float = 300.0
    fan_cubic_watts: float = 700.0
    psu_efficiency: float = 0.94
    cooling_fixed_share: float = 0.08
    """Of the walls with every GPU at rated power: part of a PUE does not fall with the load."""
    cooling_share: float = 0.12
    reference_watts: float = 5600.0

    def scaled(self, share: float) -> "SiteSpec":
        """The same site with that share of every overhead but the PSUs' losses."""
        return replace(
            self,
            fixed_watts=share * self.fixed_watts,
            cpu_idle_watts=share * self.cpu_idle_watts,
            cpu_busy_watts=share * self.cpu_busy_watts,
            fan_idle_watts=share * self.fan_idle_watts,
            fan_cubic_watts=share * self.fan_cubic_watts,
            cooling_fixed_share=share * self.cooling_fixed_share,
            cooling_share=share * self.cooling_share,
        )


@dataclass(frozen=True, slots=True)
class PlantSpec:
    """What the virtual site is made of."""

    nodes: tuple[NodeSpec, ...]
    site: SiteSpec = field(default_factory=SiteSpec)
    residuals: bool = True
    """Whether each GPU deviates from the fitted model as real ones did from the fit."""

    @property
    def gpus(self) -> int:
        """GPUs of the whole site."""
        return sum(node.gpus for node in self.nodes)


class Overhead:
    """From GPU watts to the node sockets and to the site meter."""

    def __init__(self, site: SiteSpec, rated_watts: Floats) -> None:
        self._site = site
        self._rated = rated_watts
        self._scale = rated_watts / site.reference_watts
        full = self.wall_watts(rated_watts, np.ones_like(rated_watts))
        self._cooling_fixed = site.cooling_fixed_share * float(full.sum())

    def wall_watts(self, gpu_watts: Floats, busy: Floats) -> Floats:
        """(nodes,) watts at the sockets; ``busy`` is the share of each node's GPUs at work."""
        site = self._site
        cpu = site.cpu_idle_watts + (site.cpu_busy_watts - site.cpu_idle_watts) * busy
        fans = site.fan_idle_watts + site.fan_cubic_watts * (gpu_watts / self._rated) ** 3
        rest = self._scale * (site.fixed_watts + cpu + fans)
        wall: Floats = (gpu_watts + rest) / site.psu_efficiency
        return wall

    def site_watts(self, wall_watts: Floats) -> float:
        """Watts at the site meter."""
        return self._cooling_fixed + (1 + self._site.cooling_share) * float(wall_watts.sum())


def gpu_entries(spec: PlantSpec, curves: CurveBook) -> list[GpuEntry]:
    """The GPU class of each node.

    Raises:
        InvalidInput: no such class.
    """
    known = {entry.gpu.name: entry for entry in curves.entries}
    for node in spec.nodes:
        if node.gpu not in known or node.gpu not in BOARDS:
            raise InvalidInput(
                "plant-gpu", f"no GPU class {node.gpu!r}; known: {', '.join(sorted(BOARDS))}"
            )
        if node.gpus < 1:
            raise InvalidInput("plant-gpus", "a node needs at least one GPU")
    return [known[node.gpu] for node in spec.nodes]


def build_window(
    spec: PlantSpec, seed: int, path: Path | None = None, curves: CurveBook | None = None
) -> Window:
    """A window with the identities, ranges and default limits of ``spec``; None = in memory."""
    entries = gpu_entries(spec, curves or load_curves())
    random = np.random.default_rng((seed, 1))
    if path is None:
        window = Window.in_memory(len(spec.nodes), spec.gpus)
    else:
        window = Window.create(path, len(spec.nodes), spec.gpus)
    which = 0
    for number, (node, entry) in enumerate(zip(spec.nodes, entries, strict=True)):
        slot = window.node(number)
        slot.first_gpu = which
        slot.gpus = node.gpus
        slot.driver_epoch = 1
        for index in range(node.gpus):
            gpu = window.gpu(which)
            gpu.uuid = f"GPU-{uuid.UUID(bytes=random.bytes(16), version=4)}".encode()
            gpu.mig_uuid = f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, gpu.uuid.decode())}".encode()
            gpu.pci_bus_id = f"00000000:{0x10 + index:02X}:00.0".encode()
            gpu.node = number
            gpu.index = index
            _stamp_model(gpu, entry)
            which += 1
    return window


def _stamp_model(gpu: GpuSlot, entry: GpuEntry) -> None:
    board = BOARDS[entry.gpu.name]
    gpu.model = board.model.encode()
    gpu.capability = board.capability
    gpu.memory_bytes = board.memory_gib << 30
    gpu.least_watts = entry.gpu.least_watts
    gpu.greatest_watts = entry.gpu.greatest_watts
    gpu.default_watts = entry.gpu.default_watts
    gpu.tdp_watts = entry.gpu.tdp_watts
    gpu.requested_watts = entry.gpu.default_watts
    gpu.out_of_band_watts = math.inf
    gpu.persistence = 1
    least_mhz, greatest_mhz, memory_mhz = board.clocks_mhz
    gpu.least_mhz = gpu.clock_mhz = float(least_mhz)
    gpu.greatest_mhz = float(greatest_mhz)
    gpu.memory_mhz = memory_mhz
    gpu.energy_unsupported = int(not board.energy_counter)
