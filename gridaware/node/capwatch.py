"""Does the power obey the limit? A limit that reads back well may still hold nothing.

Laptops and some boards accept limits and ignore them, and a cap too low for the state a GPU is in
switches the limit off on others (notes/power.md §6, cases 26 and 35: 420 W from a 293 W card). So
the draw is held against the limit in force: a good bit above it for some seconds is told once, and
control, which then knows that this GPU does not follow, takes the next rung.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gridaware.node.actions import Fault
from gridaware.node.childwire import GpuTick, Tick

__all__ = ["CapWatch"]

_ABOVE = 1.1
"""Sensors are a few percent off, and regulators overshoot."""
_SECONDS = 2.0
"""Averaged sensors follow within one second."""


@dataclass(slots=True)
class _Gpu:
    enforced_watts: float | None = None
    above_since: float | None = None
    told: bool = False


class CapWatch:
    """Watches every GPU of a node. Pure: boot seconds come with the ticks.

    Args:
        latency_seconds: of a GPU, from a limit that was set until it is obeyed.
    """

    def __init__(self, latency_seconds: Callable[[str], float]) -> None:
        self._latency_seconds = latency_seconds
        self._gpus: dict[str, _Gpu] = {}

    def look(self, tick: Tick) -> list[Fault]:
        """A fault for each GPU that has now drawn too much for too long, and one when it is over.

        ``limit-ignored`` and ``limit-obeyed``, each told once.
        """
        return list(self._look(tick.gpus, tick.boot_seconds))

    def _look(self, ticks: Iterable[GpuTick], now: float) -> Iterator[Fault]:
        for tick in ticks:
            gpu = self._gpus.setdefault(tick.gpu_id, _Gpu())
            if tick.limits is not None and tick.limits.enforced_watts is not None:
                if tick.limits.enforced_watts != gpu.enforced_watts:
                    gpu.above_since = None  # a new limit has its time to be obeyed
                gpu.enforced_watts = tick.limits.enforced_watts
            if not tick.fresh or tick.power_watts is None or gpu.enforced_watts is None:
                continue
            if not tick.power_watts > _ABOVE * gpu.enforced_watts:
                if gpu.told:
                    yield Fault("limit-obeyed", tick.gpu_id, "its power obeys the limit again")
                gpu.above_since, gpu.told = None, False
                continue
            if gpu.above_since is None:
                gpu.above_since = now
            patience = _SECONDS + self._latency_seconds(tick.gpu_id)
            if now - gpu.above_since > patience and not gpu.told:
                gpu.told = True
                yield Fault(
                    "limit-ignored",
                    tick.gpu_id,
                    f"draws {tick.power_watts:.0f} W under a limit of {gpu.enforced_watts:.0f} W "
                    f"for more than {patience:g} s",
                )
