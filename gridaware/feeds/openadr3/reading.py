"""One event of OpenADR 3, read: what it asks, of whom, when, and what of it cannot be read.

Tolerant part by part: a descriptor, an interval or a payload that cannot be read is refused alone,
and whatever does not depend on it stands.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import BODY_BYTES_AT_MOST
from gridaware.domain.signal import SECONDS_ABSURD
from gridaware.feeds.kind import Disposition, RefusedPart
from gridaware.feeds.openadr3.intervals import (
    Draw,
    Interval,
    Period,
    Window,
    read_interval,
    read_period,
    windows_of,
)
from gridaware.feeds.openadr3.payloads import Meaning, Units, meanings_of
from gridaware.feeds.openadr3.reading_settings import Rules
from gridaware.feeds.openadr3.requests import ReportRequest, read_report_requests
from gridaware.feeds.openadr3.targets import concerns, read_targets
from gridaware.feeds.openadr3.times import Duration, after, read_duration

__all__ = ["EventReading", "Part", "read_event", "read_units", "undrawn"]

INTERVALS_AT_MOST = 5000
PARTS_AT_MOST = 10_000
ID_AT_MOST = 128
_EVENT_KEYS = {"intervals", "intervalPeriod", "programID", "eventName", "reportDescriptors"}
_OF_OTHERS = {"programName", "reportName", "venName", "resourceName", "objectOperations"}


@dataclass(frozen=True, slots=True)
class Part:
    """One payload of one interval, or one of its values where they share the interval."""

    name: str
    """Unique within its event, and the same at every reading: interval, repetition, type."""
    kind: str
    start: datetime
    end: datetime | None
    """None = until it is taken back."""
    immediate: bool
    """It starts when it is heard of."""
    units: Units
    meaning: Meaning


@dataclass(frozen=True, slots=True)
class EventReading:
    """An event as far as it can be read. ``raw`` is kept as it came."""

    event_id: str | None
    name: str
    program_id: str | None
    priority: int | None
    """0 = the most important, None = the least."""
    created: str
    """``createdDateTime`` as it came: with the id, what tells an event from a later one that the
    server gave the same id."""
    start: datetime | None
    end: datetime | None
    """None with a start: open."""
    cancelled: bool
    """Its window was made to have no length."""
    ours: bool
    """It is for everybody, or for us."""
    parts: tuple[Part, ...]
    requests: tuple[ReportRequest, ...]
    """The reports that it asks for."""
    faults: tuple[RefusedPart, ...]
    raw: Mapping[str, object]

    def raw_text(self) -> str:
        """The event as JSON of at most 64 KiB, for the ledger."""
        try:
            text = json.dumps(self.raw, separators=(",", ":"))
        except (ValueError, RecursionError):
            return ""
        return text[:BODY_BYTES_AT_MOST]


def undrawn(name: str) -> float:
    """For a person's look: every start as it was sent."""
    del name
    return 0.0


def read_event(
    raw: object,
    rules: Rules,
    *,
    now: datetime,
    heard_at: datetime | None = None,
    program_units: Mapping[str, Units] | None = None,
    draw: Draw = undrawn,
) -> EventReading:
    """Read one event object, with the keys of the specification.

    Args:
        raw: the decoded JSON; only read.
        rules: made of the feed's settings.
        now: what is over is judged by it.
        heard_at: when this event was heard of first, which is what "now" means in it; None = now.
        program_units: what the program's payload descriptors say, where the event's say nothing.
        draw: of ``randomizeStart``: a number of -1 to 1 by name, drawn once and kept.

    Raises:
        InvalidInput: it is no event, or its own id, period, targets or duration cannot be read.
    """
    event = _object(raw)
    zone, faults = rules.zone, list[RefusedPart]()
    default = read_period(event.get("intervalPeriod"), "the event", zone)
    said = event.get("duration")
    lasting = None if said is None else read_duration(said, "the duration of the event")
    intervals = _intervals(event, rules, faults)
    asks_reports = bool(event.get("reportDescriptors"))
    cancelled = _cancelled(default, intervals, rules, asks_reports=asks_reports)
    heard = (heard_at or now).astimezone(UTC)
    parts: list[Part] = []
    start = end = None
    ours = concerns(read_targets(event.get("targets")), rules.ours)
    if not cancelled:
        windows, lost = windows_of(default, intervals, lasting, heard_at=heard, now=now, draw=draw)
        faults += lost
        units = {**(program_units or {}), **read_units(event.get("payloadDescriptors"), faults)}
        void = default is not None and default.void and rules.version != "3.0.1"
        for window in windows:
            idle = void and window.interval.period is None
            made = _parts(window, units, rules, faults)
            parts += [_idle(part) for part in made] if idle else made
            if len(parts) > PARTS_AT_MOST:
                raise InvalidInput("event-payloads-many", "the event has more than 10000 payloads")
        parts = [_judged(part, now, ours=ours) for part in parts]
        start, end = _span(default, lasting, windows, heard)
    return EventReading(
        event_id=_event_id(event),
        name=_text(event.get("eventName")),
        program_id=_text(event.get("programID")) or None,
        priority=_priority(event.get("priority"), faults),
        created=_text(event.get("createdDateTime")),
        start=start,
        end=end,
        cancelled=cancelled,
        ours=ours,
        parts=tuple(parts),
        requests=read_report_requests(event.get("reportDescriptors"), faults),
        faults=tuple(faults),
        raw=event,
    )


def read_units(value: object, faults: list[RefusedPart]) -> dict[str, Units]:
    """What payload descriptors say, by payload type; one that cannot be read is a fault alone."""
    if value is None:
        return {}
    if not isinstance(value, list):
        faults.append(RefusedPart("payload descriptors", "descriptor-malformed", "not a list"))
        return {}
    found: dict[str, Units] = {}
    for number, each in enumerate(value[:1000]):
        kind = each.get("payloadType") if isinstance(each, Mapping) else None
        unit = each.get("units") if isinstance(each, Mapping) else None
        currency = each.get("currency") if isinstance(each, Mapping) else None
        texts = all(
            text is None or (isinstance(text, str) and len(text) <= 128)
            for text in (unit, currency)
        )
        if not isinstance(kind, str) or not kind or not texts:
            where = f"payload descriptor {number}"
            faults.append(
                RefusedPart(where, "descriptor-malformed", "no payloadType, or no text of units")
            )
            continue
        found[kind] = Units(unit or None, currency or None)
    return found


# ----------------------------------------------------------------------------------------------


def _object(raw: object) -> Mapping[str, object]:
    if not isinstance(raw, Mapping):
        raise InvalidInput("event-not-object", "the event is not a JSON object")
    kind = raw.get("objectType")
    if kind is not None and kind != "EVENT":
        raise InvalidInput("event-other-object", "the object is not an event")
    if kind is None and (_OF_OTHERS & raw.keys() or not _EVENT_KEYS & raw.keys()):
        raise InvalidInput("event-other-object", "the object is not an event")
    return raw


def _event_id(event: Mapping[str, object]) -> str | None:
    value = event.get("id")
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= ID_AT_MOST:
        raise InvalidInput("event-id-malformed", "the event's id is not 1 to 128 characters")
    return value


def _intervals(
    event: Mapping[str, object], rules: Rules, faults: list[RefusedPart]
) -> list[Interval]:
    value = event.get("intervals")
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInput("interval-malformed", "the event's intervals are not a list")
    if len(value) > INTERVALS_AT_MOST:
        raise InvalidInput("event-intervals-many", "the event has more than 5000 intervals")
    seen: set[str] = set()
    intervals = []
    for position, each in enumerate(value):
        interval, fault = read_interval(each, position, seen, rules.zone)
        intervals.append(interval)
        faults += [] if fault is None else [fault]
    return intervals


def _cancelled(
    default: Period | None, intervals: Sequence[Interval], rules: Rules, *, asks_reports: bool
) -> bool:
    """Whether the period is the one that cancels (User Guide 7.9), and nothing lives beside it."""
    if default is None or not default.void or asks_reports:
        return False
    if rules.version == "3.0.1":
        return not intervals
    return all(each.period is None and each.placeable for each in intervals)


def _parts(
    window: Window, units: Mapping[str, Units], rules: Rules, faults: list[RefusedPart]
) -> list[Part]:
    interval, parts = window.interval, list[Part]()
    place = interval.name + (f".r{window.cycle}" if window.cycle else "")
    counts: dict[str, int] = {}
    for number, each in enumerate(interval.payloads):
        payload: Mapping[str, object] = each if isinstance(each, Mapping) else {}
        kind = payload.get("type")
        if not isinstance(kind, str) or not 0 < len(kind) <= 128:
            if not window.cycle:
                where = f"interval {interval.position}, payload {number}"
                faults.append(RefusedPart(where, "payload-malformed", "it has no type"))
            continue
        counts[kind] = counts.get(kind, 0) + 1
        name = f"{place}.{kind}" + (f"-{counts[kind]}" if counts[kind] > 1 else "")
        known = units.get(kind, Units())
        meanings = meanings_of(kind, payload.get("values"), known, rules)
        for index, meaning in enumerate(meanings):
            start, end = _share(window, index, len(meanings))
            if end is not None and end <= start:
                continue  # a share of less than a microsecond
            label = name if len(meanings) == 1 else f"{name}.{index}"
            parts.append(Part(label, kind, start, end, window.immediate, known, meaning))
    return parts


def _share(window: Window, index: int, count: int) -> tuple[datetime, datetime | None]:
    """One of ``count`` equal parts of a window; of one without an end every part is the whole.

    What lasts longer than an event may has no end.
    """
    if window.end is None or (window.end - window.start).total_seconds() > SECONDS_ABSURD:
        return window.start, None
    if count == 1:
        return window.start, window.end
    length = (window.end - window.start) / count
    end = window.end if index == count - 1 else window.start + length * (index + 1)
    return window.start + length * index, end


def _idle(part: Part) -> Part:
    """What would act in a period without any length, at the beginning of time, does not."""
    if part.meaning.disposition is not Disposition.ACT:
        return part
    reason = "its window was made to have no length"
    return replace(
        part, meaning=replace(part.meaning, disposition=Disposition.ADVISORY, reason=reason)
    )


def _judged(part: Part, now: datetime, *, ours: bool) -> Part:
    meaning = part.meaning
    if meaning.disposition is not Disposition.ACT:
        return part
    code = reason = ""
    if not ours:
        code, reason = "event-for-others", "its targets name others alone"
    elif part.end is not None and part.end <= now:
        code, reason = "event-over", "over before it was heard"
    if not code:
        return part
    refused = replace(meaning, disposition=Disposition.REFUSED, code=code, reason=reason)
    return replace(part, meaning=refused)


def _span(
    default: Period | None,
    lasting: Duration | None,
    windows: Sequence[Window],
    heard_at: datetime,
) -> tuple[datetime | None, datetime | None]:
    """From the first instant to the last; without intervals, the event's own period."""
    if windows:
        ends = [window.end for window in windows]
        last = None if None in ends else max(end for end in ends if end is not None)
        return min(window.start for window in windows), last
    if default is None or default.start is None:
        return None, None
    start = default.start if isinstance(default.start, datetime) else heard_at
    length = lasting or default.duration
    if length is None or length.zero:
        return start.astimezone(UTC), None
    return start.astimezone(UTC), after(start, length)


def _priority(value: object, faults: list[RefusedPart]) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 11:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**31:
        faults.append(RefusedPart("priority", "priority-range", "not a whole number from 0"))
        return None
    return value


def _text(value: object) -> str:
    return value[:ID_AT_MOST] if isinstance(value, str) else ""
