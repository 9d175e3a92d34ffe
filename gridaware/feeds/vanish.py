"""When an event that is no longer listed counts as cancelled. Pure.

Servers cancel by deleting, and nothing tells a deleted event from one that a restart, a lost scope
or a broken page hides: every one of them is a complete, successful list without it. Letting the
site's power up too early is the costly error, so two such lists are asked for, a minute apart,
under the very witness under which the event was last seen.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["APART_SECONDS", "Missing", "cancelled_by"]

APART_SECONDS = 60.0


@dataclass(slots=True)
class Missing:
    """Since when each event has been missing, monotonic; begins anew with the process."""

    since: dict[str, float] = field(default_factory=dict)


def cancelled_by(
    missing: Missing,
    seen_under: Mapping[str, str | None],
    listed: Iterable[str],
    witness: str | None,
    seconds: float,
) -> list[str]:
    """The events that one more complete read shows to be cancelled.

    Args:
        missing: kept from read to read; changed.
        seen_under: of every event that stands, the witness of the last read that listed it.
        listed: the events of this read, readable or not.
        witness: under which this read was made; None = under none, so it begins the count anew.
        seconds: when, monotonic.
    """
    there = set(listed)
    if witness is None:
        missing.since.clear()
        return []
    gone = []
    for name, under in seen_under.items():
        if name in there or under != witness:
            missing.since.pop(name, None)
        elif seconds - missing.since.setdefault(name, seconds) >= APART_SECONDS:
            gone.append(name)
    for name in list(missing.since):
        if name not in seen_under or name in gone:
            del missing.since[name]
    return gone
