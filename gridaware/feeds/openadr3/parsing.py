"""`gridaware feed parse FILE --kind openadr3`: what would become of each part of a document."""

from collections.abc import Iterator
from datetime import datetime

from gridaware.domain.errors import InvalidInput
from gridaware.feeds.kind import Disposition, Parsed, ParsedRow, RefusedPart
from gridaware.feeds.openadr3.asks import with_reservations
from gridaware.feeds.openadr3.reading import EventReading, read_event
from gridaware.feeds.openadr3.reading_settings import ReadingSettings, rules_of
from gridaware.feeds.openadr3.shapes import decoded, events_in

__all__ = ["parse_document"]


def parse_document(body: bytes, now: datetime, settings: ReadingSettings | None) -> Parsed:
    """Read a document as far as it can be read.

    Args:
        body: JSON: an event, a list or page of events, or a notification of one.
        now: what is over, and what "now" is.
        settings: of the feed; None = the defaults.

    Raises:
        InvalidInput: nothing of it can be read.
        ConfigError: the settings contradict themselves.
    """
    rules = rules_of(settings or ReadingSettings())
    readings: list[EventReading] = []
    refused: list[RefusedPart] = []
    for number, event in enumerate(events_in(decoded(body))):
        try:
            reading = read_event(event, rules, now=now)
        except InvalidInput as error:
            refused.append(RefusedPart(f"event {number}", error.code, error.message))
            continue
        readings.append(reading)
        refused += (
            RefusedPart(f"event {number}, {fault.where}", fault.code, fault.reason)
            for fault in reading.faults
        )
    rows = [row for reading in with_reservations(readings) for row in _rows(reading)]
    return Parsed(tuple(rows), tuple(refused))


def _rows(reading: EventReading) -> Iterator[ParsedRow]:
    if not reading.parts:
        asked = ", ".join(request.payload_type for request in reading.requests)
        reason = f"asks for reports: {asked}" if asked else "asks for nothing"
        if reading.cancelled:
            reason = "taken back by its sender"
        yield ParsedRow(
            reading.event_id,
            reading.start,
            reading.end,
            None,
            None,
            Disposition.ADVISORY,
            reason,
        )
    for part in reading.parts:
        meaning = part.meaning
        acts = meaning.disposition is Disposition.ACT
        yield ParsedRow(
            reading.event_id,
            part.start,
            part.end,
            part.kind,
            meaning.value,
            meaning.disposition,
            meaning.reason,
            meaning.target if acts and part.kind != "IMPORT_CAPACITY_RESERVATION" else None,
        )
