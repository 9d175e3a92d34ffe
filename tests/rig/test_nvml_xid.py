"""Xids: reported by a virtual GPU, heard through nvidia-ml-py, and what the agent makes of them.

What each number asks for is held against NVIDIA's own catalog of Xid errors (Ampere and later, its
column of immediate actions), not against our table.
"""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from gridaware.control.ports import Incidents
from gridaware.devices.nvml_xid import NvmlXids, Policy, judge
from gridaware.domain.errors import DriverGone
from gridaware.domain.wire import NodeFault
from gridaware.sim.nvml.xids import report_xid

pytestmark = pytest.mark.rig

CATALOG = {
    "RESTART_BM": [79],
    "RESET_GPU": [46, 62, 64, 95, 109, 110, 119, 120, 140, 143, 158],
    "RESTART_APP": [8, 11, 13, 25, 31, 39, 40, 41, 60, 68, 69, 70, 75, 80, 82, 84, 86, 99, 126],
}
WANTED = {
    "RESTART_BM": Policy.LOST,
    "RESET_GPU": Policy.RESET,
    "RESTART_APP": Policy.JOB,
}


@pytest.mark.parametrize("action", CATALOG)
def test_what_an_xid_asks_for_is_what_nvidias_catalog_says(action):
    assert {xid: judge(xid)[0] for xid in CATALOG[action]} == dict.fromkeys(
        CATALOG[action], WANTED[action]
    )


def test_an_ecc_error_asks_for_a_reset_unless_it_was_contained_and_application_errors_do_not():
    """Catalog: 48 and 95 need a reset, 94 when convenient; 43 leaves the GPU healthy; 45 is a kill
    or Control-C, as every pause of ours; 144 to 150 and 74 are the links'."""
    assert [judge(xid)[0] for xid in (48, 95, 94)] == [Policy.RESET, Policy.RESET, Policy.LOOK]
    assert [judge(xid)[0] for xid in (43, 45)] == [Policy.JOB, Policy.QUIET]
    assert {judge(xid)[0] for xid in (74, *range(144, 151))} == {Policy.LOOK}
    assert judge(4711) == (Policy.LOOK, "an Xid that is not known here")


def test_an_xid_is_heard_by_its_gpu_alone_once_and_only_from_then_on(make_bench, open_nvml):
    bench, driver = make_bench(), open_nvml()
    assert isinstance(driver, Incidents)
    bad, good = (gpu.gpu_id for gpu in driver.gpus())
    report_xid(bench.window.gpu(0), 48)  # before anybody listens
    for gpu_id in (bad, good):
        driver.watch(gpu_id)
    assert driver.incident(bad, 0.0) is None
    report_xid(bench.window.gpu(0), 119)
    incident = driver.incident(bad, 5.0)
    assert (incident.gpu_id, incident.code) == (bad, "gpu-xid-reset")
    assert "Xid 119" in incident.message
    assert "GSP" in incident.message
    assert (incident.error_code, incident.error_kind) == (
        "device-reset-required",
        "DeviceResetRequired",
    )
    assert driver.incident(bad, 0.0) is None, "an Xid happened; it does not stand"
    assert driver.incident(good, 0.0) is None


def test_a_gpu_that_has_just_died_is_named_without_being_asked(make_bench, open_nvml):
    bench, driver = make_bench(), open_nvml()
    bad = driver.gpus()[0].gpu_id
    driver.watch(bad)
    gpu = bench.window.gpu(0)
    gpu.lost, gpu.hang_seconds = 1, float("inf")  # any call to it would never return
    report_xid(gpu, 79)
    incident = driver.incident(bad, 5.0)
    assert (incident.gpu_id, incident.code) == (bad, "gpu-xid-lost")
    assert "fallen off the bus" in incident.message
    gpu.hang_seconds = 0.0


def test_an_xid_of_a_mig_instance_names_it():
    class Calls:
        def driver(self, call, *_arguments):
            event = SimpleNamespace(eventType=8, eventData=31, gpuInstanceId=3, computeInstanceId=0)
            return event if call == "nvmlEventSetWait_v2" else object()

        def ask(self, *_arguments):
            return None

    xids = NvmlXids(Calls())
    xids.watch("g")
    assert xids.incident("g", 1.0).message.startswith(
        "Xid 31 in MIG instance 3/0: memory page fault"
    )


def test_waiting_for_an_xid_holds_up_no_other_call(make_bench, open_nvml):
    bench, driver = make_bench(), open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    driver.watch(gpu_id)
    heard = []
    waiting = threading.Thread(target=lambda: heard.append(driver.incident(gpu_id, 30.0)))
    waiting.start()
    for watts in (300.0, 400.0, 500.0):
        driver.set_limit_watts(gpu_id, watts)
        assert driver.enforced_limit_watts(gpu_id) == watts
    assert not heard, "it waits still"
    report_xid(bench.window.gpu(0), 94)
    waiting.join(10.0)
    assert heard[0].code == "gpu-xid"


def test_a_driver_that_goes_away_ends_the_waiting(make_bench, open_nvml):
    bench, driver = make_bench(), open_nvml()
    gpu_id = driver.gpus()[0].gpu_id
    driver.watch(gpu_id)
    bench.window.node(0).driver_gone = 1
    with pytest.raises(DriverGone):
        driver.incident(gpu_id, 30.0)


def told(node, code, gpu_id):
    return [
        m.message
        for m in node.messages
        if isinstance(m, NodeFault) and (m.code, m.gpu_id) == (code, gpu_id)
    ]


@pytest.mark.slow
def test_an_xid_79_takes_the_gpu_out_at_once_and_leaves_the_others_capped(make_site, make_node):
    site = make_site("h100-700", 2)
    bad = site.window.gpu(0)

    async def play():
        async with make_node(site) as node:
            one, two = node.gpu_ids
            await node.order(dict.fromkeys(node.gpu_ids, 300.0), 120.0)
            await asyncio.sleep(1.0)  # the ear listens by now
            bad.lost = 1
            report_xid(bad, 79)
            (words,) = await node.until(lambda: told(node, "gpu-xid-lost", one))
            assert words.startswith("Xid 79: the GPU has fallen off the bus")
            await node.until(lambda: ("device-lost", one) in node.faults())
            done = await node.order(dict.fromkeys(node.gpu_ids, 350.0), 120.0)
            assert {r.gpu_id: r.error for r in done.results} == {one: "device-lost", two: None}
            assert site.window.gpu(1).requested_watts == 350.0
            bad.lost = 0
            await node.until(lambda: bad.requested_watts == 350.0, 60)
            assert ("gpu-back", one) in node.faults()
            assert len(told(node, "gpu-xid-lost", one)) == 1

    asyncio.run(play())


@pytest.mark.slow
def test_an_xid_119_quarantines_until_a_fresh_child_could_set_the_limit_though_reads_work(
    make_site, make_node
):
    site = make_site("h100-700", 2)
    bad = site.window.gpu(0)

    async def play():
        async with make_node(site) as node:
            one, two = node.gpu_ids
            await node.order(dict.fromkeys(node.gpu_ids, 300.0), 120.0)
            await asyncio.sleep(1.0)
            bad.fault_call = b"nvmlDeviceSetPowerManagementLimit"
            bad.hang_seconds = float("inf")
            report_xid(bad, 119)
            await node.until(lambda: told(node, "gpu-xid-reset", one))
            await node.until(lambda: ("device-reset-required", one) in node.faults())
            done = await node.order(dict.fromkeys(node.gpu_ids, 350.0), 120.0)
            assert {r.gpu_id: r.error for r in done.results}[two] is None
            assert {r.gpu_id: r.error for r in done.results}[one] is not None
            await asyncio.sleep(3.0)
            assert ("gpu-back", one) not in node.faults(), "it answers reads all the while"
            bad.hang_seconds = 0.0  # it was reset
            await node.until(lambda: bad.requested_watts == 350.0, 60)

    asyncio.run(play())


@pytest.mark.slow
def test_an_xid_of_the_job_is_told_once_a_minute_and_changes_no_limit(make_site, make_node):
    site = make_site("h100-700", 1)
    gpu = site.window.gpu(0)

    async def play():
        async with make_node(site) as node:
            (one,) = node.gpu_ids
            await node.order({one: 300.0}, 120.0)
            await asyncio.sleep(1.0)
            for xid in (45, 31, 31, 31, 13):
                report_xid(gpu, xid)
                await asyncio.sleep(0.2)  # one register: the next must not overtake it
            await node.until(lambda: len(told(node, "gpu-xid-job", one)) == 2)
            assert [words.split(":")[0] for words in told(node, "gpu-xid-job", one)] == [
                "Xid 31",
                "Xid 13",
            ]
            done = await node.order({one: 350.0}, 120.0)
            assert done.results[0].error is None
            assert not any("45" in m.message for m in node.messages if isinstance(m, NodeFault))

    asyncio.run(play())
