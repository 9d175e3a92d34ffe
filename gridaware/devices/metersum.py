"""Several meters that enclose the site together: the feeds of a supply, or every PDU of a hall.

They are read at the same time. A sum with a part missing is no sum: it fails, and the site's order
has the next meter.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import fsum

from gridaware.control.ports import Meter
from gridaware.domain.reading import Boundary, EnergyReading, Method, Quality, Reading

__all__ = ["SumMeter"]


class SumMeter:
    """Adds up the parts; as old as the oldest of them.

    Args:
        parts: each reads within a time of its own; none of them is in another.
    """

    def __init__(self, parts: Sequence[Meter]) -> None:
        self.pace_seconds = max(part.pace_seconds for part in parts)
        self._parts = tuple(parts)
        self._pool = ThreadPoolExecutor(len(parts), "meter-part")

    def read(self) -> tuple[Reading, EnergyReading | None]:
        """Power of all parts, and their counters where every part has one.

        Raises:
            GridawareError: of the first part that cannot be read.
        """
        read = list(self._pool.map(lambda part: part.read(), self._parts))
        readings = [reading for reading, _ in read]
        counters = [energy for _, energy in read if energy is not None]
        power = Reading(
            fsum(reading.watts for reading in readings),
            min(reading.at for reading in readings),
            _boundary(readings),
            Method.METER,
            next((r.quality for r in readings if r.quality is not Quality.GOOD), Quality.GOOD),
            disturbed=any(reading.disturbed for reading in readings),
            accuracy_share=_accuracy(readings),
            age_seconds=max(reading.age_seconds for reading in readings),
        )
        if len(counters) < len(read):
            return power, None
        epoch = "+".join(counter.epoch for counter in counters)
        joules = fsum(counter.joules for counter in counters)
        return power, EnergyReading(joules, epoch, power.at, power.boundary)

    def close(self) -> None:
        """Give every connection up; a later read dials again."""
        for part in self._parts:
            part.close()


def _boundary(readings: Sequence[Reading]) -> Boundary:
    """What all of them enclose; less than a site where one of them does."""
    found = {reading.boundary for reading in readings}
    return found.pop() if len(found) == 1 else Boundary.NODE


def _accuracy(readings: Sequence[Reading]) -> float | None:
    """The errors of all parts at their worst, since meters of one kind err the same way."""
    whole = fsum(abs(reading.watts) for reading in readings)
    shares = [r.accuracy_share for r in readings if r.accuracy_share is not None]
    if len(shares) < len(readings) or whole == 0:
        return None
    return fsum(s * abs(r.watts) for s, r in zip(shares, readings, strict=True)) / whole
