"""A job that nobody touched has lost nothing, within an error that is stated and small."""

import math
import random

import pytest

from gridaware.settlement.attribution import EnergyBook
from gridaware.settlement.energy_report import energy_report
from gridaware.settlement.impact import job_impacts

EVENT_SECONDS = 300


def impact_of(
    site, make_job, pace: float, phase: float, jitter: random.Random, slower: float = 1.0
):
    """A job of ``pace`` steps a second, of which whole steps are told about once a second."""
    book = EnergyBook()
    job = make_job("firm", gpus=("a",))
    before, position = None, phase
    for second in range(61 + EVENT_SECONDS):
        if second == 61:
            before = book.snapshot()
        steps = {"firm": math.floor(position)}
        book.add(site.observe({"a": 300.0}, {"a": "firm"}, steps=steps), [job])
        seconds = jitter.uniform(0.9, 1.1)
        site.advance(seconds, {"a": 300.0})
        position += seconds * pace * (slower if second >= 60 else 1.0)
    assert before is not None
    after = book.snapshot()
    (impact,) = job_impacts(energy_report(before, after), before, after)
    return impact


@pytest.mark.parametrize("pace", [0.31, 0.9, 2.0, 7.3])
def test_an_untouched_job_has_lost_nothing_within_its_band(site, make_job, pace: float) -> None:
    chance = random.Random(7)
    outside = 0
    for _ in range(12):
        impact = impact_of(site, make_job, pace, chance.random(), chance)
        assert impact.seconds_band < 0.02 * EVENT_SECONDS + 2 / pace
        outside += impact.proven_seconds_lost > 0
    assert outside <= 1  # two standard errors hold in 95 of 100


def test_a_job_that_lost_a_twentieth_is_seen_to_have_lost_it(site, make_job) -> None:
    impact = impact_of(site, make_job, 2.0, 0.3, random.Random(3), slower=0.95)
    lost = 0.05 * impact.alive_seconds
    assert impact.proven_seconds_lost == pytest.approx(lost, abs=impact.seconds_band)
    assert impact.seconds_band < 0.25 * lost
