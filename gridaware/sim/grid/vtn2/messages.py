"""Messages of a VTN as text, in the order that the profile's schema wants."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape

__all__ = ["DrEvent", "DrSignal", "created_report", "distributed", "message", "report_request"]

_NAMESPACES = (
    ("oadr", "http://openadr.org/oadr-2.0b/2012/07"),
    ("ei", "http://docs.oasis-open.org/ns/energyinterop/201110"),
    ("pyld", "http://docs.oasis-open.org/ns/energyinterop/201110/payloads"),
    ("emix", "http://docs.oasis-open.org/ns/emix/2011/06"),
    ("power", "http://docs.oasis-open.org/ns/emix/2011/06/power"),
    ("scale", "http://docs.oasis-open.org/ns/emix/2011/06/siscale"),
    ("xcal", "urn:ietf:params:xml:ns:icalendar-2.0"),
    ("strm", "urn:ietf:params:xml:ns:icalendar-2.0:stream"),
)
_DECLARED = " ".join(f'xmlns:{prefix}="{uri}"' for prefix, uri in _NAMESPACES)
_OK = "<ei:eiResponse><ei:responseCode>{}</ei:responseCode>{}<pyld:requestID>{}</pyld:requestID>"
POWER_KW = ("power:powerReal", "RealPower", "W", "k")


@dataclass(frozen=True, slots=True)
class DrSignal:
    """One signal: intervals of (duration, value), and its unit where it has one."""

    name: str = "SIMPLE"
    kind: str = "level"
    intervals: Sequence[tuple[str | None, float | str]] = (("PT1H", 2),)
    item: tuple[str, str, str, str] | None = None
    """Element, description, unit and scale code, such as ``POWER_KW``."""
    devices: Sequence[str] = ()
    """Classes of devices that it is for."""
    starts: Mapping[int, datetime | str] = field(default_factory=dict)
    """Own starts of intervals by their number."""


@dataclass(frozen=True, slots=True)
class DrEvent:
    """One event."""

    event_id: str
    start: datetime | str
    duration: str = "PT1H"
    """PT0S = until it is cancelled."""
    modification: int | str = 0
    status: str = "far"
    signals: Sequence[DrSignal] = (DrSignal(),)
    targets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names by kind: ``venID``, ``groupID``, ``resourceID``, ..."""
    response: str = "always"
    test: str | None = None
    priority: int | str | None = None
    start_after: str | None = None

    def xml(self) -> str:
        """The ``oadrEvent`` element."""
        return (
            f"<oadr:oadrEvent><ei:eiEvent>{self._descriptor()}{self._period()}"
            f"<ei:eiEventSignals>{''.join(map(_signal, self.signals))}</ei:eiEventSignals>"
            f"<ei:eiTarget>{self._targets()}</ei:eiTarget></ei:eiEvent>"
            f"{_tag('oadr:oadrResponseRequired', self.response)}</oadr:oadrEvent>"
        ).replace("</oadr:oadrEvent>", "</oadr:oadrEvent>\n")

    def _descriptor(self) -> str:
        return (
            f"<ei:eventDescriptor>{_tag('ei:eventID', self.event_id)}"
            f"{_tag('ei:modificationNumber', self.modification)}"
            f"{_tag('ei:priority', self.priority)}"
            "<ei:eiMarketContext><emix:marketContext>http://market.example/dr"
            "</emix:marketContext></ei:eiMarketContext>"
            "<ei:createdDateTime>2026-11-30T08:00:00Z</ei:createdDateTime>"
            f"{_tag('ei:eventStatus', self.status)}{_tag('ei:testEvent', self.test)}"
            "</ei:eventDescriptor>"
        )

    def _period(self) -> str:
        tolerance = ""
        if self.start_after is not None:
            after = _tag("xcal:startafter", self.start_after)
            tolerance = f"<xcal:tolerance><xcal:tolerate>{after}</xcal:tolerate></xcal:tolerance>"
        return (
            f"<ei:eiActivePeriod><xcal:properties>{_start(self.start)}{_lasting(self.duration)}"
            f"{tolerance}</xcal:properties><xcal:components/></ei:eiActivePeriod>"
        )

    def _targets(self) -> str:
        return "".join(_tag(f"ei:{kind}", n) for kind, names in self.targets.items() for n in names)


def message(kind: str, content: str, *, envelope: bool = True) -> bytes:
    """A message with ``content``, which is XML, in its envelope or without."""
    declared = "" if envelope else f" {_DECLARED}"
    body = f'<oadr:{kind} ei:schemaVersion="2.0b"{declared}>{content}</oadr:{kind}>'
    if envelope:
        signed = f'<oadr:oadrSignedObject oadr:Id="oadrSignedObject">{body}</oadr:oadrSignedObject>'
        body = f"<oadr:oadrPayload {_DECLARED}>{signed}</oadr:oadrPayload>"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'.encode()


def response(code: int = 200, told: str = "OK", request_id: str = "") -> str:
    """An ``eiResponse`` element."""
    described = _tag("ei:responseDescription", told)
    return _OK.format(code, described, escape(request_id)) + "</ei:eiResponse>"


def distributed(
    events: Iterable[DrEvent | str],
    *,
    vtn_id: str = "TEST_VTN",
    request_id: str = "REQ-1",
    envelope: bool = True,
) -> bytes:
    """An ``oadrDistributeEvent`` of ``events``, which may be XML already."""
    listed = "".join(event if isinstance(event, str) else event.xml() for event in events)
    content = f"{response()}{_tag('pyld:requestID', request_id)}{_tag('ei:vtnID', vtn_id)}{listed}"
    return message("oadrDistributeEvent", content, envelope=envelope)


def report_request(
    request_id: str,
    specifier_id: str,
    r_ids: Sequence[str],
    *,
    granularity: str = "PT1M",
    back: str = "PT1M",
    start: datetime | None = None,
    duration: str | None = None,
) -> str:
    """An ``oadrReportRequest`` element."""
    interval = ""
    if start is not None:
        lasting = _lasting(duration or "PT0S")
        interval = (
            f"<ei:reportInterval><xcal:properties>{_start(start)}{lasting}"
            "</xcal:properties></ei:reportInterval>"
        )
    wanted = "".join(
        f"<ei:specifierPayload>{_tag('ei:rID', r_id)}"
        "<ei:readingType>x-notApplicable</ei:readingType></ei:specifierPayload>"
        for r_id in r_ids
    )
    return (
        f"<oadr:oadrReportRequest>{_tag('ei:reportRequestID', request_id)}"
        f"<ei:reportSpecifier>{_tag('ei:reportSpecifierID', specifier_id)}"
        f"<xcal:granularity>{_tag('xcal:duration', granularity)}</xcal:granularity>"
        f"<ei:reportBackDuration>{_tag('xcal:duration', back)}</ei:reportBackDuration>"
        f"{interval}{wanted}</ei:reportSpecifier></oadr:oadrReportRequest>"
    )


def created_report(requests: Iterable[str], ven_id: str) -> bytes:
    """An ``oadrCreateReport`` of ``oadrReportRequest`` elements."""
    content = f"{_tag('pyld:requestID', 'REQ-R')}{''.join(requests)}{_tag('ei:venID', ven_id)}"
    return message("oadrCreateReport", content)


# ----------------------------------------------------------------------------------------------


def _tag(name: str, value: object) -> str:
    return "" if value is None else f"<{name}>{escape(str(value), quote=False)}</{name}>"


def _start(at: datetime | str) -> str:
    text = at if isinstance(at, str) else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"<xcal:dtstart>{_tag('xcal:date-time', text)}</xcal:dtstart>"


def _lasting(duration: str | None) -> str:
    if duration is None:
        return ""
    return f"<xcal:duration>{_tag('xcal:duration', duration)}</xcal:duration>"


def _signal(signal: DrSignal) -> str:
    intervals = "".join(
        f"<ei:interval>{_start(signal.starts[n]) if n in signal.starts else ''}{_lasting(duration)}"
        f"<xcal:uid><xcal:text>{n}</xcal:text></xcal:uid><ei:signalPayload><ei:payloadFloat>"
        f"{_tag('ei:value', value)}</ei:payloadFloat></ei:signalPayload></ei:interval>"
        for n, (duration, value) in enumerate(signal.intervals)
    )
    devices = "".join(
        f"<power:endDeviceAsset>{_tag('power:mrid', each)}</power:endDeviceAsset>"
        for each in signal.devices
    )
    return (
        f"<ei:eiEventSignal><strm:intervals>{intervals}</strm:intervals>"
        f"{f'<ei:eiTarget>{devices}</ei:eiTarget>' if devices else ''}"
        f"{_tag('ei:signalName', signal.name)}{_tag('ei:signalType', signal.kind)}"
        f"{_tag('ei:signalID', f'sig-{signal.name}'[:40])}{_item(signal.item)}</ei:eiEventSignal>"
    )


def _item(item: tuple[str, str, str, str] | None) -> str:
    if item is None:
        return ""
    name, description, unit, scale = item
    prefix = name.partition(":")[0]
    attributes = ""
    if name.startswith("power:power"):
        attributes = (
            "<power:powerAttributes><power:hertz>60</power:hertz><power:voltage>480"
            "</power:voltage><power:ac>true</power:ac></power:powerAttributes>"
        )
    return (
        f"<{name}>{_tag(f'{prefix}:itemDescription', description)}"
        f"{_tag(f'{prefix}:itemUnits', unit)}{_tag('scale:siScaleCode', scale)}"
        f"{attributes}</{name}>"
    )
