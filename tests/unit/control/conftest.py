"""A machine with two nodes of four GPUs, driven stimulus by stimulus."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gridaware.control.instructions import Answer, Instruction
from gridaware.control.machine import Machine
from gridaware.control.site import Policy, Site
from gridaware.control.stimuli import (
    AttemptStatus,
    JobSubmitted,
    RunnerReported,
    SignalReceived,
    SiteConfigured,
    Started,
    Stimulus,
    Tick,
)
from gridaware.domain.fleet import Gpu, LimitRange
from gridaware.domain.job import JobSpec, Tier
from gridaware.domain.moment import Moment
from gridaware.domain.programme import Authority, FeedSpec, Programme
from gridaware.domain.reading import (
    Boundary,
    GpuObservation,
    Method,
    NodeObservation,
    Observation,
    Quality,
    Reading,
)
from gridaware.domain.signal import EventRequest, Quantity, Signal, TargetSpec
from gridaware.domain.wire import Hello, JobProgress, JobRegistered
from gridaware.planning.model import CurveBook
from gridaware.wiring.curves import load_curves

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
RANGE = LimitRange(100.0, 400.0, 400.0)
SITE = Site(
    act=True,
    policy=Policy(params={"dwell_seconds": 10.0, "rest_seconds": 10.0}),
    programmes=(Programme("p", deadline_seconds=10.0),),
    feeds=(
        FeedSpec("f", "webhook", "p"),
        FeedSpec("hours", "webhook", "p", Authority(hours_per_day=1.0)),
        FeedSpec("notice", "webhook", "p", Authority(least_notice_seconds=600.0)),
    ),
    reference_window_seconds=10.0,
    settle_after_seconds=5.0,
)


class Bench:
    """Posts stimuli and keeps what came out."""

    def __init__(self, book: CurveBook, site: Site = SITE) -> None:
        self.machine = Machine(book)
        self.seconds = 1000.0
        self.stepped = timedelta()
        self.posted: list[tuple[Stimulus, Moment]] = []
        self.made: list[Instruction] = []
        self.watts: dict[str, float] = {}
        self.owners: dict[str, str] = {}
        self.stubborn: dict[str, float] = {}
        """GPUs that draw that much, whatever limit is enforced."""
        self.quality = Quality.GOOD
        self.post(Started(1))
        self.post(SiteConfigured(site))

    @property
    def state(self):
        return self.machine.state

    def now(self) -> Moment:
        passed = timedelta(seconds=self.seconds - 1000.0)
        return Moment(self.seconds, NOON + passed + self.stepped)

    def post(self, stimulus: Stimulus) -> list[Instruction]:
        made = self.machine.handle(stimulus, self.now())
        self.posted.append((stimulus, self.now()))
        self.made += made
        return made

    def answer(self, stimulus: Stimulus) -> Answer:
        return next(i for i in self.post(stimulus) if isinstance(i, Answer))

    def code(self, stimulus: Stimulus) -> str:
        return self.answer(stimulus).code

    def of(self, kind: type, made: Iterable[Instruction] | None = None) -> list:
        return [i for i in (self.made if made is None else made) if isinstance(i, kind)]

    def hello(self, node: int = 1, **over: object) -> list[Instruction]:
        gpus = tuple(Gpu(f"g{node}{i}", i, "NVIDIA A100", RANGE, 400.0) for i in range(4))
        message = Hello(1, f"n{node}", "1", "boot", "drv", gpus, ("limits",), 0, None, None)
        for gpu in gpus:
            self.watts.setdefault(gpu.gpu_id, 60.0)
        return self.post(replace(message, **over))

    def tick(self, seconds: float = 1.0, **over: object) -> list[Instruction]:
        self.seconds += seconds
        nodes, drawn = [], {}
        for node in sorted({gpu_id[:2] for gpu_id in self.watts}):
            track = self.state.nodes.get(f"n{node[1]}")
            limits = {} if track is None else track.limits_watts
            drawn |= {
                gpu_id: self.stubborn.get(gpu_id, min(watts, 0.97 * limits.get(gpu_id, 400.0)))
                for gpu_id, watts in self.watts.items()
                if gpu_id.startswith(node)
            }
            gpus = tuple(
                GpuObservation(
                    gpu_id,
                    drawn[gpu_id],
                    None,
                    "drv",
                    limits.get(gpu_id, 400.0),
                    400.0,
                    self.quality,
                    job_id=self.owners.get(gpu_id),
                )
                for gpu_id in self.watts
                if gpu_id.startswith(node)
            )
            nodes.append(NodeObservation(f"n{node[1]}", 0.1, gpus))
        total = sum(drawn.values())
        meter = Reading(total, self.now().wall, Boundary.SITE, Method.METER)
        seen = Observation(
            self.now(),
            meter,
            tuple(nodes),
            ray_free_gpus=8.0 - len(self.owners),
            ray_total_gpus=8.0,
        )
        return self.post(Tick(replace(seen, **over)))

    def ticks(self, seconds: int) -> None:
        for _ in range(seconds):
            self.tick()

    def start_job(self, job_id: str = "j", tier: Tier = Tier.FLEX_3, gpus: int = 4, **spec) -> None:
        """Submit a job and bring it to work on node 1."""
        self.post(JobSubmitted(JobSpec(job_id, "x", gpus, tier, workload="pretrain", **spec), "u"))
        self.tick()
        self.run_attempt(job_id, self.state.jobs[job_id].job.attempt, gpus)

    def run_attempt(self, job_id: str, attempt: int, gpus: int = 4, node: int = 1) -> None:
        ids = [g for g in self.watts if g.startswith(f"g{node}") and g not in self.owners][:gpus]
        for gpu_id in ids:
            self.watts[gpu_id], self.owners[gpu_id] = 380.0, job_id
        self.post(RunnerReported((AttemptStatus(job_id, attempt, "running"),)))
        self.post(JobRegistered(f"n{node}", job_id, attempt, 0, 7, tuple(ids), None))
        self.post(JobProgress(f"n{node}", job_id, attempt, 0, 5, 2.0))
        self.ticks(12)

    def leave(self, job_id: str) -> None:
        for gpu_id in [g for g, owner in self.owners.items() if owner == job_id]:
            del self.owners[gpu_id]
            self.watts[gpu_id] = 60.0
            self.stubborn.pop(gpu_id, None)

    def signal(
        self,
        source: str = "e",
        revision: int = 1,
        depth: float | None = 0.3,
        start: float = 0.0,
        seconds: float | None = 60.0,
        feed: str = "f",
    ) -> SignalReceived:
        request = None
        if depth is not None:
            begin = self.now().wall + timedelta(seconds=start)
            end = None if seconds is None else begin + timedelta(seconds=seconds)
            request = EventRequest(begin, end, TargetSpec(Quantity.REDUCTION_FRACTION, depth))
        now = self.now()
        return SignalReceived(Signal(feed, source, revision, now.wall, now.seconds, request))


@pytest.fixture(scope="session")
def book() -> CurveBook:
    return load_curves()


@pytest.fixture
def bench(book: CurveBook) -> Bench:
    """With both nodes there and ten seconds of readings."""
    made = Bench(book)
    made.hello(1)
    made.hello(2)
    made.ticks(10)
    return made


@pytest.fixture
def make_bench(book: CurveBook) -> Callable[..., Bench]:
    """A bench whose site differs from the usual one in the given settings."""

    def make(**site: object) -> Bench:
        made = Bench(book, replace(SITE, **site))
        made.hello(1)
        made.hello(2)
        made.ticks(10)
        return made

    return make
