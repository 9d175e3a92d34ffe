"""Messages to and from a VTN, by openleadr's templates.

The templates are rendered in an environment of our own that escapes every value: what a server says
is said back to it, and must not become markup there. Reading is ours too (:mod:`.xmltree`): the
library reads a message whole or not at all, and takes `P1W` for no time at all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gridaware.domain.errors import Bug, ConfigError, GridawareError
from gridaware.feeds.openadr2.envelope import Message, message_in
from gridaware.feeds.openadr2.xmltree import read_xml

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["EVENT", "Wire", "require_library"]

EVENT = "oadrEvent"
"""Elements whose raw text is kept."""

_NAMESPACES = (
    'xmlns:oadr="http://openadr.org/oadr-2.0b/2012/07" '
    'xmlns:ei="http://docs.oasis-open.org/ns/energyinterop/201110" '
    'xmlns:pyld="http://docs.oasis-open.org/ns/energyinterop/201110/payloads" '
    'xmlns:strm="urn:ietf:params:xml:ns:icalendar-2.0:stream" '
    'xmlns:xcal="urn:ietf:params:xml:ns:icalendar-2.0"'
)
_UPDATE_REPORT = (
    f'<oadr:oadrSignedObject {_NAMESPACES} oadr:Id="oadrSignedObject">'
    """
<oadr:oadrUpdateReport ei:schemaVersion="2.0b"><pyld:requestID>{{ request_id }}</pyld:requestID>
<oadr:oadrReport><strm:intervals>
{% for each in intervals %}
{% for payload in each.payloads %}
<ei:interval>
<xcal:dtstart><xcal:date-time>{{ each.start|datetimeformat }}</xcal:date-time></xcal:dtstart>
{% if each.length %}
<xcal:duration><xcal:duration>{{ each.length|timedeltaformat }}</xcal:duration></xcal:duration>
{% endif %}
<oadr:oadrReportPayload><ei:rID>{{ payload.r_id }}</ei:rID>
{% if payload.value is not none %}
<ei:payloadFloat><ei:value>{{ payload.value }}</ei:value></ei:payloadFloat>
{% else %}
<oadr:oadrPayloadResourceStatus>
<oadr:oadrOnline>{{ payload.online|booleanformat }}</oadr:oadrOnline>
<oadr:oadrManualOverride>{{ payload.override|booleanformat }}</oadr:oadrManualOverride>
</oadr:oadrPayloadResourceStatus>
{% endif %}
<oadr:oadrDataQuality>{{ payload.quality }}</oadr:oadrDataQuality>
</oadr:oadrReportPayload>
</ei:interval>
{% endfor %}
{% endfor %}
</strm:intervals>
<ei:reportRequestID>{{ report_request_id }}</ei:reportRequestID>
<ei:reportSpecifierID>{{ report_specifier_id }}</ei:reportSpecifierID>
<ei:reportName>{{ report_name }}</ei:reportName>
<ei:createdDateTime>{{ created|datetimeformat }}</ei:createdDateTime>
</oadr:oadrReport><ei:venID>{{ ven_id }}</ei:venID></oadr:oadrUpdateReport>
</oadr:oadrSignedObject>
"""
)
"""Ours, because the library's reports know no status of a resource. One payload an interval:
its server reads no more."""


@dataclass(frozen=True, slots=True)
class Wire:
    """Makes messages and opens answers.

    Args:
        sign: makes a signature for a signed object; None = messages go unsigned.
        verify: returns the signed object of an answer if its signature holds, and refuses it
            otherwise; None = signatures are not looked at.
    """

    sign: Callable[[str], str] | None = None
    verify: Callable[[bytes, datetime], Message] | None = None

    def make(self, kind: str, **payload: Any) -> bytes:
        """A message by its name, such as ``oadrPoll``, as bytes."""
        templates = _environment()
        from openleadr.preflight import preflight_message
        from openleadr.utils import flatten_xml

        try:
            checked = preflight_message(kind, payload)
            signed_object = flatten_xml(templates.get_template(f"{kind}.xml").render(**checked))
            body = templates.get_template("oadrPayload.xml").render(
                template=kind,
                signature=None if self.sign is None else self.sign(signed_object),
                signed_object=signed_object,
            )
        except GridawareError:
            raise
        except Exception as error:
            raise Bug("openadr2-message", f"{kind}: {type(error).__name__}") from error
        return body.encode()

    def open(self, body: bytes, now: datetime) -> Message:
        """The message in an answer.

        Raises:
            InvalidInput: it is no XML of ours to read, or in no envelope.
            Refused: its signature does not hold.
        """
        message = message_in(read_xml(body, keep=EVENT))
        return message if self.verify is None else self.verify(body, now)


def require_library() -> None:
    """Check that openleadr is there.

    Raises:
        ConfigError: it is not (``extra-missing``).
    """
    try:
        import openleadr  # noqa: F401 - only whether it is there
    except ImportError:
        told = "this needs gridaware[openadr2], which is absent"
        raise ConfigError("extra-missing", told) from None


_made: list["Environment"] = []


def _environment() -> "Environment":
    if not _made:
        from jinja2 import ChoiceLoader, DictLoader, Environment, PackageLoader
        from openleadr import utils

        ours = DictLoader({"oadrUpdateReport.xml": _UPDATE_REPORT})
        made = Environment(
            loader=ChoiceLoader([ours, PackageLoader("openleadr", "templates")]),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        for name in ("datetimeformat", "timedeltaformat", "booleanformat"):
            made.filters[name] = getattr(utils, name)
        _made.append(made)
    return _made[0]
