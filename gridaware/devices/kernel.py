"""Which boot, and which load of a kernel module: what limits and counters do not outlive."""

from pathlib import Path

__all__ = ["driver_load"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def driver_load(module: Path, version: str = "") -> str:
    """Changes with each boot, with each load of ``module`` and with its version.

    Args:
        module: the module's folder under ``/sys/module``; it takes a fresh inode number each time
            it is made, which tells two loads of one driver apart.
        version: of the driver, where it says so.
    """
    boot = _BOOT_ID.read_text(encoding="ascii").strip()
    load = module.stat().st_ino if module.exists() else 0
    return f"{boot}/{version}/{load}"
