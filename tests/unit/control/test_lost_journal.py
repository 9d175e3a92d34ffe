"""An agent comes back without its journal: control knows what was found and what was held."""

from dataclasses import replace

from gridaware.control.instructions import SendLease


def capped(bench) -> dict[str, float]:
    bench.start_job()
    bench.post(bench.signal(depth=0.3, seconds=600.0))
    bench.ticks(5)
    limits = dict(bench.state.nodes["n1"].limits_watts)
    assert limits
    return limits


def without_journal(bench, limits: dict[str, float], **over):
    """Its GPUs stand at our limits, which it takes for found."""
    hello = next(s for s, _ in bench.posted if getattr(s, "node_id", "") == "n1")
    gpus = tuple(
        replace(gpu, found_limit_watts=limits.get(gpu.gpu_id, gpu.found_limit_watts))
        for gpu in hello.gpus
    )
    return bench.hello(1, gpus=gpus, fresh=True, **over)


def test_it_gets_its_lease_again_and_is_told_what_was_found(bench):
    limits = capped(bench)
    made = without_journal(bench, limits)
    sent = [i.lease for i in bench.of(SendLease, made) if i.node_id == "n1"]
    assert dict(sent[0].limits_watts) == limits, "nothing rises in between"
    assert 500.0 < sent[0].duration_seconds < 600.0
    node = bench.state.nodes["n1"]
    assert node.forgetful
    assert {gpu.found_limit_watts for gpu in node.node.gpus} == {400.0}
    assert "journal-lost/n1" in bench.state.alarms


def test_after_a_reboot_what_stands_is_what_was_found(bench):
    limits = capped(bench)
    without_journal(bench, limits, boot_id="another")
    found = {g.gpu_id: g.found_limit_watts for g in bench.state.nodes["n1"].node.gpus}
    assert {gpu_id: found[gpu_id] for gpu_id in limits} == limits
    assert "journal-lost/n1" not in bench.state.alarms


def test_a_limit_that_somebody_lowered_while_we_held_nothing_is_what_was_found(bench):
    bench.hello(1, fresh=True)
    without_journal(bench, {"g10": 250.0})
    assert bench.state.nodes["n1"].node.gpus[0].found_limit_watts == 250.0
