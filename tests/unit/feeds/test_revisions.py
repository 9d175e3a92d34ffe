"""Names under which something may be asked: control begins nothing again under a closed one."""

from datetime import UTC, datetime, timedelta

from gridaware.domain.signal import EventRequest, Quantity, TargetSpec
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.revisions import Heard

NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def asked(start: datetime) -> EventRequest:
    return EventRequest(start, start + HOUR, TargetSpec(Quantity.LIMIT_WATTS, 1000.0))


def test_a_name_is_free_until_what_it_asked_is_over() -> None:
    heard = Heard(FeedMemory(), "x")
    assert heard.free("a", NOW) == "a"
    heard.ask("a", "event", asked(NOW))
    assert heard.free("a", NOW + 0.99 * HOUR) == "a"
    assert heard.free("a", NOW + HOUR) == "a.r1"


def test_a_name_that_was_taken_back_is_not_free_again_also_after_a_restart() -> None:
    memory = FeedMemory()
    heard = Heard(memory, "x")
    for expected in ("a", "a.r1", "a.r2"):
        name = heard.free("a", NOW)
        assert name == expected
        heard.ask(name, "event", asked(NOW))
        heard.take_back(name)
    heard.keep(NOW, [])
    assert Heard(memory, "x").free("a", NOW) == "a.r3"


def test_what_is_noted_first_stays_and_is_not_noted_of_what_is_unknown() -> None:
    heard = Heard(FeedMemory(), "x")
    heard.meet("event", NOW)
    assert heard.noted("event", "cut") is None
    assert heard.note("event", "cut", 5.0) == 5.0
    assert heard.note("event", "cut", 9.0) == 5.0
    assert (heard.noted("event", "cut"), heard.noted("other", "cut")) == (5.0, None)
