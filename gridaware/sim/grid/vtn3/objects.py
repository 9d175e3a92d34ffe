"""What a VTN keeps: programs, events, vens, resources, subscriptions and reports."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gridaware.clock import Clock
from gridaware.sim.grid.vtn3.quirks import Quirk

__all__ = ["KINDS", "Objects", "Stored", "snake_cased", "targets_match"]

KINDS = {
    "programs": "PROGRAM",
    "events": "EVENT",
    "vens": "VEN",
    "resources": "RESOURCE",
    "subscriptions": "SUBSCRIPTION",
    "reports": "REPORT",
}
"""Path of a list → ``objectType``."""

Json = dict[str, Any]


@dataclass
class Stored:
    """One object, and whose it is."""

    kind: str
    body: Json
    owner: str
    """Client id of a VEN; empty for the business's own."""


@dataclass
class Objects:
    """Everything of one server, in memory."""

    clock: Clock
    quirks: set[Quirk]
    by_id: dict[tuple[str, str], Stored] = field(default_factory=dict)
    started: int = 1
    """How often it was started: part of the ids, unless they are reused."""
    _last: int = -1

    def add(self, kind: str, body: Mapping[str, Any], owner: str) -> Json:
        """Create an object; its metadata are the server's."""
        self._last += 1
        reused = Quirk.REUSED_IDS in self.quirks
        new_id = str(self._last) if reused else f"{kind[:-1]}-{self.started}-{self._last}"
        stamp = self._stamp()
        made = {
            **body,
            "id": new_id,
            "objectType": KINDS[kind],
            "createdDateTime": stamp,
            "modificationDateTime": stamp,
        }
        self.by_id[kind, new_id] = Stored(kind, made, owner)
        return made

    def change(self, kind: str, object_id: str, body: Mapping[str, Any]) -> Json:
        """Replace an object's content.

        Raises:
            KeyError: there is none.
        """
        stored = self.by_id[kind, object_id]
        kept = {k: stored.body[k] for k in ("id", "objectType", "createdDateTime")}
        stored.body = {**body, **kept, "modificationDateTime": self._stamp()}
        return stored.body

    def remove(self, kind: str, object_id: str) -> Json:
        """Delete an object.

        Raises:
            KeyError: there is none.
        """
        return self.by_id.pop((kind, object_id)).body

    def of(self, kind: str) -> Iterator[Stored]:
        """Every object of a kind, oldest first."""
        return (stored for stored in list(self.by_id.values()) if stored.kind == kind)

    def restart(self) -> None:
        """Lose everything that is in memory."""
        keeps = Quirk.KEEPS_EVENTS in self.quirks
        kept = {"events", "programs"} if keeps else set[str]()
        self.by_id = {key: value for key, value in self.by_id.items() if key[0] in kept}
        self.started += 1
        self._last = len(self.by_id) - 1 if keeps else -1

    def _stamp(self) -> str:
        now = self.clock.wall()
        if Quirk.ONE_SECOND_STAMPS in self.quirks or Quirk.NAIVE_TIMES in self.quirks:
            now = now.replace(microsecond=0)
        if Quirk.NAIVE_TIMES in self.quirks:
            return now.replace(tzinfo=None).isoformat(" ")
        return now.isoformat().replace("+00:00", "Z")


def targets_match(body: Mapping[str, Any], asked: Mapping[str, list[str]]) -> bool:
    """Whether an object answers a query by targets: of 3.1 (strings) or 3.0.1 (type and values)."""
    wanted = set(asked.get("targets", []) + asked.get("targetValues", []))
    if not wanted:
        return True
    has: set[str] = set()
    for target in body.get("targets") or []:
        if isinstance(target, str):
            has.add(target)
        elif isinstance(target, Mapping):
            has.update(str(value) for value in target.get("values", []))
    return bool(has & wanted)


def is_active(body: Mapping[str, Any], now: datetime) -> bool:
    """Whether an event with a plain period of days, hours or minutes is in force or ahead."""
    period = body.get("intervalPeriod") or {}
    try:
        start = datetime.fromisoformat(str(period.get("start", "")))
        seconds = _plain_seconds(str(period.get("duration", "")))
    except ValueError:
        return True
    if start.tzinfo is None or seconds is None:
        return True
    count = max(len(body.get("intervals") or []), 1)
    return start + timedelta(seconds=seconds * count) > now


def _plain_seconds(text: str) -> float | None:
    units = {"H": 3600.0, "M": 60.0, "S": 1.0}
    number, unit = text.removeprefix("PT")[:-1], text[-1:]
    return float(number) * units[unit] if number.isdigit() and unit in units else None


def snake_cased(value: Any) -> Any:
    """The same JSON with snake_case keys."""
    if isinstance(value, Mapping):
        return {_snake(str(key)): snake_cased(item) for key, item in value.items()}
    if isinstance(value, list):
        return [snake_cased(item) for item in value]
    return value


def _snake(name: str) -> str:
    made = ""
    for position, letter in enumerate(name):
        starts = letter.isupper() and position and not name[position - 1].isupper()
        made += ("_" if starts else "") + letter.lower()
    return made
