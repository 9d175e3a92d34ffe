"""The programme catalogue: what grid programmes ask, value by value, with the source of each.

An :class:`Entry` is a programme; its versions are its rules from one day to another, so that a past
event is settled under the rules of its day. Every value is a :class:`Term`: where it was read, and
whether it was read there (``sourced``) or is to be read in the tariff before anybody relies on it
(``check the tariff``). A value of None is unknown, or, where it is sourced, something that the
programme does not have; its note says so.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from itertools import combinations, pairwise
from typing import Any, Generic, TypeVar

from gridaware.domain.errors import InvalidInput, NotFound, Refused
from gridaware.domain.frequency import FREQUENCY_RULES
from gridaware.domain.obligation import Cap, Obligation
from gridaware.domain.programme import Programme, SignalLoss
from gridaware.domain.units import DASH, show, show_seconds, show_share

__all__ = [
    "Catalogue",
    "Entry",
    "Exclusion",
    "Mark",
    "SiteProgramme",
    "Term",
    "Terms",
    "Version",
    "in_force",
    "in_words",
    "refuse_exclusive",
]

Value = TypeVar("Value")


class Mark(StrEnum):
    """How far a value can be relied on."""

    SOURCED = "sourced"
    CHECK = "check the tariff"


@dataclass(frozen=True, slots=True)
class Term(Generic[Value]):
    """One value of a programme, and where it comes from."""

    value: Value | None
    mark: Mark
    source: str
    """What it was read in, or what is to be read."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything that a version of a programme states. Powers are at the site meter."""

    trigger: Term[str]
    """What starts an event, and how the site hears of it."""
    mandatory: Term[bool]
    """Whether its events must be served; others are served as far as the jobs' tiers allow."""
    notice_seconds: Term[float]
    """Between the instruction or the award and the start of an event."""
    deadline_seconds: Term[float]
    """From the start to the full response."""
    frequency_rule: Term[str]
    """The rule of `domain/frequency.py` by which each node answers its own frequency meter."""
    least_hold_seconds: Term[float]
    """The site must be able to hold for so long."""
    max_duration_seconds: Term[float]
    """The longest event."""
    ramp_down_watts_per_minute: Term[float]
    """Steepest fall that the programme allows."""
    ramp_up_watts_per_minute: Term[float]
    """Steepest return that the programme allows."""
    ramp_exempt: Term[bool]
    """Whether its events are free of the ramp of the site's connection on the way down."""
    telemetry_seconds: Term[float]
    """Between two values of power that are sent or recorded for it."""
    settlement_interval_seconds: Term[float]
    """The mean over so long is what counts."""
    baseline: Term[str]
    """What the site would have drawn, by the name of the function that says so."""
    performance: Term[str]
    """How delivery is judged."""
    pay: Term[str]
    """What is paid, and what a failure costs."""
    obligation_hours: Term[tuple[str, ...]]
    """Hours and seasons in which an event is owed, in local time; others are voluntary."""
    caps: Term[tuple[str, ...]]
    """The most hours or events in a period."""
    least_gap_seconds: Term[float]
    """From the end of an event to the start of the next, at least."""
    acknowledgement_seconds: Term[float]
    """Within so long the instruction must be acknowledged."""
    opt_out_seconds: Term[float]
    """An opt-out must come so long before the start, at the latest."""
    opt_out_cost: Term[str]
    """What opting out costs."""
    recall: Term[str]
    """What ends an event."""
    return_seconds: Term[float]
    """From the end of an event until the site must be ready for the next."""
    test_duty: Term[str]
    """Which tests must be passed, and how often."""
    least_watts: Term[float]
    """The smallest reduction that may take part."""
    aggregation_share: Term[float]
    """Of what an aggregate earns, the share that is the site's; its contract says."""
    meter_class: Term[str]
    """Which meter proves it."""
    on_signal_loss: Term[SignalLoss]
    """What the nodes do when an event without an end loses its controller."""
    evidence_days: Term[float]
    """How long its evidence must be kept."""

    def items(self) -> Iterator[tuple[str, Term[Any]]]:
        """Every term by its name, in the order above."""
        for field in fields(self):
            yield field.name, getattr(self, field.name)

    def __post_init__(self) -> None:
        for name, term in self.items():
            wrong = _wrong_with(name, term)
            if wrong is not None:
                raise InvalidInput("catalogue-term", f"{name} {wrong}", term=name)


@dataclass(frozen=True, slots=True)
class Version:
    """The rules of a programme from one instant to another."""

    version: str
    valid_from: Term[datetime]
    """None: since ever, as far as anybody knows here. Only the first version may have it."""
    valid_to: Term[datetime]
    """None: until further notice. Only the last version may have it."""
    baseline_available: bool
    """Whether gridaware computes its baseline."""
    terms: Terms

    def holds(self, at: datetime) -> bool:
        """Whether it is in force at an instant."""
        begun = self.valid_from.value is None or self.valid_from.value <= at
        return begun and (self.valid_to.value is None or at < self.valid_to.value)


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A programme that the same load may not serve as well."""

    programme: str
    mark: Mark
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One programme of the catalogue."""

    programme_id: str
    name: str
    operator: str
    time_zone: str
    """Of its obligation hours, its caps and its dates."""
    summary: str
    exclusive_with: tuple[Exclusion, ...]
    versions: tuple[Version, ...]
    """The oldest first."""

    def __post_init__(self) -> None:
        if not self.versions:
            raise InvalidInput("catalogue-entry", f"{self.programme_id} has no version")
        for older, newer in pairwise(self.versions):
            end, start = older.valid_to.value, newer.valid_from.value
            if end is None or start is None or end > start:
                raise InvalidInput(
                    "catalogue-entry",
                    f"{self.programme_id}: {newer.version} must begin where {older.version} ends, "
                    "or later",
                )
        for version in self.versions:
            start, end = version.valid_from.value, version.valid_to.value
            if start is not None and end is not None and end <= start:
                raise InvalidInput(
                    "catalogue-entry", f"{self.programme_id}: {version.version} ends before it is"
                )
            hours = version.terms.obligation_hours.value
            if hours is not None:
                Obligation.of(self.time_zone, hours)

    def version_at(self, at: datetime) -> Version:
        """The rules under which an event that starts then is settled.

        Where none is in force the last that had begun goes on; before the first, the first: what
        was promised does not end because a date here was not brought up to date.
        """
        begun = [v for v in self.versions if v.valid_from.value is None or v.valid_from.value <= at]
        return begun[-1] if begun else self.versions[0]

    def excludes(self, programme_id: str) -> Exclusion | None:
        """Why the other programme may not be served as well; None = it may."""
        return next((e for e in self.exclusive_with if e.programme == programme_id), None)


def in_force(programme: Entry, at: datetime) -> Version | None:
    """The version that is in force at an instant; None = none is, as far as is known here."""
    return next((version for version in programme.versions if version.holds(at)), None)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Programmes by their ids."""

    entries: Mapping[str, Entry]

    def get(self, programme_id: str) -> Entry:
        """The programme of that id.

        Raises:
            NotFound: there is none; the message names the nearest.
        """
        entry = self.entries.get(programme_id)
        if entry is None:
            near = get_close_matches(programme_id, self.entries, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise NotFound(
                "programme-not-catalogued", f"the catalogue has no {programme_id!r}{hint}"
            )
        return entry


@dataclass(frozen=True, slots=True)
class SiteProgramme:
    """A programme of a site's own settings."""

    programme_id: str
    entry: Entry | None
    """Of the catalogue that it follows; None = of none."""
    versions: tuple[Programme, ...]
    """As control and settlement know it, the oldest first."""
    stated: frozenset[str]
    """The settings that its operator gave; of ``signal_loss``, key by key."""

    def version_at(self, at: datetime) -> Programme:
        """The rules under which an event that starts then is served and settled."""
        begun = [p for p in self.versions if p.valid_from is None or p.valid_from <= at]
        return begun[-1] if begun else self.versions[0]


def refuse_exclusive(entries: Iterable[Entry]) -> None:
    """Let programmes that exclude each other not be served together.

    Raises:
        Refused: two of them do (``programmes-exclusive``); the message names both and the source.
    """
    for one, other in combinations({e.programme_id: e for e in entries}.values(), 2):
        why = one.excludes(other.programme_id)
        if why is not None:
            note = f"{why.note}; " if why.note else ""
            raise Refused(
                "programmes-exclusive",
                f"{one.programme_id} and {other.programme_id} exclude each other: "
                f"{note}{why.source} ({why.mark.value})",
                programmes=f"{one.programme_id}, {other.programme_id}",
            )


def in_words(name: str, term: Term[Any]) -> str:
    """A term's value as people read it."""
    value = term.value
    if value is None:
        return term.note if term.mark is Mark.SOURCED else "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        per, _, minute = name.partition("_per_")
        if name == "aggregation_share":
            return show_share(value)
        return f"{show(per, value)} a minute" if minute else show(name, value)
    if isinstance(value, tuple):
        return "; ".join(str(part) for part in value) or DASH
    if isinstance(value, SignalLoss):
        return _loss_in_words(value)
    return str(value)


def _loss_in_words(loss: SignalLoss) -> str:
    if loss.hold_seconds is None:
        return "hold the last limit until a person releases it"
    after = (
        "restore the limits that were found"
        if loss.fallback_fraction is None
        else f"go to {show_share(loss.fallback_fraction)} of each GPU's found limit"
    )
    return f"hold the last limit for {show_seconds(loss.hold_seconds)}, then {after}"


_ABOVE_ZERO = {"deadline_seconds", "settlement_interval_seconds", "telemetry_seconds"}


def _wrong_with(name: str, term: Term[Any]) -> str | None:
    """What contradicts itself in a term; None = nothing."""
    value = term.value
    if value is None:
        if term.mark is Mark.SOURCED and not term.note:
            return "is sourced as absent: its note must say what the source says"
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value < float("inf") or (name in _ABOVE_ZERO and value == 0):
            return f"is {value}"
        if name == "aggregation_share" and value > 1:
            return "must be a share, 0 to 1"
    if name == "frequency_rule" and value not in FREQUENCY_RULES:
        return f"must be one of {', '.join(FREQUENCY_RULES)}"
    if name == "caps":
        for text in value:
            Cap.of(text)
    return None
