"""What control and the agent need from the outside: small interfaces, defined where consumed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from gridaware.domain.event import GridEvent
from gridaware.domain.fleet import BoardState, ClockRange, LimitRange, Pace
from gridaware.domain.job import JobSpec
from gridaware.domain.reading import EnergyReading, Reading
from gridaware.domain.wire import Command

__all__ = [
    "AgentLink",
    "Boards",
    "ClockLocks",
    "Driver",
    "FeedReport",
    "FrequencySource",
    "GpuIdentity",
    "Incident",
    "Incidents",
    "JobRunner",
    "Ledger",
    "Meter",
    "Paced",
    "Parts",
    "Receipt",
    "RunnerStatus",
]


class GpuIdentity(Protocol):
    """Who a GPU is."""

    gpu_id: str
    index: int
    model: str


class Driver(Protocol):
    """A GPU driver. Blocking calls; each may hang, so they run in the watched driver child.

    Every method raises :class:`gridaware.domain.errors.DeviceError` and nothing else; all watts
    are of the whole board. Identity is the UUID, never the index.
    """

    boundary: str
    """``gpu`` or ``module``: what power and energy enclose."""

    def open(self) -> None:
        """Attach to the driver. Must be called in the process that uses it (never across fork)."""
        ...

    def close(self) -> None:
        """Detach. Limits stay as they are."""
        ...

    def epoch(self) -> str:
        """Changes whenever the driver was reloaded, which resets limits and counters."""
        ...

    def gpus(self) -> Sequence[GpuIdentity]:
        """Every GPU that answers, in driver order."""
        ...

    def can_set(self, gpu_id: str) -> bool:
        """Whether this process may change the GPU's limit; found out without changing it."""
        ...

    def limit_range(self, gpu_id: str) -> LimitRange:
        """Limits the GPU accepts."""
        ...

    def requested_limit_watts(self, gpu_id: str) -> float:
        """The limit last asked for by anyone on this host."""
        ...

    def enforced_limit_watts(self, gpu_id: str) -> float:
        """The limit in force: the least of every limiter, out-of-band ones too."""
        ...

    def set_limit_watts(self, gpu_id: str, watts: float) -> None:
        """Ask for a limit; out of range is refused, never clamped."""
        ...

    def power_watts(self, gpu_id: str) -> Reading:
        """Power now: instantaneous where the device has it, and the reading says which."""
        ...

    def energy_joules(self, gpu_id: str) -> EnergyReading:
        """The energy counter."""
        ...

    def processes(self, gpu_id: str) -> tuple[int, ...]:
        """Host pids with a compute context on the GPU."""
        ...

    def cap_binds(self, gpu_id: str) -> bool | None:
        """Whether the power cap is what holds the clocks down; None = the device cannot say."""
        ...


@runtime_checkable
class ClockLocks(Protocol):
    """What a driver that can lock clocks has besides; each GPU may still lack it.

    No driver can say what lock stands, so the found one is **unlocked**, unless the driver's own
    options name the lock that the site sets itself: giving back means going to that.
    """

    def clock_range(self, gpu_id: str) -> ClockRange:
        """What its clocks can be locked to.

        Raises:
            DeviceNotSupported: this GPU has no clock lock.
        """
        ...

    def lock_clocks(self, gpu_id: str, most_mhz: float) -> None:
        """Keep the clocks at or below ``most_mhz``; out of range is refused, never clamped."""
        ...

    def unlock_clocks(self, gpu_id: str) -> None:
        """Give back the found lock."""
        ...

    def clock_mhz(self, gpu_id: str) -> float:
        """The clock now: all that shows of a lock."""
        ...


@runtime_checkable
class Boards(Protocol):
    """What a driver has besides that can say in which state its GPUs are."""

    def board_state(self, gpu_id: str) -> BoardState:
        """Persistence, slices, profiles, smoothing; what the GPU does not say is left out."""
        ...


@runtime_checkable
class Paced(Protocol):
    """What a driver has besides whose calls are slow, or whose limits are not obeyed at once."""

    def pace(self, gpu_id: str) -> Pace:
        """How fast the way to this GPU is."""
        ...


@dataclass(frozen=True, slots=True)
class Incident:
    """An error that a device has reported by itself: it happened, it is no state."""

    gpu_id: str
    code: str
    message: str
    """Names the error and what it means."""
    error_code: str = ""
    """Where the device must be left alone from now on: why, as a call to it would have said."""
    error_kind: str = ""
    """Class name of that in :mod:`gridaware.domain.errors`."""


@runtime_checkable
class Incidents(Protocol):
    """What a driver has besides whose devices report errors by themselves.

    Both calls come from one thread for each GPU, beside the thread of its other calls.
    """

    def watch(self, gpu_id: str) -> None:
        """Hear this GPU from now on.

        Raises:
            DeviceNotSupported: it reports nothing.
        """
        ...

    def incident(self, gpu_id: str, seconds: float) -> Incident | None:
        """The next error that a person should know of; None = none came in time."""
        ...


@runtime_checkable
class Parts(Protocol):
    """What a driver has besides that works with a part of it missing."""

    def faults(self) -> Sequence[tuple[str, str]]:
        """What is missing, and why: code and words."""
        ...


class Meter(Protocol):
    """A power meter at a declared boundary. Blocking calls, from one thread; a read ends in time.

    A driver is a module with ``open_meter(options)``, which dials nothing.
    """

    pace_seconds: float
    """It is read no more often than this."""

    def read(self) -> tuple[Reading, EnergyReading | None]:
        """Power now, and the energy counter where the meter has one.

        Raises:
            Unavailable: it does not answer.
            GridawareError: it answers, and what it says is no reading.
        """
        ...

    def close(self) -> None:
        """Give the connection up; a later read dials again."""
        ...


class FrequencySource(Protocol):
    """A meter of the grid's frequency. A thread of its own reads it, and may hang in it."""

    def samples(self) -> Iterator[tuple[float, float]]:
        """(Seconds on the meter's own clock, Hz), each as soon as it is there.

        A value that the meter gives and that is no frequency goes on as it is (NaN, 0): that is
        what a voltage sag looks like.

        Raises:
            Unavailable: the meter does not answer or was lost; it is opened again.
        """
        ...

    def close(self) -> None:
        """Let ``samples`` come back, from another thread."""
        ...


class AgentLink(Protocol):
    """The controller's end of the agent streams. Calls never block; a lost frame is no loss."""

    def send(self, node_id: str, message: Command) -> bool:
        """Queue a frame; False where that node is not connected."""
        ...

    def connected(self) -> Sequence[str]:
        """Nodes with a live stream."""
        ...


class RunnerStatus(Protocol):
    """One attempt as the cluster sees it."""

    @property
    def submission_id(self) -> str:
        """Ray's name for the attempt."""
        ...

    @property
    def status(self) -> str:
        """``pending``, ``running``, ``succeeded``, ``failed`` or ``stopped``."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Of the entrypoint, once it ended by itself."""
        ...

    @property
    def message(self) -> str:
        """What the cluster says about it."""
        ...


class JobRunner(Protocol):
    """The cluster that executes jobs. Blocking calls, made on worker threads."""

    def submit(self, spec: JobSpec, attempt: int) -> None:
        """Start an attempt; submitting the same attempt twice is harmless.

        Raises:
            Refused: the cluster will never run it as it is (its reason is the message).
            Unavailable: try again later.
        """
        ...

    def stop(self, job_id: str, attempt: int) -> None:
        """Ask the attempt to end; returns at once, and is harmless for one that has ended."""
        ...

    def statuses(self) -> Mapping[str, RunnerStatus]:
        """Every attempt the cluster remembers, by submission id."""
        ...

    def logs(self, job_id: str, attempt: int) -> str:
        """The attempt's output so far."""
        ...

    def free_gpus(self) -> tuple[float, float]:
        """(free, total) GPUs as the cluster counts them."""
        ...


class Ledger(Protocol):
    """Append-only and hash-chained. Appends return at once and keep their order."""

    def append(
        self, kind: str, body: Mapping[str, Any], at: datetime, *, must: bool = False
    ) -> int:
        """Add an entry and return its sequence number; it is durable within 50 ms.

        ``must``: nobody may act on it before it is durable, so a disk that refuses refuses it.
        """
        ...

    def flush(self) -> None:
        """Return once everything appended so far is durable."""
        ...


@dataclass(frozen=True, slots=True)
class FeedReport:
    """What the grid's side is told about an event, by a feed that can tell."""

    event: GridEvent
    status: str
    """``opted-in``, ``opted-out``, ``active``, ``completed``, ``cancelled``, ``failed``."""
    at: datetime
    delivered_watts: float | None = None


@dataclass(frozen=True, slots=True)
class FeedTelemetry:
    """What the site draws and could give up now, for feeds that report it back.

    One comes about every second. A value that is missing is None: a feed never reports 0 in its
    place.
    """

    at: datetime
    seconds: float
    """Monotonic."""
    site_watts: float | None
    """At the site meter."""
    quality: str
    """Of the reading: ``good``, ``held``, ``suspect`` or ``missing``; "" where there is none."""
    flexible_watts: float | None
    """What could be given up at once, at the meter."""
    act: bool
    """Whether the site acts on what it is asked (``control.act``)."""
    events: tuple[GridEvent, ...]
    """Its own: open, on the way back, or opted out. An event's baseline is its ``reference``."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a signal; given only once it is durable. Refusals are raised instead."""

    event_id: str
    revision: int
    disposition: str
    """``accepted``, ``duplicate``, ``superseded``, ``clamped`` or ``opted-out``."""
    message: str = ""
