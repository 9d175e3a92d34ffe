"""What a message of DSX Flex 1.7.0 says: a CloudEvent 1.0.2 in structured JSON, and its data. Pure.

The signature covers the data alone. Who said it, when, and under which id is the broker's word.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gridaware.domain.errors import InvalidInput, Refused
from gridaware.domain.eventjson import instant, json_object, printable, refuse_unknown_keys

__all__ = [
    "LOAD_TARGET",
    "POWER_BREACH",
    "POWER_ENFORCEMENT",
    "POWER_STATE",
    "UNITS",
    "CloudEvent",
    "Target",
    "check_source",
    "check_time",
    "read_event",
    "read_targets",
]

LOAD_TARGET = "grid.loadtarget.set.v1"
POWER_STATE = "grid.powerstate.status.v1"
POWER_BREACH = "grid.powerbreach.alert.v1"
POWER_ENFORCEMENT = "grid.powerbreach.enforcement.v1"
TYPES = (LOAD_TARGET, POWER_STATE, POWER_BREACH, POWER_ENFORCEMENT)

UNITS: Mapping[str, float] = {"watt": 1.0, "kilowatt": 1e3, "megawatt": 1e6}
"""Watts of a unit."""
WATTS_ABSURD = 1e11
TARGETS_AT_MOST = 300
"""Of one message: a day of five minutes, and some."""
TAGS_AT_MOST = 64
TEXT_AT_MOST = 512
_SPEC_VERSIONS = ("1.0.2", "1.0")
"""The schema's, and what libraries of CloudEvents write."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SOURCE = re.compile(r"//grid/v1/(isv|poweragent|dsx-flex-agent|infra)/([^/\s]{1,200})")
_TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""W3C Trace Context: neither id is all zeros, and there is no version ff."""


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """The envelope."""

    event_id: str
    source: str
    type: str
    time: datetime
    subject: str
    traceparent: str
    tracestate: str | None
    correlation_id: str | None
    data: str | dict[str, object]
    """Signed data is text, plain data an object."""


@dataclass(frozen=True, slots=True)
class Target:
    """One load target of a message."""

    start: datetime | None
    """None = now."""
    end: datetime | None
    """None = until it is replaced."""
    tags: tuple[str, ...]
    """Empty = every power feed."""
    value: float | None
    """In ``unit``; None = back to the default."""
    unit: str
    best_effort: bool

    @property
    def watts(self) -> float | None:
        """Its limit."""
        return None if self.value is None else self.value * UNITS[self.unit]


def read_event(body: bytes) -> CloudEvent:
    """The envelope of a message.

    Raises:
        InvalidInput: a code of :func:`json_object`, ``dsx-attribute`` (one that is required is
            missing, or is not what the schema says), ``dsx-traceparent`` or ``dsx-type``.
    """
    values = json_object(body)
    if values.get("specversion") not in _SPEC_VERSIONS:
        raise InvalidInput("dsx-attribute", "specversion is not 1.0.2")
    if values.get("datacontenttype") != "application/json":
        raise InvalidInput("dsx-attribute", "datacontenttype is not application/json")
    traceparent = values.get("traceparent")
    if not isinstance(traceparent, str) or not _TRACE.fullmatch(traceparent):
        raise InvalidInput("dsx-traceparent", "there is no W3C traceparent")
    source, kind = _text(values, "source"), _text(values, "type")
    if not _SOURCE.fullmatch(source):
        raise InvalidInput("dsx-attribute", "source is not of the form //grid/v1/<role>/<id>")
    if kind not in TYPES:
        raise InvalidInput("dsx-type", f"{printable(kind)!r} is no type of DSX Flex 1.7")
    data = values.get("data")
    if not isinstance(data, str | dict):
        raise InvalidInput("dsx-attribute", "data is neither signed text nor an object")
    return CloudEvent(
        event_id=_uuid(values, "id"),
        source=source,
        type=kind,
        time=instant(values.get("time"), "time"),
        subject=_text(values, "subject"),
        traceparent=traceparent,
        tracestate=_text(values, "tracestate") if "tracestate" in values else None,
        correlation_id=_uuid(values, "correlationid") if "correlationid" in values else None,
        data=data,
    )


def check_source(event: CloudEvent, source: str) -> None:
    """Refuse what another says.

    Raises:
        Refused: ``dsx-source``.
    """
    if event.source != source:
        raise Refused("dsx-source", f"{printable(event.source)} is not {source}")


def check_time(event: CloudEvent, now: datetime, age: timedelta, ahead: timedelta) -> None:
    """Refuse a message that is too old, or of a clock that is ahead of ours.

    Raises:
        Refused: ``dsx-stale`` or ``dsx-future``.
    """
    if event.time > now + ahead:
        early = (event.time - now).total_seconds()
        raise Refused("dsx-future", f"it says that it was said {early:.0f} s from now")
    if event.time < now - age:
        raise Refused("dsx-stale", f"it was said more than {age.total_seconds() / 3600:g} h ago")


def read_targets(data: Mapping[str, object]) -> tuple[Target, ...]:
    """The load targets of ``grid.loadtarget.set.v1``: all of them, or none.

    A message is one statement about a schedule. Half of one could bring a default back and leave
    out the limit that was meant to take its place.

    Raises:
        InvalidInput: ``dsx-targets``, ``dsx-target-malformed``, ``dsx-target-value``,
            ``dsx-target-unit``, ``dsx-target-key-unknown``, or a code of a time.
    """
    targets = data.get("targets")
    if not isinstance(targets, list) or not 1 <= len(targets) <= TARGETS_AT_MOST:
        raise InvalidInput("dsx-targets", f"targets is no list of 1 to {TARGETS_AT_MOST}")
    return tuple(_target(target) for target in targets)


def _target(given: object) -> Target:
    target = _object(given, "a target")
    refuse_unknown_keys(
        target, ("interval", "feed_tags", "load_constraint", "strategy"), "dsx-target"
    )
    for key in ("interval", "load_constraint"):
        if key not in target:
            raise InvalidInput("dsx-target-malformed", f"a target has no {key}")
    interval = _object(target["interval"], "interval")
    refuse_unknown_keys(interval, ("start_time", "end_time"), "dsx-target")
    start, end = _time(interval, "start_time"), _time(interval, "end_time")
    if start is not None and end is not None and end <= start:
        raise InvalidInput("end-before-start", "a target ends before it starts")
    strategy = _object(target.get("strategy") or {}, "strategy")
    best_effort = strategy.get("best_effort", False)
    if not isinstance(best_effort, bool):
        raise InvalidInput("dsx-target-malformed", "best_effort is neither true nor false")
    value, unit = _constraint(target["load_constraint"])
    return Target(start, end, _tags(target.get("feed_tags")), value, unit, best_effort)


def _constraint(given: object) -> tuple[float | None, str]:
    if given is None:
        return None, "watt"
    constraint = _object(given, "load_constraint")
    refuse_unknown_keys(constraint, ("value", "unit"), "dsx-target")
    value, unit = constraint.get("value"), constraint.get("unit")
    if not isinstance(unit, str) or unit not in UNITS:
        raise InvalidInput("dsx-target-unit", f"the unit is none of {', '.join(UNITS)}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput("dsx-target-value", "the value of a target is no number")
    if not 0 < value <= WATTS_ABSURD / UNITS[unit]:  # NaN too
        raise InvalidInput("dsx-target-value", "a target is not above 0 and at most 100 GW")
    return float(value), unit


def _tags(given: object) -> tuple[str, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > TAGS_AT_MOST:
        raise InvalidInput("dsx-target-malformed", f"feed_tags is no list of {TAGS_AT_MOST}")
    if not all(isinstance(tag, str) and 0 < len(tag) <= TEXT_AT_MOST for tag in given):
        raise InvalidInput("dsx-target-malformed", "a feed tag is no text")
    return tuple(given)


def _time(interval: Mapping[str, object], key: str) -> datetime | None:
    return None if interval.get(key) is None else instant(interval[key], key)


def _object(given: object, what: str) -> Mapping[str, object]:
    if not isinstance(given, dict):
        raise InvalidInput("dsx-target-malformed", f"{what} is no object")
    return given


def _text(values: Mapping[str, object], key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_AT_MOST:
        raise InvalidInput("dsx-attribute", f"{key} is no text of at most {TEXT_AT_MOST}")
    return value


def _uuid(values: Mapping[str, object], key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str) or not _UUID.fullmatch(value.lower()):
        raise InvalidInput("dsx-attribute", f"{key} is no UUID")
    return value.lower()
