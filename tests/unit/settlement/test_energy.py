"""Energy of one device: closed forms, catalogue of counter faults, and the band's promise."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridaware.domain.errors import InvalidInput
from gridaware.settlement.counter import CounterRules, Flag, PowerSample
from gridaware.settlement.energy import EnergyMethod, device_energy

SHARED = Path(__file__).parents[3].parent / "shared" / "data"


def steady(watts=200.0, hz=10.0, seconds=60.0, counter=True, limit=400.0):
    return [
        PowerSample(i / hz, watts, watts * i / hz if counter else None, "boot-1", limit)
        for i in range(int(seconds * hz) + 1)
    ]


def test_a_steady_load_is_watts_times_seconds():
    energy = device_energy(steady(), 5.0, 25.0)
    assert energy.joules == pytest.approx(4000.0, rel=1e-12)
    assert energy.kwh == pytest.approx(4000 / 3.6e6)
    assert (energy.method, energy.coverage, energy.flags) == (EnergyMethod.COUNTER, 1.0, ())
    # at each end one refresh of 0.12 s and a stamp 0.02 s off, at 1.25 x 400 W
    assert energy.band_joules == pytest.approx(2 * 500 * 0.14, rel=1e-9)


def test_the_counter_wins_over_what_the_samples_missed():
    """Bursts between two samples are in the counter alone."""
    samples = [PowerSample(float(t), 100.0, 150.0 * t, "e", 400.0) for t in range(61)]
    energy = device_energy(samples, 0.0, 60.0)
    assert energy.joules == pytest.approx(9000.0)
    assert energy.integral_joules == pytest.approx(6000.0)
    assert Flag.COUNTER_DISAGREES in energy.flags


def test_the_published_idle_disagreement_is_flagged():
    """ml-energy/zeus#181: the counter said 187 J in 5 s where power said 327 J."""
    samples = [PowerSample(t / 10, 65.4, 187 * t / 50, "e", 100.0) for t in range(51)]
    energy = device_energy(samples, 0.0, 5.0)
    assert energy.joules == pytest.approx(187.0)
    assert energy.integral_joules == pytest.approx(327.0)
    assert energy.flags == (Flag.COUNTER_DISAGREES,)


def test_without_a_counter_power_is_integrated_and_it_is_said():
    """mlco2/codecarbon#1316: no counter is not 0 kWh."""
    energy = device_energy(steady(counter=False), 0.0, 60.0)
    assert energy.joules == pytest.approx(12000.0)
    assert energy.method is EnergyMethod.INTEGRATED
    assert Flag.COUNTER_MISSING in energy.flags


@pytest.mark.parametrize("epoch_after", ["boot-1", "boot-2"])
def test_a_reset_is_counted_across(epoch_after):
    """codecarbon#309: a decrease is a new epoch and never negative energy."""
    samples = [
        s
        if s.at_seconds < 30
        else s._replace(counter_joules=s.counter_joules - 5900, epoch=epoch_after)
        for s in steady()
    ]
    energy = device_energy(samples, 0.0, 60.0)
    assert energy.joules == pytest.approx(12000.0, rel=1e-12)
    assert energy.resets == 1
    assert energy.method is EnergyMethod.MIXED
    assert Flag.COUNTER_RESET in energy.flags
    whole = device_energy(steady(), 0.0, 60.0)
    # 500 W for the 0.1 s between the samples and one refresh, less the 20 J booked
    assert energy.band_joules == pytest.approx(whole.band_joules + 500 * 0.22 - 20)


def test_a_frozen_counter_is_replaced_by_power():
    """ROCm/amdsmi#38: no change for more than 5 s under power."""
    samples = [s._replace(counter_joules=min(s.counter_joules, 2000.0)) for s in steady()]
    energy = device_energy(samples, 0.0, 60.0)
    assert energy.joules == pytest.approx(12000.0)
    assert Flag.COUNTER_STUCK in energy.flags
    assert energy.method is EnergyMethod.MIXED


def test_a_frozen_counter_that_catches_up_is_not_counted_twice():
    samples = [
        s._replace(counter_joules=2000.0 if 10 <= s.at_seconds < 18 else s.counter_joules)
        for s in steady()
    ]
    assert device_energy(samples, 0.0, 60.0).joules == pytest.approx(12000.0)


def test_a_frozen_counter_that_goes_on_where_it_stood_is_not_short():
    """Eight seconds of 200 W never reach the counter: power fills them in."""
    samples = [
        s._replace(
            counter_joules=round(200 * (s.at_seconds - min(max(s.at_seconds - 10, 0), 8)), 3)
        )
        for s in steady()
    ]
    energy = device_energy(samples, 0.0, 60.0)
    assert energy.joules == pytest.approx(12000.0)
    assert Flag.COUNTER_STUCK in energy.flags


def test_a_counter_slower_than_the_samples_costs_nothing():
    samples = [s._replace(counter_joules=200.0 * math.floor(s.at_seconds)) for s in steady()]
    energy = device_energy(samples, 0.0, 60.0)
    assert energy.joules == pytest.approx(12000.0)
    assert energy.method is EnergyMethod.COUNTER


def test_a_leap_of_the_counter_is_not_believed():
    """intel/xpumanager#130: terawatts on a change of state."""
    samples = [
        s if s.at_seconds < 30 else s._replace(counter_joules=s.counter_joules + 3.7e12)
        for s in steady()
    ]
    energy = device_energy(samples, 0.0, 60.0)
    assert energy.joules == pytest.approx(12000.0)
    assert Flag.COUNTER_LEAPT in energy.flags


def test_the_counter_bridges_a_silence_and_power_alone_does_not():
    silent = [s for s in steady() if not 20 < s.at_seconds < 40]
    assert device_energy(silent, 0.0, 60.0).joules == pytest.approx(12000.0)
    assert device_energy(silent, 0.0, 60.0).coverage == 1.0
    blind = device_energy([s._replace(counter_joules=None) for s in silent], 0.0, 60.0)
    assert blind.joules == pytest.approx(8000.0)
    assert blind.coverage == pytest.approx(2 / 3)
    assert Flag.READINGS_MISSING in blind.flags
    assert blind.joules <= 12000.0 <= blind.joules + blind.band_joules


def test_a_counter_that_is_away_for_a_while_is_neither_lost_nor_doubled():
    samples = [s._replace(counter_joules=None) if 20 <= s.at_seconds < 22 else s for s in steady()]
    energy = device_energy(samples, 0.0, 60.0)
    assert energy.joules == pytest.approx(12000.0)
    assert Flag.COUNTER_MISSING in energy.flags


def test_samples_that_say_nothing_or_come_late_change_nothing():
    samples = steady()
    noise = [*samples[:100], samples[40], PowerSample(9.95, None), *samples[100:]]
    assert device_energy(noise, 0.0, 60.0) == device_energy(samples, 0.0, 60.0)


def test_nothing_known_is_estimated_with_no_coverage():
    energy = device_energy([], 0.0, 1.0)
    assert (energy.joules, energy.coverage, energy.readings) == (0.0, 0.0, 0)
    assert energy.method is EnergyMethod.ESTIMATED


def test_an_empty_window_is_refused():
    with pytest.raises(InvalidInput, match="must end after"):
        device_energy(steady(), 5.0, 5.0)


@given(
    seed=st.integers(0, 2**32 - 1),
    start=st.floats(2.0, 10.0),
    seconds=st.floats(0.02, 3.0),
    hz=st.sampled_from([1.0, 5.0, 10.0]),
    reset_at=st.none() | st.floats(1.0, 13.0),
    phase=st.floats(0.0, 0.1),
)
def test_the_truth_lies_in_the_band(seed, start, seconds, hz, reset_at, phase):
    """A counter of 0.1 s refresh, power that jumps at random below the limit, and resets."""
    rng = np.random.default_rng(seed)
    grid = np.arange(0.0, 16.0, 0.001)
    power = np.repeat(rng.uniform(30, 400, 160), 100)[: len(grid)]
    total = np.concatenate([[0.0], np.cumsum(power) * 0.001])

    def truth(at):
        return float(np.interp(at, np.arange(len(total)) * 0.001, total))

    def counter(at):
        shown = math.floor((at + phase) / 0.1) * 0.1 - phase
        if reset_at is not None and at >= reset_at:
            return max(truth(max(shown, 0.0)) - truth(reset_at), 0.0), "b"
        return truth(max(shown, 0.0)), "a"

    samples = []
    for i in range(int(15 * hz)):
        at = i / hz + 0.0137
        joules, epoch = counter(at)
        samples.append(PowerSample(at, float(power[int(at * 1000)]), joules, epoch, 400.0))
    energy = device_energy(samples, start, start + seconds)
    error = energy.joules - (truth(start + seconds) - truth(start))
    assert abs(error) <= energy.band_joules + 1e-6
    if seconds > 2.5 and hz == 10 and reset_at is None:
        assert energy.band_joules < 250, "the band says something"


@pytest.mark.parametrize("workload", ["inference_memory_bound", "matmul_compute_bound"])
def test_public_v100_traces_integrate_to_their_published_energy(workload):
    """GridPilot (CC-BY-4.0): 100 Hz samples and the energy its authors computed."""
    folder = SHARED / "gridpilot_v100"
    if not folder.is_dir():
        pytest.skip("shared/data/gridpilot_v100 is not here")
    name = f"{workload}_pcap200_sm1380"
    with (folder / "E1_parsed_results.csv").open(encoding="utf-8") as file:
        published = next(row for row in csv.DictReader(file) if row["run"] == name)
    with (folder / f"E1_raw_{name}.csv").open(encoding="utf-8") as file:
        rows = [
            (float(row["t_s"]), float(row["power_w"]))
            for row in csv.DictReader(file)
            if row["gpu_index"] == "0"
        ]
    samples = [PowerSample(at, watts) for at, watts in rows]
    energy = device_energy(samples, rows[0][0], rows[-1][0], CounterRules())
    assert energy.joules == pytest.approx(float(published["energy_j"]), rel=1e-4)
