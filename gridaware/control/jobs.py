"""Jobs: commands of users, reports of agents and of the cluster, and what time does to them."""

from dataclasses import replace

from gridaware.control.instructions import SendCheckpoint, StopJob, SubmitJob
from gridaware.control.smoothing import fall_seconds
from gridaware.control.state import JobTrack, State, Turn
from gridaware.control.stimuli import AttemptStatus, JobCommanded, JobSubmitted, SubmitFailed
from gridaware.domain.job import JOB_LIFE, PAUSED_EXIT_CODE, Job, JobSpec, JobState, Placement
from gridaware.domain.wire import (
    CheckpointReport,
    CheckpointRequest,
    JobGone,
    JobProgress,
    JobRegistered,
)

__all__ = [
    "GRID",
    "advance_jobs",
    "ask_again",
    "move_job",
    "on_attempt",
    "on_checkpoint_report",
    "on_job_command",
    "on_job_gone",
    "on_job_progress",
    "on_job_registered",
    "on_job_submitted",
    "on_submit_failed",
    "progress_matters",
    "request_pause",
    "start_attempt",
    "submit_again",
]

REPORT_GRACE_SECONDS = 15.0
"""How long after a checkpoint deadline its report may still come, before it counts as refused."""
REFUSED_AGAIN_SECONDS = 300.0
"""A job that refused a pause is not asked again before then."""
RETRY_SECONDS = 5.0
IDLE_FACTOR, IDLE_MARGIN_WATTS = 1.3, 15.0
"""A GPU counts as left when it draws no more than this above its model's idle power."""
OPEN_JOBS = 100_000
GRID = "event"
"""Who paused or stopped a job, where it was no user."""


def move_job(
    turn: Turn, track: JobTrack, reason: str, numbers: tuple[tuple[str, float], ...] = ()
) -> None:
    """Follow one edge of the life cycle, with its bookkeeping."""
    job = track.job
    target = JOB_LIFE.follow(job.state, reason)
    job = replace(
        job, state=target, reason=reason, state_since=turn.now.wall, numbers=numbers, message=""
    )
    if target is JobState.RUNNING and job.started_at is None:
        job = replace(job, started_at=turn.now.wall)
    if target.terminal:
        job = replace(job, ended_at=turn.now.wall, cap_watts=None, gpu_ids=())
    if target is JobState.PAUSED:
        # Its GPUs stay its own (held idle) until it runs again, here or elsewhere.
        job = replace(job, cap_watts=None)
    if target is JobState.QUEUED:
        job = replace(job, cap_watts=None, gpu_ids=())
    if target in {JobState.PAUSED, JobState.RESUMING}:
        track.changed_seconds = turn.now.seconds
    track.job = job
    track.progress_seconds = track.state_seconds = turn.now.seconds
    turn.publish("job", job.spec.job_id)


def on_job_submitted(turn: Turn, stimulus: JobSubmitted) -> None:
    """Queue a job, or refuse what can never run."""
    spec, state = stimulus.spec, turn.state
    known = state.jobs.get(spec.job_id)
    if known is not None:
        if known.job.spec == spec:
            turn.answer("duplicate", spec.job_id)
        else:
            turn.refuse("job-exists", f"a job called {spec.job_id!r} exists already", spec.job_id)
        return
    problem = never_fits(turn, spec)
    if problem is not None:
        turn.refuse("job-too-large", problem, spec.job_id)
        return
    if len(state.jobs) >= OPEN_JOBS:
        turn.refuse("jobs-too-many", f"{OPEN_JOBS} jobs are open already", spec.job_id)
        return
    job = Job(
        spec=spec,
        state=JobState.QUEUED,
        reason="Submitted",
        submitted_at=turn.now.wall,
        state_since=turn.now.wall,
    )
    state.jobs[spec.job_id] = JobTrack(job, account_seconds=turn.now.seconds)
    turn.publish("job", spec.job_id)
    turn.answer("accepted", spec.job_id)


def never_fits(turn: Turn, spec: JobSpec) -> str | None:
    """Why a job can never start on this cluster, or None. Unknown sizes refuse nothing."""
    total = turn.state.ray_total_gpus
    if total and spec.gpus > total:  # a cluster that is coming up has counted none yet
        return f"it asks for {spec.gpus} GPUs; the cluster has {total:g}"
    largest = max((len(t.node.gpus) for t in turn.state.nodes.values()), default=0)
    if spec.placement is Placement.ENTRYPOINT and largest and spec.gpus > largest:
        return f"its entrypoint asks for {spec.gpus} GPUs of one node; the largest has {largest}"
    return None


def on_job_command(turn: Turn, command: JobCommanded) -> None:
    """A user commands a job."""
    track = turn.state.jobs.get(command.job_id)
    if track is None:
        turn.refuse("job-unknown", f"no job is called {command.job_id!r}", command.job_id)
        return
    state = track.job.state
    verbs = {
        "stop": (not state.terminal, _stop),
        "hold": (state in {JobState.QUEUED, JobState.PAUSED}, _hold),
        "release": (state is JobState.HELD, _release),
        "pause": (JOB_LIFE.allows(state, "PauseRequested"), _pause),
        "resume": (state is JobState.PAUSED, _resume),
    }
    if command.verb not in verbs:
        turn.refuse("job-verb-unknown", f"a job cannot be told to {command.verb}", command.job_id)
        return
    allowed, act = verbs[command.verb]
    if command.verb == "pause" and allowed and not track.job.spec.pausable:
        turn.refuse("job-not-pausable", f"{command.job_id} does not honour pauses", command.job_id)
    elif not allowed:
        turn.refuse(
            "job-wrong-state",
            f"{command.job_id} is {state.value}: it cannot be told to {command.verb}",
            command.job_id,
        )
    else:
        act(turn, track, command.actor)
        turn.answer("accepted", command.job_id)


def _stop(turn: Turn, track: JobTrack, actor: str) -> None:
    job = track.job
    if job.state.on_gpus:
        track.stopping = actor
        turn.emit(StopJob(job.spec.job_id, job.attempt))
        turn.publish("job", job.spec.job_id)
    else:
        move_job(turn, track, "StoppedByUser")


def _hold(turn: Turn, track: JobTrack, _actor: str) -> None:
    move_job(turn, track, "HeldByUser")


def _release(turn: Turn, track: JobTrack, _actor: str) -> None:
    move_job(turn, track, "ReleasedByUser")


def _pause(turn: Turn, track: JobTrack, actor: str) -> None:
    request_pause(turn, track, by=actor)


def _resume(turn: Turn, track: JobTrack, _actor: str) -> None:
    # Admission and power decide when; the user only withdraws their own pause.
    track.paused_by = "event"
    turn.publish("job", track.job.spec.job_id)


def request_pause(
    turn: Turn, track: JobTrack, by: str, numbers: tuple[tuple[str, float], ...] = ()
) -> None:
    """Ask a job to save its state and leave. It counts as paused only once that is proved."""
    turn.state.requests += 1
    spec = track.job.spec
    request_id = f"r{turn.state.controller_epoch}-{turn.state.requests}"
    track.paused_by, track.saved, track.staying = by, False, list(track.nodes)
    move_job(turn, track, "PauseRequested", numbers)
    track.job = replace(track.job, request_id=request_id, saved_step=None)
    turn.calm("pause-refused", spec.job_id)
    for node_id in track.nodes:
        _ask(turn, track, node_id)


def _ask(turn: Turn, track: JobTrack, node_id: str) -> None:
    """Send the pending request; an agent that has it already only repeats its answer."""
    job = track.job
    waited = turn.now.seconds - track.state_seconds
    request = CheckpointRequest(
        request_id=job.request_id or "",
        job_id=job.spec.job_id,
        attempt=job.attempt,
        pause=True,
        deadline_seconds=max(job.spec.checkpoint_grace_seconds - waited, 1.0),
        reason="event" if track.paused_by == "event" else "user",
    )
    turn.emit(SendCheckpoint(node_id, request))


def ask_again(turn: Turn, node_id: str) -> None:
    """An agent is back: it may never have heard what was asked of its jobs."""
    for track in turn.state.jobs.values():
        if track.job.state is JobState.PAUSING and node_id in track.nodes and not track.saved:
            _ask(turn, track, node_id)


def submit_again(turn: Turn) -> None:
    """A new controller: what the last one had still to tell the cluster; twice does no harm."""
    for track in turn.state.jobs.values():
        job = track.job
        if job.state in {JobState.STARTING, JobState.RESUMING}:
            turn.emit(SubmitJob(job.spec.job_id, job.attempt))
        if track.stopping and job.state.on_gpus:
            turn.emit(StopJob(job.spec.job_id, job.attempt))


def start_attempt(turn: Turn, track: JobTrack) -> None:
    """Submit the next attempt to the cluster: a first start, a retry or a resume."""
    resuming = track.job.state is JobState.PAUSED
    move_job(turn, track, "Resumed" if resuming else "Started")
    track.job = replace(track.job, attempt=track.job.attempt + 1, exit_code=None)
    track.nodes, track.ended, track.saved, track.staying = {}, "", False, []
    track.paused_by = ""
    turn.emit(SubmitJob(track.job.spec.job_id, track.job.attempt))


def on_submit_failed(turn: Turn, failure: SubmitFailed) -> None:
    """The cluster did not take an attempt: try again later, or give the job up with its words."""
    track = _current(turn, failure.job_id, failure.attempt)
    if track is None or track.job.state not in {JobState.STARTING, JobState.RESUMING}:
        return
    if failure.retryable:
        # The runner has waited and tried for a while already; it will again.
        track.job = replace(track.job, message=failure.message[:500])
        turn.emit(SubmitJob(failure.job_id, failure.attempt))
        return
    move_job(turn, track, "Failed")
    track.job = replace(track.job, message=failure.message[:2000])


def on_job_registered(turn: Turn, message: JobRegistered) -> None:
    """A process of a job is there, on these GPUs."""
    track = _current(turn, message.job_id, message.attempt)
    if track is None:
        return
    known = track.job.gpu_ids if track.nodes else ()
    pids = track.nodes.setdefault(message.node_id, [])
    if message.pid not in pids:  # agents tell it again when they or we were away
        pids.append(message.pid)
    gpu_ids = tuple(dict.fromkeys(known + message.gpu_ids))
    track.job = replace(track.job, gpu_ids=gpu_ids)
    for gpu_id in message.gpu_ids:
        gpu = turn.state.gpus.get(gpu_id)
        if gpu is not None:
            gpu.job_id = message.job_id
    if message.resumed_step is not None:
        track.job = replace(track.job, step=message.resumed_step)
    turn.publish("job", message.job_id)


def on_job_progress(turn: Turn, message: JobProgress) -> None:
    """A job has made steps."""
    track = _current(turn, message.job_id, message.attempt)
    if track is None:
        return
    track.progress_seconds = turn.now.seconds  # any rank's step shows that the job lives
    if message.rank == 0:
        track.steps_per_second = message.steps_per_second
        track.job = replace(track.job, step=message.step)
    if track.job.state in {JobState.STARTING, JobState.RESUMING}:
        move_job(turn, track, "FirstProgress")
    elif track.job.state is JobState.STALLED:
        move_job(turn, track, "ProgressAgain")
        turn.calm("job-stalled", message.job_id)
    turn.publish("job", message.job_id)


def progress_matters(state: State, message: JobProgress) -> bool:
    """Whether a report of progress changes the job's life; all others wait for the next tick.

    A job of a thousand ranks reports thousands of times a second; its Observation says it once.
    """
    track = state.jobs.get(message.job_id)
    return track is None or track.job.state in {
        JobState.STARTING,
        JobState.RESUMING,
        JobState.STALLED,
    }


def on_job_gone(turn: Turn, message: JobGone) -> None:
    """A registered process ended; the cluster's exit status says what that means."""
    track = _current(turn, message.job_id, message.attempt)
    if track is None:
        return
    pids = track.nodes.get(message.node_id, [])
    if message.pid in pids:
        pids.remove(message.pid)
    if not pids:
        track.nodes.pop(message.node_id, None)
    if message.left_pids:
        orphans = ", ".join(map(str, message.left_pids))
        turn.alarm("orphan-processes", f"{message.job_id} left processes {orphans}", message.job_id)


def on_checkpoint_report(turn: Turn, report: CheckpointReport) -> None:
    """What became of a pause request, as the agent verified it."""
    track = _current(turn, report.job_id, report.attempt)
    if track is None:
        return
    if report.request_id != track.job.request_id:
        if report.step is None or not track.job.state.on_gpus:
            return
        # It obeys an earlier request of ours: one given up, or one that the ledger lost in a crash.
        track.job = replace(track.job, request_id=report.request_id)
    if report.outcome in {"saved", "left"}:
        if report.step is not None:
            track.job = replace(track.job, saved_step=report.step, checkpoint_path=report.path)
            track.saved = True
        if report.outcome == "left" and not report.left_pids and report.node_id in track.staying:
            track.staying.remove(report.node_id)
        if JOB_LIFE.allows(track.job.state, "PauseRequested") and track.saved:
            # It saved after its deadline and is leaving all the same.
            track.paused_by = track.paused_by or "event"
            move_job(turn, track, "PauseRequested")
        turn.publish("job", report.job_id)
        return
    if track.job.state is JobState.PAUSING and report.outcome != "gone":
        refuse_pause(turn, track, report.message or report.outcome)


def refuse_pause(turn: Turn, track: JobTrack, why: str) -> None:
    """The job was not paused: it runs on, and the plan must find its watts elsewhere."""
    move_job(turn, track, "PauseRefused")
    track.job = replace(track.job, message=why[:500])
    track.no_pause_until_seconds = turn.now.seconds + REFUSED_AGAIN_SECONDS
    turn.alarm("pause-refused", f"{track.job.spec.job_id}: {why}", track.job.spec.job_id)


def on_attempt(turn: Turn, attempt: AttemptStatus) -> None:
    """The cluster's word on an attempt."""
    _recover_attempt(turn, attempt)
    track = _current(turn, attempt.job_id, attempt.attempt)
    if track is None or track.job.state.terminal:
        return
    job = track.job
    if attempt.status == "running":
        if job.state is JobState.STARTING and not job.spec.pausable:
            # A plain script reports no progress: being started is all there is to see.
            move_job(turn, track, "FirstProgress")
        return
    if attempt.status == "pending" or not job.state.on_gpus:
        return
    track.ended = attempt.status
    if attempt.status == "lost":
        return  # no failure of its own; it is queued again once its processes are gone
    track.job = replace(job, exit_code=attempt.exit_code)
    for_grid = track.stopping == GRID
    if for_grid:
        track.stopping = ""  # it may have ended otherwise just before
    if for_grid and attempt.status == "stopped":
        move_job(turn, track, "StoppedForGrid")
    elif track.stopping or attempt.status == "stopped":
        move_job(turn, track, "StoppedByUser")
    elif attempt.status == "succeeded":
        move_job(turn, track, "Succeeded")
    elif job.state is JobState.PAUSING and (track.saved or attempt.exit_code == PAUSED_EXIT_CODE):
        pass  # it left as asked; advance_jobs waits for the proof
    else:
        _failed(turn, track, attempt)
    turn.publish("job", attempt.job_id)


def _recover_attempt(turn: Turn, attempt: AttemptStatus) -> None:
    """The cluster runs an attempt whose start the ledger lost in a crash: it was started."""
    track = turn.state.jobs.get(attempt.job_id)
    if track is None or attempt.attempt != track.job.attempt + 1:
        return
    if track.job.state in {JobState.QUEUED, JobState.PAUSED}:
        name = f"{attempt.job_id}-a{attempt.attempt}"
        turn.alarm("attempt-recovered", f"{name} runs, and its start was lost", attempt.job_id)
        start_attempt(turn, track)


def _failed(turn: Turn, track: JobTrack, attempt: AttemptStatus) -> None:
    message = attempt.message[:2000]
    if attempt.exit_code == PAUSED_EXIT_CODE and not track.saved:
        message = f"it left with exit code 42, but no checkpoint was verified. {message}"
    if track.job.failures < track.job.spec.max_retries:
        move_job(turn, track, "RetryAfterFailure")
        track.retry_seconds = turn.now.seconds + RETRY_SECONDS
    else:
        move_job(turn, track, "Failed")
    track.job = replace(track.job, failures=track.job.failures + 1, message=message)


def advance_jobs(turn: Turn) -> None:
    """What time does to jobs: pauses are proved or given up, silence is noticed."""
    for track in turn.state.jobs.values():
        state = track.job.state
        if track.ended == "lost" and not track.nodes and state.on_gpus and not track.saved:
            move_job(turn, track, "ClusterLost")
            track.retry_seconds = turn.now.seconds + RETRY_SECONDS
        elif state is JobState.PAUSING:
            _prove_pause(turn, track)
        elif state in {JobState.RUNNING, JobState.CAPPED} and track.job.spec.pausable:
            silent = turn.now.seconds - track.progress_seconds
            if silent > turn.state.site.stall_seconds:
                move_job(turn, track, "NoProgress", (("silent_seconds", silent),))
                turn.alarm(
                    "job-stalled",
                    f"{track.job.spec.job_id} made no step for {silent:.0f} s",
                    track.job.spec.job_id,
                )


def _prove_pause(turn: Turn, track: JobTrack) -> None:
    job = track.job
    left = not track.staying or (bool(track.ended) and not track.nodes)
    if track.saved and left and watts_gone(turn, track):
        move_job(turn, track, "CheckpointVerified", (("step", float(job.saved_step or 0)),))
        return
    waited = turn.now.seconds - track.state_seconds
    patience = job.spec.checkpoint_grace_seconds + REPORT_GRACE_SECONDS
    if track.saved and waited > patience:
        patience += fall_seconds(turn, job.gpu_ids)
    if waited > patience:
        why = "its watts did not fall" if track.saved else "no checkpoint within its grace"
        if track.ended:
            _failed(
                turn,
                track,
                AttemptStatus(job.spec.job_id, job.attempt, track.ended, job.exit_code, why),
            )
        else:
            refuse_pause(turn, track, why)


def watts_gone(turn: Turn, track: JobTrack) -> bool:
    """Whether every GPU the job had is back at about its idle power, or is somebody else's."""
    idle = turn.idle_watts_of
    for gpu_id in track.job.gpu_ids:
        gpu = turn.state.gpus.get(gpu_id)
        if gpu is None or gpu.job_id not in {None, track.job.spec.job_id}:
            continue
        if gpu.power_watts > idle(gpu_id) * IDLE_FACTOR + IDLE_MARGIN_WATTS:
            return False
    return True


def _current(turn: Turn, job_id: str, attempt: int) -> JobTrack | None:
    """The job, if the message speaks of its present attempt."""
    track = turn.state.jobs.get(job_id)
    return track if track is not None and track.job.attempt == attempt else None
