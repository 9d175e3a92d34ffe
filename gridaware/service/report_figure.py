"""The figure of an event: measured power, stepped target, dashed baseline, shaded window.

Drawn by matplotlib as SVG to be put *into* a page: every colour is a CSS variable of the page and
text is text, so it follows the reader's light or dark theme and can be searched and read aloud.
Colours are Okabe and Ito's, and no line is told by its colour alone.
"""

import io
import re
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from gridaware.service.quantities import duration, power, power_unit
from gridaware.settlement.event_report import EventReport

__all__ = ["event_figure"]

_INKS: Final = {
    "measured": "#010203",
    "target": "#010204",
    "baseline": "#010205",
    "window": "#010206",
    "ink": "#010207",
    "grid": "#010208",
    "deadline": "#010209",
}
"""Stand-ins that the SVG's own colours are found by; the page's variables replace them."""
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gridaware",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11.0,
    "axes.linewidth": 0.8,
}
_TICKS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 86400)
"""Distances of ticks in seconds, each a whole part of the next day or hour."""
_MOST_TICKS: Final = 7


def event_figure(report: EventReport) -> str:
    """The figure as an ``<svg>`` element; it holds no text that came from outside."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10.0, 4.3), layout="constrained")
        _draw(figure.add_subplot(), report)
        buffer = io.StringIO()
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return _adapt(buffer.getvalue(), report)


def _draw(axes: Axes, report: EventReport) -> None:
    curve, reference, limit = report.curve, report.reference.watts, report.limit_watts
    highest = max([w for w in curve.watts if w is not None] + [reference, limit])
    divisor, unit = power_unit(highest)
    times = curve.offsets_seconds
    watts = [float("nan") if w is None else w / divisor for w in curve.watts]
    begin, ready, end = (
        (at - curve.start).total_seconds()
        for at in (report.window_start, report.ready_at, report.window_end)
    )
    last = times[-1] if times else end
    axes.axvspan(begin, end, color=_INKS["window"], lw=0)
    axes.plot(
        [0.0, last],
        [reference / divisor] * 2,
        color=_INKS["baseline"],
        lw=1.6,
        dashes=(6, 4),
        label=f"Baseline {power(reference, highest)}",
    )
    axes.step(
        curve.limit_offsets_seconds,
        [w / divisor for w in curve.limit_watts],
        where="post",
        color=_INKS["target"],
        lw=2.6,
        solid_capstyle="butt",
        label=f"Target {power(limit, highest)}",
    )
    axes.plot(times, watts, color=_INKS["measured"], lw=1.5, zorder=4, label="Measured power")
    axes.fill_between(times, watts, color=_INKS["measured"], alpha=0.10, lw=0)
    if begin < ready < end:
        axes.axvline(ready, color=_INKS["deadline"], lw=1.0, ls=(0, (1, 2)))
    axes.set_xlim(0.0, last)
    axes.set_ylim(0, highest / divisor * 1.12)
    axes.set_ylabel(f"Power at the meter, {unit}", color=_INKS["ink"])
    _dress(axes, curve.start, last)


def _dress(axes: Axes, start: datetime, seconds: float) -> None:
    since = start.timestamp()
    step = next((t for t in _TICKS if seconds / t <= _MOST_TICKS), _TICKS[-1])
    first = -since % step
    axes.xaxis.set_major_locator(
        FixedLocator([first + i * step for i in range(int(seconds / step) + 1)])
    )
    form = "%H:%M:%S" if step < 60 else "%H:%M" if seconds < 86400 else "%d %b %H:%M"
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda at, _: datetime.fromtimestamp(since + at, UTC).strftime(form))
    )
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.10g}".replace(",", " "))
    )
    axes.set_xlabel("Time, UTC", color=_INKS["ink"])
    axes.grid(axis="y", color=_INKS["grid"], lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INKS["ink"], length=0, pad=6)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_INKS["ink"])
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=3,
        frameon=False,
        labelcolor=_INKS["ink"],
        handlelength=2.6,
        borderaxespad=0.2,
    )


def _adapt(svg: str, report: EventReport) -> str:
    """Keep the element alone, let it scale, give it a name, and take the page's colours."""
    svg = svg[svg.index("<svg") :]
    opening, rest = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', opening)
    rest = re.sub(r"<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
    for name, ink in _INKS.items():
        rest = rest.replace(ink, f"var(--{name})")
    rest = re.sub(r"'DejaVu Sans', ?[^;\"]*|'DejaVu Sans'", "inherit", rest)
    return (
        f'<svg class="power" role="img" aria-labelledby="figure-title figure-text" '
        f'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f"{box.group() if box else ''}>"
        f'<title id="figure-title">Power at the meter during the event</title>'
        f'<desc id="figure-text">{figure_text(report)}</desc>{rest}'
    )


def figure_text(report: EventReport) -> str:
    """The figure in one sentence, for those who cannot see it."""
    curve, like = report.curve, report.reference.watts
    known = [w for w in curve.watts if w is not None]
    lowest = min(known, default=None)
    length = duration((report.window_end - report.window_start).total_seconds())
    crossings = sum(
        a is not None and b is not None and a > report.limit_watts >= b
        for a, b in pairwise(curve.watts)
    )
    fell = "fell below its target" if crossings else "stayed on one side of its target"
    return (
        f"Measured power against a baseline of {power(like)} and a target of "
        f"{power(report.limit_watts, like)} for {length}. Power {fell}; "
        f"lowest {power(lowest, like)}, mean of the scored part "
        f"{power(report.delivery.mean_watts, like)}."
    )
