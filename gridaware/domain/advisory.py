"""Advisories: what the grid says without asking for anything, normalised."""

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gridaware.domain.errors import InvalidInput

__all__ = ["Advisory", "AdvisoryQuality"]

TEXT_AT_MOST = 500
ID_AT_MOST = 128
_QUANTITY = re.compile(r"[a-z][a-z0-9_]{0,63}")


class AdvisoryQuality(StrEnum):
    """How far a value can be trusted; an estimate stays one wherever it is shown."""

    MEASURED = "measured"
    PUBLISHED = "published"
    """Set by its publisher, such as a price or an alert: true by being said."""
    ESTIMATED = "estimated"
    FORECAST = "forecast"


@dataclass(frozen=True, slots=True)
class Advisory:
    """One thing heard that only informs: a price, a carbon intensity, an alert, a forecast.

    It never moves a cap by itself: a feed whose settings make it act does so by a signal.
    """

    feed_id: str
    source_id: str
    """The sender's name of it, at most 128 characters."""
    quantity: str
    """In snake case with its unit where it has one: ``price_per_mwh``, ``alert``."""
    value: float | None
    """None where only the text says something."""
    unit: str
    text: str
    start: datetime
    end: datetime | None
    """None = until it is replaced."""
    quality: AdvisoryQuality
    received_at: datetime

    def __post_init__(self) -> None:
        if not _QUANTITY.fullmatch(self.quantity):
            raise InvalidInput("advisory-quantity", "a quantity is 1 to 64 of a-z 0-9 _")
        if self.value is not None and not math.isfinite(self.value):
            raise InvalidInput("advisory-not-finite", f"{self.quantity} is {self.value}")
        if len(self.source_id) > ID_AT_MOST or len(self.text) > TEXT_AT_MOST or len(self.unit) > 32:
            raise InvalidInput("advisory-too-long", f"the text of {self.quantity} is too long")
        for instant in (self.start, self.end, self.received_at):
            if instant is not None and instant.utcoffset() != timedelta(0):
                raise InvalidInput("advisory-not-utc", f"a time of {self.quantity} is not UTC")
        if self.end is not None and self.end <= self.start:
            raise InvalidInput("advisory-window", f"{self.quantity} ends before it starts")

    @property
    def key(self) -> tuple[str, str, datetime]:
        """What a newer one of the same thing replaces."""
        return self.quantity, self.source_id, self.start
