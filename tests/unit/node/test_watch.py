"""The watch on the frequency: what its meter says, what is fired, and what is told."""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import ConfigError, Unavailable
from gridaware.domain.frequency import (
    ERCOT_FFR,
    GB_DYNAMIC_CONTAINMENT_LOW,
    FrequencyRule,
)
from gridaware.domain.lease import ArmedResponse, Lease
from gridaware.node import watch
from gridaware.node.actions import Action, Fault, Firing
from gridaware.node.settings import FrequencySettings
from gridaware.node.watch import FrequencyWatch, load_source

START = datetime(2026, 11, 1, tzinfo=UTC)
METER = "tests_frequency_meter"


class Meter:
    """A source whose samples a test puts in."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Any] = SimpleQueue()
        self.opened = 0
        self.t_seconds = 0.0

    def samples(self) -> Iterator[tuple[float, float]]:
        self.opened += 1
        while True:
            thing = self.queue.get()
            if isinstance(thing, Exception):
                raise thing
            if thing is None:
                return
            if callable(thing):
                thing()
            else:
                yield thing

    def close(self) -> None:
        self.queue.put(None)

    def show(self, *frequencies: float) -> None:
        """Samples 100 ms apart."""
        for hz in frequencies:
            self.t_seconds += 0.1
            self.queue.put((self.t_seconds, hz))

    async def heard(self) -> None:
        """All that was shown has been taken in, and what it asked for is done."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self.queue.put(lambda: loop.call_soon_threadsafe(done.set_result, None))
        async with asyncio.timeout(10):
            await done


@dataclass
class Holder:
    """A lease holder that remembers what it was asked for."""

    responses: tuple[ArmedResponse, ...] = ()
    firing: Firing | None = None
    asked: list[tuple[str, str, int | None, float | None]] = field(default_factory=list)

    @property
    def armed(self) -> "Holder":
        return self

    def ready(self, now: float) -> tuple[ArmedResponse, ...]:
        return self.responses

    def fire(self, programme_id, level, now, wall, cause, measured=None) -> list[Action]:
        self.asked.append((cause, programme_id, level, measured))
        return []

    def let_go(self, programme_id: str, now: float) -> list[Action]:
        self.asked.append(("over", programme_id, None, None))
        return []


def ladder(
    rule: FrequencyRule | None, depths: Iterable[float], programme: str = "reserve"
) -> tuple[ArmedResponse, ...]:
    lease = Lease("l", (("g0", 200.0),), 900.0)
    return tuple(
        ArmedResponse(programme, level, depth, lease, rule) for level, depth in enumerate(depths)
    )


class Story:
    """One watch on a meter, and what it did."""

    def __init__(self, holder: Holder, *, module: str = METER) -> None:
        self.holder = holder
        self.clock = ManualClock(START)
        self.faults: list[str] = []
        self.done = asyncio.Event()
        self.watch = FrequencyWatch(FrequencySettings(module), holder, self.clock, self.carry)

    def carry(self, actions: Iterable[Action]) -> None:
        self.faults += [action.code for action in actions if isinstance(action, Fault)]
        self.done.set()

    async def until(self, ready: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not ready():
                self.done.clear()
                await self.done.wait()


def tell(story: Story, what: Coroutine[Any, Any, None]) -> None:
    """Run it, with the watch started and armed before and stopped after it."""

    async def run() -> None:
        story.watch.start()
        story.watch.look()
        try:
            await what
        finally:
            story.watch.stop()

    asyncio.run(run())


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    made, module = Meter(), ModuleType(METER)
    module.open_frequency = lambda options: made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, METER, module)
    return made


def test_a_crossing_fires_the_deepest_level_and_the_return_lets_it_go(meter: Meter) -> None:
    story = Story(Holder(ladder(ERCOT_FFR, (0.1, 0.3))))

    async def happens() -> None:
        meter.show(60.0, 59.9, 59.84, 59.8)
        await meter.heard()
        assert story.holder.asked == [("frequency", "reserve", 1, 59.84)]
        story.clock.advance(10.0)
        meter.show(59.9, 59.99)
        await meter.heard()
        story.clock.advance(1.0)  # 59.98 Hz must stand for a second of our clock
        meter.show(59.99)
        await meter.heard()

    tell(story, happens())
    assert story.holder.asked[1:] == [("over", "reserve", None, None)]


def test_a_droop_is_answered_by_the_shallowest_level_that_gives_enough(meter: Meter) -> None:
    depths = (0.015, 0.03, 0.15, 0.3)
    story = Story(Holder(ladder(GB_DYNAMIC_CONTAINMENT_LOW, depths)))

    async def happens() -> None:
        # 5 % of 0.3 is 0.015; 52.5 % is 0.1575; then 100 %, back along the curve, and home.
        meter.show(50.0, 49.9, 49.8, 49.65, 49.5, 49.79, 49.8, 49.99)
        await meter.heard()

    tell(story, happens())
    assert [level for _, _, level, _ in story.holder.asked] == [0, 3, 1, 0, None]


def test_a_programme_that_does_not_answer_the_frequency_is_left_alone(meter: Meter) -> None:
    responses = ladder(None, (0.2,), "called") + ladder(ERCOT_FFR, (0.2,), "reserve")
    story = Story(Holder(responses))

    async def happens() -> None:
        meter.show(59.8)
        await meter.heard()

    tell(story, happens())
    assert [programme for _, programme, _, _ in story.holder.asked] == ["reserve"]


def test_silence_is_told_once_and_again_only_after_the_meter_was_heard(meter: Meter) -> None:
    story = Story(Holder(ladder(ERCOT_FFR, (0.2,))))

    async def happens() -> None:
        story.clock.advance(1.9)
        story.watch.look()
        assert story.faults == []
        for _ in range(3):
            story.clock.advance(1.0)
            story.watch.look()
        assert story.faults == ["frequency-silent"]
        meter.show(59.8)
        await meter.heard()
        story.clock.advance(2.5)
        story.watch.look()

    tell(story, happens())
    assert story.faults == ["frequency-silent"] * 2


def test_a_meter_whose_clock_stands_still_is_silent(meter: Meter) -> None:
    story = Story(Holder(ladder(ERCOT_FFR, (0.2,))))

    async def happens() -> None:
        for _ in range(5):
            story.clock.advance(1.0)
            meter.queue.put((7.0, 59.0))
            meter.queue.put((float("nan"), 59.0))
            await meter.heard()
            story.watch.look()

    tell(story, happens())
    assert story.faults == ["frequency-silent"]
    assert story.holder.asked == [("frequency", "reserve", 0, 59.0)], "its first sample was one"


def test_a_response_ends_by_its_hold_when_the_meter_falls_silent(meter: Meter) -> None:
    story = Story(Holder(ladder(ERCOT_FFR, (0.2,))))

    async def happens() -> None:
        meter.show(59.8)
        await meter.heard()
        story.clock.advance(899.0)
        story.watch.look()
        assert len(story.holder.asked) == 1
        story.clock.advance(2.0)
        story.watch.look()

    tell(story, happens())
    assert story.holder.asked[1:] == [("over", "reserve", None, None)]


def test_what_has_fired_lets_go_although_nothing_is_armed_any_more(meter: Meter) -> None:
    story = Story(Holder(ladder(ERCOT_FFR, (0.2,))))

    async def happens() -> None:
        meter.show(59.8)
        await meter.heard()
        story.holder.responses = ()
        story.watch.look()
        story.clock.advance(901.0)
        story.watch.look()
        story.watch.look()
        meter.show(59.9, 59.8)
        await meter.heard()

    tell(story, happens())
    assert [what for what, *_ in story.holder.asked] == ["frequency", "over"]


def test_a_source_that_fails_is_opened_again_and_told_of_once(
    meter: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_FIRST_RETRY_SECONDS", 0.001)
    story = Story(Holder(ladder(ERCOT_FFR, (0.2,))))

    async def happens() -> None:
        for error in (
            Unavailable("frequency-source", "gone"),
            KeyError("bug"),
            ZeroDivisionError(),
        ):
            meter.queue.put(error)
        meter.show(59.8)
        await meter.heard()

    tell(story, happens())
    assert story.faults == ["frequency-source"]
    assert meter.opened == 4


def test_a_source_that_hangs_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    forever = threading.Event()

    class Hung:
        def samples(self) -> Iterator[tuple[float, float]]:
            forever.wait()
            yield 0.0, 0.0

        def close(self) -> None:
            forever.set()

    module = ModuleType(METER)
    module.open_frequency = lambda options: Hung()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, METER, module)
    story = Story(Holder(ladder(ERCOT_FFR, (0.2,))))

    async def happens() -> None:
        story.clock.advance(5.0)
        story.watch.look()

    tell(story, happens())
    assert story.faults == ["frequency-silent"]


def test_blips_that_follow_one_another_are_told_once(meter: Meter) -> None:
    story = Story(Holder(ladder(ERCOT_FFR, (0.2,))))

    async def happens() -> None:
        meter.show(60.0, 0.0, 0.0, 0.0, 60.0)
        await story.until(lambda: story.faults == ["frequency-blip"])
        story.clock.advance(10.0)
        meter.show(60.0, 0.0, 59.9, 59.8)
        await meter.heard()

    tell(story, happens())
    assert story.faults == ["frequency-blip"] * 2


def test_a_node_that_is_armed_without_a_meter_says_so_once() -> None:
    story = Story(Holder(ladder(ERCOT_FFR, (0.2,))), module="")

    async def happens() -> None:
        story.clock.advance(60.0)
        story.watch.look()

    tell(story, happens())
    assert story.faults == ["frequency-unwatched"]


def test_a_meter_that_cannot_be_loaded_is_a_fault_and_not_the_end() -> None:
    story = Story(Holder(ladder(ERCOT_FFR, (0.2,))), module="gridaware.devices.no_such_meter")
    tell(story, story.until(lambda: bool(story.faults)))
    assert story.faults == ["frequency-import"]


@pytest.mark.parametrize("module", ["no.such.module", "gridaware.domain.units"])
def test_only_a_module_with_open_frequency_is_a_meter(module: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_source(module, {})
    assert refused.value.code == "frequency-import"


def test_a_response_from_before_a_restart_is_let_go_at_its_end(meter: Meter) -> None:
    fired = Firing("reserve", 0, 0.2, "frequency-reserve-1", "frequency", 59.8, 700.0, START, 900.0)
    story = Story(Holder(ladder(ERCOT_FFR, (0.2,)), fired))  # our clock begins at 1000 s

    async def happens() -> None:
        meter.show(59.8, 59.79)
        await meter.heard()
        assert story.holder.asked == [], "it stands already"
        story.clock.advance(601.0)
        story.watch.look()

    tell(story, happens())
    assert story.holder.asked == [("over", "reserve", None, None)]
    assert story.clock.wall() == START + timedelta(seconds=601.0)
