"""A schedule of load targets (DSX Flex) in control: one hands over to the next without a gap."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from gridaware.control.stimuli import SignalReceived
from gridaware.domain.errors import Refused
from gridaware.domain.event import EventState
from gridaware.domain.signal import Signal
from gridaware.feeds.dsx.book import Book
from gridaware.feeds.dsx.carrying import carry_out
from gridaware.feeds.dsx.messages import CloudEvent, Target
from gridaware.feeds.dsx.pieces import Step

DEFAULTS = {"main-a": 9000.0}


class Sender:
    """Says targets to a machine, as the feed does."""

    def __init__(self, bench) -> None:
        self.bench, self.book, self.count = bench, Book(), 0
        self.least: list[float | None] = []
        """What the site may draw after each step."""

    def say(
        self, watts: float | None, start: float | None = None, end: float | None = None
    ) -> None:
        now = self.bench.now().wall
        self.count += 1
        event = CloudEvent(f"m-{self.count}", "", "", now, "", "", None, None, {})
        target = Target(self.at(start), self.at(end), (), watts, "watt", best_effort=False)
        self.book.prune(now, timedelta(hours=24))
        self.book = self.book.said(event, [target], tuple(DEFAULTS), now)
        carry_out(self.book, DEFAULTS, now, self._step)

    def at(self, seconds: float | None) -> datetime | None:
        wall = self.bench.now().wall
        return None if seconds is None else wall + timedelta(seconds=seconds)

    def _step(self, step: Step) -> None:
        now, piece = self.bench.now(), step.piece
        request = None if step.taken_back else piece.request()
        signal = Signal("f", piece.name, piece.revision, now.wall, now.seconds, request)
        answer = self.bench.answer(SignalReceived(signal))
        if answer.code:
            raise Refused(answer.code, answer.message)
        self.least.append(self.bench.state.target_watts)

    def states(self) -> list[EventState]:
        tracks = self.bench.state.events.values()
        return [track.event.state for track in tracks]


@pytest.fixture
def sender(bench) -> Sender:
    bench.start_job()
    return Sender(bench)


def test_set_points_follow_each_other_and_null_releases(bench, sender: Sender) -> None:
    sender.say(1400.0)
    bench.ticks(20)
    assert sender.states() == [EventState.HOLDING]
    assert bench.state.target_watts == pytest.approx(1400.0, rel=1e-3)
    sender.say(1500.0)
    # The next is said first, and the stricter of both holds; then the last one ends.
    assert sender.least[-2:] == pytest.approx([1400.0, 1500.0], rel=1e-3)
    for _ in range(30):
        bench.tick()
        assert bench.state.target_watts is not None
        assert bench.state.target_watts <= 1501.0
    # Ended, and not yet restored: the next one holds the limits.
    assert sender.states() == [EventState.RAMPING_UP, EventState.HOLDING]
    sender.say(None)
    bench.ticks(60)
    assert not any(state.open for state in sender.states())
    assert bench.state.target_watts is None


def test_a_window_within_an_endless_target_is_served_and_the_endless_one_again(
    bench, sender: Sender
) -> None:
    sender.say(1500.0)
    bench.ticks(5)
    sender.say(1300.0, start=20.0, end=60.0)
    seen = []
    for _ in range(120):
        bench.tick()
        assert bench.state.target_watts is not None
        seen.append(round(bench.state.target_watts, -1))
    assert seen[:19] == [1500.0] * 19
    assert set(seen[25:58]) == {1300.0}
    assert seen[-1] == 1500.0
    assert max(seen) <= 1500.0
    assert [s for s in sender.states() if s is EventState.HOLDING] == [EventState.HOLDING]


def test_a_target_replaced_before_it_began_never_acts(bench, sender: Sender) -> None:
    sender.say(1000.0, start=30.0, end=90.0)
    sender.say(1500.0, start=30.0, end=90.0)
    bench.ticks(60)
    assert sender.states() == [EventState.CANCELLED, EventState.HOLDING]
    assert bench.state.target_watts == pytest.approx(1500.0, rel=1e-3)


def test_a_site_that_no_longer_acts_opts_out_of_the_next_and_lets_the_last_end(
    bench, sender: Sender
) -> None:
    sender.say(1400.0)
    bench.ticks(10)
    bench.state.site = replace(bench.state.site, act=False)
    sender.say(1300.0)
    assert sender.states()[1] is EventState.OPTED_OUT
    bench.ticks(5)
    assert EventState.HOLDING not in sender.states()
