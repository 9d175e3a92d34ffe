"""Programmes as the API and the command line show them: each value with its source and its mark.

A site's own programme shows what it follows: the catalogue's words, with what its operator has set
in their place (``site settings``) and what stands where neither says anything (``default``).
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from gridaware.domain.catalogue import (
    Catalogue,
    Entry,
    Mark,
    SiteProgramme,
    Term,
    Version,
    in_force,
    in_words,
)
from gridaware.domain.obligation import Cap, CapUse, Held, cap_use
from gridaware.domain.programme import Programme
from gridaware.store.reader import StoreReader

__all__ = ["entry_of", "entry_row", "held_periods", "list_rows", "site_of", "site_row"]

SITE = "site settings"
DEFAULT = "default"
_PAGES_AT_MOST = 20
_EVENTS_A_PAGE = 500
_STATED_AS = {
    "deadline_seconds": "deadline_seconds",
    "settlement_interval_seconds": "settlement_interval_seconds",
    "max_duration_seconds": "max_duration_seconds",
    "mandatory": "mandatory",
    "ramp_exempt": "ramp_exempt",
    "baseline": "baseline",
}
"""Term → the field of a programme that says the same."""


def list_rows(
    catalogue: Catalogue, programmes: Iterable[SiteProgramme], at: datetime
) -> list[dict[str, Any]]:
    """The site's own programmes, then those of the catalogue that it has none by the name of."""
    own = [site_row(programme, at) for programme in programmes]
    names = {row["programme_id"] for row in own}
    rest = (entry for entry in catalogue.entries.values() if entry.programme_id not in names)
    return own + [entry_row(entry, at) for entry in rest]


def entry_row(entry: Entry, at: datetime) -> dict[str, Any]:
    """One programme of the catalogue in a line."""
    version = entry.version_at(at)
    terms = version.terms
    marks = [term.mark for _, term in terms.items()]
    return {
        "programme_id": entry.programme_id,
        "origin": "catalogue",
        "catalogue": entry.programme_id,
        "name": entry.name,
        "operator": entry.operator,
        "version": version.version,
        "in_force": in_force(entry, at) is not None,
        "valid_from": version.valid_from.value,
        "valid_to": version.valid_to.value,
        "notice_seconds": terms.notice_seconds.value,
        "deadline_seconds": terms.deadline_seconds.value,
        "mandatory": terms.mandatory.value,
        "baseline": terms.baseline.value,
        "baseline_available": version.baseline_available,
        "sourced": marks.count(Mark.SOURCED),
        "to_check": marks.count(Mark.CHECK),
        "exclusive_with": [exclusion.programme for exclusion in entry.exclusive_with],
    }


def site_row(programme: SiteProgramme, at: datetime) -> dict[str, Any]:
    """One programme of the site in a line: what is really in force."""
    rules = programme.version_at(at)
    row: dict[str, Any] = dict.fromkeys(
        ("operator", "valid_from", "valid_to", "notice_seconds", "sourced", "to_check")
    )
    row |= {"name": programme.programme_id, "catalogue": None, "in_force": True}
    row |= {"version": None, "exclusive_with": []}
    if programme.entry is not None:
        row |= entry_row(programme.entry, at)
    return row | {
        "programme_id": programme.programme_id,
        "origin": "site",
        "deadline_seconds": rules.deadline_seconds,
        "mandatory": rules.mandatory,
        "baseline": rules.baseline,
        "baseline_available": not rules.tariff_baseline,
    }


def entry_of(entry: Entry, at: datetime) -> dict[str, Any]:
    """One programme of the catalogue in full."""
    version = entry.version_at(at)
    return entry_row(entry, at) | {
        "summary": entry.summary,
        "time_zone": entry.time_zone,
        "versions": [_version(each) for each in entry.versions],
        "exclusions": list(entry.exclusive_with),
        "terms": [_term(name, term) for name, term in version.terms.items()],
        "caps_used": None,
    }


def site_of(programme: SiteProgramme, at: datetime, held: Iterable[Held]) -> dict[str, Any]:
    """One programme of the site in full, with what its events have used of its caps."""
    entry, rules = programme.entry, programme.version_at(at)
    shown: dict[str, Any] = {"summary": "", "time_zone": None, "versions": [], "exclusions": []}
    terms: dict[str, dict[str, Any]] = {}
    if entry is not None:
        shown = entry_of(entry, at)
        terms = {term["term"]: term for term in shown["terms"]}
    terms |= {term["term"]: term for term in _own_terms(programme, rules, terms)}
    return (
        shown
        | site_row(programme, at)
        | {
            "terms": list(terms.values()),
            "caps_used": [] if entry is None else [_use(u) for u in _uses(entry, at, tuple(held))],
        }
    )


def held_periods(reader: StoreReader, programme_id: str) -> list[Held]:
    """When live events of a programme were served, as far back as the store's last 10 000 go."""
    held: list[Held] = []
    cursor: str | None = None
    for _ in range(_PAGES_AT_MOST):
        page = reader.list("event", cursor=cursor, limit=_EVENTS_A_PAGE)
        for body in page.bodies:
            event = _EVENT.decode(body)
            counts = event.programme_id == programme_id and event.request.kind == "live"
            if counts and event.started_at is not None:
                held.append((event.started_at, event.released_at))
        cursor = page.next_cursor
        if cursor is None:
            break
    return held


class _Request(msgspec.Struct):
    kind: str = "live"


class _Event(msgspec.Struct):
    programme_id: str = ""
    started_at: datetime | None = None
    released_at: datetime | None = None
    request: _Request = msgspec.field(default_factory=_Request)


_EVENT = msgspec.json.Decoder(_Event)


def _uses(entry: Entry, at: datetime, held: tuple[Held, ...]) -> list[CapUse]:
    caps = entry.version_at(at).terms.caps.value or ()
    found = (cap_use(Cap.of(text), held, at, entry.time_zone) for text in caps)
    return [use for use in found if use is not None]


def _use(use: CapUse) -> dict[str, Any]:
    return {
        "cap": str(use.cap),
        "from": use.start,
        "until": use.end,
        "used": round(use.used, 4),
        "left": round(use.left, 4),
    }


def _version(version: Version) -> dict[str, Any]:
    return {
        "version": version.version,
        "valid_from": version.valid_from.value,
        "valid_to": version.valid_to.value,
    }


def _term(name: str, term: Term[Any]) -> dict[str, Any]:
    words = in_words(name, term)
    return {
        "term": name,
        "value": term.value,
        "words": words,
        "mark": term.mark.value,
        "source": term.source,
        "note": "" if term.note == words else term.note,
    }


def _own_terms(
    programme: SiteProgramme, rules: Programme, known: Mapping[str, Mapping[str, Any]]
) -> Iterable[dict[str, Any]]:
    """What the site's settings, or their defaults, say in the catalogue's place."""
    for name, field in _STATED_AS.items():
        value = getattr(rules, field)
        if name in programme.stated or name not in known:
            yield _own(name, value, programme.stated, name)
        elif known[name]["value"] != value:
            note = known[name]["note"]
            if name == "baseline" and rules.tariff_baseline:
                note = f"in place of {rules.tariff_baseline}, which is not computed here"
            yield _own(name, value, programme.stated, name) | {"note": note}
    loss = programme.stated & {"signal_loss.hold_seconds", "signal_loss.fallback_fraction"}
    if loss or "on_signal_loss" not in known:
        yield _own("on_signal_loss", rules.signal_loss, loss, *loss)
    if rules.obligation is not None and "obligation_hours" in programme.stated:
        hours = tuple(str(window) for window in rules.obligation.windows)
        yield _own("obligation_hours", hours, programme.stated, "obligation_hours")


def _own(name: str, value: Any, stated: frozenset[str], *settings: str) -> dict[str, Any]:
    given = any(setting in stated for setting in settings)
    term: Term[Any] = Term(value, Mark.SOURCED, "", "-")
    return _term(name, term) | {
        "mark": SITE if given else DEFAULT,
        "source": "the site's settings" if given else "gridaware's default",
        "note": "",
    }
