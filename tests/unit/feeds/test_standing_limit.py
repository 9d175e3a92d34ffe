"""A limit that is asked now begins now, whatever stood before and whatever the clock does."""

from datetime import UTC, datetime, timedelta

from gridaware.domain.signal import EventRequest, Quantity, TargetSpec
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.standing_limit import StandingLimit, kept_limit

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def limit(start: datetime, kilowatts: float = 500, *, immediate: bool = True) -> EventRequest:
    target = TargetSpec(Quantity.LIMIT_WATTS, kilowatts * 1e3)
    return EventRequest(start, start + HOUR, target, immediate=immediate)


def test_a_revision_of_a_limit_in_force_does_not_move_its_beginning() -> None:
    first, asked = StandingLimit().asked(limit(NOW), NOW)
    later = NOW + timedelta(minutes=20)
    second, revised = first.asked(limit(later, 300), later)
    assert (asked.start, revised.start, revised.end) == (NOW, NOW, later + HOUR)
    assert [(each.period, each.revision) for each in (first, second)] == [(1, 0), (1, 1)]


def test_one_that_was_announced_postpones_none_that_is_asked_now() -> None:
    announced, _ = StandingLimit().asked(limit(NOW + 4 * HOUR, immediate=False), NOW)
    after, asked = announced.asked(limit(NOW, 300), NOW)
    assert (asked.start, asked.end) == (NOW, NOW + HOUR)
    assert datetime.fromisoformat(after.start) == NOW


def test_after_the_clock_was_set_back_a_limit_is_still_taken() -> None:
    """Corner case 9: its end came before the beginning of the one in force."""
    before, _ = StandingLimit().asked(limit(NOW), NOW)
    yesterday = NOW - timedelta(days=1)
    after, asked = before.asked(limit(yesterday, 300), yesterday)
    assert (asked.start, asked.end) == (yesterday, yesterday + HOUR)
    assert (after.period, after.revision) == (1, 1)


def test_what_was_remembered_is_what_stands() -> None:
    memory = FeedMemory()
    stands, _ = StandingLimit().asked(limit(NOW), NOW)
    stands.keep(memory, "limit")
    assert kept_limit(memory, "limit") == stands
    memory.put("limit", {"strange": 1})
    assert kept_limit(memory, "limit") == StandingLimit()


def test_a_feed_registered_anew_never_uses_a_name_of_its_earlier_life() -> None:
    """Control would answer "superseded", and the limit would not act."""
    before, _ = StandingLimit().asked(limit(NOW), NOW)
    later = NOW + timedelta(minutes=1)
    after, _ = StandingLimit().asked(limit(later), later)  # its memory is gone
    assert (before.period, after.period) == (1, 1)
    assert before.name("limit") != after.name("limit")
    second, _ = after.released().asked(limit(later), later)
    assert second.name("limit") == "limit-2.20261201T120100Z"
    assert StandingLimit(period=3).name("limit") == "limit-3"  # of a memory without it
