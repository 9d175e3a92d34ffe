"""Who publishes carbon intensities, and in which shape: one class each. Grams of CO2 a kWh.

Their figures are not comparable: Electricity Maps gives the average of what is consumed, over the
life cycle or direct; WattTime the marginal rate; the UK's API the average of what is generated, by
combustion. Each says which, with every value.
"""

import base64
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from typing import Any, ClassVar, Protocol
from urllib.parse import quote, urlencode

from gridaware.clock import Clock
from gridaware.domain.advisory import AdvisoryQuality
from gridaware.domain.errors import InvalidInput, Unavailable
from gridaware.domain.eventjson import printable
from gridaware.domain.registry import Registry
from gridaware.feeds.http import exchange
from gridaware.feeds.page_values import json_page, number, offset_time, rows
from gridaware.feeds.pages import PublishedPage, Rate, Read, page_of
from gridaware.feeds.series import Point, tidy

__all__ = ["PROVIDERS", "Intensities", "Provider", "Subject"]

GRAMS_PER_POUND = 453.59237
"""International avoirdupois pound, by definition (1959)."""
GRAMS_AT_MOST = 5000.0
"""A kilowatt-hour of lignite is some 1 200 g."""
LEAST_SECONDS = 60.0
FORECAST_LEAST_SECONDS = 300.0
TOKEN_SECONDS = 15 * 60.0
"""Half of the half hour for which WattTime's token is good."""
PROBLEM = "page-value"


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose intensity is asked for, and by whom."""

    base_url: str
    place: str
    """Zone, region or postcode in the provider's own words; empty = all that it covers."""
    key: str
    """Key or password; empty = none."""
    user: str
    forecast: bool
    measured_only: bool
    """Leave estimated values out, where the provider can."""
    lasts_minutes: float
    """How long a value without an end is taken to hold."""


@dataclass(frozen=True, slots=True)
class Intensities:
    """What one answer says."""

    points: list[Point]
    basis: str
    """What kind of intensity it is, in words."""
    lacking: Unavailable | None = None
    """Why what is ahead is not there, although it was asked for."""


class Provider(Protocol):
    """One provider."""

    default_url: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    """Settings without which it cannot be asked: ``place``, ``key``, ``user``."""

    def __init__(self, clock: Clock, subject: Subject) -> None: ...

    def ask(self) -> Intensities:
        """What it says now, the past of the last hour or so included, in order.

        Raises:
            Unavailable: it did not say it.
        """
        ...

    @staticmethod
    def read(page: Mapping[str, Any], subject: Subject) -> Intensities:
        """One of its documents. Pure.

        Raises:
            InvalidInput: it is none, or of another place.
        """
        ...


PROVIDERS: Registry[type[Provider]] = Registry("carbon-provider")


@PROVIDERS.register("electricity_maps")
class ElectricityMaps:
    """Electricity Maps, API v3: average intensity by the hour, where power is consumed."""

    default_url: ClassVar[str] = "https://api.electricitymaps.com/v3"
    needs: ClassVar[tuple[str, ...]] = ("place", "key")

    def __init__(self, clock: Clock, subject: Subject) -> None:
        self._subject = subject
        query = {"zone": subject.place, "shouldUseFallbackCallerLookup": "false"}
        if subject.measured_only:
            query["disableEstimations"] = "true"
        headers = {"auth-token": subject.key}
        base = f"{subject.base_url}/carbon-intensity"
        self._latest = page_of(
            clock,
            f"{base}/latest?{urlencode(query)}",
            Rate(f"{base}/latest", LEAST_SECONDS),
            headers,
        )
        self._ahead = None
        if subject.forecast:
            url = f"{base}/forecast?{urlencode(query)}"
            rate = Rate(f"{base}/forecast", FORECAST_LEAST_SECONDS)
            self._ahead = page_of(clock, url, rate, headers)

    def ask(self) -> Intensities:
        """The latest value and, where asked for, the forecast: without it the present is known.

        Raises:
            Unavailable: the latest value did not come.
        """
        latest = self._latest.read(lambda read: self.read(json_page(read.body), self._subject))
        if self._ahead is None:
            return latest
        try:
            ahead = self._ahead.read(lambda read: self.read(json_page(read.body), self._subject))
        except Unavailable as error:
            return replace(latest, lacking=error)
        known = max(point.start for point in latest.points)
        later = [point for point in ahead.points if point.start > known]
        return Intensities(tidy([*later, *latest.points]), latest.basis)

    @staticmethod
    def read(page: Mapping[str, Any], subject: Subject) -> Intensities:
        """A ``latest``, ``history`` or ``forecast`` document.

        An unknown zone is answered with the zone of whoever asks: so it is compared.

        Raises:
            InvalidInput: it is none of them, or of another zone.
        """
        zone = page.get("zone")
        if subject.place and zone != subject.place:
            raise InvalidInput(PROBLEM, f"it is of the zone {printable(str(zone), 40)}")
        listed = page.get("forecast", page.get("history"))
        told = (
            [page]
            if listed is None
            else rows(page, "forecast" if "forecast" in page else "history")
        )
        ahead = "forecast" in page
        points, basis = [], ""
        for row in told:
            start = offset_time(row.get("datetime"), "datetime")
            quality = AdvisoryQuality.FORECAST if ahead else AdvisoryQuality.MEASURED
            if row.get("isEstimated") not in (None, False) or row.get("estimationMethod"):
                quality = AdvisoryQuality.ESTIMATED
            basis = str(row.get("emissionFactorType") or basis)
            end = start + timedelta(minutes=60 if listed is not None else subject.lasts_minutes)
            points.append(Point(start, end, _grams(row.get("carbonIntensity")), quality))
        words = {"direct": "direct", "lifecycle": "life cycle"}.get(basis, "life cycle")
        return Intensities(_some(points), f"average of consumption, {words}")


@PROVIDERS.register("watttime")
class WattTime:
    """WattTime, API v3: the marginal rate (MOER), present and ahead, by the five minutes."""

    default_url: ClassVar[str] = "https://api.watttime.org"
    needs: ClassVar[tuple[str, ...]] = ("place", "key", "user")

    def __init__(self, clock: Clock, subject: Subject) -> None:
        self._clock = clock
        self._subject = subject
        self._token = ""
        self._token_seconds = float("-inf")
        self._forbidden: Unavailable | None = None
        self._lock = threading.Lock()
        query = {"region": subject.place, "signal_type": "co2_moer"}
        self._url = f"{subject.base_url}/v3/forecast?{urlencode(query)}"
        rate = Rate(f"{subject.base_url}/v3/forecast", LEAST_SECONDS)
        self._page: PublishedPage = page_of(clock, self._url, rate)

    def ask(self) -> Intensities:
        """The forecast, the first value of which is of the present.

        Raises:
            Unavailable: it did not come, or nobody may ask under that name.
        """
        self._page.aim(self._url, {"Authorization": f"Bearer {self._signed_in()}"})
        try:
            return self._page.read(lambda read: self.read(json_page(read.body), self._subject))
        except Unavailable as error:
            if error.code == "page-forbidden" and error is not self._forbidden:
                # One sign-in for each refusal: the page repeats it until it may be asked again.
                self._forbidden, self._token_seconds = error, float("-inf")
            raise

    @staticmethod
    def read(page: Mapping[str, Any], subject: Subject) -> Intensities:
        """A ``forecast`` or ``historical`` document.

        Raises:
            InvalidInput: it is neither, of another region, or in another unit.
        """
        meta = page.get("meta")
        if not isinstance(meta, dict):
            raise InvalidInput(PROBLEM, "there is no meta")
        if subject.place and meta.get("region") != subject.place:
            raise InvalidInput(PROBLEM, f"it is of {printable(str(meta.get('region')), 40)}")
        if meta.get("units") != "lbs_co2_per_mwh" or meta.get("signal_type") != "co2_moer":
            raise InvalidInput(PROBLEM, "it is no co2_moer in lbs_co2_per_mwh")
        ahead = "generated_at" in meta or "generated_at_period_seconds" in meta
        quality = AdvisoryQuality.FORECAST if ahead else AdvisoryQuality.ESTIMATED
        seconds = number(meta.get("data_point_period_seconds", 300), "the period")
        if not 60 <= seconds <= 3600:
            raise InvalidInput(PROBLEM, f"a point lasts {seconds:g} s")
        lasts = timedelta(seconds=seconds)
        starts = [
            (offset_time(row.get("point_time"), "point_time"), number(row.get("value"), "value"))
            for row in rows(page, "data")
        ]
        points = [
            Point(
                start,
                start + lasts,
                _bounded(pounds * GRAMS_PER_POUND / 1000),
                quality,
            )
            for start, pounds in starts
        ]
        return Intensities(_some(points), "marginal")

    def _signed_in(self) -> str:
        """A token that is good for a while.

        Raises:
            Unavailable: there is none (``page-forbidden`` where the password is wrong).
        """
        with self._lock:
            now = self._clock.monotonic_seconds()
            if now - self._token_seconds < TOKEN_SECONDS:
                if not self._token:
                    raise Unavailable("page-forbidden", "WattTime did not let us sign in")
                return self._token
            named = f"{self._subject.user}:{self._subject.key}".encode()
            basic = base64.b64encode(named).decode("ascii")
            answer = exchange(
                "GET",
                f"{self._subject.base_url}/login",
                headers={"Authorization": f"Basic {basic}", "Accept": "application/json"},
                answer_bytes_at_most=1 << 16,
            )
            if answer.status in {401, 403}:
                # Asked no sooner than a good token would be renewed: sign-ins are counted.
                self._token, self._token_seconds = "", now
                raise Unavailable(
                    "page-forbidden", f"WattTime answered the sign-in {answer.status}"
                )
            if answer.status != 200:
                code = "page-too-often" if answer.status == 429 else "page-unavailable"
                raise Unavailable(code, f"WattTime answered the sign-in {answer.status}")
            try:
                token = json_page(answer.body).get("token")
            except InvalidInput as error:
                raise Unavailable("page-garbled", f"the sign-in: {error}") from None
            if not isinstance(token, str) or not token.isascii() or not 0 < len(token) < 8192:
                raise Unavailable("page-garbled", "the sign-in brought no token")
            if not token.isprintable():
                raise Unavailable("page-garbled", "the sign-in brought no token")
            self._token, self._token_seconds = token, now
            return token


@PROVIDERS.register("uk_carbon_intensity")
class UkCarbonIntensity:
    """NESO's Carbon Intensity API for Great Britain: averages of half-hours, with a day ahead."""

    default_url: ClassVar[str] = "https://api.carbonintensity.org.uk"
    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, clock: Clock, subject: Subject) -> None:
        self._clock = clock
        self._subject = subject
        name = f"{subject.base_url}#{subject.place}"
        self._page = page_of(clock, self._url(), Rate(name, LEAST_SECONDS))

    def ask(self) -> Intensities:
        """The present half-hour and the day ahead.

        Raises:
            Unavailable: it did not come.
        """
        self._page.aim(self._url())
        return self._page.read(self._understand)

    @staticmethod
    def read(page: Mapping[str, Any], subject: Subject) -> Intensities:
        """A list of half-hours, national or regional: of one region, alone or in a list of one.

        Raises:
            InvalidInput: it is none, or of another postcode.
        """
        region = page.get("data")
        if isinstance(region, list) and len(region) == 1 and isinstance(region[0], dict):
            region = region[0] if "data" in region[0] else region
        told = rows(region, "data") if isinstance(region, dict) else rows(page, "data")
        code = region.get("postcode") if isinstance(region, dict) else None
        if subject.place and code is not None and str(code).upper() != subject.place.upper():
            raise InvalidInput(PROBLEM, f"it is of the postcode {printable(str(code), 20)}")
        points = []
        for row in told:
            intensity = row.get("intensity")
            if not isinstance(intensity, dict):
                raise InvalidInput(PROBLEM, "a half-hour has no intensity")
            actual = intensity.get("actual")
            quality = AdvisoryQuality.FORECAST if actual is None else AdvisoryQuality.ESTIMATED
            grams = intensity.get("forecast") if actual is None else actual
            if grams is not None:
                points.append(
                    Point(
                        offset_time(row.get("from"), "from"),
                        offset_time(row.get("to"), "to"),
                        _grams(grams),
                        quality,
                    )
                )
        return Intensities(_some(points), "average of generation, combustion")

    def _url(self) -> str:
        now = self._clock.wall().astimezone(UTC)
        begin = now.replace(minute=now.minute - now.minute % 30)
        until = (
            "fw24h"
            if self._subject.forecast
            else f"{begin + timedelta(minutes=30):%Y-%m-%dT%H:%MZ}"
        )
        window = f"intensity/{begin:%Y-%m-%dT%H:%MZ}/{until}"
        base = self._subject.base_url
        if not self._subject.place:
            return f"{base}/{window}"
        return f"{base}/regional/{window}/postcode/{quote(self._subject.place)}"

    def _understand(self, read: Read) -> Intensities:
        return self.read(json_page(read.body), self._subject)


def _some(points: Sequence[Point]) -> list[Point]:
    found = tidy(points)
    if not found:
        raise InvalidInput(PROBLEM, "there is no value")
    return found


def _grams(value: object) -> float:
    return _bounded(number(value, "the intensity"))


def _bounded(grams: float) -> float:
    if not 0 <= grams <= GRAMS_AT_MOST:
        raise InvalidInput(PROBLEM, f"{grams:g} g/kWh cannot be")
    return grams
