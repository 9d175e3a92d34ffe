"""What the server lists for us: programs, and the events of those that are ours."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gridaware.domain.errors import GridawareError, NotFound
from gridaware.feeds.kind import RefusedPart
from gridaware.feeds.openadr3.client import Calls
from gridaware.feeds.openadr3.objects import asks_for_targets
from gridaware.feeds.openadr3.payloads import Units
from gridaware.feeds.openadr3.reading import read_units
from gridaware.feeds.openadr3.settings import OpenAdr3Settings
from gridaware.feeds.openadr3.shapes import camel_cased

__all__ = ["Listing", "Programs"]

REFRESH_SECONDS = 60.0
EARLY_SECONDS = 5.0


class Programs:
    """The server's programs: which are ours, and what their payload descriptors say.

    Args:
        settings: name ours.
        alarm: hears once of each that the server does not have.
    """

    def __init__(self, settings: OpenAdr3Settings, alarm: Callable[[GridawareError], None]) -> None:
        self._settings = settings
        self._alarm = alarm
        self._by_id: dict[str, Mapping[str, Any]] = {}
        self._units: dict[str, dict[str, Units]] = {}
        self._read_seconds = float("-inf")
        self._told: set[str] = set()

    @property
    def first(self) -> str | None:
        """One of ours, for subscriptions of 3.0.1, which are each for one."""
        return next((each for each in self._by_id if self.ours(each)), None)

    def units(self, program_id: object) -> dict[str, Units]:
        """By payload type, where a program's descriptors say them."""
        return self._units.get(str(program_id), {})

    def ours(self, program_id: object) -> bool:
        """Whether its events are for us, as far as programs go."""
        ids, names = self._settings.program_ids, self._settings.program_names
        if not ids and not names:
            return True
        name = self._by_id.get(str(program_id), {}).get("programName")
        return str(program_id) in ids or (isinstance(name, str) and name in names)

    def refresh(self, calls: Calls, needed: frozenset[str]) -> None:
        """Read them again, every minute, and early where an event is of an unknown one.

        Raises:
            Unavailable: the server did not answer.
        """
        now = calls.client.clock.monotonic_seconds()
        age = now - self._read_seconds
        if age < REFRESH_SECONDS and (needed <= self._by_id.keys() or age < EARLY_SECONDS):
            return
        listed = [camel_cased(each) for each in calls.whole_list("/programs")]
        self._by_id = {
            str(each["id"]): each
            for each in listed
            if isinstance(each, Mapping) and isinstance(each.get("id"), str | int)
        }
        faults: list[RefusedPart] = []
        self._units = {
            key: read_units(each.get("payloadDescriptors"), faults)
            for key, each in self._by_id.items()
        }
        self._read_seconds = now
        self._tell_unknown()

    def _tell_unknown(self) -> None:
        names = {str(each.get("programName")) for each in self._by_id.values()}
        wanted = set(self._settings.program_ids) - self._by_id.keys()
        wanted |= set(self._settings.program_names) - names
        for each in sorted(wanted - self._told):
            self._alarm(NotFound("openadr3-program-unknown", f"the server shows no {each!r}"))
        self._told = wanted


@dataclass(frozen=True, slots=True)
class Listing:
    """Reads the list of events."""

    settings: OpenAdr3Settings
    programs: Programs

    def read(self, calls: Calls) -> list[object]:
        """Every event of our programs, over or unreadable ones too, with the specification's keys.

        Events without targets and events for ours are two questions: to the second the server
        answers with those alone.

        Raises:
            Unavailable: the list is not whole.
        """
        found = calls.whole_list("/events")
        if self.settings.targets:
            asked = asks_for_targets(
                self.settings.version, self.settings.targets, self.settings.target_type
            )
            found += calls.whole_list("/events", asked)
        events = [camel_cased(each) for each in found]
        needed = frozenset(
            str(each["programID"])
            for each in events
            if isinstance(each, Mapping) and isinstance(each.get("programID"), str)
        )
        self.programs.refresh(calls, needed)
        kept: dict[object, object] = {}
        for number, each in enumerate(events):
            if not isinstance(each, Mapping):
                kept[number] = each
            elif self.programs.ours(each.get("programID")):
                key = each.get("id")
                kept[key if isinstance(key, str) else number] = each
        return list(kept.values())
