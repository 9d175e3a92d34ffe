"""Events outside a programme's obligation hours are heard and served, but nothing is owed."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

from gridaware.control.situation import question_of
from gridaware.domain.event import EventState
from gridaware.domain.obligation import Obligation
from gridaware.domain.programme import Programme

from .conftest import NOON, SITE

AFTERNOON = Programme(
    "p", deadline_seconds=10.0, obligation=Obligation.of("UTC", ["Mon-Fri 12:30-14:00"])
)


def event(bench, name: str = "f.e"):
    return bench.state.events[name].event


def must(bench) -> bool:
    acting = [t.event for t in bench.state.events.values() if t.event.state.acting]
    turn = SimpleNamespace(state=bench.state, now=bench.now())
    return question_of(turn, acting).situation.must


def test_an_event_outside_the_hours_is_voluntary_and_says_so(make_bench) -> None:
    bench = make_bench(programmes=(AFTERNOON,))
    answer = bench.answer(bench.signal(seconds=120.0))  # at noon, on a Monday
    assert answer.disposition == "accepted"
    assert "voluntary" in answer.message
    assert "outside its programme's obligation hours" in answer.message
    assert event(bench).voluntary == "OutsideObligation"
    bench.ticks(3)
    assert event(bench).state.acting  # served all the same
    assert must(bench) is False


def test_an_event_that_reaches_into_the_hours_is_owed(make_bench) -> None:
    bench = make_bench(programmes=(AFTERNOON,))
    bench.post(bench.signal("reaches", seconds=1801.0))
    bench.post(bench.signal("open", seconds=None, start=60.0))
    bench.post(bench.signal("short", seconds=1700.0))
    assert event(bench, "f.reaches").voluntary == ""
    assert event(bench, "f.open").voluntary == ""
    assert event(bench, "f.short").voluntary == "OutsideObligation"
    bench.ticks(3)
    assert must(bench) is True


def test_a_revision_into_the_hours_makes_it_owed(make_bench) -> None:
    bench = make_bench(programmes=(AFTERNOON,))
    bench.post(bench.signal(start=600.0, seconds=60.0))
    assert event(bench).voluntary
    bench.post(bench.signal(revision=2, start=3600.0, seconds=60.0))
    assert event(bench).voluntary == ""
    assert event(bench).state is EventState.SCHEDULED


def test_a_programme_that_need_not_be_served_makes_every_event_voluntary(make_bench) -> None:
    bench = make_bench(programmes=(replace(SITE.programmes[0], mandatory=False),))
    bench.post(bench.signal())
    assert event(bench).voluntary == "VoluntaryProgramme"
    bench.ticks(3)
    assert must(bench) is False


def test_the_rules_of_the_day_on_which_an_event_starts_are_its_rules(make_bench) -> None:
    old = replace(AFTERNOON, version="old", obligation=None, deadline_seconds=5.0)
    new = replace(
        AFTERNOON, version="new", valid_from=NOON + timedelta(seconds=600), deadline_seconds=60.0
    )
    bench = make_bench(programmes=(old, new))
    bench.post(bench.signal("before", start=300.0))
    bench.post(bench.signal("after", start=900.0))
    assert event(bench, "f.before").voluntary == ""
    assert event(bench, "f.after").voluntary == "OutsideObligation"
    rules = bench.state.site.programme
    assert rules("p", event(bench, "f.before").request.start).version == "old"
    assert rules("p", event(bench, "f.after").request.start).version == "new"
