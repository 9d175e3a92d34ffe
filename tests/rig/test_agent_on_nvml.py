"""The whole way down: lease → agent → driver child → nvidia-ml-py → the virtual library."""

import asyncio

import pynvml
import pytest

from gridaware.domain.lease import RestoreSlot
from gridaware.domain.wire import Acknowledged, LockHeld, NodeFault

pytestmark = pytest.mark.rig


def test_a_lease_caps_locks_and_gives_back_and_the_board_is_described(make_site, make_node):
    site = make_site("h100-700", 2)
    first, second = site.window.gpu(0), site.window.gpu(1)
    first.mig_slices, second.persistence = 2, 0

    async def play():
        async with make_node(site) as node:
            told = {gpu.gpu_id: gpu for gpu in node.hellos[-1].gpus}
            one, two = node.gpu_ids
            assert told[one].board.slices == (first.slice_uuid(1), first.slice_uuid(2))
            assert told[two].clocks.greatest_mhz == 1980.0
            await node.until(lambda: ("persistence-off", two) in node.faults())
            done = await node.order({one: 300.0, two: 350.0}, 2.0, clocks_mhz=((two, 1000.0),))
            assert [result.enforced_watts for result in done.results] == [300.0, 350.0]
            await node.until(lambda: second.locked_mhz == 990.0)
            assert (first.requested_watts, first.locked_mhz) == (300.0, 0.0)
            await node.until(
                lambda: (first.requested_watts, second.requested_watts) == (700.0, 700.0)
            )
            await node.until(lambda: second.locked_mhz == 0.0)

    asyncio.run(play())


@pytest.mark.slow
def test_a_lock_is_acknowledged_by_the_clock_and_set_again_when_somebody_lifts_it(
    make_site, make_node, make_job
):
    site = make_site("h100-700", 1)
    gpu = site.window.gpu(0)

    async def play():
        async with make_node(site) as node:
            (one,) = node.gpu_ids
            make_job(site, "pretrain", "0")

            def held():
                done = [m for m in node.messages if isinstance(m, Acknowledged)]
                return done[-1].results[0].lock

            done = await node.order({one: 690.0}, 120.0, clocks_mhz=((one, 1000.0),))
            assert done.results[0].lock == LockHeld(1000.0, "set")
            await node.until(lambda: held().state == "kept")
            assert held().clock_mhz == 990.0
            gpu.locked_mhz = 0.0  # whoever runs nvidia-smi -rgc
            await node.until(lambda: ("clock-lock-lost", one) in node.faults())
            await node.until(lambda: gpu.locked_mhz == 990.0)
            await node.until(lambda: held().state == "kept")
            lifted = [m for m in node.messages if isinstance(m, Acknowledged) and m.results]
            states = [m.results[0].lock.state for m in lifted if m.results[0].lock]
            assert states == ["set", "kept", "exceeded", "kept"]
            assert [
                m.over
                for m in node.messages
                if isinstance(m, NodeFault) and m.code == "clock-lock-lost"
            ] == [False, True]

    asyncio.run(play())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["RESET_REQUIRED", "IN_USE"])
def test_a_gpu_that_wants_a_reset_is_quarantined_and_the_others_hold(make_site, make_node, name):
    site = make_site("h100-700", 2)
    bad = site.window.gpu(0)

    async def play():
        async with make_node(site) as node:
            one, two = node.gpu_ids
            bad.fault_call = b"nvmlDeviceSetPowerManagementLimit"
            bad.error_code = getattr(pynvml, f"NVML_ERROR_{name}")
            done = await node.order(dict.fromkeys(node.gpu_ids, 300.0), 120.0)
            errors = {result.gpu_id: result.error for result in done.results}
            assert errors[one] in {"device-reset-required", "device-in-use"}
            assert errors[two] is None
            await asyncio.sleep(5.0)
            # It answers every read meanwhile; that lifts no quarantine.
            assert ("gpu-back", one) not in node.faults()
            assert site.window.gpu(1).requested_watts == 300.0
            bad.error_code = 0  # drained and reset
            await node.until(lambda: bad.requested_watts == 300.0, 60)
            assert ("gpu-back", one) in node.faults()

    asyncio.run(play())


@pytest.mark.slow
def test_a_reload_of_the_driver_in_mid_event_finds_every_board_again(make_site, make_node):
    site = make_site("h100-700", 3)
    watts = [300.0, 340.0, 380.0]
    for which in range(3):
        site.window.gpu(which).persistence = 0

    async def play():
        async with make_node(site) as node:
            limits = dict(zip(node.gpu_ids, watts, strict=True))
            first = node.gpu_ids[0]
            await node.order(limits, 120.0, clocks_mhz=((first, 1200.0),))
            node_slot = site.window.node(0)
            node_slot.shuffle_on_reload = 1
            node_slot.reload_requests += 1
            await node.until(lambda: node_slot.driver_epoch == 2)
            await node.until(
                lambda: [site.window.gpu(which).requested_watts for which in range(3)] == watts
            )
            await node.until(lambda: site.window.gpu_by_uuid(first).locked_mhz == 1200.0)
            assert node.gpu_ids[0] != first, "the same boards under other numbers"
            told = [m for m in node.messages if isinstance(m, NodeFault) and "driver" in m.code]
            (gone,) = [m.code for m in told if m.code != "driver-reloaded" and not m.over]
            assert [m.code for m in told if m.over] == [gone], "it is there again"

    asyncio.run(play())


@pytest.mark.slow
def test_a_host_script_is_told_from_a_reset_to_the_default(make_site, make_node):
    site = make_site("h100-700", 2)

    async def play():
        async with make_node(site) as node:
            one, two = node.gpu_ids
            await node.order(dict.fromkeys(node.gpu_ids, 300.0), 120.0)
            site.window.gpu(0).requested_watts = 700.0
            site.window.gpu(1).requested_watts = 555.0
            await node.until(lambda: ("limit-drift-reset", one) in node.faults())
            await node.until(lambda: ("limit-drift", two) in node.faults())
            for which in (0, 1):
                await node.until(lambda w=which: site.window.gpu(w).requested_watts == 300.0)

    asyncio.run(play())


@pytest.mark.slow
def test_a_limit_out_of_band_is_recognised_and_never_fought(make_site, make_node):
    site = make_site("h100-700", 1)
    gpu = site.window.gpu(0)

    async def play():
        async with make_node(site) as node:
            gpu.out_of_band_watts = 250.0
            done = await node.order({node.gpu_ids[0]: 400.0}, 3.0)
            assert done.results[0].enforced_watts == 250.0
            await node.until(lambda: ("limit-out-of-band", node.gpu_ids[0]) in node.faults())
            await asyncio.sleep(1.5)
            assert gpu.requested_watts == 400.0, "ours, not theirs"
            await node.until(lambda: gpu.requested_watts == 700.0)

    asyncio.run(play())


@pytest.mark.slow
def test_a_set_call_that_never_returns_in_mid_event_costs_the_others_nothing(make_site, make_node):
    site = make_site("h100-700", 3)
    wedged = site.window.gpu(1)

    async def play():
        async with make_node(site) as node:
            one, two, three = node.gpu_ids
            await node.order(dict.fromkeys(node.gpu_ids, 400.0), 120.0)
            wedged.fault_call = b"nvmlDeviceSetPowerManagementLimit"
            wedged.hang_seconds = float("inf")
            done = await node.order(dict.fromkeys(node.gpu_ids, 300.0), 120.0)
            assert {r.gpu_id: r.error for r in done.results} == {
                one: None,
                two: "device-hung",
                three: None,
            }
            first = next(
                m
                for m in node.messages
                if isinstance(m, Acknowledged) and m.sequence == node.sequence
            )
            assert not first.complete, "it was not waited for"
            assert [r.gpu_id for r in first.results] == [one, three]
            await asyncio.sleep(5.0)  # fresh children try it
            assert [site.window.gpu(w).requested_watts for w in (0, 2)] == [300.0, 300.0]
            wedged.hang_seconds = 0.0
            await node.until(lambda: wedged.requested_watts == 300.0, 60)

    asyncio.run(play())


@pytest.mark.slow
def test_a_gpu_that_hangs_from_the_start_costs_the_others_nothing(make_site, make_node):
    site = make_site("h100-700", 3)
    wedged = site.window.gpu(1)
    wedged.hang_seconds = float("inf")

    async def play():
        async with make_node(site) as node:
            one, _, three = node.gpu_ids
            await node.until(lambda: len(node.hellos[-1].gpus) >= 2)
            await node.order({one: 300.0, three: 300.0}, 60.0)
            assert site.window.gpu(0).requested_watts == 300.0
            assert site.window.gpu(2).requested_watts == 300.0
            wedged.hang_seconds = 0.0

    asyncio.run(play())


@pytest.mark.slow
def test_a_gpu_that_was_silent_from_the_start_is_told_and_found_once_it_answers(
    make_site, make_node
):
    site = make_site("h100-700", 2)
    site.window.gpu(1).lost = 1

    async def play():
        async with make_node(site) as node:
            one, two = node.gpu_ids
            assert [gpu.gpu_id for gpu in node.hellos[-1].gpus] == [one]
            await node.until(lambda: ("gpu-missing", None) in node.faults())
            site.window.gpu(1).lost = 0
            await node.until(lambda: [g.gpu_id for g in node.hellos[-1].gpus] == [one, two], 60)
            told = [m for m in node.messages if isinstance(m, NodeFault)]
            *still, back = [m.over for m in told if m.code == "gpu-missing"]
            assert still, "each child that misses it says so"
            assert (any(still), back) == (False, True)

    asyncio.run(play())


@pytest.mark.slow
def test_permission_that_comes_back_is_seen_without_a_restart(make_site, make_node):
    site = make_site("h100-700", 1)
    gpu = site.window.gpu(0)
    gpu.permission_denied = 1

    async def play():
        async with make_node(site) as node:
            assert node.hellos[-1].gpus[0].can_set is False
            done = await node.order({node.gpu_ids[0]: 300.0}, 120.0)
            assert done.results[0].error == "device-no-permission"
            gpu.permission_denied = 0
            await node.until(lambda: node.hellos[-1].gpus[0].can_set, 60)
            await node.until(lambda: gpu.requested_watts == 300.0)

    asyncio.run(play())


@pytest.mark.slow
def test_killed_in_mid_event_the_lock_and_the_limit_are_given_back_by_the_next_agent(
    make_site, make_node
):
    site = make_site("h100-700", 1)
    gpu = site.window.gpu(0)
    gpu.requested_watts = 650.0  # what the site had set

    async def play():
        async with make_node(site) as node:
            await node.order(
                {node.gpu_ids[0]: 300.0},
                6.0,
                clocks_mhz=((node.gpu_ids[0], 1000.0),),
                slot=RestoreSlot(0.0, 1.0),
            )
            await node.until(lambda: gpu.locked_mhz == 990.0)
            node.kill()
            await asyncio.sleep(0.5)
            assert (gpu.requested_watts, gpu.locked_mhz) == (300.0, 990.0)
            node.start()
            await node.until(lambda: gpu.requested_watts == 650.0 and gpu.locked_mhz == 0.0)

    asyncio.run(play())
