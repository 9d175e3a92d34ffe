"""What a training script without a GPU does instead of computing: it takes the modelled time.

::

    with virtual_gpus("finetune") as gpus:
        while ...:
            gpus.step(0.2)  # as long as 0.2 s uncapped take at the limits in force right now

The registers tell the plant that this process works; when it stops stepping, stops or dies, its
GPUs fall idle. So throughput lost to a cap is time really lost, and a paused job really draws
nothing.
"""

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from gridaware.clock import Clock, SystemClock
from gridaware.domain.errors import DeviceLost, InvalidInput, Unavailable
from gridaware.sim.window import GpuSlot, LoadSlot, LoadState, Window, process_started_ticks

__all__ = ["VirtualGpus", "keep_busy", "virtual_gpus"]

SLICE_SECONDS: Final = 0.02
"""How often a step looks at the rate again."""
QUEUED_STEPS: Final = 2.0
LEAST_QUEUED_SECONDS: Final = 0.25
GREATEST_QUEUED_SECONDS: Final = 2.0
"""A process keeps about two steps of kernels queued, so short pauses between steps idle no GPU."""
PLANT_SILENT_SECONDS: Final = 5.0


def virtual_gpus(
    workload: str, indices: Sequence[int | str] | None = None, *, node: int | None = None
) -> "VirtualGpus":
    """The virtual GPUs of this process, as a context manager.

    Args:
        workload: class of work (``pretrain``, ``finetune``, ``bert`` ...; ``configs/curves``).
        indices: GPU indices or UUIDs on the node (Ray workers pass ``ray.get_gpu_ids()``); None =
            those of ``CUDA_VISIBLE_DEVICES``.
        node: index of the node; None = ``GRIDAWARE_SIM_NODE``.

    Raises:
        InvalidInput: no GPU is named, or one that the node does not have.
        Unavailable: there is no plant (``GRIDAWARE_SIM_WINDOW``).
    """
    path = os.environ.get("GRIDAWARE_SIM_WINDOW")
    if not path:
        raise Unavailable("plant-absent", "GRIDAWARE_SIM_WINDOW names no window of a plant")
    if node is None:
        node = int(os.environ.get("GRIDAWARE_SIM_NODE", "0"))
    if indices is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        indices = [part.strip() for part in visible.split(",") if part.strip()]
    window = Window.open(Path(path))
    return VirtualGpus(window, _choose(window.gpus_of(node), indices), workload, SystemClock())


def _choose(slots: Sequence[GpuSlot], wanted: Sequence[int | str]) -> list[GpuSlot]:
    if not wanted:
        raise InvalidInput("no-gpus", "no GPU is named: CUDA_VISIBLE_DEVICES is empty")
    by_name = {str(slot.index): slot for slot in slots}
    by_name |= {slot.uuid.decode(): slot for slot in slots}
    absent = [str(name) for name in wanted if str(name) not in by_name]
    if absent:
        raise InvalidInput("no-such-gpu", f"the node has no GPU {', '.join(absent)}")
    return [by_name[str(name)] for name in wanted]


def keep_busy(slot: GpuSlot, workload: str) -> None:
    """Let this process keep work queued on a GPU for good: a process that is not ours."""
    started = process_started_ticks(os.getpid())
    assert started is not None
    load = slot.load(0)
    load.claim(workload, os.getpid(), started)
    load.until_seconds = math.inf


class VirtualGpus:
    """GPUs that this process works on, all at the pace of the slowest."""

    def __init__(
        self, window: Window, slots: Sequence[GpuSlot], workload: str, clock: Clock
    ) -> None:
        self._window = window
        self._slots = slots
        self._workload = workload
        self._clock = clock
        self._loads: list[LoadSlot] = []
        self._surplus = 0.0

    def __enter__(self) -> Self:
        started = process_started_ticks(os.getpid())
        assert started is not None
        with self._window.claiming():
            self._loads = [_free_load(slot) for slot in self._slots]
            for load in self._loads:
                load.claim(self._workload, os.getpid(), started)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for load in self._loads:
            load.leave()
        self._loads = []
        self._window.close()

    @property
    def gpu_ids(self) -> tuple[str, ...]:
        """UUIDs of the GPUs."""
        return tuple(slot.uuid.decode() for slot in self._slots)

    def step(self, uncapped_seconds: float) -> float:
        """Work through one step; returns the seconds it took.

        The pace is read again while it runs, so a cap that comes in the middle is felt at once.

        Raises:
            DeviceLost: one of the GPUs fell off the bus.
            InvalidInput: the plant knows no such workload.
            Unavailable: the plant is dead.
        """
        if not self._loads:
            raise InvalidInput("not-entered", "step() belongs inside the with block")
        began = last = self._clock.monotonic_seconds()
        # Work done beyond the end of the last step (a sleep is never exact) counts for this one.
        todo = uncapped_seconds - min(self._surplus, uncapped_seconds)
        while True:
            rate = self._rate()
            # A GPU that has just been woken shows no rate until the plant has seen it.
            left = todo / rate if rate > 0 else SLICE_SECONDS / 4
            self._queue(last, left)
            if rate > 0 and left <= 0:
                break
            time.sleep(min(left, SLICE_SECONDS))
            now = self._clock.monotonic_seconds()
            todo -= (now - last) * rate
            last = now
        self._surplus = -todo
        for load in self._loads:
            load.steps += 1
        return last - began

    def _rate(self) -> float:
        """Relative throughput of the slowest GPU now; 0 while one has not started."""
        slowest = min(slot.throughput for slot in self._slots)
        if slowest <= 0:
            self._look_for_trouble()
        return slowest

    def _queue(self, now: float, left: float) -> None:
        ahead = min(max(QUEUED_STEPS * left, LEAST_QUEUED_SECONDS), GREATEST_QUEUED_SECONDS)
        for load in self._loads:
            load.until_seconds = now + ahead

    def _look_for_trouble(self) -> None:
        for slot, load in zip(self._slots, self._loads, strict=True):
            if slot.lost:
                raise DeviceLost("device-lost", f"GPU {slot.uuid.decode()} fell off the bus")
            if load.state == LoadState.UNKNOWN_WORKLOAD:
                raise InvalidInput("workload-unknown", f"no workload {self._workload!r}")
        silent = self._clock.monotonic_seconds() - self._window.header.plant_seconds
        if silent > PLANT_SILENT_SECONDS:
            raise Unavailable("plant-silent", f"the plant has stood still for {silent:.0f} s")


def _free_load(slot: GpuSlot) -> LoadSlot:
    for load in slot.loads():
        if load.pid == 0 or process_started_ticks(load.pid) != load.started_ticks:
            return load
    raise InvalidInput("gpu-crowded", f"GPU {slot.uuid.decode()} has no free load slot")
