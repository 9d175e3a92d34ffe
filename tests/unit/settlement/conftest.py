"""A tiny site: observations of one meter and some GPUs, one second apart."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from gridaware.domain.job import Job, JobSpec, JobState, Tier
from gridaware.domain.moment import Moment
from gridaware.domain.reading import (
    Boundary,
    EnergyReading,
    GpuObservation,
    JobObservation,
    Method,
    NodeObservation,
    Observation,
    Quality,
    Reading,
)

START = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)


def job(job_id, state=JobState.RUNNING, team="ml", gpus=(), tier=Tier.FLEX_2):
    return Job(
        spec=JobSpec(job_id=job_id, entrypoint="python x.py", gpus=len(gpus), tier=tier, team=team),
        state=state,
        reason="Started",
        submitted_at=START,
        state_since=START,
        attempt=1,
        gpu_ids=tuple(gpus),
    )


@dataclass
class Site:
    """Keeps the counters, so that each test says watts alone."""

    overhead_watts: float = 500.0
    at: float = 1000.0
    joules: dict = field(default_factory=dict)
    meter_joules: float = 0.0
    wall: datetime = START

    def advance(self, seconds, watts):
        """Let GPUs draw ``watts`` for a while; the meter sees them and the overhead."""
        self.at += seconds
        self.wall += timedelta(seconds=seconds)
        for gpu_id, value in watts.items():
            self.joules[gpu_id] = self.joules.get(gpu_id, 0.0) + value * seconds
        self.meter_joules += (sum(watts.values()) + self.overhead_watts) * seconds

    def observe(self, watts, owners=(), unmanaged=(), steps=(), quality=Quality.GOOD, epoch="e1"):
        """An observation; ``owners`` maps a GPU to a job or to (job, share) pairs."""
        owners = dict(owners)
        rows = []
        for gpu_id, value in watts.items():
            owner = owners.get(gpu_id)
            shares = owner if isinstance(owner, list) else [(owner, 1.0)]
            rows += [
                GpuObservation(
                    gpu_id=gpu_id,
                    power_watts=value,
                    energy_joules=self.joules.get(gpu_id, 0.0),
                    energy_epoch=epoch,
                    enforced_limit_watts=400.0,
                    requested_limit_watts=400.0,
                    quality=quality,
                    job_id=job_id,
                    attempt=1,
                    shares=share,
                    unmanaged=gpu_id in unmanaged,
                )
                for job_id, share in shares
            ]
        total = sum(watts.values()) + self.overhead_watts
        return Observation(
            moment=Moment(self.at, self.wall),
            meter=Reading(total, self.wall, Boundary.SITE, Method.METER),
            nodes=(NodeObservation("n0", 0.0, tuple(rows)),),
            jobs=tuple(
                JobObservation(job_id, 1, step, 0.0, 0.0) for job_id, step in dict(steps).items()
            ),
            meter_joules=EnergyReading(self.meter_joules, "m1", self.wall, Boundary.SITE),
        )


@pytest.fixture
def site():
    return Site()


@pytest.fixture
def make_job():
    return job


@pytest.fixture(scope="session")
def make_site():
    """The class itself, for tests that need a fresh site for each example."""
    return Site


@pytest.fixture(scope="session")
def make_one():
    return job
