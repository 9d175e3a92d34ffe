"""Which of a site's meters a figure came from, and when: each change of meter starts a new span."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from gridaware.domain.reading import Method, Reading

__all__ = ["MeterLog", "MeterSpan", "meter_warnings", "within"]


@dataclass(frozen=True, slots=True)
class MeterSpan:
    """A stretch of time in which one meter was read."""

    start: float
    """UTC seconds of its first reading; minus infinity for the first span."""
    end: float
    """Of the next meter's first; infinity for the last span."""
    meter: str
    method: str
    boundary: str
    accuracy_share: float | None
    """The truth lies within ± this share of a reading; None = nobody says."""


class MeterLog:
    """The spans of a site, in the order of time."""

    def __init__(self) -> None:
        self._spans: list[MeterSpan] = []

    def note(self, reading: Reading) -> None:
        """A reading was believed."""
        at = reading.at.timestamp()
        span = MeterSpan(
            at if self._spans else -inf,
            inf,
            reading.meter,
            reading.method,
            reading.boundary,
            reading.accuracy_share,
        )
        last = self._spans[-1] if self._spans else None
        if last is not None:
            if _who(last) == _who(span):
                return
            self._spans[-1] = _cut(last, last.start, max(at, last.start))
        self._spans.append(span)

    @property
    def spans(self) -> tuple[MeterSpan, ...]:
        """All of them."""
        return tuple(self._spans)

    def forget_before(self, at: float) -> None:
        """Drop spans that ended before an instant."""
        self._spans = [span for span in self._spans if span.end > at]


def within(spans: Iterable[MeterSpan], start: float, end: float) -> tuple[MeterSpan, ...]:
    """The spans between two instants, UTC seconds, cut to them."""
    return tuple(
        _cut(span, max(span.start, start), min(span.end, end))
        for span in spans
        if span.start < end and span.end > start
    )


def meter_warnings(meters: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """What a reader should know of the meters behind a figure: (name, method) of each."""
    used = set(meters)
    sums = [method == Method.DEVICE_SUM for _, method in used]
    if sums and all(sums):
        return ("meter-is-device-sum",)
    found = ["meter-changed"] if len(used) > 1 else []
    return (*found, "meter-part-device-sum") if any(sums) else tuple(found)


def _who(span: MeterSpan) -> tuple[str, str, str]:
    return span.meter, span.method, span.boundary


def _cut(span: MeterSpan, start: float, end: float) -> MeterSpan:
    return MeterSpan(start, end, span.meter, span.method, span.boundary, span.accuracy_share)
