"""What goes into the lease holder, what comes out of it, and what its journal records.

Plain frozen values, so that the agent, the seeded world and the tests drive the same holder.
All times are boot seconds unless their name says ``wall`` or they are instants.
"""

from dataclasses import dataclass
from datetime import datetime

from gridaware.domain.fleet import BoardState, ClockRange, LimitRange, Pace
from gridaware.domain.lease import Lease
from gridaware.domain.wire import Armed, GpuResult

__all__ = [
    "Acknowledge",
    "Action",
    "ArmedHeld",
    "ArmedRecord",
    "Device",
    "Fault",
    "Fence",
    "Firing",
    "GpuRecord",
    "Inventory",
    "Journal",
    "JournalRecord",
    "LimitReading",
    "LockClocks",
    "Locked",
    "WriteLimits",
    "Written",
]


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as a driver child found it at its start; None where it did not answer."""

    gpu_id: str
    index: int
    model: str
    limits: LimitRange | None
    can_set: bool
    requested_watts: float | None
    enforced_watts: float | None
    error_code: str | None = None
    error_kind: str | None = None
    """Class name in :mod:`gridaware.domain.errors`."""
    clocks: ClockRange | None = None
    board: BoardState = BoardState()
    pace: Pace = Pace()


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every GPU, told once by each new driver child. Its tickets start at 0."""

    driver_epoch: str
    boundary: str
    devices: tuple[Device, ...]
    faults: tuple[tuple[str, str], ...] = ()
    """Parts of the driver that are missing: code and words."""


@dataclass(frozen=True, slots=True)
class Written:
    """One limit was set and read back, or was not."""

    gpu_id: str
    ticket: int
    enforced_watts: float | None
    error_code: str | None = None
    error_kind: str | None = None
    read_at: float | None = None
    """When it was read back, boot seconds of the driver child (the machine's own); None = not."""


@dataclass(frozen=True, slots=True)
class LimitReading:
    """Both limits of a GPU, read by themselves. ``ticket`` is the last write done before it."""

    gpu_id: str
    ticket: int
    requested_watts: float | None
    enforced_watts: float | None
    error_code: str | None = None
    error_kind: str | None = None
    can_set: bool | None = None
    """Where permission was missing and was asked for again: whether it is there now."""
    clock_mhz: float | None = None
    """The clock, where a lock of ours stands."""


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """What the journal keeps of a GPU that we have changed or are about to change."""

    gpu_id: str
    found_watts: float
    written_watts: tuple[float, ...]
    """Limits of ours that may stand on it now."""
    foreign_watts: float | None = None
    """A lower limit that someone else has set since: never raised over."""


@dataclass(frozen=True, slots=True)
class ArmedRecord:
    """A set of armed responses, and when it came."""

    armed: Armed
    at: float
    wall: datetime
    """The same on this machine's wall clock."""


@dataclass(frozen=True, slots=True)
class Firing:
    """A cause on this node has put an armed response in force, or let go: tell the controller."""

    programme_id: str
    level: int | None
    """None = the cause is gone."""
    depth: float
    lease_id: str
    cause: str
    measured: float | None
    at: float
    wall: datetime
    duration_seconds: float | None


@dataclass(frozen=True, slots=True)
class Beneath:
    """A lease that goes on beneath another one, and its end."""

    lease: Lease
    ends_at: float | None
    """Boot seconds; None = an event without an end."""
    expires_at: datetime | None = None
    """The same on this machine's wall clock."""


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """Everything a restarted agent needs to keep the promise and to give the limits back."""

    boot_id: str
    driver_epoch: str
    controller_epoch: int
    sequence: int
    decision_id: str
    lease: Lease | None
    ends_at: float | None
    """Boot seconds; None = an event without an end."""
    expires_at: datetime | None
    """The same on this machine's wall clock, for after a reboot."""
    silent_since: float | None
    fallen_back: bool
    standing_watts: tuple[tuple[str, float], ...]
    gpus: tuple[GpuRecord, ...]
    armed: ArmedRecord | None = None
    ahead: tuple[GpuRecord, ...] = ()
    """GPUs that are not ours, with what firing may put on them: their found limits are on the disk
    before that. Whoever changes such a limit meanwhile is right, so it is not recalled as ours."""
    firing: Firing | None = None
    """The last one of this node itself."""
    clocks_mhz: tuple[tuple[str, float], ...] = ()
    """Clock locks of ours that may stand now."""
    beneath: Beneath | None = None
    """What goes on beneath a lease that this node has fired by itself."""


@dataclass(frozen=True, slots=True)
class Journal:
    """Write this record before what follows it is done.

    ``durable``: it names found limits for the first time, so it must be on the disk (not only
    with the kernel) first. Later records only need to outlive this process: whatever else ends
    them also resets the limits.
    """

    record: JournalRecord
    durable: bool


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """Set these limits, each GPU on its own, and answer with the ticket."""

    ticket: int
    limits_watts: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class LockClocks:
    """Lock these GPUs' clocks at or below so many megahertz; None = unlock."""

    ticket: int
    clocks_mhz: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True, slots=True)
class Locked:
    """One clock lock was set, or was not. Nothing can read it back: later clocks show it."""

    gpu_id: str
    ticket: int
    most_mhz: float | None
    error_code: str | None = None
    error_kind: str | None = None


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Tell the controller what its Desired has come to."""

    controller_epoch: int
    sequence: int
    decision_id: str
    results: tuple[GpuResult, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class ArmedHeld:
    """Tell the controller that this revision is held."""

    controller_epoch: int
    revision: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Tell the controller something a person should know."""

    code: str
    gpu_id: str | None
    message: str
    over: bool = False
    """What was told under this code of the same GPU, or of the node, holds no longer."""


@dataclass(frozen=True, slots=True)
class Fence:
    """This controller is not obeyed: say so and leave it."""

    code: str
    message: str


Action = Journal | WriteLimits | LockClocks | Acknowledge | ArmedHeld | Firing | Fault | Fence
