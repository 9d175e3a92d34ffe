"""Telemetry reports of OpenADR 2.0b, made of samples of what the site draws. Pure.

TELEMETRY_USAGE has the mean power (kW) and the energy (kWh) of each interval, TELEMETRY_STATUS
whether the meter speaks and whether the site takes part. A value that was not measured is left out,
and never 0: energy needs 95 % of its interval, power half of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gridaware.control.ports import FeedTelemetry
from gridaware.domain.errors import InvalidInput
from gridaware.domain.event import EventState
from gridaware.domain.eventjson import printable
from gridaware.feeds.openadr2.xmltree import Node
from gridaware.feeds.openadr3.times import Now, after, read_duration, read_start

__all__ = ["ENERGY", "POWER", "STATUS", "ReportRequest", "Series", "offered", "read_request"]

POWER, ENERGY, STATUS = "power", "energy", "status"
"""Our rIDs."""
USAGE_SPECIFIER, STATUS_SPECIFIER = "gridaware-usage", "gridaware-status"
METADATA = "METADATA"
"""As a specifier: what can be reported is asked for, not a report."""
_R_IDS = {USAGE_SPECIFIER: (POWER, ENERGY), STATUS_SPECIFIER: (STATUS,)}
_NAMES = {USAGE_SPECIFIER: "TELEMETRY_USAGE", STATUS_SPECIFIER: "TELEMETRY_STATUS"}
GAP_SECONDS = 5.0
"""Samples further apart leave a hole."""
WHOLE, HALF = 0.95, 0.5
"""Of an interval: for its energy; for its mean power, which is then uncertain."""
INTERVALS_AT_MOST = 1000
LEAST, MOST = timedelta(seconds=1), timedelta(hours=1)
"""Granularity that can be had."""
ID_AT_MOST = 200
GOOD = "Quality Good - Non Specific"
UNCERTAIN = "Quality Uncertain - Non Specific"
BAD = "Quality Bad - Non Specific"
HELD = "No New Value - Previous Value Used"
_QUALITIES = {"good": GOOD, "held": HELD, "suspect": BAD}


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What a server wants reported."""

    request_id: str
    specifier_id: str
    r_ids: tuple[str, ...]
    granularity: timedelta
    """Length of an interval; none = what is now, once."""
    back: timedelta
    """Between two reports."""
    start: datetime | None
    end: datetime | None
    """None = until it is cancelled."""

    @property
    def name(self) -> str:
        """Of its reports."""
        return _NAMES[self.specifier_id]


def offered(resource_id: str, at: datetime, *, hertz: float, volts: float) -> list[dict[str, Any]]:
    """The METADATA reports that say what can be reported, for openleadr's template."""
    power = {
        "name": "powerReal",
        "description": "RealPower",
        "unit": "W",
        "scale": "k",
        "power_attributes": {"hertz": hertz, "voltage": volts, "ac": True},
    }
    energy = {"name": "energyReal", "description": "RealEnergy", "unit": "Wh", "scale": "k"}
    usage = [
        _description(POWER, "usage", "Mean", resource_id, power),
        _description(ENERGY, "usage", "Derived", resource_id, energy),
    ]
    status = [_description(STATUS, "x-resourceStatus", "x-notApplicable", resource_id, None)]
    return [
        {
            "report_name": f"{METADATA}_{_NAMES[specifier]}",
            "report_specifier_id": specifier,
            "report_request_id": "0",
            "duration": MOST,
            "created_date_time": at,
            "report_descriptions": descriptions,
        }
        for specifier, descriptions in ((USAGE_SPECIFIER, usage), (STATUS_SPECIFIER, status))
    ]


def read_request(request: Node, now: datetime) -> ReportRequest | None:
    """Read one ``oadrReportRequest``; None where it asks what can be reported.

    Raises:
        InvalidInput: it cannot be read, or asks for what we do not have (``openadr2-report``).
    """
    request_id = request.said("reportRequestID") or ""
    specifier = request.get("reportSpecifier") or Node("")
    specifier_id = specifier.said("reportSpecifierID") or ""
    if specifier_id == METADATA:
        return None
    known = _R_IDS.get(specifier_id)
    if known is None or not 0 < len(request_id) <= ID_AT_MOST:
        told = f"there is no report {printable(specifier_id)}"
        raise InvalidInput("openadr2-report", told)
    wanted = [payload.said("rID") for payload in specifier.all("specifierPayload")]
    unknown = [r_id for r_id in wanted if r_id not in known]
    if unknown:
        raise InvalidInput("openadr2-report", f"it has no {printable(str(unknown[0]))}")
    granularity = _length(specifier.said("granularity", "duration"), "granularity")
    back = specifier.said("reportBackDuration", "duration") or specifier.said("reportBackDuration")
    start, end = _interval(specifier.get("reportInterval", "properties"))
    if end is not None and end <= now:
        raise InvalidInput("openadr2-report", "its interval is over")
    return ReportRequest(
        request_id,
        specifier_id,
        tuple(r_id for r_id in known if not wanted or r_id in wanted),
        granularity if not granularity else min(max(granularity, LEAST), MOST),
        _length(back, "reportBackDuration") or granularity,
        start,
        end,
    )


class Series:
    """The reports of one request, sample by sample."""

    def __init__(self, request: ReportRequest) -> None:
        self.request = request
        self.over = False
        """Nothing more will come."""
        self._bin: _Bin | None = None
        self._last: FeedTelemetry | None = None
        self._done: list[_Bin] = []
        self._since: datetime | None = None

    def take(self, sample: FeedTelemetry) -> list[dict[str, Any]] | None:
        """Take one sample; returns the intervals of a report where one is due."""
        request = self.request
        if self.over or (request.start is not None and sample.at < request.start):
            return None
        if not request.granularity:
            self.over = True
            payloads = list(_now(sample, request.r_ids))
            return [{"start": sample.at, "length": None, "payloads": payloads}] if payloads else []
        due = self._closed(sample)
        if self._bin is None and not self.over:
            self._bin = self._opened(sample.at)
        if self._bin is not None:
            self._bin.add(self._last, sample, sample.at)
            self._bin.last = sample
        self._last = sample
        return due

    def _opened(self, at: datetime) -> "_Bin":
        request = self.request
        origin = request.start or self._since or at
        self._since = self._since or origin
        begin = origin + request.granularity * ((at - origin) // request.granularity)
        end = begin + request.granularity
        return _Bin(begin, end if request.end is None else min(end, request.end))

    def _closed(self, sample: FeedTelemetry) -> list[dict[str, Any]] | None:
        current, request = self._bin, self.request
        if current is None or sample.at < current.end:
            return None
        current.add(self._last, sample, current.end)
        self._done.append(current)
        del self._done[:-INTERVALS_AT_MOST]
        self._bin = None
        self.over = request.end is not None and sample.at >= request.end
        begun = self._done[0].begin
        if current.end - begun < request.back and not self.over:
            return None
        done, self._done = self._done, []
        found = []
        for each in done:
            payloads = list(each.payloads(request.r_ids))
            if payloads:
                length = each.end - each.begin
                found.append({"start": each.begin, "length": length, "payloads": payloads})
        return found or None


@dataclass(slots=True)
class _Bin:
    """What was seen of one interval."""

    begin: datetime
    end: datetime
    joules: float = 0.0
    seen_seconds: float = 0.0
    uncertain: bool = False
    last: FeedTelemetry | None = None

    def add(self, last: FeedTelemetry | None, sample: FeedTelemetry, until: datetime) -> None:
        """Count the time since the last sample, at the power that it said."""
        if last is None or last.site_watts is None:
            return
        begin = max(last.at, self.begin)
        seconds = (min(until, self.end) - begin).total_seconds()
        if seconds <= 0 or sample.seconds - last.seconds > GAP_SECONDS:
            return
        self.joules += last.site_watts * seconds
        self.seen_seconds += seconds
        self.uncertain = self.uncertain or last.quality not in {"good", ""}

    def payloads(self, r_ids: Sequence[str]) -> Iterator[dict[str, Any]]:
        share = self.seen_seconds / (self.end - self.begin).total_seconds()
        quality = GOOD if share >= WHOLE and not self.uncertain else UNCERTAIN
        for r_id in r_ids:
            if r_id == POWER and share >= HALF:
                yield _number(POWER, self.joules / self.seen_seconds / 1e3, quality)
            elif r_id == ENERGY and share >= WHOLE:
                yield _number(ENERGY, self.joules / 3.6e6, quality)
            elif r_id == STATUS and self.last is not None:
                yield _status(self.last)


def _now(sample: FeedTelemetry, r_ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    for r_id in r_ids:
        if r_id == POWER and sample.site_watts is not None:
            yield _number(POWER, sample.site_watts / 1e3, _QUALITIES.get(sample.quality, GOOD))
        elif r_id == STATUS:
            yield _status(sample)


def _number(r_id: str, value: float, quality: str) -> dict[str, Any]:
    return {"r_id": r_id, "value": round(value, 6), "quality": quality}


def _status(sample: FeedTelemetry) -> dict[str, Any]:
    out = any(event.state is EventState.OPTED_OUT for event in sample.events)
    return {
        "r_id": STATUS,
        "value": None,
        "online": sample.site_watts is not None,
        "override": out or not sample.act,
        "quality": _QUALITIES.get(sample.quality, GOOD if sample.quality == "" else BAD),
    }


def _description(
    r_id: str, kind: str, reading: str, resource_id: str, measurement: dict[str, Any] | None
) -> dict[str, Any]:
    return {
        "r_id": r_id,
        "report_type": kind,
        "reading_type": reading,
        "report_data_source": {"resource_id": resource_id},
        "measurement": measurement,
        "sampling_rate": {"min_period": LEAST, "max_period": MOST, "on_change": False},
    }


def _length(text: str | None, field: str) -> timedelta:
    if text is None:
        return timedelta(0)
    length = read_duration(text, field)
    if length.months or length.endless:
        raise InvalidInput("openadr2-report", f"{field} {printable(text)} is too long")
    return timedelta(seconds=length.seconds)


def _interval(properties: Node | None) -> tuple[datetime | None, datetime | None]:
    said = None if properties is None else properties.said("dtstart", "date-time")
    if properties is None or said is None:
        return None, None
    start = read_start(said, "the start of the report", None)
    if isinstance(start, Now):
        return None, None
    length = read_duration(
        properties.said("duration", "duration") or "PT0S", "the duration of the report"
    )
    end = None if length.zero else after(start, length)
    return start.astimezone(UTC), end
