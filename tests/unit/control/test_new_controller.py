"""A controller that has just taken over: what it reads first follows nothing that it has seen."""

from dataclasses import replace

from gridaware.control.instructions import SendLease
from gridaware.control.stimuli import Started
from gridaware.domain.reading import Quality


def test_a_signal_that_comes_with_the_first_readings_is_answered_as_soon_as_two_are_there(make_bench):
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
