"""Spans of a series beyond a threshold, and the events that they become."""

import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from gridaware.domain.advisory import AdvisoryQuality
from gridaware.domain.errors import InvalidInput
from gridaware.feeds.series import Point, covering
from gridaware.feeds.threshold import Asked, Span, Threshold, follow, spans

NOON = datetime(2026, 7, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def rule(**more: object) -> Threshold:
    given = {"name": "dear", "above": 100.0, "target": {"reduce_percent": 20}, **more}
    return Threshold.model_validate_json(json.dumps(given))


def series(*values: float | None, start: datetime = NOON) -> list[Point]:
    """An hour each from noon on; None = nothing is known."""
    return [
        Point(start + n * HOUR, start + (n + 1) * HOUR, value, AdvisoryQuality.PUBLISHED)
        for n, value in enumerate(values)
        if value is not None
    ]


def hours(found: list[Span]) -> list[tuple[float, float]]:
    return [((s.start - NOON) / HOUR, (s.end - NOON) / HOUR) for s in found]


@pytest.mark.parametrize(
    ("values", "more", "expected"),
    [
        ((50, 120, 130, 50), {}, [(1, 3)]),
        ((120, 50, 120), {}, [(0, 1), (2, 3)]),
        ((100, 101, 100), {}, [(1, 2)]),
        ((120, 95, 85, 95), {"clear": 90}, [(0, 2)]),
        ((95, 120, 95, 120, 90), {"clear": 90}, [(1, 4)]),
        ((120, 50, 120), {"join_minutes": 60}, [(0, 3)]),
        ((120, 50, 50, 120), {"join_minutes": 60}, [(0, 1), (3, 4)]),
        ((120, 50, 120, 120), {"least_minutes": 90}, [(2, 4)]),
        ((120, None, 120), {}, [(0, 1), (2, 3)]),
        ((120, None, 95), {"clear": 90}, [(0, 1)]),
        ((-5, 3, -1), {"above": None, "below": 0.0}, [(0, 1), (2, 3)]),
        ((-5, 3, 6), {"above": None, "below": 0.0, "clear": 5}, [(0, 2)]),
        ((50, 60), {}, []),
        ((), {}, []),
    ],
)
def test_spans_lie_beyond_the_threshold_until_it_is_clear(values, more, expected) -> None:
    assert hours(spans(series(*values), rule(**more))) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"above": None},
        {"below": 5.0},
        {"clear": 101.0},
        {"above": None, "below": 5.0, "clear": 4.0},
        {"target": {"reduce_percent": 120}},
        {"target": {}},
        {"name": "no blank"},
    ],
)
def test_a_threshold_that_makes_no_sense_is_refused(wrong) -> None:
    with pytest.raises((ValidationError, InvalidInput)):
        rule(**wrong)


def after(before: list[Asked], values: list[Point], now: datetime, **more: object) -> list[Asked]:
    return follow(before, values, rule(**more), now)


def test_what_is_ahead_is_announced_with_a_name_by_its_start() -> None:
    (asked,) = after([], series(50, 120, 120, 50), NOON)
    assert asked == Asked("dear-2026-07-30T13.00Z", NOON + HOUR, NOON + 3 * HOUR)
    assert after([asked], series(50, 120, 120, 50), NOON + timedelta(minutes=5)) == [asked]


def test_a_forecast_that_moves_revises_and_does_not_begin_another() -> None:
    first = after([], series(50, 120, 120, 50, 50), NOON)
    (moved,) = after(first, series(50, 50, 120, 120, 50), NOON)
    assert moved.name == first[0].name
    assert (moved.start, moved.end, moved.revision) == (NOON + 2 * HOUR, NOON + 4 * HOUR, 1)


def test_a_forecast_that_falls_away_is_taken_back_and_comes_again_under_a_new_name() -> None:
    """What was taken back is closed: control refuses to begin it again."""
    first = after([], series(50, 120, 50), NOON)
    (gone,) = after(first, series(50, 60, 50), NOON)
    assert (gone.taken_back, gone.revision) == (True, 1)
    again, still_gone = after([gone], series(50, 120, 50), NOON + timedelta(seconds=5))
    assert (again.name, again.revision) == (f"{first[0].name}.30120005", 0)
    assert still_gone == gone


def test_what_has_begun_keeps_its_start_and_holds() -> None:
    (begun,) = after([], series(120, 120, 50), NOON)
    now = NOON + timedelta(minutes=10)
    (held,) = after([begun], series(60, 60, 50), now, hold_minutes=30)
    assert (held.start, held.end) == (NOON, NOON + timedelta(minutes=30))
    assert not held.taken_back
    assert after([held], series(60, 60, 50), now + timedelta(minutes=5), hold_minutes=30) == [held]
    (over,) = after([begun], series(60, 60, 50), NOON + timedelta(minutes=31), hold_minutes=30)
    assert over.taken_back


def test_an_event_heard_of_in_the_middle_begins_now() -> None:
    now = NOON + timedelta(minutes=20)
    (asked,) = after([], series(120, 50), now)
    assert (asked.start, asked.end) == (now, NOON + HOUR)


def test_what_is_not_known_is_evidence_of_nothing() -> None:
    first = after([], series(120, 120, 120, 50), NOON)
    assert first[0].end == NOON + 3 * HOUR
    now = NOON + timedelta(minutes=30)
    # The series ends earlier now, while it is still beyond the threshold.
    assert after(first, series(120, 120), now) == first
    # It says nothing of the present at all.
    assert after(first, series(None, None, None, None, 50), now) == first
    assert after(first, [], now) == first
    # It says that the event ends earlier: that is evidence.
    (shorter,) = after(first, series(120, 120, 50, 50), now)
    assert shorter.end == NOON + 2 * HOUR


def test_an_event_ahead_of_which_nothing_is_known_any_more_stands() -> None:
    first = after([], series(50, 50, 50, 120, 50), NOON)
    assert after(first, series(50, 50), NOON) == first


def test_when_a_span_splits_the_first_part_keeps_the_name() -> None:
    first = after([], series(50, 120, 120, 120, 50), NOON)
    one, two = after(first, series(50, 120, 50, 120, 50), NOON)
    assert (one.name, one.end, one.revision) == (first[0].name, NOON + 2 * HOUR, 1)
    assert (two.name, two.start, two.revision) == ("dear-2026-07-30T15.00Z", NOON + 3 * HOUR, 0)


def test_when_two_spans_become_one_what_goes_on_is_said_before_what_is_taken_back() -> None:
    both = after([], series(120, 50, 120, 50), NOON)
    one, gone = after(both, series(120, 120, 120, 50), NOON + timedelta(minutes=1))
    assert (one.name, one.end) == (both[0].name, NOON + 3 * HOUR)
    assert gone.name == both[1].name
    assert gone.taken_back


def test_what_is_over_lends_its_name_to_nothing_else_and_is_forgotten_in_the_end() -> None:
    first = after([], series(120, 50), NOON)
    assert after(first, series(120, 50), NOON + HOUR) == first
    new, old = after(first, series(120, 120, 50), NOON + HOUR)
    assert (old, new.name) == (first[0], f"{first[0].name}.30130000")
    assert after(first, series(120, 50), NOON + timedelta(days=3)) == []


def test_hysteresis_holds_from_one_reading_to_the_next() -> None:
    """A series that begins with the present has forgotten that the threshold was crossed."""
    (begun,) = after([], series(120), NOON, clear=90)
    now, later = NOON + timedelta(minutes=50), series(95, start=NOON + timedelta(minutes=45))
    (on,) = after([begun], later, now, clear=90)
    assert (on.name, on.end) == (begun.name, NOON + timedelta(minutes=105))
    assert after([], later, now, clear=90) == []  # it begins nothing
    (over,) = after([on], series(89, start=now), now, clear=90)
    assert over.taken_back


def test_a_forecast_that_wavers_between_the_threshold_and_clear_takes_nothing_back() -> None:
    first = after([], series(50, 120, 50), NOON, clear=90)
    for value in (99, 101, 95, 120, 91):
        assert after(first, series(50, value, 50), NOON, clear=90) == first
    (gone,) = after(first, series(50, 90, 50), NOON, clear=90)
    assert gone.taken_back


def test_what_is_left_of_a_long_span_is_not_too_short() -> None:
    (begun,) = after([], series(120, 120, 50), NOON, least_minutes=90)
    now = NOON + timedelta(minutes=70)
    left = series(120, 50, start=NOON + HOUR)
    assert after([begun], left, now, least_minutes=90) == [begun]
    assert after([], left, now, least_minutes=90) == []


def test_a_short_span_ahead_is_as_long_as_is_held_and_takes_in_the_next() -> None:
    """Three five-minute values above 100, a low one between the first two."""
    points = [
        Point(NOON + n * HOUR / 12, NOON + (n + 1) * HOUR / 12, v, AdvisoryQuality.FORECAST)
        for n, v in enumerate([50, 120, 50, 120, 50, 50, 50, 50, 50, 120, 50, 50, 50, 50])
    ]
    one, two = after([], points, NOON, hold_minutes=15)
    minute = timedelta(minutes=1)
    assert (one.start - NOON, one.end - NOON) == (5 * minute, 20 * minute)
    assert (two.start - NOON, two.end - NOON) == (45 * minute, 60 * minute)
    assert after([one, two], points, NOON + minute, hold_minutes=15) == [one, two]
    assert after([one, two], points, NOON + 19 * minute, hold_minutes=15) == [one, two]
    assert after([one, two], points, NOON + 59 * minute, hold_minutes=15) == [two, one]


def seen(drawn: random.Random, truth: list[float], now: datetime) -> list[Point]:
    """Two hours of five-minute values from the present on, some missing, those ahead inexact."""
    step = timedelta(minutes=5)
    first = int((now - NOON) / step)
    return [
        Point(
            NOON + n * step,
            NOON + (n + 1) * step,
            truth[n] + (0 if n == first else drawn.uniform(-15, 15)),
            AdvisoryQuality.FORECAST,
        )
        for n in range(first, min(first + 24, len(truth)))
        if drawn.random() > 0.1
    ]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_read_nothing_is_released_without_evidence_nor_sooner_than_held(seed) -> None:
    """A day of a value that wanders about the threshold, as control hears of it."""
    drawn = random.Random(seed)
    truth = [100.0]
    while len(truth) < 288:
        truth.append(truth[-1] + drawn.uniform(-12, 12) + (100 - truth[-1]) * 0.1)
    more = {"above": 105.0, "clear": 95.0, "hold_minutes": 20}
    asked: list[Asked] = []
    revisions: dict[str, int] = {}
    now, released = NOON, 0
    names: set[str] = set()
    while now < NOON + 23 * HOUR:
        points = seen(drawn, truth, now)
        before = {each.name: each for each in asked}
        asked = after(asked, points, now, **more)
        present = covering(points, now)
        acting = [e for e in asked if e.start <= now < e.end and not e.taken_back]
        if present is not None and present.value > 105:
            assert acting
        for each in asked:
            assert each.revision >= revisions.get(each.name, 0)
            revisions[each.name] = each.revision
            names |= {each.name} if each in acting else set()
            was = before.get(each.name)
            if was is None or was.start > now or was.taken_back or was.end <= now:
                continue
            assert each.start == was.start
            if each.taken_back:
                released += 1
                assert present is not None
                assert acting or present.value <= 95  # or it is one with another
                assert acting or now >= was.start + timedelta(minutes=20)
            elif each.end < was.end:
                at = covering(points, each.end)
                held = was.start + timedelta(minutes=20)
                assert each.end == held or (at is not None and at.value <= 95)
        now += timedelta(minutes=drawn.uniform(1, 8))
    assert len(names) > 3
    assert released + len(names) > 5
