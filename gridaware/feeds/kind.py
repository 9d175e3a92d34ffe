"""What a feed kind is: its settings, what it is given, and what it may be able to do.

A kind is one class in one file: a settings model and whichever of these methods it is able to
implement. ``poll`` asks for signals, ``hear`` reads a signal pushed at our listener, ``hook``
serves a call-back of another shape there, ``listen`` keeps a connection of its own, ``tell``
answers the grid's side, ``parse`` reads a file for a person. Registering it in ``FEED_KINDS`` is
all that is needed; the contract suite picks it up from there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from gridaware.clock import Clock
from gridaware.control.ports import FeedReport, FeedTelemetry
from gridaware.domain.advisory import Advisory
from gridaware.domain.errors import Bug, GridawareError
from gridaware.domain.eventjson import BODY_BYTES_AT_MOST
from gridaware.domain.registry import Registry
from gridaware.domain.signal import Signal, TargetSpec
from gridaware.feeds.memory import FeedMemory

__all__ = [
    "FEED_KINDS",
    "Disposition",
    "Feed",
    "FeedContext",
    "FeedSettings",
    "Hears",
    "Hooked",
    "Hooks",
    "Listens",
    "Parsed",
    "ParsedRow",
    "Parses",
    "PolledSettings",
    "Polls",
    "Push",
    "RefusedPart",
    "Reports",
    "Tells",
    "check_distinct",
    "check_provenance",
    "row_of",
]


class FeedSettings(BaseModel):
    """What every kind's settings share: strict types, no unknown keys, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class PolledSettings(FeedSettings):
    """Settings of a kind that polls."""

    poll_seconds: float = Field(default=5.0, ge=0.2, le=3600)
    """Time between polls; each is moved by up to a fifth, so that many feeds do not beat."""


def check_distinct(names: Sequence[str], what: str) -> None:
    """Accept names of parts of a feed's settings, in a validator of theirs.

    Raises:
        ValueError: two of ``what`` have one name.
    """
    if len(set(names)) != len(names):
        raise ValueError(f"two {what} have the same name")


@dataclass(frozen=True, slots=True)
class FeedContext:
    """What a feed is given."""

    feed_id: str
    clock: Clock
    registered_at: datetime
    """When the feed was registered: survives restarts, so relative times can count from it."""
    refuse: Callable[[GridawareError, str], None]
    """Reports one message (its raw text second) that was refused while others were not."""
    memory: FeedMemory = field(default_factory=FeedMemory)
    """What the feed must still know after a restart."""
    advise: Callable[[Advisory], None] = lambda _: None
    """Hands over what only informs: a price, an alert, a forecast. Any thread."""
    wake: Callable[[], None] = lambda: None
    """Has the feed polled at once; many in a row are made into a few. Any thread."""


@dataclass(frozen=True, slots=True)
class Push:
    """One message pushed at our listener."""

    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    received_at: datetime
    received_seconds: float
    """Monotonic, taken before anything of the message was read."""
    method: str = "POST"
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hooked:
    """What a call-back meant, and what is answered."""

    signals: tuple[Signal, ...] = ()
    """Durable before the answer is sent."""
    wake: bool = False
    """Poll at once: the call-back said that something changed, not what."""
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"


class Disposition(StrEnum):
    """What becomes of a part of a message."""

    ACT = "act"
    ADVISORY = "advisory"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ParsedRow:
    """One interval and payload of an event, as a person is shown it."""

    id: str | None
    start: datetime | None
    end: datetime | None
    """None with a start: an open end."""
    type: str | None
    value: float | int | str | bool | None
    disposition: Disposition
    reason: str
    target: TargetSpec | None = None
    """What an acting one asks for at the site meter."""


@dataclass(frozen=True, slots=True)
class RefusedPart:
    """What could not be read."""

    where: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A file, read."""

    events: tuple[ParsedRow, ...]
    """Of every readable event, whatever its disposition."""
    refused: tuple[RefusedPart, ...] = ()


Settings = TypeVar("Settings", bound=FeedSettings)
Settings_contra = TypeVar("Settings_contra", bound=FeedSettings, contravariant=True)


class Feed(Generic[Settings]):
    """One source of signals. Whatever it implements of the protocols below is used."""

    settings_model: ClassVar[type[FeedSettings]]

    def __init__(self, context: FeedContext, settings: Settings) -> None:
        self.context = context
        self.settings = settings


@runtime_checkable
class Polls(Protocol):
    """A feed that asks for its signals. Polls are the truth."""

    def poll(self) -> Sequence[Signal]:
        """Every signal that stands now, old ones too (on a worker thread, with a deadline).

        A person's `feed test` may poll while the cadence does.

        Raises:
            Unavailable: it did not answer; nothing is concluded from that.
        """
        ...


@runtime_checkable
class Hears(Protocol):
    """A feed whose messages are pushed at our listener."""

    def hear(self, push: Push) -> Signal:
        """Verify and read one message; quick, on the listener's event loop.

        Raises:
            Refused: it is not authentic, or not new.
            InvalidInput: it is authentic, and wrong.
        """
        ...

    def unhear(self, push: Push) -> None:
        """The signal could not be made durable: the same message may come once more."""
        ...


@runtime_checkable
class Hooks(Protocol):
    """A feed whose protocol calls back at our listener: ``GET`` and ``POST`` of its own shape."""

    def hook(self, push: Push) -> Hooked:
        """Verify and read one call; quick, on the listener's event loop.

        Raises:
            Refused: it is not authentic, or not new.
            InvalidInput: it is authentic, and wrong.
        """
        ...

    def unhook(self, push: Push) -> None:
        """Its signals could not be made durable: the same call may come once more."""
        ...


@runtime_checkable
class Listens(Protocol):
    """A feed with a connection of its own: a broker, an outstation."""

    def listen(self, emit: Callable[[Signal], object], heard: Callable[[], None]) -> None:
        """Serve the connection, on a thread of its own, until :meth:`close`.

        Returning or raising means that it is lost: it is called again, later each time.

        Args:
            emit: takes a signal, and returns once it is durable; raises what control refuses.
            heard: marks that the other side is there.
        """
        ...

    def close(self) -> None:
        """Let :meth:`listen` return soon; any thread, also before or without it."""
        ...

    def standing(self) -> Sequence[Signal]:
        """The signals that stand, as far as they were heard; for `feed test`."""
        ...


@runtime_checkable
class Parses(Protocol[Settings_contra]):
    """A feed whose messages a person may read from a file."""

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: Settings_contra | None) -> Parsed:
        """Say what would become of each part of ``body``; None = the defaults of the settings.

        Raises:
            InvalidInput: nothing of it can be read.
        """
        ...


@runtime_checkable
class Tells(Protocol):
    """A feed that can answer the grid's side."""

    def can_tell(self) -> bool:
        """Whether its settings name somebody to tell."""
        ...

    def tell(self, report: FeedReport) -> None:
        """Deliver one status (on a worker thread, with a deadline).

        Raises:
            Refused: the other side does not want it.
            Unavailable: it could not be delivered.
        """
        ...


@runtime_checkable
class Reports(Protocol):
    """A feed whose grid side wants to hear what the site draws."""

    def report(self, telemetry: FeedTelemetry) -> None:
        """Take one sample, in order, none left out, on a worker thread; send what is due.

        Raises:
            Unavailable: what was due could not be delivered.
            Refused: the other side does not want it.
        """
        ...


FEED_KINDS: Registry[type[Feed]] = Registry("feed-kind")  # type: ignore[type-arg]
"""Every kind by name: any settings model will do here."""


def check_provenance(feed_id: str, signal: Signal) -> Signal:
    """Return ``signal`` if it may pass as one of ``feed_id``: whose it is decides its authority.

    Raises:
        Bug: the kind made a signal of another feed, or one with a time that is not UTC, or one that
            carries more raw text than the ledger takes.
    """
    if signal.feed_id != feed_id:
        raise Bug("feed-impostor", f"feed {feed_id} made a signal of {signal.feed_id}")
    if signal.received_at.utcoffset() != timedelta(0):
        raise Bug("feed-time-not-utc", f"feed {feed_id} made a signal whose time is not UTC")
    if len(signal.raw.encode("utf-8", "replace")) > BODY_BYTES_AT_MOST:
        raise Bug("feed-raw-too-large", f"feed {feed_id} made a signal of more than 64 KiB")
    return signal


def row_of(signal: Signal, now: datetime, kind: str | None = None) -> ParsedRow:
    """What a person is shown of a signal: an event that is over by ``now`` would be refused.

    ``kind`` is the sender's own word for what it asks; by default the target's quantity.
    """
    request = signal.request
    if request is None:
        return ParsedRow(
            signal.source_id, None, None, kind, None, Disposition.ACT, "taken back by its sender"
        )
    target = request.target
    over = request.end is not None and request.end <= now
    return ParsedRow(
        signal.source_id,
        request.start,
        request.end,
        kind or target.quantity.value,
        target.value,
        Disposition.REFUSED if over else Disposition.ACT,
        "over before it was heard" if over else "asked for",
        target,
    )
