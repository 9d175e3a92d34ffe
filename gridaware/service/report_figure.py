"""The figure of an event: measured power, stepped target, dashed baseline, shaded window.

Drawn by matplotlib as SVG to be put *into* a page: every colour is a CSS variable of the page and
text is text, so it follows the reader's light or dark theme and can be searched and read aloud.
Colours are Okabe and Ito's, and no line is told by its colour alone.
"""

import io
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import matplotlib as mpl
from matplotlib import dates as mdates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gridaware.service.quantities import duration, power, power_unit
from gridaware.settlement.event_report import EventReport

__all__ = ["event_figure"]

_INKS = {
    "measured": "#010203",
    "target": "#010204",
    "baseline": "#010205",
    "window": "#010206",
    "ink": "#010207",
    "grid": "#010208",
    "deadline": "#010209",
}
"""Stand-ins that the SVG's own colours are found by; the page's variables replace them."""
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gridaware",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11.0,
    "axes.linewidth": 0.8,
}


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
    times = [curve.start + timedelta(seconds=s) for s in curve.offsets_seconds]
    watts = [float("nan") if w is None else w / divisor for w in curve.watts]
    axes.axvspan(_num(report.window_start), _num(report.window_end), color=_INKS["window"], lw=0)
    axes.plot(
        [_num(curve.start), _num(times[-1] if times else report.window_end)],
        [reference / divisor] * 2,
        color=_INKS["baseline"],
        lw=1.6,
        dashes=(6, 4),
        label=f"Baseline {power(reference, highest)}",
    )
    steps = [
        (_num(curve.start + timedelta(seconds=s)), w / divisor)
        for s, w in zip(curve.limit_offsets_seconds, curve.limit_watts, strict=True)
    ]
    axes.step(
        [at for at, _ in steps],
        [w for _, w in steps],
        where="post",
        color=_INKS["target"],
        lw=2.6,
        solid_capstyle="butt",
        label=f"Target {power(limit, highest)}",
    )
    axes.plot(
        [_num(at) for at in times],
        watts,
        color=_INKS["measured"],
        lw=1.5,
        zorder=4,
        label="Measured power",
    )
    axes.fill_between([_num(at) for at in times], watts, color=_INKS["measured"], alpha=0.10, lw=0)
    if report.window_start < report.ready_at < report.window_end:
        axes.axvline(_num(report.ready_at), color=_INKS["deadline"], lw=1.0, ls=(0, (1, 2)))
    axes.set_ylim(0, highest / divisor * 1.12)
    axes.set_ylabel(f"Power at the meter, {unit}", color=_INKS["ink"])
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.10g}".replace(",", " "))
    )
    if times:
        axes.set_xlim(_num(curve.start), _num(times[-1]))
    _dress(axes)


def _dress(axes: Axes) -> None:
    axes.xaxis.set_major_locator(mdates.AutoDateLocator(minticks=4, maxticks=8, tz=UTC))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: _tick(axes, at)))
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


def _tick(axes: Axes, at: float) -> str:
    first, last = axes.get_xlim()
    pattern = "%H:%M:%S" if (last - first) * 86400 < 1200 else "%H:%M"
    if last - first > 1.5:
        pattern = "%d %b %H:%M"
    instant: datetime = mdates.num2date(at, tz=UTC)
    return instant.strftime(pattern)


def _num(at: datetime) -> float:
    return float(mdates.date2num(at))


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
