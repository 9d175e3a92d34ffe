"""One real agent with a frequency meter: it answers alone, and gives the limits back alone."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest

from gridaware.clock import SystemClock
from gridaware.domain.frequency import ERCOT_FFR, FrequencyRule
from gridaware.domain.lease import ArmedResponse, Lease, RestoreSlot
from gridaware.domain.wire import Armed, ArmedAcknowledged, Fired
from gridaware.sim.frequency import DatagramMeter

CLOCK = SystemClock()
PERIOD = 0.02


def socket_in(folder: Path) -> Path:
    return folder / "run" / "frequency.sock"


def settings_of(folder: Path) -> dict:
    """Of an agent that listens to a meter on its node."""
    return {
        "module": "gridaware.devices.frequency_datagram",
        "options": {"listen": f"unix:{socket_in(folder)}"},
    }


class Meter:
    """Sends samples to the agent as a meter on the node would, on a clock that goes on."""

    def __init__(self, folder: Path) -> None:
        self.hz = ERCOT_FFR.nominal_hz
        self._meter = DatagramMeter([socket_in(folder)])
        self._task: asyncio.Task[None] | None = None

    def dip(self) -> None:
        """What a meter shows when the voltage is gone for a moment."""
        self._meter.show(0.0)

    async def _run(self) -> None:
        shown = self.hz
        while True:
            step = min(max(self.hz - shown, -0.04), 0.04)  # 2 Hz/s, where a sample is on time
            shown = round(shown + step, 4)
            self._meter.show(shown)
            await asyncio.sleep(PERIOD)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._meter.close()


def armed(rig, rule: FrequencyRule, *depths_watts: tuple[float, float], seconds: float = 900.0):
    """Every GPU at that many watts, by depth."""
    now = CLOCK.wall()
    slot = RestoreSlot(0.0, 0.5)
    responses = tuple(
        ArmedResponse(
            "reserve",
            level,
            depth,
            Lease("armed", tuple((g, watts) for g in rig.gpu_ids), rule.hold_seconds, slot),
            rule,
        )
        for level, (depth, watts) in enumerate(depths_watts)
    )
    return Armed(1, 1, now, now + timedelta(seconds=seconds), responses)


async def _armed(rig, heard, server, message: Armed) -> None:
    await heard.until(lambda: "n0" in server.connected())
    assert server.send("n0", message)
    await heard.until(lambda: heard.of(ArmedAcknowledged))


def test_a_crossing_is_answered_and_told_and_the_return_gives_the_limits_back(
    rig, heard, eventually
) -> None:
    async def story() -> None:
        async with Meter(rig.folder) as meter, rig.link(heard) as (server, port):
            rig.start(port, frequency=settings_of(rig.folder))
            await _armed(rig, heard, server, armed(rig, ERCOT_FFR, (0.1, 300.0), (0.3, 200.0)))
            await asyncio.sleep(0.5)
            assert rig.enforced() == [400.0] * 4, "arming changes nothing"
            meter.hz = 59.8
            fired = (await heard.until(lambda: heard.of(Fired)))[0]
            await eventually(lambda: rig.enforced() == [200.0] * 4)
            assert (fired.programme_id, fired.level, fired.cause) == ("reserve", 1, "frequency")
            assert 59.75 < fired.measured <= 59.85
            assert fired.duration_seconds == 900.0
            meter.hz = 60.0
            await eventually(lambda: rig.enforced() == [400.0] * 4)
            assert [told.level for told in heard.of(Fired)] == [1, None]

    asyncio.run(story())


def test_it_works_without_any_controller_and_the_next_one_is_told(rig, heard, eventually) -> None:
    async def story() -> None:
        async with Meter(rig.folder) as meter:
            async with rig.link(heard) as (server, port):
                rig.start(port, frequency=settings_of(rig.folder))
                await _armed(rig, heard, server, armed(rig, ERCOT_FFR, (0.3, 200.0)))
            meter.hz = 59.7
            await eventually(lambda: rig.enforced() == [200.0] * 4)
            async with rig.link(heard, epoch=2, port=port) as (server, _):
                hello = await heard.until(lambda: next((h for h in heard.hellos if h.fired), None))
                assert hello.fired.cause == "frequency"
                assert hello.lease.limits_watts[0][1] == 200.0
            meter.hz = 60.0
            await eventually(lambda: rig.enforced() == [400.0] * 4)

    asyncio.run(story())


@pytest.mark.slow
def test_an_agent_killed_in_a_response_takes_it_up_and_what_is_armed_too(
    rig, heard, eventually
) -> None:
    async def story() -> None:
        async with Meter(rig.folder) as meter:
            async with rig.link(heard) as (server, port):
                rig.start(port, frequency=settings_of(rig.folder))
                await _armed(rig, heard, server, armed(rig, ERCOT_FFR, (0.3, 200.0)))
            meter.hz = 59.8
            await eventually(lambda: rig.enforced() == [200.0] * 4)
            rig.kill()
            rig.start(port, frequency=settings_of(rig.folder))  # nobody listens there any more
            await asyncio.sleep(2.0)
            assert rig.enforced() == [200.0] * 4, "limits stand, and are taken up"
            meter.hz = 60.0
            await eventually(lambda: rig.enforced() == [400.0] * 4)
            meter.hz = 59.8  # the journal still knows what is armed
            await eventually(lambda: rig.enforced() == [200.0] * 4)

    asyncio.run(story())


@pytest.mark.slow
def test_what_is_armed_and_expired_is_not_fired(rig, heard) -> None:
    async def story() -> None:
        async with Meter(rig.folder) as meter, rig.link(heard) as (server, port):
            rig.start(port, frequency=settings_of(rig.folder))
            message = armed(rig, ERCOT_FFR, (0.3, 200.0), seconds=0.2)
            await _armed(rig, heard, server, message)
            await asyncio.sleep(1.5)
            meter.hz = 59.8
            await asyncio.sleep(1.0)
            assert rig.enforced() == [400.0] * 4
            assert heard.of(Fired) == []

    asyncio.run(story())


def test_a_voltage_sag_at_the_meter_changes_no_limit(rig, heard) -> None:
    async def story() -> None:
        async with Meter(rig.folder) as meter, rig.link(heard) as (server, port):
            rig.start(port, frequency=settings_of(rig.folder))
            await _armed(rig, heard, server, armed(rig, ERCOT_FFR, (0.3, 200.0)))
            await asyncio.sleep(0.5)
            meter.dip()
            await heard.until(lambda: "frequency-blip" in heard.faults())
            assert rig.enforced() == [400.0] * 4
            assert heard.of(Fired) == []

    asyncio.run(story())


@pytest.mark.slow
def test_a_node_whose_meter_is_silent_says_so_and_obeys_its_controller(rig, heard) -> None:
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port, frequency=settings_of(rig.folder))
            await _armed(rig, heard, server, armed(rig, ERCOT_FFR, (0.3, 200.0)))
            await heard.until(lambda: "frequency-silent" in heard.faults())
            await rig.applied(heard, server, rig.desired(250.0))
            assert rig.enforced() == [250.0] * 4

    asyncio.run(story())
