"""The energy counters of a node's processors: RAPL, by Linux's ``powercap`` files.

* A package's ``energy_uj`` wraps at ``max_energy_range_uj``, within minutes on a large server. A
  decrease is one wrap as long as the power that follows from it is one that a package can draw;
  else the counter was reset, and a new epoch begins (notes §6, case 3: never a negative amount).
  So it does after a pause in which it could have wrapped unseen.
* Packages and their DRAM are summed (``core`` and ``uncore`` lie within a package; ``psys`` is the
  platform and holds both).
* The files are readable by root alone since CVE-2020-8694; containers mask them, so the place
  where they are bind-mounted can be named.
* Limits are read, never set: a GPU node's processors are not what yields here.

The energy of a GH200's or GB200's processors is in its modules' own counters: do not add this meter
to readings at the boundary of a module.

Source: ``Documentation/power/powercap/powercap.rst`` and the sysfs ABI of the Linux kernel.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gridaware.clock import Clock, SystemClock
from gridaware.devices.kernel import driver_load
from gridaware.devices.options import absolute_path, check_names
from gridaware.domain.errors import Unavailable
from gridaware.domain.reading import Boundary, EnergyReading, Method, Reading

__all__ = ["OPTIONS", "TESTED", "CpuLimit", "RaplMeter", "open_meter"]

OPTIONS: Final[Mapping[str, str]] = {
    "path": "absolute path of the folder of the `intel-rapl:*` zones; default "
    "`/sys/class/powercap`, in a container where that is bind-mounted",
}
PATH: Final = "/sys/class/powercap"
TESTED: Final = "a folder laid out as the kernel's; the real one where a test machine has it"
LEAST_SECONDS: Final = 0.05
"""Power over less than this is noise: the counters move once a millisecond."""
MOST_WATTS: Final = 2000.0
"""Of one zone: no package or its memory draws more, so more is a reset and not a wrap."""
MOST_ZONES: Final = 64
MOST_CONSTRAINTS: Final = 3
MODULE: Final = Path("/sys/module/intel_rapl_common")


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """One power limit of a package or its memory, as it stands."""

    zone: str
    name: str
    """``long_term``, ``short_term`` or ``peak_power``."""
    watts: float
    most_watts: float | None
    """None where the kernel has no value for it."""


@dataclass(slots=True)
class _Zone:
    """One counter. ``range_joules`` is where it wraps."""

    folder: Path
    name: str
    range_joules: float
    shown_joules: float


def open_meter(options: Mapping[str, str]) -> "RaplMeter":
    """The processors of this machine; nothing is read yet.

    Args:
        options: see ``OPTIONS``.

    Raises:
        ConfigError: an option is unknown, or the path is not absolute.
    """
    check_names(options, OPTIONS, "rapl")
    return RaplMeter(absolute_path(options.get("path", PATH), "path", "rapl"), SystemClock())


class RaplMeter:
    """Power of all packages and their memory: what the counters grew by between two readings.

    Args:
        path: the folder of the zones.
        clock: measures the time between them.
    """

    pace_seconds = LEAST_SECONDS

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._zones: tuple[_Zone, ...] = ()
        self._epoch = ""
        self._read_seconds = 0.0
        self._counted_joules = 0.0
        self._watts: float | None = None

    def close(self) -> None:
        """Nothing is held open."""

    def read(self) -> tuple[Reading, EnergyReading | None]:
        """Mean power since the last reading, and the energy since the first.

        Raises:
            Unavailable: ``rapl-missing`` (no such counters), ``rapl-permission``, or
                ``rapl-begun``: the first reading, and one after a reset, only begin to count.
        """
        now = self._clock.boot_seconds()
        if not self._zones:
            self._begin(now, _zones(self._path), driver_load(MODULE))
        elapsed = now - self._read_seconds
        if elapsed >= LEAST_SECONDS:
            self._advance(now, elapsed)
        if self._watts is None:
            raise Unavailable("rapl-begun", "the processors' counters have only begun")
        at = self._clock.wall()
        power = Reading(self._watts, at, Boundary.CPU, Method.AVERAGED)
        return power, EnergyReading(self._counted_joules, self._epoch, at, Boundary.CPU)

    def _begin(self, now: float, zones: tuple[_Zone, ...], epoch: str) -> None:
        self._zones, self._epoch, self._read_seconds = zones, epoch, now
        self._counted_joules = 0.0
        self._watts = None

    def limits(self) -> tuple[CpuLimit, ...]:
        """Every limit of every zone, as it stands; what the kernel does not tell is left out."""
        found = []
        for zone in self._zones or _zones(self._path):
            for number in range(MOST_CONSTRAINTS):
                name = _text(zone.folder / f"constraint_{number}_name")
                limit = _whole(zone.folder / f"constraint_{number}_power_limit_uw")
                if name is None or limit is None:
                    continue
                most = _whole(zone.folder / f"constraint_{number}_max_power_uw")
                found.append(CpuLimit(zone.name, name, limit / 1e6, most / 1e6 if most else None))
        return tuple(found)

    def _advance(self, now: float, elapsed: float) -> None:
        grown = [self._grown(zone, elapsed) for zone in self._zones]
        amounts = [joules for joules in grown if joules is not None]
        if len(amounts) < len(grown):
            self._begin(now, self._zones, f"{driver_load(MODULE)}@{now:.3f}")
            return
        self._read_seconds = now
        self._counted_joules += sum(amounts)
        self._watts = sum(amounts) / elapsed

    def _grown(self, zone: _Zone, elapsed: float) -> float | None:
        """What a counter grew by; None where it began anew."""
        shown = _energy_joules(zone.folder)
        grown = shown - zone.shown_joules
        zone.shown_joules = shown
        most_joules = MOST_WATTS * elapsed
        if grown < 0:
            grown += zone.range_joules
        # After a long pause nobody can tell how often it wrapped.
        return grown if 0 <= grown <= most_joules < zone.range_joules else None


def _zones(path: Path) -> tuple[_Zone, ...]:
    """Packages, and the memory below each."""
    try:
        folders = sorted(path.glob("intel-rapl:*"))[: 4 * MOST_ZONES]
    except OSError as error:
        raise Unavailable("rapl-missing", f"cannot list {path}: {error}") from error
    zones = []
    for folder in folders:
        name = _text(folder / "name") or ""
        if not name.startswith("package") and name != "dram":
            continue
        most = _whole(folder / "max_energy_range_uj")
        if most:
            owner = folder.name.removeprefix("intel-rapl:")
            shown = _energy_joules(folder)
            zones.append(_Zone(folder, f"{owner} {name}", most / 1e6, shown))
    if not zones:
        raise Unavailable("rapl-missing", f"no processor has energy counters in {path}")
    return tuple(zones[:MOST_ZONES])


def _energy_joules(folder: Path) -> float:
    path = folder / "energy_uj"
    try:
        text = path.read_text(encoding="ascii")
    except PermissionError as error:
        raise Unavailable("rapl-permission", f"only root may read {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable("rapl-missing", f"cannot read {path}: {error}") from error
    if not text.strip().isdigit():
        raise Unavailable("rapl-missing", f"{path} holds no number")
    return int(text) / 1e6


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _whole(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdigit() else None
