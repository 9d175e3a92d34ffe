"""Loss budgets: rolling six hours, young jobs over their life, pauses at zero throughput."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.domain.job import Tier
from gridaware.planning.budget import BUCKET_SECONDS, LossAccount

HOUR = 3600.0


def test_a_paused_hour_costs_an_hour_and_a_capped_one_its_share():
    account = LossAccount().add(HOUR, 1.0).add(HOUR, 0.0).add(2 * HOUR, 0.75)
    assert account.lost_seconds == pytest.approx(1.5 * HOUR)
    assert account.age_seconds == 4 * HOUR


def test_a_job_older_than_six_hours_is_judged_over_the_last_six():
    account = LossAccount().add(12 * HOUR, 1.0)
    assert account.loss_budget_seconds(Tier.FLEX_2.allowed_loss) == pytest.approx(1.5 * HOUR)
    account = account.add(HOUR, 0.0)
    assert account.loss_budget_seconds(Tier.FLEX_2.allowed_loss) == pytest.approx(0.5 * HOUR)
    # Six hours later that hour is forgotten, at the latest one bucket after.
    account = account.add(6 * HOUR + BUCKET_SECONDS, 1.0)
    assert account.loss_budget_seconds(Tier.FLEX_2.allowed_loss) == pytest.approx(1.5 * HOUR)


def test_losses_are_never_forgotten_early():
    account = LossAccount().add(HOUR, 0.0).add(5 * HOUR, 1.0)
    assert account.lost_seconds == pytest.approx(HOUR)


def test_a_young_job_is_judged_over_its_declared_life():
    account = LossAccount().add(60.0, 1.0)
    # 10 % of a five-minute life is half a minute, however much more six hours would allow.
    assert account.loss_budget_seconds(0.1, life_seconds=300.0) == pytest.approx(30.0)
    assert account.loss_budget_seconds(0.1, life_seconds=24 * HOUR) == pytest.approx(0.6 * HOUR)
    assert account.loss_budget_seconds(0.1) == pytest.approx(0.6 * HOUR)


def test_a_job_that_outlives_its_declared_end_is_judged_over_what_it_lived():
    account = LossAccount().add(600.0, 1.0)
    assert account.loss_budget_seconds(0.5, life_seconds=300.0) == pytest.approx(300.0)


def test_a_broken_promise_shows_as_debt():
    account = LossAccount().add(HOUR, 0.5)
    assert account.loss_budget_seconds(Tier.FIRM.allowed_loss) == pytest.approx(-0.5 * HOUR)


def test_readings_above_full_speed_earn_nothing_and_time_never_runs_back():
    account = LossAccount().add(HOUR, 1.3)
    assert account.lost_seconds == 0.0
    assert account.add(-5.0, 0.0) is account
    assert account.add(float("nan"), 0.0) is account


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 4000.0), st.floats(0, 1)), max_size=60))
def test_the_account_matches_the_full_history_to_within_one_bucket(history):
    account = LossAccount()
    for seconds, throughput in history:
        account = account.add(seconds, throughput)

    def lost_within(window):
        total, left = 0.0, window
        for seconds, throughput in reversed(history):
            part = min(seconds, left)
            total, left = total + part * (1 - throughput), left - part
        return total

    assert lost_within(6 * HOUR) - 1e-6 <= account.lost_seconds
    assert account.lost_seconds <= lost_within(6 * HOUR + BUCKET_SECONDS) + 1e-6
    assert len(account.buckets) <= 72


def test_ticks_and_one_long_step_agree():
    ticks = LossAccount()
    for _ in range(7200):
        ticks = ticks.add(1.0, 0.7)
    assert ticks.lost_seconds == pytest.approx(LossAccount().add(7200.0, 0.7).lost_seconds)
