"""Values as public pages write them: numbers with commas, epochs, times without a zone. Pure."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from gridaware.domain.errors import InvalidInput, Unavailable
from gridaware.domain.eventjson import json_fault, printable
from gridaware.feeds.http import is_loopback

__all__ = [
    "check_fresh",
    "epoch",
    "json_page",
    "number",
    "offset_time",
    "public_url",
    "rows",
    "short_text",
    "stale_reason",
    "wall_time",
]

AHEAD = timedelta(seconds=60)
"""A page's own time may be so far ahead of ours: two clocks never agree."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3}){1,4}|[0-9]{1,15})(?:\.[0-9]{1,20})?")
_YEARS = range(2000, 2200)
_MILLISECONDS_FROM = 1e11
"""An epoch above it counts milliseconds: as seconds it would lie in the year 5138."""
_WALL = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,9})?)?"
)
_AMERICAN = re.compile(
    r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4})[ T]([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?"
)


def json_page(body: bytes) -> dict[str, Any]:
    """The JSON object that a page is.

    Raises:
        InvalidInput: ``page-value``: it is not one; an error page with 200, say.
    """
    try:
        page = json.loads(body.decode("utf-8-sig"), parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("page-value", f"no JSON: {json_fault(error)}") from None
    if not isinstance(page, dict):
        raise InvalidInput("page-value", "no JSON object")
    return page


def rows(page: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects of a list of the page; what is none is left out.

    Raises:
        InvalidInput: ``page-value``: there is no such list.
    """
    found = page.get(key)
    if not isinstance(found, list):
        raise InvalidInput("page-value", f"there is no list {key!r}")
    return [row for row in found if isinstance(row, dict)]


def number(value: object, name: str) -> float:
    """A finite number, also from a text such as "18,983".

    Raises:
        InvalidInput: ``page-value``: it is none.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value.strip().replace(",", ""))
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
        return float(value)
    raise InvalidInput("page-value", f"{name} is {printable(repr(value), 40)}, not a number")


def epoch(value: object, name: str) -> datetime:
    """The instant of an epoch in seconds or milliseconds.

    Raises:
        InvalidInput: ``page-value``: it is none, or lies in another age.
    """
    seconds = number(value, name)
    if seconds >= _MILLISECONDS_FROM:
        seconds /= 1000
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidInput("page-value", f"{name} is no instant") from None
    if at.year not in _YEARS:
        raise InvalidInput("page-value", f"{name} lies in the year {at.year}")
    return at


def offset_time(value: object, name: str) -> datetime:
    """The instant of a time with an offset, with or without seconds; in UTC.

    Raises:
        InvalidInput: ``page-value``: it is none, or lies in another age.
    """
    try:
        at = datetime.fromisoformat(value.strip()) if isinstance(value, str) else None
        if at is None or at.utcoffset() is None or at.year not in _YEARS:
            raise ValueError
        return at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(
            "page-value", f"{name} is {printable(repr(value), 40)}, not a time with an offset"
        ) from None


def wall_time(value: object, zone: ZoneInfo, near: datetime, name: str) -> datetime:
    """The instant of a wall time without an offset.

    In autumn an hour comes twice: of the two instants the one nearer to ``near`` is meant (when
    the page was written, or came). In spring an hour never comes: a time in it is refused.

    Raises:
        InvalidInput: ``page-value``: it is no wall time of that zone.
    """
    parts = _wall_parts(value)
    if parts is None:
        raise InvalidInput("page-value", f"{name} is {printable(repr(value), 40)}, not a time")
    try:
        wall = datetime(*parts)  # noqa: DTZ001 - the zone is the publisher's
        both = [wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    except (ValueError, OverflowError):
        raise InvalidInput("page-value", f"{name} is no time of the calendar") from None
    known = [at for at in both if at.astimezone(zone).replace(tzinfo=None) == wall]
    if not known or known[0].year not in _YEARS:
        raise InvalidInput("page-value", f"{name} names an hour that the clocks skip")
    return min(known, key=lambda at: abs(at - near))


def short_text(value: object, at_most: int = 120) -> str:
    """A text of the page in printable ASCII, clipped; what is no text is an empty one."""
    if not isinstance(value, str):
        return ""
    shown = "".join(letter if letter >= " " and letter != "\x7f" else " " for letter in value)
    return printable(" ".join(shown.split()), at_most)


def check_fresh(at: datetime, now: datetime, stale_seconds: float, what: str) -> None:
    """Accept a page by its own time: nothing is concluded from an old one.

    Raises:
        Unavailable: ``page-stale``: it is too old, or of a time to come.
    """
    age = (now - at).total_seconds()
    if age > stale_seconds:
        raise Unavailable("page-stale", f"{what} is {age:.0f} s old")
    if at - now > AHEAD:
        raise Unavailable("page-stale", f"{what} is of {-age:.0f} s from now: two clocks differ")


def stale_reason(at: datetime, now: datetime, stale_seconds: float, what: str) -> str:
    """Why nothing is concluded from a page at an instant; empty = it is fresh."""
    try:
        check_fresh(at, now, stale_seconds, what)
    except Unavailable as error:
        return error.message
    return ""


def public_url(value: str) -> str:
    """Return a URL that is encrypted, or leads to this machine.

    Raises:
        ValueError: it is neither.
    """
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("not a URL such as https://www.ercot.com/path")
    if parts.scheme == "http" and not is_loopback(value):
        raise ValueError("must be https: what is read here may cut power")
    return value


def _wall_parts(value: object) -> tuple[int, int, int, int, int, int] | None:
    if not isinstance(value, str):
        return None
    if match := _WALL.fullmatch(value.strip()):
        year, month, day, hour, minute, second = match.groups("0")
    elif match := _AMERICAN.fullmatch(value.strip()):
        month, day, year, hour, minute, second = match.groups("0")
    else:
        return None
    return int(year), int(month), int(day), int(hour), int(minute), int(second)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
