"""A GPU that obeys its limit late (through a BMC) is counted on only for what is due late."""

from dataclasses import replace

import pytest

from gridaware.domain.job import JobState
from gridaware.domain.programme import Programme


def _slow(bench, latency_seconds):
    """Both nodes say that their GPUs obey that late."""
    for node in (1, 2):
        gpus = tuple(
            replace(gpu, latency_seconds=latency_seconds)
            for gpu in bench.state.nodes[f"n{node}"].node.gpus
        )
        bench.hello(node, gpus=gpus)


@pytest.fixture
def working(make_bench):
    def make(deadline_seconds, latency_seconds):
        bench = make_bench(programmes=(Programme("p", deadline_seconds=deadline_seconds),))
        _slow(bench, latency_seconds)
        bench.start_job()
        return bench

    return make


@pytest.mark.parametrize(("deadline", "latency"), [(60.0, 0.0), (60.0, 60.0)])
def test_what_is_due_late_enough_is_shed_by_caps(working, deadline, latency):
    bench = working(deadline, latency)
    bench.post(bench.signal(depth=0.2, seconds=600.0))
    bench.ticks(3)
    assert bench.state.nodes["n1"].limits_watts
    assert bench.state.jobs["j"].job.state is JobState.CAPPED


def test_what_is_due_sooner_than_it_obeys_is_shed_by_pausing(working):
    bench = working(10.0, 40.0)
    bench.post(bench.signal(depth=0.2, seconds=600.0))
    bench.ticks(3)
    assert bench.state.nodes["n1"].limits_watts == {}
    assert bench.state.jobs["j"].job.state is JobState.PAUSING


def test_a_cap_that_stands_is_not_lifted_by_an_event_that_comes_too_soon_for_it(make_bench):
    late, soon = Programme("p", deadline_seconds=60.0), Programme("q", deadline_seconds=5.0)
    feeds = make_bench().state.site.feeds
    feeds = (*feeds, replace(feeds[0], feed_id="fast", programme_id="q"))
    bench = make_bench(programmes=(late, soon), feeds=feeds)
    _slow(bench, 40.0)
    bench.start_job(pausable=False)
    bench.post(bench.signal(depth=0.2, seconds=600.0))
    bench.ticks(3)
    before = dict(bench.state.nodes["n1"].limits_watts)
    assert before
    bench.post(bench.signal("e2", depth=0.3, seconds=600.0, feed="fast"))
    bench.ticks(3)
    assert bench.state.nodes["n1"].limits_watts == pytest.approx(before, abs=2.0)
