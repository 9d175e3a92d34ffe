"""Random worlds, each from its seed; see ``gridaware/sim/invariants.py`` for what must hold."""

import pytest

from gridaware.planning.model import CurveBook
from gridaware.sim.scenario import play, scenario

IN_EVERY_RUN = range(1, 21)


def _hold(seed: int, book: CurveBook) -> None:
    broken = play(scenario(seed), book).broken
    if broken:
        again = f"python -m gridaware.sim.scenario --seed {seed}"
        pytest.fail("\n".join([*broken, f"seed={seed}; run again: {again}"]), pytrace=False)


@pytest.mark.parametrize("seed", IN_EVERY_RUN)
def test_whatever_breaks_the_promises_hold(seed: int, book: CurveBook) -> None:
    _hold(seed, book)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(IN_EVERY_RUN.stop, 201))
def test_the_promises_hold_in_many_more_worlds(seed: int, book: CurveBook) -> None:
    _hold(seed, book)


def test_a_seed_is_one_scenario() -> None:
    assert scenario(7) == scenario(7)
    assert scenario(7) != scenario(8)
