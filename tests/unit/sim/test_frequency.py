"""The frequency of a virtual grid: physics of the made-up fall, traces, and what is replayed."""

from itertools import pairwise
from pathlib import Path

import pytest

from gridaware.domain.errors import ConfigError, InvalidInput
from gridaware.domain.frequency import ERCOT_FFR, NORDIC_FFR_49_7, FrequencyTrigger, Step
from gridaware.sim.frequency import (
    NOISE_HZ,
    around_first_crossing,
    open_frequency,
    read_trace,
    swing_fall,
)


def fired_at(rule, samples) -> list[tuple[float, float]]:
    trigger = FrequencyTrigger(rule)
    return [(t, f) for t, f in samples if trigger.sample(t, f).step is Step.FIRE]


def test_the_fall_begins_as_the_swing_equation_says() -> None:
    trace = swing_fall(1)
    quiet = [f for t, f in trace if t < 5.0]
    assert max(abs(f - 60.0) for f in quiet) < 6 * NOISE_HZ
    (early,) = [f for t, f in trace if abs(t - 5.2) < 0.001]
    # f0 / (2 E) * loss = 60 / (2 * 200 GW s) * 2.75 GW = 0.4125 Hz/s; governors have hardly moved.
    assert 60.0 - early == pytest.approx(0.4125 * 0.2, rel=0.1)


def test_the_fall_turns_above_load_shedding_and_settles_where_the_droop_does() -> None:
    trace = swing_fall(1)
    lowest = min(f for _, f in trace)
    assert 59.3 < lowest < 59.6
    # In balance: (10 000 + 800) MW/Hz * low - 10 000 * 0.017 = 2 750, so 0.270 Hz are missing.
    assert trace[-1][1] == pytest.approx(60.0 - (2750 + 170) / 10_800, abs=0.02)


def test_a_fall_is_its_seeds_and_has_60_samples_a_second() -> None:
    assert swing_fall(3) == swing_fall(3) != swing_fall(4)
    assert {round(b[0] - a[0], 9) for a, b in pairwise(swing_fall(3))} == {round(1 / 60, 9)}


def test_a_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("t_s,f_hz,note\n0.0,50.01,a\n0.5,49.99,b\n")
    assert read_trace(path) == [(0.0, 50.01), (0.5, 49.99)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t_s,f_hz\n",
        "t_s,f_hz\n0,50\n",
        "t,f\n0,50\n1,50\n",
        "t_s,f_hz\n0,50\n0,49\n",
        "t_s,f_hz\n0,fifty\n1,50\n",
        "t_s,f_hz\n0\n1,50\n",
        "\xff\xfe",
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput) as refused:
        read_trace(path)
    assert refused.value.code == "frequency-trace"
    with pytest.raises(InvalidInput):
        read_trace(tmp_path / "absent.csv")


@pytest.mark.parametrize("pace", [0.02, 0.1, 0.5])
def test_a_stretch_crosses_once_begins_and_ends_at_nominal_and_moves_as_grids_do(pace) -> None:
    fall = [(n * pace, 50.0 - 0.1 * max(n * pace - 10.0, 0.0)) for n in range(round(20.0 / pace))]
    stretch, crossing = around_first_crossing(fall, NORDIC_FFR_49_7, 1.0, 2.5)
    assert crossing[0] == pytest.approx(13.0, abs=pace + 1e-9)  # 0.3 Hz at 0.1 Hz/s after 10 s
    assert stretch[0] == (0.0, 50.0)
    assert stretch[-1][1] == 50.0
    assert all(b[0] - a[0] == pytest.approx(pace) for a, b in pairwise(stretch))
    assert all(abs(b[1] - a[1]) <= 0.5 * pace + 1e-9 for a, b in pairwise(stretch))
    ((_, hz),) = fired_at(NORDIC_FFR_49_7, stretch)
    assert hz == crossing[1]


def test_stretches_of_the_made_up_fall_follow_one_another_and_each_fires_once() -> None:
    stretch, crossing = around_first_crossing(swing_fall(1), ERCOT_FFR, 1.0, 2.5)
    length = stretch[-1][0] + 1 / 60
    again = [(round_ * length + t, f) for round_ in range(3) for t, f in stretch]
    assert [f for _, f in fired_at(ERCOT_FFR, again)] == [crossing[1]] * 3


def test_a_trace_that_ends_at_its_crossing_stays_there() -> None:
    trace = [(n * 0.1, 60.0 - 0.01 * n) for n in range(17)]
    stretch, crossing = around_first_crossing(trace, ERCOT_FFR, 1.0, 2.5)
    assert crossing[1] == pytest.approx(59.85)
    low = [t for t, f in stretch if f <= 59.85]
    assert low[-1] - low[0] >= 2.4


def test_a_trace_that_never_crosses_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"59\.85"):
        around_first_crossing([(0.0, 60.0), (1.0, 59.9)], ERCOT_FFR, 1.0, 2.5)


def test_the_replaying_meter_gives_the_trace_and_can_be_closed(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("t_s,f_hz\n7.00,50.0\n7.01,49.9\n")
    meter = open_frequency({"trace": str(path)})
    samples = meter.samples()
    assert [next(samples), next(samples)] == [(7.0, 50.0), (7.01, 49.9)]
    meter.close()
    assert list(samples) == []
    for options in ({}, {"trace": str(path), "speed": "2"}):
        with pytest.raises(ConfigError):
            open_frequency(options)
