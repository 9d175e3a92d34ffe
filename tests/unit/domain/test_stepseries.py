"""The power series against closed forms and numpy's trapezoid."""

import csv
import json
import math
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridaware.domain.errors import InvalidInput
from gridaware.domain.stepseries import StepSeries


def test_the_integral_of_a_straight_ramp_is_its_closed_form():
    ramp = StepSeries.sampled([(0.0, 0.0), (10.0, 100.0)])
    assert ramp.integral(0, 10).joules == 500.0
    # ∫ from 2 to 6 of 10 t = 5 (36 - 4)
    assert ramp.integral(2, 6).joules == pytest.approx(160.0, rel=1e-15)
    assert ramp.mean_watts(2, 6) == pytest.approx(40.0, rel=1e-15)


def test_sampled_power_integrates_as_numpy_does():
    rng = np.random.default_rng(7)
    times = np.cumsum(rng.uniform(0.05, 0.2, 500))
    watts = 300 + 80 * np.sin(times) + rng.normal(0, 5, 500)
    series = StepSeries.sampled(zip(times.tolist(), watts.tolist(), strict=True))
    expected = np.trapezoid(watts, times)
    assert series.integral(times[0], times[-1]).joules == pytest.approx(expected, rel=1e-12)


def test_held_steps_hold_until_the_next_and_the_end():
    limit = StepSeries.held([(0.0, 100.0), (60.0, 80.0)], 120.0)
    assert limit.integral(0, 120).joules == 60 * 100 + 60 * 80
    assert limit.value_at(59.999) == 100.0
    assert limit.value_at(60.0) == 80.0
    assert limit.value_at(120.0) == 80.0
    assert limit.value_at(121.0) is None
    assert limit.mean_watts(30, 90) == 90.0


def test_a_public_load_has_its_published_energy():
    """48 h of 5-minute power; the kWh agree with Vessim 0.16 and numpy."""
    folder = Path(__file__).parents[3].parent / "shared" / "data" / "energy_carbon_cost"
    if not folder.is_dir():
        pytest.skip("shared/data/energy_carbon_cost is not here")
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["expected"]
    with (folder / "input_5min_48h.csv").open(encoding="utf-8") as file:
        steps = [
            (
                datetime.fromisoformat(row["interval_start"]).replace(tzinfo=UTC).timestamp(),
                float(row["power_kw"]) * 1000,
            )
            for row in csv.DictReader(file)
        ]
    end = steps[-1][0] + 300
    load = StepSeries.held(steps, end)
    assert load.integral(steps[0][0], end).joules / 3.6e6 == pytest.approx(
        expected["energy_kwh"], rel=1e-12
    )


def test_a_gap_is_neither_zero_nor_interpolated():
    series = StepSeries.sampled([(0, 100.0), (1, 100.0), (11, 100.0), (12, 100.0)], 5.0)
    whole = series.integral(0, 12)
    assert whole.joules == 200.0
    assert whole.covered_seconds == 2.0
    assert whole.coverage == pytest.approx(1 / 6)
    assert whole.mean_watts == 100.0
    assert series.mean_watts(3, 9) is None
    assert series.value_at(5) is None


def test_an_explicit_gap_of_held_power_is_a_gap():
    series = StepSeries.held([(0, 50.0), (10, None), (20, 70.0)], 30.0)
    assert [piece.covered_seconds for piece in series.resample([0, 10, 20, 30])] == [10, 0, 10]
    assert series.value_at(15) is None


def test_settlement_intervals_outside_the_series_are_uncovered():
    series = StepSeries.sampled([(0, 10.0), (90, 10.0)])
    first, second, third = series.resample([-60, 0, 60, 120])
    assert (first.coverage, second.coverage, third.coverage) == (0.0, 1.0, 0.5)
    assert third.mean_watts == 10.0


def test_time_above_a_limit_counts_crossings_exactly():
    triangle = StepSeries.sampled([(0, 0.0), (10, 100.0), (20, 0.0)])
    # above 75 W from 7.5 s to 12.5 s
    assert triangle.seconds_above(75.0, 0, 20) == pytest.approx(5.0, rel=1e-15)
    assert triangle.seconds_above(100.0, 0, 20) == 0.0
    assert triangle.highest_watts(0, 20) == 100.0
    assert triangle.highest_watts(0, 5) == pytest.approx(50.0)


def test_an_empty_series_says_nothing():
    empty = StepSeries.sampled([])
    assert empty.integral(0, 1) == (0, 1, 0.0, 0.0)
    assert empty.mean_watts(0, 1) is None
    assert empty.highest_watts(0, 1) is None
    assert empty.value_at(0) is None


@pytest.mark.parametrize(
    ("samples", "code"),
    [
        ([(0, 1.0), (0, 2.0)], "series-order"),
        ([(1, 1.0), (0, 2.0)], "series-order"),
        ([(0, math.nan)], "series-not-finite"),
        ([(math.inf, 1.0)], "series-not-finite"),
    ],
)
def test_a_broken_series_is_refused(samples, code):
    with pytest.raises(InvalidInput) as refused:
        StepSeries.sampled(samples)
    assert refused.value.code == code


@given(
    st.lists(st.tuples(st.floats(0.01, 50), st.floats(0, 1e6)), min_size=2, max_size=30),
    st.lists(st.floats(-10, 2000), min_size=2, max_size=8, unique=True),
    st.floats(1, 60),
)
def test_parts_of_a_window_sum_to_the_window(steps, cuts, max_gap):
    at, samples = 0.0, []
    for gap, watts in steps:
        at += gap
        samples.append((at, watts))
    series = StepSeries.sampled(samples, max_gap)
    edges = sorted(cuts)
    parts = [series.integral(a, b) for a, b in pairwise(edges)]
    whole = series.integral(edges[0], edges[-1])
    assert sum(p.joules for p in parts) == pytest.approx(whole.joules, rel=1e-9, abs=1e-6)
    assert sum(p.covered_seconds for p in parts) == pytest.approx(whole.covered_seconds, abs=1e-6)
