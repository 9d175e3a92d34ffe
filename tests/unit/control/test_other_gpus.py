"""A job is planned by the GPUs that it runs on, not by those on which it was awaited."""

from gridaware.control.stimuli import AttemptStatus, JobSubmitted, RunnerReported
from gridaware.domain.fleet import Gpu, LimitRange
from gridaware.domain.job import JobSpec, JobState, Tier
from gridaware.domain.target import HardLimit
from gridaware.domain.wire import JobRegistered


def test_a_job_that_comes_to_larger_gpus_than_it_was_awaited_on_is_known_to_draw_more(make_bench):
    bench = make_bench(hard_limit=HardLimit(1800.0, 10.0))
    large = LimitRange(200.0, 700.0, 700.0)
    gpus = tuple(Gpu(f"g2{i}", i, "NVIDIA H100 80GB HBM3", large, 700.0) for i in range(4))
    bench.hello(2, gpus=gpus)
    bench.post(JobSubmitted(JobSpec("j", "x", 4, Tier.FLEX_3, workload="pretrain"), "u"))
    bench.ticks(2)
    track = bench.state.jobs["j"]
    assert track.job.state is JobState.STARTING
    assert track.curve.cap_watts[-1] == 400.0, "it is awaited on the first four"
    ids = tuple(gpu.gpu_id for gpu in gpus)
    for gpu_id in ids:
        bench.watts[gpu_id], bench.owners[gpu_id] = 200.0, "j"
    bench.post(RunnerReported((AttemptStatus("j", track.job.attempt, "running"),)))
    bench.post(JobRegistered("n2", "j", track.job.attempt, 0, 7, ids, None))
    bench.ticks(2)
    assert track.curve.cap_watts[-1] == 700.0
