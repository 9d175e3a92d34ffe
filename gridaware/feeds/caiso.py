"""``caiso``: the state of California's grid, from the page behind CAISO's "Today's Outlook".

The page says its time without a zone (Pacific) and its state in words. Words inform; a rule of the
settings acts on those that it names (:mod:`gridaware.feeds.conditions`).
"""

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from gridaware.domain.advisory import Advisory, AdvisoryQuality
from gridaware.domain.errors import InvalidInput, Unavailable
from gridaware.domain.signal import Signal
from gridaware.feeds.conditions import Acting, Rule, advisory_row, beyond, rule_row
from gridaware.feeds.kind import (
    FEED_KINDS,
    Feed,
    FeedContext,
    FeedSettings,
    Parsed,
    PolledSettings,
    check_distinct,
)
from gridaware.feeds.page_values import (
    check_fresh,
    json_page,
    number,
    public_url,
    short_text,
    stale_reason,
    wall_time,
)
from gridaware.feeds.pages import Rate, Read, page_of

__all__ = ["Caiso", "CaisoSettings", "Outlook", "plain_word", "read_outlook"]

log = logging.getLogger(__name__)

URL = "https://www.caiso.com/outlook/current/stats.txt"
PACIFIC = ZoneInfo("America/Los_Angeles")
LEAST_SECONDS = 20.0
"""Ours: CAISO publishes no rule, answers 429 to requests a few seconds apart, and writes the page
every five minutes."""
PAGE = "the outlook page"
WORDS_AT_MOST = 16
STRANGE_AT_MOST = 20
"""Unknown words that are logged: a page that is garbage must not fill the log."""
RESERVE_MEGAWATTS_AT_MOST = 100_000.0
EEA_LEVELS: Mapping[str, int] = {
    "eea1": 1,
    "energyemergencyalert1": 1,
    "eea2": 2,
    "energyemergencyalert2": 2,
    "eea3": 3,
    "energyemergencyalert3": 3,
}
"""Words that name a level of the Energy Emergency Alert, as :func:`plain_word` has them."""
KNOWN_WORDS = frozenset(
    {
        *EEA_LEVELS,
        "normal",
        "flexalert",
        "restrictedmaintenanceoperation",
        "restrictedmaintenanceoperations",
        "transmissionemergency",
        "eeawatch",
        "energyemergencyalertwatch",
        "energyemergencyalert",
        "alert",
        "warning",
        "stage1emergency",
        "stage2emergency",
        "stage3emergency",
    }
)


def plain_word(text: str) -> str:
    """A word of the state without its case, blanks and punctuation: "EEA 2" is "eea2"."""
    return "".join(letter for letter in text.lower() if letter.isascii() and letter.isalnum())


@dataclass(frozen=True, slots=True)
class Outlook:
    """The state of the grid."""

    at: datetime
    words: tuple[str, ...]
    """As published; several may hold at once."""
    reserve_megawatts: float | None

    @property
    def plain_words(self) -> frozenset[str]:
        """The words as they are compared."""
        return frozenset(plain_word(word) for word in self.words)

    @property
    def eea_level(self) -> int:
        """The highest level that a word names; 0 = none does."""
        return max((EEA_LEVELS.get(word, 0) for word in self.plain_words), default=0)


def read_outlook(page: Mapping[str, Any], written_at: datetime) -> Outlook:
    """The page ``stats.txt``.

    Args:
        page: its JSON.
        written_at: when it was written or came: tells which of two equal wall times is meant.

    Raises:
        InvalidInput: it is not that page, or has no time or no state.
    """
    said = page.get("gridstatus")
    listed = [said] if isinstance(said, str) else said
    if not isinstance(listed, list):
        raise InvalidInput("page-value", "there is no gridstatus")
    words = tuple(word for word in (short_text(each, 60) for each in listed) if word)
    if not words or len(words) > WORDS_AT_MOST:
        raise InvalidInput("page-value", f"gridstatus has {len(words)} words")
    reserve: float | None = None
    if page.get("Current_reserve") not in (None, ""):
        reserve = number(page["Current_reserve"], "Current_reserve")
        if not 0 < reserve <= RESERVE_MEGAWATTS_AT_MOST:
            reserve = None  # a gap in their data
    return Outlook(wall_time(page.get("slotDate"), PACIFIC, written_at, "slotDate"), words, reserve)


class CaisoWhen(FeedSettings):
    """One condition."""

    gridstatus: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=16)
    """Any of these words, such as "Flex Alert"; case, blanks and punctuation do not count."""
    eea_level: int | None = Field(default=None, ge=1, le=3)
    """At this level of Energy Emergency Alert or a higher one."""
    reserve_below_mw: float | None = Field(default=None, gt=0, le=100_000)
    reserve_clear_mw: float | None = Field(default=None, gt=0, le=100_000)
    """Over only at or above this; by default at ``reserve_below_mw``."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = (self.gridstatus, self.eea_level, self.reserve_below_mw)
        if sum(each is not None for each in given) != 1:
            raise ValueError("give one of gridstatus, eea_level and reserve_below_mw")
        if not all(plain_word(word) for word in self.gridstatus or ()):
            raise ValueError("a word of gridstatus has no letter")
        below, clear = self.reserve_below_mw, self.reserve_clear_mw
        if clear is not None and (below is None or clear < below):
            raise ValueError("reserve_clear_mw lies below reserve_below_mw, or stands alone")
        return self

    def shown(self, outlook: Outlook, *, stands: bool) -> bool | None:
        """Whether the page shows it; None = it does not say."""
        if self.gridstatus is not None:
            return bool({plain_word(word) for word in self.gridstatus} & outlook.plain_words)
        if self.eea_level is not None:
            return outlook.eea_level >= self.eea_level
        assert self.reserve_below_mw is not None
        reserve, below = outlook.reserve_megawatts, self.reserve_below_mw
        return beyond(reserve, below, self.reserve_clear_mw, below=True, stands=stands)


class CaisoRule(Rule):
    """What is asked for while a condition of the grid stands."""

    when: CaisoWhen


class CaisoSettings(PolledSettings):
    """Settings of the grid's state."""

    poll_seconds: float = Field(default=60.0, ge=25.0, le=3600)
    url: str = Field(default=URL, max_length=500)
    stale_seconds: float = Field(default=900.0, ge=60, le=7200)
    """A page older than that shows nothing."""
    acts: tuple[CaisoRule, ...] = Field(default=(), max_length=16)

    @field_validator("url")
    @classmethod
    def _secure(cls, value: str) -> str:
        return public_url(value)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        check_distinct([rule.name for rule in self.acts], "rules")
        return self


@FEED_KINDS.register("caiso")
class Caiso(Feed[CaisoSettings]):
    """Reads one page."""

    settings_model = CaisoSettings

    def __init__(self, context: FeedContext, settings: CaisoSettings) -> None:
        super().__init__(context, settings)
        self._lock = threading.Lock()
        """A person's `feed test` may poll at the same moment."""
        self._acting = Acting(context, settings.acts)
        self._strange: set[str] = set()
        self._page = page_of(context.clock, settings.url, Rate(settings.url, LEAST_SECONDS))

    def poll(self) -> Sequence[Signal]:
        """What the rules ask for now.

        Raises:
            Unavailable: the page could not be read, or is old.
        """
        clock = self.context.clock
        with self._lock:
            received_at, received_seconds = clock.wall(), clock.monotonic_seconds()
            failure: Unavailable | None = None
            try:
                outlook = self._page.read(_outlook_of)
                age = self.settings.stale_seconds
                check_fresh(outlook.at, clock.wall(), age, PAGE)
            except Unavailable as error:
                failure = error
                for rule in self.settings.acts:
                    self._acting.blind(rule, error)
            else:
                self._hear(outlook)
            return self._acting.signals(received_at, received_seconds, failure)

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: CaisoSettings | None) -> Parsed:
        """The page, from a file.

        Raises:
            InvalidInput: it is not that page.
        """
        outlook = read_outlook(json_page(body), now)
        given = settings or CaisoSettings()
        stale = stale_reason(outlook.at, now, given.stale_seconds, PAGE)
        said = ", ".join(outlook.words)
        acting = [
            rule_row(rule, rule.when.shown(outlook, stands=False), said, now, stale)
            for rule in given.acts
        ]
        told = (advisory_row(advisory) for advisory in outlook_told(outlook, "file", now))
        return Parsed((*(row for row in acting if row is not None), *told))

    def _hear(self, outlook: Outlook) -> None:
        for word in outlook.words:
            known = plain_word(word) in KNOWN_WORDS or word in self._strange
            if not known and len(self._strange) < STRANGE_AT_MOST:
                self._strange.add(word)
                log.warning("feed %s: the state %r is not known", self.context.feed_id, word)
        for advisory in outlook_told(outlook, self.context.feed_id, self.context.clock.wall()):
            self.context.advise(advisory)
        said = {"slotDate": outlook.at.isoformat(), "gridstatus": outlook.words}
        raw = json.dumps(said | {"Current_reserve": outlook.reserve_megawatts})
        for rule in self.settings.acts:
            shown = rule.when.shown(outlook, stands=self._acting.stands(rule))
            self._acting.reading(rule, shown, outlook.at, raw)


def outlook_told(outlook: Outlook, feed_id: str, now: datetime) -> list[Advisory]:
    """What the state of the grid informs of."""
    published = AdvisoryQuality.PUBLISHED
    words = ", ".join(outlook.words)[:500]
    level = float(outlook.eea_level)
    told: list[tuple[str, float | None, str, str, AdvisoryQuality]] = [
        ("alert", None, "", words, published),
        ("eea_level", level, "", words, published),
    ]
    if outlook.reserve_megawatts is not None:
        watts = outlook.reserve_megawatts * 1e6
        told.append(("reserve_watts", watts, "W", "current reserve", AdvisoryQuality.MEASURED))
    return [
        Advisory(feed_id, "caiso", quantity, value, unit, text, outlook.at, None, quality, now)
        for quantity, value, unit, text, quality in told
    ]


def _outlook_of(read: Read) -> Outlook:
    return read_outlook(json_page(read.body), read.modified_at or read.received_at)
