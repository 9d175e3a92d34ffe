"""A node's frequency meter sees a voltage sag before anybody else: the loop rides through it."""

from gridaware.control.instructions import Alarm
from gridaware.domain.wire import NodeFault


def test_a_blip_that_a_node_reports_freezes_the_loop_for_two_seconds(bench) -> None:
    bench.hello()
    bench.tick()
    bench.post(NodeFault("n1", "frequency-blip", None, "0 Hz is no frequency"))
    now = bench.seconds
    assert [bench.state.ride.frozen(now + after) for after in (0.0, 1.9, 2.1)] == [
        True,
        True,
        False,
    ]
    assert "frequency-blip" in {alarm.code for alarm in bench.of(Alarm)}


def test_other_faults_of_a_meter_freeze_nothing(bench) -> None:
    bench.hello()
    bench.tick()
    bench.post(NodeFault("n1", "frequency-silent", None, "no sample of the meter for 2 s"))
    assert not bench.state.ride.frozen(bench.seconds)
