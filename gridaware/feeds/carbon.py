"""``carbon``: how much CO2 a kilowatt-hour costs, now and ahead; thresholds of it act."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from gridaware.domain.errors import InvalidInput, Unavailable
from gridaware.domain.signal import Signal
from gridaware.feeds.carbon_providers import PROVIDERS, Intensities, Subject
from gridaware.feeds.kind import FEED_KINDS, Feed, FeedContext, Parsed
from gridaware.feeds.page_values import json_page, public_url
from gridaware.feeds.secrets import REFERENCE_PATTERN, read_ascii_secret
from gridaware.feeds.series import Beliefs, Point, covering, tidy
from gridaware.feeds.seriesfeed import (
    Informing,
    SeriesFollower,
    SeriesSettings,
    parsed_series,
)

__all__ = ["Carbon", "CarbonSettings"]

UNIT = "gCO2/kWh"


class CarbonSettings(SeriesSettings):
    """Settings of a carbon feed."""

    poll_seconds: float = Field(default=300.0, ge=5.0, le=3600)
    provider: str = Field(max_length=40)
    """``electricity_maps``, ``watttime`` or ``uk_carbon_intensity``."""
    place: str = Field(default="", max_length=60, pattern=r"^[A-Za-z0-9 _-]*$")
    """Zone (Electricity Maps), region (WattTime), outward postcode (UK; empty = Great Britain)."""
    key: str | None = Field(default=None, pattern=REFERENCE_PATTERN)
    """Reference of the key, or of the password (WattTime)."""
    user: str = Field(default="", max_length=200, pattern=r"^[^:\x00-\x1f]*$")
    """WattTime only."""
    forecast: bool = True
    """Read what is ahead, too; Electricity Maps gives that to paying users."""
    measured_only: bool = False
    """Ask for no estimated values (Electricity Maps)."""
    lasts_minutes: float = Field(default=90.0, ge=5, le=360)
    """How long Electricity Maps' latest value is taken to hold: it comes late, and by the hour."""
    base_url: str | None = Field(default=None, max_length=500)
    """None = the provider's own."""

    @field_validator("base_url")
    @classmethod
    def _secure(cls, value: str | None) -> str | None:
        return None if value is None else public_url(value).rstrip("/")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.provider not in PROVIDERS:
            raise ValueError(f"the providers are {', '.join(PROVIDERS.names())}")
        given = {"place": self.place, "key": self.key, "user": self.user}
        missing = [name for name in PROVIDERS.get(self.provider).needs if not given[name]]
        if missing:
            raise ValueError(f"{self.provider} needs {', '.join(missing)}")
        return self

    def subject(self, key: str = "") -> Subject:
        """What is asked of the provider."""
        return Subject(
            self.base_url or PROVIDERS.get(self.provider).default_url,
            self.place,
            key,
            self.user,
            self.forecast,
            self.measured_only,
            self.lasts_minutes,
        )


@FEED_KINDS.register("carbon")
class Carbon(Feed[CarbonSettings]):
    """Follows one place's intensity."""

    settings_model = CarbonSettings

    def __init__(self, context: FeedContext, settings: CarbonSettings) -> None:
        super().__init__(context, settings)
        key = "" if settings.key is None else read_ascii_secret(settings.key)
        self._provider = PROVIDERS.get(settings.provider)(context.clock, settings.subject(key))
        self._informing = _informing(settings)
        self._follower = SeriesFollower(context, settings, self._informing)
        self._judge = _Judge(context)
        self._said_lacking = False

    def poll(self) -> Sequence[Signal]:
        """What the thresholds ask for, now and ahead.

        Raises:
            Unavailable: the provider did not answer as it should, or says nothing of the present.
        """
        clock = self.context.clock
        with self._follower.lock:
            now, seconds = clock.wall(), clock.monotonic_seconds()
            try:
                told = self._provider.ask()
            except Unavailable as failure:
                return self._follower.blind(failure, now, seconds)
            self._informing.text = told.basis
            self._say_lacking(told.lacking)
            points = self._judge.believed(told.points, now)
            raw = f"{self.settings.provider} {self.settings.place}: {told.basis}"
            return self._follower.heard(points, raw, now, seconds)

    def _say_lacking(self, failure: Unavailable | None) -> None:
        """Report once that what is ahead is not known; what was announced stands meanwhile."""
        if failure is not None and not self._said_lacking:
            self.context.refuse(failure, "")
        self._said_lacking = failure is not None

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: CarbonSettings | None) -> Parsed:
        """A document of a provider: of the one that the settings name, else of whose it looks.

        Raises:
            InvalidInput: it is of none of them.
        """
        page = json_page(body)
        provider = settings.provider if settings else _provider_of(page)
        subject = settings.subject() if settings else _ANYWHERE
        told: Intensities = PROVIDERS.get(provider).read(page, subject)
        informing = Informing(provider, "carbon_grams_per_kwh", UNIT, told.basis)
        acts = settings.acts if settings else ()
        return parsed_series(told.points, (), acts, informing, now)


_ANYWHERE = Subject("", "", "", "", forecast=True, measured_only=False, lasts_minutes=90.0)


class _Judge:
    """Passes over a value of the present that leapt, until it is confirmed (:class:`Beliefs`)."""

    def __init__(self, context: FeedContext) -> None:
        self._context = context
        kept = context.memory.get("recent")
        good = isinstance(kept, list) and all(isinstance(each, float) for each in kept)
        self._beliefs = Beliefs(tuple(kept) if good else ())
        self._judged: tuple[datetime, float] | None = None
        self._spike: Point | None = None
        self._before: Point | None = None

    def believed(self, points: Sequence[Point], now: datetime) -> list[Point]:
        """The points without one of the present that is doubted.

        Raises:
            Unavailable: what is believed cannot be made durable.
        """
        present = covering(points, now)
        if present is None:
            return list(points)
        if (present.start, present.value) != self._judged:
            self._judged = present.start, present.value
            self._beliefs, good = self._beliefs.take(present.value)
            self._context.memory.put("recent", list(self._beliefs.recent))
            self._spike = None if good else present
            if good:
                self._before = present
            else:
                said = f"{present.value:g} {UNIT} leaps; it is passed over until it is confirmed"
                self._context.refuse(InvalidInput("carbon-spike", said), "")
        if self._spike is None:
            return list(points)
        held = [] if self._before is None else [self._before]
        return tidy([*held, *(point for point in points if point.start > self._spike.start)])


def _provider_of(page: dict[str, Any]) -> str:
    """Whose document it looks like."""
    if "meta" in page:
        return "watttime"
    return "electricity_maps" if "zone" in page else "uk_carbon_intensity"


def _informing(settings: CarbonSettings) -> Informing:
    place = settings.place.replace(" ", "") or "GB"
    return Informing(f"{settings.provider}.{place}", "carbon_grams_per_kwh", UNIT, "")
