"""What a restarted agent may believe of the limits that it finds standing."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from gridaware.node.actions import Device, Fault, JournalRecord
from gridaware.node.gpuhold import TOLERANCE_WATTS, GpuHold, same_watts
from gridaware.node.term import Term

__all__ = ["described", "distrusted", "remind", "resume"]


def described(hold: GpuHold, device: Device) -> list[Fault]:
    """Take in what a new driver child says of a GPU."""
    hold.limits = device.limits or hold.limits
    hold.described = device.error_code is None
    hold.can_set = device.can_set if hold.described else hold.can_set
    if device.requested_watts is None:
        return hold.block(device.error_code or "device-lost", device.error_kind or "DeviceLost")
    if not hold.touched:
        hold.standing_watts = device.requested_watts
        hold.enforced_watts = device.enforced_watts
    return hold.free()


def resume(
    holds: dict[str, GpuHold],
    term: Term,
    record: JournalRecord,
    boot_id: str,
    now: float,
    wall: datetime,
) -> list[Fault]:
    """Take up what the journal says, as far as it still holds."""
    if record.boot_id == boot_id:
        _recall(holds, record)
        term.resume(now)
        return []
    term.reboot(now, wall)
    return _recapture(holds, record)


def _recall(holds: dict[str, GpuHold], record: JournalRecord) -> None:
    """The same boot: what the journal says still stands."""
    for kept in record.gpus:
        hold = holds.setdefault(kept.gpu_id, GpuHold(kept.gpu_id))
        hold.found_watts = kept.found_watts
        hold.written_watts = kept.written_watts
        hold.foreign_watts = kept.foreign_watts
        hold.safe = True


def _recapture(holds: Mapping[str, GpuHold], record: JournalRecord) -> list[Fault]:
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


def remind(holds: Mapping[str, GpuHold], found_watts: Iterable[tuple[str, float]]) -> list[Fault]:
    """A controller remembers what was found on GPUs whose journal is lost.

    It says so only where it knows that the lower limit that stands is one of ours.
    """
    faults: list[Fault] = []
    for gpu_id, watts in found_watts:
        hold = holds.get(gpu_id)
        if hold is None or hold.touched or not hold.can_set:
            continue
        if hold.limits is None or hold.standing_watts is None:
            continue
        stands, found = hold.standing_watts, hold.limits.clamp(watts)
        if stands >= found - TOLERANCE_WATTS:
            continue
        hold.touch()
        hold.found_watts, hold.written_watts = found, (stands,)
        faults.append(
            Fault(
                "found-limit-remembered",
                gpu_id,
                f"the journal is lost; the controller remembers {found:g} W as the found limit, "
                f"and {stands:g} W stand",
            )
        )
    return faults
