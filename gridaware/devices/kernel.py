"""What the kernel tells of a node's drivers: which boot and load this is, and who the GPUs are."""

from pathlib import Path
from typing import Final

__all__ = ["NVIDIA_GPUS", "driver_load", "nvidia_gpus"]

NVIDIA_GPUS: Final = Path("/proc/driver/nvidia/gpus")
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


def nvidia_gpus(folder: Path = NVIDIA_GPUS) -> dict[str, str]:
    """PCI address → UUID of each NVIDIA GPU, in the order of addresses, which is NVML's.

    Needs no privilege and no library; empty where the driver is not loaded.

    Args:
        folder: where the kernel driver lists its GPUs (``information`` of the driver's README).
    """
    found = {}
    try:
        places = sorted(folder.iterdir())
    except OSError:
        return {}
    for place in places:
        try:
            text = (place / "information").read_text("utf-8", "replace")
        except OSError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "GPU UUID" and value.strip().startswith("GPU-"):
                found[place.name.lower()] = value.strip()
    return found
