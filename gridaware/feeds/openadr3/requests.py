"""The reports that an event asks for: its report descriptors, each read by itself."""

from collections.abc import Mapping
from dataclasses import dataclass

from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import printable
from gridaware.feeds.kind import RefusedPart
from gridaware.feeds.openadr3.targets import read_targets

__all__ = ["ReportRequest", "read_report_requests"]

DESCRIPTORS_AT_MOST = 100
_INTERVALS = ("INTERVALS", "SUB_INTERVALS", "OPEN_INTERVALS")
_CODE = "descriptor-malformed"


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """One ``reportDescriptor``, with the specification's defaults for what it leaves out."""

    payload_type: str
    reading_type: str | None = None
    units: str | None = None
    targets: frozenset[str] | None = None
    aggregate: bool = False
    start_interval: int = -1
    """-1 = at the end of the last."""
    interval_count: int = -1
    """-1 = all."""
    historical: bool = True
    frequency: int = -1
    """Intervals between reports; -1 = as many as they cover, 0 = whenever we choose."""
    repeat: int = 1
    """-1 = for ever."""
    report_intervals: str = "INTERVALS"


def read_report_requests(value: object, faults: list[RefusedPart]) -> tuple[ReportRequest, ...]:
    """The descriptors that can be read; each other one becomes a fault."""
    if value is None:
        return ()
    if not isinstance(value, list):
        faults.append(RefusedPart("report descriptors", _CODE, "they are not a list"))
        return ()
    found = []
    for number, each in enumerate(value[:DESCRIPTORS_AT_MOST]):
        try:
            found.append(_request(each))
        except InvalidInput as error:
            faults.append(RefusedPart(f"report descriptor {number}", _CODE, error.message))
    if len(value) > DESCRIPTORS_AT_MOST:
        faults.append(RefusedPart("report descriptors", _CODE, "there are more than 100"))
    return tuple(found)


def _request(value: object) -> ReportRequest:
    if not isinstance(value, Mapping):
        raise _wrong("it is not an object")
    kind = value.get("payloadType")
    if not isinstance(kind, str) or not 0 < len(kind) <= 128:
        near = next((str(k) for k in value if str(k).lower() == "payloadtype"), None)
        hint = "" if near in {None, "payloadType"} else f"; it has {printable(str(near), 40)}"
        raise _wrong(f"it has no payloadType{hint}")
    intervals = value.get("reportIntervals")
    if intervals is not None and intervals not in _INTERVALS:
        raise _wrong("its reportIntervals is not one of OpenADR's")
    return ReportRequest(
        payload_type=kind,
        reading_type=_text(value, "readingType"),
        units=_text(value, "units"),
        targets=read_targets(value.get("targets")),
        aggregate=_flag(value, "aggregate", default=False),
        start_interval=_count(value, "startInterval", -1),
        interval_count=_count(value, "numIntervals", -1),
        historical=_flag(value, "historical", default=True),
        frequency=_count(value, "frequency", -1),
        repeat=_count(value, "repeat", 1),
        report_intervals=intervals or "INTERVALS",
    )


def _text(value: Mapping[str, object], key: str) -> str | None:
    text = value.get(key)
    if text is not None and not (isinstance(text, str) and len(text) <= 128):
        raise _wrong(f"its {key} is not text")
    return text


def _flag(value: Mapping[str, object], key: str, *, default: bool) -> bool:
    flag = value.get(key)
    if flag is None:
        return default
    if not isinstance(flag, bool):
        raise _wrong(f"its {key} is neither true nor false")
    return flag


def _count(value: Mapping[str, object], key: str, default: int) -> int:
    count = value.get(key)
    if count is None:
        return default
    if isinstance(count, bool) or not isinstance(count, int) or not -1 <= count < 2**31:
        raise _wrong(f"its {key} is not a whole number from -1")
    return count


def _wrong(message: str) -> InvalidInput:
    return InvalidInput("descriptor-malformed", message)
