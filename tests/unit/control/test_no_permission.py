"""Where limits may not be set, watts come from pausing; with permission, from limits again."""

import pytest

from gridaware.control.instructions import SendCheckpoint, SendLease
from gridaware.domain.fleet import Gpu, LimitRange

RANGE = LimitRange(100.0, 400.0, 400.0)


def boards(can_set: bool) -> tuple[Gpu, ...]:
    return tuple(Gpu(f"g1{i}", i, "NVIDIA A100", RANGE, 400.0, can_set) for i in range(4))


@pytest.fixture
def read_only(bench):
    """A site where the agent of the node with the job may only read."""
    bench.hello(1, gpus=boards(False))
    bench.start_job()
    bench.made.clear()
    return bench


def test_a_job_on_gpus_that_may_only_be_read_is_paused_and_no_limit_is_sent(read_only):
    read_only.post(read_only.signal(depth=0.3))
    read_only.ticks(2)
    asked = read_only.of(SendCheckpoint)
    assert [(a.node_id, a.request.job_id, a.request.pause) for a in asked] == [("n1", "j", True)]
    assert not [
        gpu_id
        for sent in read_only.of(SendLease)
        for gpu_id, _ in sent.lease.limits_watts
        if gpu_id.startswith("g1")
    ]
    assert "device-no-permission/n1" in read_only.state.alarms


def test_permission_that_comes_back_is_used_and_its_alarm_ends(read_only):
    read_only.hello(1, gpus=boards(True))
    assert "device-no-permission/n1" not in read_only.state.alarms
    read_only.made.clear()
    read_only.post(read_only.signal(depth=0.3))
    read_only.ticks(2)
    assert not read_only.of(SendCheckpoint)
    limits = dict(read_only.of(SendLease)[-1].lease.limits_watts)
    assert limits.keys() == {gpu.gpu_id for gpu in boards(True)}


def test_a_job_that_may_neither_be_capped_nor_paused_is_told_as_a_shortfall(bench):
    bench.hello(1, gpus=boards(False))
    bench.start_job(pausable=False)
    bench.post(bench.signal(depth=0.3))
    bench.ticks(15)
    assert not bench.of(SendCheckpoint)
    assert any(alarm.startswith("unresolved-watts") for alarm in bench.state.alarms)
