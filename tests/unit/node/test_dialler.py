"""How agents come back: soon, and not all in the same moment."""

import asyncio
from collections import Counter
from random import Random

import pytest

from gridaware.clock import SystemClock
from gridaware.node import dialler
from gridaware.node.dialler import Dialler
from gridaware.node.settings import ControllerSettings
from gridaware.node.tls import agent_context
from gridaware.wiring.identity import issue, make_ca

CLOCK = SystemClock()


class Caller(Dialler):
    """Dials nobody: its connections turn out as it is told."""

    welcomes: tuple[bool, ...] = ()
    losses = 0

    async def _connection(self) -> bool:
        welcomed, *rest = self.welcomes or (False,)
        self.welcomes = tuple(rest)
        return welcomed

    def lost(self) -> None:
        self.losses += 1


@pytest.fixture
def context(tmp_path):
    make_ca(tmp_path, CLOCK)
    files = issue(tmp_path, "n0", CLOCK)
    return agent_context(files.ca, files.certificate, files.key)


@pytest.fixture
def waits(context, monkeypatch):
    """What an agent of that seed waits between its first so many connections."""

    def of(seed: int, count: int, welcomes: tuple[bool, ...] = ()) -> list[float]:
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == count:
                raise asyncio.CancelledError

        monkeypatch.setattr(dialler.asyncio, "sleep", sleep)
        caller = Caller(ControllerSettings("nowhere"), context, CLOCK, Random(seed))
        caller.welcomes = welcomes
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(caller.run())
        assert caller.losses == sum(welcomes)
        return slept

    return of


def test_an_agent_dials_ever_more_rarely_but_at_least_every_two_seconds(waits):
    for seed in range(50):
        most = [0.5, 1.0, 2.0, 2.0, 2.0, 2.0]
        for slept, bound in zip(waits(seed, 6), most, strict=True):
            assert bound / 10 <= slept <= bound


def test_once_it_was_welcomed_it_begins_anew(waits):
    for seed in range(50):
        slept = waits(seed, 5, welcomes=(False, False, False, True, False))
        assert slept[3] <= 0.5, "the first wait after a stream that was one"
        assert slept[4] <= 1.0


@pytest.mark.parametrize("away_seconds", [0.0, 1.0, 6.0, 60.0])
def test_a_fleet_that_lost_its_controller_is_back_within_two_seconds_and_is_no_storm(
    waits, away_seconds
):
    back: list[float] = []
    fleet = 300
    for seed in range(fleet):
        dialled = 0.0
        for slept in waits(seed, 200):
            dialled += slept
            if dialled >= away_seconds:
                break
        back.append(dialled - away_seconds)
    assert max(back) <= 2.0
    busiest = max(Counter(int(seconds / 0.1) for seconds in back).values())
    # A controller that is back at once finds them within half a second, else within two.
    assert busiest < fleet * (0.35 if away_seconds == 0.0 else 0.2)
