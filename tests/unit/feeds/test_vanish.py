"""When an event that is no longer listed counts as cancelled."""

from hypothesis import given
from hypothesis import strategies as st

from gridaware.feeds.vanish import APART_SECONDS, Missing, cancelled_by

STANDS = {"a": "w", "b": "w"}


def test_two_reads_a_minute_apart_under_the_witness_cancel() -> None:
    missing = Missing()
    assert cancelled_by(missing, STANDS, ["a"], "w", 100.0) == []
    assert cancelled_by(missing, STANDS, ["a"], "w", 159.9) == []
    assert cancelled_by(missing, STANDS, ["a"], "w", 160.0) == ["b"]
    assert missing.since == {}


def test_one_that_came_back_in_between_is_counted_anew() -> None:
    missing = Missing()
    cancelled_by(missing, STANDS, ["a"], "w", 0.0)
    cancelled_by(missing, STANDS, ["a", "b"], "w", 30.0)
    assert cancelled_by(missing, STANDS, ["a"], "w", 61.0) == []
    assert cancelled_by(missing, STANDS, ["a"], "w", 121.0) == ["b"]


def test_a_read_without_a_witness_begins_the_count_anew() -> None:
    missing = Missing()
    cancelled_by(missing, STANDS, ["a"], "w", 0.0)
    assert cancelled_by(missing, STANDS, ["a"], None, 61.0) == []
    assert cancelled_by(missing, STANDS, ["a"], "w", 62.0) == []


def test_one_that_was_listed_under_another_witness_or_none_is_held() -> None:
    missing = Missing()
    stands = {"a": "before", "b": None}
    for seconds in (0.0, 100.0, 200.0):
        assert cancelled_by(missing, stands, [], "w", seconds) == []


READS = st.lists(
    st.tuples(
        st.floats(0.1, 100), st.sets(st.sampled_from("ab")), st.sampled_from(["w", "v", None])
    ),
    max_size=20,
)


@given(READS)
def test_nothing_is_cancelled_within_a_minute_of_having_been_listed(
    reads: list[tuple[float, set[str], str | None]],
) -> None:
    missing, now = Missing(), 0.0
    last_listed = dict.fromkeys(STANDS, 0.0)
    for step, listed, witness in reads:
        now += step
        for name in listed:
            last_listed[name] = now
        for name in cancelled_by(missing, STANDS, listed, witness, now):
            assert now - last_listed[name] >= APART_SECONDS
            assert witness == STANDS[name]
