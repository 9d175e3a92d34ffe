"""A controller that has just taken over: what it reads first follows nothing that it has seen."""

from dataclasses import replace

from gridaware.control.instructions import SendLease
from gridaware.control.stimuli import Started
from gridaware.domain.lease import Lease
from gridaware.domain.reading import Quality


def test_a_signal_that_comes_with_the_first_readings_is_answered_once_two_are_there(make_bench):
    bench = make_bench(reference_window_seconds=1.0)
    bench.start_job()
    meter = replace(bench.posted[-1][0].observation.meter, meter="main")
    bench.tick(meter=meter)
    bench.seconds += 10.0
    bench.post(Started(2))
    bench.tick(meter=replace(meter, quality=Quality.MISSING, watts=100.0, meter="device_sum"))
    bench.hello(1)
    bench.hello(2)
    bench.made.clear()
    bench.post(bench.signal(depth=0.3))
    assert not bench.of(SendLease), "nothing has been read to measure it against"
    for _ in range(2):
        bench.tick(meter=meter)
    assert [i.lease.limits_watts for i in bench.of(SendLease) if i.lease.limits_watts]


def test_a_ceiling_whose_order_the_ledger_lost_is_not_lifted_by_the_first_word(bench):
    bench.post(Started(2))
    ceiling = Lease("", standing_watts=(("g10", 250.0),))
    made = bench.hello(1, lease=ceiling, last_epoch=1)
    (sent,) = (i.lease for i in bench.of(SendLease, made) if i.node_id == "n1")
    assert sent.standing_watts == ceiling.standing_watts
    assert bench.state.nodes["n1"].limits_watts == {"g10": 250.0}
