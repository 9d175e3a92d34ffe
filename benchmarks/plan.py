"""How long a plan takes: fresh Situations of distinct random jobs, up to 100 000 GPUs.

Run ``python -m benchmarks.plan -o json [--seed N] [--strategy NAME]``. Prints one JSON object:
``cases: [{gpus, jobs, seconds}]`` (median of five fresh Situations, timed from the finished
Situation to the finished Plan with every reason; nothing is kept between runs) and ``growth``, the
time at 100 000 GPUs over that at 1 000.
"""

import argparse
import gc
import random
import statistics
import sys
from collections.abc import Sequence

import numpy as np

from benchmarks.program import arguments, report
from gridaware.clock import SystemClock
from gridaware.domain.curve import Curve
from gridaware.domain.fleet import LimitRange
from gridaware.domain.job import LOSS_WINDOW_SECONDS, JobState, Tier
from gridaware.domain.situation import JobView, Situation
from gridaware.planning.model import CurveBook, curve_of
from gridaware.planning.strategies import STRATEGIES
from gridaware.wiring.curves import load_curves

SIZES = ((100, 10), (1_000, 100), (10_000, 1_000), (100_000, 10_000))
RUNS = 5


def random_situation(gpus: int, jobs: int, book: CurveBook, seed: int) -> Situation:
    """``jobs`` distinct jobs on exactly ``gpus`` GPUs, asked for a random cut of 10 to 40 %."""
    chance = random.Random(seed)
    cuts = sorted(chance.sample(range(1, gpus), jobs - 1))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, gpus], strict=True)]
    views = tuple(_job(index, size, book, chance) for index, size in enumerate(sizes))
    draw = sum(view.draw_watts for view in views)
    return Situation(
        jobs=views,
        other_gpu_watts=0.0,
        target_gpu_watts=draw * (1 - chance.uniform(0.1, 0.4)),
        horizon_seconds=chance.uniform(900, 4 * 3600),
    )


def _job(index: int, gpus: int, book: CurveBook, chance: random.Random) -> JobView:
    entry = chance.choice(book.entries)
    workload = chance.choice(list(entry.workloads.values()))
    limits = entry.gpu.limits
    curve = _unlike_any_other(curve_of(entry.gpu, workload, limits), chance)
    found = chance.choice((limits.greatest_watts, 0.9 * limits.greatest_watts))
    tier = chance.choice(list(Tier))
    return JobView(
        job_id=f"job-{index}",
        tier=tier,
        priority=chance.randrange(3),
        state=JobState.PAUSED if tier.pausable and chance.random() < 0.05 else JobState.RUNNING,
        gpu_count=gpus,
        draw_watts=curve.power_at(found) * gpus,
        cap_watts=found,
        found_watts=found,
        least_cap_watts=_least(limits, chance),
        curve=curve,
        loss_budget_seconds=tier.allowed_loss * LOSS_WINDOW_SECONDS * chance.uniform(-0.1, 1),
        pausable=tier.pausable and chance.random() < 0.8,
        pause_cost_seconds=chance.uniform(20, 600),
        since_change_seconds=chance.choice((1e9, 60.0, 600.0)),
    )


def _least(limits: LimitRange, chance: random.Random) -> float:
    return limits.least_watts * chance.choice((1.0, 1.0, 1.2))


def _unlike_any_other(curve: Curve, chance: random.Random) -> Curve:
    """The curve with its draw scaled and its throughput bent a little."""
    gain, bend = chance.uniform(0.85, 1.0), chance.uniform(0.9, 1.1)
    return Curve(
        cap_watts=curve.cap_watts,
        power_watts=tuple(gain * watts for watts in curve.power_watts),
        throughput=tuple(share**bend for share in curve.throughput),
        idle_watts=gain * curve.idle_watts,
        quality="measured",
    )


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Time the strategy at every size."""
    strategy_name, seed = options.strategy, options.seed
    clock, book, strategy = SystemClock(), load_curves(), STRATEGIES.get(strategy_name)
    strategy(random_situation(100, 10, book, seed), {})  # imports and first-call costs
    cases = []
    for gpus, jobs in SIZES:
        seconds = []
        for run in range(RUNS):
            situation = random_situation(gpus, jobs, book, seed + 1 + run)
            gc.collect()
            start = clock.monotonic_seconds()
            plan = strategy(situation, {})
            seconds.append(clock.monotonic_seconds() - start)
            assert len(plan.actions) == jobs
            assert all(action.reason for action in plan.actions)
        cases.append({"gpus": gpus, "jobs": jobs, "seconds": statistics.median(seconds)})
    by_gpus = {case["gpus"]: case["seconds"] for case in cases}
    return {
        "strategy": strategy_name,
        "seed": seed,
        "runs": RUNS,
        "cases": cases,
        "growth_1000_to_100000": by_gpus[100_000] / by_gpus[1_000],
        "numpy": np.__version__,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = arguments("plan", __doc__)
    parser.add_argument("--strategy", choices=STRATEGIES.names(), default="tiers")
    return report(measure, parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
