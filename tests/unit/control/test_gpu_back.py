"""A GPU that fell silent and answers again takes limits again, and its alarms are over."""

import pytest

from gridaware.control.instructions import Alarm
from gridaware.domain.wire import Acknowledged, GpuResult, NodeFault


def test_a_gpu_that_answers_again_can_be_capped_again(bench):
    bench.start_job()
    bench.post(bench.signal(depth=0.3))
    bench.ticks(2)
    node = bench.state.nodes["n1"]
    lost = GpuResult("g10", 250.0, None, "device-lost")
    bench.post(
        Acknowledged("n1", 1, node.sequence, node.decision_id, (lost,), True, bench.now().wall)
    )
    bench.post(NodeFault("n1", "device-lost", "g10", "the GPU does not answer"))
    assert bench.state.gpus["g10"].error == "device-lost"
    made = bench.post(NodeFault("n1", "gpu-back", "g10", "the GPU answers again"))
    assert bench.state.gpus["g10"].error is None
    assert not bench.of(Alarm, made)
    assert not [alarm for alarm in bench.state.alarms if alarm.endswith("/g10")]
    bench.ticks(3)
    assert bench.state.nodes["n1"].limits_watts["g10"] < 400.0


def test_an_alarm_of_a_missing_part_is_over_when_its_node_says_so(bench):
    bench.post(NodeFault("n1", "driver-slow", None, "amd: did not open in time"))
    bench.post(NodeFault("n2", "driver-slow", None, "amd: did not open in time"))
    made = bench.post(NodeFault("n1", "driver-slow", None, "this holds no longer", over=True))
    assert not bench.of(Alarm, made)
    assert [key for key in bench.state.alarms if key.startswith("driver-slow")] == [
        "driver-slow/n2"
    ]


@pytest.mark.parametrize("code", ["driver-part-gone", "device-timeout", "device-lost"])
def test_whatever_silenced_a_gpu_is_over_once_it_answers(bench, code):
    bench.post(NodeFault("n1", code, "g10", "the GPU does not answer"))
    bench.post(NodeFault("n1", "gpu-xid-lost", "g10", "Xid 79"))
    bench.post(NodeFault("n1", "gpu-back", "g10", "the GPU answers again"))
    left = [key for key in bench.state.alarms if key.endswith("/g10")]
    assert left == ["gpu-xid-lost/g10"], "an Xid has happened all the same"
