"""Jobs and situations for planning tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gridaware.domain.curve import Curve
from gridaware.domain.job import LOSS_WINDOW_SECONDS, JobState, Tier
from gridaware.domain.situation import JobView, Situation
from gridaware.planning.model import CurveBook, curve_of
from gridaware.wiring.curves import load_curves

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Public traces, where this checkout has them beside it."""
    if not SHARED.is_dir():
        pytest.skip("the public traces (../shared/data) are absent")
    return SHARED


@pytest.fixture(scope="session")
def book() -> CurveBook:
    return load_curves()


@pytest.fixture(scope="session")
def pretrain(book) -> Curve:
    """One A100 in pre-training: 383 W uncapped, caps 100 to 400 W."""
    gpu = book.gpu("a100-400")
    return curve_of(gpu, book.workload(gpu, "pretrain"))


@pytest.fixture(scope="session")
def job(pretrain) -> Callable[..., JobView]:
    """A running, pausable 8-GPU pre-training job with its whole budget left."""

    def make(job_id: str = "job", tier: Tier = Tier.FLEX_3, **changes) -> JobView:
        curve = changes.pop("curve", pretrain)
        gpus = changes.pop("gpu_count", 8)
        found = changes.pop("found_watts", curve.cap_watts[-1])
        cap = changes.pop("cap_watts", found)
        view = {
            "job_id": job_id,
            "tier": tier,
            "priority": 0,
            "state": JobState.RUNNING,
            "gpu_count": gpus,
            "draw_watts": gpus * curve.power_at(cap),
            "cap_watts": cap,
            "found_watts": found,
            "least_cap_watts": curve.cap_watts[0],
            "curve": curve,
            "loss_budget_seconds": tier.allowed_loss * LOSS_WINDOW_SECONDS,
            "pausable": tier.pausable,
            "pause_cost_seconds": 60.0,
        }
        return JobView(**{**view, **changes})

    return make


@pytest.fixture(scope="session")
def ask() -> Callable[..., Situation]:
    """A situation whose target is a share of what its running jobs draw uncapped."""

    def make(*jobs: JobView, share: float | None = None, **changes) -> Situation:
        other = changes.pop("other_gpu_watts", 0.0)
        full = other + sum(
            view.gpu_count * view.curve.power_at(view.found_watts)
            for view in jobs
            if view.state.on_gpus
        )
        target = changes.pop("target_gpu_watts", None if share is None else share * full)
        horizon = changes.pop("horizon_seconds", 3600.0)
        return Situation(tuple(jobs), other, target, horizon, **changes)

    return make
