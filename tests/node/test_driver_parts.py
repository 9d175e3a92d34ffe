"""Real driver children of mixed nodes and of slow drivers, as the agent starts and watches them."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from gridaware.domain.fleet import Pace
from gridaware.node.actions import Inventory, Written
from gridaware.node.childwire import Outdated, Tick
from gridaware.node.driverchild import DriverChildren
from gridaware.node.settings import DriverSettings
from gridaware.sim.plant import Plant
from gridaware.sim.site import NodeSpec, PlantSpec, build_window

SPEC = PlantSpec((NodeSpec("h100-700", 2), NodeSpec("a100-400", 2)))


class Events:
    """What the agent would hear of its driver."""

    def __init__(self) -> None:
        self.found: list[Inventory] = []
        self.results: list[Written] = []
        self.ticks: list[Tick] = []
        self.gone: list[str] = []
        self.settable: list[str] = []

    def on_found(self, inventory: Inventory) -> None:
        self.found.append(inventory)

    def on_results(self, results: tuple[Written, ...]) -> None:
        self.results += results

    def on_locked(self, result: object) -> None:
        raise AssertionError(result)

    def on_tick(self, tick: Tick) -> None:
        self.ticks.append(tick)

    def on_incident(self, incident: object) -> None:
        raise AssertionError(incident)

    def on_driver_gone(self, code: str, message: str) -> None:
        self.gone.append(code)

    def sound(self) -> frozenset[str]:
        return frozenset(self.settable)

    async def until(self, ready: Callable[[], object], seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while not ready():
                await asyncio.sleep(0.01)


@pytest.fixture
def window(tmp_path):
    window = build_window(SPEC, 3, tmp_path / "window")
    Plant(window, SPEC, 3).advance(5.0)
    return window


def run(settings, body):
    """Drive children of ``settings`` in a loop of their own, and end every one of them."""

    async def main():
        events = Events()
        children = DriverChildren(settings, events)
        children.start()
        try:
            await body(children, events)
        finally:
            children.stop()
            with contextlib.suppress(TimeoutError):
                await events.until(lambda: False, 0.05)  # sockets close

    asyncio.run(main())


def mixed(tmp_path: Path) -> DriverSettings:
    """Each node of the window is one vendor's half of this one."""
    options = {}
    for part, node in (("nvidia", "0"), ("other", "1")):
        options[part] = "gridaware.sim.driver"
        options[f"{part}.window"] = str(tmp_path / "window")
        options[f"{part}.node"] = node
    return DriverSettings("gridaware.devices.mixed", options)


def ids(window, node):
    return [slot.uuid.decode() for slot in window.gpus_of(node)]


def test_case_4_gpus_of_a_part_that_is_not_there_are_absent_and_the_others_work(window, tmp_path):
    window.node(1).driver_gone = 1

    async def body(children, events):
        await events.until(lambda: events.found)
        (inventory,) = events.found
        assert [device.gpu_id for device in inventory.devices] == ids(window, 0)
        assert [code for code, _ in inventory.faults] == ["driver-not-loaded"]
        children.write(1, ((ids(window, 0)[1], 300.0),))
        await events.until(lambda: events.results)
        (result,) = events.results
        assert (result.enforced_watts, result.error_code) == (300.0, None)
        assert window.gpu(1).requested_watts == 300.0
        assert events.gone == []

    run(mixed(tmp_path), body)


@pytest.mark.slow
def test_a_part_that_comes_back_is_taken_up_by_a_fresh_child(window, tmp_path):
    window.node(1).driver_gone = 1

    async def body(children, events):
        await events.until(lambda: events.found)
        window.node(1).driver_gone = 0
        children.wish_fresh(wanted=False)
        await events.until(lambda: len(events.found) == 2)
        whole = events.found[-1]
        assert [device.gpu_id for device in whole.devices] == ids(window, 0) + ids(window, 1)
        assert whole.faults == ()
        assert events.gone == []

    run(mixed(tmp_path), body)


@pytest.mark.slow
def test_case_20_a_part_that_goes_away_stops_only_its_own_gpus(window, tmp_path):
    async def body(children, events):
        await events.until(lambda: events.found and events.ticks)
        window.node(1).driver_epoch += 1

        def halves():
            fresh = {gpu.gpu_id: gpu.fresh for gpu in events.ticks[-1].gpus}
            return [fresh[g] for g in ids(window, 0)], [fresh[g] for g in ids(window, 1)]

        await events.until(lambda: halves() == ([True, True], [False, False]))
        assert events.gone == []
        children.wish_fresh(wanted=True)
        await events.until(lambda: halves() == ([True, True], [True, True]))
        assert len(events.found) == 2

    run(mixed(tmp_path), body)


@pytest.mark.slow
def test_a_board_that_has_changed_is_told_by_a_fresh_child_and_nobody_notices(window, tmp_path):
    async def body(children, events):
        await events.until(lambda: events.found and events.ticks)
        first = children.pid
        window.gpu(0).mig_slices = 2
        children.heard(children._working, Outdated(ids(window, 0)[0]))
        await events.until(lambda: len(events.found) == 2)
        assert children.pid != first
        assert len(events.found[-1].devices[0].board.slices) == 2
        assert events.gone == []

    run(mixed(tmp_path), body)


WRITING_DRIVER = """
from pathlib import Path
from gridaware.sim import driver as simulated


def open_driver(options):
    log = Path(options.pop("log"))
    driver = simulated.open_driver(options)

    def can_set(gpu_id):
        with log.open("a") as file:
            file.write(gpu_id + chr(10))
        return True

    driver.can_set = can_set
    return driver
"""


@pytest.mark.slow
def test_a_fresh_child_writes_no_limit_to_a_gpu_that_another_child_sets(window, tmp_path):
    """What it found a moment before would undo a cap that came in between."""
    (tmp_path / "writing_driver.py").write_text(WRITING_DRIVER)
    log = tmp_path / "log"
    settings = DriverSettings(
        "writing_driver",
        {"window": str(tmp_path / "window"), "node": "1", "log": str(log)},
        {"PYTHONPATH": str(tmp_path)},
    )

    async def body(children, events):
        await events.until(lambda: events.found)
        sound, ailing = ids(window, 1)
        assert sorted(log.read_text().split()) == sorted([sound, ailing])
        events.settable = [sound]
        log.write_text("")
        children.wish_fresh(wanted=True)
        await events.until(lambda: len(events.found) == 2)
        assert log.read_text().split() == [ailing]
        assert [device.can_set for device in events.found[-1].devices] == [True, True]

    run(settings, body)


SLOW_DRIVER = """
import time
from gridaware.domain.fleet import Pace
from gridaware.sim import driver as simulated


def open_driver(options):
    driver = simulated.open_driver(options)
    set_limit_watts = driver.set_limit_watts

    def slowly(gpu_id, watts):
        time.sleep(1.5)
        set_limit_watts(gpu_id, watts)

    driver.set_limit_watts = slowly
    {declares}
    return driver
"""


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False])
def test_a_call_that_takes_as_long_as_its_driver_says_does_not_hang(window, tmp_path, declared):
    declares = "driver.pace = lambda gpu_id: Pace(10.0, 40.0)" if declared else ""
    (tmp_path / "slow_driver.py").write_text(SLOW_DRIVER.format(declares=declares))
    settings = DriverSettings(
        "slow_driver",
        {"window": str(tmp_path / "window"), "node": "1"},
        {"PYTHONPATH": str(tmp_path)},
    )

    async def body(children, events):
        await events.until(lambda: events.found)
        gpu_id = ids(window, 1)[0]
        children.write(1, ((gpu_id, 300.0),))
        await events.until(lambda: events.results)
        (result,) = events.results
        if declared:
            assert children.pace(gpu_id) == Pace(10.0, 40.0)
            assert (result.enforced_watts, result.error_code) == (300.0, None)
        else:
            assert (result.enforced_watts, result.error_code) == (None, "device-hung")

    run(settings, body)
