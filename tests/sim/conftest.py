"""A small site in virtual time, with every choice made by the test."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from gridaware.control.site import Policy, Site
from gridaware.domain.job import JobSpec, Tier
from gridaware.domain.programme import Authority, FeedSpec, Programme, SignalLoss
from gridaware.domain.signal import EventRequest, Quantity, TargetSpec
from gridaware.domain.target import Overhead, Ramp
from gridaware.planning.model import CurveBook
from gridaware.sim.site import SiteSpec
from gridaware.sim.world import World, WorldMeter, WorldSpec
from gridaware.wiring.curves import load_curves

LEAN = SiteSpec().scaled(0.2)
SITE = Site(
    act=True,
    overhead=Overhead(350.0, 1.08),
    ramp=Ramp(None, 60_000.0),
    policy=Policy(params={"dwell_seconds": 10.0, "rest_seconds": 10.0}),
    programmes=(
        Programme(
            "p",
            deadline_seconds=10.0,
            settlement_interval_seconds=15.0,
            signal_loss=SignalLoss(hold_seconds=20.0),
        ),
    ),
    feeds=(
        FeedSpec("f", "webhook", "p"),
        FeedSpec("small", "webhook", "p", Authority(greatest_depth=0.2)),
    ),
    reference_window_seconds=20.0,
    settle_after_seconds=10.0,
)


@pytest.fixture(scope="session")
def book() -> CurveBook:
    return load_curves()


@pytest.fixture
def make_world(book: CurveBook) -> Callable[..., World]:
    """A world of two 8-GPU nodes with three jobs at full draw, 40 s old."""

    def make(
        seed: int = 1, meters: tuple[WorldMeter, ...] = (WorldMeter(),), **site: object
    ) -> World:
        world = World(seed, WorldSpec(replace(SITE, **site), overhead=LEAN, meters=meters), book)
        world.run(2)
        for tier, gpus in ((Tier.FIRM, 2), (Tier.FLEX_3, 6), (Tier.FLEX_2, 8)):
            world.submit(
                JobSpec(tier.value, "x", gpus, tier, workload="pretrain", expected_seconds=3600.0)
            )
        world.run(40)
        return world

    return make


def request_of(
    world: World, depth: float, start: float = 0.0, seconds: float | None = 45.0
) -> EventRequest:
    """A reduction by ``depth`` that begins ``start`` seconds from now."""
    begin = world.clock.wall() + timedelta(seconds=start)
    end = None if seconds is None else begin + timedelta(seconds=seconds)
    return EventRequest(begin, end, TargetSpec(Quantity.REDUCTION_FRACTION, depth))


@pytest.fixture
def ask() -> Callable[..., EventRequest]:
    """Builds requests; a fixture, since test modules do not import one another."""
    return request_of
