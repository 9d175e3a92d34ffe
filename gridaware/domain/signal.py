"""Signals: what the grid asks, normalised."""

import math
import re
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from gridaware.domain.errors import InvalidInput

__all__ = ["EventKind", "EventRequest", "Quantity", "Signal", "TargetSpec", "check_id"]

WATTS_ABSURD = 1e11
"""100 GW: more than any site; a value beyond it is a wrong unit."""
SECONDS_ABSURD = 10 * 366 * 86400.0
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")


def check_id(kind: str, value: str) -> str:
    """Return ``value`` if it is a well-formed id of 1 to 64 characters.

    Raises:
        InvalidInput: it is not (``<kind>-id-malformed``).
    """
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise InvalidInput(
            f"{kind}-id-malformed",
            f"the {kind} id must be 1 to 64 characters of A-Z a-z 0-9 . _ : - "
            "and start with a letter or digit",
            value=str(value)[:80],
        )
    return value


class EventKind(StrEnum):
    """Whether an event counts."""

    LIVE = "live"
    TEST = "test"
    DRILL = "drill"


class Quantity(StrEnum):
    """What a target's value means, at the site meter."""

    LIMIT_WATTS = "limit_watts"
    LIMIT_FRACTION = "limit_fraction"
    """of the reference"""
    REDUCTION_WATTS = "reduction_watts"
    """below the reference"""
    REDUCTION_FRACTION = "reduction_fraction"
    """of the reference, below it"""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """What is asked: a quantity and its value (watts, or a fraction 0 to 1)."""

    quantity: Quantity
    value: float

    def __post_init__(self) -> None:
        value = self.value
        if not math.isfinite(value):
            raise InvalidInput("target-not-finite", f"the target is {value}, not a number")
        if value < 0:
            raise InvalidInput("target-negative", f"the target is {value:g}, below zero")
        if self.quantity in {Quantity.LIMIT_FRACTION, Quantity.REDUCTION_FRACTION} and value > 1:
            raise InvalidInput(
                "target-fraction-range", f"the target is {value:g} of the baseline, above 1"
            )
        if value > WATTS_ABSURD:
            raise InvalidInput("target-absurd", f"the target is {value:g} W, above 100 GW")

    def limit_watts(self, reference_watts: float) -> float:
        """The site limit that this target means against a reference, never below 0."""
        limit = {
            Quantity.LIMIT_WATTS: self.value,
            Quantity.LIMIT_FRACTION: self.value * reference_watts,
            Quantity.REDUCTION_WATTS: reference_watts - self.value,
            Quantity.REDUCTION_FRACTION: (1 - self.value) * reference_watts,
        }[self.quantity]
        return max(limit, 0.0)


@dataclass(frozen=True, slots=True)
class EventRequest:
    """One period in which the site shall owe something. ``end`` None = open end."""

    start: datetime
    end: datetime | None
    target: TargetSpec
    kind: EventKind = EventKind.LIVE
    priority: int | None = None
    """Lower wins within one programme, None last (OpenADR's sense)."""
    immediate: bool = False
    """The sender said "now": the start is when the message came, so a retry has another one."""

    def __post_init__(self) -> None:
        for name, instant in (("start", self.start), ("end", self.end)):
            if instant is not None and instant.tzinfo is None:
                raise InvalidInput("time-naive", f"the {name} has no time zone", field=name)
        if self.end is not None:
            if self.end <= self.start:
                raise InvalidInput("end-before-start", "the end is not after the start")
            if (self.end - self.start).total_seconds() > SECONDS_ABSURD:
                raise InvalidInput("duration-absurd", "the event would last more than ten years")

    def same_as(self, other: "EventRequest") -> bool:
        """Whether both ask for the same, as a message and its retry do.

        Two immediate requests may differ by when they came: by their start, and by an end that
        was given as a duration.
        """
        if not (self.immediate and other.immediate):
            return self == other
        moved = None if other.end is None else other.end + (self.start - other.start)
        return self in (
            replace(other, start=self.start),
            replace(other, start=self.start, end=moved),
        )


@dataclass(frozen=True, slots=True)
class Signal:
    """One normalised message of the grid. ``request`` None = the event is cancelled."""

    feed_id: str
    source_id: str
    revision: int
    received_at: datetime
    received_seconds: float
    """Monotonic, taken before the message was parsed."""
    request: EventRequest | None
    raw: str = ""
    """The message as it came, at most 64 KiB."""

    def __post_init__(self) -> None:
        check_id("event", self.source_id)
        if not 0 <= self.revision <= 2**31:
            raise InvalidInput("revision-range", "the revision must be 0 to 2^31")
