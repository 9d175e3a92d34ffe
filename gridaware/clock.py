"""The three clocks of a machine, and one that tests turn by hand.

* *wall*: UTC instants, for people, signals and the ledger. It may step.
* *monotonic*: seconds that never step and stand still while the machine sleeps; for latencies.
* *boot*: seconds since boot, counting sleep; for leases, which must end even if the machine slept.

No other module may read a clock (a lint rule holds that), so a test can own the time. Processes
under test take an offset of their wall clock from ``GRIDAWARE_TEST_WALL_OFFSET_FILE``: a file with
one number of seconds, read again at each call, so that a clock step needs no privilege. Likewise
``GRIDAWARE_TEST_BOOT_FILE`` (a boot id, and how many boot seconds were over when it began) lets a
test restart a node's processes as a reboot of the machine would.
"""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock", "boot_id"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """What every part of gridaware may know of time."""

    def wall(self) -> datetime:
        """The present instant, in UTC."""
        ...

    def monotonic_seconds(self) -> float:
        """Seconds on a clock that never steps."""
        ...

    def boot_seconds(self) -> float:
        """Seconds since boot, counting the time the machine slept."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def __init__(self) -> None:
        path = os.environ.get("GRIDAWARE_TEST_WALL_OFFSET_FILE")
        self._offset_file = Path(path) if path else None
        self._boot_began_seconds = _test_boot()[1]

    def wall(self) -> datetime:
        """The present instant, in UTC."""
        now = datetime.now(UTC)  # noqa: TID251 - the one place that reads the clock
        if self._offset_file is None:
            return now
        return now + timedelta(seconds=_read_seconds(self._offset_file))

    def monotonic_seconds(self) -> float:
        """Seconds on a clock that never steps."""
        return time.monotonic()  # noqa: TID251

    def boot_seconds(self) -> float:
        """Seconds since boot, counting the time the machine slept."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self._boot_began_seconds  # noqa: TID251


class ManualClock:
    """A clock that moves only when told to, for tests and the seeded world."""

    def __init__(self, wall: datetime, *, boot_seconds: float = 1000.0) -> None:
        if wall.tzinfo is None:
            raise ValueError("the wall clock must be an aware instant")
        self._wall = wall
        self._seconds = boot_seconds

    def wall(self) -> datetime:
        """The present instant, in UTC."""
        return self._wall

    def monotonic_seconds(self) -> float:
        """Seconds on a clock that never steps."""
        return self._seconds

    def boot_seconds(self) -> float:
        """Seconds since boot, counting the time the machine slept."""
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Move every clock forward by ``seconds`` (at least 0)."""
        if seconds < 0:
            raise ValueError("time does not run backwards; use step_wall for a clock step")
        self._wall += timedelta(seconds=seconds)
        self._seconds += seconds

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock alone, as an operator or NTP would."""
        self._wall += timedelta(seconds=seconds)


def boot_id() -> str:
    """Identity of this boot of the machine."""
    return _test_boot()[0] or _BOOT_ID.read_text(encoding="ascii").strip()


def _test_boot() -> tuple[str, float]:
    """(id, boot seconds that were over when it began) as a test has set them; else nothing."""
    path = os.environ.get("GRIDAWARE_TEST_BOOT_FILE")
    try:
        name, seconds = Path(path).read_text(encoding="ascii").split() if path else ("", "0")
        return name, float(seconds)
    except (OSError, ValueError):
        return "", 0.0


def _read_seconds(path: Path) -> float:
    try:
        return float(path.read_text(encoding="ascii").strip() or 0.0)
    except (OSError, ValueError):
        return 0.0
