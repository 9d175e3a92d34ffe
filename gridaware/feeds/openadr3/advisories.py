"""What OpenADR 3 events tell without asking for anything, as advisories."""

import re
from collections.abc import Iterator
from datetime import datetime

from gridaware.domain.advisory import Advisory, AdvisoryQuality
from gridaware.domain.eventjson import printable
from gridaware.feeds.ids import source_id
from gridaware.feeds.kind import Disposition
from gridaware.feeds.openadr3.reading import EventReading, Part

__all__ = ["advisories_of"]

_UNFIT = re.compile(r"[^a-z0-9_]+")
_PRICES = {"PRICE": "price_per_mwh", "EXPORT_PRICE": "export_price_per_mwh"}
TEXT_AT_MOST = 500


def advisories_of(
    reading: EventReading, feed_id: str, name: str, received_at: datetime
) -> Iterator[Advisory]:
    """What of an event informs and is not over, for us.

    Args:
        reading: the event.
        feed_id: whose it is.
        name: of the event, as for its signals.
        received_at: UTC.
    """
    if not reading.ours:
        return
    for part in reading.parts:
        over = part.end is not None and part.end <= received_at
        if part.meaning.disposition is not Disposition.ADVISORY or over:
            continue
        quantity, value, unit = _quantity(part)
        yield Advisory(
            feed_id=feed_id,
            source_id=source_id(name, part.name),
            quantity=quantity,
            value=value,
            unit=unit,
            text=_text(part),
            start=part.start,
            end=part.end,
            quality=AdvisoryQuality.ESTIMATED if part.kind == "GHG" else AdvisoryQuality.PUBLISHED,
            received_at=received_at,
        )


def _quantity(part: Part) -> tuple[str, float | None, str]:
    """Its name, its value and its unit; a price per kWh becomes one per MWh."""
    said = part.meaning.value
    value = None if isinstance(said, bool | str) or said is None else float(said)
    unit = printable(part.units.unit or "", 32)
    currency = printable(part.units.currency or "", 8)
    if value is not None and part.kind in _PRICES and unit.upper() == "KWH" and currency:
        return _PRICES[part.kind], value * 1000, f"{currency}/MWh"
    if part.kind == "GHG":
        return "carbon_grams_per_kwh", value, "g/kWh"
    if part.kind.startswith("ALERT_"):
        return "alert", value, ""
    name = _UNFIT.sub("_", f"openadr_{part.kind.lower()}")[:64]
    return name, value, f"{currency}/{unit}"[:32] if currency else unit


def _text(part: Part) -> str:
    value = part.meaning.value
    said = f"{printable(part.kind, 128)}: {value}" if isinstance(value, str) else part.kind
    return printable(said, TEXT_AT_MOST)
