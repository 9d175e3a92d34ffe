"""Reads ``configs/programmes``: one YAML file a grid programme, every value with its source.

A file states every term of its first version; a later version states what it changes. Sources are
named once in ``sources`` and referred to by name.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import UTC, date, datetime, time
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints
from zoneinfo import ZoneInfo, available_timezones

from gridaware.domain.catalogue import (
    Catalogue,
    Entry,
    Exclusion,
    Mark,
    Term,
    Terms,
    Version,
    refuse_exclusive,
)
from gridaware.domain.errors import GridawareError, NotFound
from gridaware.domain.frequency import FREQUENCY_RULES
from gridaware.domain.obligation import Obligation
from gridaware.domain.programme import Programme, SignalLoss
from gridaware.wiring.data import data_path
from gridaware.wiring.settings_errors import Complaint, refusal, unknown_key
from gridaware.wiring.settings_file import KeyPath, read_settings_file

__all__ = [
    "catalogued",
    "check_exclusive",
    "inherited",
    "load_catalogue",
    "named",
    "read_entry",
]

_TOP = ("id", "name", "operator", "time_zone", "summary", "sources", "exclusive_with", "versions")
_VERSION = ("version", "valid_from", "valid_to", "baseline_available", "terms")
_KINDS: Mapping[str, Any] = {
    name: get_args(annotation)[0] for name, annotation in get_type_hints(Terms).items()
}
"""Term → what its value is."""


@cache
def load_catalogue(folder: Path | None = None) -> Catalogue:
    """Every programme of a folder, by id; None = those that come with gridaware.

    Raises:
        ConfigError: a file is malformed; every complaint has its line.
    """
    entries = (read_entry(path) for path in sorted(_folder(folder).glob("*.yaml")))
    return Catalogue({entry.programme_id: entry for entry in entries})


def catalogued(programme_id: str) -> Entry | None:
    """The programme of that id; None = the catalogue has none."""
    if not programme_id.replace("-", "").isalnum():
        return None
    path = _folder(None) / f"{programme_id}.yaml"
    return read_entry(path) if path.is_file() else None


def named(programme_id: str) -> Entry:
    """The programme of that id.

    Raises:
        NotFound: there is none; the message names the nearest.
    """
    entry = catalogued(programme_id)
    if entry is None:
        known = {path.stem for path in _folder(None).glob("*.yaml")}
        hint = unknown_key(programme_id, sorted(known))
        raise NotFound("programme-not-catalogued", f"{programme_id!r} {hint}")
    return entry


def inherited(
    stated: Mapping[str, Any], entry: Entry, given: frozenset[str]
) -> tuple[Programme, ...]:
    """A site's programme with what it does not say itself as its entry has it, version by version.

    Args:
        stated: what the site's settings say, or their defaults, as the programme's fields.
        entry: of the catalogue.
        given: the settings that were really given; of ``signal_loss``, key by key.
    """
    return tuple(_inherited(stated, entry, version, given) for version in entry.versions)


def _inherited(
    stated: Mapping[str, Any], entry: Entry, version: Version, given: frozenset[str]
) -> Programme:
    terms = version.terms
    rule = FREQUENCY_RULES.get(terms.frequency_rule.value or "")
    frequency = stated["frequency"] if "frequency" in given else rule
    deadline = terms.deadline_seconds.value
    if rule is not None and frequency is not None and frequency.full_seconds != rule.full_seconds:
        deadline = frequency.full_seconds  # another rule of the same programme was chosen
    known: dict[str, Any] = {
        "deadline_seconds": deadline,
        "settlement_interval_seconds": terms.settlement_interval_seconds.value,
        "max_duration_seconds": terms.max_duration_seconds.value,
        "mandatory": terms.mandatory.value,
        "ramp_exempt": terms.ramp_exempt.value,
        "frequency": frequency,
        "baseline": terms.baseline.value if version.baseline_available else None,
    }
    values = {name: v for name, v in known.items() if v is not None and name not in given}
    wanted = "" if "baseline" in given else terms.baseline.value or ""
    hours = terms.obligation_hours
    if "obligation_hours" in given:
        own = stated["obligation"]
        obligation = None if own is None else replace(own, time_zone=entry.time_zone)
    else:
        # Hours that nobody has read in the tariff make no event voluntary.
        read = hours.value is not None and hours.mark is Mark.SOURCED
        obligation = Obligation.of(entry.time_zone, hours.value or ()) if read else None
    values |= {
        "signal_loss": _loss(stated["signal_loss"], terms.on_signal_loss.value, given),
        "obligation": obligation,
        "catalogue": entry.programme_id,
        "version": version.version,
        "valid_from": version.valid_from.value,
        "tariff_baseline": "" if version.baseline_available else wanted,
    }
    return Programme(**{**stated, **values})


def _loss(stated: SignalLoss, entry: SignalLoss | None, given: frozenset[str]) -> SignalLoss:
    """What happens on signal loss: key by key, the site's own word first."""
    if entry is None:
        return stated
    own = {
        key: getattr(stated, key)
        for key in ("hold_seconds", "fallback_fraction")
        if f"signal_loss.{key}" in given
    }
    return replace(entry, **own)


def check_exclusive(programme_ids: Iterable[str]) -> None:
    """Refuse programmes of the catalogue that may not be served together; others are passed over.

    Raises:
        Refused: two exclude each other (``programmes-exclusive``).
    """
    found = (catalogued(programme_id) for programme_id in dict.fromkeys(programme_ids))
    refuse_exclusive(entry for entry in found if entry is not None)


@cache
def read_entry(path: Path) -> Entry:
    """One file of the catalogue.

    Raises:
        ConfigError: it is malformed; every complaint has its line.
    """
    file = read_settings_file(path)
    reader = _Reader(file.values)
    entry = reader.entry()
    complaints = reader.complaints
    if entry is not None and entry.programme_id != path.stem:
        complaints.append(Complaint(("id",), f"is not the file's name, {path.stem}"))
    if complaints or file.duplicates or entry is None:
        raise refusal(file, complaints)
    return entry


def _folder(folder: Path | None) -> Path:
    return data_path("configs") / "programmes" if folder is None else folder


class _Wrong(Exception):
    """A part cannot be read, and its complaint has been made."""


class _Reader:
    """Turns what a file says into an entry, and remembers everything that is wrong with it."""

    def __init__(self, top: Mapping[str, Any]) -> None:
        self.complaints: list[Complaint] = []
        self._top = top
        self._sources: Mapping[str, Any] = {}
        self._zone = ZoneInfo("UTC")

    def entry(self) -> Entry | None:
        """The entry; None where it cannot be made, and then there are complaints."""
        try:
            top = self._table(self._top, (), _TOP)
            self._sources = self._table(top["sources"], ("sources",))
            self._zone = self._time_zone(top["time_zone"])
            exclusions = tuple(self._exclusions(top["exclusive_with"]))
            versions = self._versions(top["versions"])
            if self.complaints:
                return None
            return Entry(
                programme_id=self._text(top["id"], ("id",)),
                name=self._text(top["name"], ("name",)),
                operator=self._text(top["operator"], ("operator",)),
                time_zone=self._zone.key,
                summary=self._text(top["summary"], ("summary",)),
                exclusive_with=exclusions,
                versions=versions,
            )
        except _Wrong:
            return None
        except (GridawareError, ValueError, TypeError) as error:
            self.complaints.append(Complaint((), f"is malformed: {error}"))
            return None

    def _versions(self, given: Any) -> tuple[Version, ...]:
        if not isinstance(given, list):
            raise self._wrong(("versions",), "must be a list")
        versions: list[Version] = []
        stated: dict[str, Term[Any]] = {}
        for position, each in enumerate(given):
            where: KeyPath = ("versions", position)
            table = self._table(each, where, _VERSION)
            changes = self._terms(table["terms"], (*where, "terms"))
            stated |= changes
            missing = [name for name in _KINDS if name not in stated]
            if missing:
                raise self._wrong((*where, "terms"), f"lacks {', '.join(missing)}")
            if self.complaints:
                continue
            try:
                versions.append(
                    Version(
                        version=self._text(table["version"], (*where, "version")),
                        valid_from=self._term(table, "valid_from", datetime, where),
                        valid_to=self._term(table, "valid_to", datetime, where),
                        baseline_available=self._flag(table, "baseline_available", where),
                        terms=Terms(**stated),
                    )
                )
            except GridawareError as error:
                raise self._wrong((*where, "terms"), f": {error.message}") from error
        return tuple(versions)

    def _terms(self, given: Any, where: KeyPath) -> dict[str, Term[Any]]:
        table = self._table(given, where)
        found = {}
        for name in table:
            if name in _KINDS:
                found[name] = self._term(table, name, _KINDS[name], where)
            else:
                self.complaints.append(Complaint((*where, name), unknown_key(name, _KINDS)))
        return found

    def _term(self, table: Mapping[str, Any], name: str, kind: Any, where: KeyPath) -> Term[Any]:
        where = (*where, name)
        given = self._table(table[name], where, ("value", "mark", "source"), ("note",))
        value = given["value"]
        read = None if value is None else self._value(value, kind, (*where, "value"))
        mark, source = self._mark_of(given, where)
        note = self._text(given["note"], (*where, "note")) if "note" in given else ""
        return Term(read, mark, source, note)

    def _value(self, value: Any, kind: Any, where: KeyPath) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if kind is float and number:
            return float(value)
        if kind is bool and isinstance(value, bool):
            return value
        if kind is str:
            return self._text(value, where)
        if kind is datetime and isinstance(value, date) and not isinstance(value, datetime):
            return datetime.combine(value, time(), self._zone).astimezone(UTC)
        if kind is SignalLoss:
            return self._loss(self._table(value, where, tuple(f.name for f in fields(SignalLoss))))
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            return tuple(value)
        raise self._wrong(where, f"is {value!r}, which it does not take")

    def _loss(self, table: Mapping[str, Any]) -> SignalLoss:
        return SignalLoss(**{key: None if v is None else float(v) for key, v in table.items()})

    def _exclusions(self, given: Any) -> Iterator[Exclusion]:
        if not isinstance(given, list):
            raise self._wrong(("exclusive_with",), "must be a list")
        for position, each in enumerate(given):
            where: KeyPath = ("exclusive_with", position)
            table = self._table(each, where, ("programme", "mark", "source"), ("note",))
            mark, source = self._mark_of(table, where)
            note = self._text(table["note"], (*where, "note")) if "note" in table else ""
            yield Exclusion(self._text(table["programme"], where), mark, source, note)

    def _mark_of(self, given: Mapping[str, Any], where: KeyPath) -> tuple[Mark, str]:
        if given["mark"] not in set(Mark):
            raise self._wrong((*where, "mark"), f"must be one of {', '.join(Mark)}")
        if given["source"] not in self._sources:
            raise self._wrong((*where, "source"), f"is {given['source']!r}, not in sources")
        source = self._text(self._sources[given["source"]], ("sources", given["source"]))
        return Mark(given["mark"]), source

    def _time_zone(self, name: Any) -> ZoneInfo:
        if name not in available_timezones():
            raise self._wrong(("time_zone",), f"is {name!r}, not a zone of the tz database")
        return ZoneInfo(name)

    def _flag(self, table: Mapping[str, Any], name: str, where: KeyPath) -> bool:
        if not isinstance(table[name], bool):
            raise self._wrong((*where, name), "must be true or false")
        return bool(table[name])

    def _text(self, value: Any, where: KeyPath) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(where, "must be text")
        return " ".join(value.split())

    def _table(
        self, given: Any, where: KeyPath, needed: tuple[str, ...] = (), more: tuple[str, ...] = ()
    ) -> Mapping[str, Any]:
        """A table with all the keys that are needed; where any are named, no others."""
        if not isinstance(given, dict):
            raise self._wrong(where, "must be a table")
        unknown = [key for key in given if needed and key not in (*needed, *more)]
        for key in unknown:
            hint = unknown_key(str(key), (*needed, *more))
            self.complaints.append(Complaint((*where, str(key)), hint))
        missing = [key for key in needed if key not in given]
        if missing:
            raise self._wrong(where, f"lacks {', '.join(missing)}")
        return given

    def _wrong(self, where: KeyPath, what: str) -> _Wrong:
        self.complaints.append(Complaint(where, what))
        return _Wrong()
