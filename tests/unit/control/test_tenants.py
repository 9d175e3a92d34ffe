"""Two jobs on one sliced board: the board is capped as the stricter of them allows."""

import pytest

from gridaware.control.instructions import SendCheckpoint, SendLease
from gridaware.control.stimuli import AttemptStatus, JobSubmitted, RunnerReported
from gridaware.domain.job import JobSpec, Tier
from gridaware.domain.wire import JobProgress, JobRegistered


def share(bench, tier: Tier, gpu_ids: tuple[str, ...]) -> None:
    """A second job registers on boards that the first one holds."""
    bench.post(JobSubmitted(JobSpec("guest", "x", 1, tier, workload="pretrain"), "u"))
    bench.tick()
    bench.post(RunnerReported((AttemptStatus("guest", 1, "running"),)))
    bench.post(JobRegistered("n1", "guest", 1, 0, 8, gpu_ids, None))
    bench.post(JobProgress("n1", "guest", 1, 0, 5, 2.0))
    bench.ticks(12)


def limits(bench) -> dict[str, float]:
    return dict(bench.state.nodes["n1"].limits_watts)


@pytest.mark.parametrize(("guest", "spared"), [(Tier.FIRM, True), (Tier.FLEX_3, False)])
def test_a_firm_tenant_spares_the_board_that_it_shares(bench, guest, spared):
    bench.start_job("host", Tier.FLEX_3, gpus=2)
    bench.start_job("other", Tier.FLEX_3, gpus=2)
    boards = bench.state.jobs["host"].job.gpu_ids
    others = bench.state.jobs["other"].job.gpu_ids
    share(bench, guest, boards[:1])
    bench.made.clear()
    bench.post(bench.signal(depth=0.1))
    bench.ticks(2)
    assert bench.of(SendLease)
    capped = limits(bench)
    assert set(others) <= capped.keys()
    lost = 400.0 - capped.get(boards[0], 400.0)
    assert (lost < 1.0) is spared
    assert not [ask for ask in bench.of(SendCheckpoint) if ask.request.job_id == "host"]
