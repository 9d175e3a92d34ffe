"""Policies: the files that come with gridaware, and what is refused in one's own."""

from pathlib import Path

import pytest

from gridaware.control.site import Policy
from gridaware.domain.errors import ConfigError, NotFound
from gridaware.domain.job import Tier
from gridaware.planning.strategies import STRATEGIES
from gridaware.wiring.curves import load_curves
from gridaware.wiring.data import data_path
from gridaware.wiring.policies import load_policies, load_policy, read_policy, rehearse


@pytest.mark.parametrize("path", sorted(data_path("policies").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_shipped_policy_is_named_like_its_file(path: Path) -> None:
    policy = read_policy(path)
    assert policy.name == path.stem
    assert policy.strategy in STRATEGIES


def test_a_rehearsal_plans_with_the_policys_own_strategy_and_numbers() -> None:
    book = load_curves()
    for policy in load_policies():
        rehearse(policy, book)
    # What the strategy itself refuses comes out at the start, not with the first signal.
    with pytest.raises(ConfigError, match="no number is called"):
        rehearse(Policy("odd", "tiers", {"dwell": 1.0}), book)


def test_the_default_is_there_and_an_absent_one_is_named() -> None:
    assert load_policy("default") in load_policies()
    with pytest.raises(NotFound, match=r"known: .*default"):
        load_policy("defualt")


def test_a_policy_may_cap_processes_that_are_not_ours_but_never_as_firm(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nstrategy: tiers\nunmanaged_tier: flex-3\n", encoding="utf-8")
    assert load_policy("mine", tmp_path).unmanaged_tier is Tier.FLEX_3
    path.write_text("name: mine\nstrategy: tiers\nunmanaged_tier: firm\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 3"):
        read_policy(path)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: p\nstrategy: tiers\nparams: {dwell_seconds: -1}\n", "line 3: params.dwell_seconds"),
        ("name: p\nstrategy: tiers\nparam: {}\n", "did you mean 'params'"),
        ("name: p\n", "strategy is missing"),
        ("name: p\nname: q\nstrategy: tiers\n", "given twice"),
    ],
)
def test_everything_that_is_wrong_has_its_line(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_policy(path)
    assert place in caught.value.message
