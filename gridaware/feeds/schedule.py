"""``schedule``: windows that recur by the site's wall clock, such as a tariff's peak hours.

A window starts by five cron fields and ends at a wall time (``until``) or after a fixed
``duration``. Where clocks change, one rule holds for starts and ends alike: **a wall time means the
first instant at which the local clock shows it or has passed it.** A start that is skipped in
spring is the instant of the jump; one that comes twice in autumn is the first. So ``until`` keeps
the wall hours (the window is an hour shorter or longer that night; one that lies wholly in the
skipped hour does not happen) and ``duration`` keeps the length.

APScheduler's ``CronTrigger`` walks the wall calendar; the rule above turns wall times into
instants, since the trigger itself fires twice for some times of an autumn night.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from pydantic import Field, field_validator, model_validator

from gridaware.domain.errors import ConfigError
from gridaware.domain.eventjson import duration_seconds, printable, target_from_mapping
from gridaware.domain.signal import EventKind, EventRequest, Signal
from gridaware.feeds.kind import (
    FEED_KINDS,
    Feed,
    FeedSettings,
    PolledSettings,
    check_distinct,
)

__all__ = ["Schedule", "ScheduleSettings", "Window", "crontab", "first_instant", "occurrences"]

WINDOW_SECONDS_AT_MOST = 31 * 86400.0
OCCURRENCES_AT_MOST = 2000
"""A poll tells of at most so many of a window: the next ones."""
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAY = timedelta(days=1)


class Window(FeedSettings):
    """One recurring window."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")
    cron: str = Field(max_length=200)
    """Minute, hour, day of the month, month and weekday of the start, as in crontab(5)."""
    until: str | None = Field(default=None, pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")
    """The next such wall time ends the window."""
    duration: str | None = None
    """ISO 8601; elapsed time, whatever the clocks do."""
    target: dict[str, float] = Field(min_length=1, max_length=4)
    """As in an event request."""
    kind: str = Field(default="live", pattern=r"^(live|test|drill)$")
    priority: int | None = Field(default=None, ge=0, le=2**31)
    revision: int = Field(default=0, ge=0, le=2**31)
    """Raise it when the window's target or end changes, so that announced ones are revised."""

    @model_validator(mode="after")
    def _holds(self) -> Self:
        if (self.until is None) == (self.duration is None):
            raise ValueError("give exactly one of until and duration")
        if self.duration is not None and duration_seconds(self.duration) > WINDOW_SECONDS_AT_MOST:
            raise ConfigError("window-too-long", f"{self.name}: {self.duration} is over 31 days")
        target_from_mapping(self.target)
        crontab(self.cron)
        return self


class ScheduleSettings(PolledSettings):
    """Settings of a schedule feed."""

    poll_seconds: float = Field(default=30.0, ge=0.2, le=3600)
    timezone: str = Field(max_length=64)
    """IANA name of the zone whose wall clock counts, such as America/Chicago."""
    horizon_hours: float = Field(default=48.0, gt=0, le=24 * 8)
    """How far ahead windows are announced."""
    windows: tuple[Window, ...] = Field(min_length=1, max_length=64)

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, OSError, LookupError):
            raise ValueError("not a time zone of the IANA data base") from None
        return name

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        check_distinct([window.name for window in self.windows], "windows")
        return self


@FEED_KINDS.register("schedule")
class Schedule(Feed[ScheduleSettings]):
    """Announces the occurrences that are under way or start within the horizon.

    A pure function of the settings and the time: each occurrence has the same id
    (``<name>-<start in UTC>``) at every poll and after every restart.
    """

    settings_model = ScheduleSettings

    def poll(self) -> Sequence[Signal]:
        """The occurrences that stand now, earliest first within each window."""
        now = self.context.clock.wall()
        seconds = self.context.clock.monotonic_seconds()
        horizon = now + timedelta(hours=self.settings.horizon_hours)
        zone = ZoneInfo(self.settings.timezone)
        return [
            Signal(
                feed_id=self.context.feed_id,
                source_id=f"{window.name}-{start:%Y-%m-%dT%H:%MZ}",
                revision=window.revision,
                received_at=now,
                received_seconds=seconds,
                request=EventRequest(
                    start=start,
                    end=end,
                    target=target_from_mapping(window.target),
                    kind=EventKind(window.kind),
                    priority=window.priority,
                ),
                raw=window.model_dump_json(exclude_defaults=True),
            )
            for window in self.settings.windows
            for start, end in occurrences(window, zone, now, horizon)
        ]


def occurrences(
    window: Window, zone: ZoneInfo, now: datetime, horizon: datetime
) -> list[tuple[datetime, datetime]]:
    """(start, end) in UTC of the window's occurrences that end after now and start by horizon."""
    length = _DAY if window.duration is None else _length(window)
    # Two days more on either side: zones have skipped whole days.
    first_wall = (now - length).astimezone(zone).replace(tzinfo=None) - 2 * _DAY
    last_wall = horizon.astimezone(zone).replace(tzinfo=None) + 2 * _DAY
    found: dict[datetime, datetime] = {}
    for wall in _walk(crontab(window.cron), first_wall, last_wall):
        start = first_instant(wall, zone)
        end = _end(window, wall, start, zone)
        if start > horizon or len(found) >= OCCURRENCES_AT_MOST:
            break
        if end > max(now, start):
            found.setdefault(start, end)
    return sorted(found.items())


def first_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant, in UTC, at which the local clock shows ``wall`` or has passed it."""
    early = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if early.astimezone(zone).replace(tzinfo=None) == wall:
        return early
    # Skipped: the jump lies between the readings by the offset after it and the one before it.
    low, high = wall.replace(tzinfo=zone, fold=1).astimezone(UTC), early
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if middle.astimezone(zone).replace(tzinfo=None) >= wall:
            high = middle
        else:
            low = middle
    return high


def crontab(expression: str) -> CronTrigger:
    """The trigger of five cron fields; weekdays as cron counts them, 0 and 7 being Sunday.

    APScheduler counts weekdays from Monday, and needs both day fields to fit where cron programs
    take either; the first is translated, the second refused.

    Raises:
        ConfigError: ``cron-malformed``, ``cron-day-ambiguous`` or ``cron-never``.
    """
    fields = expression.split()
    if len(fields) != 5:
        raise ConfigError(
            "cron-malformed", f"{printable(expression)!r} has {len(fields)} fields, not five"
        )
    if fields[2] != "*" and fields[4] != "*":
        raise ConfigError(
            "cron-day-ambiguous",
            f"{printable(expression)!r} restricts the day of the month and the weekday",
        )
    try:
        fields[4] = _weekdays(fields[4].lower())
        trigger = CronTrigger.from_crontab(" ".join(fields), timezone=UTC)
    except (ValueError, TypeError, LookupError) as error:
        raise ConfigError(
            "cron-malformed", f"{printable(expression)!r}: {printable(str(error), 200)}"
        ) from None
    if next(_walk(trigger, datetime(2024, 1, 1), datetime(2033, 1, 1)), None) is None:  # noqa: DTZ001
        raise ConfigError("cron-never", f"{printable(expression)!r} never comes")
    return trigger


def _weekdays(field: str) -> str:
    """A weekday field by names alone, which mean the same to everybody."""
    if field == "*":
        return field
    days: set[int] = set()
    for part in field.split(","):
        match = re.fullmatch(r"(?:(\*)|([a-z0-9]+)(?:-([a-z0-9]+))?)(?:/([1-7]))?", part)
        if match is None:
            raise ValueError(f"the weekday {part!r} is not understood")
        every, first, last, step = match.groups()
        begin = 0 if every else _weekday(first)
        end = _weekday(last) if last else (6 if every or step else begin)
        end += 7 if end < begin else 0
        days.update(day % 7 for day in range(begin, end + 1, int(step or 1)))
    return ",".join(WEEKDAYS[day] for day in sorted(days))


def _weekday(text: str) -> int:
    if text in WEEKDAYS:
        return WEEKDAYS.index(text)
    if text in tuple("01234567"):
        return int(text) % 7
    raise ValueError(f"{text!r} is not a weekday")


def _walk(trigger: CronTrigger, first: datetime, last: datetime) -> Iterator[datetime]:
    """Wall times that fit, from ``first`` to ``last``; the calendar of UTC has every wall time."""
    bounded = CronTrigger.from_crontab("* * * * *", timezone=UTC)
    bounded.fields = trigger.fields
    bounded.end_date = last.replace(tzinfo=UTC)
    previous = None
    now = first.replace(tzinfo=UTC)
    while (found := bounded.get_next_fire_time(previous, now)) is not None:
        yield found.replace(tzinfo=None)
        previous = found
        now = found + timedelta(seconds=1)


def _length(window: Window) -> timedelta:
    assert window.duration is not None
    return timedelta(seconds=duration_seconds(window.duration))


def _end(window: Window, wall: datetime, start: datetime, zone: ZoneInfo) -> datetime:
    if window.until is None:
        return start + _length(window)
    last = datetime.combine(wall.date(), time.fromisoformat(window.until))
    if last <= wall:
        last += _DAY
    return first_instant(last, zone)
