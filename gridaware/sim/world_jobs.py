"""The seeded world's stand-in for Ray, and the jobs that run on it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from gridaware.control.stimuli import AttemptStatus
from gridaware.domain.job import PAUSED_EXIT_CODE, JobSpec
from gridaware.domain.wire import (
    CheckpointReport,
    CheckpointRequest,
    JobGone,
    JobProgress,
    JobRegistered,
)
from gridaware.sim.window import GpuSlot, LoadSlot, Window

__all__ = ["Manner", "SimJob", "SimRay"]

Later = Callable[[float, Callable[[], None]], None]
"""Do something in so many seconds."""
BEAT_SECONDS = 0.2
START_SECONDS = (1.5, 4.0)
SAVE_SECONDS = (0.2, 3.0)


class Manner(StrEnum):
    """How a job takes a pause request."""

    GOOD = "good"
    REFUSES = "refuses"
    HANGS = "hangs"
    CRASHES = "crashes"
    FINISHES = "finishes"


@dataclass(slots=True)
class SimJob:
    """One attempt of a job with processes on virtual GPUs."""

    spec: JobSpec
    attempt: int
    pid: int
    slots: list[GpuSlot]
    node_of: dict[str, str]
    step_seconds: float
    loads: list[LoadSlot] = field(default_factory=list)
    work_seconds: float = 0.0
    """Full-throughput seconds done by this attempt."""
    first_step: int = 0
    alive: bool = True
    told_step: int = -1

    @property
    def step(self) -> int:
        """Steps made since the job began."""
        return self.first_step + int(self.work_seconds / self.step_seconds)

    @property
    def nodes(self) -> list[str]:
        """Nodes it runs on."""
        return list(dict.fromkeys(self.node_of.values()))


class SimRay:
    """Ray as control sees it: attempts by name, free GPUs, and nothing about who does what."""

    def __init__(
        self,
        window: Window,
        node_ids: list[str],
        random: Random,
        later: Later,
        now: Callable[[], float],
    ) -> None:
        self.window = window
        self.node_ids = node_ids
        self.random = random
        self.later = later
        self.now = now
        self.running: dict[str, SimJob] = {}
        self.saved: dict[str, int] = {}
        """Job → the newest step in a complete checkpoint."""
        self.evidence: dict[tuple[str, str], int] = {}
        """(job, request) → the step that was truly saved for it."""
        self.total_steps: dict[str, int] = {}
        self.manners: dict[str, Manner] = {}
        self.work_seconds: dict[str, float] = {}
        self.seen: set[str] = set()
        self.starts: list[tuple[str, int, int]] = []
        """(job, attempt, step at which it began), oldest first."""
        self.statuses: dict[str, AttemptStatus] = {}
        """Every attempt that was started, as Ray remembers it."""
        self.workloads: list[frozenset[str]] = []
        """Known on the GPUs of each node."""
        self.asked: set[str] = set()
        """Requests that reached a job: the same one twice is one."""
        self.reports: dict[tuple[str, int], CheckpointReport] = {}
        """What became last of a request to an attempt; told again to a new controller."""
        self.tell_agent: Callable[[str, object], None] = lambda *_: None
        self.tell_control: Callable[[AttemptStatus], None] = lambda *_: None
        self._next_pid = 10_000

    def lives(self, pid: int, started_ticks: int) -> bool:
        """Whether a virtual process lives."""
        del started_ticks
        return any(job.pid == pid and job.alive for job in self.running.values())

    def free_gpus(self) -> tuple[float, float]:
        """(free, total) as Ray counts."""
        total = self.window.header.gpus
        return total - sum(len(job.slots) for job in self.running.values()), total

    def owner_of(self, gpu_id: str) -> tuple[str, int] | None:
        """(job, attempt) of the living process on a GPU."""
        for job in self.running.values():
            if job.alive and gpu_id in job.node_of:
                return job.spec.job_id, job.attempt
        return None

    def announcements(self, node_id: str) -> list[JobRegistered | CheckpointReport]:
        """What a node's job desk says to a controller that is new to it."""
        here = [job for job in self.running.values() if job.alive and node_id in job.nodes]
        reports = [report for report in self.reports.values() if report.node_id == node_id]
        return [self._registration(job, node_id) for job in here] + reports

    def _registration(self, job: SimJob, node_id: str) -> JobRegistered:
        mine = tuple(gpu_id for gpu_id, node in job.node_of.items() if node == node_id)
        spec, resumed = job.spec, job.first_step or None
        return JobRegistered(node_id, spec.job_id, job.attempt, 0, job.pid, mine, resumed)

    def submit(self, spec: JobSpec, attempt: int) -> None:
        """Start an attempt after a while; the same name twice is harmless."""
        name = f"{spec.job_id}-a{attempt}"
        if name in self.seen:
            return
        self.seen.add(name)
        self.later(self.random.uniform(*START_SECONDS), lambda: self._start(spec, attempt))

    def stop(self, job_id: str, attempt: int) -> None:
        """End an attempt."""
        self.later(0.1, lambda: self._end(f"{job_id}-a{attempt}", "stopped", None))

    def _start(self, spec: JobSpec, attempt: int) -> None:
        slots = self._place(spec.gpus)
        if slots is None:  # Ray keeps it pending
            self.later(1.0, lambda: self._start(spec, attempt))
            return
        self._next_pid += 1
        node_of = {slot.uuid.decode(): self.node_ids[slot.node] for slot in slots}
        job = SimJob(spec, attempt, self._next_pid, slots, node_of, 0.5)
        job.first_step = self.saved.get(spec.job_id, 0)
        self.running[f"{spec.job_id}-a{attempt}"] = job
        self.starts.append((spec.job_id, attempt, job.first_step))
        for slot in slots:
            load = next(load for load in slot.loads() if load.pid == 0)
            load.claim(self._workload(spec, slot), job.pid, 1)
            job.loads.append(load)
        for node_id in job.nodes:
            self.tell_agent(node_id, self._registration(job, node_id))
        self._tell(AttemptStatus(spec.job_id, attempt, "running"))
        self._beat(job)

    def _workload(self, spec: JobSpec, slot: GpuSlot) -> str:
        """What the job is to that GPU: its own class, where the model knows it there."""
        known = self.workloads[slot.node] if self.workloads else frozenset()
        return spec.workload if spec.workload in known else "generic"

    def _place(self, gpus: int) -> list[GpuSlot] | None:
        taken = {gpu_id for job in self.running.values() for gpu_id in job.node_of}
        for node in range(len(self.node_ids)):
            slots = self.window.gpus_of(node)
            free = [s for s in slots if s.uuid.decode() not in taken and not s.lost]
            if len(free) >= gpus:
                return free[:gpus]
        return None

    def _beat(self, job: SimJob) -> None:
        """Work on, and report about once a second."""
        if not job.alive:
            return
        if any(slot.lost for slot in job.slots):
            self._leave(job, "failed", 1)
            return
        rate = min(slot.throughput for slot in job.slots)
        job.work_seconds += BEAT_SECONDS * rate
        done = self.work_seconds.get(job.spec.job_id, 0.0)
        self.work_seconds[job.spec.job_id] = done + BEAT_SECONDS * rate
        for load in job.loads:
            load.until_seconds = self.now() + 3 * BEAT_SECONDS
        total = self.total_steps.get(job.spec.job_id, 1 << 30)
        if job.step >= total:
            self._leave(job, "succeeded", 0)
            return
        if job.step != job.told_step:
            job.told_step = job.step
            for node_id in job.nodes:
                self.tell_agent(
                    node_id,
                    JobProgress(
                        node_id, job.spec.job_id, job.attempt, 0, job.step, rate / job.step_seconds
                    ),
                )
        self.later(BEAT_SECONDS, lambda: self._beat(job))

    def request(self, node_id: str, request: CheckpointRequest) -> None:
        """A job hears that it shall save and leave."""
        job = self.running.get(f"{request.job_id}-a{request.attempt}")
        last = self.reports.get((request.job_id, request.attempt))
        if last is not None and last.request_id == request.request_id:
            self.tell_agent(node_id, last)
            return
        if request.request_id in self.asked:
            return
        self.asked.add(request.request_id)
        if job is None or not job.alive:
            self._report(node_id, request, "gone")
            return
        save_seconds = self.random.uniform(*SAVE_SECONDS)
        match self.manners.get(request.job_id, Manner.GOOD):
            case Manner.GOOD:
                self.later(save_seconds, lambda: self._save(job, node_id, request))
            case Manner.REFUSES:
                self.later(0.1, lambda: self._report(node_id, request, "refused"))
            case Manner.HANGS:
                deadline = request.deadline_seconds
                self.later(deadline, lambda: self._report(node_id, request, "late"))
            case Manner.CRASHES:
                self.later(0.3, lambda: self._crash(job, node_id, request))
            case Manner.FINISHES:
                self.later(0.3, lambda: self._finish(job, node_id, request))

    def _save(self, job: SimJob, node_id: str, request: CheckpointRequest) -> None:
        if not job.alive:
            return
        step = job.step
        self.saved[request.job_id] = step
        self.evidence[request.job_id, request.request_id] = step
        self._report(node_id, request, "saved", step)
        self._leave(job, "failed", PAUSED_EXIT_CODE)
        self.later(0.2, lambda: self._report(node_id, request, "left", step))

    def _crash(self, job: SimJob, node_id: str, request: CheckpointRequest) -> None:
        if job.alive:
            self._leave(job, "failed", 1)
            self._report(node_id, request, "gone")

    def _finish(self, job: SimJob, node_id: str, request: CheckpointRequest) -> None:
        if job.alive:
            self._leave(job, "succeeded", 0)
            self._report(node_id, request, "gone")

    def _report(
        self, node_id: str, request: CheckpointRequest, outcome: str, step: int | None = None
    ) -> None:
        path = None if step is None else f"/checkpoints/{request.job_id}/{step}"
        report = CheckpointReport(
            node_id, request.request_id, request.job_id, request.attempt, outcome, step, path
        )
        self.reports[request.job_id, request.attempt] = report
        self.tell_agent(node_id, report)

    def _leave(self, job: SimJob, status: str, exit_code: int | None) -> None:
        """The processes end; Ray notices a second later."""
        if not job.alive:
            return
        job.alive = False
        for load in job.loads:
            load.leave()
        for node_id in job.nodes:
            self.tell_agent(node_id, JobGone(node_id, job.spec.job_id, job.attempt, 0, job.pid))
        name = f"{job.spec.job_id}-a{job.attempt}"
        self.later(1.0, lambda: self._forget(name, job, status, exit_code))

    def _forget(self, name: str, job: SimJob, status: str, exit_code: int | None) -> None:
        self.running.pop(name, None)
        self._tell(AttemptStatus(job.spec.job_id, job.attempt, status, exit_code))

    def _tell(self, status: AttemptStatus) -> None:
        self.statuses[f"{status.job_id}-a{status.attempt}"] = status
        self.tell_control(status)

    def _end(self, name: str, status: str, exit_code: int | None) -> None:
        job = self.running.get(name)
        if job is not None:
            self._leave(job, status, exit_code)
