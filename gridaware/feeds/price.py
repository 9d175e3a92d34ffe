"""``price``: what power costs, from a published series or a tariff; thresholds of it act."""

from collections.abc import Sequence
from datetime import datetime
from typing import Self

from pydantic import Field, field_validator, model_validator

from gridaware.domain.advisory import AdvisoryQuality
from gridaware.domain.errors import Unavailable
from gridaware.domain.signal import Signal
from gridaware.feeds.kind import FEED_KINDS, Feed, FeedContext, FeedSettings, Parsed
from gridaware.feeds.page_values import public_url
from gridaware.feeds.pages import PublishedPage, Rate, page_of
from gridaware.feeds.secrets import REFERENCE_PATTERN, read_ascii_secret
from gridaware.feeds.seriesfeed import (
    Informing,
    SeriesFollower,
    SeriesSettings,
    parsed_series,
)
from gridaware.feeds.table import Columns, Table, read_table
from gridaware.feeds.tariff import Tariff, tariff_series

__all__ = ["Price", "PriceSettings", "PriceSource"]

REFUSED_ROWS_TOLD = 3
NO_CURRENCY = "XXX"
"""ISO 4217 for none."""


class PriceSource(FeedSettings):
    """A document of prices, asked for again and again."""

    url: str = Field(max_length=1000)
    columns: Columns
    forecast: bool = False
    """Its prices are forecasts; else they are published: what is paid."""
    key: str | None = Field(default=None, pattern=REFERENCE_PATTERN)
    """Reference of a key that is sent with each request."""
    key_header: str = Field(default="Authorization", pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")
    key_prefix: str = Field(default="", max_length=40, pattern=r"^[\x20-\x7e]*$")
    """Sent before the key, such as "Bearer "."""
    least_seconds: float = Field(default=30.0, ge=5, le=3600)
    """Between two requests, whatever polls."""

    @field_validator("url")
    @classmethod
    def _secure(cls, value: str) -> str:
        return public_url(value)

    @property
    def quality(self) -> AdvisoryQuality:
        """Of every price."""
        return AdvisoryQuality.FORECAST if self.forecast else AdvisoryQuality.PUBLISHED


class PriceSettings(SeriesSettings):
    """Settings of a price feed."""

    market: str = Field(default="price", pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,60}$")
    """What the prices are of, as it is shown: "ERCOT HB_SOUTH day-ahead"."""
    currency: str = Field(pattern=r"^[A-Z]{3}$")
    """ISO 4217."""
    source: PriceSource | None = None
    tariff: Tariff | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.source is None) == (self.tariff is None):
            raise ValueError("give one of source and tariff")
        return self


@FEED_KINDS.register("price")
class Price(Feed[PriceSettings]):
    """Follows one series of prices."""

    settings_model = PriceSettings

    def __init__(self, context: FeedContext, settings: PriceSettings) -> None:
        super().__init__(context, settings)
        self._follower = SeriesFollower(context, settings, _informing(settings))
        self._rows_told: set[str] = set()
        self._page: PublishedPage | None = None
        if settings.source is not None:
            source = settings.source
            rate = Rate(source.url, source.least_seconds)
            self._page = page_of(context.clock, source.url, rate, _headers(source))

    def poll(self) -> Sequence[Signal]:
        """What the thresholds ask for, now and ahead.

        Raises:
            Unavailable: the prices could not be read, or say nothing of the present.
        """
        clock = self.context.clock
        with self._follower.lock:
            now, seconds = clock.wall(), clock.monotonic_seconds()
            tariff, page = self.settings.tariff, self._page
            if tariff is not None:
                points = tariff_series(tariff, now, self.settings.horizon)
                return self._follower.heard(points, f"tariff {self.settings.market}", now, seconds)
            source = self.settings.source
            assert page is not None
            assert source is not None
            try:
                table = page.read(
                    lambda read: read_table(
                        read.body, source.columns, source.quality, read.received_at
                    )
                )
            except Unavailable as failure:
                return self._follower.blind(failure, now, seconds)
            self._tell_refused(table)
            return self._follower.heard(table.points, source.url, now, seconds)

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: PriceSettings | None) -> Parsed:
        """A document of prices, by the columns of the settings; else by ``start`` and ``value``.

        Raises:
            InvalidInput: nothing of it can be read.
        """
        shape = "json" if body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in {b"[", b"{"} else "csv"
        columns = Columns(format=shape, start="start", value="value")
        quality = AdvisoryQuality.PUBLISHED
        if settings is not None and settings.source is not None:
            columns, quality = settings.source.columns, settings.source.quality
        table = read_table(body, columns, quality, now)
        acts = () if settings is None else settings.acts
        return parsed_series(table.points, table.refused, acts, _informing(settings), now)

    def _tell_refused(self, table: Table) -> None:
        """Report the rows that could not be read, a few of them, each once."""
        for part in table.refused[:REFUSED_ROWS_TOLD]:
            said = f"{part.where}: {part.reason}"
            if said not in self._rows_told and len(self._rows_told) < 100:
                self._rows_told.add(said)
                self.context.refuse(Unavailable(part.code, said), "")


def _informing(settings: PriceSettings | None) -> Informing:
    market, currency = (settings.market, settings.currency) if settings else ("file", NO_CURRENCY)
    if settings and settings.tariff is not None and settings.tariff.charges == "demand":
        return Informing(market, "demand_charge_per_kw", f"{currency}/kW", "")
    return Informing(market, "price_per_mwh", f"{currency}/MWh", "")


def _headers(source: PriceSource) -> dict[str, str]:
    headers = {"Accept": "application/json, text/csv;q=0.9, */*;q=0.1"}
    if source.key is not None:
        headers[source.key_header] = source.key_prefix + read_ascii_secret(source.key)
    return headers
