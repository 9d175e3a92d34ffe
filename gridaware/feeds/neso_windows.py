"""Rows of NESO's Demand Flexibility Service tables: requirements, and bids. Pure.

The columns changed from season to season (``From``, ``From_Local`` with ``From_UTC``; ``DFS
Required MW``, ``Service Requirement MW``), numbers come as texts or numbers, and the delivery date
is the local one whatever the times beside it say. Every shape known so far is read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from gridaware.domain.errors import InvalidInput
from gridaware.feeds.ids import source_id
from gridaware.feeds.page_values import number, rows, short_text

__all__ = ["Window", "read_rows", "read_window"]

BRITAIN = ZoneInfo("Europe/London")
LONGEST = timedelta(hours=12)
"""A window is half an hour to a few; one without length would seem to last until the next day."""
MEGAWATTS_AT_MOST = 60_000.0
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::[0-9]{2})?")
_ZONE = re.compile(r"\s*Z([0-9]{1,2})\s*:\s*([0-9.]{1,10})\s*")
_MEGAWATTS = ("DFS Procured MW", "DFS Volume MW", "Service Requirement MW", "DFS Required MW")
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Window:
    """One period of one row."""

    name: str
    """Of the row; a source id."""
    start: datetime
    end: datetime
    megawatts: float | None
    service: str
    """``live`` or ``test``, in lower case as published."""
    upwards: bool
    """More demand is wanted, not less."""
    price_gbp_per_mwh: float | None
    """Guaranteed to whoever bids no more; 0 = bids compete."""
    participants: tuple[str, ...]
    """Who may bid, in lower case; () = the row does not say."""
    zone_megawatts: Mapping[int, float] | None
    """By zone; None = the row does not say."""
    unit: str
    """Whose bid it is; empty = it is a requirement."""
    status: str
    """Of a bid, in lower case: ``accepted``, ``rejected``; empty = a requirement."""


def read_rows(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records of a CKAN ``datastore_search`` answer.

    Raises:
        InvalidInput: it is none, or not a successful one.
    """
    result = page.get("result")
    if page.get("success") is not True or not isinstance(result, dict):
        raise InvalidInput("page-value", "the data portal did not succeed")
    return rows(result, "records")


def read_window(row: Mapping[str, Any]) -> Window:
    """One row.

    Raises:
        InvalidInput: it has no period, or a value is none.
    """
    day = _date(row.get("Delivery Date", row.get("Date")))
    start = _instant(row, "From", day, None)
    end = _instant(row, "To", day, start)
    if not timedelta(0) < end - start <= LONGEST:
        raise InvalidInput("page-value", "the window is empty, or longer than 12 h")
    unit = short_text(row.get("DFS Unit ID"), 60)
    event = short_text(str(row.get("Event ID") or ""), 40)
    parts = [part for part in ("dfs", event, unit, f"{start:%Y-%m-%dT%H.%MZ}") if part]
    return Window(
        source_id(*parts),
        start,
        end,
        _megawatts(row),
        short_text(row.get("Service Requirement Type"), 40).lower(),
        short_text(row.get("Event Type"), 40).lower().startswith("up"),
        _optional(row, "Guaranteed Acceptance Price GBP per MWh"),
        _participants(row.get("Participant Bids Eligible")),
        _zones(row.get("Zonal Cap")),
        unit,
        short_text(row.get("Status"), 40).lower(),
    )


def _megawatts(row: Mapping[str, Any]) -> float | None:
    for name in _MEGAWATTS:
        value = _optional(row, name)
        if value is not None:
            if not 0 <= value <= MEGAWATTS_AT_MOST:
                raise InvalidInput("page-value", f"{name} is {value:g}")
            return value
    return None


def _optional(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    return None if value is None or value == "" else number(value, name)


def _participants(value: object) -> tuple[str, ...]:
    text = short_text(value, 4000).lower()
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def _zones(value: object) -> Mapping[int, float] | None:
    """Such as "Z1:0,Z2:500": how much is wanted of each zone.

    Raises:
        InvalidInput: it is something else.
    """
    text = short_text(value, 400)
    if not text:
        return None
    found = {}
    for part in text.split(","):
        match = _ZONE.fullmatch(part)
        if match is None:
            raise InvalidInput("page-value", "Zonal Cap is not a list such as Z1:0,Z2:500")
        found[int(match[1])] = number(match[2], "Zonal Cap")
    return found


def _date(value: object) -> date:
    """The delivery date; a time after it is always midnight.

    Raises:
        InvalidInput: it is none.
    """
    if not isinstance(value, str):
        raise InvalidInput("page-value", "there is no Delivery Date")
    text = value.strip()[:10]
    try:
        if len(text) == 10 and text[2] == "/":
            return date(int(text[6:10]), int(text[3:5]), int(text[:2]))  # day first: Britain
        found = date.fromisoformat(text)
    except ValueError:
        raise InvalidInput("page-value", "Delivery Date is no date") from None
    if not 2000 <= found.year < 2200:
        raise InvalidInput("page-value", f"Delivery Date lies in the year {found.year}")
    return found


def _instant(row: Mapping[str, Any], side: str, day: date, after: datetime | None) -> datetime:
    """The instant of ``From`` or ``To``.

    The local time and its date say which; where an autumn hour comes twice, the column in UTC tells
    which of the two, or it is the first one (for an end: the first one after its start).

    Raises:
        InvalidInput: there is no time, or the two columns disagree.
    """
    utc = _clock(row.get(f"{side}_UTC"), f"{side}_UTC")
    local = _clock(row.get(f"{side}_Local", row.get(side)), side)
    if local is None:
        if utc is None:
            raise InvalidInput("page-value", f"there is no {side}")
        at = datetime.combine(day, datetime.min.time(), UTC) + utc
        return at + _DAY if after is not None and at <= after else at
    wall = datetime.combine(day, datetime.min.time()) + local
    found = _instants(wall)
    if after is not None and all(at <= after for at in found):
        found = _instants(wall + _DAY)
    if utc is not None:
        found = [at for at in found if _time_of_day(at) == utc % _DAY]
    if after is not None:
        found = [at for at in found if at > after]
    if not found:
        raise InvalidInput("page-value", f"{side} is no local time, or not that of {side}_UTC")
    return found[0]


def _instants(wall: datetime) -> list[datetime]:
    """The instants at which clocks in Britain show a time: one, two in autumn, none in spring."""
    both = {wall.replace(tzinfo=BRITAIN, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(at for at in both if at.astimezone(BRITAIN).replace(tzinfo=None) == wall)


def _time_of_day(at: datetime) -> timedelta:
    return timedelta(hours=at.hour, minutes=at.minute)


def _clock(value: object, name: str) -> timedelta | None:
    """Such as "17:30"; "24:00" ends the day.

    Raises:
        InvalidInput: it is something else.
    """
    if value is None or value == "":
        return None
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or int(match[1]) > 24 or int(match[2]) > 59:
        raise InvalidInput("page-value", f"{name} is no time of the day")
    return timedelta(hours=int(match[1]), minutes=int(match[2]))
