"""One real agent process, its driver child and a controller: what each promises the other."""

import asyncio
import os
import signal

import pytest

from gridaware.clock import SystemClock
from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.domain.programme import SignalLoss
from gridaware.domain.wire import Acknowledged, Desired, Fenced, SampleBatch, SampleRate
from gridaware.wiring.identity import issue


def test_caps_are_applied_read_back_and_given_back(rig, heard):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            acknowledged = await rig.applied(heard, server, rig.desired(200.0, 60.0))
            assert [r.enforced_watts for r in acknowledged.results] == [200.0] * 4
            assert rig.enforced() == [200.0] * 4
            assert [g.found_limit_watts for g in heard.hellos[0].gpus] == [400.0] * 4
            # An empty wish: every GPU at its found limit.
            released = await rig.applied(heard, server, rig.desired({}, 0.0))
            assert [r.enforced_watts for r in released.results] == [400.0] * 4
            assert rig.enforced() == [400.0] * 4
            assert (await rig.ask("status"))["result"]["phase"] == "idle"

    asyncio.run(story())


def test_samples_come_at_the_rate_that_was_asked_for(rig, heard):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            first = await heard.until(lambda: heard.of(SampleBatch))
            assert len(first[0].samples) == 1, "at 1 Hz each sample travels at once"
            assert [g.gpu_id for g in first[0].samples[0].gpus] == rig.gpu_ids
            assert {g.enforced_watts for g in first[0].samples[0].gpus} == {400.0}
            server.send("n0", SampleRate(10.0))
            several = await heard.until(
                lambda: [b for b in heard.of(SampleBatch) if len(b.samples) > 3]
            )
            times = [sample.at for sample in several[-1].samples]
            assert times == sorted(set(times))

    asyncio.run(story())


def test_an_agent_killed_in_a_lease_finishes_it_from_its_journal(rig, heard, eventually):
    async def story() -> None:
        rig.gpus[1].requested_watts = 350.0  # the site's own limit, not the device's default
        async with rig.link(heard) as (server, port):
            rig.start(port)
            slot = RestoreSlot(0.5, 1.5)
            await rig.applied(heard, server, rig.desired(200.0, 5.0, slot=slot))
        rig.kill()
        assert rig.enforced() == [200.0] * 4, "limits stand without the agent"
        rig.start(port)  # nobody listens there any more
        await asyncio.sleep(1.5)
        assert rig.enforced() == [200.0] * 4, "the lease is not over"
        seen: list[float] = []

        def restored() -> bool:
            seen.append(rig.enforced()[0])
            return rig.enforced() == [400.0, 350.0, 400.0, 400.0]

        await eventually(restored)
        assert seen == sorted(seen), "the way back never turns"
        assert 300.0 in seen, "two steps of one second or less, not one jump"

    asyncio.run(story())


def test_a_restarted_agent_tells_a_new_controller_what_it_holds(rig, heard):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, rig.desired(250.0, 60.0))
            rig.kill()
            await heard.until(lambda: heard.lost)
            rig.start(port)
            await heard.until(lambda: len(heard.hellos) >= 2)
            hello = heard.hellos[-1]
            assert hello.lease is not None
            assert hello.lease.limits_watts[0][1] == 250.0
            assert 40.0 < hello.lease_left_seconds < 60.0
            assert hello.last_epoch == 1
            assert [g.found_limit_watts for g in hello.gpus] == [400.0] * 4

    asyncio.run(story())


def test_a_killed_driver_child_is_replaced_and_caps_still_go_out(rig, heard):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, rig.desired(300.0, 60.0))
            child = (await rig.ask("status"))["result"]["driver_child_pid"]
            os.kill(child, signal.SIGKILL)
            await heard.until(lambda: "driver-child-died" in heard.faults())
            acknowledged = await rig.applied(heard, server, rig.desired(220.0, 60.0))
            if any(r.error for r in acknowledged.results):  # said between the two children
                await heard.until(
                    lambda: not any(r.error for r in heard.of(Acknowledged)[-1].results)
                )
            assert rig.enforced() == [220.0] * 4
            assert (await rig.ask("status"))["result"]["driver_child_pid"] != child
            assert heard.lost == [], "the stream never fell"

    asyncio.run(story())


def test_a_reloaded_driver_loses_no_cap_and_the_found_limits_are_not_forgotten(
    rig, heard, eventually
):
    async def story() -> None:
        rig.gpus[0].requested_watts = 250.0
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, rig.desired(200.0, 60.0))
            for gpu in rig.gpus:
                gpu.requested_watts = 400.0
            rig.window.node(0).driver_epoch += 1
            await eventually(lambda: rig.enforced() == [200.0] * 4)
            await heard.until(lambda: "driver-reloaded" in heard.faults())
            epochs = {hello.driver_epoch for hello in heard.hellos}
            assert epochs == {"sim-0-1", "sim-0-2"}, "control hears of the new epoch"
            await rig.applied(heard, server, rig.desired({}, 0.0))
            assert rig.enforced() == [250.0, 400.0, 400.0, 400.0]

    asyncio.run(story())


def test_a_disk_that_refuses_the_journal_keeps_the_limits_as_they_are(rig, heard, eventually):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await heard.until(lambda: "n0" in server.connected())
            blocker = rig.folder / "state" / "journal.next"
            blocker.unlink(missing_ok=True)
            blocker.mkdir()  # the next record cannot be written there, not even by root
            server.send("n0", rig.desired(200.0, 60.0))
            await heard.until(lambda: "journal-write" in heard.faults())
            assert rig.enforced() == [400.0] * 4, "not journalled, so not changed"
            blocker.rmdir()
            await eventually(lambda: rig.enforced() == [200.0] * 4)

    asyncio.run(story())


def test_a_hung_gpu_delays_nobody_and_is_capped_once_it_answers(rig, heard, eventually):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, rig.desired(300.0, 60.0))
            hung = rig.gpus[2]
            hung.hang_seconds = float("inf")
            desired = rig.desired(200.0, 60.0)
            server.send("n0", desired)
            partial = await heard.until(
                lambda: [a for a in heard.of(Acknowledged) if a.sequence == desired.sequence]
            )
            others = {r.gpu_id: r.enforced_watts for r in partial[0].results}
            assert not partial[0].complete
            assert others == dict.fromkeys([g for g in rig.gpu_ids if g != hung.uuid.decode()], 200)
            complete = await heard.until(
                lambda: [a for a in heard.of(Acknowledged) if a.complete and a.sequence == 2]
            )
            errors = {r.gpu_id: r.error for r in complete[0].results if r.error}
            assert errors == {hung.uuid.decode(): "device-hung"}
            qualities = await heard.until(
                lambda: [
                    {g.gpu_id: g.quality for g in b.samples[-1].gpus}
                    for b in heard.of(SampleBatch)
                    if b.samples[-1].gpus[2].quality != "good"
                ]
            )
            assert qualities[0][rig.gpu_ids[2]] in {"held", "missing"}
            assert qualities[0][rig.gpu_ids[0]] == "good"
            hung.hang_seconds = 0.0
            await eventually(lambda: rig.enforced() == [200.0] * 4, seconds=30.0)
            assert "device-hung" in heard.faults()

    asyncio.run(story())


def test_a_gpu_off_the_bus_or_without_permission_holds_up_nobody(rig, heard):
    async def story() -> None:
        rig.gpus[0].permission_denied = 1
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await heard.until(lambda: "n0" in server.connected())
            assert [g.can_set for g in heard.hellos[0].gpus] == [False, True, True, True]
            rig.gpus[1].lost = 1
            acknowledged = await rig.applied(heard, server, rig.desired(200.0, 60.0))
            results = {r.gpu_id: r for r in acknowledged.results}
            enforced = [results[gpu_id].enforced_watts for gpu_id in rig.gpu_ids]
            assert enforced == [400.0, None, 200.0, 200.0]
            assert results[rig.gpu_ids[0]].error == "device-no-permission"
            assert results[rig.gpu_ids[1]].error is not None

    asyncio.run(story())


def test_a_dead_controller_leaves_the_lease_to_its_end_and_then_the_slot(rig, heard, eventually):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, rig.desired(200.0, 3.0, slot=RestoreSlot(0.5, 1.0)))
        started = asyncio.get_running_loop().time()
        await asyncio.sleep(2.0)
        assert rig.enforced() == [200.0] * 4, "held flat to the end"
        await eventually(lambda: rig.enforced() == [400.0] * 4)
        assert asyncio.get_running_loop().time() - started > 3.0

    asyncio.run(story())


def test_an_open_event_falls_back_when_the_controller_stays_silent(rig, heard, eventually):
    async def story() -> None:
        async with rig.link(heard, silence_seconds=1.0) as (server, port):
            rig.start(port)
            plain = rig.desired(200.0, None)
            loss = SignalLoss(hold_seconds=2.0, fallback_fraction=0.75)
            lease = Lease("open", plain.lease.limits_watts, None, RestoreSlot(), loss)
            desired = Desired(1, 1, "d1", plain.sent_at, None, lease)
            await rig.applied(heard, server, desired)
            await asyncio.sleep(2.5)
            assert rig.enforced() == [200.0] * 4, "a controller that is heard is obeyed"
        await eventually(lambda: rig.enforced() == [300.0] * 4)

    asyncio.run(story())


def test_an_agent_with_another_nodes_certificate_is_refused(rig, heard):
    async def story() -> None:
        issue(rig.folder / "ca", "n7", SystemClock())
        async with rig.link(heard) as (server, port):
            rig.start(port, identity="n7")
            log = rig.folder / "agent.log"
            async with asyncio.timeout(15):
                while "node-identity" not in log.read_text():
                    await asyncio.sleep(0.05)
            assert heard.hellos == []
            assert list(server.connected()) == []

    asyncio.run(story())


def test_a_controller_older_than_one_it_obeyed_is_fenced(rig, heard):
    async def story() -> None:
        async with rig.link(heard, epoch=5) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, rig.desired(200.0, 60.0, epoch=5))
        before = len(heard.hellos)
        async with rig.link(heard, epoch=4, port=port) as (server, _):
            fenced = await heard.until(lambda: heard.of(Fenced))
            assert fenced[0].code == "controller-epoch-old"
            assert len(heard.hellos) == before
            assert not server.send("n0", rig.desired(100.0, 60.0, epoch=4))
            assert rig.enforced() == [200.0] * 4

    asyncio.run(story())


def test_a_raised_limit_is_set_again_and_a_lower_one_is_left_alone(rig, heard, eventually):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, rig.desired(250.0, 60.0))
            rig.gpus[0].requested_watts = 400.0
            rig.gpus[1].requested_watts = 150.0
            await eventually(lambda: rig.enforced()[0] == 250.0)
            await heard.until(lambda: {"limit-drift-reset", "limit-foreign"} <= heard.faults())
            await rig.applied(heard, server, rig.desired({}, 0.0))
            assert rig.enforced() == [400.0, 150.0, 400.0, 400.0]

    asyncio.run(story())


@pytest.mark.parametrize("restore", [True, False])
def test_stopped_it_restores_only_where_it_was_told_to(rig, heard, restore):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port, restore_on_stop=restore)
            await rig.applied(heard, server, rig.desired(200.0, 60.0))
            assert await asyncio.to_thread(rig.terminate) == 0
            assert rig.enforced() == ([400.0] * 4 if restore else [200.0] * 4)

    asyncio.run(story())


def test_root_may_release_a_live_lease_only_by_saying_so(rig, heard, eventually):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, rig.desired(200.0, 60.0, slot=RestoreSlot(0.0, 1.0)))
            refused = await rig.ask("release")
            assert refused["error"]["code"] == "lease-alive"
            assert rig.enforced() == [200.0] * 4
            for confirm, reason, code in (
                ("n1", "smoke", "release-confirmation"),
                ("n0", "", "release-reason"),
            ):
                wrong = await rig.ask("release", confirm=confirm, reason=reason)
                assert wrong["error"]["code"] == code
            hasty = await rig.ask("release", at_once="true")
            assert hasty["error"]["code"] == "release-ramp-unconfirmed"
            assert rig.enforced() == [200.0] * 4
            assert (await rig.ask("release", confirm="n0", reason="smoke", actor="alice"))["ok"]
            await eventually(lambda: rig.enforced() == [400.0] * 4)
            assert "released-by-person" in heard.faults()
            unknown = await rig.ask("reboot")
            assert unknown["error"]["code"] == "command-unknown"

    asyncio.run(story())


def test_a_damaged_journal_is_set_aside_and_reported(rig, heard):
    async def story() -> None:
        (rig.folder / "state").mkdir()
        (rig.folder / "state" / "journal").write_bytes(b"GWJRNL01" + b"x" * 100)
        rig.gpus[3].requested_watts = 250.0
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await heard.until(
                lambda: {"journal-corrupt", "found-limit-distrusted"} <= heard.faults()
            )
            await rig.applied(heard, server, rig.desired(200.0, 60.0))
            await rig.applied(heard, server, rig.desired({}, 0.0))
            assert rig.enforced() == [400.0, 400.0, 400.0, 250.0], "never above what was found"
            assert (rig.folder / "state" / "journal.bad-0").exists()

    asyncio.run(story())
