"""A job's own curve, learned from readings against a truth that the learner does not know."""

import random

import pytest

from gridaware.planning.learning import MOST_POINTS, CurveLearner
from gridaware.planning.model import curve_of


def seen(learner, cap, watts, rate=None, times=8):
    for _ in range(times):
        learner = learner.observe(cap, watts, rate)
    return learner


def test_without_readings_the_class_curve_stands(pretrain):
    assert CurveLearner().curve(pretrain, 400.0) is pretrain
    assert CurveLearner().reference_rate(pretrain, 400.0) == 0.0


def test_a_job_that_draws_half_its_class_is_not_slowed_by_caps_above_its_draw(pretrain):
    # A 250 W cap on a GPU drawing 193 W sheds nothing.
    curve = seen(CurveLearner(), 400.0, 193.0).curve(pretrain, 400.0)
    assert curve.power_at(400.0) == pytest.approx(193.0, rel=0.01)
    assert curve.power_at(250.0) == pytest.approx(193.0, rel=0.02)
    assert curve.throughput_at(250.0) == pytest.approx(1.0, abs=0.01)
    assert curve.power_at(130.0) <= 131.0
    assert curve.throughput_at(130.0) < 0.95
    assert "own draw" in curve.source
    assert curve.quality == pretrain.quality


def test_a_hotter_job_than_its_class_is_seen_as_such(book):
    gpu = book.gpu("a100-400")
    finetune = curve_of(gpu, book.workload(gpu, "finetune"))
    curve = seen(CurveLearner(), 400.0, 370.0).curve(finetune, 400.0)
    assert curve.power_at(400.0) == pytest.approx(370.0, rel=0.01)


def test_a_job_held_by_its_cap_may_be_as_hot_as_its_class(pretrain):
    curve = seen(CurveLearner(), 200.0, 196.0).curve(pretrain, 400.0)
    assert curve.power_at(400.0) == pytest.approx(pretrain.power_at(400.0), rel=0.02)


def test_a_sensor_that_shows_too_little_does_not_make_a_capped_gpu_look_cool(pretrain):
    # Held at 290 W, shown as 7 % less: it would draw far more without its cap.
    curve = seen(CurveLearner(), 290.0, 0.93 * pretrain.power_at(290.0)).curve(pretrain, 400.0)
    assert curve.power_at(400.0) > 1.2 * curve.power_at(290.0)


def test_few_readings_without_a_cap_outweigh_many_under_one(pretrain):
    learner = seen(seen(CurveLearner(), 395.0, 355.0, times=3), 290.0, 250.0, times=20)
    curve = learner.curve(pretrain, 395.0)
    assert curve.power_at(290.0) == pytest.approx(250.0, rel=0.01)
    assert curve.power_at(395.0) > 1.2 * curve.power_at(290.0)


def test_seen_caps_replace_the_class_and_are_called_measured(pretrain):
    learner = seen(seen(CurveLearner(), 400.0, 380.0, 10.0), 200.0, 190.0, 7.0)
    curve = learner.curve(pretrain, 400.0)
    assert curve.power_at(200.0) == pytest.approx(190.0, rel=0.005)
    assert curve.throughput_at(200.0) == pytest.approx(0.7, abs=0.005)
    assert curve.quality == "measured"
    assert learner.quality_at(200.0, pretrain.quality) == "measured"
    assert learner.quality_at(300.0, pretrain.quality) == pretrain.quality
    # Between them the class still gives the shape: 300 W lies between, nearer to full speed.
    assert 0.82 < curve.throughput_at(300.0) < 0.95


def test_the_uncapped_rate_is_measured_where_seen_and_derived_elsewhere(pretrain):
    uncapped = seen(CurveLearner(), 400.0, 380.0, 10.0)
    assert uncapped.reference_rate(pretrain, 400.0) == pytest.approx(10.0)
    capped = seen(CurveLearner(), 200.0, 196.0, 6.6)
    assert capped.reference_rate(pretrain, 400.0) == pytest.approx(
        6.6 / pretrain.throughput_at(200.0)
    )


def test_outliers_barely_move_a_mean(pretrain):
    chance = random.Random(3)
    learner = CurveLearner()
    for _ in range(60):
        learner = learner.observe(300.0, chance.gauss(290.0, 3.0), chance.gauss(8.0, 0.1))
    for _ in range(3):
        learner = learner.observe(300.0, 25.0, 0.1)  # an evaluation pause, a glitch
    assert learner.points[0].power_watts == pytest.approx(290.0, rel=0.02)
    assert learner.points[0].steps_per_second == pytest.approx(8.0, rel=0.02)


def test_a_job_that_changes_for_good_is_followed():
    learner = seen(CurveLearner(), 400.0, 300.0, 5.0, times=40)
    learner = seen(learner, 400.0, 350.0, 6.0, times=400)
    assert learner.points[0].power_watts == pytest.approx(350.0, rel=0.02)
    assert learner.points[0].steps_per_second == pytest.approx(6.0, rel=0.03)


def test_what_is_no_reading_changes_nothing():
    learner = seen(CurveLearner(), 400.0, 300.0, 5.0)
    assert learner.observe(400.0, 0.0) is learner
    assert learner.observe(400.0, float("nan")) is learner


def test_a_curve_is_out_of_date_once_a_point_is_new_trusted_or_moved():
    learner = seen(CurveLearner(), 400.0, 300.0, 5.0, times=60)
    assert not learner.observe(400.0, 300.3, 5.0).differs(learner)
    assert learner.observe(300.0, 280.0).differs(learner)
    assert seen(CurveLearner(), 400.0, 300.0, times=5).differs(
        seen(CurveLearner(), 400.0, 300.0, times=4)
    )
    # Small steps add up: each is compared with what the curve was made from, not with the last.
    assert seen(learner, 400.0, 303.0, 5.0, times=60).differs(learner)


def test_close_caps_are_one_point_and_points_are_bounded():
    learner = CurveLearner()
    for cap in (300.0, 301.0, 299.0):
        learner = seen(learner, cap, 290.0)
    assert len(learner.points) == 1
    for cap in range(100, 400, 10):
        learner = seen(learner, float(cap), 0.9 * cap, times=2)
    assert len(learner.points) <= MOST_POINTS
    assert [p.cap_watts for p in learner.points] == sorted(p.cap_watts for p in learner.points)


def test_contradictory_readings_still_give_a_legal_curve(pretrain):
    # More draw and more speed at a lower cap, from a job that changed its mind.
    learner = seen(seen(CurveLearner(), 400.0, 250.0, 5.0), 200.0, 199.0, 9.0)
    curve = learner.curve(pretrain, 400.0)
    assert list(curve.power_watts) == sorted(curve.power_watts)
    assert list(curve.throughput) == sorted(curve.throughput)
    assert curve.throughput[-1] == 1.0


def test_learning_beats_the_class_on_a_job_unlike_it(book):
    gpu = book.gpu("a100-400")
    truth = curve_of(gpu, book.workload(gpu, "finetune"))
    assumed = curve_of(gpu, book.workload(gpu, None))
    learner = CurveLearner()
    for cap in (400.0, 250.0):
        learner = seen(learner, cap, truth.power_at(cap), 3.0 * truth.throughput_at(cap))
    learned = learner.curve(assumed, 400.0)
    caps = range(200, 401, 10)
    by_class = sum(abs(assumed.throughput_at(c) - truth.throughput_at(c)) for c in caps)
    by_learning = sum(abs(learned.throughput_at(c) - truth.throughput_at(c)) for c in caps)
    assert by_learning < 0.35 * by_class
