"""What a restarted agent may believe of the limits that it finds standing."""

from collections.abc import Mapping

from gridaware.node.actions import Device, Fault, JournalRecord
from gridaware.node.gpuhold import TOLERANCE_WATTS, GpuHold, same_watts

__all__ = ["described", "distrusted", "recall", "recapture"]


def described(hold: GpuHold, device: Device) -> list[Fault]:
    """Take in what a new driver child says of a GPU."""
    hold.limits = device.limits or hold.limits
    hold.described = device.error_code is None
    hold.can_set = device.can_set if hold.described else hold.can_set
    hold.blocked_by = None
    if device.requested_watts is None:
        return hold.block(device.error_code or "device-lost", device.error_kind or "DeviceLost")
    if not hold.touched:
        hold.standing_watts = device.requested_watts
        hold.enforced_watts = device.enforced_watts
    return []


def recall(holds: dict[str, GpuHold], record: JournalRecord) -> None:
    """The same boot: what the journal says still stands."""
    for kept in record.gpus:
        hold = holds.setdefault(kept.gpu_id, GpuHold(kept.gpu_id))
        hold.found_watts = kept.found_watts
        hold.written_watts = kept.written_watts
        hold.foreign_watts = kept.foreign_watts
        hold.safe = True


def recapture(holds: Mapping[str, GpuHold], record: JournalRecord) -> list[Fault]:
    """Another boot: hardware has reset the limits, so what stands now is the found limit.

    Unless it is one that we wrote and neither the device's default nor the found one: something
    brought ours back, and the journal's found limit is kept.
    """
    faults = []
    for kept in (*record.gpus, *record.ahead):
        hold = holds.get(kept.gpu_id)
        if hold is None or hold.standing_watts is None or hold.limits is None:
            continue
        stands = hold.standing_watts
        natural = (kept.found_watts, hold.limits.default_watts)
        ours = any(same_watts(stands, watts) for watts in kept.written_watts)
        if ours and not any(same_watts(stands, watts) for watts in natural):
            hold.found_watts = kept.found_watts
            hold.written_watts = kept.written_watts
            faults.append(
                Fault(
                    "found-limit-distrusted",
                    kept.gpu_id,
                    f"after the reboot {stands:g} W stand, a limit of ours: "
                    f"{kept.found_watts:g} W is kept as the found one",
                )
            )
    return faults


def distrusted(holds: Mapping[str, GpuHold]) -> list[Fault]:
    """GPUs whose limit may be one of ours that an unreadable journal has forgotten."""
    return [
        Fault(
            "found-limit-distrusted",
            hold.gpu_id,
            f"the journal could not be read and {hold.standing_watts:g} W stand, below the "
            f"default of {hold.limits.default_watts:g} W: taken as found, perhaps ours",
        )
        for hold in holds.values()
        if hold.limits is not None
        and hold.standing_watts is not None
        and hold.standing_watts < hold.limits.default_watts - TOLERANCE_WATTS
    ]
