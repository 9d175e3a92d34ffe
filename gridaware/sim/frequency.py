"""The frequency of a virtual grid: recorded traces, a made-up one, and a meter that replays them.

A trace is CSV: a header, then ``t_s,f_hz`` by line, times growing. The made-up one is the swing
equation of one bus after a loss of generation, with load damping and governors behind a dead band::

    df/dt = f0 / (2 E) * (governors + damping * (f0 - f) - loss)

2 750 MW is the largest loss that ERCOT plans for; with 200 GW s of kinetic energy the frequency
begins to fall at 0.41 Hz/s. Damping and governors are assumed, so that it turns at about 59.46 Hz,
above load shedding at 59.3 Hz. It is **synthetic**: nobody measured it.
"""

import csv
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

from gridaware.clock import SystemClock
from gridaware.domain.errors import ConfigError, InvalidInput

__all__ = ["Sample", "open_frequency", "read_trace", "swing_fall"]

Sample = tuple[float, float]
"""(Seconds, Hz)."""

NOMINAL_HZ: Final = 60.0
LOSS_MW: Final = 2750.0
KINETIC_MWS: Final = 200_000.0
DAMPING_MW_PER_HZ: Final = 800.0
GOVERNOR_MW_PER_HZ: Final = 10_000.0
GOVERNOR_DEAD_BAND_HZ: Final = 0.017
GOVERNOR_SECONDS: Final = 2.5
SAMPLES_PER_SECOND: Final = 60
"""A phasor unit of 60 Hz that reports each cycle."""
NOISE_HZ: Final = 0.0005
BEFORE_SECONDS: Final = 5.0
AFTER_SECONDS: Final = 15.0
_STEP_SECONDS = 0.001


def read_trace(path: Path) -> list[Sample]:
    """The samples of a file.

    Raises:
        InvalidInput: it cannot be read, or is no trace (``frequency-trace``).
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            samples = [(float(row["t_s"]), float(row["f_hz"])) for row in rows]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput("frequency-trace", f"{path} is no trace of t_s,f_hz: {error}") from error
    times = [t for t, _ in samples]
    if len(samples) < 2 or any(b <= a for a, b in pairwise(times)):
        raise InvalidInput("frequency-trace", f"{path}: times must grow, over two samples or more")
    return samples


def swing_fall(seed: int) -> list[Sample]:
    """A fall after 5 quiet seconds, as a meter with a little noise shows it."""
    random = Random(seed)  # noqa: S311 - measurement noise
    hz, governors = NOMINAL_HZ, 0.0
    samples = []
    steps = round((BEFORE_SECONDS + AFTER_SECONDS) / _STEP_SECONDS)
    shown = 0
    for step in range(steps):
        seconds = step * _STEP_SECONDS
        loss = LOSS_MW if seconds >= BEFORE_SECONDS else 0.0
        low = NOMINAL_HZ - hz
        wanted = GOVERNOR_MW_PER_HZ * max(low - GOVERNOR_DEAD_BAND_HZ, 0.0)
        governors += (wanted - governors) * _STEP_SECONDS / GOVERNOR_SECONDS
        surplus = governors + DAMPING_MW_PER_HZ * low - loss
        if seconds * SAMPLES_PER_SECOND >= shown:
            samples.append((shown / SAMPLES_PER_SECOND, hz + random.gauss(0.0, NOISE_HZ)))
            shown += 1
        hz += NOMINAL_HZ / (2 * KINETIC_MWS) * surplus * _STEP_SECONDS
    return samples


def open_frequency(options: Mapping[str, str]) -> "Replay":
    """A meter that replays ``trace`` once in real time and is then silent.

    Raises:
        ConfigError: ``frequency-options``.
    """
    if options.keys() != {"trace"}:
        raise ConfigError("frequency-options", "the replayed meter has one option: trace")
    return Replay(read_trace(Path(options["trace"])))


class Replay:
    """Implements :class:`gridaware.control.ports.FrequencySource`."""

    def __init__(self, trace: Sequence[Sample]) -> None:
        self._trace = trace
        self._closed = threading.Event()
        self._clock = SystemClock()

    def samples(self) -> Iterator[Sample]:
        """Each sample when it is due."""
        start = self._clock.monotonic_seconds() - self._trace[0][0]
        for seconds, hz in self._trace:
            if self._closed.wait(max(0.0, start + seconds - self._clock.monotonic_seconds())):
                return
            yield seconds, hz
        self._closed.wait()

    def close(self) -> None:
        """End."""
        self._closed.set()
