"""Who drew it: every joule of the meter on one line, as readings come in.

    Σ jobs + held idle + unallocated + unmanaged + overhead + unexplained = meter

* **jobs**: GPUs while a job's processes hold them, joined on UUID and attempt; a shared GPU is
  split by its shares.
* **held idle**: GPUs reserved for a job that is not running on them (paused, starting, resuming).
  It stays that job's own and is shown apart (kepler#1194, #923: users reject opaque idle splits).
* **unallocated**: nobody's. **unmanaged**: processes that are not ours.
* **overhead**: what the overhead model says lies between GPUs and meter.
* **unexplained**: the meter less all of these, with its sign. It is never spread over the others.

:class:`EnergyBook` folds one Observation at a time with work proportional to the GPUs; two of its
snapshots bound a slice: an event, a day, a job's life.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from math import fsum, hypot, sqrt

from gridaware.domain.job import Job, JobState
from gridaware.domain.reading import GpuObservation, Observation, Quality, Reading
from gridaware.domain.target import Overhead
from gridaware.settlement.counter import CounterRules, CounterWalk, Flag, Increment, PowerSample

__all__ = ["Account", "EnergyBook", "Line", "MeterUse", "Snapshot", "Tally", "Track"]

METER_RULES = CounterRules(refresh_seconds=1.0)
"""Site meters refresh about once a second (ERCOT asks for 2 s, NVML boards for far less)."""
RATE_WINDOW_SECONDS = 60.0
MARK_SECONDS = 2.0
"""Between two points of the line that is laid through them."""
HANDOVER_STEP = 0.1
"""Two readings closer than this, relatively, do not tell when a GPU changed hands."""
LEAST_STEP_WATTS = 0.1
"""Nor do two that differ by less than sensors resolve."""


class Line(StrEnum):
    """The lines that a meter's energy falls on."""

    JOB = "job"
    HELD_IDLE = "held_idle"
    UNALLOCATED = "unallocated"
    UNMANAGED = "unmanaged"
    OVERHEAD = "overhead"
    UNEXPLAINED = "unexplained"


MeterUse = tuple[str, str, str]
"""Name, method and boundary of a meter."""
Account = tuple[Line, str]
"""A line and, for the first two, the job it belongs to."""
_NOBODY: tuple[tuple[Account, float], ...] = (((Line.UNALLOCATED, ""), 1.0),)
_FOREIGN: tuple[tuple[Account, float], ...] = (((Line.UNMANAGED, ""), 1.0),)
_STEPPING = {JobState.RUNNING, JobState.CAPPED}
_RESERVING = {JobState.STARTING, JobState.PAUSED, JobState.RESUMING}
Owners = tuple[tuple[Account, float], ...]


@dataclass(slots=True)
class Tally:
    """Running sums of one account, one GPU or the meter. Only ever added to."""

    joules: float = 0.0
    integral_joules: float = 0.0
    """From power alone, over the stretches that the counter covered too."""
    checked_joules: float = 0.0
    """From the counter over the same stretches."""
    band_joules: float = 0.0
    seconds: float = 0.0
    """Device seconds, with and without readings."""
    known_seconds: float = 0.0
    counter_seconds: float = 0.0
    readings: int = 0
    flags: dict[Flag, int] = field(default_factory=dict)
    """How often each was raised."""
    edge_joules: float = 0.0
    """Set in snapshots: how far a slice that begins or ends here may be off, since the newest
    sample is a little older than the snapshot and the counter one refresh older than that."""

    def add(self, inc: Increment, share: float, extra_band: float = 0.0) -> None:
        """Book a share of an increment."""
        joules = share * inc.joules
        self.joules += joules
        self.seconds += share * inc.seconds
        self.band_joules += share * inc.band_joules + extra_band
        self.readings += 1
        if inc.known:
            self.known_seconds += share * inc.seconds
        if inc.by_counter:
            self.counter_seconds += share * inc.seconds
            if inc.integral_joules is not None:
                self.integral_joules += share * inc.integral_joules
                self.checked_joules += joules
        if inc.flag is not None:
            self.raise_flag(inc.flag)

    def raise_flag(self, flag: Flag) -> None:
        """Count one more occurrence of ``flag``."""
        self.flags[flag] = self.flags.get(flag, 0) + 1

    def frozen(self, edge_joules: float) -> "Tally":
        """A copy that no longer changes with this one."""
        return replace(self, flags=dict(self.flags), edge_joules=edge_joules)


@dataclass(frozen=True, slots=True)
class Track:
    """Progress of one job up to a moment."""

    team: str
    tier: str
    gpus: int
    attempt: int
    state: JobState
    step: int
    """Newest step reported; falls when an attempt resumes from an older checkpoint."""
    alive_seconds: float
    """Since first seen, while it was on GPUs or paused: the time it could have stepped."""
    steps_per_second: float | None
    """Of a straight line through the last minute of running; None before the first two reports."""
    position: float = 0.0
    """Steps as a real number: the newest one, and how far the next has come by that pace."""
    pace_error: float = 0.0
    """Standard error of ``steps_per_second``."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything booked up to a moment. The difference of two is a slice."""

    at: datetime
    seconds: float
    accounts: Mapping[Account, Tally]
    gpus: Mapping[str, Tally]
    meter: Tally
    overhead_joules: float
    overhead_quality: str
    tracks: Mapping[str, Track]
    meters: Mapping[MeterUse, float]
    """Seconds for which each meter was read."""
    last_meter: MeterUse


class _Gpu:
    """One GPU between two readings."""

    __slots__ = ("owners", "steady_counter_joules", "steady_power_joules", "tally", "walk")

    def __init__(self, rules: CounterRules) -> None:
        self.walk = CounterWalk(rules)
        self.owners: Owners = _NOBODY
        self.tally = Tally()
        self.steady_counter_joules = 0.0
        self.steady_power_joules = 0.0

    def learn(self, inc: Increment) -> None:
        """Compare the counter with power where both are sure: one owner, steady power."""
        if inc.by_counter and inc.integral_joules is not None and not _stepped(inc):
            self.steady_counter_joules += inc.joules
            self.steady_power_joules += inc.integral_joules

    @property
    def counter_to_power(self) -> float:
        """The ratio of the two sensors' gains, as far as it is known."""
        if self.steady_power_joules <= 0:
            return 1.0
        return min(max(self.steady_counter_joules / self.steady_power_joules, 0.9), 1.1)


class _Progress:
    """One job between two ticks."""

    __slots__ = ("alive_seconds", "attempt", "marks", "step", "step_seconds")

    def __init__(self) -> None:
        self.alive_seconds = 0.0
        self.attempt = 0
        self.step = 0
        self.step_seconds = 0.0
        """When that step was first told."""
        self.marks: list[tuple[float, int]] = []

    def report(self, seconds: float, attempt: int, step: int) -> None:
        """Take in a step count; marks older than the rate's window go, one before it stays."""
        if attempt != self.attempt:
            self.attempt = attempt
            self.marks.clear()
        elif step == self.step:
            return  # told again: only when a step was first told says something
        self.step, self.step_seconds = step, seconds
        if self.marks and seconds - self.marks[-1][0] < MARK_SECONDS:
            return
        self.marks.append((seconds, step))
        while len(self.marks) > 2 and self.marks[1][0] <= seconds - RATE_WINDOW_SECONDS:
            del self.marks[0]

    def pace(self) -> tuple[float | None, float]:
        """Steps per second by least squares over the marks, and its standard error.

        A count is up to one step behind: over a minute of two marks that alone is a per cent, over
        all of them it averages out. Not where a step takes just as long as a report: then all
        counts are behind alike, and the error is that of the first and the last.
        """
        count = len(self.marks)
        if count < 2:
            return None, 0.0
        mean_at = fsum(at for at, _ in self.marks) / count
        mean_step = fsum(step for _, step in self.marks) / count
        spread = fsum((at - mean_at) ** 2 for at, _ in self.marks)
        if spread <= 0:
            return None, 0.0
        slope = fsum((at - mean_at) * (step - mean_step) for at, step in self.marks) / spread
        left = fsum((step - mean_step - slope * (at - mean_at)) ** 2 for at, step in self.marks)
        alike = sqrt(2 / 12) * min(1.0, abs(slope)) / (self.marks[-1][0] - self.marks[0][0])
        return slope, hypot(sqrt(left / max(count - 2, 1) / spread), alike)

    def position(self, now: float) -> float:
        """Steps so far as a real number, at most one beyond the newest."""
        pace, _ = self.pace()
        if pace is None:
            return float(self.step)
        return self.step + min(max(pace * (now - self.step_seconds), 0.0), 1.0)


class EnergyBook:
    """Energy as readings come in. Deterministic: the same observations give the same sums."""

    def __init__(self, overhead: Overhead | None = None, rules: CounterRules | None = None) -> None:
        self._overhead = overhead or Overhead()
        self._rules = rules or CounterRules()
        self._gpus: dict[str, _Gpu] = {}
        self._accounts: dict[Account, Tally] = {}
        self._meter = CounterWalk(METER_RULES)
        self._meter_tally = Tally()
        self._meters: dict[MeterUse, float] = {}
        self._overhead_joules = 0.0
        self._progress: dict[str, _Progress] = {}
        self._jobs: dict[str, Job] = {}
        self._last: Observation | None = None

    def add(self, observation: Observation, jobs: Iterable[Job]) -> None:
        """Take in one tick: its readings, and the jobs as they stand.

        Readings that are not newer than the last ones of their device change nothing, so a silent
        node is a gap and never a zero.
        """
        now = observation.moment.seconds
        current = {job.spec.job_id: job for job in jobs}
        self._jobs |= current
        reserved = _reservations(current.values())
        booked = 0.0
        for node in observation.nodes:
            at = now - node.age_seconds
            for gpu_id, rows in _by_gpu(node.gpus).items():
                booked += self._add_gpu(gpu_id, at, rows, reserved.get(gpu_id))
        self._add_meter(observation, booked)
        self._add_progress(observation, current.values())
        self._last = observation

    def snapshot(self) -> Snapshot:
        """Everything booked so far, frozen.

        Raises:
            ValueError: nothing was taken in yet.
        """
        last = self._last
        if last is None:
            raise ValueError("an energy book without a reading has no snapshot")
        now = last.moment.seconds
        edges = {gpu_id: _edge(gpu.walk, self._rules, now) for gpu_id, gpu in self._gpus.items()}
        shares: dict[Account, float] = {}
        for gpu_id, gpu in self._gpus.items():
            for account, share in gpu.owners:
                shares[account] = shares.get(account, 0.0) + share * edges[gpu_id]
        return Snapshot(
            at=last.moment.wall,
            seconds=now,
            accounts={key: t.frozen(shares.get(key, 0.0)) for key, t in self._accounts.items()},
            gpus={key: gpu.tally.frozen(edges[key]) for key, gpu in self._gpus.items()},
            meter=self._meter_tally.frozen(_edge(self._meter, METER_RULES, now)),
            overhead_joules=self._overhead_joules,
            overhead_quality=self._overhead.quality,
            tracks={job_id: self._track(job, now) for job_id, job in self._jobs.items()},
            meters=dict(self._meters),
            last_meter=_use(last.meter),
        )

    def forget(self, job_ids: Iterable[str]) -> None:
        """Drop ended jobs, once every slice that begins before their end has been reported."""
        for job_id in job_ids:
            self._jobs.pop(job_id, None)
            self._progress.pop(job_id, None)
            for line in (Line.JOB, Line.HELD_IDLE):
                self._accounts.pop((line, job_id), None)

    def _add_gpu(
        self, gpu_id: str, at: float, rows: list[GpuObservation], reserving: str | None
    ) -> float:
        gpu = self._gpus.get(gpu_id)
        if gpu is None:
            gpu = self._gpus[gpu_id] = _Gpu(self._rules)
        owners = _owners(rows, reserving)
        before, gpu_before = gpu.owners, gpu.walk.last
        row = rows[0]
        good = row.quality in {Quality.GOOD, Quality.SUSPECT}
        inc = gpu.walk.step(
            PowerSample(
                at,
                row.power_watts if good else None,
                row.energy_joules if good else None,
                row.energy_epoch,
                row.enforced_limit_watts,
            )
        )
        if inc is None:
            if gpu_before is None:
                gpu.owners = owners
            return 0.0
        gpu.owners = owners
        gpu.tally.add(inc, 1.0)
        if before == owners:
            gpu.learn(inc)
            for account, share in owners:
                self._tally(account).add(inc, share)
            return inc.joules
        first = _handover(inc, gpu.counter_to_power)
        for side, part in ((before, first), (owners, 1 - first)):
            for account, share in side:
                tally = self._tally(account)
                off = share * inc.joules * max(first, 1 - first)
                tally.add(inc, share * part, extra_band=off)
                tally.raise_flag(Flag.OWNER_UNCERTAIN)
        return inc.joules

    def _add_meter(self, observation: Observation, gpu_joules: float) -> None:
        meter, energy, moment = observation.meter, observation.meter_joules, observation.moment
        good = meter.quality in {Quality.GOOD, Quality.SUSPECT}
        inc = self._meter.step(
            PowerSample(
                moment.seconds + (meter.at - moment.wall).total_seconds(),
                meter.watts if good else None,
                energy.joules if energy is not None else None,
                energy.epoch if energy is not None else "",
            )
        )
        self._overhead_joules += (self._overhead.slope - 1) * gpu_joules
        if inc is not None:
            self._meter_tally.add(inc, 1.0)
            use = _use(meter)
            self._meters[use] = self._meters.get(use, 0.0) + inc.seconds
            if inc.known:
                self._overhead_joules += self._overhead.fixed_watts * inc.seconds

    def _add_progress(self, observation: Observation, jobs: Iterable[Job]) -> None:
        now = observation.moment.seconds
        elapsed = now - self._last.moment.seconds if self._last is not None else 0.0
        for job in jobs:
            if job.state.on_gpus or job.state is JobState.PAUSED:
                self._progress.setdefault(job.spec.job_id, _Progress()).alive_seconds += elapsed
        for seen in observation.jobs:
            progress = self._progress.setdefault(seen.job_id, _Progress())
            progress.report(now - seen.age_seconds, seen.attempt, seen.step)

    def _track(self, job: Job, now: float) -> Track:
        progress = self._progress.get(job.spec.job_id) or _Progress()
        pace, error = progress.pace()
        steps_on = progress.step > 0 and job.state in _STEPPING
        return Track(
            team=job.spec.team,
            tier=job.spec.tier.value,
            gpus=job.spec.gpus,
            attempt=job.attempt,
            state=job.state,
            step=progress.step or job.step,
            alive_seconds=progress.alive_seconds,
            steps_per_second=pace,
            position=progress.position(now) if steps_on else float(progress.step or job.step),
            pace_error=error,
        )

    def _tally(self, account: Account) -> Tally:
        tally = self._accounts.get(account)
        if tally is None:
            tally = self._accounts[account] = Tally()
        return tally


def _use(meter: Reading) -> MeterUse:
    return meter.meter, meter.method.value, meter.boundary.value


def _handover(inc: Increment, scale: float) -> float:
    """Share of the increment that belongs to the owner before, of a GPU that changed hands in it.

    Each owner is taken to draw what was read on its own side; the energy between the two readings
    then tells when one followed the other. Half where it does not. ``scale`` brings power to the
    counter's gain.
    """
    if inc.before.watts is None or inc.after.watts is None or inc.joules <= 0 or not _stepped(inc):
        return 0.5
    first, last = inc.before.watts * scale, inc.after.watts * scale
    seconds = (inc.joules - last * inc.seconds) / (first - last)
    return min(max(first * seconds / inc.joules, 0.0), 1.0)


def _stepped(inc: Increment) -> bool:
    """Whether power changed by so much between the two readings that it tells when."""
    first, last = inc.before.watts or 0.0, inc.after.watts or 0.0
    return abs(first - last) > max(HANDOVER_STEP * max(first, last), LEAST_STEP_WATTS)


def _edge(walk: CounterWalk, rules: CounterRules, now: float) -> float:
    last = walk.last
    if last is None or last.watts is None:
        return 0.0
    age = max(now - last.at_seconds, 0.0) + rules.refresh_seconds + rules.stamp_seconds
    return rules.peak_margin * last.watts * age


def _by_gpu(rows: Iterable[GpuObservation]) -> dict[str, list[GpuObservation]]:
    """Rows of each UUID: several rows of one GPU share it and are counted once (MIG, fractions)."""
    grouped: dict[str, list[GpuObservation]] = {}
    for row in rows:
        grouped.setdefault(row.gpu_id, []).append(row)
    return grouped


def _reservations(jobs: Iterable[Job]) -> dict[str, str]:
    return {
        gpu_id: job.spec.job_id for job in jobs if job.state in _RESERVING for gpu_id in job.gpu_ids
    }


def _owners(rows: list[GpuObservation], reserving: str | None) -> Owners:
    """Accounts of one GPU with shares that sum to 1."""
    first = rows[0]
    if len(rows) == 1 and first.shares >= 1 and first.job_id not in (None, reserving):
        return (((Line.JOB, first.job_id), 1.0),)  # nearly every GPU of a busy site
    held = [(row.job_id, row.shares) for row in rows if row.job_id is not None and row.shares > 0]
    rest: Account
    if any(row.unmanaged for row in rows):
        if not held:
            return _FOREIGN
        rest = (Line.UNMANAGED, "")
    elif reserving is not None:
        rest = (Line.HELD_IDLE, reserving)
    elif not held:
        return _NOBODY
    else:
        rest = (Line.UNALLOCATED, "")
    total = sum(share for _, share in held)
    scale = 1 / total if total > 1 else 1.0
    owners: list[tuple[Account, float]] = [
        ((Line.HELD_IDLE if job_id == reserving else Line.JOB, job_id), share * scale)
        for job_id, share in held
    ]
    left = 1 - total * scale
    if left > 1e-9:
        owners.append((rest, left))
    return tuple(owners)
