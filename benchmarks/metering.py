"""How well energy is metered, and what the agent costs while it does.

Run ``python -m benchmarks.metering -o json [--seed N] [--seconds S]``. Prints one JSON object:

* ``relative_error_max``: the worst job of at least 60 s, over every way we meter: exact windows of
  10 Hz and 1 Hz samples, and the energy book at both rates. Truth is the plant's energy times that
  counter's own gain, which no meter can know from the inside.
* ``short_jobs_inside_band_fraction``: jobs shorter than 1 s, and windows around resets of the
  counter, whose truth lies inside the printed error band.
* ``agent_cpu_fraction``: CPU seconds of agent and driver child together per second, at 8 GPUs and
  10 Hz through nvidia-ml-py on the virtual library, with TLS to a controller's end.

The first two run in virtual time: the plant (20 ms counter refresh, jitter, gain), the simulated
driver, the settlement code. The third runs the real processes.
"""

import argparse
import asyncio
import heapq
import json
import math
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.program import arguments, report
from gridaware.clock import ManualClock, SystemClock
from gridaware.domain.errors import DeviceError, DriverGone
from gridaware.domain.moment import Moment
from gridaware.domain.reading import (
    Boundary,
    GpuObservation,
    Method,
    NodeObservation,
    Observation,
    Quality,
    Reading,
)
from gridaware.domain.wire import Hello, SampleBatch
from gridaware.node.link import LinkServer
from gridaware.node.tls import controller_context
from gridaware.settlement.attribution import EnergyBook, Snapshot
from gridaware.settlement.counter import PowerSample
from gridaware.settlement.energy import device_energy
from gridaware.settlement.energy_report import energy_report
from gridaware.sim.driver import SimDriver
from gridaware.sim.nvml.build import build
from gridaware.sim.plant import Plant
from gridaware.sim.site import NodeSpec, PlantSpec, build_window
from gridaware.sim.window import Window
from gridaware.wiring.identity import issue, make_ca

GPU = "v100-250"
GPUS = 4
LONG, SHORT = 0, 1
"""Node 0 runs jobs of at least a minute; node 1 short ones, while its driver is reloaded."""
WORKLOADS = ("bert", "resnet50", "deepspeech2", "shufflenet", "ncf")
TICK_SECONDS = 0.1
STAMP_SECONDS = 0.005
RELOAD_SECONDS = 40.0
WALL = datetime(2026, 1, 1, tzinfo=UTC)
SETTLE_SECONDS = 3.0
LEAST_SECONDS = 240.0


@dataclass
class Run:
    """One job on one GPU, with its truth."""

    job_id: str
    node: int
    gpu: int
    start: float
    end: float
    truth_joules: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return self.end - self.start


@dataclass
class Site:
    """The plant with its drivers, advanced from one happening to the next."""

    seed: int
    window: Window = field(init=False)
    samples: dict[int, list[PowerSample]] = field(default_factory=lambda: defaultdict(list))
    owners: dict[int, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    resets: list[Run] = field(default_factory=list)
    """Windows with a reset of the counter inside."""
    books: dict[int, EnergyBook] = field(
        default_factory=lambda: {1: EnergyBook(), 10: EnergyBook()}
    )
    firsts: dict[int, Snapshot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = PlantSpec((NodeSpec(GPU, GPUS), NodeSpec(GPU, GPUS)))
        self.window = build_window(spec, self.seed)
        self.plant = Plant(self.window, spec, self.seed, lives=lambda _pid, _ticks: True)
        self.chance = random.Random(self.seed)
        self.clock = ManualClock(WALL)
        self.drivers = [SimDriver(lambda: self.window, n, self.clock, wait=None) for n in (0, 1)]
        for driver in self.drivers:
            driver.open()

    def truth(self, gpu: int) -> float:
        """Joules as this GPU's own counter would have them, were it perfect."""
        slot = self.window.gpu(gpu)
        return slot.true_joules * slot.energy_gain

    def run(self, seconds: float) -> None:
        """Let jobs come and go, caps change and drivers reload, sampled all along."""
        ahead: list[tuple[float, int, Callable[[float], float | None]]] = []

        def add(at: float, what: Callable[[float], float | None]) -> None:
            heapq.heappush(ahead, (at, len(ahead) + self.chance.getrandbits(30), what))

        add(0.0, Sampler(self))
        add(RELOAD_SECONDS, Reloader(self))
        for gpu in range(2 * GPUS):
            add(self.chance.uniform(1, 5), Worker(self, gpu))
        for gpu in range(GPUS):
            add(self.chance.uniform(5, 30), Capper(self, gpu))
        while ahead[0][0] < seconds:
            at, _, what = heapq.heappop(ahead)
            self.plant.advance(max(at, self.plant.now_seconds))
            following = what(at)
            if following is not None:
                add(following, what)


class Reloader:
    """Reloads the driver of the second node, and marks a window around that."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.step = 0
        self.windows: list[Run] = []

    def __call__(self, at: float) -> float:
        """Open windows, reload, close them; when to come again."""
        site, gpus = self.site, range(GPUS, 2 * GPUS)
        self.step = (self.step + 1) % 3
        if self.step == 1:
            self.windows = [Run("", SHORT, gpu, at, at, site.truth(gpu)) for gpu in gpus]
        elif self.step == 2:
            site.window.node(SHORT).reload_requests += 1
            site.plant.advance(site.plant.now_seconds)
        else:
            for window in self.windows:
                window.end = at
                window.truth_joules = site.truth(window.gpu) - window.truth_joules
            site.resets += self.windows
            return at + RELOAD_SECONDS * site.chance.uniform(0.5, 1.5)
        return at + site.chance.uniform(0.02, 0.5)


class Worker:
    """Starts and ends jobs on one GPU."""

    def __init__(self, site: Site, gpu: int) -> None:
        self.site, self.gpu = site, gpu
        self.node = LONG if gpu < GPUS else SHORT
        self.current: Run | None = None

    def __call__(self, at: float) -> float:
        """Start or end a job, whichever is due; when to come again."""
        site, chance = self.site, self.site.chance
        load = site.window.gpu(self.gpu).load(0)
        if self.current is not None:
            load.leave()
            self.current.end = at
            self.current.truth_joules = site.truth(self.gpu) - self.current.truth_joules
            site.runs.append(self.current)
            site.owners.pop(self.gpu)
            self.current = None
            return at + chance.uniform(0.5, 6.0)
        length = chance.uniform(60, 150) if self.node == LONG else chance.uniform(0.05, 0.95)
        load.claim(chance.choice(WORKLOADS), 1 + self.gpu, 1)
        load.until_seconds = math.inf
        job_id = f"g{self.gpu}-{at:.3f}"
        self.current = Run(job_id, self.node, self.gpu, at, at + length, site.truth(self.gpu))
        site.owners[self.gpu] = job_id
        return at + length


class Capper:
    """Changes one GPU's limit now and then."""

    def __init__(self, site: Site, gpu: int) -> None:
        self.site, self.gpu = site, gpu

    def __call__(self, at: float) -> float:
        """A new limit; when the next is due."""
        slot = self.site.window.gpu(self.gpu)
        slot.requested_watts = self.site.chance.uniform(slot.least_watts, slot.greatest_watts)
        return at + self.site.chance.uniform(5, 40)


class Sampler:
    """Reads every GPU through its driver, ten times a second, as a node's agent does."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.ticks = 0

    def __call__(self, at: float) -> float:
        """One round; when the next is due."""
        site = self.site
        site.clock.advance(at - (site.clock.monotonic_seconds() - 1000.0))
        stamp = at - site.chance.uniform(0, STAMP_SECONDS)
        nodes = [
            NodeObservation(f"n{n}", at - stamp, tuple(self._read(n, stamp))) for n in (LONG, SHORT)
        ]
        wall = WALL + timedelta(seconds=at)
        watts = sum(gpu.power_watts for node in nodes for gpu in node.gpus)
        meter = Reading(watts, wall, Boundary.SITE, Method.DEVICE_SUM)
        observation = Observation(Moment(at, wall), meter, tuple(nodes))
        for hz, book in site.books.items():
            if self.ticks % round(1 / TICK_SECONDS / hz) == 0:
                book.add(observation, ())
                site.firsts.setdefault(hz, book.snapshot())
        self.ticks += 1
        return self.ticks * TICK_SECONDS

    def _read(self, node: int, stamp: float) -> Iterator[GpuObservation]:
        site, driver = self.site, self.site.drivers[node]
        for index in range(GPUS):
            gpu = node * GPUS + index
            gpu_id = site.window.gpu(gpu).uuid.decode()
            try:
                watts = driver.power_watts(gpu_id).watts
                counter = driver.energy_joules(gpu_id)
                limit = driver.enforced_limit_watts(gpu_id)
            except DriverGone:
                driver.close()
                driver.open()
                return
            except DeviceError:
                continue
            site.samples[gpu].append(
                PowerSample(stamp, watts, counter.joules, counter.epoch, limit)
            )
            yield GpuObservation(
                gpu_id,
                watts,
                counter.joules,
                counter.epoch,
                limit,
                limit,
                Quality.GOOD,
                site.owners.get(gpu),
                1,
            )


def meter_jobs(seed: int, seconds: float) -> dict[str, Any]:
    """Both figures of accuracy, in virtual time."""
    site = Site(seed)
    site.run(seconds)
    thinned = {gpu: samples[::10] for gpu, samples in site.samples.items()}
    paths = {"windows_10hz": site.samples, "windows_1hz": thinned}
    last = site.plant.now_seconds
    runs = [run for run in site.runs if run.start > 1 and run.end < last - 2]
    long_runs = [run for run in runs if run.node == LONG]
    short_runs = [run for run in runs if run.node == SHORT]
    worst: dict[str, float] = {}
    inside: list[bool] = []
    bands: list[float] = []
    for name, samples in paths.items():
        worst[name] = max(_error(samples[run.gpu], run) for run in long_runs)
        for run in (*short_runs, *(r for r in site.resets if r.end < last - 2)):
            energy = device_energy(samples[run.gpu], run.start, run.end)
            inside.append(abs(energy.joules - run.truth_joules) <= energy.band_joules)
            bands.append(energy.band_joules)
    for hz, book in site.books.items():
        report = energy_report(site.firsts[hz], book.snapshot())
        figures = {job.job_id: job.running for job in report.jobs}
        worst[f"book_{hz}hz"] = max(
            abs(figures[run.job_id].joules / run.truth_joules - 1) for run in long_runs
        )
        for run in short_runs:
            figure = figures.get(run.job_id)
            if figure is not None:
                inside.append(abs(figure.joules - run.truth_joules) <= figure.band_joules)
    return {
        "virtual_seconds": seconds,
        "long_jobs": len(long_runs),
        "relative_error_max": max(worst.values()),
        "relative_error_max_by_path": worst,
        "short_jobs": len(short_runs),
        "windows_with_a_reset": len(site.resets),
        "checked_bands": len(inside),
        "short_jobs_inside_band_fraction": sum(inside) / len(inside),
        "short_job_band_joules_median": median(bands),
    }


def _error(samples: list[PowerSample], run: Run) -> float:
    return abs(device_energy(samples, run.start, run.end).joules / run.truth_joules - 1)


class Listener:
    """The controller's end (a ``LinkHandler``): counts the samples of one agent."""

    def __init__(self) -> None:
        self.samples = 0
        self.readings = 0
        self.good = 0
        self.gpus = 0

    def on_hello(self, hello: Hello, moment: Moment) -> None:  # noqa: ARG002 - the port's
        """The agent dialled in."""
        self.gpus = len(hello.gpus)

    def on_message(self, node_id: str, message: object, moment: Moment) -> None:  # noqa: ARG002
        """Samples, mostly."""
        if isinstance(message, SampleBatch):
            self.samples += len(message.samples)
            for sample in message.samples:
                self.readings += len(sample.gpus)
                self.good += sum(
                    gpu.quality == Quality.GOOD and gpu.energy_joules is not None
                    for gpu in sample.gpus
                )

    def on_lost(self, node_id: str, moment: Moment) -> None:
        """The agent hung up."""


async def measure_agent(folder: Path, seconds: float, hz: float, gpus: int) -> dict[str, Any]:
    """CPU of the real agent and its driver child, against a real plant process."""
    clock = SystemClock()
    make_ca(folder, clock)
    mine = issue(folder, "controller", clock, "controller")
    issue(folder, "n0", clock, "agent")
    link, listener = LinkServer(clock, sample_hz=hz), Listener()
    context = controller_context(mine.ca, mine.certificate, mine.key)
    port = await link.start("127.0.0.1", 0, context, 1, listener)
    window = folder / "window"
    processes = [
        _start(
            "gridaware.sim.plant",
            "--window",
            str(window),
            "--gpus-per-node",
            str(gpus),
            "--gpu",
            "a100-400",
        )
    ]
    try:
        await _until(window.exists)
        settings = folder / "agent.yaml"
        settings.write_text(json.dumps(_settings(folder, window, port)), encoding="utf-8")
        agent = _start(
            "gridaware.wiring.agent", "--config", str(settings), "--log-level", "warning"
        )
        processes.append(agent)
        await _until(lambda: listener.samples > hz * SETTLE_SECONDS)
        measured = psutil.Process(agent.pid)
        family = [measured, *measured.children(recursive=True)]
        spent, begun, seen = _cpu(family), clock.monotonic_seconds(), listener.samples
        await asyncio.sleep(seconds)
        lasted = clock.monotonic_seconds() - begun
        return {
            "agent_cpu_fraction": (_cpu(family) - spent) / lasted,
            "agent_processes": len(family),
            "agent_gpus": listener.gpus,
            "agent_samples_per_second": (listener.samples - seen) / lasted,
            "agent_good_readings_fraction": listener.good / max(listener.readings, 1),
            "agent_measured_seconds": lasted,
        }
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(10)
        await link.stop()


def _settings(folder: Path, window: Path, port: int) -> dict[str, Any]:
    library = build(folder)
    return {
        "node_id": "n0",
        "controller": {"host": "127.0.0.1", "port": str(port)},
        "tls": {"ca": "ca.pem", "certificate": "n0.pem", "key": "n0.key"},
        "driver": {
            "module": "gridaware.devices.nvml",
            "options": {"library": str(library)},
            "environment": {"GRIDAWARE_SIM_WINDOW": str(window), "GRIDAWARE_SIM_NODE": "0"},
        },
        "state_dir": str(folder / "state"),
        "run_dir": str(folder / "run"),
    }


def _start(module: str, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.DEVNULL)


def _cpu(family: list[psutil.Process]) -> float:
    times = [process.cpu_times() for process in family]
    return float(sum(t.user + t.system for t in times))


async def _until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print one JSON object."""
    parser = arguments("metering", __doc__)
    parser.add_argument("--seconds", type=float, default=480.0, help="of virtual time")
    parser.add_argument("--agent-seconds", type=float, default=20.0)
    parser.add_argument("--agent-hz", type=float, default=10.0)
    parser.add_argument("--agent-gpus", type=int, default=8)
    options = parser.parse_args(argv)
    if options.seconds < LEAST_SECONDS:
        parser.error(f"--seconds must be at least {LEAST_SECONDS:g}: jobs last up to 150 s")
    return report(measure, options)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Accuracy in virtual time, then the cost of the real processes."""
    found: dict[str, Any] = {"seed": options.seed, "gpu": GPU}
    found |= meter_jobs(options.seed, options.seconds)
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        found |= asyncio.run(
            measure_agent(Path(folder), options.agent_seconds, options.agent_hz, options.agent_gpus)
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
