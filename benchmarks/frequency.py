"""From a frequency that crosses a trigger to watts: a local response, with no frame on the way.

``python -m benchmarks.frequency --agents 8 --gpus-per-agent 8 -o json``

meter → datagram → agents (a process each, with its driver child) → trigger → armed caps → simulated
driver, every call of which takes at least ``driver_call_ms`` → read-back. This process is the meter
of every agent (``gridaware.devices.frequency_datagram``), and a controller that arms them once and
from then on only listens.

The stretch of the trace around its first crossing is replayed. *Crossing* is this process's
monotonic time just before it delivers the first sample at or past the trigger to the first agent;
*accepted* is when the last agent's acknowledgement is here, every GPU's enforced limit read back;
*true power* is the first 5 ms sample of the plant's true GPU power from which all of the next two
seconds are at or below what was offered, else the crossing failed; the plant moves by 10 ms, and on
a busy machine by more. Between replays the frequency
is led back to nominal; the hold is shortened to 4 s, so that replays can follow one another.

Without ``--trace`` (CSV of ``t_s,f_hz``) a synthetic fall is used: the swing equation after a loss
of 2 750 MW (``gridaware.sim.frequency``). The response is then judged against what three programmes
ask of a full step, with the period of this meter on top, since a crossing may be that old when it
is delivered. The first crossings are counted too.
"""

import argparse
import asyncio
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.program import arguments, quantiles_ms, report
from gridaware.clock import SystemClock
from gridaware.domain.errors import InvalidInput
from gridaware.domain.frequency import FREQUENCY_RULES, FrequencyRule
from gridaware.domain.lease import ArmedResponse, Lease
from gridaware.domain.moment import Moment
from gridaware.domain.wire import Acknowledged, Armed, ArmedAcknowledged, Fired, Hello, SampleBatch
from gridaware.node.link import LinkServer
from gridaware.node.tls import controller_context
from gridaware.sim.cluster import SiteOptions, VirtualSite
from gridaware.sim.frequency import (
    DatagramMeter,
    Sample,
    around_first_crossing,
    read_trace,
    swing_fall,
)
from gridaware.sim.window import Window
from gridaware.sim.workloads import keep_busy

CALL_SECONDS = 0.001
OFFERED = 0.25
"""Of the GPUs' power."""
ARMED = 0.28
"""The caps are armed so much below each GPU's draw: a limit is kept to within a few percent."""
HOLD_SECONDS = 4.0
LEAD_SECONDS = 1.0
AFTER_SECONDS = 2.5
STEADY_SECONDS = 2.0
WATCH_SECONDS = 0.005
SAMPLE_HZ = 10.0
"""The fastest that agents are ever asked to sample power."""
PROGRAMME = "reserve"
WORKLOADS = ("bert", "resnet50")
STEPS = tuple(name for name, rule in FREQUENCY_RULES.items() if not rule.droop)
CLOCK = SystemClock()


@dataclass
class Crossing:
    """Seconds from the crossing; None = it did not come to that."""

    accepted: float | None = None
    true_power: float | None = None
    started: float | None = None
    """A twentieth of what was offered."""


@dataclass
class Controller:
    """Arms, and then only listens."""

    caps: dict[str, float] = field(default_factory=dict)
    greeted: set[str] = field(default_factory=set)
    armed: set[str] = field(default_factory=set)
    fired: set[str] = field(default_factory=set)
    accepted: dict[str, float] = field(default_factory=dict)
    sampled: list[datetime] = field(default_factory=list)
    """By the first node."""

    def on_hello(self, hello: Hello, moment: Moment) -> None:
        """An agent is there, with its GPUs."""
        del moment
        if hello.gpus:
            self.greeted.add(hello.node_id)

    def on_message(self, node_id: str, message: Any, moment: Moment) -> None:
        """What an agent says."""
        if isinstance(message, ArmedAcknowledged):
            self.armed.add(node_id)
        elif isinstance(message, Fired):
            self.fired.add(node_id)
        elif isinstance(message, Acknowledged) and message.complete:
            held = [
                r.enforced_watts is not None and r.enforced_watts <= self.caps[r.gpu_id] + 0.5
                for r in message.results
            ]
            if held and all(held):
                self.accepted.setdefault(node_id, moment.seconds)
        elif isinstance(message, SampleBatch) and node_id == "node-1":
            self.sampled += [sample.at for sample in message.samples]

    def on_lost(self, node_id: str, moment: Moment) -> None:
        """An agent is gone."""
        del moment
        self.greeted.discard(node_id)

    def begin(self) -> None:
        """Forget the last crossing."""
        self.fired.clear()
        self.accepted.clear()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print one JSON object."""
    parser = arguments("frequency", __doc__)
    parser.add_argument("--trace", type=Path, help="CSV with a header, t_s,f_hz by line")
    parser.add_argument("--rule", choices=STEPS, help="ercot-ffr or nordic-ffr-49.7 by the trace")
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--gpus-per-agent", type=int, default=8)
    parser.add_argument("--crossings", type=int, default=20, help="replays of the first crossing")
    try:
        return report(measure, parser.parse_args(argv))
    except InvalidInput as error:
        sys.stderr.write(f"{error}\n")
        return 1


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Build the agents, replay every crossing, and take all of it down again."""
    trace = swing_fall(options.seed) if options.trace is None else read_trace(options.trace)
    nominal = min((50.0, 60.0), key=lambda hz: abs(statistics.median(f for _, f in trace) - hz))
    name = options.rule or ("ercot-ffr" if nominal == 60.0 else "nordic-ffr-49.7")
    rule = FREQUENCY_RULES[name]
    stretch, crossing = around_first_crossing(trace, rule, LEAD_SECONDS, AFTER_SECONDS)
    site = VirtualSite(
        SiteOptions(
            nodes=options.agents,
            gpus_per_node=options.gpus_per_agent,
            gpu="v100-250",
            seed=options.seed,
            driver_call_seconds=CALL_SECONDS,
            frequency_meters=True,
        )
    )
    try:
        site.start_plant()
        site.configure()
        crossings, heard = asyncio.run(_run(site, options, rule, stretch))
    finally:
        site.end()
    period = statistics.median(b[0] - a[0] for a, b in pairwise(trace))
    about = {
        "trace": "synthetic: swing equation after a loss of 2750 MW"
        if options.trace is None
        else options.trace.name,
        "synthetic": options.trace is None,
        "trace_samples_per_second": round(1 / period, 2),
        "meter_adds_up_to_ms": round(1e3 * period, 2),
        "rule": name,
        "trigger_hz": rule.trigger_hz,
        "first_crossing_hz": round(crossing[1], 4),
    }
    return about | _summary(options, crossings, heard, period)


async def _run(
    site: VirtualSite, options: argparse.Namespace, rule: FrequencyRule, stretch: list[Sample]
) -> tuple[list[Crossing], Controller]:
    controller = Controller()
    tls = site.settings_file.parent / "tls"
    server = LinkServer(CLOCK, sample_hz=SAMPLE_HZ)
    context = controller_context(tls / "ca.pem", tls / "controller.pem", tls / "controller.key")
    await server.start("127.0.0.1", site.ports["agents"], context, 1, controller)
    crossings = []
    try:
        site.start_agents()
        meter = DatagramMeter([site.meter_place(n) for n in range(options.agents)])
        window = site.window()
        _load(window, options.agents)
        await _until(lambda: len(controller.greeted) == options.agents, 60)
        await _quiet(meter, rule, 5.0)
        _arm(server, controller, window, site, rule)
        await _until(lambda: len(controller.armed) == options.agents, 10)
        await _quiet(meter, rule, 3.0)
        for number in range(options.crossings):
            crossings.append(await _replay(controller, meter, window, rule, stretch))
            _note(number, crossings[-1], controller, options.agents)
            await _restored(controller, window, meter, rule)
    finally:
        await server.stop()
    return crossings, controller


def _load(window: Window, nodes: int) -> None:
    """Let this process keep work queued on every GPU, for good."""
    for node in range(nodes):
        for index, gpu in enumerate(window.gpus_of(node)):
            keep_busy(gpu, WORKLOADS[(node + index) % len(WORKLOADS)])


def _arm(
    server: LinkServer,
    controller: Controller,
    window: Window,
    site: VirtualSite,
    rule: FrequencyRule,
) -> None:
    """Give every agent the caps of its next response, by what its GPUs draw."""
    rule = replace(rule, least_hold_seconds=AFTER_SECONDS, hold_seconds=HOLD_SECONDS)
    now = CLOCK.wall()
    for n, node in enumerate(site.nodes):
        caps = {
            gpu.uuid.decode(): round(max(gpu.least_watts, (1 - ARMED) * gpu.true_watts), 3)
            for gpu in window.gpus_of(n)
        }
        controller.caps |= caps
        lease = Lease(f"armed-{node}", tuple(caps.items()), 900.0)
        response = ArmedResponse(PROGRAMME, 0, OFFERED, lease, rule)
        server.send(node, Armed(1, 1, now, now + timedelta(hours=1), (response,)))


async def _quiet(meter: DatagramMeter, rule: FrequencyRule, seconds: float) -> None:
    """A meter that shows nominal."""
    end = CLOCK.monotonic_seconds() + seconds
    while CLOCK.monotonic_seconds() < end:
        meter.show(rule.nominal_hz)
        await asyncio.sleep(0.02)


async def _replay(
    controller: Controller,
    meter: DatagramMeter,
    window: Window,
    rule: FrequencyRule,
    stretch: Sequence[Sample],
) -> Crossing:
    header = window.header
    before = header.gpu_watts
    controller.begin()
    powers: list[Sample] = []
    crossed: float | None = None
    watch = asyncio.create_task(_watch_power(window, powers))
    start = CLOCK.monotonic_seconds()
    for seconds, hz in stretch:
        await asyncio.sleep(max(0.0, start + seconds - CLOCK.monotonic_seconds()))
        if crossed is None and hz <= rule.trigger_hz:
            crossed = CLOCK.monotonic_seconds()
        meter.show(hz)
    watch.cancel()
    assert crossed is not None
    nodes = {node for node in controller.greeted if node in controller.accepted}
    crossing = Crossing()
    if nodes == controller.greeted:
        crossing.accepted = max(controller.accepted.values()) - crossed
    after = [(t - crossed, watts) for t, watts in powers if 0 <= t - crossed <= AFTER_SECONDS]
    crossing.true_power = _stays_below(after, (1 - OFFERED) * before)
    first = next((t for t, watts in after if watts <= (1 - 0.05 * OFFERED) * before), None)
    crossing.started = first
    return crossing


async def _watch_power(window: Window, powers: list[Sample]) -> None:
    header = window.header
    while True:
        powers.append((CLOCK.monotonic_seconds(), header.gpu_watts))
        await asyncio.sleep(WATCH_SECONDS)


def _stays_below(after: Sequence[Sample], target: float) -> float | None:
    """The first sample from which all of the next two seconds are at or below the target."""
    since: float | None = None
    for seconds, watts in after:
        if watts > target:
            since = None
        elif since is None:
            since = seconds
    return since if since is not None and since <= AFTER_SECONDS - STEADY_SECONDS else None


async def _restored(
    controller: Controller, window: Window, meter: DatagramMeter, rule: FrequencyRule
) -> None:
    """Wait, at nominal frequency, until every found limit stands again and power is back."""
    slots = [window.gpu_by_uuid(uuid) for uuid in controller.caps]
    end = CLOCK.monotonic_seconds() + 30.0
    while any(slot.requested_watts < slot.default_watts - 0.5 for slot in slots):
        if CLOCK.monotonic_seconds() > end:
            raise TimeoutError("the found limits did not come back")
        await _quiet(meter, rule, 0.1)
    await _quiet(meter, rule, 1.5)


async def _until(ready: Callable[[], bool], seconds: float) -> None:
    end = CLOCK.monotonic_seconds() + seconds
    while not ready():
        if CLOCK.monotonic_seconds() > end:
            raise TimeoutError("the agents did not come to where they should be")
        await asyncio.sleep(0.05)


def _note(number: int, crossing: Crossing, controller: Controller, agents: int) -> None:
    def shown(seconds: float | None) -> str:
        return "failed" if seconds is None else f"{1e3 * seconds:.1f} ms"

    sys.stderr.write(
        f"crossing {number + 1}: {len(controller.fired)} of {agents} fired  accepted "
        f"{shown(crossing.accepted)}  true power {shown(crossing.true_power)}\n"
    )


def _summary(
    options: argparse.Namespace, crossings: list[Crossing], heard: Controller, period: float
) -> dict[str, Any]:
    accepted = [c.accepted for c in crossings if c.accepted is not None]
    reached = [c.true_power for c in crossings if c.true_power is not None]
    started = [c.started for c in crossings if c.started is not None]
    between = [(b - a).total_seconds() for a, b in pairwise(heard.sampled)]
    data_hz = round(1 / statistics.median(between), 1) if between else 0.0
    complete = len(accepted) == len(reached) == len(started) == len(crossings)
    return {
        "crossings": len(crossings),
        "failed": sum(c.accepted is None or c.true_power is None for c in crossings),
        "agents": options.agents,
        "gpus": options.agents * options.gpus_per_agent,
        "offered_share_of_gpu_power": OFFERED,
        "driver_call_ms": 1e3 * CALL_SECONDS,
        "seed": options.seed,
        "crossing_to_accepted_ms": quantiles_ms(accepted),
        "crossing_to_true_power_ms": quantiles_ms(reached),
        "power_data_hz": data_hz,
        "profile": {
            name: _judged(rule, started, reached, period, data_hz, complete=complete)
            for name, rule in FREQUENCY_RULES.items()
        },
    }


def _judged(
    rule: FrequencyRule,
    started: Sequence[float],
    reached: Sequence[float],
    period: float,
    data_hz: float,
    *,
    complete: bool,
) -> dict[str, Any]:
    """The slowest crossing with this meter against what a programme asks; no without its data."""
    full = max(reached, default=math.inf) + period
    first = max(started, default=math.inf) + period
    in_time = complete and full <= rule.full_seconds
    in_time = in_time and (rule.start_seconds is None or first <= rule.start_seconds)
    why = "" if in_time else "the response is late or not complete"
    if in_time and data_hz < rule.data_hz:
        why = (
            f"its performance data are wanted at {rule.data_hz:g} Hz, power comes at {data_hz:g} Hz"
        )
    judged: dict[str, Any] = {
        "full_ms_asked": round(1e3 * rule.full_seconds, 1),
        "full_ms_with_meter": _milliseconds(full),
    }
    if rule.start_seconds is not None:
        judged |= {
            "start_ms_asked": round(1e3 * rule.start_seconds, 1),
            "start_ms_with_meter": _milliseconds(first),
        }
    return judged | {"in_time": in_time, "qualifies": why == "", "why_not": why}


def _milliseconds(seconds: float) -> float | None:
    return round(1e3 * seconds, 2) if math.isfinite(seconds) else None


if __name__ == "__main__":
    sys.exit(main())
