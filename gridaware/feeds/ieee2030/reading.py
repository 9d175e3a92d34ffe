"""What a DERControl, a DefaultDERControl and a DERProgram say. Pure.

Times are seconds of the server's own clock, as they came: whoever knows how far it is off makes
instants of them.
"""

from dataclasses import dataclass

from gridaware.domain.errors import InvalidInput
from gridaware.feeds.ieee2030.modes import Mode, Rules, modes_of
from gridaware.feeds.ieee2030.numbers import child, hexadecimal, whole_of
from gridaware.feeds.ieee2030.xml import Element, text_of

__all__ = [
    "CUSTOMER",
    "RECEIVED",
    "SPECIFIC",
    "Control",
    "Default",
    "Status",
    "read_control",
    "read_default",
    "reply_of",
]

RECEIVED, SPECIFIC, CUSTOMER = 0x01, 0x02, 0x04
"""Bits of ``responseRequired``: that it came; that it began, ended, was cancelled, and so on; that
the customer opted out."""
SPREAD_SECONDS_AT_MOST = 3600
TIME_AT_MOST = 2**40
RAW_AT_MOST = 32 * 1024
HREF_AT_MOST = 1000


class Status:
    """``EventStatus.currentStatus``."""

    SCHEDULED, ACTIVE, CANCELLED, CANCELLED_RANDOMLY, SUPERSEDED = range(5)


@dataclass(frozen=True, slots=True)
class Control:
    """One event, before random times are drawn."""

    mrid: str
    description: str
    start: int
    seconds: int
    created: int
    status: int
    status_at: int | None
    """When its status began, as far as it says."""
    randomize_start: int
    """The start moves by 0 to so many seconds; below zero it is earlier."""
    randomize_seconds: int
    for_us: bool
    modes: tuple[Mode, ...]
    reply_to: str
    """Where responses go; empty = nowhere."""
    response_required: int
    """Bits."""
    raw: str

    @property
    def is_cancelled(self) -> bool:
        """Whether the server took it back, at once or within its random time."""
        return self.status in {Status.CANCELLED, Status.CANCELLED_RANDOMLY}

    @property
    def cancel_spread_seconds(self) -> int:
        """Within how many seconds from its cancellation it ends."""
        if self.status != Status.CANCELLED_RANDOMLY:
            return 0
        return max(abs(self.randomize_start), abs(self.randomize_seconds))


@dataclass(frozen=True, slots=True)
class Default:
    """What holds while no event does."""

    mrid: str
    modes: tuple[Mode, ...]
    raw: str


def read_control(element: Element, rules: Rules) -> Control:
    """Read a DERControl; a mode of it that cannot be read is refused alone.

    Raises:
        InvalidInput: a part is missing or out of range (``ieee2030-control``).
    """
    _check_name(element, "DERControl")
    interval, status = child(element, "interval"), child(element, "EventStatus")
    spread = SPREAD_SECONDS_AT_MOST
    description = element.find("description")
    status_at = status.find("dateTime")
    return Control(
        mrid=_mrid(element),
        description="" if description is None else description.text[:192],
        start=whole_of(interval, "start", 0, TIME_AT_MOST),
        seconds=whole_of(interval, "duration", 1, 2**32 - 1),
        created=whole_of(element, "creationTime", 0, TIME_AT_MOST),
        status=whole_of(status, "currentStatus", 0, Status.SUPERSEDED),
        status_at=None if status_at is None else whole_of(status, "dateTime", 0, TIME_AT_MOST),
        randomize_start=whole_of(element, "randomizeStart", -spread, spread, 0),
        randomize_seconds=whole_of(element, "randomizeDuration", -spread, spread, 0),
        for_us=_for_us(element, rules),
        modes=modes_of(child(element, "DERControlBase"), rules),
        reply_to=element.attributes.get("replyTo", "")[:HREF_AT_MOST],
        response_required=_bits(element.attributes.get("responseRequired", "00")),
        raw=_raw(element),
    )


def read_default(element: Element, rules: Rules) -> Default:
    """Read a DefaultDERControl.

    Raises:
        InvalidInput: see :func:`read_control`.
    """
    _check_name(element, "DefaultDERControl")
    modes = modes_of(child(element, "DERControlBase"), rules)
    return Default(_mrid(element), modes, _raw(element))


def reply_of(element: Element) -> tuple[str, str, int]:
    """Of a control that cannot be read: its mRID, where responses go, and the bits for which.

    Raises:
        InvalidInput: not even that can be read.
    """
    attributes = element.attributes
    required = _bits(attributes.get("responseRequired", "00"))
    return _mrid(element), attributes.get("replyTo", "")[:HREF_AT_MOST], required


def _check_name(element: Element, name: str) -> None:
    if (element.space, element.name) != ("sep", name):
        raise InvalidInput("ieee2030-control", f"it is no {name} of 2030.5")


def _mrid(element: Element) -> str:
    return hexadecimal(child(element, "mRID").text, 32, "the mRID").upper()


def _raw(element: Element) -> str:
    return text_of(element).encode()[:RAW_AT_MOST].decode(errors="ignore")


def _for_us(element: Element, rules: Rules) -> bool:
    category = element.find("deviceCategory")
    if category is None or rules.device_category is None:
        return True
    return bool(int(hexadecimal(category.text, 8, "deviceCategory"), 16) & rules.device_category)


def _bits(text: str) -> int:
    return int(hexadecimal(text, 2, "responseRequired"), 16)
