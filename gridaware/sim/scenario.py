"""A random stretch of a site's life, from one number: nodes, jobs, events of the grid, and faults.

``python -m gridaware.sim.scenario --seed N`` plays one and prints what happened, second by second,
and which invariants (:mod:`gridaware.sim.invariants`) it broke.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from math import inf, isfinite
from random import Random

from gridaware.control.site import Policy, Site
from gridaware.domain.job import JobSpec, Tier
from gridaware.domain.programme import FeedSpec, Programme, SignalLoss
from gridaware.domain.signal import EventRequest, Quantity, TargetSpec
from gridaware.domain.target import HardLimit, Overhead, Ramp
from gridaware.planning.model import CurveBook
from gridaware.sim.invariants import Invariants
from gridaware.sim.site import NodeSpec, SiteSpec
from gridaware.sim.world import EPOCH, World, WorldSpec
from gridaware.sim.world_jobs import Manner
from gridaware.wiring.curves import load_curves

__all__ = [
    "Fault",
    "PlannedFault",
    "PlannedFiring",
    "PlannedJob",
    "PlannedSignal",
    "Scenario",
    "play",
    "scenario",
]

FAMILIES = (
    (("a100-400", "h100-700", "h200-700"), ("pretrain", "finetune", "llm-batch-infer")),
    (("v100-250", "a40-300", "rtx6000-260"), ("bert", "resnet50")),
)
"""GPU classes that stand in one site, and workloads that are known on all of them."""
GPUS_A_NODE = 8
FIRST_NOTICE_SECONDS = 35.0
"""Until then the jobs have come to their full draw."""
FIRED_SECONDS = 60.0
"""For which a node alone holds what it fired by itself."""
QUIET_SECONDS = 150.0
"""After the last thing planned: restored, resumed and settled by then, however slow the ramp."""


class Fault(StrEnum):
    """What can break."""

    AGENT_KILLED = "agent-killed"
    CONTROL_KILLED = "control-killed"
    CONTROL_GONE = "control-gone"
    """It never comes back."""
    PARTITION = "partition"
    GPU_LOST = "gpu-lost"
    GPU_ERROR = "gpu-error"
    GPU_DENIED = "gpu-denied"
    GPU_HANGS = "gpu-hangs"
    LIMITS_IGNORED = "limits-ignored"
    METER_SILENT = "meter-silent"
    CLOCK_STEP = "clock-step"
    DRIVER_RELOAD = "driver-reload"
    SAG = "sag"
    """The voltage dips: the meter, and of every second sag the sensors too, show too little."""


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job, when it is submitted, how it takes a pause, and after how many steps it is done."""

    at_seconds: float
    spec: JobSpec
    manner: Manner
    steps: int


@dataclass(frozen=True, slots=True)
class PlannedSignal:
    """A message of the grid; ``request`` None cancels."""

    at_seconds: float
    feed_id: str
    source_id: str
    revision: int
    request: EventRequest | None


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """What breaks, where (a node or a GPU, by number), for how long, and how badly."""

    at_seconds: float
    kind: Fault
    place: int
    seconds: float
    amount: float = 0.0

    @property
    def end_seconds(self) -> float:
        """When it is mended."""
        return self.at_seconds + self.seconds


@dataclass(frozen=True, slots=True)
class PlannedFiring:
    """The frequency of the grid falls: every node fires what it holds armed, and lets go again."""

    at_seconds: float
    programme_id: str
    level: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that will happen, in seconds since the world's beginning."""

    seed: int
    spec: WorldSpec
    jobs: tuple[PlannedJob, ...]
    signals: tuple[PlannedSignal, ...]
    faults: tuple[PlannedFault, ...]
    firings: tuple[PlannedFiring, ...] = ()

    @property
    def end_seconds(self) -> float:
        """When everything has happened and has had time to calm down."""
        ends = [signal.at_seconds for signal in self.signals]
        ends += [_offset(s.request.end) for s in self.signals if s.request and s.request.end]
        ends += [f.end_seconds for f in self.faults if isfinite(f.seconds)]
        ends += [f.at_seconds + max(f.seconds, FIRED_SECONDS) for f in self.firings]
        held = 0.0
        if any(fault.kind is Fault.CONTROL_GONE for fault in self.faults):
            losses = [p.signal_loss.hold_seconds or 0.0 for p in self.spec.site.programmes]
            held = max(losses, default=0.0)
        return max(ends, default=FIRST_NOTICE_SECONDS) + held + QUIET_SECONDS


def scenario(seed: int) -> Scenario:
    """The scenario of a seed; the same seed is the same scenario."""
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    classes, workloads = random.choice(FAMILIES)
    picked = random.sample(classes, random.choice((1, 1, 2)))
    nodes = tuple(
        NodeSpec(random.choice(picked), GPUS_A_NODE) for _ in range(random.choice((2, 2, 3, 4)))
    )
    overheads = SiteSpec().scaled(random.uniform(0.15, 0.6))
    programmes = tuple(_programme(random, name) for name in ("p", "q"))
    site = Site(
        act=True,
        overhead=_assumed(random, nodes, overheads),
        ramp=_ramp(random, len(nodes)),
        policy=Policy(
            strategy=random.choice(("tiers", "tiers", "proportional")),
            params={
                "dwell_seconds": random.choice((10.0, 20.0, 40.0)),
                "rest_seconds": random.choice((10.0, 40.0)),
            },
        ),
        programmes=programmes,
        feeds=(FeedSpec("f", "webhook", "p"), FeedSpec("g", "webhook", "q")),
        reference_window_seconds=20.0,
        settle_after_seconds=10.0,
    )
    share = random.choice((1.0, 1.0, 0.9))
    spec = WorldSpec(site, nodes, overheads, found_share=share)
    jobs = _jobs(random, workloads)
    signals = _signals(random)
    faults = (*_faults(random, len(nodes), share), *_sags(seed))
    if random.random() < 0.2:
        spec = replace(spec, site=replace(site, hard_limit=_hard_limit(random, spec)))
    return _armed(Scenario(seed, spec, jobs, signals, faults))


def _armed(plan: Scenario) -> Scenario:
    """The same with what its programmes arm, drawn apart, and now and then a frequency that falls.

    A programme of the default ladder, one with its own, or one that arms nothing.
    """
    random = Random(f"armed {plan.seed}")  # noqa: S311 - reproducible, not secret
    ladders: tuple[tuple[float, ...] | None, ...] = (None, None, (0.08, 0.17, 0.27, 0.45), ())
    site = plan.spec.site
    programmes = tuple(
        replace(p, armed_depths=random.choice(ladders), max_duration_seconds=FIRED_SECONDS)
        for p in site.programmes
    )
    able = [p for p in programmes if p.ladder]
    firings: tuple[PlannedFiring, ...] = ()
    if able and random.random() < 0.3:
        programme = random.choice(able)
        at = random.uniform(FIRST_NOTICE_SECONDS + 10.0, 200.0)
        level = random.randrange(len(programme.ladder))
        firings = (
            PlannedFiring(at, programme.programme_id, level, random.uniform(10.0, FIRED_SECONDS)),
        )
    spec = replace(plan.spec, site=replace(site, programmes=programmes))
    return replace(plan, spec=spec, firings=firings)


def _programme(random: Random, name: str) -> Programme:
    return Programme(
        name,
        deadline_seconds=random.uniform(5.0, 30.0),
        settlement_interval_seconds=random.choice((15.0, 30.0, 60.0)),
        signal_loss=SignalLoss(hold_seconds=random.choice((30.0, 60.0))),
    )


def _assumed(random: Random, nodes: tuple[NodeSpec, ...], truth: SiteSpec) -> Overhead:
    """The operator's straight line for the overheads: up to a tenth wrong."""
    share = truth.fixed_watts / SiteSpec().fixed_watts
    fixed = 900.0 * share * len(nodes) * random.uniform(0.9, 1.1)
    slope = max((1.0 + 0.3 * share) * random.uniform(0.95, 1.05), 1.0)
    return Overhead(fixed, slope)


def _ramp(random: Random, nodes: int) -> Ramp:
    down = random.choice((None, None, 60_000.0))
    up = random.choice((None, 4_000.0, 10_000.0, 30_000.0))
    return Ramp(down, None if up is None else up * nodes)


def _hard_limit(random: Random, spec: WorldSpec) -> HardLimit:
    """Somewhat below what all GPUs at work would draw, so that it binds now and then."""
    rated = {"a100-400": 400, "h100-700": 700, "h200-700": 700, "v100-250": 250, "a40-300": 300}
    gpu_watts = sum(rated.get(node.gpu, 260) * node.gpus for node in spec.nodes)
    watts = spec.site.overhead.meter_watts(gpu_watts) * random.uniform(0.6, 0.95)
    return HardLimit(round(watts, -2))


def _jobs(random: Random, workloads: tuple[str, ...]) -> tuple[PlannedJob, ...]:
    jobs = []
    for number in range(random.randint(3, 7)):
        tier = random.choice(tuple(Tier))
        late = random.random() < 0.15
        spec = JobSpec(
            job_id=f"{tier.value}-{number}",
            entrypoint="train",
            gpus=random.choice((1, 2, 4, 4, 6, 8)),
            tier=tier,
            priority=random.choice((0, 0, 1)),
            workload=random.choice(workloads),
            pausable=random.random() < 0.85,
            checkpoint_grace_seconds=random.choice((5.0, 15.0)),
            expected_seconds=random.uniform(600.0, 7200.0),
            max_retries=random.choice((0, 1)),
        )
        manner = random.choice((Manner.GOOD,) * 6 + tuple(Manner)[1:])
        steps = random.randint(150, 700) if random.random() < 0.2 else 1 << 30
        at = random.uniform(60.0, 200.0) if late else random.uniform(2.0, 8.0)
        jobs.append(PlannedJob(at, spec, manner, steps))
    return tuple(jobs)


def _signals(random: Random) -> tuple[PlannedSignal, ...]:
    signals: list[PlannedSignal] = []
    at = FIRST_NOTICE_SECONDS + random.uniform(0.0, 10.0)
    end = at
    for number in range(random.randint(1, 3)):
        notice = random.choice((0.0, 0.0, random.uniform(5.0, 60.0)))
        gap = random.choice(
            (-30.0, 0.0, random.uniform(10.0, 40.0))
        )  # overlapping, touching, later
        start = max(end + gap, FIRST_NOTICE_SECONDS) if number else at + notice
        notice = min(notice, start - FIRST_NOTICE_SECONDS)
        end = start + random.uniform(40.0, 160.0)
        request = EventRequest(_instant(start), _instant(end), _target(random))
        first = PlannedSignal(start - notice, random.choice("ffg"), f"e{number}", 1, request)
        signals += _told(random, first, start, end)
    return tuple(sorted(signals, key=lambda signal: signal.at_seconds))


def _target(random: Random) -> TargetSpec:
    depth = random.uniform(0.05, 0.40)
    if random.random() < 0.5:
        return TargetSpec(Quantity.LIMIT_FRACTION, 1.0 - depth)
    return TargetSpec(Quantity.REDUCTION_FRACTION, depth)


def _told(random: Random, first: PlannedSignal, start: float, end: float) -> list[PlannedSignal]:
    """One event as the grid tells it: well or badly ordered, changed, or taken back."""
    request = first.request
    assert request is not None
    middle = random.uniform(start, end)
    match random.choice(
        ("plain", "plain", "twice", "late", "revised", "moved", "cancelled", "open")
    ):
        case "twice":
            return [first, replace(first, at_seconds=first.at_seconds + random.uniform(0.1, 20.0))]
        case "late":
            return [replace(first, at_seconds=start + random.uniform(1.0, 20.0))]
        case "revised":
            again = replace(first, at_seconds=middle, revision=3)
            again = replace(again, request=replace(request, target=_target(random)))
            late = replace(first, at_seconds=middle + 1.0, revision=2)  # out of order
            return [first, again, late]
        case "moved":
            moved = _instant(end + random.choice((-15.0, 40.0)))
            again = replace(first, at_seconds=middle, revision=2)
            return [first, replace(again, request=replace(request, end=moved))]
        case "cancelled":
            at = random.choice((middle, first.at_seconds + 1.0))
            return [first, replace(first, at_seconds=at, revision=2, request=None)]
        case "open":
            endless = replace(first, request=replace(request, end=None))
            return [endless, replace(first, at_seconds=end, revision=2, request=None)]
    return [first]


def _faults(random: Random, nodes: int, found_share: float) -> tuple[PlannedFault, ...]:
    faults = []
    kinds = [kind for kind in Fault if kind not in {Fault.CONTROL_GONE, Fault.SAG}]
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        kind = random.choice(kinds)
        amount = 0.0
        if kind is Fault.CONTROL_KILLED:
            amount = random.choice((0, 5, 40))
        elif kind is Fault.CLOCK_STEP:
            amount = random.choice((-3600.0, 3600.0))
        elif kind is Fault.DRIVER_RELOAD:
            amount = 1.0 if found_share == 1.0 and random.random() < 0.5 else 0.0  # limits lost
        faults.append(
            PlannedFault(
                random.uniform(20.0, 220.0),
                kind,
                random.randrange(nodes * GPUS_A_NODE),
                random.choice((random.uniform(0.5, 5.0), random.uniform(10.0, 60.0))),
                amount,
            )
        )
    if random.random() < 0.15:
        faults.append(PlannedFault(random.uniform(50.0, 200.0), Fault.CONTROL_GONE, 0, inf))
    return tuple(sorted(faults, key=lambda fault: fault.at_seconds))


def _sags(seed: int) -> tuple[PlannedFault, ...]:
    """Up to six voltage sags in 90 s, in every fourth world; by a chance of their own."""
    random = Random(f"{seed}-sags")  # noqa: S311 - reproducible, not secret
    if random.random() >= 0.25:
        return ()
    first, count = random.uniform(20.0, 180.0), random.choice((1, 2, 6))
    return tuple(
        PlannedFault(
            first + random.uniform(15.0 * number, 15.0 * number + 10.0),
            Fault.SAG,
            number,
            random.uniform(0.1, 2.0),
            random.uniform(0.3, 0.9),
        )
        for number in range(count)
    )


def _instant(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=round(seconds, 3))


def _offset(instant: datetime) -> float:
    return (instant - EPOCH).total_seconds()


def play(
    plan: Scenario, book: CurveBook, watch: Callable[[World], None] | None = None
) -> Invariants:
    """Let a scenario happen; what it broke stands in the answer's ``broken``."""
    world = World(plan.seed, plan.spec, book)
    invariants = Invariants(world, plan)
    for job in plan.jobs:
        world.later(job.at_seconds, _submit(world, job))
    for signal in plan.signals:
        world.later(signal.at_seconds, _send(world, signal))
    for fault in plan.faults:
        world.later(fault.at_seconds, _break(world, fault))
    for firing in plan.firings:
        _let_fire(world, firing)

    def each_second() -> None:
        invariants.look()
        if watch is not None:
            watch(world)

    world.run(plan.end_seconds, each_second)
    invariants.rested()
    world.stop_jobs()
    world.run(30.0, each_second)
    invariants.conclude()
    return invariants


def _submit(world: World, job: PlannedJob) -> Callable[[], None]:
    return lambda: world.submit(job.spec, manner=job.manner, steps=job.steps)


def _send(world: World, signal: PlannedSignal) -> Callable[[], None]:
    def send() -> None:
        world.signal(signal.feed_id, signal.source_id, signal.request, signal.revision)

    return send


def _let_fire(world: World, firing: PlannedFiring) -> None:
    """All nodes hear the same grid, each by a meter of its own."""
    for node in world.nodes.values():
        heard = firing.at_seconds + world.random.uniform(0.0, 0.2)
        world.later(heard, partial(node.fire, firing.programme_id, firing.level))
        world.later(heard + firing.seconds, partial(node.fire, firing.programme_id, None))


def _break(world: World, fault: PlannedFault) -> Callable[[], None]:
    number = fault.place // GPUS_A_NODE
    node_id = f"node-{number + 1}"
    flag = _FLAGS.get(fault.kind)

    def begin() -> None:
        match fault.kind:
            case Fault.AGENT_KILLED:
                world.kill_agent(node_id, fault.seconds)
            case Fault.CONTROL_KILLED | Fault.CONTROL_GONE:
                world.kill_control(fault.seconds, lose_entries=int(fault.amount))
            case Fault.PARTITION:
                world.partition(node_id, fault.seconds)
            case Fault.METER_SILENT:
                world.window.header.meter_fault = 1
                world.later(fault.seconds, lambda: setattr(world.window.header, "meter_fault", 0))
            case Fault.SAG:
                world.sag(fault.amount, fault.seconds, sensors=fault.place % 2 == 1)
            case Fault.CLOCK_STEP:
                world.clock.step_wall(fault.amount)
                world.later(fault.seconds, lambda: world.clock.step_wall(-fault.amount))
            case Fault.DRIVER_RELOAD:
                for each in world.window.gpus_of(number):
                    each.persistence = int(not fault.amount)
                world.window.node(number).reload_requests += 1
            case _ if flag is not None:
                name, value = flag
                slot = world.window.gpu(fault.place)
                setattr(slot, name, value)
                world.later(fault.seconds, lambda: setattr(slot, name, 0))

    return begin


_FLAGS: dict[Fault, tuple[str, float]] = {
    Fault.GPU_LOST: ("lost", 1),
    Fault.GPU_ERROR: ("error_code", 999),
    Fault.GPU_DENIED: ("permission_denied", 1),
    Fault.GPU_HANGS: ("hang_seconds", inf),
    Fault.LIMITS_IGNORED: ("limits_ignored", 1),
}
"""The register of the GPU that breaks it, and how; 0 mends it."""


def main(arguments: list[str] | None = None) -> int:
    """Play one scenario and print a trace."""
    parser = argparse.ArgumentParser(
        prog="python -m gridaware.sim.scenario", description=main.__doc__
    )
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--quiet", action="store_true", help="only what was broken")
    options = parser.parse_args(arguments)
    plan = scenario(options.seed)
    if not options.quiet:
        planned = [f"{thing}\n" for thing in (*plan.jobs, *plan.signals, *plan.faults)]
        sys.stdout.writelines([f"{plan.spec}\n", *planned])
    invariants = play(plan, load_curves(), None if options.quiet else _show)
    sys.stdout.writelines(f"BROKEN {broken}\n" for broken in invariants.broken)
    return 1 if invariants.broken else 0


def _show(world: World) -> None:
    sys.stdout.write(line(world))


def line(world: World) -> str:
    """The world in one line."""
    state = world.control.machine.state
    jobs = " ".join(
        f"{job_id}:{track.job.state.value}"
        + (f"@{track.job.cap_watts:.0f}" if track.job.cap_watts else "")
        for job_id, track in state.jobs.items()
    )
    events = " ".join(f"{k}:{t.event.state.value}" for k, t in state.events.items())
    target = "-" if state.target_watts is None else f"{state.target_watts:.0f}"
    return (
        f"{world.seconds() - 1000:7.1f} true {world.window.header.true_site_watts:7.0f} "
        f"meter {state.meter_watts:7.0f} target {target:>6} expects {state.expected_watts:7.0f} "
        f"unresolved {state.unresolved_watts:5.0f} bias {state.tracker.bias:+.3f} "
        f"{'' if world.control.alive else 'CONTROL DOWN '}{events} {jobs}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
