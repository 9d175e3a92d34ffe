"""One event of OpenADR 2.0b, read: what it asks, of whom, when, and what of it cannot be read.

A signal that cannot be placed in time is refused alone, and so is an interval's value. Times are
the profile's: UTC, an active period with a duration of which zero means "until it is cancelled",
and intervals that follow one another.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import printable
from gridaware.domain.signal import SECONDS_ABSURD
from gridaware.feeds.kind import Disposition, RefusedPart
from gridaware.feeds.openadr2.payloads import Meaning, Unit, meaning_of, unit_of
from gridaware.feeds.openadr2.reading_settings import Rules
from gridaware.feeds.openadr2.xmltree import Node
from gridaware.feeds.openadr3.times import Now, after, read_duration, read_start

__all__ = ["STATUSES_OVER", "EventReading", "Part", "event_id_of_node", "read_event", "undrawn"]

INTERVALS_AT_MOST = 5000
ID_AT_MOST = 200
SPREAD_SECONDS_AT_MOST = 7 * 86400.0
STATUSES_OVER = ("cancelled", "completed")
_STATUSES = ("none", "far", "near", "active", *STATUSES_OVER)

Draw = Callable[[str], float]
"""Of ``startafter``: a number of -1 to 1 by name, drawn once and kept."""


@dataclass(frozen=True, slots=True)
class Part:
    """One interval of one signal."""

    name: str
    """Unique within its event, and the same at every reading."""
    kind: str
    """``SIGNAL_NAME/signalType``."""
    start: datetime
    end: datetime | None
    """None = until it is cancelled."""
    unit: Unit
    meaning: Meaning


@dataclass(frozen=True, slots=True)
class EventReading:
    """An event as far as it can be read."""

    event_id: str
    modification: int
    status: str
    """``none``, ``far``, ``near``, ``active``, ``completed`` or ``cancelled``."""
    test: bool
    answer: bool
    """Whether the server wants to hear whether we take part (``oadrResponseRequired``)."""
    priority: int | None
    """1 = the most important; None = the least (0, or none)."""
    ours: bool
    """It is for everybody, or for us."""
    start: datetime
    end: datetime | None
    parts: tuple[Part, ...]
    faults: tuple[RefusedPart, ...]

    @property
    def cancelled(self) -> bool:
        """Whether its sender says that it asks for nothing any more."""
        return self.status in STATUSES_OVER


def undrawn(name: str) -> float:
    """For a person's look: every start as it was sent."""
    del name
    return 0.0


def event_id_of_node(event: Node) -> str | None:
    """The id of an ``oadrEvent``; None where it has none that can be used."""
    found = event.said("eiEvent", "eventDescriptor", "eventID")
    return found if found is not None and len(found) <= ID_AT_MOST else None


def read_event(
    event: Node,
    rules: Rules,
    *,
    now: datetime,
    ven_id: str | None = None,
    draw: Draw = undrawn,
) -> EventReading:
    """Read one ``oadrEvent``.

    Args:
        event: the element.
        rules: made of the feed's settings.
        now: what is over is judged by it.
        ven_id: ours; None = any VEN is us.
        draw: of ``startafter``.

    Raises:
        InvalidInput: it is no event, or its id, number or active period cannot be read.
    """
    body = event.get("eiEvent")
    descriptor = None if body is None else body.get("eventDescriptor")
    event_id = event_id_of_node(event)
    if body is None or descriptor is None or event_id is None:
        raise InvalidInput("openadr2-event-id", "the event has no id of 1 to 200 characters")
    faults: list[RefusedPart] = []
    start, end, shift = _active_period(body, draw)
    status = (descriptor.said("eventStatus") or "none").lower()
    if status not in _STATUSES:
        faults.append(RefusedPart("status", "openadr2-status", f"{printable(status)} is none"))
    test = (descriptor.said("testEvent") or "false").lower() != "false"
    ours = _concerns(body.get("eiTarget"), ven_id, rules)
    parts: list[Part] = []
    signals = body.get("eiEventSignals") or Node("")
    seen: dict[str, int] = {}
    for number, signal in enumerate(signals.all("eiEventSignal")):
        name = _signal_name(signal, number, seen)
        for part in _parts(signal, name, (start, end), rules, faults):
            moved = replace(
                part,
                start=part.start + shift,
                end=None if part.end is None else part.end + shift,
            )
            parts.append(moved)
            if len(parts) > INTERVALS_AT_MOST:
                raise InvalidInput("event-intervals-many", "the event has more than 5000 intervals")
    reading = EventReading(
        event_id=event_id,
        modification=_modification(descriptor.said("modificationNumber")),
        status=status,
        test=test,
        answer=(event.said("oadrResponseRequired") or "always").lower() != "never",
        priority=_priority(descriptor.said("priority"), faults),
        ours=ours,
        start=start,
        end=end,
        parts=tuple(parts),
        faults=tuple(faults),
    )
    judged = tuple(_judged(part, reading, rules, now) for part in parts)
    return replace(reading, parts=judged)


# ----------------------------------------------------------------------------------------------


def _active_period(body: Node, draw: Draw) -> tuple[datetime, datetime | None, timedelta]:
    """When it begins and ends, and by how much we begin later (``startafter``)."""
    properties = body.get("eiActivePeriod", "properties")
    if properties is None:
        raise InvalidInput("openadr2-period", "the event has no active period")
    start = _instant(properties.said("dtstart", "date-time"), "the start of the event")
    said = properties.said("duration", "duration") or "PT0S"
    length = read_duration(said, "the duration of the event")
    end = None if length.zero else _bounded(start, after(start, length))
    tolerance = properties.said("tolerance", "tolerate", "startafter")
    if tolerance is None:
        return start, end, timedelta(0)
    spread = read_duration(tolerance, "startafter")
    if spread.months or spread.endless or spread.seconds > SPREAD_SECONDS_AT_MOST:
        raise InvalidInput(
            "openadr2-startafter", f"startafter {printable(tolerance)} is over a week"
        )
    return start, end, timedelta(seconds=abs(draw("start")) * spread.seconds)


def _instant(text: str | None, field: str) -> datetime:
    if text is None:
        raise InvalidInput("openadr2-period", f"{field} is missing")
    at = read_start(text, field, None)
    if isinstance(at, Now):
        raise InvalidInput("time-absurd", f"{field} lies at the beginning of time")
    return at.astimezone(UTC)


def _bounded(start: datetime, end: datetime | None) -> datetime | None:
    """An end; what lasts longer than an event may has none."""
    if end is None or (end - start).total_seconds() > SECONDS_ABSURD:
        return None
    return end


def _modification(text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 10:
        raise InvalidInput("openadr2-modification", "its modification number is not a whole number")
    return int(text)


def _priority(text: str | None, faults: list[RefusedPart]) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        faults.append(RefusedPart("priority", "priority-range", "not a whole number from 0"))
        return None
    return int(text) or None


def _signal_name(signal: Node, number: int, seen: dict[str, int]) -> str:
    name = (signal.said("signalID") or f"s{number}")[:ID_AT_MOST]
    seen[name] = seen.get(name, 0) + 1
    return name if seen[name] == 1 else f"{name}-{seen[name]}"


def _parts(
    signal: Node,
    name: str,
    period: tuple[datetime, datetime | None],
    rules: Rules,
    faults: list[RefusedPart],
) -> Iterator[Part]:
    kind_name, kind_type = signal.said("signalName"), signal.said("signalType")
    if not kind_name or not kind_type or len(kind_name) + len(kind_type) > 128:
        faults.append(
            RefusedPart(f"signal {printable(name)}", "signal-malformed", "it has no name")
        )
        return
    kind, unit = f"{kind_name}/{kind_type}", unit_of(signal)
    others = _other_devices(signal, rules)
    try:
        for number, (start, end, interval) in enumerate(_windows(signal, period)):
            meaning = meaning_of(kind, _value(interval), unit, rules)
            if others and meaning.disposition is Disposition.ACT:
                reason = f"for {printable(others)} alone"
                meaning = replace(meaning, disposition=Disposition.ADVISORY, reason=reason)
            yield Part(f"{name}.{number}", kind, start, end, unit, meaning)
    except InvalidInput as error:
        where = f"signal {printable(name, 40)}"
        faults.append(RefusedPart(where, error.code, error.message))


def _windows(
    signal: Node, period: tuple[datetime, datetime | None]
) -> list[tuple[datetime, datetime | None, Node]]:
    """Every interval's own window, within that of the event.

    An interval without a length lasts until the next one's own start, and the last one until the
    event's end. All of them are placed before any is used: a signal is taken whole.
    """
    begins, ends = period
    intervals = list((signal.get("intervals") or Node("")).all("interval"))
    if not intervals:
        raise InvalidInput("openadr2-intervals", "it has no intervals")
    found: list[tuple[datetime, datetime | None, Node]] = []
    at: datetime | None = begins
    for number, interval in enumerate(intervals):
        own = interval.said("dtstart", "date-time")
        start = at if own is None else _instant(own, f"the start of interval {number}")
        if start is None:
            raise InvalidInput("openadr2-interval-start", f"interval {number} follows no end")
        length = read_duration(
            interval.said("duration", "duration") or "PT0S", f"the duration of interval {number}"
        )
        end = _bounded(start, after(start, length))
        if length.zero:
            end = _next_start(intervals, number) if number + 1 < len(intervals) else ends
        at = end
        if ends is not None:
            end = ends if end is None else min(end, ends)
        if end is not None and end <= start:
            continue  # it lies behind the end of its event
        found.append((start, end, interval))
    return found


def _next_start(intervals: list[Node], number: int) -> datetime | None:
    own = intervals[number + 1].said("dtstart", "date-time")
    return None if own is None else _instant(own, f"the start of interval {number + 1}")


def _value(interval: Node) -> str | None:
    payload = interval.get("signalPayload")
    if payload is None:
        return None
    for kind in ("payloadFloat", "payloadInt", "payloadBoolean"):
        said = payload.said(kind, "value")
        if said is not None:
            return said
    return None


def _concerns(target: Node | None, ven_id: str | None, rules: Rules) -> bool:
    """Whether a target includes us, or nobody by name."""
    if target is None:
        return True
    vens = {node.text.strip() for node in target.all("venID")} - {""}
    named = {
        node.text.strip()
        for kind in ("groupID", "groupName", "resourceID", "partyID")
        for node in target.all(kind)
    } - {""}
    if ven_id in vens or (ven_id is None and vens) or named & rules.ours:
        return True
    if vens:
        return False
    return not (named and rules.ours)


def _other_devices(signal: Node, rules: Rules) -> str:
    """The classes of devices that a signal is for, where the site has none of them."""
    target = signal.get("eiTarget") or Node("")
    classes = [asset.said("mrid") or "" for asset in target.all("endDeviceAsset")]
    if not classes or any(each.lower() in rules.device_classes for each in classes):
        return ""
    return ", ".join(classes)


def _judged(part: Part, reading: EventReading, rules: Rules, now: datetime) -> Part:
    """What would act does not, where its event does not let it."""
    meaning = part.meaning
    if meaning.disposition is not Disposition.ACT:
        return part
    if not reading.ours:
        code, reason = "event-for-others", "its targets name others alone"
    elif reading.cancelled:
        code, reason = "event-over", f"its event is {reading.status}"
    elif part.end is not None and part.end <= now:
        code, reason = "event-over", "over before it was heard"
    elif reading.test and not rules.tests_act:
        informs = replace(meaning, disposition=Disposition.ADVISORY, reason="a test event")
        return replace(part, meaning=informs)
    else:
        return part
    refused = replace(meaning, disposition=Disposition.REFUSED, code=code, reason=reason)
    return replace(part, meaning=refused)
