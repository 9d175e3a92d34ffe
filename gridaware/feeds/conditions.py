"""What a condition of the grid asks for while it stands: by rules of the feed's settings alone.

A condition (an emergency level, a reserve below a limit) is read again and again, and readings
lie: they flap, they are old, they fail. So a rule asks from the first reading that meets it
(after ``for_seconds`` of them) and takes back only on evidence: readings, fresh ones, that show
for ``clear_minutes`` on end that it is over. What is old, or failed to come, is no evidence of
anything: it begins that count anew, and what stands runs to its end, ``longest_minutes`` after it
was last confirmed.

Durations are counted in the publisher's own time, so neither a page that stands still nor a step
of our clock makes them pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from pydantic import Field, model_validator

from gridaware.domain.advisory import Advisory
from gridaware.domain.errors import Unavailable
from gridaware.domain.eventjson import target_from_mapping
from gridaware.domain.signal import EventKind, EventRequest, Signal
from gridaware.feeds.ids import source_id
from gridaware.feeds.kind import Disposition, FeedContext, FeedSettings, ParsedRow

__all__ = [
    "Acting",
    "Asking",
    "Outage",
    "Rule",
    "Standing",
    "advisory_row",
    "beyond",
    "rule_row",
    "step",
]


BLIND_POLLS = 3
"""So many polls say what stands although the page fails: one may be a person's, one may have found
control away."""


class Asking(FeedSettings):
    """What an acting part of a feed asks for."""

    target: dict[str, float] = Field(min_length=1, max_length=4)
    """As in an event request."""
    kind: str = Field(default="live", pattern=r"^(live|test|drill)$")
    priority: int | None = Field(default=None, ge=0, le=2**31)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        target_from_mapping(self.target)
        return self

    def request(self, start: datetime, end: datetime) -> EventRequest:
        """The request for a period."""
        return EventRequest(
            start, end, target_from_mapping(self.target), EventKind(self.kind), self.priority
        )


class Rule(Asking):
    """What is asked for while a condition stands; each kind adds its ``when``."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")
    for_seconds: float = Field(default=0.0, ge=0, le=3600)
    """How long readings must show the condition before anything is asked."""
    clear_minutes: float = Field(default=5.0, ge=0, le=1440)
    """How long readings must show that it is over."""
    hold_minutes: float = Field(default=15.0, ge=0, le=1440)
    """Nothing is taken back sooner."""
    longest_minutes: float = Field(default=240.0, gt=0, le=1440)
    """When no fresh reading confirms it, the event ends so long after the last that did."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.longest_minutes < self.hold_minutes:
            raise ValueError("longest_minutes is below hold_minutes")
        return self


@dataclass(frozen=True, slots=True)
class Standing:
    """What one rule asked last."""

    start: datetime | None = None
    """By our clock, as is the end; None = it never asked."""
    end: datetime | None = None
    revision: int = 0
    asks: bool = False
    shown_since: datetime | None = None
    """In the publisher's time, as are the next two: when readings began to show the condition."""
    asked_since: datetime | None = None
    clear_since: datetime | None = None

    def stands(self, now: datetime) -> bool:
        """Whether it asks for something at an instant."""
        return self.asks and self.end is not None and self.end > now


def step(
    rule: Rule, before: Standing, shown: bool | None, page_at: datetime, now: datetime
) -> Standing:
    """What a rule asks after one more reading. Pure.

    Args:
        rule: the rule.
        before: what it asked before.
        shown: whether the reading shows the condition; None = there is no fresh reading.
        page_at: of which instant the reading is, by its publisher.
        now: by our clock.
    """
    if shown is None:
        return replace(before, shown_since=None, clear_since=None)
    if not shown:
        return _cleared(rule, replace(before, shown_since=None), page_at, now)
    since = before.shown_since or page_at
    after = replace(before, shown_since=since, clear_since=None)
    longest = timedelta(minutes=rule.longest_minutes)
    if after.stands(now) and after.end is not None:
        if after.end - now >= longest / 2:
            return after
        return replace(after, end=now + longest, revision=after.revision + 1)
    if (page_at - since).total_seconds() < rule.for_seconds:
        return after
    return Standing(now, now + longest, 0, asks=True, shown_since=since, asked_since=page_at)


def _cleared(rule: Rule, before: Standing, page_at: datetime, now: datetime) -> Standing:
    if not before.stands(now) or before.asked_since is None:
        return before
    after = replace(before, clear_since=before.clear_since or page_at)
    assert after.clear_since is not None
    held = page_at - before.asked_since >= timedelta(minutes=rule.hold_minutes)
    clear = page_at - after.clear_since >= timedelta(minutes=rule.clear_minutes)
    if not (held and clear):
        return after
    return replace(after, asks=False, revision=after.revision + 1)


def beyond(
    value: float | None, limit: float, clear: float | None, *, below: bool, stands: bool
) -> bool | None:
    """Whether a value is beyond a limit, or, once that stands, not yet back behind ``clear``."""
    if value is None:
        return None
    edge = clear if stands and clear is not None else limit
    return value < edge if below else value > edge


class Outage:
    """Lets the first polls of an outage say what stands, and then shows the feed to be blind."""

    def __init__(self) -> None:
        self._said: set[tuple[str, int]] = set()
        self._blind_polls = 0

    def check(self, found: Sequence[Signal], failure: Unavailable | None) -> None:
        """Accept what a poll found.

        Raises:
            Unavailable: ``failure``, where nothing stands, or what does was said often enough.
        """
        said = {(signal.source_id, signal.revision) for signal in found}
        fresh = failure is None or not said <= self._said
        self._blind_polls = 0 if fresh else self._blind_polls + 1
        self._said = said
        if failure is not None and (not found or self._blind_polls >= BLIND_POLLS):
            raise failure


class Acting:
    """The rules of one feed, and what each asked, kept over restarts. One thread at a time."""

    def __init__(self, context: FeedContext, rules: Sequence[Rule]) -> None:
        self._context = context
        self._rules = {rule.name: rule for rule in rules}
        kept = context.memory.get("standing")
        self._standing = _kept(kept, self._rules) if isinstance(kept, dict) else {}
        self._raw: dict[str, str] = {}
        self._told_held: set[str] = set()
        self._newest: dict[str, datetime] = {}
        self._outage = Outage()

    def stands(self, rule: Rule) -> bool:
        """Whether a rule asks for something now."""
        return self._of(rule).stands(self._context.clock.wall())

    def reading(self, rule: Rule, shown: bool | None, page_at: datetime, raw: str) -> None:
        """Take one more reading in; one that is older than the last is evidence of nothing.

        A publisher's servers answer in turn, and some of them lag behind.
        """
        newest = self._newest.setdefault(rule.name, page_at)
        if page_at < newest:
            return
        self._newest[rule.name] = page_at
        now = self._context.clock.wall()
        self._standing[rule.name] = step(rule, self._of(rule), shown, page_at, now)
        if shown is not None:
            self._raw[rule.name] = raw
            self._told_held.discard(rule.name)

    def blind(self, rule: Rule, error: Unavailable) -> None:
        """There is no fresh reading; what stands is held, and that is said once."""
        now = self._context.clock.wall()
        standing = step(rule, self._of(rule), None, now, now)
        self._standing[rule.name] = standing
        if standing.stands(now) and standing.end and rule.name not in self._told_held:
            self._told_held.add(rule.name)
            message = f"{error.message}; {rule.name} is held until {standing.end:%Y-%m-%dT%H:%MZ}"
            self._context.refuse(Unavailable(error.code, message), "")

    def signals(
        self, received_at: datetime, received_seconds: float, failure: Unavailable | None = None
    ) -> list[Signal]:
        """What stands now, and what was taken back; made durable before it is handed over.

        Args:
            received_at: when the readings were asked for.
            received_seconds: the same, monotonic.
            failure: of the page that the feed mainly rests on.

        Raises:
            Unavailable: it cannot be made durable; or ``failure``, once what stands was said in a
                few polls, so that the feed is shown to be blind while that is held.
        """
        now = self._context.clock.wall()
        self._context.memory.put(
            "standing", {name: _plain(each) for name, each in self._standing.items()}
        )
        found = []
        for name, rule in self._rules.items():
            standing = self._of(rule)
            start, end = standing.start, standing.end
            if start is None or end is None or end <= now:
                continue
            found.append(
                Signal(
                    self._context.feed_id,
                    source_id(f"{name}-{start:%Y-%m-%dT%H.%M.%SZ}"),
                    standing.revision,
                    received_at,
                    received_seconds,
                    rule.request(start, end) if standing.asks else None,
                    self._raw.get(name, ""),
                )
            )
        self._outage.check(found, failure)
        return found

    def _of(self, rule: Rule) -> Standing:
        return self._standing.get(rule.name, Standing())


def rule_row(
    rule: Rule, shown: bool | None, said: str, now: datetime, stale: str = ""
) -> ParsedRow | None:
    """What a person is shown of a rule and one reading; None where it asks for nothing.

    ``stale`` says why the reading is too old to act on.
    """
    if not shown:
        return None
    end = now + timedelta(minutes=rule.longest_minutes)
    target = target_from_mapping(rule.target)
    reason = f"{said}; held until {rule.clear_minutes:g} min of readings show that it is over"
    return ParsedRow(
        rule.name,
        now,
        end,
        target.quantity.value,
        target.value,
        Disposition.REFUSED if stale else Disposition.ACT,
        stale or reason,
        target,
    )


def advisory_row(advisory: Advisory) -> ParsedRow:
    """What a person is shown of what only informs."""
    return ParsedRow(
        advisory.source_id,
        advisory.start,
        advisory.end,
        advisory.quantity,
        advisory.text if advisory.value is None else advisory.value,
        Disposition.ADVISORY,
        f"{advisory.quality.value}{f', {advisory.unit}' if advisory.unit else ''}"
        f"{f': {advisory.text}' if advisory.text and advisory.value is not None else ''}",
    )


_TIMES = ("start", "end", "shown_since", "asked_since", "clear_since")


def _plain(standing: Standing) -> dict[str, Any]:
    times = {name: getattr(standing, name) for name in _TIMES}
    return {
        "revision": standing.revision,
        "asks": standing.asks,
        **{name: at.isoformat() if at else None for name, at in times.items()},
    }


def _kept(kept: dict[str, Any], rules: dict[str, Rule]) -> dict[str, Standing]:
    """What was kept of the rules that there still are; what is broken never asked."""
    found = {}
    for name, each in kept.items():
        try:
            times = {key: datetime.fromisoformat(each[key]) for key in _TIMES if each[key]}
            if name in rules:
                found[name] = Standing(
                    revision=int(each["revision"]), asks=bool(each["asks"]), **times
                )
        except (KeyError, TypeError, ValueError):
            continue
    return found
