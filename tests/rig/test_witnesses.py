"""nvitop and gpustat look at our caps: before, during and after an event.

They run in an environment of their own (`make witnesses`, which `make test-all` does first), so
what they show is what any administrator would see.
"""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.rig, pytest.mark.slow]

WITNESSES = Path(__file__).parents[2] / ".venv-witnesses" / "bin" / "python"
GPUSTAT = """
import json
from gpustat import GPUStatCollection
rows = GPUStatCollection.new_query().jsonify()["gpus"]
print(json.dumps({row["uuid"]: [row["enforced.power.limit"], row["power.draw"]] for row in rows}))
"""
NVITOP = """
import json
from nvitop import Device
print(json.dumps({
    device.uuid(): [device.power_limit() / 1000, device.power_usage() / 1000]
    for device in Device.all()
}))
"""


@pytest.fixture(scope="module")
def witnesses() -> Path:
    if not WITNESSES.exists():
        pytest.skip("no nvitop and gpustat here: `make witnesses` needs the package index once")
    return WITNESSES


@pytest.mark.parametrize("program", [GPUSTAT, NVITOP], ids=["gpustat", "nvitop"])
def test_an_outside_witness_sees_our_caps_before_during_and_after_an_event(
    make_site, make_node, make_job, witnesses, program
):
    site = make_site("a100-400", 2)
    make_job(site, "pretrain", "0")

    def look() -> list[list[float]]:
        done = subprocess.run(
            [witnesses, "-c", program],
            env={**os.environ, **site.environment, "TERM": "dumb"},
            capture_output=True,
            text=True,
            check=True,
        )
        seen = json.loads(done.stdout)
        return [seen[slot.uuid.decode()] for slot in site.window.gpus_of(0)]

    async def play():
        async with make_node(site) as node:
            before = await asyncio.to_thread(look)
            assert [limit for limit, _ in before] == [400, 400]
            assert before[0][1] > 330
            one, two = node.gpu_ids
            await node.order({one: 200.0, two: 150.0}, 12.0)
            await asyncio.sleep(1.5)
            during = await asyncio.to_thread(look)
            assert [limit for limit, _ in during] == [200, 150]
            # The sensor's gain is within 5 %; the job is held at its cap.
            assert during[0][1] == pytest.approx(200, rel=0.08)
            await node.until(lambda: site.window.gpu(0).requested_watts == 400.0, 30)
            await asyncio.sleep(1.5)
            after = await asyncio.to_thread(look)
            assert [limit for limit, _ in after] == [400, 400]
            assert after[0][1] == pytest.approx(before[0][1], rel=0.05)

    asyncio.run(play())
