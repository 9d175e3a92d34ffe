"""`gridaware feed parse FILE --kind ieee2030`: what would become of each part of a document."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from gridaware.domain.errors import InvalidInput
from gridaware.domain.signal import SECONDS_ABSURD
from gridaware.feeds.ieee2030.modes import Mode
from gridaware.feeds.ieee2030.reading import Control, Status, read_control, read_default
from gridaware.feeds.ieee2030.settings import ReadingSettings, rules_of
from gridaware.feeds.ieee2030.windows import default_target
from gridaware.feeds.ieee2030.xml import SEP, Element, read_xml
from gridaware.feeds.kind import Disposition, Parsed, ParsedRow, RefusedPart

__all__ = ["EPOCH", "instant_of", "parse_document"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS_AT_MOST = 7_258_118_400
"""The year 2200."""
_GONE = {
    Status.CANCELLED: "cancelled by its server",
    Status.CANCELLED_RANDOMLY: "cancelled by its server, to end within its random time",
    Status.SUPERSEDED: "superseded by a newer control",
}
LISTS = ("DERControlList", "Notification", "Resource")


def instant_of(seconds: float) -> datetime:
    """The UTC instant of seconds since 1970, leap seconds not counted.

    Raises:
        InvalidInput: it is after the year 2200, or before 1970 (``ieee2030-control``).
    """
    if not 0 <= seconds <= SECONDS_AT_MOST:
        raise InvalidInput("ieee2030-control", f"the time {seconds:g} is absurd")
    return EPOCH + timedelta(seconds=seconds)


def parse_document(body: bytes, now: datetime, settings: ReadingSettings | None) -> Parsed:
    """Read a DERControlList, a DERControl, a DefaultDERControl, or a notification of them.

    The server's clock is taken to be right, and nothing is drawn: times are those that it says.

    Raises:
        InvalidInput: nothing of it can be read (``ieee2030-xml``, ``ieee2030-namespace``,
            ``ieee2030-control``).
    """
    root = read_xml(body)
    if root.space != SEP and root.name in {*LISTS, "DERControl", "DefaultDERControl"}:
        raise InvalidInput("ieee2030-namespace", f"{root.name} is of a vocabulary not known")
    rules = rules_of(settings or ReadingSettings())
    rows: list[ParsedRow] = []
    refused: list[RefusedPart] = []
    elements = list(_controls(root))
    if not elements and root.name not in LISTS:
        raise InvalidInput("ieee2030-control", "it is neither a DERControl nor a list of them")
    for number, element in enumerate(elements):
        where = f"{element.name} {number}"
        try:
            if element.name == "DERControl":
                found = list(_rows(read_control(element, rules), now))
            else:
                default = read_default(element, rules)
                found = list(_mode_rows(default.mrid, default.modes, now, None))
                if default_target(default, rules.neutral_watts) is None:
                    found = [_informing(row) for row in found]
        except InvalidInput as error:
            refused.append(RefusedPart(where, error.code, error.message))
            continue
        rows += found
    return Parsed(tuple(rows), tuple(refused))


def _controls(root: Element) -> Iterator[Element]:
    if root.name in {"DERControl", "DefaultDERControl"}:
        yield root
        return
    for each in root.children:
        if each.name in LISTS:
            yield from _controls(each)
        elif each.space == SEP and each.name in {"DERControl", "DefaultDERControl"}:
            yield each


def _rows(control: Control, now: datetime) -> Iterator[ParsedRow]:
    start = instant_of(control.start)
    end = None
    if control.seconds <= SECONDS_ABSURD:
        end = instant_of(control.start + control.seconds)
    gone = _GONE.get(control.status, "")
    if gone or not control.modes:
        disposition = Disposition.ACT if gone else Disposition.ADVISORY
        yield ParsedRow(
            control.mrid, start, end, None, None, disposition, gone or "it asks for nothing"
        )
        return
    for row in _mode_rows(control.mrid, control.modes, start, end):
        if row.disposition is not Disposition.ACT:
            yield row
        elif not control.for_us:
            yield _informing(row, "for devices of another category")
        elif end is not None and end <= now:
            yield ParsedRow(
                row.id, start, end, row.type, row.value, Disposition.REFUSED, "over", row.target
            )
        else:
            yield row


def _mode_rows(
    mrid: str, modes: Iterable[Mode], start: datetime, end: datetime | None
) -> Iterator[ParsedRow]:
    for mode in modes:
        meaning = mode.meaning
        yield ParsedRow(
            mrid,
            start,
            end,
            mode.name,
            mode.value,
            meaning.disposition,
            meaning.reason,
            meaning.target,
        )


def _informing(row: ParsedRow, reason: str = "it asks for nothing") -> ParsedRow:
    if row.disposition is not Disposition.ACT:
        return row
    return ParsedRow(row.id, row.start, row.end, row.type, row.value, Disposition.ADVISORY, reason)
