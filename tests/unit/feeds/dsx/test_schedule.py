"""From targets to events of control: what holds is said before what releases, and kept over it."""

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError, Refused, Unavailable
from gridaware.feeds.dsx.book import SEEN_AT_MOST, SEGMENTS_AT_MOST, Book
from gridaware.feeds.dsx.carrying import carry_out
from gridaware.feeds.dsx.messages import CloudEvent, Target, read_event
from gridaware.feeds.dsx.pieces import Piece, Step
from gridaware.feeds.dsx.timeline import site_asks
from gridaware.feeds.memory import FeedMemory
from gridaware.sim.grid.dsx import Isv

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
DEFAULTS = {"a": 9e6}
AGE = timedelta(hours=24)


def at(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def said_at(hours: float) -> CloudEvent:
    event = read_event(Isv("acme", ManualClock(NOON)).message([]))
    return replace(event, time=at(hours), event_id=str(uuid.UUID(int=int(hours * 3600))))


def target(
    start: float | None, end: float | None, kilowatts: float | None, tags: Sequence[str] = ()
) -> Target:
    begins = None if start is None else at(start)
    ends = None if end is None else at(end)
    return Target(begins, ends, tuple(tags), kilowatts, "kilowatt", best_effort=False)


class Control:
    """What control makes of the steps: events by name, and the least limit at each moment."""

    def __init__(self) -> None:
        self.events: dict[str, Piece] = {}
        self.steps: list[Step] = []
        self.refuse: Callable[[Step], GridawareError | None] = lambda _: None
        self.limits: list[dict[int, float]] = []

    def say(self, step: Step) -> None:
        error = self.refuse(step)
        if error is not None:
            raise error
        known = self.events.get(step.piece.name)
        assert step.piece.revision == (0 if known is None else known.revision + 1)
        self.steps.append(step)
        if step.taken_back:
            del self.events[step.piece.name]
        else:
            self.events[step.piece.name] = step.piece
        self.limits.append(self.hours())

    def hours(self) -> dict[int, float]:
        """The strictest limit in each half hour, where one holds."""
        return {
            half: min(limits)
            for half in range(48)
            if (
                limits := [
                    p.watts
                    for p in self.events.values()
                    if p.start <= at(half / 2) and (p.end is None or at(half / 2) < p.end)
                ]
            )
        }


def say(book: Book, control: Control, now: float, *targets: Target) -> Book:
    event = said_at(now)
    book.prune(at(now), AGE)
    after = book.said(event, targets, tuple(DEFAULTS), at(now))
    carry_out(after, DEFAULTS, at(now), control.say)
    after.note(event.event_id, f"print-{now}")
    return after


def told(control: Control) -> list[tuple[float, float | None, float, bool]]:
    def hour(when: datetime) -> float:
        return (when - NOON).total_seconds() / 3600

    return [
        (
            hour(s.piece.start),
            None if s.piece.end is None else hour(s.piece.end),
            s.piece.watts,
            s.taken_back,
        )
        for s in control.steps
    ]


def test_a_cut_is_said_before_what_it_cuts_is_shortened() -> None:
    control = Control()
    book = say(Book(), control, 0, target(None, None, 6000))
    say(book, control, 1, target(2, 3, 4000))
    assert told(control) == [
        (0, None, 6e6, False),
        (2, 3, 4e6, False),
        (3, None, 6e6, False),
        (0, 2, 6e6, False),
    ]
    assert control.steps[0].piece.name == control.steps[-1].piece.name


def test_the_next_set_point_begins_before_the_last_one_ends() -> None:
    control = Control()
    book = say(Book(), control, 0, target(None, None, 6000))
    say(book, control, 1, target(None, None, 7000))
    assert told(control) == [
        (0, None, 6e6, False), (1, None, 7e6, False), (0, 1, 6e6, False),
    ]  # fmt: skip


def test_null_ends_what_acts_and_takes_back_what_lies_ahead() -> None:
    control = Control()
    book = say(Book(), control, 0, target(None, 4, 6000), target(5, 6, 4000))
    say(book, control, 1, target(None, None, None))
    assert told(control)[2:] == [(0, 1, 6e6, False), (5, 6, 4e6, True)]


def test_what_control_refuses_releases_nothing() -> None:
    control = Control()
    book = say(Book(), control, 0, target(None, None, 6000))
    control.refuse = lambda step: None if step.releases else Refused("events-too-many", "x")
    book = say(book, control, 1, target(None, None, 7000))
    assert list(control.hours().values())[4:] == [6e6] * 44
    # The next that can be carried out is, and lets go of the first then.
    control.refuse = lambda _: None
    say(book, control, 2, target(None, None, 8000))
    assert [e.watts for e in control.events.values() if e.end is None] == [8e6]


def test_a_piece_that_never_began_to_act_is_taken_back_when_it_cannot_be_shortened() -> None:
    control = Control()
    book = say(Book(), control, 0, target(None, None, 6000))

    def shortened(step: Step) -> GridawareError | None:
        over = step.piece.end is not None and step.piece.end <= at(1) and not step.taken_back
        return Refused("event-over", "x") if over else None

    control.refuse = shortened
    book = say(book, control, 1, target(None, None, 7000))
    assert [(e.watts, e.end) for e in control.events.values()] == [(7e6, None)]
    assert set(book.pieces) == set(control.events)


def test_a_piece_that_a_person_closed_is_let_go() -> None:
    control = Control()
    book = say(Book(), control, 0, target(None, None, 6000))
    control.refuse = lambda s: Refused("event-closed", "x") if s.releases else None
    book = say(book, control, 1, target(None, None, None))
    assert book.pieces == {}


def test_what_is_not_durable_comes_again_and_nothing_is_doubled() -> None:
    control = Control()
    book = say(Book(), control, 0, target(None, None, 6000))
    times = 0

    def second_fails(step: Step) -> GridawareError | None:
        nonlocal times
        times += 1
        return Unavailable("disk", "x") if times == 2 else None

    control.refuse = second_fails
    event = said_at(1)
    after = book.said(event, [target(2, 3, 4000)], ("a",), at(1))
    with pytest.raises(Unavailable):
        carry_out(after, DEFAULTS, at(1), control.say)
    book.pieces = after.pieces  # as the feed does
    again = book.said(event, [target(2, 3, 4000)], ("a",), at(1.5))
    carry_out(again, DEFAULTS, at(1.5), control.say)
    assert told(control)[1:] == [
        (2, 3, 4e6, False), (3, None, 6e6, False), (0, 2, 6e6, False),
    ]  # fmt: skip


windows = st.tuples(
    st.one_of(st.none(), st.integers(0, 12)),
    st.one_of(st.none(), st.integers(1, 8)),
    st.one_of(st.none(), st.sampled_from([3000.0, 5000.0, 8000.0])),
)


@settings(max_examples=150)
@given(st.lists(st.lists(windows, min_size=1, max_size=3), min_size=1, max_size=5))
def test_whatever_is_said_no_step_ever_asks_less_than_before_and_after(
    messages: list[list[tuple[int | None, int | None, float | None]]],
) -> None:
    control, book = Control(), Book()
    for number, drawn in enumerate(messages):
        now = number / 2
        targets = [
            target(s, None if n is None else (now if s is None else s) + n, kw)
            for s, n, kw in drawn
        ]
        before = control.hours()
        control.limits.clear()
        with suppress(Refused):  # all of it is over
            book = say(book, control, now, *targets)
        after = control.hours()
        ahead = [half for half in range(number, 48) if half in before and half in after]
        for limits in control.limits:
            for half in ahead:
                assert limits[half] <= max(before[half], after[half])
        wanted = {
            half: ask.watts
            for ask in site_asks(book.timelines, DEFAULTS)
            for half in range(number, 48)
            if ask.start <= at(half / 2) and (ask.end is None or at(half / 2) < ask.end)
        }
        assert {half: watts for half, watts in after.items() if half >= number} == wanted


def test_a_book_is_the_same_after_a_restart(tmp_path: Path) -> None:
    book = say(Book(), Control(), 0, target(None, None, 6000), target(2, 3, None), target(4, 5, 1))
    book.keep(FeedMemory(tmp_path / "m.json"))
    assert Book.kept(FeedMemory(tmp_path / "m.json")) == book
    assert Book.kept(FeedMemory()) == Book()


@pytest.mark.parametrize("kept", [{"pieces": 1}, {"pieces": [], "timelines": {"a": [1]}}, [1], "x"])
def test_a_book_that_cannot_be_read_begins_anew(kept: object) -> None:
    memory = FeedMemory()
    memory.put("book", kept)
    assert Book.kept(memory) == Book()


def test_copies_are_known_by_id_and_by_signature() -> None:
    book = Book()
    assert not book.knows("id-1", "print-1")
    book.note("id-1", "print-1")
    assert book.knows("id-1", "print-1")
    for event_id, mark in (("id-1", "print-2"), ("id-2", "print-1")):
        with pytest.raises(Refused) as caught:
            book.knows(event_id, mark)
        assert caught.value.code == "dsx-replayed"
    for number in range(2 * SEEN_AT_MOST):
        book.note(f"n-{number}", f"p-{number}")
    assert len(book.seen) == SEEN_AT_MOST


def test_a_schedule_of_too_many_parts_is_refused_and_the_old_one_stays() -> None:
    book = Book()
    for hour in range(SEGMENTS_AT_MOST // 250):
        many = [target(n / 10 + hour * 50, n / 10 + 0.05 + hour * 50, 1) for n in range(1, 251)]
        book = book.said(said_at(hour), many, ("a",), at(0))
    with pytest.raises(Refused) as caught:
        book.said(said_at(9), [target(900, 901, 1)], ("a",), at(0))
    assert caught.value.code == "dsx-schedule-many"
    assert sum(len(line) for line in book.timelines.values()) == SEGMENTS_AT_MOST
    memory = FeedMemory()
    carry_out(book, DEFAULTS, at(0), lambda _: None)
    for number in range(SEEN_AT_MOST):
        book.note(str(uuid.UUID(int=number)), f"{number:032}")
    book.keep(memory)  # the largest book fits into a feed's memory


def test_targets_for_others_alone_are_noted_and_change_nothing() -> None:
    control = Control()
    book = say(Book(), control, 0, target(None, None, 6000, ["b"]))
    assert control.steps == []
    assert list(book.seen) == [str(uuid.UUID(int=0))]


def test_what_is_over_leaves_the_book() -> None:
    book = say(Book(), Control(), 0, target(None, 1, 6000), target(1, None, None))
    book.prune(at(30), AGE)
    assert (book.timelines, book.pieces) == ({}, {})
