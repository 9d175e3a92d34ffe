"""What the site could give up now, against what the curves of the model say by hand."""

import pytest

from gridaware.control.flexible import flexible_watts
from gridaware.domain.fleet import LimitRange
from gridaware.domain.job import Tier

RANGE = LimitRange(100.0, 400.0, 400.0)


def curve(bench):
    return bench.machine.book.curve("NVIDIA A100", "pretrain", RANGE)


def test_a_job_that_may_be_paused_gives_all_that_it_draws_above_idle(bench):
    bench.start_job("j", Tier.FLEX_2)
    draw = bench.state.jobs["j"].draw_watts
    assert draw == pytest.approx(4 * 380.0)
    given = draw - 4 * curve(bench).idle_watts
    assert flexible_watts(bench.state, bench.machine.book) == pytest.approx(given)


def test_one_that_may_only_be_capped_gives_what_its_lowest_cap_takes(bench):
    bench.start_job("j", Tier.FLEX_2, pausable=False, min_cap_watts=250.0)
    given = 4 * 380.0 - 4 * curve(bench).power_at(250.0)
    assert flexible_watts(bench.state, bench.machine.book) == pytest.approx(given)


def test_a_firm_job_and_an_idle_site_give_nothing(bench):
    assert flexible_watts(bench.state, bench.machine.book) == 0.0
    bench.start_job("j", Tier.FIRM)
    assert flexible_watts(bench.state, bench.machine.book) == 0.0
