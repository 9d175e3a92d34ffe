"""The server's clock against ours, read in whole seconds over a network that takes its time."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridaware.domain.errors import GridawareError, Unavailable
from gridaware.feeds.ieee2030.servertime import ServerTime
from gridaware.feeds.memory import FeedMemory

NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)


def read(time: ServerTime, true_offset: float, at_seconds: float, took: float = 0.1) -> None:
    """One reading, answered in the middle of ``took``."""
    sent = NOW + timedelta(seconds=at_seconds)
    shown = int(sent.timestamp() + took / 2 + true_offset)
    time.measure(shown, sent, sent + timedelta(seconds=took))


def made(memory: FeedMemory | None = None) -> tuple[ServerTime, list[GridawareError]]:
    told: list[GridawareError] = []
    return ServerTime(memory or FeedMemory(), told.append), told


@given(
    st.floats(-7200, 7200),
    st.lists(st.tuples(st.floats(0, 100), st.floats(0.001, 0.9)), min_size=1, max_size=30),
)
def test_an_offset_is_near_the_truth_and_never_moves_while_the_clocks_do_not(
    true: float, readings: list[tuple[float, float]]
) -> None:
    time, told = made()
    offsets = set()
    for at, took in readings:
        read(time, true, at, took)
        offsets.add(time.offset_seconds)
    assert len(offsets) == 1
    assert abs(time.offset_seconds - true) <= 1.001
    assert len(told) == (abs(time.offset_seconds) > 2)


def test_clocks_that_agree_are_taken_to_agree_exactly() -> None:
    for at_seconds in (0.0, 0.3, 0.7, 0.99):
        time, _ = made()
        read(time, 0.0, at_seconds)
        assert time.offset_seconds == 0.0


def test_a_step_of_the_server_is_followed_alarmed_once_and_again_after_it_was_right() -> None:
    memory = FeedMemory()
    time, told = made(memory)
    for true in (0.0, 90.0, 90.0, 0.0, -3600.0):
        read(time, true, 0.0)
        assert abs(time.offset_seconds - true) <= 1.001
    assert [error.code for error in told] == ["ieee2030-clock-offset"] * 2
    assert ["ahead of" in told[0].message, "behind" in told[1].message] == [True, True]
    again, _ = made(memory)
    assert again.offset_seconds == time.offset_seconds


def test_a_clock_that_is_more_than_a_day_off_changes_nothing() -> None:
    time, _ = made()
    read(time, 30.0, 0.0)
    before = time.offset_seconds
    for true in (-90_000.0, 90_000.0):
        with pytest.raises(Unavailable) as caught:
            read(time, true, 1.0)
        assert caught.value.code == "ieee2030-clock-absurd"
    assert time.offset_seconds == before


def test_an_instant_of_the_server_is_one_of_ours() -> None:
    time, _ = made()
    read(time, 3600.0, 0.0)
    ours = time.ours(NOW + timedelta(hours=1))
    assert abs((ours - NOW).total_seconds()) <= 1.0
    assert time.now(ours) == pytest.approx((NOW + timedelta(hours=1)).timestamp())


@pytest.mark.parametrize("kept", ["soon", None, 1e9, [1]])
def test_a_memory_that_makes_no_sense_is_not_believed(kept: object) -> None:
    memory = FeedMemory()
    memory.put("offset", kept)
    assert made(memory)[0].offset_seconds == 0.0
