"""A rule asks at once, holds on bad data, and takes back on evidence alone."""

from datetime import UTC, datetime, timedelta

import pytest

from gridaware.feeds.conditions import Rule, Standing, beyond, step

NOW = datetime(2026, 7, 30, 21, 0, tzinfo=UTC)
RULE = Rule(
    name="r",
    target={"reduce_percent": 10.0},
    hold_minutes=15,
    clear_minutes=5,
    longest_minutes=60,
)


def after(*readings: tuple[float, bool | None], rule: Rule = RULE) -> Standing:
    """What stands after readings, each at a minute, by the same clock on both sides."""
    standing = Standing()
    for minute, shown in readings:
        at = NOW + timedelta(minutes=minute)
        standing = step(rule, standing, shown, at, at)
    return standing


def test_the_first_reading_asks() -> None:
    standing = after((0, True))
    assert standing.stands(NOW)
    assert (standing.start, standing.end) == (NOW, NOW + timedelta(minutes=60))


def test_nothing_is_taken_back_before_its_hold_nor_before_it_was_clear_long_enough() -> None:
    assert after((0, True), (1, False), (14.9, False)).asks
    assert not after((0, True), (1, False), (15, False)).asks
    assert after((0, True), (14, False), (18.9, False)).asks
    assert not after((0, True), (14, False), (19, False)).asks


def test_a_reading_that_shows_it_again_begins_the_clear_time_anew() -> None:
    assert after((0, True), (16, False), (20, True), (21, False), (25.9, False)).asks
    assert not after((0, True), (16, False), (20, True), (21, False), (26, False)).asks


def test_bad_data_releases_nothing_and_is_no_evidence_that_it_is_over() -> None:
    assert after((0, True), *((m, None) for m in range(1, 60))).asks
    # clear, blind, clear: the four minutes before the gap do not count
    assert after((0, True), (16, False), (20, None), (21.5, False)).asks
    assert not after((0, True), (16, False), (20, None), (21.5, False), (26.5, False)).asks


def test_blind_for_its_whole_length_it_ends_by_itself() -> None:
    standing = after((0, True), (30, None), (59, None))
    assert standing.stands(NOW + timedelta(minutes=59))
    assert not standing.stands(NOW + timedelta(minutes=60))


def test_while_it_is_confirmed_it_is_prolonged_in_few_revisions() -> None:
    standing = after(*((m / 6, True) for m in range(600)))  # 100 minutes of ten-second readings
    assert standing.start == NOW
    assert standing.end is not None
    assert standing.end >= NOW + timedelta(minutes=130)
    assert standing.revision == 3  # once every half of its length


def test_a_page_that_stands_still_makes_no_time_pass() -> None:
    standing = step(RULE, Standing(), True, NOW, NOW)
    for minute in range(1, 50):
        now = NOW + timedelta(minutes=minute)
        standing = step(RULE, standing, False, NOW + timedelta(minutes=1), now)
    assert standing.asks


def test_a_condition_must_be_shown_for_as_long_as_the_rule_says() -> None:
    slow = RULE.model_copy(update={"for_seconds": 120.0})
    assert not after((0, True), (1.9, True), rule=slow).asks
    assert after((0, True), (2, True), rule=slow).asks
    assert not after((0, True), (1, False), (2, True), rule=slow).asks
    assert not after((0, True), (1, None), (2, True), rule=slow).asks


def test_what_comes_back_after_a_release_is_another_event() -> None:
    first = after((0, True), (1, False), (15, False))
    again = step(RULE, first, True, NOW + timedelta(minutes=20), NOW + timedelta(minutes=20))
    assert not first.asks
    assert (again.start, again.revision) == (NOW + timedelta(minutes=20), 0)


@pytest.mark.parametrize(
    ("value", "stands", "shown"),
    [(2999, False, True), (3000, False, False), (3400, True, True), (3500, True, False)],
)
def test_a_limit_and_where_it_is_over(value: float, stands: bool, shown: bool) -> None:
    assert beyond(value, 3000, 3500, below=True, stands=stands) is shown
    assert beyond(-value, -3000, -3500, below=False, stands=stands) is shown
    assert beyond(None, 3000, 3500, below=True, stands=stands) is None
