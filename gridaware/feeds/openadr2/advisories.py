"""What OpenADR 2.0b events tell without asking for anything, as advisories."""

import re
from collections.abc import Iterator
from datetime import datetime

from gridaware.domain.advisory import Advisory, AdvisoryQuality
from gridaware.domain.eventjson import printable
from gridaware.feeds.ids import source_id
from gridaware.feeds.kind import Disposition
from gridaware.feeds.openadr2.payloads import SCALES
from gridaware.feeds.openadr2.reading import EventReading, Part

__all__ = ["advisories_of"]

_UNFIT = re.compile(r"[^a-z0-9_]+")
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
    if not reading.ours or reading.cancelled:
        return
    for part in reading.parts:
        over = part.end is not None and part.end <= received_at
        if part.meaning.disposition is not Disposition.ADVISORY or over:
            continue
        quantity, value, unit = _quantity(part)
        text = f"{part.kind}: {part.meaning.reason}" if reading.test else part.kind
        yield Advisory(
            feed_id=feed_id,
            source_id=source_id(name, part.name),
            quantity=quantity,
            value=value,
            unit=unit,
            text=printable(text, TEXT_AT_MOST),
            start=part.start,
            end=part.end,
            quality=AdvisoryQuality.PUBLISHED,
            received_at=received_at,
        )


def _quantity(part: Part) -> tuple[str, float | None, str]:
    """Its name, its value and its unit; a price per kWh becomes one per MWh."""
    said = part.meaning.value
    value = float(said) if isinstance(said, float) else None
    name, _, kind = part.kind.lower().partition("/")
    scale = SCALES.get(part.unit.scale)
    price = name in {"electricity_price", "energy_price"} and kind == "price"
    if price and part.unit.item == "currencyPerKWh" and scale is not None and value is not None:
        return "price_per_mwh", value * scale * 1000, printable(f"{part.unit.unit}/MWh", 32)
    return _UNFIT.sub("_", f"openadr_{name}_{kind}")[:64], value, part.unit.shown
