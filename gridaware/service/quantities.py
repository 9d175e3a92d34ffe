"""Figures as people read them: watts below 10 kW, kilowatts above; one unit to an axis or table."""

from datetime import UTC, datetime

__all__ = [
    "duration",
    "energy",
    "instant",
    "percent",
    "plain",
    "power",
    "power_unit",
    "signed",
    "whole",
]

KILOWATTS_FROM = 10_000.0
MEGAWATTS_FROM = 10_000_000.0
NONE = "\u2013"
MINUS = "\u2212"
THIN_SPACE = "\u202f"


def power_unit(largest_watts: float) -> tuple[float, str]:
    """(divisor, unit) for an axis or a column whose largest figure is ``largest_watts``."""
    if abs(largest_watts) >= MEGAWATTS_FROM:
        return 1e6, "MW"
    if abs(largest_watts) >= KILOWATTS_FROM:
        return 1e3, "kW"
    return 1.0, "W"


def power(watts: float | None, like_watts: float | None = None) -> str:
    """Watts as text, in the unit that suits ``like_watts`` (else themselves)."""
    if watts is None:
        return NONE
    divisor, unit = power_unit(watts if like_watts is None else like_watts)
    digits = 0 if unit == "W" else 1
    return f"{_number(watts / divisor, digits)} {unit}"


def energy(joules: float | None, like_joules: float | None = None) -> str:
    """Joules as Wh, kWh or MWh, in the unit that suits ``like_joules`` (else themselves)."""
    if joules is None:
        return NONE
    hours, like = joules / 3600, abs((joules if like_joules is None else like_joules) / 3600)
    if like >= 1e6:
        return f"{_number(hours / 1e6, 3)} MWh"
    if like >= 1e3:
        return f"{_number(hours / 1e3, 2)} kWh"
    return f"{_number(hours, 1)} Wh"


def duration(seconds: float | None) -> str:
    """Seconds as text: ``40 ms``, ``1.5 s``, ``45 s``, ``12 min``, ``2 h 05 min``."""
    if seconds is None:
        return NONE
    sign = MINUS if seconds < 0 else ""
    seconds = abs(seconds)
    if seconds < 0.0005:
        return "0 s"
    if seconds < 1:
        return f"{sign}{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{sign}{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{sign}{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{sign}{minutes} min {rest:02d} s" if rest else f"{sign}{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours} h {minutes:02d} min"


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 1 as per cent."""
    return NONE if share is None else f"{_number(share * 100, digits)} %"


def plain(value: object) -> str:
    """Words and whole numbers as they are; nothing as a dash."""
    if value is None:
        return NONE
    if isinstance(value, int) and not isinstance(value, bool):
        return _number(value, 0)
    return str(value)


def whole(value: object) -> str:
    """A figure rounded to a whole number."""
    return _number(float(value), 0) if isinstance(value, int | float) else NONE


def signed(text: str) -> str:
    """The same with a plus where it has no minus."""
    return text if text.startswith((MINUS, NONE)) else f"+{text}"


def instant(at: datetime | None, *, date: bool = True) -> str:
    """An instant in UTC, to the second."""
    if at is None:
        return NONE
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC" if date else "%H:%M:%S")


def _number(value: float, digits: int) -> str:
    value = round(value, digits) + 0.0
    return f"{value:,.{digits}f}".replace("-", MINUS).replace(",", THIN_SPACE)
