"""What an event cost each job: energy, steps, and the proof of every pause."""

from dataclasses import dataclass
from datetime import datetime
from math import hypot, sqrt

from gridaware.settlement.attribution import Snapshot
from gridaware.settlement.energy_report import EnergyReport

__all__ = ["JobImpact", "PauseEvidence", "job_impacts"]

REPORT_SECONDS = 1.0
"""How often a job tells its steps."""


@dataclass(frozen=True, slots=True)
class PauseEvidence:
    """One pause, from its verified checkpoint to the step it resumed at."""

    job_id: str
    request_id: str
    attempt: int
    requested_at: datetime
    verified_at: datetime | None
    """When the agent had verified the manifest; None = the pause failed."""
    checkpoint_path: str | None
    step_saved: int | None
    resumed_at: datetime | None = None
    step_resumed: int | None = None
    outcome: str = "saved"

    @property
    def steps_redone(self) -> int | None:
        """Steps lost between saving and resuming: 0 when it resumed at exactly what it saved."""
        if self.step_saved is None or self.step_resumed is None:
            return None
        return self.step_saved - self.step_resumed


@dataclass(frozen=True, slots=True)
class JobImpact:
    """One job over the event, from the ramp down to the last snapshot."""

    job_id: str
    team: str
    tier: str
    gpus: int
    state: str
    energy_joules: float
    held_idle_joules: float
    energy_method: str
    energy_band_joules: float
    coverage: float
    mean_watts: float
    reference_steps_per_second: float | None
    """Over the minute before the ramp down; None where it had no steps then."""
    steps_done: int
    """Net: steps that a restart repeats count once."""
    alive_seconds: float
    """While it could have stepped: on its GPUs or paused."""
    steps_lost: float | None
    """Reference rate times alive seconds less steps done; negative = it gained."""
    seconds_lost: float | None
    """The same in seconds of its own work at the reference rate."""
    throughput: float | None
    """Steps done over steps due, 1 = nothing lost."""
    steps_band: float | None = None
    """What ``steps_lost`` may be wrong by (two standard errors): counts are whole steps, and the
    pace before was measured with an error of its own."""
    seconds_band: float | None = None
    """The same in seconds of its own work."""

    @property
    def proven_seconds_lost(self) -> float:
        """Seconds lost where they are more than their own error; a gain is none."""
        lost = self.seconds_lost or 0.0
        return lost if lost > (self.seconds_band or 0.0) else 0.0


def job_impacts(energy: EnergyReport, before: Snapshot, after: Snapshot) -> tuple[JobImpact, ...]:
    """One row for each job that drew or could have stepped during the event."""
    drawn = {job.job_id: job for job in energy.jobs}
    rows = []
    for job_id, track in sorted(after.tracks.items()):
        start = before.tracks.get(job_id)
        alive = track.alive_seconds - (start.alive_seconds if start else 0.0)
        job = drawn.get(job_id)
        if alive <= 0 and job is None:
            continue
        rate = start.steps_per_second if start else None
        done = track.step - (start.step if start else 0)
        moved = track.position - (start.position if start else 0.0)
        due = rate * alive if rate else None
        band = _band(start.pace_error if start else 0.0, rate, alive)
        joules = job.running.joules if job else 0.0
        rows.append(
            JobImpact(
                job_id=job_id,
                team=track.team,
                tier=track.tier,
                gpus=track.gpus,
                state=track.state.value,
                energy_joules=joules,
                held_idle_joules=job.held_idle.joules if job else 0.0,
                energy_method=job.running.method if job else "estimated",
                energy_band_joules=job.running.band_joules if job else 0.0,
                coverage=job.running.coverage if job else 0.0,
                mean_watts=joules / energy.seconds,
                reference_steps_per_second=rate,
                steps_done=done,
                alive_seconds=alive,
                steps_lost=due - moved if due is not None else None,
                seconds_lost=(due - moved) / rate if due is not None and rate else None,
                throughput=moved / due if due else None,
                steps_band=band,
                seconds_band=band / rate if band is not None and rate else None,
            )
        )
    return tuple(rows)


def _band(pace_error: float, rate: float | None, alive_seconds: float) -> float | None:
    """Two standard errors of the steps lost: of the pace before, and of the count at both edges.

    Progress is told about once a second and in whole steps, so a count is behind by anything up to
    one step, or to what is done in a second where that is less.
    """
    if not rate:
        return None
    edge = min(1.0, rate * REPORT_SECONDS) / sqrt(12)
    return 2.0 * hypot(pace_error * alive_seconds, edge, edge)
