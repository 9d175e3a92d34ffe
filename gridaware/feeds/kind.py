"""What a feed kind is: its settings, what it is given, and what it may be able to do.

A kind is one class in one file: a settings model and whichever of three methods it is able to
implement. ``poll`` asks for signals, ``hear`` reads a message pushed at our listener, ``tell``
answers the grid's side. Registering it in ``FEED_KINDS`` is all that is needed; the contract suite
picks it up from there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from gridaware.clock import Clock
from gridaware.control.ports import FeedReport
from gridaware.domain.errors import Bug, GridawareError
from gridaware.domain.eventjson import BODY_BYTES_AT_MOST
from gridaware.domain.registry import Registry
from gridaware.domain.signal import Signal

__all__ = [
    "FEED_KINDS",
    "Feed",
    "FeedContext",
    "FeedSettings",
    "Hears",
    "PolledSettings",
    "Polls",
    "Push",
    "Tells",
    "check_provenance",
]


class FeedSettings(BaseModel):
    """What every kind's settings share: strict types, no unknown keys, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class PolledSettings(FeedSettings):
    """Settings of a kind that polls."""

    poll_seconds: float = Field(default=5.0, ge=0.2, le=3600)
    """Time between polls; each is moved by up to a fifth, so that many feeds do not beat."""


@dataclass(frozen=True, slots=True)
class FeedContext:
    """What a feed is given."""

    feed_id: str
    clock: Clock
    registered_at: datetime
    """When the feed was registered: survives restarts, so relative times can count from it."""
    refuse: Callable[[GridawareError, str], None]
    """Reports one message (its raw text second) that was refused while others were not."""


@dataclass(frozen=True, slots=True)
class Push:
    """One message pushed at our listener."""

    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    received_at: datetime
    received_seconds: float
    """Monotonic, taken before anything of the message was read."""


Settings = TypeVar("Settings", bound=FeedSettings)


class Feed(Generic[Settings]):
    """One source of signals. Whatever it implements of ``poll``, ``hear`` and ``tell`` is used."""

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
