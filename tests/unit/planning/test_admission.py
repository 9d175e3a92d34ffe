"""The queue: FIFO within a priority, gangs, and no job starved by smaller ones behind it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.domain.job import Placement
from gridaware.planning.admission import Room, Waiting, admit

ONE_NODE, ANYWHERE = Placement.ENTRYPOINT, Placement.WORKERS


def waiting(job_id, gpus, placement=ANYWHERE, priority=0, arrival=0.0):
    return Waiting(job_id, gpus, placement, priority, arrival)


def outcomes(queue, free, total=None, cluster=1e9, **rest):
    answers = admit(queue, Room(free, total or free, cluster), **rest)
    return [(a.job_id, a.outcome, a.reason) for a in answers]


def test_higher_priority_first_then_first_come():
    queue = [
        waiting("late", 2, arrival=3.0),
        waiting("early", 2, arrival=1.0),
        waiting("urgent", 2, priority=1, arrival=9.0),
    ]
    assert outcomes(queue, {"n": 4}, {"n": 8}) == [
        ("urgent", "start", ""),
        ("early", "start", ""),
        ("late", "wait", "WaitsForGpus"),
    ]


def test_nothing_overtakes_a_head_that_does_not_fit():
    queue = [waiting("large", 8, arrival=1.0), waiting("small", 1, arrival=2.0)]
    assert outcomes(queue, {"n": 4}, {"n": 8}) == [
        ("large", "wait", "WaitsForGpus"),
        ("small", "wait", "WaitsForHead"),
    ]


def test_an_entrypoint_needs_its_gpus_on_one_node_and_workers_do_not():
    free, total = {"a": 3, "b": 4}, {"a": 8, "b": 8}
    assert outcomes([waiting("one", 5, ONE_NODE)], free, total) == [("one", "wait", "WaitsForNode")]
    assert outcomes([waiting("many", 5, ANYWHERE)], free, total) == [("many", "start", "")]


def test_the_fullest_node_that_fits_is_taken_so_that_whole_nodes_stay_free():
    queue = [waiting("two", 2, ONE_NODE, arrival=1.0), waiting("eight", 8, ONE_NODE, arrival=2.0)]
    assert [o for _, o, _ in outcomes(queue, {"a": 8, "b": 2}, {"a": 8, "b": 8})] == ["start"] * 2


def test_gpus_are_counted_once():
    queue = [waiting("a", 5, arrival=1.0), waiting("b", 4, arrival=2.0)]
    assert [o for _, o, _ in outcomes(queue, {"x": 4, "y": 4})] == ["start", "wait"]


def test_a_job_that_can_never_fit_is_refused_and_blocks_nobody():
    queue = [
        waiting("huge", 17, arrival=1.0),
        waiting("wide", 9, ONE_NODE, arrival=2.0),
        waiting("fine", 8, ONE_NODE, arrival=3.0),
    ]
    assert outcomes(queue, {"a": 8, "b": 8}) == [
        ("huge", "refuse", "NeverFits"),
        ("wide", "refuse", "NeverFitsNode"),
        ("fine", "start", ""),
    ]


def test_cordoned_or_busy_nodes_make_a_job_wait_not_fail():
    assert outcomes([waiting("a", 8, ONE_NODE)], {}, {"n": 8}) == [("a", "wait", "WaitsForGpus")]


def test_before_any_node_is_known_nothing_is_refused():
    assert outcomes([waiting("a", 8)], {}, {}) == [("a", "wait", "WaitsForGpus")]


def test_rays_own_count_limits_too_and_no_answer_means_no_start():
    assert outcomes([waiting("a", 4)], {"n": 8}, cluster=3.0) == [("a", "wait", "WaitsForCluster")]
    assert outcomes([waiting("a", 4)], {"n": 8}, cluster=None) == [("a", "wait", "WaitsForCluster")]


def test_while_the_site_gives_up_power_nothing_starts_but_hopeless_jobs_are_told():
    queue = [waiting("a", 1, arrival=1.0), waiting("huge", 99, arrival=2.0)]
    assert outcomes(queue, {"n": 8}, closed=True) == [
        ("a", "wait", "WaitsForPower"),
        ("huge", "refuse", "NeverFits"),
    ]


@settings(max_examples=100, deadline=None)
@given(
    queue=st.lists(
        st.builds(
            Waiting,
            st.uuids().map(str),
            st.integers(1, 20),
            st.sampled_from(list(Placement)),
            st.integers(0, 2),
            st.floats(0, 9),
        ),
        max_size=12,
    ),
    free=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 8), max_size=4),
    cluster=st.none() | st.floats(0, 40),
)
def test_starts_never_exceed_what_is_free_and_never_skip_a_waiting_job(queue, free, cluster):
    total = dict.fromkeys(free, 8)
    answers = admit(queue, Room(free, total, cluster))
    size = {job.job_id: job.gpus for job in queue}
    started = [a.job_id for a in answers if a.outcome == "start"]
    assert sum(size[job_id] for job_id in started) <= min(sum(free.values()), cluster or 0.0)
    fates = [a.outcome for a in answers if a.outcome != "refuse"]
    assert fates == sorted(fates)  # "start" before "wait": nobody overtakes
    assert {a.job_id for a in answers} == set(size)


def test_the_numbers_of_a_reason_fill_its_sentence():
    from gridaware.domain.reasons import sentence

    (answer,) = admit([waiting("a", 5, ONE_NODE)], Room({"n": 3, "m": 4}, {"n": 8, "m": 8}, 7.0))
    assert sentence(answer.reason, answer.numbers) == (
        "waits: it needs 5 GPUs on one node, and the freest has 4"
    )
    (answer,) = admit([waiting("a", 5)], Room({"n": 8}, {"n": 8}, 2.0))
    assert sentence(answer.reason, answer.numbers) == (
        "waits: Ray has 2 GPUs free of the 5 that it needs"
    )
    assert pytest.approx(answer.numbers) == (2.0, 5)
