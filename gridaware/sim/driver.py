"""The simulated GPU driver: the driver port on the registers of a virtual site.

It only moves registers; what follows from a limit is the plant's business. Faults written into the
window are honoured as a real driver would show them.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gridaware.clock import Clock, SystemClock
from gridaware.devices.nvml_errors import (
    GONE,
    INVALID_ARGUMENT,
    LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    error_of,
)
from gridaware.domain.errors import (
    ConfigError,
    DeviceHung,
    DeviceLost,
    DeviceNoPermission,
    DeviceNotSupported,
    DeviceOutOfRange,
    DriverGone,
    Unavailable,
)
from gridaware.domain.fleet import BoardState, ClockRange, LimitRange, Smoothing
from gridaware.domain.reading import Boundary, EnergyReading, Method, Reading
from gridaware.sim.window import CLOCK_STEP_MHZ, SMOOTHING_ON, GpuSlot, LoadState, Window

__all__ = ["SimDriver", "SimGpu", "open_driver"]

VOLTA = 70


@dataclass(slots=True)
class SimGpu:
    """Who a virtual GPU is."""

    gpu_id: str
    index: int
    model: str


def open_driver(options: Mapping[str, str]) -> "SimDriver":
    """The driver of one node of a plant that runs as a process.

    Args:
        options: ``window`` (path), ``node`` (index from 0, default 0), ``call_seconds`` (every
            call takes at least that long, default 0).

    Raises:
        ConfigError: an option is unknown, missing or no number.
    """
    unknown = set(options) - {"window", "node", "call_seconds"}
    if unknown or "window" not in options:
        odd = ", ".join(sorted(unknown)) or "window is missing"
        raise ConfigError("sim-driver-options", f"options of the simulated driver: {odd}")
    try:
        node = int(options.get("node", "0"))
        call_seconds = float(options.get("call_seconds", "0"))
    except ValueError as error:
        raise ConfigError("sim-driver-options", f"simulated driver: {error}") from error
    path = Path(options["window"])
    return SimDriver(lambda: Window.open(path), node, SystemClock(), call_seconds=call_seconds)


class SimDriver:
    """The driver of one node.

    Args:
        attach: returns the window; called by :meth:`open`.
        node: index of the node.
        clock: stamps the readings.
        call_seconds: every call takes at least that long.
        wait: how a call takes time. None (the seeded world): no call takes any, and one that
            would never return raises ``DeviceHung`` instead.
    """

    boundary = "gpu"

    def __init__(
        self,
        attach: Callable[[], Window],
        node: int,
        clock: Clock,
        *,
        call_seconds: float = 0.0,
        wait: Callable[[float], None] | None = time.sleep,
    ) -> None:
        self._attach = attach
        self._node = node
        self._clock = clock
        self._call_seconds = call_seconds
        self._wait = wait
        self._window: Window | None = None
        self._epoch_at_open = 0
        self._slots: dict[str, GpuSlot] = {}

    def open(self) -> None:
        """Attach to the window."""
        try:
            self._window = self._attach()
        except Unavailable as error:
            raise DriverGone("driver-not-loaded", error.message) from error
        node = self._window.node(self._node)
        self._epoch_at_open = node.driver_epoch
        if node.driver_gone:
            raise error_of(GONE, "open")
        self._slots = {slot.uuid.decode(): slot for slot in self._window.gpus_of(self._node)}
        modules = any(slot.module_scope for slot in self._slots.values())
        self.boundary = "module" if modules else "gpu"

    def close(self) -> None:
        """Detach. Limits stay as they are."""
        self._window = None
        self._slots = {}

    def epoch(self) -> str:
        """Counts loads of the driver of this node."""
        self._driver("epoch")
        return f"sim-{self._node}-{self._epoch_at_open}"

    def gpus(self) -> Sequence[SimGpu]:
        """Every GPU that answers, in driver order."""
        self._driver("gpus")
        answering = [(uuid, slot) for uuid, slot in self._slots.items() if not slot.lost]
        return [
            SimGpu(uuid, slot.index, slot.model.decode(errors="replace"))
            for uuid, slot in answering
        ]

    def can_set(self, gpu_id: str) -> bool:
        """Whether this process may change the GPU's limit."""
        return not self._gpu(gpu_id, "can_set").permission_denied

    def limit_range(self, gpu_id: str) -> LimitRange:
        """Limits the GPU accepts."""
        slot = self._gpu(gpu_id, "limit_range")
        return LimitRange(slot.least_watts, slot.greatest_watts, slot.default_watts)

    def requested_limit_watts(self, gpu_id: str) -> float:
        """The limit last asked for by anyone on this host."""
        return self._gpu(gpu_id, "requested_limit").requested_watts

    def enforced_limit_watts(self, gpu_id: str) -> float:
        """The limit in force."""
        return self._gpu(gpu_id, "enforced_limit").enforced_watts

    def set_limit_watts(self, gpu_id: str, watts: float) -> None:
        """Ask for a limit; out of range is refused, never clamped."""
        slot = self._gpu(gpu_id, "set_limit")
        if slot.permission_denied:
            raise DeviceNoPermission(
                "device-no-permission", f"GPU {gpu_id}: needs root or CAP_SYS_ADMIN", gpu_id=gpu_id
            )
        if not slot.least_watts <= watts <= slot.greatest_watts:  # NaN is refused too
            raise DeviceOutOfRange(
                "device-out-of-range",
                f"GPU {gpu_id}: {watts} W is outside {slot.least_watts} to {slot.greatest_watts} W",
                gpu_id=gpu_id,
                watts=watts,
            )
        # NVML takes whole milliwatts.
        slot.requested_watts = round(watts * 1000) / 1000

    def clock_range(self, gpu_id: str) -> ClockRange:
        """What its clocks can be locked to."""
        slot = self._gpu(gpu_id, "clock_range")
        if slot.capability < VOLTA:
            raise error_of(NOT_SUPPORTED, "clock_range", gpu_id)
        return ClockRange(slot.least_mhz, slot.greatest_mhz)

    def lock_clocks(self, gpu_id: str, most_mhz: float) -> None:
        """Keep the clock at or below ``most_mhz``, at the greatest step that is."""
        slot = self._gpu(gpu_id, "lock_clocks")
        if slot.permission_denied:
            raise error_of(NO_PERMISSION, "lock_clocks", gpu_id)
        if not slot.least_mhz <= most_mhz <= slot.greatest_mhz:  # NaN is refused too
            raise error_of(INVALID_ARGUMENT, f"lock {most_mhz} MHz", gpu_id)
        slot.locked_least_mhz = slot.least_mhz
        slot.locked_mhz = slot.least_mhz + (most_mhz - slot.least_mhz) // CLOCK_STEP_MHZ * (
            CLOCK_STEP_MHZ
        )

    def unlock_clocks(self, gpu_id: str) -> None:
        """No lock any more."""
        slot = self._gpu(gpu_id, "unlock_clocks")
        if slot.permission_denied:
            raise error_of(NO_PERMISSION, "unlock_clocks", gpu_id)
        slot.locked_least_mhz = slot.locked_mhz = 0.0

    def clock_mhz(self, gpu_id: str) -> float:
        """The clock now."""
        return self._gpu(gpu_id, "clock_mhz").clock_mhz

    def board_state(self, gpu_id: str) -> BoardState:
        """Persistence, slices and smoothing as the registers have them."""
        slot = self._gpu(gpu_id, "board_state")
        smoothing = Smoothing(
            slot.smoothing_floor_watts,
            slot.smoothing_hysteresis_seconds,
            slot.smoothing_down_watts,
            slot.smoothing_up_watts,
        )
        return BoardState(
            bool(slot.persistence),
            tuple(slot.slice_uuid(number + 1) for number in range(slot.mig_slices)),
            (),
            smoothing if slot.smoothing == SMOOTHING_ON else None,
        )

    def power_watts(self, gpu_id: str) -> Reading:
        """Power as the GPU's sensor showed it last."""
        slot = self._gpu(gpu_id, "power")
        instant = not slot.instant_unsupported
        return Reading(
            watts=slot.instant_watts if instant else slot.average_watts,
            at=self._clock.wall(),
            boundary=Boundary.MODULE if slot.module_scope else Boundary.GPU,
            method=Method.INSTANT if instant else Method.AVERAGED,
        )

    def energy_joules(self, gpu_id: str) -> EnergyReading:
        """The energy counter; it starts anew with each load of the driver."""
        slot = self._gpu(gpu_id, "energy")
        if slot.energy_unsupported:
            raise DeviceNotSupported(
                "device-not-supported", f"GPU {gpu_id}: has no energy counter", gpu_id=gpu_id
            )
        return EnergyReading(
            joules=slot.energy_millijoules / 1000,
            epoch=f"sim-{self._node}-{self._epoch_at_open}",
            at=self._clock.wall(),
            boundary=Boundary.MODULE if slot.module_scope else Boundary.GPU,
        )

    def processes(self, gpu_id: str) -> tuple[int, ...]:
        """Host pids of the processes that claimed the GPU and live."""
        slot = self._gpu(gpu_id, "processes")
        return tuple(load.pid for load in slot.loads() if load.state == LoadState.ALIVE)

    def cap_binds(self, gpu_id: str) -> bool | None:
        """Whether the power cap holds the clocks down."""
        return bool(self._gpu(gpu_id, "cap_binds").cap_binds)

    def _driver(self, call: str) -> Window:
        """Let a call take its time, and refuse it where the driver is not (any longer) there."""
        if self._wait is not None and self._call_seconds > 0:
            self._wait(self._call_seconds)
        if self._window is None:
            raise DriverGone("driver-uninitialised", f"driver: it is not open ({call})")
        node = self._window.node(self._node)
        if node.driver_gone or node.driver_epoch != self._epoch_at_open:
            raise error_of(GONE, call)
        return self._window

    def _gpu(self, gpu_id: str, call: str) -> GpuSlot:
        self._driver(call)
        try:
            slot = self._slots[gpu_id]
        except KeyError:
            raise DeviceLost("device-lost", f"GPU {gpu_id}: not there", gpu_id=gpu_id) from None
        if slot.hang_seconds > 0:
            self._hang(slot, gpu_id, call)
        if slot.lost:
            raise error_of(LOST, call, gpu_id)
        if slot.error_code:
            raise error_of(slot.error_code, call, gpu_id)
        return slot

    def _hang(self, slot: GpuSlot, gpu_id: str, call: str) -> None:
        if self._wait is not None:
            waited = 0.0
            while waited < slot.hang_seconds:
                pause = min(0.05, slot.hang_seconds - waited)
                self._wait(pause)
                waited += pause
        elif math.isinf(slot.hang_seconds):
            raise DeviceHung("device-hung", f"GPU {gpu_id}: {call} did not return", gpu_id=gpu_id)
