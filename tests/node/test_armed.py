"""A real agent that holds responses ready: one trigger, a restart, and a start without control."""

import asyncio
from datetime import timedelta

from gridaware.clock import SystemClock
from gridaware.domain.lease import ArmedResponse, Lease, ScheduledResponse
from gridaware.domain.wire import Acknowledged, Armed, ArmedAcknowledged, Trigger

CLOCK = SystemClock()


def armed(rig, revision: int, *levels: float, starts_in: float | None = None) -> Armed:
    """Levels of programme ``p`` at these limits; or an event in so many seconds, for 2 s."""
    now = CLOCK.wall()

    def lease(watts: float, seconds: float, *event_ids: str) -> Lease:
        limits = tuple(dict.fromkeys(rig.gpu_ids, watts).items())
        return Lease("armed", limits, seconds, event_ids=event_ids)

    responses = [
        ArmedResponse("p", level, 0.1 * (level + 1), lease(watts, 60.0))
        for level, watts in enumerate(levels)
    ]
    scheduled = (
        [] if starts_in is None else [ScheduledResponse(starts_in, lease(250.0, 2.0, "f.e"))]
    )
    until = now + timedelta(seconds=900)
    return Armed(1, revision, now, until, tuple(responses), tuple(scheduled))


async def hold(server, heard, message: Armed) -> None:
    """Send the set and wait until it is held."""
    await heard.until(lambda: "n0" in server.connected())
    assert server.send("n0", message)
    await heard.until(lambda: message.revision in {a.revision for a in heard.of(ArmedAcknowledged)})


def test_a_trigger_puts_armed_caps_in_force_and_is_acknowledged_with_the_read_back(rig, heard):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await hold(server, heard, armed(rig, 1, 300.0, 200.0))
            assert rig.enforced() == [400.0] * 4
            server.send("n0", Trigger(1, 1, "d1", 1, "p", 1, "f.e", 60.0))
            (answer,) = await heard.until(lambda: heard.of(Acknowledged))
            assert (answer.sequence, answer.decision_id, answer.complete) == (1, "d1", True)
            assert [r.enforced_watts for r in answer.results] == [200.0] * 4
            assert rig.enforced() == [200.0] * 4
            server.send("n0", Trigger(1, 2, "d2", 9, "p", 0, "f.e", 60.0))
            await heard.until(lambda: "trigger-refused" in heard.faults())
            assert rig.enforced() == [200.0] * 4

    asyncio.run(story())


def test_what_is_armed_outlives_kill_nine(rig, heard):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await hold(server, heard, armed(rig, 1, 300.0, 200.0))
            rig.kill()
            await heard.until(lambda: heard.lost)
            hellos = len(heard.hellos)
            rig.start(port)
            await heard.until(lambda: len(heard.hellos) > hellos)
            await heard.until(lambda: "n0" in server.connected())
            server.send("n0", Trigger(1, 1, "d1", 1, "p", 0, "f.e", 60.0))
            (answer,) = await heard.until(lambda: heard.of(Acknowledged))
            assert [r.enforced_watts for r in answer.results] == [300.0] * 4

    asyncio.run(story())


def test_an_event_that_is_known_ahead_is_served_while_control_is_away(rig, heard, eventually):
    async def story() -> None:
        async with rig.link(heard, silence_seconds=1.0) as (server, port):
            rig.start(port)
            await hold(server, heard, armed(rig, 1, starts_in=2.0))
        await eventually(lambda: rig.enforced() == [250.0] * 4)
        await eventually(lambda: rig.enforced() == [400.0] * 4)

    asyncio.run(story())
