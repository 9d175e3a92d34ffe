"""The response record: four clocks of every GPU, worked by hand."""

import random
from datetime import UTC, datetime

import pytest

from gridaware.domain.reading import GpuObservation, NodeObservation, Quality
from gridaware.domain.wire import Acknowledged, GpuResult
from gridaware.settlement.record import BOUNDS_SECONDS, MOST_ROWS, Recorder

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
LIMITS = {"n0": {"a": 250.0, "b": 250.0}, "n1": {"c": 200.0}}
SENT = {"n0": 7, "n1": 8}


def ack(node: str, results: list[GpuResult], sequence: int = 7) -> Acknowledged:
    return Acknowledged(node, 1, sequence, "d1-1", tuple(results), True, NOON)


def result(gpu: str, after: float | None, enforced: float | None = 250.0) -> GpuResult:
    return GpuResult(gpu, 250.0, enforced, None if enforced else "device-error", after)


def seen(watts: dict[str, float], node: str = "n0", quality: Quality = Quality.GOOD, age=0.0):
    gpus = tuple(GpuObservation(g, w, None, "e", 250.0, 250.0, quality) for g, w in watts.items())
    return NodeObservation(node, age, gpus)


def row(recorder: Recorder, gpu: str):
    record = recorder.record(10.0, 10.004)
    assert record is not None
    return next(row for row in record.rows if row.gpu_id == gpu)


def test_the_gpu_read_back_last_is_placed_at_the_arrival_and_the_others_before_it() -> None:
    recorder = Recorder("d1-1", LIMITS, SENT)
    recorder.acknowledged(ack("n0", [result("a", 0.003), result("b", 0.008)]), 10.020)
    assert row(recorder, "b").accepted_ms == pytest.approx(20.0)
    assert row(recorder, "a").accepted_ms == pytest.approx(15.0)
    assert row(recorder, "a").placed_by == "agent"
    assert row(recorder, "c").accepted_ms is None


def test_what_was_read_back_for_an_earlier_frame_is_no_response() -> None:
    recorder = Recorder("d1-1", LIMITS, SENT)
    recorder.acknowledged(ack("n0", [result("a", 0.001)], 6), 10.001)
    assert row(recorder, "a").accepted_ms is None
    recorder.acknowledged(ack("n0", [result("a", 0.001)], 8), 10.030)  # a later one says it, too
    assert row(recorder, "a").accepted_ms == pytest.approx(30.0)


def test_an_agent_that_does_not_tell_is_placed_by_arrival() -> None:
    recorder = Recorder("d1-1", LIMITS, SENT)
    recorder.acknowledged(ack("n0", [result("a", None), result("b", None)]), 10.020)
    assert row(recorder, "a").accepted_ms == pytest.approx(20.0)
    assert row(recorder, "a").placed_by == "arrival"


def test_only_a_limit_that_is_enforced_as_asked_counts_and_the_first_time_stands() -> None:
    recorder = Recorder("d1-1", LIMITS, SENT)
    recorder.acknowledged(ack("n0", [result("a", 0.001), result("b", 0.001, 400.0)]), 10.010)
    recorder.acknowledged(ack("n0", [result("a", 0.001), result("b", 0.031)]), 10.050)
    recorder.acknowledged(ack("n0", [result("a", 5.0)], 9), 15.0)
    assert row(recorder, "a").accepted_ms == pytest.approx(10.0)
    assert row(recorder, "b").accepted_ms == pytest.approx(50.0)


def test_confirmed_is_the_first_reading_within_the_limit_from_which_on_it_stays() -> None:
    recorder = Recorder("d1-1", LIMITS, SENT)
    recorder.acknowledged(ack("n0", [result("a", 0.001), result("b", 0.001)]), 10.010)
    for tenth in range(1, 60):
        at = 10.0 + 0.1 * tenth
        a = 380.0 if tenth < 3 else 262.0  # a sensor that reads 5 % too much
        b = 380.0 if tenth < 3 or tenth == 8 else 249.0  # once more above
        recorder.observed([seen({"a": a, "b": b})], LIMITS, at)
    assert row(recorder, "a").confirmed_ms == pytest.approx(300.0)
    assert row(recorder, "b").confirmed_ms == pytest.approx(900.0)


def test_a_reading_is_as_old_as_it_is_and_a_held_one_proves_nothing() -> None:
    recorder = Recorder("d1-1", LIMITS, SENT)
    recorder.acknowledged(ack("n0", [result("a", 0.001), result("b", 0.001)]), 10.010)
    for tenth in range(1, 60):
        held = seen({"b": 100.0}, quality=Quality.HELD)
        recorder.observed([seen({"a": 240.0}, age=0.05), held], LIMITS, 10.0 + 0.1 * tenth)
    assert row(recorder, "a").confirmed_ms == pytest.approx(50.0)
    assert row(recorder, "b").confirmed_ms is None


def test_a_cap_that_the_loop_has_raised_since_is_no_disobedience() -> None:
    recorder = Recorder("d1-1", LIMITS, SENT)
    recorder.acknowledged(ack("n0", [result("a", 0.001)]), 10.010)
    raised = {"n0": {"a": 280.0}}
    for tenth in range(1, 60):
        watts, limits = (249.0, LIMITS) if tenth < 10 else (279.0, raised)
        recorder.observed([seen({"a": watts})], limits, 10.0 + 0.1 * tenth)
    assert row(recorder, "a").confirmed_ms == pytest.approx(100.0)


def test_the_spread_is_over_every_gpu_and_its_ranks_are_exact() -> None:
    """Against the sorted list itself: p99 of 1000 is the 990th."""
    chance = random.Random(4)
    delays = [round(chance.uniform(0.001, 0.4), 6) for _ in range(1000)]
    limits = {"n0": {f"g{i}": 250.0 for i in range(1000)}}
    recorder = Recorder("d1-1", limits, SENT)
    for index, delay in enumerate(delays):
        recorder.acknowledged(ack("n0", [result(f"g{index}", None)]), 10.0 + delay)
    record = recorder.record(10.0, 10.004)
    assert record is not None
    decided, accepted, confirmed = record.clocks
    ordered = sorted(delays)
    assert accepted.p50_ms == pytest.approx(1000 * ordered[499], abs=1e-3)
    assert accepted.p99_ms == pytest.approx(1000 * ordered[989], abs=1e-3)
    assert accepted.max_ms == pytest.approx(1000 * ordered[-1], abs=1e-3)
    assert accepted.sum_ms == pytest.approx(1000 * sum(delays), rel=1e-6)
    assert sum(accepted.counts) == 1000
    assert sum(accepted.counts[:4]) == sum(delay <= BOUNDS_SECONDS[3] for delay in delays)
    assert (decided.p50_ms, decided.max_ms, decided.reached) == (4.0, 4.0, 1000)
    assert (confirmed.reached, confirmed.p50_ms) == (0, None)


def test_of_a_large_site_the_slowest_rows_are_kept_and_the_rest_are_counted() -> None:
    recorder = Recorder("d1-1", {"n0": {f"g{i:05}": 250.0 for i in range(MOST_ROWS + 100)}}, SENT)
    for index in range(MOST_ROWS + 100):
        recorder.acknowledged(ack("n0", [result(f"g{index:05}", None)]), 10.001 + 0.001 * index)
    record = recorder.record(10.0, 10.0)
    assert record is not None
    assert (len(record.rows), record.rows_left_out, record.gpus) == (
        MOST_ROWS,
        100,
        MOST_ROWS + 100,
    )
    assert record.rows[0].gpu_id == f"g{MOST_ROWS + 99:05}"
    assert record.rows[-1].gpu_id == "g00100"


def test_an_event_that_limits_nothing_has_no_record() -> None:
    assert Recorder("d1-1", {}, {}).record(10.0, 10.0) is None


def test_what_comes_after_the_event_is_not_its_response() -> None:
    recorder = Recorder("d1-1", LIMITS, SENT)
    recorder.acknowledged(ack("n0", [result("a", 0.001)]), 10.010)
    recorder.close()
    assert not recorder.running
    recorder.observed([seen({"a": 100.0})], LIMITS, 11.0)
    recorder.observed([seen({"a": 100.0})], LIMITS, 14.0)
    assert row(recorder, "a").confirmed_ms is None
