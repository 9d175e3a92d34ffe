"""Numbers as people read them: one way to show each unit, used by CLI, pages and reports.

Watts below 10 kW stay watts; energy is shown in kWh from 0.1 kWh on, and the energies of one table
share the unit of its largest. Values that are missing show as a dash, never as zero.
"""

import math
from collections.abc import Callable

__all__ = [
    "show",
    "show_joules",
    "show_kwh",
    "show_seconds",
    "show_share",
    "show_watts",
    "unit_word",
]

DASH = "\N{EN DASH}"


def show_watts(watts: float | None) -> str:
    """Power: ``193 W``, ``84.0 kW``, ``1.25 MW``."""
    if watts is None or not math.isfinite(watts):
        return DASH
    size = abs(watts)
    if size < 9_999.5:
        return f"{watts:.0f} W"
    if size < 999_950:
        return f"{watts / 1e3:.1f} kW"
    return f"{watts / 1e6:.2f} MW"


def show_joules(joules: float | None, like_joules: float | None = None) -> str:
    """Energy: ``950 J``, ``42.0 kJ``, ``3.20 kWh``, ``1.25 MWh``; in the unit of ``like_joules``.

    A figure beside a larger one keeps one decimal more: ``0.012 kWh``.
    """
    if joules is None or not math.isfinite(joules):
        return DASH
    size = abs(joules if like_joules is None else like_joules)
    digits = 2 if like_joules is None else 3
    if size < 10_000:
        return f"{joules:.0f} J"
    if size < 360_000:
        return f"{joules / 1e3:.1f} kJ"
    kwh = joules / 3.6e6
    if size < 3.6e9:
        return f"{kwh:.{digits}f} kWh"
    return f"{kwh / 1e3:.{digits}f} MWh"


def show_seconds(seconds: float | None) -> str:
    """Duration: ``85 ms``, ``1.2 s``, ``38 s``, ``6 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 0:
        return "-" + show_seconds(-seconds)
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms" if seconds else "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for large, small, size, part in (
        ("min", "s", 60, 1),
        ("h", "min", 3600, 60),
        ("d", "h", 86400, 3600),
    ):
        if whole < size * (60 if size < 3600 else 24) or large == "d":
            rest = whole % size // part
            return f"{whole // size} {large}" + (f" {rest} {small}" if rest else "")
    raise AssertionError("unreachable: days take whatever is left")


def show_share(share: float | None) -> str:
    """A share of one as a percentage: ``25 %``, ``2.5 %``."""
    if share is None or not math.isfinite(share):
        return DASH
    percent = share * 100
    return f"{percent:.1f} %" if abs(percent) < 9.95 and percent % 1 else f"{percent:.0f} %"


def show_kwh(kwh: float | None) -> str:
    """Energy that is already in kWh: ``0.420 kWh``, ``3.20 kWh``, ``1.25 MWh``."""
    if kwh is None or not math.isfinite(kwh):
        return DASH
    if abs(kwh) < 1:
        return f"{kwh:.3f} kWh"
    return f"{kwh:.2f} kWh" if abs(kwh) < 1000 else f"{kwh / 1e3:.2f} MWh"


_BY_LAST_WORD: dict[str, Callable[[float | None], str]] = {
    "watts": show_watts,
    "kwh": show_kwh,
    "seconds": show_seconds,
    "share": show_share,
    "fraction": show_share,
    "throughput": show_share,
    "loss": show_share,
    "depth": show_share,
    "coverage": show_share,
}


def unit_word(name: str) -> str:
    """The last word of a name, which declares its unit."""
    return name.rpartition(".")[2].rpartition("_")[2]


def show(name: str, value: float | None, like: float | None = None) -> str:
    """``value`` in the unit that the last word of ``name`` declares, or bare if none does.

    ``like``: the largest energy that stands beside it.
    """
    word = unit_word(name)
    if word == "joules":
        return show_joules(value, like)
    render = _BY_LAST_WORD.get(word)
    if render is not None:
        return render(value)
    if value is None:
        return DASH
    return f"{value:.15g}"
