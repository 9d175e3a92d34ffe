"""What every benchmark shares: its arguments, one JSON object on stdout, and a clean end.

Everything else that is said goes to stderr. Interrupted (Ctrl-C, SIGTERM), a benchmark ends what it
has started, prints nothing on stdout and exits with 130.
"""

import argparse
import json
import math
import signal
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

__all__ = ["arguments", "quantiles_ms", "report"]

INTERRUPTED = 130


def arguments(name: str, page: str | None) -> argparse.ArgumentParser:
    """A parser with what every benchmark takes; ``page`` is the program's own docstring."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=page,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", choices=["json", "table"], default="json")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def report(
    measure: Callable[[argparse.Namespace], Mapping[str, Any]], options: argparse.Namespace
) -> int:
    """Measure and print; the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        figures = measure(options)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    if options.output == "json":
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        for name, value in _flat(figures):
            sys.stdout.write(f"{name:48} {value}\n")
    return 0


def quantiles_ms(seconds: Sequence[float], *, highest: bool = True) -> dict[str, float | None]:
    """p50, p99 (nearest rank) and, where asked for, max in milliseconds; None where none came."""
    ordered = sorted(seconds)
    names = ("p50", "p99", "max") if highest else ("p50", "p99")
    if not ordered:
        return dict.fromkeys(names)
    rank = max(math.ceil(0.99 * len(ordered)) - 1, 0)
    values = (statistics.median(ordered), ordered[rank], ordered[-1])
    return {name: round(1e3 * value, 2) for name, value in zip(names, values, strict=False)}


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Once is enough: what ends the processes must not be interrupted in turn."""
    del number, frame
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _flat(figures: object, name: str = "") -> list[tuple[str, object]]:
    """Every figure with its path."""
    if isinstance(figures, Mapping):
        items = [(f"{name}.{key}" if name else str(key), value) for key, value in figures.items()]
    elif isinstance(figures, list):
        items = [(f"{name}[{index}]", value) for index, value in enumerate(figures)]
    else:
        return [(name, figures)]
    return [line for path, value in items for line in _flat(value, path)]
