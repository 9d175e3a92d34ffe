"""What must be true of every world, whatever breaks: looked at each second, and at the end.

The truth is the plant's: its joules, its limits in force, its rates of work, the checkpoints that
jobs really wrote. What the controller believes is used only where the question is whether it said
so: an unmet target must stand in ``unresolved_watts``, a broken floor must be alarmed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gridaware.control.replay import snapshot_of
from gridaware.domain.event import EventState, GridEvent
from gridaware.domain.job import JobState, Tier
from gridaware.domain.moment import Moment
from gridaware.planning.model import respond
from gridaware.planning.targets import binding_events, ramp_down_seconds
from gridaware.sim import aftermath
from gridaware.sim.site import gpu_entries
from gridaware.sim.window import GpuSlot
from gridaware.sim.world import World

if TYPE_CHECKING:
    from gridaware.sim.scenario import PlannedFault, Scenario

__all__ = ["Invariants"]

METER_TOLERANCE = 0.006
"""Of a class 0.2 meter: its gain three times over."""
BLIND_TOLERANCE = 0.04
"""While the meter is silent: sensors of GPUs are within 5 % each, the overheads assumed."""
SLACK_SECONDS = 3.0
"""A tick, a plan, the silicon: what a deadline is judged later by."""
STRAY_SECONDS = 8.0
"""A sag, and two seconds after it, may come between."""
REBOUND = 1.02
MEAN_SECONDS = 10.0
HARMLESS = {"meter-silent", "clock-step", "sag"}


@dataclass(frozen=True, slots=True)
class _Second:
    """One look at the world."""

    at: float
    joules: float
    owed_watts: float | None
    interval_seconds: float
    due_at: float
    """From when the target must be met."""
    began_at: float
    """When what is owed began to be."""
    unresolved_watts: float
    blind: bool
    back: bool
    """Every GPU stands at its found limit."""


@dataclass(slots=True)
class _Way:
    """A way back: where it began, and what it may not pass."""

    at: float
    watts: float
    ceiling_watts: float


class Invariants:
    """Watches one world. ``broken`` says, in words with seed, time and numbers, what was untrue."""

    def __init__(self, world: World, plan: "Scenario") -> None:
        self.world, self.plan = world, plan
        self.broken: list[str] = []
        self.seconds: list[_Second] = []
        self.acted: set[str] = set()
        self._found = {slot.uuid: slot.requested_watts for slot in world.gpus()}
        entries = gpu_entries(world.plant_spec, world.book)
        self._entries = [e for e, n in zip(entries, world.spec.nodes, strict=True)]
        self._passed: set[str] = set()
        """Events that were taken back, or whose window the wall clock has once left behind."""
        self._paused_steps: dict[tuple[str, int], int] = {}
        self._best: dict[tuple[str, int], float] = {}
        self._since: dict[str, float] = {}
        self._way: _Way | None = None
        self._before = 0.0
        """Drawn before the site was asked for less."""
        self._before_jobs: frozenset[str] = frozenset()
        """Attempts that ran then."""
        self._half: tuple[dict[str, object], int] | None = None
        self._before_sag: tuple[float, object, float | None, int] | None = None
        self._state = world.control.machine.state

    # Each second -------------------------------------------------------------------------------

    def look(self) -> None:
        """See the world as it is now."""
        self._state = self.world.control.machine.state
        second = self._second()
        self.seconds.append(second)
        self._limits_inside()
        self._pauses_proved()
        self._firm_jobs_work()
        self._honest(second)
        self._way_back(second)
        self._sags_ridden_through()
        self._strays_known()
        if self._half is None and second.at - 1000.0 > 0.5 * self.plan.end_seconds:
            self._keep_half()

    def _say(self, what: str) -> None:
        at = self.world.seconds() - 1000.0
        self.broken.append(f"seed={self.plan.seed} at {at:.1f} s: {what}")

    def _second(self) -> _Second:
        world, site = self.world, self.world.spec.site
        at = world.seconds()
        binding = binding_events(self._in_force(), Moment(at, world.clock.wall()))
        owed = binding[0].limit_watts if binding else None
        rules = [site.programme(e.programme_id, e.request.start) for e in binding]
        programme = rules[0] if rules else None
        interval = programme.settlement_interval_seconds if programme else 60.0
        deadline = max((programme.deadline_seconds for programme in rules), default=0)
        before = self.seconds[-1] if self.seconds else None
        began = due = at
        if owed is not None and before is not None and before.owed_watts is not None:
            began, due = before.began_at, before.due_at
        fresh = before is None or before.owed_watts is None
        deeper = fresh or owed is None or owed < (before.owed_watts or 0.0) * 0.999  # type: ignore[union-attr]
        watts = world.window.header.true_site_watts
        if owed is not None and (deeper or (at < due and self._disturbed())):
            down = ramp_down_seconds(watts, owed, site.ramp)
            due = max(due, at + max(deadline, down) + SLACK_SECONDS)
        elif owed is not None and self._jolted():
            due = max(due, at + deadline + SLACK_SECONDS)
        return _Second(
            at=at,
            joules=world.window.header.true_site_joules,
            owed_watts=owed,
            interval_seconds=interval,
            due_at=due,
            began_at=began,
            unresolved_watts=self._state.unresolved_watts if world.control.alive else 0.0,
            blind=bool(world.window.header.meter_fault),
            back=self._all_found(),
        )

    def _in_force(self) -> Iterable[GridEvent]:
        """Events that the site has accepted and not been released from, by the grid's own word."""
        wall = self.world.clock.wall()
        for signal, answer in self.world.answers:
            if signal.request is None and answer.disposition == "accepted":
                self._passed.add(answer.subject)
        for event_id, track in self._state.events.items():
            event = track.event
            if event.state.acting:
                self.acted.add(event_id)
            if event.request.end is not None and event.request.end <= wall:
                self._passed.add(event_id)
            if event_id not in self._passed and event.opted_out_by is None:
                yield replace(event, state=EventState.HOLDING)

    def _disturbed(self) -> bool:
        """Whether something keeps a new target from reaching the GPUs."""
        at = self.world.seconds() - 1000.0
        return not self.world.control.alive or any(
            fault.at_seconds <= at <= fault.end_seconds + SLACK_SECONDS + 2.0
            for fault in self.plan.faults
            if fault.kind.value not in HARMLESS
        )

    def _jolted(self) -> bool:
        """Whether something has just thrown the site off a target that it kept."""
        now = self.world.seconds() - 1000.0
        if not self.world.control.alive:
            return any(job.work_seconds < 10.0 for job in self.world.ray.running.values())
        return any(
            fault.at_seconds <= now <= fault.at_seconds + 8.0
            or fault.end_seconds <= now <= fault.end_seconds + 8.0
            for fault in self.plan.faults
            if fault.kind.value != "meter-silent"
        )

    def _all_found(self) -> bool:
        return all(
            abs(slot.requested_watts - self._found[slot.uuid]) < 0.01 for slot in self.world.gpus()
        )

    def _limits_inside(self) -> None:
        for slot in self.world.gpus():
            watts, found = slot.requested_watts, self._found[slot.uuid]
            if not slot.least_watts <= watts <= slot.greatest_watts:
                self._say(f"{slot.uuid!r} is asked for {watts:.1f} W, outside its range")
            if watts > found + 0.01:
                self._say(f"{slot.uuid!r} is asked for {watts:.1f} W, found were {found:.1f} W")

    def _pauses_proved(self) -> None:
        ray = self.world.ray
        for job_id, track in self._state.jobs.items():
            job = track.job
            if job.state is not JobState.PAUSED or (job_id, job.attempt) in self._paused_steps:
                continue
            saved = ray.evidence.get((job_id, job.request_id or ""))
            if saved is None:
                self._say(f"{job_id} counts as paused without a checkpoint for {job.request_id}")
            elif saved != job.saved_step:
                self._say(f"{job_id} saved step {saved}, believed is {job.saved_step}")
            self._paused_steps[job_id, job.attempt] = -1 if saved is None else saved

    def _firm_jobs_work(self) -> None:
        """Firm jobs lose nothing, unless the floor is broken and nobody else could give."""
        at = self.world.seconds()
        alarmed = self._state.firm_floor_broken
        lost = 0.0
        for job in self.world.ray.running.values():
            if job.spec.tier is not Tier.FIRM or not job.alive or job.work_seconds < 3.0:
                continue
            if any(self._faulty(slot) for slot in job.slots):
                continue
            rate = min(slot.throughput for slot in job.slots)
            key = (job.spec.job_id, job.attempt)
            best = self._best[key] = max(self._best.get(key, 0.0), rate)
            lost = max(lost, 1.0 - rate / best if best else 0.0)
        if lost < 0.01 or self._recent("firm-alarm", on=alarmed, seconds=4.0):
            self._since.pop("firm", None)
        elif at - self._since.setdefault("firm", at) >= 2.0 and not self._disturbed():
            self._say(f"firm jobs lose {100 * lost:.1f} % and nobody is told")
            self._since["firm"] = at + 1e9
        # The alarm must be true as well.
        could = self._could_give(firm=False) if alarmed and self.world.control.alive else 0.0
        self._hold_for(
            "firm-could", could > self._much(), 12.0, f"firm jobs gave; others had {could:.0f} W"
        )

    def _honest(self, second: _Second) -> None:
        """What is called unresolved could really not be shed."""
        could = 0.0
        if second.unresolved_watts > self._much() and self.world.control.alive:
            could = min(self._could_give(firm=True), second.unresolved_watts)
        self._hold_for(
            "unresolved-could",
            could > self._much(),
            12.0,
            f"{second.unresolved_watts:.0f} W called unresolved; {could:.0f} W could be given",
        )

    def _much(self) -> float:
        return 0.02 * self.world.window.header.true_site_watts

    def _hold_for(self, name: str, condition: bool, seconds: float, what: str) -> None:
        at = self.world.seconds()
        if not condition or self._disturbed():
            self._since.pop(name, None)
        elif at - self._since.setdefault(name, at) >= seconds:
            self._say(what)
            self._since[name] = at + 1e9

    def _recent(self, name: str, *, on: bool, seconds: float) -> bool:
        at = self.world.seconds()
        if on:
            self._since[name] = at
        return at - self._since.get(name, -1e9) <= seconds

    def _could_give(self, *, firm: bool) -> float:
        """GPU watts that caps could still take from jobs at work."""
        watts = 0.0
        for job in self.world.ray.running.values():
            track = self._state.jobs.get(job.spec.job_id)
            if not job.alive or job.work_seconds < 5.0 or track is None:
                continue
            if job.spec.tier is Tier.FIRM and not firm:
                continue
            for slot in job.slots:
                if not self._faulty(slot):
                    watts += max(slot.true_watts - self._least_draw(slot, job.spec.workload), 0.0)
        return watts

    def _least_draw(self, slot: GpuSlot, workload: str | None) -> float:
        least = self._entries[slot.node].gpu.least_watts
        return self._draw(slot, workload, least) + 0.03 * slot.tdp_watts

    def _draw(self, slot: GpuSlot, workload: str | None, cap_watts: float) -> float:
        entry = self._entries[slot.node]
        work = entry.workloads.get(workload or "", entry.workloads["generic"])
        return respond(entry.gpu, work, cap_watts)[1]

    def _faulty(self, slot: GpuSlot) -> bool:
        return bool(
            slot.lost
            or slot.error_code
            or slot.permission_denied
            or slot.hang_seconds
            or slot.limits_ignored
            or not self._reachable(slot)
        )

    def _reachable(self, slot: GpuSlot) -> bool:
        """Whether its agent can be told, and has said that it may set the limit."""
        node_id, gpu_id = f"node-{slot.node + 1}", slot.uuid.decode()
        node, track = self.world.nodes[node_id], self._state.nodes.get(node_id)
        may = track is not None and any(g.gpu_id == gpu_id and g.can_set for g in track.node.gpus)
        return node.alive and node.connected and may

    def _way_back(self, second: _Second) -> None:
        """No rebound above the pre-event level; no rise faster than the ramp."""
        before = self.seconds[-2] if len(self.seconds) > 1 else None
        was = before.owed_watts if before else None
        ramp = self.world.spec.site.ramp.up_watts_per_minute
        owed = second.owed_watts
        if was is not None and (owed is None or owed > was * 1.001):
            levels = [
                t.event.reference.watts for t in self._state.events.values() if t.event.reference
            ]
            reached = max(self._mean(3.0), was)
            if self._way is not None and ramp is not None:
                reached = min(reached, self._way.watts + ramp * (second.at - self._way.at) / 60.0)
                reached = max(reached, self._mean(3.0))
            hard = self.world.spec.site.hard_limit
            levels.append(hard.watts / REBOUND if hard is not None else 0.0)
            self._way = _Way(second.at, reached, max([*levels, self._before]))
        elif owed is not None and was is None:
            if self._way is None:
                self._before = self._mean(MEAN_SECONDS)
                self._before_jobs = frozenset(self.world.ray.running)
            self._way = None
        way = self._way
        if way is None:
            return
        paused = any(
            t.job.state in {JobState.PAUSED, JobState.PAUSING, JobState.RESUMING}
            for t in self._state.jobs.values()
        )
        if owed is None and second.back and not paused and second.at > way.at + 3.0:
            self._way = None
            return
        if second.at - way.at < MEAN_SECONDS:
            return
        mean = self._mean(MEAN_SECONDS)
        allowed = way.ceiling_watts * REBOUND
        if ramp is not None:
            # Once every restore slot has ended, work that grew meanwhile comes by the ramp.
            beyond = second.at - way.at - self._state.slots_seconds
            allowed += ramp * max(beyond, 0.0) / 60.0
            allowed = min(allowed, way.watts + ramp * (second.at - way.at) / 60.0 + self._much())
        if not (self.world.control.alive or self._before_jobs.issuperset(self.world.ray.running)):
            self._way = None  # nobody holds back the work that came during the event
        elif mean > allowed:
            self._say(
                f"coming back since {way.at - 1000:.0f} s from {way.watts:.0f} W the 10 s mean is "
                f"{mean:.0f} W, above {allowed:.0f} W (pre-event {way.ceiling_watts:.0f} W)"
            )
            self._way = None

    def _sags_ridden_through(self) -> None:
        """During a voltage sag, and for 2 s after it, nothing is decided that nobody asked for.

        Of one that lasts long enough that a reading falls into it for sure.
        """
        at, state = self.world.seconds() - 1000.0, self._state
        sags = [f for f in self.plan.faults if f.kind.value == "sag" and f.seconds > 1.1]
        under_way = [f for f in sags if f.at_seconds + 1.05 < at < f.end_seconds + 1.9]
        if not under_way or not self.world.control.alive or self._disturbed():
            self._before_sag = None
            return
        asked = [(name, t.event.state, t.event.revision) for name, t in state.events.items()]
        now = (under_way[0].at_seconds, asked, state.target_watts, state.decisions)
        before, self._before_sag = self._before_sag, now
        if before is not None and before[:3] == now[:3] and before[3] != now[3]:
            self._say("a decision was made in a voltage sag, and nothing new was asked")

    def _strays_known(self) -> None:
        """A GPU that ignores its cap, and draws a quarter more than that, is known in seconds."""
        at = self.world.seconds()
        for job in self.world.ray.running.values():
            for slot in job.slots:
                gpu_id = slot.uuid.decode()
                node = self._state.nodes.get(f"node-{slot.node + 1}")
                gpu = self._state.gpus.get(gpu_id)
                limit = None if node is None else node.limits_watts.get(gpu_id)
                ignores = slot.limits_ignored and limit is not None and self._reachable(slot)
                ignores = ignores and self.world.control.alive and job.work_seconds >= 5.0
                if ignores and limit is not None and gpu is not None and not gpu.astray:
                    draws = max(limit, self._draw(slot, job.spec.workload, limit))
                    if slot.true_watts > 1.25 * draws:
                        if at - self._since.setdefault(gpu_id, at) >= STRAY_SECONDS:
                            self._say(f"{gpu_id} draws {slot.true_watts:.0f} W, cap {limit:.0f} W")
                            self._since[gpu_id] = at + 1e9
                        continue
                self._since.pop(gpu_id, None)

    def _mean(self, seconds: float) -> float:
        last = self.seconds[-1]
        first = next((s for s in reversed(self.seconds) if s.at <= last.at - seconds), None)
        if first is None:
            return self.world.window.header.true_site_watts
        return (last.joules - first.joules) / (last.at - first.at)

    def _keep_half(self) -> None:
        if not self.world.control.alive:
            return
        world = self.world
        world.ledger.flush()
        seq = len(world.ledger.entries)
        moment = Moment(world.seconds(), world.clock.wall())
        self._half = (snapshot_of(world.control.machine, seq, moment), seq)

    def rested(self) -> None:
        """Nothing has been asked for a while: nobody who could work waits."""
        if not self.world.control.alive:
            return
        ray = self.world.ray
        busy = {gpu_id for job in ray.running.values() for gpu_id in job.node_of}
        free: dict[int, int] = {}
        for slot in self.world.gpus():
            usable = slot.uuid.decode() not in busy and not self._faulty(slot)
            free[slot.node] = free.get(slot.node, 0) + usable
        reasons = {"WaitsForHead"}
        if self.world.spec.site.hard_limit is not None:
            reasons |= {"WaitsForPower", "KeepPausedNoRoom"}
        for job_id, track in self._state.jobs.items():
            waits = track.job.state in {JobState.QUEUED, JobState.PAUSED}
            waits = waits and track.plan_reason not in reasons
            if waits and track.job.spec.gpus <= max(free.values()):
                self._say(
                    f"{job_id} is {track.job.state.value} ({track.plan_reason}), needs "
                    f"{track.job.spec.gpus} GPUs, and {max(free.values())} of one node are idle"
                )

    # At the end --------------------------------------------------------------------------------

    def conclude(self) -> None:
        """Everything that only the end shows."""
        self._targets_met()
        self._hard_limit_kept()
        world = self.world
        crashed = any(fault.kind.value == "control-killed" for fault in self.plan.faults)
        found = {slot.uuid.decode(): self._found[slot.uuid] for slot in world.gpus()}
        said = [*aftermath.resumed(world, self._paused_steps), *aftermath.given_back(world, found)]
        said += aftermath.taken_over(world)
        if world.control.alive:
            said += aftermath.results(world, self.acted, crashed=crashed)
            said += [*aftermath.told(world, self.acted), *aftermath.replayed(world, self._half)]
        for what in said:
            self._say(what)

    def _targets_met(self) -> None:
        """The mean of each settlement interval after the deadline."""
        seconds = self.seconds
        start = 0
        for index, second in enumerate(seconds):
            if second.owed_watts is None or second.began_at != seconds[start].began_at:
                start = index
                continue
            if second.at - seconds[start].at < second.interval_seconds - 0.5:
                continue
            window = seconds[start : index + 1]
            start = index
            if all(s.at >= s.due_at for s in window):
                self._judge(window)

    def _judge(self, window: list[_Second]) -> None:
        first, last = window[0], window[-1]
        mean = (last.joules - first.joules) / (last.at - first.at)
        owed = sum(s.owed_watts or 0.0 for s in window[1:]) / (len(window) - 1)
        blind = any(s.blind for s in window)
        allowed = owed * (1 + (BLIND_TOLERANCE if blind else METER_TOLERANCE))
        if mean > allowed and not any(s.unresolved_watts > 0.5 for s in window):
            self.broken.append(
                f"seed={self.plan.seed} from {first.at - 1000:.0f} to {last.at - 1000:.0f} s: "
                f"the mean is {mean:.0f} W, owed are {owed:.0f} W "
                f"(+{100 * (mean / owed - 1):.2f} %), and nothing is called unresolved"
            )

    def _hard_limit_kept(self) -> None:
        hard = self.world.spec.site.hard_limit
        if hard is None:
            return
        for first in self.seconds:
            last = next(
                (s for s in self.seconds if s.at >= first.at + hard.averaging_seconds), None
            )
            if last is None:
                return
            mean = (last.joules - first.joules) / (last.at - first.at)
            window = [s for s in self.seconds if first.at <= s.at <= last.at]
            told = any(s.unresolved_watts > 0.5 for s in window)
            if mean > hard.watts * (1 + METER_TOLERANCE) and not told:
                if self._fault_near(first.at - 1000.0, last.at - 1000.0):
                    continue
                self.broken.append(
                    f"seed={self.plan.seed} from {first.at - 1000:.0f} s: the mean of "
                    f"{hard.averaging_seconds:.0f} s is {mean:.0f} W, the limit {hard.watts:.0f} W"
                )
                return

    def _fault_near(self, start: float, end: float) -> bool:
        def near(fault: "PlannedFault") -> bool:
            return fault.at_seconds - 5 <= end and fault.end_seconds + 12 >= start

        return any(near(fault) for fault in self.plan.faults)
