"""The rules of NvGrid, against the sentence they are made of: for each instant the newest rules."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise, permutations, product

from hypothesis import given
from hypothesis import strategies as st

from gridaware.feeds.dsx.timeline import Load, Order, Segment, Timeline, paint, prune, site_asks

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
HOURS = 8
Said = tuple[int, int | None, float | None, int]
"""From hour, to hour, watts, order."""


def at(hour: float) -> datetime:
    return NOON + timedelta(hours=hour)


def load(order: int, watts: float | None = 1.0) -> Load:
    return Load(Order(NOON, order, 0), watts)


def painted(*said: Said) -> Timeline:
    timeline: Timeline = ()
    for start, end, watts, order in said:
        timeline = paint(timeline, at(start), None if end is None else at(end), load(order, watts))
    return timeline


def shown(timeline: Timeline) -> list[tuple[float, float | None, float | None]]:
    def hour(when: datetime) -> float:
        return (when - NOON).total_seconds() / 3600

    return [(hour(s.start), None if s.end is None else hour(s.end), s.load.watts) for s in timeline]


def ruling(said: tuple[Said, ...], hour: float) -> tuple[float | None, int] | None:
    """The sentence itself, without any intervals."""
    over = [s for s in said if s[0] <= hour and (s[1] is None or hour < s[1])]
    return max(((s[2], s[3]) for s in over), key=lambda pair: pair[1], default=None)


def found(timeline: Timeline, hour: float) -> tuple[float | None, int] | None:
    covering = [s for s in timeline if s.covers(at(hour))]
    assert len(covering) <= 1
    return next(((s.load.watts, s.load.order.serial) for s in covering), None)


def test_a_newer_target_in_the_middle_leaves_both_ends_of_the_older() -> None:
    assert shown(painted((0, 4, 6e6, 1), (1, 2, 4e6, 2))) == [(0, 1, 6e6), (1, 2, 4e6), (2, 4, 6e6)]


def test_without_an_end_it_holds_until_it_is_replaced_and_again_after() -> None:
    assert shown(painted((0, None, 6e6, 1), (1, 2, 4e6, 2))) == [
        (0, 1, 6e6), (1, 2, 4e6), (2, None, 6e6),
    ]  # fmt: skip
    assert shown(painted((0, None, 6e6, 1), (1, None, 4e6, 2))) == [(0, 1, 6e6), (1, None, 4e6)]


def test_null_brings_the_default_back_for_its_window_alone() -> None:
    assert shown(painted((0, 4, 6e6, 1), (1, 2, None, 2))) == [
        (0, 1, 6e6), (1, 2, None), (2, 4, 6e6),
    ]  # fmt: skip
    assert shown(painted((1, 2, None, 2), (0, 4, 6e6, 1))) == [
        (0, 1, 6e6), (1, 2, None), (2, 4, 6e6),
    ]  # fmt: skip


def test_an_older_target_that_comes_late_fills_the_gaps_alone() -> None:
    assert shown(painted((1, 2, 4e6, 2), (3, None, 5e6, 3), (0, 4, 6e6, 1))) == [
        (0, 1, 6e6), (1, 2, 4e6), (2, 3, 6e6), (3, None, 5e6),
    ]  # fmt: skip


def test_every_order_of_three_targets_on_a_small_day_obeys_the_sentence() -> None:
    spans = [(s, e) for s in range(3) for e in (1, 2, 3, None) if e is None or e > s]
    for choice in product(spans, repeat=3):
        said = tuple(
            (start, end, (1.0, None, 2.0)[n], n) for n, (start, end) in enumerate(choice)
        )  # fmt: skip
        results = {painted(*order) for order in permutations(said)}
        assert len(results) == 1
        (timeline,) = results
        for hour in (0, 1, 2, 3):
            assert found(timeline, hour) == ruling(said, hour), said


targets = st.builds(
    lambda start, length, watts: (start, None if length == 0 else start + length, watts),
    st.integers(0, HOURS),
    st.integers(0, HOURS),
    st.one_of(st.none(), st.sampled_from([1.0, 2.0, 3.0])),
)


@given(st.lists(targets, max_size=8), st.randoms(use_true_random=False))
def test_what_rules_does_not_depend_on_when_it_came(
    drawn: list[tuple[int, int | None, float | None]], random: object
) -> None:
    said = [(*target, number) for number, target in enumerate(drawn)]
    shuffled = list(said)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    timeline = painted(*said)
    assert timeline == painted(*shuffled) == painted(*shuffled, *said)
    for first, second in pairwise(timeline):
        assert first.end is not None
        assert first.end <= second.start
        assert first.load != second.load or first.end < second.start
    for half in range(4 * HOURS):
        assert found(timeline, half / 2) == ruling(tuple(said), half / 2)


@given(st.lists(targets, max_size=6), st.integers(0, 2 * HOURS))
def test_what_is_pruned_is_over(
    drawn: list[tuple[int, int | None, float | None]], now: int
) -> None:
    timeline = painted(*((*target, number) for number, target in enumerate(drawn)))
    kept = prune(timeline, at(now), NOON)
    for half in range(2 * now, 6 * HOURS):
        assert found(kept, half / 2) == found(timeline, half / 2)
    assert all(s.end is None or s.end > at(now) for s in kept)


def test_a_default_is_forgotten_once_nothing_older_can_come() -> None:
    timeline = painted((0, None, None, 1))
    assert prune(timeline, at(1), NOON) == timeline
    assert prune(timeline, at(1), NOON + timedelta(seconds=1)) == ()


def test_power_feeds_add_up_and_one_at_its_default_counts_with_it() -> None:
    asks = site_asks(
        {"a": painted((0, 2, 3e6, 1)), "b": painted((1, 3, 1e6, 2))}, {"a": 5e6, "b": 4e6}
    )
    assert [(a.start, a.end, a.watts) for a in asks] == [
        (at(0), at(1), 7e6), (at(1), at(2), 4e6), (at(2), at(3), 6e6),
    ]  # fmt: skip
    assert [a.newest.order.serial for a in asks] == [1, 2, 2]


def test_where_every_power_feed_is_at_its_default_nothing_is_asked() -> None:
    timelines = {"a": painted((0, None, 3e6, 1), (1, 2, None, 2))}
    asks = site_asks(timelines, {"a": 5e6})
    assert [(a.start, a.end) for a in asks] == [(at(0), at(1)), (at(2), None)]
    assert site_asks({"a": painted((0, None, None, 1))}, {"a": 5e6, "b": 1e6}) == ()


def test_a_boundary_of_another_power_feed_that_changes_nothing_cuts_nothing() -> None:
    whole = Segment(at(0), at(4), load(1, 3e6))
    pieces = paint((whole,), at(1), at(2), load(0, 9e6))
    assert pieces == (whole,)
    asks = site_asks({"a": (whole,), "b": painted((1, 2, None, 2))}, {"a": 5e6, "b": 1e6})
    assert {a.watts for a in asks} == {4e6}


def test_a_day_of_five_minutes_said_twice_is_quick_and_stays_a_day() -> None:
    timeline: Timeline = ()
    for number in range(2 * 288):
        start = NOON + timedelta(minutes=5 * (number % 288))
        timeline = paint(timeline, start, start + timedelta(minutes=5), load(number, 1.0))
    assert len(timeline) == 288
    assert min(s.load.order.serial for s in timeline) == 288
