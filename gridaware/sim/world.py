"""The seeded world: one queue drives clock, feeds, agents, drivers, Ray and meters in virtual time.

Around it runs the real control and node code: the loop, the machine, the dispatcher, the lease
holder. Everything that is random comes from the seed, so a failure is run again from it alone.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count
from random import Random
from typing import Any

from gridaware.clock import ManualClock
from gridaware.control import jobs
from gridaware.control.dispatch import Dispatcher
from gridaware.control.instructions import Alarm, Answer
from gridaware.control.loop import Loop, SteadyClock
from gridaware.control.machine import Machine
from gridaware.control.meters import MeterOrder, MeterSpec
from gridaware.control.observe import Observer
from gridaware.control.replay import rebuild
from gridaware.control.site import Site
from gridaware.control.stimuli import (
    AttemptStatus,
    JobCommanded,
    JobSubmitted,
    NodeLost,
    RunnerReported,
    SignalReceived,
    SiteConfigured,
    Started,
    Stimulus,
    Tick,
)
from gridaware.domain.errors import Unavailable
from gridaware.domain.event import GridEvent
from gridaware.domain.job import JobSpec
from gridaware.domain.moment import Moment
from gridaware.domain.reading import Observation
from gridaware.domain.signal import EventRequest, Signal
from gridaware.domain.wire import Fenced, Heartbeat, JobProgress, SampleBatch
from gridaware.planning.model import CurveBook
from gridaware.sim.meter import SimMeter
from gridaware.sim.plant import Plant
from gridaware.sim.site import NodeSpec, PlantSpec, SiteSpec, build_window, gpu_entries
from gridaware.sim.window import GpuSlot
from gridaware.sim.world_jobs import Manner, SimRay
from gridaware.sim.world_node import SimNode

__all__ = ["EPOCH", "World", "WorldMeter", "WorldSpec"]

EPOCH = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
SILENCE_SECONDS = 5.0
COMMIT_SECONDS = 0.05
"""What was appended longer ago than this is on the disk."""
RECONNECT_SECONDS = (0.2, 1.5)


@dataclass(frozen=True, slots=True)
class WorldMeter:
    """One meter of the site."""

    name: str = "main"
    gain: float = 1.0
    """What it shows more than the first, as a factor."""
    accuracy_share: float = 0.002


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """What a world is made of."""

    site: Site
    nodes: tuple[NodeSpec, ...] = (NodeSpec("a100-400", 8),) * 2
    overhead: SiteSpec = field(default_factory=SiteSpec)
    found_share: float = 1.0
    """The limit that stands on every GPU at the beginning, as a share of its default."""
    meters: tuple[WorldMeter, ...] = (WorldMeter(),)
    """In the order in which they are believed."""


class _Ledger:
    """In memory; a crash may cut off its unwritten tail."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.entries: list[tuple[str, dict[str, Any]]] = []
        self._now = now
        self._times: list[float] = []
        self._durable = 0

    def append(self, kind: str, body: Any, at: datetime, *, must: bool = False) -> int:
        del at, must
        self.entries.append((kind, dict(body)))
        self._times.append(self._now())
        return len(self.entries)

    def flush(self) -> None:
        """Make everything so far outlive a crash."""
        self._durable = len(self.entries)

    def crash(self, most: int) -> int:
        """Lose up to ``most`` entries that no group commit has reached; how many were lost."""
        lost = 0
        while lost < most and len(self.entries) > self._durable:
            if self._now() - self._times[-1] > COMMIT_SECONDS:
                break
            self.entries.pop()
            self._times.pop()
            lost += 1
        return lost


class World:
    """One world; :meth:`run` lets time pass."""

    def __init__(self, seed: int, spec: WorldSpec, book: CurveBook) -> None:
        self.seed, self.spec, self.book = seed, spec, book
        self.random = Random(seed)  # noqa: S311 - reproducible, not secret
        self.clock = ManualClock(EPOCH)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.plant_spec = plant = PlantSpec(spec.nodes, spec.overhead)
        self.window = build_window(plant, seed, curves=book)
        for slot in self.gpus():
            slot.requested_watts = round(spec.found_share * slot.default_watts)
        node_ids = [f"node-{n + 1}" for n in range(len(spec.nodes))]
        self.ray = SimRay(self.window, node_ids, self.random, self.later, self.seconds)
        self.plant = Plant(
            self.window,
            plant,
            seed,
            now_seconds=self.seconds(),
            lives=self.ray.lives,
            curves=book,
        )
        self.meters = {
            meter.name: SimMeter(
                self.window, self.clock, gain=meter.gain, accuracy_share=meter.accuracy_share
            )
            for meter in spec.meters
        }
        self.ledger = _Ledger(self.seconds)
        self.control = _Control(self, epoch=1)
        self.nodes = {
            node_id: SimNode(
                node_id, n, self.window, self.clock, self.ray, self.later, self.latency
            )
            for n, node_id in enumerate(node_ids)
        }
        self.partitioned: set[str] = set()
        self._wires: dict[tuple[str, str], float] = {}
        """(node, way) → when the last frame on its way arrives."""
        self.told: list[tuple[str, str]] = []
        self.settled: list[tuple[str, bool]] = []
        self.alarms: list[Alarm] = []
        self.answers: list[tuple[Signal, Answer]] = []
        """Every signal that a living controller answered."""
        self.ray.workloads = [frozenset(e.workloads) for e in gpu_entries(plant, book)]
        self.ray.tell_agent = self._tell_agent
        self.ray.tell_control = self._tell_control
        for node in self.nodes.values():
            node.to_control = partial(self._to_control, node)
            node.start()
        self.control.start()
        for node in self.nodes.values():
            self._keep_connected(node)

    def gpus(self) -> list[GpuSlot]:
        """The registers of every GPU."""
        return [slot for n in range(len(self.spec.nodes)) for slot in self.window.gpus_of(n)]

    # Time --------------------------------------------------------------------------------------

    def seconds(self) -> float:
        """Now, on the steady clock."""
        return self.clock.monotonic_seconds()

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Do something in so many seconds."""
        heapq.heappush(self._queue, (self.seconds() + seconds, next(self._order), work))

    def latency(self) -> float:
        """Of one message: a few milliseconds, now and then many."""
        slow = self.random.random() < 0.02
        return self.random.uniform(0.05, 0.4) if slow else self.random.uniform(0.0005, 0.01)

    def run(self, seconds: float, watch: Callable[[], None] | None = None) -> None:
        """Let time pass; ``watch`` is called once each simulated second."""
        end = self.seconds() + seconds
        next_watch = self.seconds()
        while self._queue and self._queue[0][0] <= end:
            at, _, work = heapq.heappop(self._queue)
            while watch is not None and next_watch <= at:
                self._advance(next_watch)
                watch()
                next_watch += 1.0
            self._advance(at)
            work()
        self._advance(end)

    def _advance(self, to_seconds: float) -> None:
        step = to_seconds - self.seconds()
        if step > 0:
            self.clock.advance(step)
        self.plant.advance(self.seconds())

    # What users and the grid do ----------------------------------------------------------------

    def submit(self, spec: JobSpec, *, manner: Manner = Manner.GOOD, steps: int = 1 << 30) -> None:
        """A user submits a job that takes pauses in that manner and ends after so many steps."""
        self.ray.manners[spec.job_id] = manner
        self.ray.total_steps[spec.job_id] = steps
        if self.control.post(JobSubmitted(spec, "user")) is None:
            self.later(1.0, lambda: self.submit(spec, manner=manner, steps=steps))
        self.ledger.flush()

    def signal(
        self, feed_id: str, source_id: str, request: EventRequest | None, revision: int = 0
    ) -> Answer | None:
        """The grid sends a signal; None where the controller is down and it is sent again."""
        message = Signal(feed_id, source_id, revision, self.clock.wall(), self.seconds(), request)
        made = self.control.post(SignalReceived(message))
        if made is None:
            self.later(1.0, lambda: self._again(feed_id, source_id, request, revision))
            return None
        self.ledger.flush()  # durable before it is answered
        answer = next(i for i in made if isinstance(i, Answer))
        self.answers.append((message, answer))
        return answer

    def stop_jobs(self) -> None:
        """Users stop everything that runs."""
        for job_id, track in list(self.control.machine.state.jobs.items()):
            if not track.job.state.terminal:
                self.control.post(JobCommanded(job_id, "stop", "user"))

    def _again(
        self, feed_id: str, source_id: str, request: EventRequest | None, revision: int
    ) -> None:
        self.signal(feed_id, source_id, request, revision)

    # Faults ------------------------------------------------------------------------------------

    def kill_agent(self, node_id: str, down_seconds: float) -> None:
        """``kill -9``; its supervisor starts it again after a while."""
        node = self.nodes[node_id]
        if node.alive:
            node.kill()
            self._lost(node_id)
            self.later(down_seconds, node.start)

    def kill_control(self, down_seconds: float, *, lose_entries: int = 0) -> None:
        """``kill -9`` of the controller, which may lose the unwritten end of its ledger.

        For good where ``down_seconds`` is infinite.
        """
        if not self.control.alive:
            return
        epoch = self.control.epoch + 1
        self.control.alive = False
        self.ledger.crash(lose_entries)
        for node in self.nodes.values():
            node.connected = False

        def again() -> None:
            self.control = _Control(self, epoch)
            self.control.start()

        if math.isfinite(down_seconds):
            self.later(down_seconds, again)

    def sag(self, depth: float, seconds: float, *, sensors: bool = False) -> None:
        """Let meter (and sensors) show too little for a while; the work draws what it draws."""
        header = self.window.header
        header.meter_dip, header.sensor_dip = depth, depth if sensors else 0.0

        def over() -> None:
            header.meter_dip = header.sensor_dip = 0.0

        self.later(seconds, over)

    def partition(self, node_id: str, seconds: float) -> None:
        """Cut a node's stream for a while; the controller notices within its silence time."""
        self.partitioned.add(node_id)
        self.nodes[node_id].connected = False
        self.later(self.random.uniform(0.0, SILENCE_SECONDS), partial(self._lost, node_id))
        self.later(seconds, lambda: self.partitioned.discard(node_id))

    # Streams -----------------------------------------------------------------------------------

    def _keep_connected(self, node: SimNode) -> None:
        reachable = node.alive and node.node_id not in self.partitioned and self.control.alive
        if reachable and not node.connected:
            node.welcome(self.control.epoch, SILENCE_SECONDS, self.control.machine.state.sample_hz)
        elif reachable:
            node.hear(Heartbeat(self.clock.wall()))
        self.later(self.random.uniform(*RECONNECT_SECONDS), lambda: self._keep_connected(node))

    def _in_order(self, node: SimNode, way: str, deliver: Callable[[], None]) -> None:
        """Deliver after a while what one connection carries: in order, and not across two."""
        due = max(self.seconds() + self.latency(), self._wires.get((node.node_id, way), 0.0))
        self._wires[node.node_id, way] = due
        connection = node.connections

        def arrive() -> None:
            if node.connected and node.connections == connection:
                deliver()

        self.later(due - self.seconds(), arrive)

    def to_node(self, node_id: str, message: object) -> bool:
        """The controller sends a frame."""
        node = self.nodes[node_id]
        if node.connected:
            self._in_order(node, "down", lambda: node.hear(message))
        return node.connected

    def _to_control(self, node: SimNode, message: object) -> None:
        self._in_order(node, "up", lambda: self.control.hear(message))

    def _lost(self, node_id: str) -> None:
        if self.control.alive and not self.nodes[node_id].connected:
            self.control.post(NodeLost(node_id))

    def _tell_agent(self, node_id: str, message: object) -> None:
        self.nodes[node_id].send(message)

    def _tell_control(self, status: AttemptStatus) -> None:
        """Ray's word, as the poller finds it."""
        self.control.post(RunnerReported((status,)))


class _Control:
    """One life of the controller."""

    def __init__(self, world: World, epoch: int) -> None:
        self.world, self.epoch, self.alive = world, epoch, True
        run = rebuild(world.book, None, world.ledger.entries)
        self.machine: Machine = run.machine
        self.observer = Observer(MeterOrder([MeterSpec(name) for name in world.meters]))
        dispatcher = Dispatcher(self, self, world.clock)
        self.loop = Loop(
            self.machine,
            SteadyClock(world.clock, run.last),
            world.ledger,
            dispatcher,
            self._observe,
            lambda *_: None,
        )

    def start(self) -> None:
        """Take over."""
        self.post(Started(self.epoch))
        self.post(SiteConfigured(self.world.spec.site))
        self.world.ledger.flush()
        if self.world.ray.statuses:  # the poller of a new controller has seen none of them
            self.post(RunnerReported(tuple(self.world.ray.statuses.values())))
        self._tick()

    def post(self, stimulus: Stimulus) -> list[Any] | None:
        """Hand a stimulus to the real loop; None where this controller is dead."""
        return list(self.loop.post(stimulus)) if self.alive else None

    def hear(self, message: Any) -> None:
        """A message of an agent, as the control process takes it."""
        if not self.alive:
            return
        seconds = self.world.seconds()
        match message:
            case SampleBatch():
                self.observer.on_samples(message, seconds)
            case JobProgress():
                self.observer.on_progress(message, seconds)
                if jobs.progress_matters(self.machine.state, message):
                    self.post(message)
            case Fenced():
                pass
            case _:
                self.post(message)

    def _tick(self) -> None:
        if not self.alive:
            return
        now = Moment(self.world.seconds(), self.world.clock.wall())
        self.post(Tick(self._observe(now)))
        hz = self.machine.state.sample_hz
        self.world.later(1.0 / hz, self._tick)

    def _observe(self, moment: Moment) -> Observation:
        for name, meter in self.world.meters.items():
            try:
                self.observer.on_meter(name, *meter.read(), moment.seconds)
            except Unavailable as error:
                self.observer.on_meter_failed(name, error.message)
        self.observer.on_ray(self.world.ray.free_gpus())
        state = self.machine.state
        return self.observer.observe(moment, state.site.overhead, state.nodes.keys())

    # AgentLink

    def send(self, node_id: str, message: object) -> bool:
        """Queue a frame to a node."""
        return self.world.to_node(node_id, message)

    def connected(self) -> Sequence[str]:
        """Nodes with a live stream."""
        return [n for n, node in self.world.nodes.items() if node.connected]

    # Effects

    def submit(self, spec: JobSpec, attempt: int) -> None:
        """Start an attempt."""
        self.world.ray.submit(spec, attempt)

    def stop(self, job_id: str, attempt: int) -> None:
        """End an attempt."""
        self.world.ray.stop(job_id, attempt)

    def tell(self, event: GridEvent, status: str, delivered_watts: float | None) -> None:
        """Answer the grid."""
        del delivered_watts
        self.world.told.append((event.event_id, status))

    def alarm(self, alarm: Alarm) -> None:
        """Tell a person."""
        self.world.alarms.append(alarm)

    def settle(self, event_id: str, *, final: bool) -> None:
        """Note that a result is due."""
        self.world.settled.append((event_id, final))

    def publish(self, kind: str, thing_id: str) -> None:
        """Nobody reads here."""
