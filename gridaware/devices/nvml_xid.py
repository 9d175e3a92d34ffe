"""Xid errors of NVIDIA GPUs: heard from NVML's events, and what each asks of a power controller.

An Xid is something that happened, not a state (NVIDIA/dcgm-exporter#500): it is told once, with
its meaning. Whether the GPU can still be used is found out by using it. So an Xid that calls for a
reset takes the GPU out of our hands only until a fresh driver child could set its limit again, and
one that was lost is back once it answers.

=========  =====================================================================================
``LOST``   off the bus: not there until it answers again, without waiting for a call to fail
``RESET``  NVIDIA's immediate action is a reset, and the GPU itself is what failed (not its
           links): quarantine, as for the return code ``RESET_REQUIRED``
``LOOK``   a person should look at it; limits are set as before
``JOB``    the job's own error or its own loss: the GPU is healthy
``QUIET``  goes with another Xid, or tells of what was asked for (45 follows each kill): not told
=========  =====================================================================================

Numbers, words and actions: NVIDIA, *Xid Errors*, catalog for Ampere and later. Application errors
that leave the GPU healthy are also those of NVIDIA/k8s-device-plugin (13, 31, 43, 45, 68); 109,
which that plugin spares too, asks for a reset since R570. A number that is not in the table is
looked at.
"""

from enum import StrEnum
from typing import Any, Final

from gridaware.control.ports import Incident
from gridaware.devices.nvml_calls import NvmlCalls
from gridaware.domain.errors import DeviceHung

__all__ = ["NvmlXids", "Policy", "judge"]

XID_EVENT: Final = 0x8
"""``nvmlEventTypeXidCriticalError``."""
WHOLE_GPU: Final = 0xFFFFFFFF
"""Instance ids of an event that is of no MIG instance in particular."""


class Policy(StrEnum):
    """What an Xid asks for; see the module's page."""

    LOST = "lost"
    RESET = "reset"
    LOOK = "look"
    JOB = "job"
    QUIET = "quiet"


_CODES: Final = {
    Policy.LOST: "gpu-xid-lost",
    Policy.RESET: "gpu-xid-reset",
    Policy.LOOK: "gpu-xid",
    Policy.JOB: "gpu-xid-job",
}
_WORDS: Final = {
    Policy.LOST: "it is gone until it answers again; the others go on",
    Policy.RESET: "drain and reset it; it is left alone until its limit can be set again",
    Policy.LOOK: "its limit is set as before",
    Policy.JOB: "its job has failed or will; the GPU is healthy",
}
_LEFT_ALONE: Final = {
    Policy.LOST: ("device-lost", "DeviceLost"),
    Policy.RESET: ("device-reset-required", "DeviceResetRequired"),
}

_XIDS: Final[dict[int, tuple[Policy, str]]] = {
    8: (Policy.JOB, "the GPU stopped processing"),
    11: (Policy.JOB, "invalid push buffer stream"),
    13: (Policy.JOB, "graphics engine exception"),
    14: (Policy.QUIET, "injected for a test"),
    25: (Policy.JOB, "invalid push buffer stream"),
    31: (Policy.JOB, "memory page fault"),
    32: (Policy.LOOK, "push buffer corrupted on the PCI bus"),
    37: (Policy.LOOK, "driver firmware error"),
    38: (Policy.LOOK, "driver firmware watchdog"),
    43: (Policy.JOB, "the application hit a fault of its own"),
    44: (Policy.LOOK, "fault during a context switch"),
    45: (Policy.QUIET, "an application was ended or killed"),
    46: (Policy.RESET, "the GPU stopped processing"),
    48: (Policy.RESET, "double-bit ECC error"),
    54: (Policy.LOOK, "auxiliary power is not connected"),
    60: (Policy.JOB, "video processor exception"),
    62: (Policy.RESET, "the power management controller halted"),
    63: (Policy.QUIET, "a memory row was remapped"),
    64: (Policy.RESET, "a memory row could not be remapped"),
    66: (Policy.LOOK, "illegal access by the driver"),
    67: (Policy.LOOK, "illegal access by the driver"),
    69: (Policy.JOB, "graphics engine class error"),
    74: (Policy.LOOK, "NVLink error"),
    78: (Policy.LOOK, "a vGPU did not start"),
    79: (Policy.LOST, "the GPU has fallen off the bus"),
    80: (Policy.JOB, "corrupted data was sent to the GPU"),
    92: (Policy.LOOK, "many single-bit ECC errors"),
    93: (Policy.LOOK, "the InfoROM is write-protected"),
    94: (Policy.LOOK, "memory error, contained to one application; reset it when convenient"),
    95: (Policy.RESET, "memory error that was not contained"),
    106: (Policy.QUIET, "test message of the BMC"),
    107: (Policy.QUIET, "test message of the BMC"),
    109: (Policy.RESET, "context switch timeout"),
    110: (Policy.RESET, "security fault"),
    119: (Policy.RESET, "the GPU's system processor (GSP) does not answer"),
    120: (Policy.RESET, "error in the GPU's system processor (GSP)"),
    121: (Policy.LOOK, "corrected errors on the link to the CPU"),
    136: (Policy.LOOK, "NVLink training failed"),
    137: (Policy.JOB, "illegal access to a peer over NVLink"),
    140: (Policy.RESET, "ECC error that could not be recovered"),
    141: (Policy.LOOK, "CUDA fast path error"),
    143: (Policy.RESET, "the GPU could not be initialised"),
    151: (Policy.LOOK, "key rotation error"),
    154: (Policy.QUIET, "what must be done about another Xid"),
    155: (Policy.LOOK, "NVLink was taken down by software"),
    156: (Policy.LOOK, "a resource was retired"),
    157: (Policy.LOOK, "a resource could not be retired"),
    158: (Policy.RESET, "fatal timeout of the GPU"),
    160: (Policy.QUIET, "a memory channel was retired"),
    161: (Policy.LOOK, "a memory channel could not be retired"),
    162: (Policy.LOOK, "power smoothing works again"),
    163: (Policy.LOOK, "power smoothing was switched off (heat, or a timeout)"),
    164: (Policy.LOOK, "the power smoothing circuit is nearly worn out"),
    165: (Policy.LOOK, "the power smoothing circuit is worn out and switched off"),
    167: (Policy.LOOK, "fatal timeout on PCIe"),
    168: (Policy.LOOK, "less memory than it should have"),
    169: (Policy.LOOK, "a security controller halted"),
    171: (Policy.QUIET, "more of Xid 48: it was DRAM"),
    172: (Policy.QUIET, "more of Xid 48: it was SRAM"),
    **dict.fromkeys((39, 40, 41, 70, 71, 72), (Policy.JOB, "copy engine error")),
    **dict.fromkeys((75, 76, 77, 85, *range(126, 136)), (Policy.JOB, "copy engine error")),
    **dict.fromkeys((68, 83, 84, 88, 89, 96, 97, 98), (Policy.JOB, "video decoder error")),
    **dict.fromkeys((82, *range(99, 106)), (Policy.JOB, "JPEG engine error")),
    **dict.fromkeys((86, 139), (Policy.JOB, "optical flow engine error")),
    **dict.fromkeys(range(144, 151), (Policy.LOOK, "NVLink error")),
}


def judge(xid: int) -> tuple[Policy, str]:
    """What an Xid asks for, and its meaning; one that is not known is looked at."""
    return _XIDS.get(xid, (Policy.LOOK, "an Xid that is not known here"))


class NvmlXids:
    """The Xids of every GPU of this machine. Each GPU has its own set of events.

    So its thread waits for it alone, and an event needs no call to say whose it is: a GPU that has
    just died would not answer that.
    """

    def __init__(self, calls: NvmlCalls) -> None:
        self._calls = calls
        self._sets: dict[str, Any] = {}

    def watch(self, gpu_id: str) -> None:
        """Hear of this GPU's Xids from now on."""
        old = self._sets.pop(gpu_id, None)
        if old is not None:
            self._calls.driver("nvmlEventSetFree", old)
        events = self._calls.driver("nvmlEventSetCreate")
        self._sets[gpu_id] = events
        self._calls.ask(gpu_id, "nvmlDeviceRegisterEvents", XID_EVENT, events)

    def incident(self, gpu_id: str, seconds: float) -> Incident | None:
        """The next Xid that is not quiet; None = none came in time."""
        try:
            event = self._calls.driver(
                "nvmlEventSetWait_v2", self._sets[gpu_id], round(seconds * 1000)
            )
        except DeviceHung:  # NVML_ERROR_TIMEOUT: nothing has happened
            return None
        if event.eventType != XID_EVENT:
            return None
        return _incident(gpu_id, int(event.eventData), _slice_of(event))


def _incident(gpu_id: str, xid: int, slice_words: str) -> Incident | None:
    policy, meaning = judge(xid)
    if policy is Policy.QUIET:
        return None
    message = f"Xid {xid}{slice_words}: {meaning}; {_WORDS[policy]}"
    return Incident(gpu_id, _CODES[policy], message, *_LEFT_ALONE.get(policy, ("", "")))


def _slice_of(event: Any) -> str:
    """The MIG instance that it is of; a reset is still the whole board's."""
    if WHOLE_GPU in (event.gpuInstanceId, event.computeInstanceId):
        return ""
    return f" in MIG instance {event.gpuInstanceId}/{event.computeInstanceId}"
