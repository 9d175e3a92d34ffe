"""Values that cannot be: each is refused by its code where it is made."""

from datetime import UTC, datetime

import pytest

from gridaware.domain.curve import Curve
from gridaware.domain.errors import Bug, DeviceHung, GridawareError, InvalidInput, NotFound
from gridaware.domain.job import Tier
from gridaware.domain.moment import Moment
from gridaware.domain.programme import Authority, SignalLoss
from gridaware.domain.registry import Registry
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.domain.target import Overhead
from gridaware.domain.transitions import LifeCycle, Transition

NAN = float("nan")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: SignalLoss(hold_seconds=-1.0), "programme-hold-negative"),
        (lambda: SignalLoss(hold_seconds=NAN), "programme-hold-negative"),
        (lambda: SignalLoss(fallback_fraction=0.0), "programme-fallback-range"),
        (lambda: SignalLoss(fallback_fraction=1.1), "programme-fallback-range"),
        (lambda: Authority(least_watts=-1.0), "authority-least-watts"),
        (lambda: Authority(greatest_depth=NAN), "authority-depth-range"),
        (lambda: Authority(hours_per_day=25.0), "authority-hours-range"),
        (lambda: Authority(least_notice_seconds=-1.0), "authority-notice"),
        (lambda: Overhead(-1.0, 1.0), "overhead-range"),
        (lambda: Overhead(0.0, 0.9), "overhead-range"),
        (lambda: Curve((1.0,), (1.0,), (1.0,), 0.0), "curve-shape"),
        (lambda: Curve((2.0, 1.0), (1.0, 1.0), (1.0, 1.0), 0.0), "curve-caps"),
        (lambda: TargetSpec(Quantity.LIMIT_WATTS, NAN), "target-not-finite"),
        (lambda: TargetSpec(Quantity.LIMIT_WATTS, -5.0), "target-negative"),
        (lambda: TargetSpec(Quantity.LIMIT_FRACTION, 1.5), "target-fraction-range"),
        (lambda: TargetSpec(Quantity.LIMIT_WATTS, 1e12), "target-absurd"),
        (lambda: Signal("f", "e", -1, datetime.now(UTC), 0.0, None), "revision-range"),  # noqa: TID251
        (lambda: Signal("f", "e/e", 1, datetime.now(UTC), 0.0, None), "event-id-malformed"),  # noqa: TID251
    ],
)
def test_values_that_cannot_be_are_refused(make, code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()
    assert refused.value.code == code


def test_later_is_later_on_both_clocks() -> None:
    noon = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
    assert Moment(5.0, noon).after(1.5) == Moment(6.5, noon.replace(second=1, microsecond=500_000))


def test_a_registry_names_the_nearest_and_takes_a_name_once() -> None:
    things: Registry[object] = Registry("thing")
    things.register("spanner")(1)
    assert (things.get("spanner"), things.names(), dict(things)) == (
        1,
        ("spanner",),
        {"spanner": 1},
    )
    assert "spanner" in things
    with pytest.raises(NotFound, match="did you mean 'spanner'") as unknown:
        things.get("spaner")
    assert unknown.value.code == "thing-unknown"
    with pytest.raises(NotFound, match=r"^there is no thing called 'x'$"):
        things.get("x")
    with pytest.raises(Bug):
        things.register("spanner")(2)


def test_a_life_cycle_knows_its_edges_and_refuses_two_that_look_alike() -> None:
    edge = Transition(Tier.FIRM, Tier.FLEX_1, "t", "g", "i", "Why")
    life = LifeCycle("tiers", (edge,))
    assert life.follow(Tier.FIRM, "Why") is Tier.FLEX_1
    assert life.as_rows() == (("firm", "flex-1", "t", "g", "i", "Why"),)
    with pytest.raises(Bug) as missing:
        life.follow(Tier.FLEX_1, "Why")
    assert missing.value.code == "life-cycle-no-edge"
    with pytest.raises(Bug) as twice:
        LifeCycle("tiers", (edge, edge))
    assert twice.value.code == "life-cycle-ambiguous"


def test_an_error_keeps_its_facts_across_processes() -> None:
    kind, arguments = DeviceHung("device-hung", "words", gpu_id="g").__reduce__()
    again = kind(*arguments)
    assert isinstance(again, GridawareError)
    assert (again.code, str(again), again.facts, again.retryable) == (
        "device-hung",
        "words",
        {"gpu_id": "g"},
        True,
    )


def test_every_tier_but_firm_may_be_paused() -> None:
    assert [tier.pausable for tier in Tier] == [False, True, True, True, True]
