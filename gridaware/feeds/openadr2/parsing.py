"""`gridaware feed parse FILE --kind openadr2b`: what would become of each part of a message."""

from collections.abc import Iterator
from datetime import datetime

from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import printable
from gridaware.feeds.kind import Disposition, Parsed, ParsedRow, RefusedPart
from gridaware.feeds.openadr2.envelope import bare_message
from gridaware.feeds.openadr2.reading import EventReading, read_event
from gridaware.feeds.openadr2.reading_settings import ReadingSettings, rules_of
from gridaware.feeds.openadr2.xmltree import read_xml

__all__ = ["parse_message"]


def parse_message(
    body: bytes, now: datetime, settings: ReadingSettings | None, *, ven_id: str | None = None
) -> Parsed:
    """Read a message as far as it can be read; one that carries no events has no rows.

    Args:
        body: XML, in its envelope or, as the profile's samples come, without.
        now: what is over is judged by it.
        settings: of the feed; None = the defaults.
        ven_id: ours; None = any VEN is us.

    Raises:
        InvalidInput: nothing of it can be read.
        ConfigError: the settings contradict themselves.
    """
    rules = rules_of(settings or ReadingSettings())
    message = bare_message(read_xml(body))
    rows: list[ParsedRow] = []
    refused: list[RefusedPart] = []
    for number, event in enumerate(message.content.all("oadrEvent")):
        try:
            reading = read_event(event, rules, now=now, ven_id=ven_id)
        except InvalidInput as error:
            refused.append(RefusedPart(f"event {number}", error.code, error.message))
            continue
        rows += _rows(reading)
        refused += (
            RefusedPart(f"event {number}, {fault.where}", fault.code, fault.reason)
            for fault in reading.faults
        )
    return Parsed(tuple(rows), tuple(refused))


def _rows(reading: EventReading) -> Iterator[ParsedRow]:
    event_id = printable(reading.event_id, 200)
    if not reading.parts:
        reason = f"its event is {reading.status}" if reading.cancelled else "asks for nothing"
        yield ParsedRow(
            event_id, reading.start, reading.end, None, None, Disposition.ADVISORY, reason
        )
    for part in reading.parts:
        meaning = part.meaning
        yield ParsedRow(
            event_id,
            part.start,
            part.end,
            printable(part.kind, 128),
            meaning.value,
            meaning.disposition,
            meaning.reason,
            meaning.target if meaning.disposition is Disposition.ACT else None,
        )
