"""What a GPU does and draws under a power cap: the fitted model behind every curve.

Powers are shares of the GPU's rated power (TDP). A workload alternates a *hot* phase, whose clock
follows the cap, and a *cool* one, which the cap does not slow. With cap ``c``, static power ``S``,
exponent ``b``, clock floor ``f0`` (of the GPU) and hot demand ``D``, hot share of time ``h``, cool
power ``L`` (of the workload)::

    clock       f = max(((min(c, D) - S) / (D - S)) ^ (1 / b), f0)
    slow-down   T = h / f + (1 - h)
    throughput  T(1) / T(c)
    power       ((h / f) * (S + (D - S) * f ^ b) + (1 - h) * min(L, c)) / T

Below the clock floor the power no longer follows the cap: limits near the device's minimum are not
honoured, as the public traces show. A clock lock at the share ``x`` of the full clock makes it
``min(f, x)``. The parameters describe traces; they are not physics. Sources and residuals stand
with the numbers, in ``configs/curves``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import overload

import numpy as np
from numpy.typing import NDArray

from gridaware.domain.curve import Curve, CurveQuality
from gridaware.domain.errors import InvalidInput, NotFound
from gridaware.domain.fleet import LimitRange

__all__ = [
    "CurveBook",
    "GpuClass",
    "GpuEntry",
    "WorkloadClass",
    "clock_of",
    "curve_of",
    "respond",
]

Floats = NDArray[np.float64]

CLOCK_POINTS = 10
"""Points of a curve between clock floor and full clock, where it bends."""

GENERIC_WORKLOAD = "generic"

MOST_CURVES = 4096
"""Curves of devices that a book keeps: models and limits are what agents say, so not without end.
"""


@dataclass(frozen=True, slots=True)
class GpuClass:
    """A GPU model: its limits in watts, its law in shares of ``tdp_watts``."""

    name: str
    tdp_watts: float
    least_watts: float
    greatest_watts: float
    default_watts: float
    idle_watts: float
    static_share: float
    exponent: float
    clock_floor: float
    source: str
    throughput_rmse: float | None
    """Root mean square residual of relative throughput; None where nothing was fitted."""
    power_rmse: float | None
    """Root mean square residual of power, as a share of TDP; None where nothing was fitted."""
    quality: CurveQuality

    def __post_init__(self) -> None:
        if not 0 < self.least_watts <= self.default_watts <= self.greatest_watts:
            raise InvalidInput("gpu-class-limits", f"{self.name}: limits are out of order")
        if not (self.tdp_watts > 0 and 0 <= self.idle_watts < self.tdp_watts):
            raise InvalidInput("gpu-class-power", f"{self.name}: rated and idle power do not fit")
        if not (0 <= self.static_share < 1 and self.exponent >= 1 and 0 < self.clock_floor <= 1):
            raise InvalidInput("gpu-class-law", f"{self.name}: the law's parameters are no shares")

    @property
    def limits(self) -> LimitRange:
        """The power limits it accepts."""
        return LimitRange(self.least_watts, self.greatest_watts, self.default_watts)


@dataclass(frozen=True, slots=True)
class WorkloadClass:
    """A kind of work on one GPU model; powers are shares of its TDP."""

    name: str
    hot_demand: float
    """Power that the hot phase would draw uncapped; above 1 the rated power already slows it."""
    hot_share: float
    """Share of time in the hot phase, uncapped."""
    cool_power: float
    quality: CurveQuality
    source: str
    throughput_rmse: float | None = None
    power_rmse: float | None = None

    def __post_init__(self) -> None:
        if not (
            0 < self.hot_demand <= 2 and 0 <= self.hot_share <= 1 and 0 <= self.cool_power <= 1
        ):
            raise InvalidInput("workload-class-law", f"{self.name}: the parameters are no shares")


@overload
def respond(
    gpu: GpuClass, workload: WorkloadClass, cap_watts: float, lock: float = ...
) -> tuple[float, float]: ...
@overload
def respond(
    gpu: GpuClass, workload: WorkloadClass, cap_watts: Floats, lock: float | Floats = ...
) -> tuple[Floats, Floats]: ...
def respond(
    gpu: GpuClass,
    workload: WorkloadClass,
    cap_watts: float | Floats,
    lock: float | Floats = 1.0,
) -> tuple[float | Floats, float | Floats]:
    """Throughput relative to uncapped (0 to 1) and mean draw in watts of one GPU under a cap.

    ``lock``: what a clock lock leaves of the full clock. Source: notes of the fit in
    ``configs/curves``; uncapped means a cap at the rated power.
    """
    cap = np.asarray(cap_watts, dtype=np.float64) / gpu.tdp_watts
    clock = np.minimum(_clock(gpu, workload, cap), lock)
    slowdown = _slowdown(workload, clock)
    slowdown_uncapped = _slowdown(workload, _clock(gpu, workload, np.asarray(1.0)))
    h, demand = workload.hot_share, workload.hot_demand
    hot_power = gpu.static_share + (demand - gpu.static_share) * clock**gpu.exponent
    cool_power = np.minimum(workload.cool_power, cap)
    power = ((h / clock) * hot_power + (1 - h) * cool_power) / slowdown
    throughput = slowdown_uncapped / slowdown
    if isinstance(cap_watts, np.ndarray):
        return throughput, power * gpu.tdp_watts
    return float(throughput), float(power) * gpu.tdp_watts


def clock_of(gpu: GpuClass, workload: WorkloadClass, cap_watts: Floats) -> Floats:
    """The share of the full clock that a cap leaves to the hot phase."""
    return _clock(gpu, workload, np.asarray(cap_watts, dtype=np.float64) / gpu.tdp_watts)


def _clock(gpu: GpuClass, workload: WorkloadClass, cap: Floats) -> Floats:
    """Relative clock of the hot phase."""
    room = workload.hot_demand - gpu.static_share
    if room <= 0:  # draws no more than the static power: no cap touches its clock
        return np.ones_like(cap)
    share = np.clip((np.minimum(cap, workload.hot_demand) - gpu.static_share) / room, 0, None)
    return np.maximum(share ** (1 / gpu.exponent), gpu.clock_floor)


def _slowdown(workload: WorkloadClass, clock: Floats) -> Floats:
    """How much longer a step takes than at full clock."""
    longer: Floats = workload.hot_share / clock + (1 - workload.hot_share)
    return longer


def curve_of(gpu: GpuClass, workload: WorkloadClass, limits: LimitRange | None = None) -> Curve:
    """The model as a curve over the limits that a device accepts (None: those of its class)."""
    limits = limits or gpu.limits
    caps = _bends(gpu, workload, limits)
    throughput, power = respond(gpu, workload, caps)
    throughput = np.maximum.accumulate(throughput / throughput[-1])
    power = np.maximum.accumulate(power)
    fitted = gpu.quality == "fitted" and workload.quality == "fitted"
    return Curve(
        cap_watts=tuple(caps.tolist()),
        power_watts=tuple(power.tolist()),
        throughput=tuple(throughput.tolist()),
        idle_watts=gpu.idle_watts,
        quality="fitted" if fitted else "assumed",
        source=f"{gpu.name} {workload.name}",
    )


def _bends(gpu: GpuClass, workload: WorkloadClass, limits: LimitRange) -> Floats:
    """Caps between which the model is nearly straight: even steps of clock, and its corners."""
    least, greatest = limits.least_watts, max(limits.greatest_watts, limits.least_watts + 1.0)
    clock = np.linspace(gpu.clock_floor, 1.0, CLOCK_POINTS)
    room = max(workload.hot_demand - gpu.static_share, 0.0)
    inner = (gpu.static_share + room * clock**gpu.exponent) * gpu.tdp_watts
    corners = np.append(inner, workload.cool_power * gpu.tdp_watts).round(1)
    inside = corners[(corners > least + 0.5) & (corners < greatest - 0.5)]
    return np.unique(np.concatenate(([least], inside, [greatest])))


@dataclass(frozen=True, slots=True)
class GpuEntry:
    """One GPU model of a book, with the classes of work known on it."""

    gpu: GpuClass
    model_names: tuple[str, ...]
    """Parts of the driver's model name (``A100-SXM4``), compared without case."""
    workloads: Mapping[str, WorkloadClass]


@dataclass(frozen=True, slots=True)
class CurveBook:
    """Every known GPU model and class of work."""

    entries: tuple[GpuEntry, ...]
    fallback: str = "a100-400"
    """The class whose shares an unknown model borrows, labelled assumed."""
    _by_name: Mapping[str, GpuEntry] = field(init=False, repr=False, compare=False)
    _curves: dict[tuple[str, str | None, LimitRange], Curve] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """Made once: every plan asks for the same few, for each GPU."""

    def __post_init__(self) -> None:
        by_name = {entry.gpu.name: entry for entry in self.entries}
        object.__setattr__(self, "_by_name", MappingProxyType(by_name))

    def names(self) -> tuple[str, ...]:
        """The GPU classes, by name."""
        return tuple(self._by_name)

    def gpu(self, name_or_model: str, limits: LimitRange | None = None) -> GpuClass:
        """The class called so, or the one whose model name is in ``name_or_model``.

        With ``limits`` of the actual device, a class of another rated power is scaled to it, and a
        model that nobody knows borrows the shares of the fallback; both are then ``assumed``.

        Raises:
            NotFound: the model is unknown and ``limits`` says nothing about it.
        """
        entry = self._find(name_or_model)
        if entry is not None:
            return entry.gpu if limits is None else _scaled(entry.gpu, limits, entry.gpu.name)
        if limits is None:
            raise NotFound(
                "gpu-model-unknown", f"no curves for {name_or_model!r}", model=name_or_model
            )
        unknown = replace(self._by_name[self.fallback].gpu, quality="assumed")
        return _scaled(unknown, limits, name_or_model)

    def workload(self, gpu: GpuClass, name: str | None) -> WorkloadClass:
        """The class of work called ``name`` on that GPU, or the generic, assumed one."""
        entry = self._by_name.get(gpu.name, self._by_name[self.fallback])
        if name is not None and name in entry.workloads:
            return entry.workloads[name]
        return entry.workloads[GENERIC_WORKLOAD]

    def curve(self, model: str, workload: str | None, limits: LimitRange) -> Curve:
        """The best curve known for a class of work on a device."""
        device = (model, workload, limits)
        known = self._curves.get(device)
        if known is not None:
            return known
        gpu = self.gpu(model, limits)
        curve = curve_of(gpu, self.workload(gpu, workload), limits)
        if len(self._curves) < MOST_CURVES:
            self._curves[device] = curve
        return curve

    def _find(self, name_or_model: str) -> GpuEntry | None:
        entry = self._by_name.get(name_or_model)
        if entry is not None:
            return entry
        model = name_or_model.casefold()
        matches = [
            (len(part), entry)
            for entry in self.entries
            for part in entry.model_names
            if part.casefold() in model
        ]
        return max(matches, key=lambda match: match[0])[1] if matches else None


def _scaled(gpu: GpuClass, limits: LimitRange, name: str) -> GpuClass:
    """``gpu`` with the limits of a device; its powers follow the default limit."""
    ratio = limits.default_watts / gpu.default_watts
    same = abs(ratio - 1) < 0.02
    return replace(
        gpu,
        name=name,
        tdp_watts=gpu.tdp_watts if same else gpu.tdp_watts * ratio,
        idle_watts=gpu.idle_watts if same else gpu.idle_watts * ratio,
        least_watts=limits.least_watts,
        greatest_watts=limits.greatest_watts,
        default_watts=limits.default_watts,
        quality=gpu.quality if same else "assumed",
    )
