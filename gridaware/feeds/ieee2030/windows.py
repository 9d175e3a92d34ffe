"""From the controls of every program to what stands when. Pure; seconds of the server's clock.

Within a program the newer creation supersedes: the older control ends where the newer one begins,
and does not come back after it. Between programs the lower primacy holds; that and the default
control underneath become priorities of the site's one programme. A control that disconnects goes
before all others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gridaware.domain.signal import TargetSpec
from gridaware.feeds.ieee2030.modes import LIMIT, OFF, Mode
from gridaware.feeds.ieee2030.reading import Control, Default, Status
from gridaware.feeds.kind import Disposition

__all__ = [
    "DEFAULT_PRIORITY",
    "Piece",
    "Program",
    "Window",
    "bearing",
    "default_target",
    "pieces_of",
    "window_of",
]

DEFAULT_PRIORITY = 256
"""Added to the primacy of a default control: every event goes before it."""

IN_FORCE = (Status.SCHEDULED, Status.ACTIVE)
Draw = Callable[[str], float]
"""What was drawn for a purpose: 0 to 1, the same each time."""


@dataclass(frozen=True, slots=True)
class Window:
    """When a control acts for us, random times drawn."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Program:
    """One DERProgram as it stands."""

    mrid: str
    primacy: int
    controls: Mapping[str, Control]
    """By a name that no other has."""
    default: Default | None
    default_name: str


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing that is asked for one stretch of time."""

    control: str
    """The name of its control."""
    bears_on: str
    window: Window
    target: TargetSpec
    priority: int


def window_of(control: Control, draw: Draw, cancelled_at: float) -> Window | None:
    """When a control acts: its interval, moved and stretched by what was drawn for it.

    Args:
        control: the control.
        draw: what was drawn for it.
        cancelled_at: when it was taken back, where it is to end within its random time from then.

    Returns:
        None where it does not act, or no longer.
    """
    start = control.start + draw("start") * control.randomize_start
    seconds = max(control.seconds + draw("duration") * control.randomize_seconds, 1.0)
    if control.status in IN_FORCE:
        return Window(start, start + seconds)
    if control.status != Status.CANCELLED_RANDOMLY or cancelled_at <= start:
        return None
    end = min(start + seconds, cancelled_at + draw("cancel") * control.cancel_spread_seconds)
    return Window(start, end) if end > start else None


def bearing(control: Control) -> dict[str, Mode]:
    """What a control bears on, and by which mode; of two the stricter."""
    found: dict[str, Mode] = {}
    for mode in control.modes if control.for_us else ():
        key = mode.bears_on
        if key and (key not in found or _strictness(mode) < _strictness(found[key])):
            found[key] = mode
    return found


def pieces_of(
    program: Program,
    windows: Mapping[str, Window],
    cut_at: Callable[[str, str, float], float | None],
) -> list[Piece]:
    """What the controls of a program ask, superseded stretches left out.

    Args:
        program: as it stands.
        windows: of each control that acts.
        cut_at: (control, what it bears on, where a newer one begins or infinity) → where it ends,
            as far as a newer one ends it: what began once is remembered after that one is gone.
    """
    pieces = []
    for bears_on in (LIMIT, OFF):
        there = {
            name: (program.controls[name].created, window, bearing(program.controls[name]))
            for name, window in windows.items()
        }
        for name, (created, window, modes) in there.items():
            mode = modes.get(bears_on)
            if mode is None or mode.meaning.target is None:
                continue
            newer = [
                other.start
                for rival, (others, other, others_modes) in there.items()
                if others > created
                and bears_on in others_modes
                and _overlap(window, other)
                and program.controls[rival].status in IN_FORCE
            ]
            cut = cut_at(name, bears_on, min(newer, default=float("inf")))
            end = window.end if cut is None else min(window.end, cut)
            if end > window.start:
                priority = 0 if bears_on == OFF else program.primacy
                cut_window = Window(window.start, end)
                pieces.append(Piece(name, bears_on, cut_window, mode.meaning.target, priority))
    return pieces


def _overlap(one: Window, other: Window) -> bool:
    return other.start < one.end and one.start < other.end


def _strictness(mode: Mode) -> float:
    target = mode.meaning.target
    assert mode.meaning.disposition is Disposition.ACT
    return float("inf") if target is None else target.value


def default_target(default: Default, neutral_watts: float | None) -> TargetSpec | None:
    """The strictest that a default control asks; None = nothing."""
    targets = [
        mode.meaning.target
        for mode in default.modes
        if mode.meaning.disposition is Disposition.ACT and mode.meaning.target is not None
    ]
    strictest = min(targets, key=lambda target: target.value, default=None)
    if strictest is None or (neutral_watts is not None and strictest.value >= neutral_watts):
        return None
    return strictest
