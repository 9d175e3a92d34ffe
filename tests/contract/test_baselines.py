"""What every registered baseline keeps."""

from datetime import UTC, datetime

import pytest

from gridaware.domain.errors import InvalidInput
from gridaware.domain.stepseries import StepSeries
from gridaware.settlement.baselines import BASELINES, History

NOTICE = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
DAYS = 70 * 86400.0


@pytest.fixture(params=BASELINES.names())
def baseline(request):
    return BASELINES.get(request.param)


def history(watts=100_000.0, after_watts=0.0):
    """Seventy steady days up to the notice, and whatever came after it."""
    at = NOTICE.timestamp()
    return History(
        StepSeries.held([(at - DAYS, watts), (at, after_watts)], at + 3600), NOTICE, 300.0
    )


def test_a_steady_load_is_its_own_reference(baseline):
    reference = baseline(history())
    assert reference.watts == pytest.approx(100_000.0)
    assert reference.quality == "measured"
    assert reference.frozen_at == NOTICE


def test_what_happens_after_the_notice_changes_nothing(baseline):
    assert baseline(history(after_watts=0.0)) == baseline(history(after_watts=9e9))


def test_it_says_by_which_method(baseline):
    reference = baseline(history())
    assert reference.method in BASELINES
    assert BASELINES.get(reference.method) is baseline
    assert reference.window_seconds > 0


def test_without_readings_there_is_none(baseline):
    with pytest.raises(InvalidInput) as refused:
        baseline(History(StepSeries.sampled([]), NOTICE))
    assert refused.value.code == "baseline-no-readings"
