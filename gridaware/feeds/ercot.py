"""``ercot``: the state of the Texas grid, from ERCOT's public dashboards.

Everything heard informs; only rules of the settings act (:mod:`gridaware.feeds.conditions`).
"""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from gridaware.domain.advisory import Advisory, AdvisoryQuality
from gridaware.domain.errors import Unavailable
from gridaware.domain.signal import Signal
from gridaware.feeds.conditions import Acting, Rule, advisory_row, beyond, rule_row
from gridaware.feeds.ercot_pages import (
    Conditions,
    Frequency,
    Price,
    read_conditions,
    read_frequency,
    read_prices,
)
from gridaware.feeds.kind import (
    FEED_KINDS,
    Feed,
    FeedContext,
    FeedSettings,
    Parsed,
    PolledSettings,
    check_distinct,
)
from gridaware.feeds.page_values import check_fresh, json_page, public_url, stale_reason
from gridaware.feeds.pages import PublishedPage, Rate, Read, page_of

__all__ = ["DASHBOARDS", "Ercot", "ErcotSettings", "dashboard_rate"]

log = logging.getLogger(__name__)

DASHBOARDS = "https://www.ercot.com/api/1/services/read/dashboards"
PRC_PAGE = "daily-prc.json"
BESIDE_SECONDS = 3.0
"""Deadline of the other pages: one that hangs must not keep the next emergency waiting."""
PRC_LEAST_SECONDS = 4.0
"""A third of the ten seconds in which the page is published: ERCOT blocks who asks faster."""
OTHER_LEAST_SECONDS = 20.0
"""A third of the minute for which its other dashboards are cached."""
CONDITIONS, PRICE = "the grid conditions page", "the newest price"
FREQUENCY_STALE_SECONDS = 600.0
PRICE_STALE_SECONDS = 3600.0
STRANGE_AT_MOST = 20
"""Unknown words that are logged: a page that is garbage must not fill the log."""
KNOWN_STATES = frozenset({"normal", "watch", "advisory", "emergency", "eea1", "eea2", "eea3"})


def dashboard_rate(page: str, base_url: str) -> Rate:
    """The rate of one dashboard: each is counted by itself."""
    least = PRC_LEAST_SECONDS if page == PRC_PAGE else OTHER_LEAST_SECONDS
    return Rate(f"{base_url}/{page}", least)


class ErcotWhen(FeedSettings):
    """One condition."""

    eea_level: int | None = Field(default=None, ge=1, le=3)
    """At this level of Energy Emergency Alert or a higher one."""
    prc_below_mw: float | None = Field(default=None, gt=0, le=100_000)
    prc_clear_mw: float | None = Field(default=None, gt=0, le=100_000)
    """Over only at or above this; by default at ``prc_below_mw``."""
    states: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=16)
    """ERCOT's own words, in lower case."""
    price_above: float | None = Field(default=None, ge=-20_000, le=20_000)
    """$/MWh at ``price_point`` in the last interval published."""
    price_clear: float | None = Field(default=None, ge=-20_000, le=20_000)
    """Over only at or below this; by default at ``price_above``."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = (self.eea_level, self.prc_below_mw, self.states, self.price_above)
        if sum(each is not None for each in given) != 1:
            raise ValueError("give one of eea_level, prc_below_mw, states and price_above")
        below, clear = self.prc_below_mw, self.prc_clear_mw
        if clear is not None and (below is None or clear < below):
            raise ValueError("prc_clear_mw lies below prc_below_mw, or stands alone")
        above, clear = self.price_above, self.price_clear
        if clear is not None and (above is None or clear > above):
            raise ValueError("price_clear lies above price_above, or stands alone")
        return self

    def shown(self, conditions: Conditions, *, stands: bool) -> bool | None:
        """Whether grid conditions show it; None = they do not say."""
        if self.eea_level is not None:
            return None if conditions.eea_level is None else conditions.eea_level >= self.eea_level
        if self.prc_below_mw is not None:
            prc, below, clear = conditions.prc_megawatts, self.prc_below_mw, self.prc_clear_mw
            return beyond(prc, below, clear, below=True, stands=stands)
        return conditions.state in (self.states or ()) if conditions.state else None

    def shown_by(self, price: Price, *, stands: bool) -> bool | None:
        """Whether a price shows it."""
        assert self.price_above is not None
        paid, above, clear = price.per_megawatt_hour, self.price_above, self.price_clear
        return beyond(paid, above, clear, below=False, stands=stands)


class ErcotRule(Rule):
    """What is asked for while a condition of the grid stands."""

    when: ErcotWhen


class ErcotSettings(PolledSettings):
    """Settings of the grid's conditions."""

    poll_seconds: float = Field(default=10.0, ge=5.0, le=3600)
    base_url: str = Field(default=DASHBOARDS, max_length=500)
    """Of the dashboards' JSON."""
    price_point: str | None = Field(default="hbHubAvg", pattern=r"^[A-Za-z]{2,20}$")
    """The settlement point as the page names it (hbHouston, lzNorth); None = no prices are read."""
    frequency_page: str | None = Field(
        default="ancillary-services.json", pattern=r"^[a-z-]{1,60}\.json$"
    )
    """Where the frequency is read; None = it is not."""
    stale_seconds: float = Field(default=180.0, ge=30, le=3600)
    """Grid conditions older than that show nothing."""
    acts: tuple[ErcotRule, ...] = Field(default=(), max_length=16)

    @field_validator("base_url")
    @classmethod
    def _secure(cls, value: str) -> str:
        return public_url(value).rstrip("/")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        check_distinct([rule.name for rule in self.acts], "rules")
        if self.price_point is None and any(_by_price(rule) for rule in self.acts):
            raise ValueError("price_above needs a price_point")
        return self


@FEED_KINDS.register("ercot")
class Ercot(Feed[ErcotSettings]):
    """Reads up to three dashboards, each at its own rate; one that fails spoils no other."""

    settings_model = ErcotSettings

    def __init__(self, context: FeedContext, settings: ErcotSettings) -> None:
        super().__init__(context, settings)
        self._lock = threading.Lock()
        """A person's `feed test` may poll at the same moment."""
        self._acting = Acting(context, settings.acts)
        self._strange: set[str] = set()
        self._failed: set[str] = set()
        self._conditions = self._page(PRC_PAGE)
        self._frequency = self._page(settings.frequency_page)
        self._prices = self._page("system-wide-prices.json" if settings.price_point else None)

    def _page(self, name: str | None) -> PublishedPage | None:
        if name is None:
            return None
        base = self.settings.base_url
        rate = dashboard_rate(name, base)
        wait = None if name == PRC_PAGE else BESIDE_SECONDS
        return page_of(self.context.clock, f"{base}/{name}", rate, deadline_seconds=wait)

    def poll(self) -> Sequence[Signal]:
        """What the rules ask for now.

        Raises:
            Unavailable: the grid conditions could not be read, or are old.
        """
        clock = self.context.clock
        with self._lock:
            received_at, received_seconds = clock.wall(), clock.monotonic_seconds()
            parts: tuple[tuple[str, Callable[[], None]], ...] = (
                ("grid conditions", self._hear_conditions),
                ("prices", self._hear_prices),
                ("frequency", self._hear_frequency),
            )
            failures = {}
            for name, hear in parts:
                try:
                    hear()
                except Unavailable as error:
                    failures[name] = error
            self._say_failures(failures)
            main = failures.get("grid conditions")
            return self._acting.signals(received_at, received_seconds, main)

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: ErcotSettings | None) -> Parsed:
        """One of the dashboards' pages, told by what it holds.

        Raises:
            InvalidInput: it is none of them.
        """
        given = settings or ErcotSettings()
        page = json_page(body)
        verdicts: list[tuple[ErcotRule, bool | None]] = []
        said = stale = ""
        if "current_condition" in page:
            conditions = read_conditions(page)
            told = conditions_told(conditions, "file", now)
            rules = [rule for rule in given.acts if not _by_price(rule)]
            verdicts = [(rule, rule.when.shown(conditions, stands=False)) for rule in rules]
            prc = conditions.prc_megawatts
            said = f"{conditions.state}, EEA {conditions.eea_level}, PRC {prc} MW"
            stale = stale_reason(conditions.at, now, given.stale_seconds, CONDITIONS)
        elif "rtSppData" in page:
            point = given.price_point or "hbHubAvg"
            price = read_prices(page, point)[-1]
            told = [price_told(price, point, "file", now)]
            rules = [rule for rule in given.acts if _by_price(rule)]
            verdicts = [(rule, rule.when.shown_by(price, stands=False)) for rule in rules]
            said = f"{price.per_megawatt_hour:g} $/MWh"
            stale = stale_reason(price.end, now, PRICE_STALE_SECONDS, PRICE)
        else:
            told = [frequency_told(read_frequency(page), "file", now)]
        acting = [rule_row(rule, shown, said, now, stale) for rule, shown in verdicts]
        return Parsed((*(row for row in acting if row), *(advisory_row(each) for each in told)))

    # ------------------------------------------------------------------------------------------

    def _hear_conditions(self) -> None:
        rules = [rule for rule in self.settings.acts if not _by_price(rule)]
        try:
            assert self._conditions is not None
            conditions, raw = self._conditions.read(_conditions_of)
            now = self.context.clock.wall()
            check_fresh(conditions.at, now, self.settings.stale_seconds, CONDITIONS)
        except Unavailable as error:
            self._blind(rules, error)
            raise
        self._note_state(conditions.state)
        for advisory in conditions_told(conditions, self.context.feed_id, now):
            self.context.advise(advisory)
        for rule in rules:
            shown = rule.when.shown(conditions, stands=self._acting.stands(rule))
            self._acting.reading(rule, shown, conditions.at, raw)

    def _hear_prices(self) -> None:
        point = self.settings.price_point
        if self._prices is None or point is None:
            return
        rules = [rule for rule in self.settings.acts if _by_price(rule)]
        try:
            price = self._prices.read(lambda read: read_prices(json_page(read.body), point)[-1])
            now = self.context.clock.wall()
            check_fresh(price.end, now, PRICE_STALE_SECONDS, PRICE)
        except Unavailable as error:
            self._blind(rules, error)
            raise
        self.context.advise(price_told(price, point, self.context.feed_id, now))
        raw = json.dumps({"point": point, "end": price.end.isoformat(), **_price_raw(price)})
        for rule in rules:
            shown = rule.when.shown_by(price, stands=self._acting.stands(rule))
            self._acting.reading(rule, shown, price.end, raw)

    def _hear_frequency(self) -> None:
        if self._frequency is None:
            return
        frequency = self._frequency.read(lambda read: read_frequency(json_page(read.body)))
        now = self.context.clock.wall()
        check_fresh(frequency.at, now, FREQUENCY_STALE_SECONDS, "the newest frequency")
        self.context.advise(frequency_told(frequency, self.context.feed_id, now))

    def _blind(self, rules: Sequence[Rule], error: Unavailable) -> None:
        for rule in rules:
            self._acting.blind(rule, error)

    def _say_failures(self, failures: dict[str, Unavailable]) -> None:
        """A page that fails beside the grid conditions is reported once: those fail the poll."""
        for name, error in failures.items():
            if name not in self._failed and name != "grid conditions":
                self.context.refuse(Unavailable(error.code, f"{name}: {error.message}"), "")
        self._failed = set(failures)

    def _note_state(self, state: str) -> None:
        known = state in KNOWN_STATES or state in self._strange
        if state and not known and len(self._strange) < STRANGE_AT_MOST:
            self._strange.add(state)
            log.warning("feed %s: the state %r is not known here", self.context.feed_id, state)


def conditions_told(conditions: Conditions, feed_id: str, now: datetime) -> list[Advisory]:
    """What grid conditions inform of; one a minute is kept of each."""
    minute = conditions.at.replace(second=0, microsecond=0)
    note = f". {conditions.note}" if conditions.note else ""
    text = f"{conditions.state or 'unknown'}: {conditions.title}{note}"
    values: list[tuple[str, float | None, str, str, AdvisoryQuality]] = [
        ("alert", None, "", text, AdvisoryQuality.PUBLISHED)
    ]
    if conditions.eea_level is not None:
        level = float(conditions.eea_level)
        values.append(("eea_level", level, "", conditions.state, AdvisoryQuality.PUBLISHED))
    if conditions.prc_megawatts is not None:
        watts = conditions.prc_megawatts * 1e6
        values.append(("reserve_watts", watts, "W", "PRC", AdvisoryQuality.MEASURED))
    return [
        Advisory(feed_id, "ercot", quantity, value, unit, said, minute, None, quality, now)
        for quantity, value, unit, said, quality in values
    ]


def frequency_told(frequency: Frequency, feed_id: str, now: datetime) -> Advisory:
    """What a frequency informs of: far too old to act on."""
    minute = frequency.at.replace(second=0, microsecond=0)
    return Advisory(
        feed_id,
        "ercot",
        "grid_frequency_hertz",
        frequency.hertz,
        "Hz",
        f"at {frequency.at:%H:%M:%S}Z",
        minute,
        None,
        AdvisoryQuality.MEASURED,
        now,
    )


def price_told(price: Price, point: str, feed_id: str, now: datetime) -> Advisory:
    """What a price informs of."""
    return Advisory(
        feed_id,
        f"ercot.{point}",
        "price_per_mwh",
        price.per_megawatt_hour,
        "USD/MWh",
        "real-time settlement point price",
        price.start,
        price.end,
        AdvisoryQuality.PUBLISHED,
        now,
    )


def _conditions_of(read: Read) -> tuple[Conditions, str]:
    page = json_page(read.body)
    raw: dict[str, Any] = {"current_condition": page.get("current_condition")}
    return read_conditions(page), json.dumps(raw)[:4096]


def _price_raw(price: Price) -> dict[str, float]:
    return {"per_mwh": price.per_megawatt_hour}


def _by_price(rule: ErcotRule) -> bool:
    return rule.when.price_above is not None
