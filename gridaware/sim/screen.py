"""What the demo shows while it runs: a live screen on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

__all__ = ["Picture", "Screen"]

BAR_CELLS = 46
LINE_SECONDS = 5.0
_STATE_STYLES = {"running": "green", "capped": "yellow", "pausing": "yellow", "paused": "red"}


@dataclass(slots=True)
class Picture:
    """One look at the site."""

    seconds: float
    """Since the demo began."""
    phase: str
    status: Mapping[str, Any]
    jobs: Sequence[Mapping[str, Any]]
    event: Mapping[str, Any] | None = None
    full_watts: float = 1.0
    """End of the power bar's scale."""
    notes: list[str] = field(default_factory=list)


class Screen:
    """Shows pictures until it is left."""

    def __init__(self) -> None:
        self.console = Console(stderr=False, highlight=False)
        self._live: Live | None = None
        self._told: list[tuple[float, str]] = []
        self._states: dict[str, str] = {}
        self._next_line = 0.0

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=8, transient=False)
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
            self._live = None

    def say(self, seconds: float, text: str) -> None:
        """Tell one thing that has happened."""
        self._told.append((seconds, text))
        if self._live is None:
            sys.stdout.write(f"{seconds:6.1f} s  {text}\n")
            sys.stdout.flush()

    def show(self, picture: Picture) -> None:
        """Show how things stand."""
        self._tell_changes(picture)
        if self._live is not None:
            self._live.update(self._drawn(picture))
        elif picture.seconds >= self._next_line:
            self._next_line = picture.seconds + LINE_SECONDS
            jobs = "  ".join(f"{_id(job)} {job['state']}" for job in picture.jobs)
            sys.stdout.write(f"{picture.seconds:6.1f} s  {_power(picture)}   {jobs}\n")
            sys.stdout.flush()

    def _tell_changes(self, picture: Picture) -> None:
        for job in picture.jobs:
            before, now = self._states.get(_id(job)), str(job["state"])
            if before != now:
                self._states[_id(job)] = now
                why = job.get("why") or ""
                self.say(picture.seconds, f"{_id(job)}: {now} - {why}")

    def _drawn(self, picture: Picture) -> Panel:
        table = Table(box=None, padding=(0, 2, 0, 0), expand=True)
        for name in ("job", "tier", "gpus", "state", "cap", "draw", "steps/s", "why"):
            right = name in {"gpus", "cap", "draw", "steps/s"}
            table.add_column(name, justify="right" if right else "left", no_wrap=name != "why")
        for job in picture.jobs:
            cap, state = job.get("cap_watts"), str(job["state"])
            table.add_row(
                _id(job),
                str(job["tier"]),
                str(job["gpus"]),
                Text(state, style=_STATE_STYLES.get(state, "")),
                f"{cap:.0f} W" if cap else "-",
                f"{job['draw_watts'] / 1e3:.2f} kW",
                f"{job['steps_per_second']:.2f}",
                str(job.get("plan_why") or job.get("why") or ""),
            )
        told = [Text(f"{at:6.1f} s  {text}", style="dim") for at, text in self._told[-7:]]
        title = f"gridaware demo · {picture.seconds:.0f} s · {picture.phase}"
        body = Group(Text(_power(picture)), _bar(picture), Text(""), table, Text(""), *told)
        return Panel(body, title=title, subtitle="simulated GPUs, real Ray · Ctrl-C stops")


def _id(job: Mapping[str, Any]) -> str:
    return str(job["job_id"])


def _power(picture: Picture) -> str:
    watts = picture.status.get("power_watts") or 0.0
    target = picture.status.get("target_watts")
    aimed = f"target {target / 1e3:5.2f} kW" if target else "no target     "
    left = ""
    if picture.event is not None:
        left = f"   event {picture.event['state']}"
    return f"meter {watts / 1e3:5.2f} kW   {aimed}{left}"


def _bar(picture: Picture) -> Text:
    """Measured power as a bar, with the target marked on it."""
    watts = float(picture.status.get("power_watts") or 0.0)
    target = picture.status.get("target_watts")
    filled = round(BAR_CELLS * min(watts / picture.full_watts, 1.0))
    mark = None if not target else round(BAR_CELLS * min(target / picture.full_watts, 1.0))
    text = Text()
    for cell in range(BAR_CELLS + 1):
        if cell == mark:
            text.append("┃", style="bold magenta")
        else:
            text.append("█" if cell < filled else "░", style="cyan" if cell < filled else "dim")
    return text
