"""The plant: every watt, joule and step rate of the virtual site, in one place.

It reads what drivers, jobs and tests wrote into the window (:mod:`gridaware.sim.window`) and
writes what a real site would then show. GPUs follow the fitted model of
:mod:`gridaware.planning.model`, each with a residual of its own, and in time as
:mod:`gridaware.sim.silicon` says; :mod:`gridaware.sim.site` adds what they stand in. The same seed
and the same calls give the same numbers.

A GPU works only while a process that claimed it lives and keeps work queued; otherwise it idles.

``python -m gridaware.sim.plant --window FILE`` runs it in real time, prints one JSON line once
the window can be opened, and ends on SIGTERM, SIGINT or when its parent does.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gridaware.clock import SystemClock
from gridaware.domain.errors import GridawareError
from gridaware.planning.model import CurveBook, WorkloadClass, clock_of, respond
from gridaware.sim.registers import Registers
from gridaware.sim.sensors import Sensors
from gridaware.sim.silicon import (
    BOARDS,
    LOCK_TIME_CONSTANT_SECONDS,
    SETTLED_SECONDS,
    Regulation,
    Smoother,
)
from gridaware.sim.site import (
    NodeSpec,
    Overhead,
    PlantSpec,
    SiteSpec,
    build_window,
    gpu_entries,
)
from gridaware.sim.window import (
    GPU_LOADS,
    SMOOTHING_ON,
    GpuSlot,
    LoadSlot,
    LoadState,
    Window,
    process_started_ticks,
)
from gridaware.wiring.curves import load_curves

__all__ = ["Plant", "main"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

STEP_SECONDS: Final = 0.010
"""Longest step while anything moves."""
PROCESS_CHECK_SECONDS: Final = 0.1
ACTIVITY_TIME_CONSTANT_SECONDS: Final = 0.020
METER_REFRESH_SECONDS: Final = 0.1
METER_GAIN_SPREAD: Final = 0.002
"""A class 0.2 meter (IEC 62053-22)."""
METER_NOISE_SHARE: Final = 0.0005
UNKNOWN_RESIDUAL: Final = 0.015


def _lives(pid: int, started_ticks: int) -> bool:
    return process_started_ticks(pid) == started_ticks


class Plant:
    """The physics of one window. ``advance`` is the only thing that moves it.

    Args:
        window: made by :func:`gridaware.sim.site.build_window` with the same ``spec`` and ``seed``.
        spec: what the site is made of.
        seed: of gains, noise and residuals.
        now_seconds: where its time starts.
        lives: whether a process (pid, start ticks) lives; the seeded world brings its own.
        curves: the GPU and workload classes; None = those shipped.
    """

    def __init__(
        self,
        window: Window,
        spec: PlantSpec,
        seed: int,
        *,
        now_seconds: float = 0.0,
        lives: Callable[[int, int], bool] = _lives,
        curves: CurveBook | None = None,
    ) -> None:
        self._window = window
        self._registers = Registers(window)
        self._lives = lives
        self._now = now_seconds
        self._curves = curves or load_curves()
        entries = gpu_entries(spec, self._curves)
        counts = [node.gpus for node in spec.nodes]
        self._entries = [entry for entry, n in zip(entries, counts, strict=True) for _ in range(n)]
        self._node_of = np.repeat(np.arange(len(counts)), counts)
        self._set_out_constants(spec, np.random.default_rng((seed, 3)))
        self._random = np.random.default_rng((seed, 2))
        self._set_out_registers()
        self._set_out_state()
        window.header.plant_pid = os.getpid()
        window.header.plant_epoch += 1
        self._look()
        self._sense(since=self._now - 1.0)

    def _set_out_constants(self, spec: PlantSpec, random: np.random.Generator) -> None:
        gpus = [entry.gpu for entry in self._entries]
        self._sensors = Sensors(self._registers, [BOARDS[gpu.name] for gpu in gpus], random)
        count = len(gpus)
        self._tdp = np.array([gpu.tdp_watts for gpu in gpus])
        self._idle = np.array([gpu.idle_watts for gpu in gpus])
        self._meter_gain = 1 + METER_GAIN_SPREAD * random.uniform(-1, 1)
        rmse = [
            (gpu.throughput_rmse or UNKNOWN_RESIDUAL, gpu.power_rmse or UNKNOWN_RESIDUAL)
            for gpu in gpus
        ]
        spread = np.array(rmse) if spec.residuals else np.zeros((count, 2))
        drawn = spread * np.clip(random.standard_normal((count, 2)), -2, 2)
        self._throughput_residual, self._power_residual = drawn.T
        self._per_node = np.bincount(self._node_of)
        self._overhead = Overhead(spec.site, np.bincount(self._node_of, self._tdp).astype(float))

    def _set_out_registers(self) -> None:
        """Registers of all GPUs as arrays over the window's own memory."""
        doubles, integers = self._registers.doubles, self._registers.integers
        self._requested = doubles(GpuSlot.requested_watts)
        self._default = doubles(GpuSlot.default_watts)
        self._out_of_band = doubles(GpuSlot.out_of_band_watts)
        self._greatest = doubles(GpuSlot.greatest_watts)
        self._ignored = integers(GpuSlot.limits_ignored)
        self._persistence = integers(GpuSlot.persistence)
        self._lost = integers(GpuSlot.lost)
        self._resets = integers(GpuSlot.resets)
        self._least_mhz = doubles(GpuSlot.least_mhz)
        self._greatest_mhz = doubles(GpuSlot.greatest_mhz)
        self._locked_mhz = doubles(GpuSlot.locked_mhz)
        self._clock_mhz = doubles(GpuSlot.clock_mhz)
        self._smoothing = integers(GpuSlot.smoothing)
        self._smoothing_numbers = (
            doubles(GpuSlot.smoothing_floor_watts),
            doubles(GpuSlot.smoothing_hysteresis_seconds),
            doubles(GpuSlot.smoothing_down_watts),
            doubles(GpuSlot.smoothing_up_watts),
        )
        self._true_watts = doubles(GpuSlot.true_watts)
        self._true_joules = doubles(GpuSlot.true_joules)
        self._binds = integers(GpuSlot.cap_binds)
        self._throughput = doubles(GpuSlot.throughput)
        self._work_seconds = doubles(GpuSlot.true_work_seconds)
        self._serial = integers(LoadSlot.serial, GPU_LOADS)
        self._until = doubles(LoadSlot.until_seconds, GPU_LOADS)
        self._window.header.meter_gain = self._meter_gain

    def _set_out_state(self) -> None:
        count = len(self._entries)
        self._seen_serial = np.zeros((count, GPU_LOADS), np.int64)
        self._living = np.zeros((count, GPU_LOADS), np.bool_)
        self._workload_in: dict[tuple[int, int], WorkloadClass] = {}
        self._workloads: list[WorkloadClass | None] = [None] * count
        self._groups: list[tuple[Integers, WorkloadClass]] = []
        self._active = np.zeros((count, GPU_LOADS), np.bool_)
        self._sharers = np.zeros(count, np.int64)
        self._demand = np.full(count, np.inf)
        self._fresh = np.zeros(count, np.bool_)
        self._activity = np.zeros(count)
        self._enforced = self._enforced_now()
        self._regulation = Regulation(self._enforced)
        self._lock = self._lock_now()
        self._clock_share = self._lock.copy()
        self._watts = self._idle.copy()
        self._smoother = Smoother(self._watts)
        self._joules = np.zeros(count)
        self._sensors.begin(self._joules, self._watts, self._now)
        self._node_slots = [self._window.node(n) for n in range(len(self._per_node))]
        self._reloads = [node.reload_requests for node in self._node_slots]
        self._seen_resets = self._resets.copy()
        self._had_client = [False] * len(self._node_slots)
        self._moving_until = self._now
        self._checked_at = -np.inf
        self._weigh(0.0)

    @property
    def now_seconds(self) -> float:
        """How far it has come."""
        return self._now

    def advance(self, to_seconds: float) -> None:
        """Let time pass until ``to_seconds``, under the registers as they stand now."""
        self._look()
        while self._now < to_seconds:
            end = self._step_end(to_seconds)
            self._step(end)
            self._take_up_work()
        self._window.header.plant_seconds = self._now

    def _step_end(self, to_seconds: float) -> float:
        if self._now < self._moving_until:
            return min(to_seconds, self._now + STEP_SECONDS)
        # Nothing moves, so one step may be long; but it ends where queued work runs out.
        lapses = self._until[self._active]
        return min(to_seconds, float(lapses.min())) if lapses.size else to_seconds

    def _step(self, end: float) -> None:
        seconds, since = end - self._now, self._now
        before, site_before = self._watts, self._site_watts
        rate_before = self._throughput.copy()
        if since < self._moving_until:
            self._move(seconds, settled=end >= self._moving_until)
            self._weigh(seconds)
        self._joules = self._joules + (before + self._watts) * (seconds / 2)
        self._work_seconds += (rate_before + self._throughput) * (seconds / 2)
        header = self._window.header
        header.true_site_joules += (site_before + self._site_watts) * (seconds / 2)
        self._now = end
        self._sensors.advance(self._joules, self._watts, end)
        self._true_joules[:] = self._joules
        self._sense(since)

    # -- what others wrote ---------------------------------------------------------------------

    def _look(self) -> None:
        """Take notice of every register that others write."""
        for number, node in enumerate(self._node_slots):
            if node.reload_requests != self._reloads[number]:
                self._reloads[number] = node.reload_requests
                self._reload(number)
        if not np.array_equal(self._resets, self._seen_resets):
            which = self._resets != self._seen_resets
            self._seen_resets = self._resets.copy()
            self._sensors.restart_counters(which, self._joules)
            self._forget_settings(which)
        if not np.array_equal(self._serial, self._seen_serial):
            for gpu, which in np.argwhere(self._serial != self._seen_serial).tolist():
                self._meet(gpu, which)
        if self._now - self._checked_at >= PROCESS_CHECK_SECONDS:
            self._checked_at = self._now
            self._bury()
            self._miss_clients()
        self._take_up_work()

    def _reload(self, number: int) -> None:
        """The driver of a node was unloaded and loaded: counters and volatile limits are gone."""
        which = self._node_of == number
        self._sensors.restart_counters(which, self._joules)
        self._forget_settings(which & (self._persistence[:] == 0))
        self._locked_mhz[which] = 0.0
        if self._node_slots[number].shuffle_on_reload:
            gpus = self._window.gpus_of(number)
            for gpu in gpus:
                gpu.index = (gpu.index + 1) % len(gpus)
        self._node_slots[number].driver_epoch += 1

    def _miss_clients(self) -> None:
        """The last client of a driver left: without persistence mode its settings are gone."""
        for number, had in enumerate(self._had_client):
            has = bool(self._window.has_client(number))
            if had and not has:
                which = self._node_of == number
                self._forget_settings(which & (self._persistence[:] == 0))
            self._had_client[number] = has

    def _forget_settings(self, which: Flags) -> None:
        self._requested[which] = self._default[which]
        self._locked_mhz[which] = 0.0

    def _meet(self, gpu: int, which: int) -> None:
        """A process claimed a load slot, or left it."""
        slot = self._window.gpu(gpu).load(which)
        self._seen_serial[gpu, which] = slot.serial
        workload = self._entries[gpu].workloads.get(slot.workload.decode(errors="replace"))
        self._living[gpu, which] = False
        if slot.pid == 0:
            slot.state = LoadState.UNSEEN
        elif workload is None:
            slot.state = LoadState.UNKNOWN_WORKLOAD
        elif self._lives(slot.pid, slot.started_ticks):
            slot.state = LoadState.ALIVE
            self._living[gpu, which] = True
            self._workload_in[gpu, which] = workload
        else:
            slot.state = LoadState.DEAD

    def _bury(self) -> None:
        """Notice processes that died without leaving."""
        alive: dict[tuple[int, int], bool] = {}
        for gpu, which in np.argwhere(self._living).tolist():
            slot = self._window.gpu(gpu).load(which)
            who = (slot.pid, slot.started_ticks)
            if who not in alive:
                alive[who] = self._lives(*who)
            if not alive[who]:
                slot.state = LoadState.DEAD
                self._living[gpu, which] = False

    def _take_up_work(self) -> None:
        """Who works now, under which limit; whatever changed starts to move."""
        active = self._living & (self._until > self._now) & (self._lost == 0)[:, None]
        if not np.array_equal(active, self._active):
            self._active = active
            self._share_out()
        self._enforced = self._enforced_now()
        if self._regulation.aim(np.minimum(self._enforced, self._demand), self._now):
            self._moving_until = self._now + SETTLED_SECONDS
            self._regulation.jump((self._sharers == 0) | self._fresh)
        self._fresh[:] = False
        lock = self._lock_now()
        if not np.array_equal(lock, self._lock):
            self._lock = lock
            self._moving_until = self._now + SETTLED_SECONDS
        if self._smoother.moving.any():
            self._moving_until = max(self._moving_until, self._now + STEP_SECONDS)

    def _share_out(self) -> None:
        """Which workload each GPU runs. Of several processes the first one's class sets power."""
        sharers = self._active.sum(axis=1)
        self._fresh = (self._sharers == 0) & (sharers > 0)
        self._sharers = sharers
        for gpu in np.flatnonzero(sharers).tolist():
            self._workloads[gpu] = self._workload_in[gpu, int(self._active[gpu].argmax())]
        groups: dict[tuple[str, str], list[int]] = {}
        for gpu, workload in enumerate(self._workloads):
            if workload is not None:
                name = (self._entries[gpu].gpu.name, workload.name)
                groups.setdefault(name, []).append(gpu)
        self._groups = []
        self._demand = np.full(len(self._entries), np.inf)
        for members in groups.values():
            workload = self._workloads[members[0]]
            assert workload is not None
            which = np.array(members)
            self._groups.append((which, workload))
            self._demand[which] = workload.hot_demand * self._tdp[which]
        self._demand[sharers == 0] = np.inf
        self._moving_until = self._now + SETTLED_SECONDS

    def _enforced_now(self) -> Floats:
        limit = np.minimum(np.minimum(self._requested, self._out_of_band), self._greatest)
        return np.where(self._ignored != 0, self._greatest, limit)

    def _lock_now(self) -> Floats:
        """The share of the full clock that each clock lock leaves."""
        return np.where(self._locked_mhz > 0, self._locked_mhz / self._greatest_mhz, 1.0)

    # -- what follows from it ------------------------------------------------------------------

    def _move(self, seconds: float, *, settled: bool) -> None:
        """Power controllers and activity follow what they are told."""
        self._regulation.advance(self._now, seconds)
        kept = 0.0 if settled else float(np.exp(-seconds / LOCK_TIME_CONSTANT_SECONDS))
        self._clock_share = self._lock + (self._clock_share - self._lock) * kept
        goal = (self._sharers > 0).astype(np.float64)
        left = 0.0 if settled else float(np.exp(-seconds / ACTIVITY_TIME_CONSTANT_SECONDS))
        self._activity = goal + (self._activity - goal) * left

    def _weigh(self, seconds: float) -> None:
        """Power and step rate of every GPU, node and the site, ``seconds`` after the last time."""
        level = self._regulation.level_watts
        busy_watts, throughput = self._idle.copy(), np.zeros_like(level)
        clock = np.zeros_like(level)
        binds = np.zeros_like(self._fresh)
        for which, workload in self._groups:
            gpu = self._entries[which[0]].gpu
            lock = self._clock_share[which]
            rate, watts = respond(gpu, workload, level[which], lock)
            clock[which] = np.minimum(clock_of(gpu, workload, level[which]), lock)
            capped = clock_of(gpu, workload, self._enforced[which]) < self._lock[which]
            binds[which] = capped & (self._enforced[which] < self._demand[which])
            rate = rate + 4 * rate * (1 - rate) * self._throughput_residual[which]
            odd = watts + self._power_residual[which] * self._tdp[which]
            # A residual never lifts the mean above a level that the controller holds.
            busy_watts[which] = np.minimum(odd, np.maximum(level[which], watts))
            throughput[which] = rate
        asked = self._idle + self._activity * (busy_watts - self._idle)
        self._watts = self._smoother.advance(
            asked,
            self._smoothing == SMOOTHING_ON,
            self._smoothing_numbers,
            self._now + seconds,
            seconds,
        )
        sharing = np.maximum(self._sharers, 1)
        self._throughput[:] = np.where(self._sharers > 0, throughput / sharing, 0.0)
        self._true_watts[:] = self._watts
        self._clock_mhz[:] = np.maximum(
            self._least_mhz, np.where(self._sharers > 0, clock * self._greatest_mhz, 0.0)
        )
        self._binds[:] = (self._sharers > 0) & binds
        node_watts = np.bincount(self._node_of, self._watts).astype(float)
        busy = np.bincount(self._node_of, self._activity) / self._per_node
        walls = self._overhead.wall_watts(node_watts, busy)
        self._site_watts = self._overhead.site_watts(walls)
        for node, wall, gpus in zip(self._node_slots, walls, node_watts, strict=True):
            node.true_wall_watts = wall
            node.true_overhead_watts = wall - gpus
        self._window.header.true_site_watts = self._site_watts
        self._window.header.gpu_watts = node_watts.sum()

    def _sense(self, since: float) -> None:
        """Refresh every sensor whose period has ended between ``since`` and now."""
        now, header = self._now, self._window.header
        shown = self._watts * (1 - header.sensor_dip)
        self._sensors.show(self._joules, shown, self._activity, (since, now), self._random)
        if int(now / METER_REFRESH_SECONDS + 1e-9) > int(since / METER_REFRESH_SECONDS + 1e-9):
            noise_share = METER_NOISE_SHARE * float(self._random.standard_normal())
            gain = self._meter_gain * (1 + noise_share) * (1 - header.meter_dip)
            header.meter_watts = self._site_watts * gain
            header.meter_joules = header.true_site_joules * self._meter_gain


def main(arguments: list[str] | None = None) -> int:
    """Run a plant in real time until told to stop or orphaned."""
    parser = argparse.ArgumentParser(prog="python -m gridaware.sim.plant", description=main.__doc__)
    parser.add_argument("--window", type=Path, required=True, help="file to create")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--gpu", default="a100-400", help="GPU class, a name in configs/curves")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--overheads",
        type=float,
        default=1.0,
        help="share of the usual node and cooling overheads: 0.2 = close-coupled liquid cooling",
    )
    parser.add_argument("--no-residuals", action="store_true", help="follow the fit exactly")
    options = parser.parse_args(arguments)
    spec = PlantSpec(
        (NodeSpec(options.gpu, options.gpus_per_node),) * options.nodes,
        SiteSpec().scaled(options.overheads),
        residuals=not options.no_residuals,
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        _run(spec, options.seed, options.window, stop)
    except GridawareError as error:
        sys.stderr.write(f"plant: {error}\n")
        return 1
    return 0


def _run(spec: PlantSpec, seed: int, path: Path, stop: threading.Event) -> None:
    clock, parent = SystemClock(), os.getppid()
    # Laid out under another name and moved into place once it lives: who can open it can use it.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    window = build_window(spec, seed, draft)
    plant = Plant(window, spec, seed, now_seconds=clock.monotonic_seconds())
    plant.advance(clock.monotonic_seconds())
    draft.rename(path)
    ready = {
        "ready": True,
        "window": str(path),
        "pid": os.getpid(),
        "nodes": [asdict(node) for node in spec.nodes],
        "seed": seed,
        "dynamics": BOARDS[spec.nodes[0].gpu].dynamics_basis,
    }
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    while not stop.wait(STEP_SECONDS) and os.getppid() == parent:
        plant.advance(clock.monotonic_seconds())


if __name__ == "__main__":
    sys.exit(main())
