"""What feeds of a series share: what it says informs, and thresholds over it act."""

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Self

from pydantic import Field, model_validator

from gridaware.domain.advisory import Advisory
from gridaware.domain.errors import Unavailable
from gridaware.domain.eventjson import target_from_mapping
from gridaware.domain.signal import Signal
from gridaware.feeds.conditions import advisory_row
from gridaware.feeds.kind import (
    Disposition,
    FeedContext,
    Parsed,
    ParsedRow,
    PolledSettings,
    RefusedPart,
    check_distinct,
)
from gridaware.feeds.series import Point, covering, within
from gridaware.feeds.threshold import Asks, Span, Threshold, spans

__all__ = ["Informing", "SeriesFollower", "SeriesSettings", "parsed_series"]

TOLD_AT_MOST = 1000
"""Points ahead that a person is told of."""


class SeriesSettings(PolledSettings):
    """Settings of a feed that follows a series."""

    poll_seconds: float = Field(default=60.0, ge=1.0, le=3600)
    horizon_hours: float = Field(default=48.0, gt=0, le=24 * 8)
    """How far ahead events are announced."""
    acts: tuple[Threshold, ...] = Field(default=(), max_length=16)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        check_distinct([rule.name for rule in self.acts], "thresholds")
        return self

    @property
    def horizon(self) -> timedelta:
        """The same as a duration."""
        return timedelta(hours=self.horizon_hours)


class Informing:
    """Makes advisories of the points of a series."""

    def __init__(self, source_id: str, quantity: str, unit: str, text: str) -> None:
        self.source_id = source_id
        self.quantity = quantity
        self.unit = unit
        self.text = text

    def of(self, point: Point, feed_id: str, now: datetime) -> Advisory:
        """What one point informs of."""
        return Advisory(
            feed_id,
            self.source_id,
            self.quantity,
            point.value,
            self.unit,
            self.text,
            point.start,
            point.end,
            point.quality,
            now,
        )


class SeriesFollower:
    """Follows one series for a feed. One poll at a time, whoever polls."""

    def __init__(
        self, context: FeedContext, settings: SeriesSettings, informing: Informing
    ) -> None:
        self._context = context
        self._settings = settings
        self._informing = informing
        self._asks = Asks(context, settings.acts, settings.horizon)
        self._told: dict[datetime, Point] = {}
        self._said_held = False
        self.lock = threading.Lock()
        """A person's `feed test` may poll while the cadence does."""

    def heard(
        self, points: Sequence[Point], raw: str, received_at: datetime, received_seconds: float
    ) -> list[Signal]:
        """A fresh reading: what is asked now.

        Raises:
            Unavailable: ``series-ended``: it says nothing of the present, and nothing is new.
        """
        now = self._context.clock.wall()
        self._inform(within(points, now, self._settings.horizon)[:TOLD_AT_MOST], now)
        self._asks.follow(points, raw)
        failure: Unavailable | None = None
        if covering(points, now) is None:
            failure = Unavailable("series-ended", "the series says nothing of the present")
            self._say_held(failure)
        else:
            self._said_held = False
        return self._asks.signals(received_at, received_seconds, failure)

    def blind(
        self, failure: Unavailable, received_at: datetime, received_seconds: float
    ) -> list[Signal]:
        """There is no fresh reading: what stands is held to its end.

        Raises:
            Unavailable: ``failure``, where nothing is new.
        """
        self._say_held(failure)
        return self._asks.signals(received_at, received_seconds, failure)

    def _say_held(self, failure: Unavailable) -> None:
        held = self._asks.held()
        if held and not self._said_held:
            self._said_held = True
            message = f"{failure.message}; {', '.join(held[:4])} held to the end announced"
            self._context.refuse(Unavailable(failure.code, message), "")

    def _inform(self, points: Sequence[Point], now: datetime) -> None:
        """Tell of what is new or has changed, and of nothing twice."""
        for point in points:
            if self._told.get(point.start) != point:
                self._context.advise(self._informing.of(point, self._context.feed_id, now))
        self._told = {point.start: point for point in points}


def parsed_series(
    points: Sequence[Point],
    refused: Sequence[RefusedPart],
    acts: Sequence[Threshold],
    informing: Informing,
    now: datetime,
) -> Parsed:
    """What a person is shown of a series from a file: the events, then what informs."""
    acting = [
        row
        for rule in acts
        for span in spans(points, rule)
        for row in (_span_row(rule, span, now),)
    ]
    told = [advisory_row(informing.of(point, "file", now)) for point in points[:TOLD_AT_MOST]]
    return Parsed((*acting, *told), tuple(refused))


def _span_row(rule: Threshold, span: Span, now: datetime) -> ParsedRow:
    target = target_from_mapping(rule.target)
    over = span.end <= now
    limit = f"above {rule.above:g}" if rule.above is not None else f"below {rule.below:g}"
    return ParsedRow(
        rule.name,
        span.start,
        span.end,
        target.quantity.value,
        target.value,
        Disposition.REFUSED if over else Disposition.ACT,
        "over before it was heard" if over else limit,
        target,
    )
