"""The frequency of a virtual grid: recorded traces, a made-up one, and a meter that replays them.

A trace is CSV: a header, then ``t_s,f_hz`` by line, times growing. The made-up one is the swing
equation of one bus after a loss of generation, with load damping and governors behind a dead band::

    df/dt = f0 / (2 E) * (governors + damping * (f0 - f) - loss)

2 750 MW is the largest loss that ERCOT plans for; with 200 GW s of kinetic energy the frequency
begins to fall at 0.41 Hz/s. Damping and governors are assumed, so that it turns at about 59.46 Hz,
above load shedding at 59.3 Hz. It is **synthetic**: nobody measured it.
"""

import contextlib
import csv
import math
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

from gridaware.clock import SystemClock
from gridaware.domain.errors import ConfigError, InvalidInput
from gridaware.domain.frequency import FrequencyRule

__all__ = [
    "DatagramMeter",
    "Sample",
    "around_first_crossing",
    "open_frequency",
    "read_trace",
    "swing_fall",
]

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
_RAMP_HZ_PER_SECOND = 0.5
_LONELY_SECONDS = 0.02


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


def around_first_crossing(
    trace: Sequence[Sample], rule: FrequencyRule, lead_seconds: float, after_seconds: float
) -> tuple[list[Sample], Sample]:
    """A stretch that can be replayed again and again, from 0 s on, and the crossing as recorded.

    It goes from nominal to the trace, over its first crossing, and back to nominal for 2 s. A trace
    that ends early stays where it ends.

    Raises:
        InvalidInput: the trace does not cross the trigger (``frequency-trace``).
    """
    crossing = next(((t, hz) for t, hz in trace if hz <= rule.trigger_hz), None)
    if crossing is None:
        raise InvalidInput("frequency-trace", f"it never comes down to {rule.trigger_hz} Hz")
    begin, end = crossing[0] - lead_seconds, crossing[0] + after_seconds
    cut = [(t, hz) for t, hz in trace if begin <= t <= end]
    pace = (cut[-1][0] - cut[0][0]) / max(len(cut) - 1, 1) or _LONELY_SECONDS
    while cut[-1][0] + pace <= end:
        cut.append((cut[-1][0] + pace, cut[-1][1]))
    lead = _ramp(rule.nominal_hz, cut[0][1], pace)
    start = cut[0][0] - len(lead) * pace
    stretch = [(n * pace, hz) for n, hz in enumerate(lead)] + [(t - start, hz) for t, hz in cut]
    back = [*_ramp(cut[-1][1], rule.nominal_hz, pace), *([rule.nominal_hz] * round(2.0 / pace))]
    last = stretch[-1][0]
    return stretch + [(last + (n + 1) * pace, hz) for n, hz in enumerate(back)], crossing


def _ramp(first_hz: float, last_hz: float, pace: float) -> list[float]:
    """From one frequency to just before another, no faster than 0.5 Hz/s."""
    steps = max(math.ceil(abs(last_hz - first_hz) / (_RAMP_HZ_PER_SECOND * pace)), 1)
    return [first_hz + (last_hz - first_hz) * n / steps for n in range(steps)]


def open_frequency(options: Mapping[str, str]) -> "Replay":
    """A meter that replays ``trace`` once in real time and is then silent.

    Raises:
        ConfigError: ``frequency-options``.
    """
    if options.keys() != {"trace"}:
        raise ConfigError("frequency-options", "the replayed meter has one option: trace")
    return Replay(read_trace(Path(options["trace"])))


class DatagramMeter:
    """A meter that sends each sample to agents' sockets, on this machine's monotonic clock."""

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = [str(place) for place in places]
        self._clock = SystemClock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def show(self, hz: float) -> None:
        """Deliver one sample to everybody who listens."""
        line = f"{self._clock.monotonic_seconds():.6f},{hz:.6f}".encode()
        for place in self._places:
            with contextlib.suppress(OSError):
                self._socket.sendto(line, place)

    def close(self) -> None:
        """Fall silent."""
        self._socket.close()


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
