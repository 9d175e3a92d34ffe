"""What happened is told with its time and is over after a while; only what lasts is a state."""

from gridaware.control.state import TOLD_SECONDS
from gridaware.domain.wire import NodeFault


def test_bug_14_dcgm_exporter_500_what_a_gpu_once_said_does_not_stand_for_ever(bench):
    """An Xid gauge there never cleared: here a fault is an event, unless somebody takes it down."""
    bench.post(NodeFault("n1", "driver-reloaded", None, "limits were reset"))
    told = bench.state.alarms["driver-reloaded/n1"]
    bench.ticks(2)
    assert bench.state.alarms["driver-reloaded/n1"] == told, "told once, with its time"
    bench.tick(TOLD_SECONDS)
    bench.ticks(2)
    assert "driver-reloaded/n1" not in bench.state.alarms
