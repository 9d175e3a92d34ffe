"""A real agent tells of a GPU whose power does not obey the limit that stands on it."""

import asyncio

import pytest

from gridaware.domain.wire import NodeFault


@pytest.mark.slow
def test_case_35_draw_above_a_limit_that_reads_back_well_is_told_and_so_is_its_end(rig, heard):
    # No plant runs here: what the sensors show is what the test writes.
    async def story() -> None:
        for gpu in rig.gpus:
            gpu.instant_watts = 190.0
        async with rig.link(heard) as (server, port):
            rig.start(port)
            acknowledged = await rig.applied(heard, server, rig.desired(200.0, 60.0))
            assert [r.enforced_watts for r in acknowledged.results] == [200.0] * 4
            rig.gpus[2].instant_watts = 380.0

            def told(code: str) -> list[NodeFault]:
                return [fault for fault in heard.of(NodeFault) if fault.code == code]

            (fault,) = await heard.until(lambda: told("limit-ignored"))
            assert fault.gpu_id == rig.gpu_ids[2]
            assert "draws 380 W under a limit of 200 W" in fault.message
            rig.gpus[2].instant_watts = 195.0
            (over,) = await heard.until(lambda: told("limit-obeyed"))
            assert over.gpu_id == rig.gpu_ids[2]
            assert len(told("limit-ignored")) == 1

    asyncio.run(story())
