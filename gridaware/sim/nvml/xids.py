"""Has a virtual GPU report an Xid, which whoever listens to NVML's events then hears."""

from typing import Final

from gridaware.sim.window import GpuSlot

__all__ = ["XID_STRIDE", "report_xid"]

XID_STRIDE: Final = 1000
"""Register ``xids`` is the last Xid plus this for each so far; no Xid is as large."""


def report_xid(gpu: GpuSlot, xid: int) -> None:
    """Report it to whoever listens by now; one that is reported too soon after replaces it."""
    gpu.xids = (gpu.xids // XID_STRIDE + 1) * XID_STRIDE + xid
