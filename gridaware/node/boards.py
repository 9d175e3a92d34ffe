"""What the agent says of its boards: to a controller, and to whoever watches them."""

from collections.abc import Iterator

from gridaware.domain.fleet import Gpu
from gridaware.node.actions import Device, Fault, Inventory
from gridaware.node.capwatch import CapWatch
from gridaware.node.childwire import Tick
from gridaware.node.holder import LeaseHolder

__all__ = ["BoardNews", "gpus_of", "slices_of"]


def gpus_of(inventory: Inventory | None, holder: LeaseHolder) -> tuple[Gpu, ...]:
    """Every GPU that has said who it is, with the limit that is to be given back."""
    found = []
    for device in inventory.devices if inventory is not None else ():
        watts = holder.found_watts(device.gpu_id)
        if device.limits is not None and watts is not None:
            found.append(
                Gpu(
                    device.gpu_id,
                    device.index,
                    device.model,
                    device.limits,
                    watts,
                    device.gpu_id in holder.settable,
                    device.clocks,
                    device.board,
                    device.pace.latency_seconds,
                )
            )
    return tuple(found)


def slices_of(inventory: Inventory) -> dict[str, str]:
    """MIG slice → its board."""
    return {name: device.gpu_id for device in inventory.devices for name in device.board.slices}


class BoardNews:
    """Tells once of each state of a board that changes what a limit on it is worth."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str | None], set[str]] = {}
        """Code and GPU → the words of what holds."""
        self._gone: set[str] = set()
        self._latency_seconds: dict[str, float] = {}
        self._watch = CapWatch(lambda gpu_id: self._latency_seconds.get(gpu_id, 0.0))

    def faults(self, inventory: Inventory) -> list[Fault]:
        """What a new driver child found and was not told yet, and what it finds no more.

        What is missing is said by each child again, so that nobody takes its alarm for over.
        """
        self._latency_seconds = {d.gpu_id: d.pace.latency_seconds for d in inventory.devices}
        missing = [Fault(code, None, words) for code, words in inventory.faults]
        now = [*missing, *_read_only(inventory)]
        now += [fault for device in inventory.devices for fault in _about(device)]
        known, self._told = self._told, {}
        for fault in now:
            self._told.setdefault((fault.code, fault.gpu_id), set()).add(fault.message)
        new = [
            fault
            for fault in now
            if fault in missing or fault.message not in known.get((fault.code, fault.gpu_id), ())
        ]
        past = dict.fromkeys([*known, *((code, None) for code in sorted(self._gone))])
        self._gone.clear()
        return [
            *(
                Fault(code, gpu_id, "this holds no longer", over=True)
                for code, gpu_id in past
                if (code, gpu_id) not in self._told
            ),
            *new,
        ]

    def gone(self, code: str, message: str) -> Fault:
        """The driver went away, and all of it is missing until :meth:`faults` is asked again."""
        self._gone.add(code)
        return Fault(code, None, message)

    def look(self, tick: Tick) -> list[Fault]:
        """GPUs whose power does not obey their limit."""
        return self._watch.look(tick)


def _read_only(inventory: Inventory) -> Iterator[Fault]:
    """Which capability is missing, once for all boards of the node."""
    readable = [d for d in inventory.devices if d.limits is not None and d.error_code is None]
    locked = [str(device.index) for device in readable if not device.can_set]
    if locked:
        yield Fault(
            "device-no-permission",
            None,
            f"limits of GPUs {', '.join(locked)} can only be read: setting them needs root, in a "
            "container CAP_SYS_ADMIN; their jobs can only be paused",
        )


def _about(device: Device) -> Iterator[Fault]:
    board = device.board
    if board.persistence is False and device.can_set:
        yield Fault(
            "persistence-off",
            device.gpu_id,
            "persistence mode is off: limits are lost when the driver's last client leaves",
        )
    if board.profiles:
        names = ", ".join(board.profiles)
        yield Fault(
            "power-profile-requested",
            device.gpu_id,
            f"workload power profiles are requested by someone: {names}",
        )
    if board.smoothing is not None:
        floor = board.smoothing
        yield Fault(
            "power-smoothing-on",
            device.gpu_id,
            f"power smoothing keeps {floor.floor_watts:g} W for {floor.hysteresis_seconds:g} s "
            f"after work ends, then falls by {floor.ramp_down_watts_per_second:g} W/s",
        )
