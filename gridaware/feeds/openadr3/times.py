"""OpenADR 3's instants and durations, in every form that specifications and servers write.

Instants are RFC 3339, with a space for the ``T`` too. ``0001-01-01`` (3.1) and ``0000-00-00``
(3.0.1) are no instants: they say "now" (User Guide 7.3). A time without a zone is refused, or
read in the zone that the feed's settings name: the earlier of the two where the clock is put
back, and as far after the gap as it lies within it where the clock is put forward.

Durations are ISO 8601. Years and months are the calendar's, counted from the instant that they are
added to; weeks and days are 168 h and 24 h. ``P9999Y`` is the specification's infinity, and so is
here whatever lasts longer than ten years: it ends when its sender says so.
"""

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import Enum

from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import printable
from gridaware.domain.signal import SECONDS_ABSURD

__all__ = ["ENDLESS", "NOW", "Duration", "Now", "after", "read_duration", "read_start"]

_YEARS = range(2000, 2200)
_MONTHS_ABSURD = 120
_NUMBER = r"([0-9]{1,12}(?:[.,][0-9]{1,12})?)"
_DURATION = re.compile(
    rf"([+-])?P(?=[0-9T])(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_START = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,12}))?)?"
    r"(?:([Zz])|([+-])([0-9]{2}):?([0-9]{2})?)?)?"
)
_SENTINELS = {("0001", "01", "01"), ("0000", "00", "00")}
_SECONDS = (7 * 86400.0, 86400.0, 3600.0, 60.0, 1.0)


class Now(Enum):
    """A start that says: when you hear of it."""

    NOW = "now"


NOW = Now.NOW


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time: months of the calendar, and seconds; or without an end."""

    months: int = 0
    seconds: float = 0.0
    endless: bool = False

    @property
    def zero(self) -> bool:
        """Whether it has no length at all."""
        return not (self.months or self.seconds or self.endless)

    def __add__(self, other: "Duration") -> "Duration":
        return Duration(
            self.months + other.months,
            self.seconds + other.seconds,
            self.endless or other.endless,
        )

    def __mul__(self, count: int) -> "Duration":
        return Duration(self.months * count, self.seconds * count, self.endless)


ENDLESS = Duration(endless=True)


def read_duration(value: object, field: str, *, signed: bool = False) -> Duration:
    """The duration that ``value`` writes, of either sign without it where ``signed``.

    Raises:
        InvalidInput: ``duration-type``, ``duration-malformed`` or ``duration-negative``.
    """
    if not isinstance(value, str):
        raise InvalidInput("duration-type", f"{field} is not a string such as PT1H", field=field)
    match = _DURATION.fullmatch(value.strip().upper()) if len(value) <= 100 else None
    if match is None:
        raise _malformed(value, field)
    years, months, *rest = (float((text or "0").replace(",", ".")) for text in match.groups()[1:])
    whole = round(12 * years + months)
    if abs(whole - 12 * years - months) > 1e-9:
        raise _malformed(value, field)  # half a month of which month?
    seconds = round(sum(n * unit for n, unit in zip(rest, _SECONDS, strict=True)), 6)
    if match[1] == "-" and not signed and (whole or seconds):
        raise InvalidInput("duration-negative", f"{field} {printable(value)!r} is below zero")
    if whole > _MONTHS_ABSURD or seconds > SECONDS_ABSURD:
        return ENDLESS
    return Duration(whole, seconds)


def read_start(value: object, field: str, zone: tzinfo | None) -> datetime | Now:
    """The aware instant that ``value`` writes, or NOW.

    Args:
        value: the text.
        field: whose it is, for the error.
        zone: of a time that names none; None = such a time is refused.

    Raises:
        InvalidInput: ``time-type``, ``time-malformed``, ``time-naive`` or ``time-absurd``.
    """
    if not isinstance(value, str):
        raise InvalidInput("time-type", f"{field} is not a string", field=field)
    match = _START.fullmatch(value.strip()) if len(value) <= 100 else None
    text = printable(value)
    if match is None:
        raise InvalidInput(
            "time-malformed", f"{field} {text!r} is not an RFC 3339 time", field=field
        )
    if match.group(1, 2, 3) in _SENTINELS:
        return NOW
    if not (match[8] or match[9] or zone):
        raise InvalidInput("time-naive", f"{field} {text!r} has no time zone", field=field)
    try:
        at = _local(match, _offset(match) or zone)
        utc = at.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput("time-malformed", f"{field} {text!r}: {error}", field=field) from None
    if utc.year not in _YEARS:
        raise InvalidInput("time-absurd", f"{field} lies in the year {utc.year}", field=field)
    return at


def after(anchor: datetime, elapsed: Duration) -> datetime | None:
    """The UTC instant ``elapsed`` after ``anchor``; None = never.

    Months are counted in the anchor's own zone: a month after 31 January is the last of February.
    """
    if elapsed.endless:
        return None
    if elapsed.months:
        year, month = divmod(anchor.year * 12 + anchor.month - 1 + elapsed.months, 12)
        if year not in _YEARS:
            return None
        day = min(anchor.day, calendar.monthrange(year, month + 1)[1])
        anchor = anchor.replace(year=year, month=month + 1, day=day)
    try:
        at = anchor.astimezone(UTC) + timedelta(seconds=elapsed.seconds)
    except OverflowError:
        return None
    return at if at.year in _YEARS else None


def _offset(match: re.Match[str]) -> timezone | None:
    if match[8]:
        return UTC
    if not match[9]:
        return None
    ahead = timedelta(hours=int(match[10]), minutes=int(match[11] or 0))
    return timezone(ahead if match[9] == "+" else -ahead)


def _local(match: re.Match[str], zone: tzinfo | None) -> datetime:
    year, month, day, hour, minute, second = (int(text or 0) for text in match.groups()[:6])
    micros = int((match[7] or "")[:6].ljust(6, "0"))
    leap = second == 60  # RFC 3339 allows it; it is the next minute's first
    at = datetime(year, month, day, hour, minute, 59 if leap else second, micros, tzinfo=zone)
    return at.replace(microsecond=0) + timedelta(seconds=1) if leap else at


def _malformed(value: str, field: str) -> InvalidInput:
    return InvalidInput(
        "duration-malformed",
        f"{field} {printable(value)!r} is not an ISO 8601 duration such as PT1H30M",
        field=field,
    )
