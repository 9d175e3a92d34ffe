"""Clock locks of NVIDIA GPUs (``nvmlDeviceSetGpuLockedClocks``): Volta and later, root.

A lock is open-loop: it holds the clock, not the power, and works where the draw is below every
legal power limit. NVML cannot say which lock stands, so the found one is *unlocked*, unless the
site names the lock that it sets itself (``locked_clocks_mhz`` of the driver's options): then giving
back means that lock, and no lock of ours is above it. A lock is lost with a reload of the driver.
"""

from typing import Final

from gridaware.devices.nvml_calls import NvmlCalls
from gridaware.devices.nvml_errors import INVALID_ARGUMENT, NOT_SUPPORTED, error_of
from gridaware.domain.errors import ConfigError
from gridaware.domain.fleet import ClockRange

__all__ = ["NvmlClocks", "parse_lock"]

VOLTA: Final = (7, 0)
SM_CLOCK: Final = 1


class NvmlClocks:
    """The clock locks of every GPU of this machine.

    Args:
        calls: how NVML is asked.
        found_mhz: the lock that the site sets itself, least and greatest; None = none.
    """

    def __init__(self, calls: NvmlCalls, found_mhz: tuple[int, int] | None = None) -> None:
        self._calls = calls
        self._found_mhz = found_mhz
        self._steps: dict[str, tuple[int, ...]] = {}

    def clock_range(self, gpu_id: str) -> ClockRange:
        """What its clocks can be locked to.

        Raises:
            DeviceNotSupported: it is older than Volta, or names no clocks.
        """
        steps = self._steps_of(gpu_id)
        most = steps[-1] if self._found_mhz is None else min(steps[-1], self._found_mhz[1])
        return ClockRange(float(min(steps[0], most)), float(most))

    def lock_clocks(self, gpu_id: str, most_mhz: float) -> None:
        """Keep the clock at or below ``most_mhz``, at the greatest step that is."""
        limits = self.clock_range(gpu_id)
        if not limits.least_mhz <= most_mhz <= limits.greatest_mhz:  # NaN is refused too
            raise error_of(INVALID_ARGUMENT, f"lock {most_mhz} MHz", gpu_id)
        steps = self._steps_of(gpu_id)
        most = max(step for step in steps if step <= most_mhz)
        self._calls.ask(gpu_id, "nvmlDeviceSetGpuLockedClocks", steps[0], most)

    def unlock_clocks(self, gpu_id: str) -> None:
        """Give back the lock that the site sets itself, or none."""
        if self._found_mhz is None:
            self._calls.ask(gpu_id, "nvmlDeviceResetGpuLockedClocks")
        else:
            self._calls.ask(gpu_id, "nvmlDeviceSetGpuLockedClocks", *self._found_mhz)

    def clock_mhz(self, gpu_id: str) -> float:
        """The clock now."""
        return float(self._calls.ask(gpu_id, "nvmlDeviceGetClockInfo", SM_CLOCK))

    def _steps_of(self, gpu_id: str) -> tuple[int, ...]:
        """The clocks it knows at its fastest memory clock, least first."""
        if gpu_id not in self._steps:
            capability = self._calls.ask(gpu_id, "nvmlDeviceGetCudaComputeCapability")
            if tuple(capability) < VOLTA:
                raise error_of(NOT_SUPPORTED, "clock lock", gpu_id)
            memory = self._calls.ask(gpu_id, "nvmlDeviceGetSupportedMemoryClocks")
            clocks = self._calls.ask(
                gpu_id, "nvmlDeviceGetSupportedGraphicsClocks", max(memory, default=0)
            )
            if not clocks:
                raise error_of(NOT_SUPPORTED, "clock lock", gpu_id)
            self._steps[gpu_id] = tuple(sorted(clocks))
        return self._steps[gpu_id]


def parse_lock(text: str) -> tuple[int, int]:
    """``LEAST,GREATEST`` in megahertz.

    Raises:
        ConfigError: it is not that.
    """
    parts = text.split(",")
    if len(parts) == 2 and all(part.strip().isdigit() for part in parts):
        least, greatest = (int(part) for part in parts)
        if 0 < least <= greatest:
            return least, greatest
    raise ConfigError(
        "nvml-locked-clocks", f"locked_clocks_mhz must be LEAST,GREATEST in MHz, not {text!r}"
    )
