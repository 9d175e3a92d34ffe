"""From what is remembered to a question: what every job draws, may lose, and must stay under."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gridaware.control.fleet import STALE_SECONDS
from gridaware.control.slow import as_it_stands, too_slow
from gridaware.control.smoothing import smoothed
from gridaware.control.state import GpuTrack, JobTrack, State, Turn
from gridaware.control.tenants import as_the_strictest
from gridaware.domain.curve import Curve
from gridaware.domain.event import GridEvent
from gridaware.domain.fleet import Gpu
from gridaware.domain.job import LOSS_WINDOW_SECONDS, JobState
from gridaware.domain.reading import JobObservation
from gridaware.domain.situation import JobView, Situation
from gridaware.domain.target import PowerTarget
from gridaware.planning.admission import Admission, Room, Waiting, admit
from gridaware.planning.learning import CurveLearner
from gridaware.planning.targets import Descent, Release, is_rising, power_target

__all__ = [
    "Question",
    "absorb_jobs",
    "absorb_unmanaged",
    "admissions",
    "due_at",
    "is_late",
    "question_of",
    "startable",
    "target_of",
    "waiting_jobs",
]

SETTLE_SECONDS = 1.5
"""After a change of limits a job's draw says nothing about its cap for this long."""
STEADY_SECONDS = 8.0
"""Nor does its step rate, which is a mean over seconds."""
PAUSE_OVERHEAD_SECONDS = 20.0
"""Assumed cost of one pause and resume until a job has shown its own: start-up and warm-up."""
PAUSED_PRIORITY = 1_000_000
"""Above every priority that a user may ask for."""
UNMANAGED = "unmanaged:"
UNSEEN_SECONDS = 5.0
"""From a job's first word to the reading that shows its GPUs, at most."""
_SEEN = {JobState.RUNNING, JobState.CAPPED, JobState.STALLED, JobState.PAUSING}
_COMING = {JobState.STARTING, JobState.RESUMING}


@dataclass(frozen=True, slots=True)
class Question:
    """A situation, and what its answer needs to be carried out."""

    situation: Situation
    gpus_of: dict[str, tuple[str, ...]]
    """GPU ids of each job of the situation."""
    target: PowerTarget
    """At the meter."""


def absorb_jobs(turn: Turn, observed: tuple[JobObservation, ...]) -> None:
    """Take in what jobs drew and how far they came since the last tick."""
    state = turn.state
    by_job = _gpus_by_job(state)
    rates = {seen.job_id: seen for seen in observed}
    for job_id, track in state.jobs.items():
        if track.job.state.terminal or track.job.state in {JobState.QUEUED, JobState.HELD}:
            continue
        tracks = by_job.get(job_id, [])
        track.draw_watts = sum(gpu.power_watts for gpu in tracks)
        seen = rates.get(job_id)
        if seen is not None and seen.attempt == track.job.attempt:
            track.steps_per_second = seen.steps_per_second
            if seen.step != track.job.step or seen.busy:
                track.progress_seconds = turn.now.seconds - seen.age_seconds
                track.job = replace(track.job, step=seen.step)
        _learn(turn, track, tracks)
        _account(turn, track)


def _learn(turn: Turn, track: JobTrack, tracks: list[GpuTrack]) -> None:
    """Let a settled reading teach the job's curve."""
    state, now = turn.state, turn.now.seconds
    if track.job.state not in {JobState.RUNNING, JobState.CAPPED} or not tracks:
        return
    changed = max(state.nodes[gpu.node_id].lease_seconds for gpu in tracks)
    since = min(now - changed, now - track.state_seconds + SETTLE_SECONDS)
    working = track.steps_per_second > 0 or not track.job.spec.pausable
    if since < SETTLE_SECONDS or not working:
        return
    cap = min(gpu.enforced_watts for gpu in tracks)
    # A GPU that did not take its limit draws what it likes; the slowest still sets the pace.
    under = [g.power_watts for g in tracks if g.enforced_watts <= 1.01 * cap and not g.astray]
    if not under:
        return
    rate = track.steps_per_second if since >= STEADY_SECONDS else None
    learned = track.learner.observe(cap, sum(under) / len(under), rate)
    if learned.differs(track.learner):
        track.curve = None
    track.learner = learned


def _account(turn: Turn, track: JobTrack) -> None:
    """Book the throughput lost since the last tick, and what may still be lost."""
    seconds = turn.now.seconds - track.account_seconds
    track.account_seconds = turn.now.seconds
    job = track.job
    if job.started_at is None:
        return
    if job.state in {JobState.PAUSED, JobState.RESUMING}:
        # The user's own pause is no loss that the tier has to answer for.
        throughput = 1.0 if track.paused_by not in {"", "event"} else 0.0
    elif job.cap_watts is not None and track.curve is not None:
        throughput = track.curve.throughput_at(job.cap_watts)
    else:
        throughput = 1.0
    track.account = track.account.add(seconds, throughput)
    track.lost_seconds += max(seconds, 0.0) * (1.0 - throughput)
    track.loss_budget_seconds = track.account.loss_budget_seconds(
        job.spec.tier.allowed_loss, job.spec.expected_seconds
    )


def target_of(turn: Turn) -> PowerTarget:
    """What the site may draw at its meter, now."""
    state = turn.state
    release = None
    ramp = state.site.ramp.up_watts_per_minute
    if state.release_seconds is not None and ramp is not None and not state.ramp_waived:
        release = Release(state.release_seconds, state.release_watts, _ceiling(turn, ramp))
    descent = None
    if state.descent_seconds is not None:
        descent = Descent(state.descent_seconds, state.descent_watts)
    return power_target(
        turn.now,
        [track.event for track in state.events.values()],
        {p.programme_id: p for p in state.site.programmes_at(turn.now.wall)},
        hard_limit=state.site.hard_limit,
        ramp=state.site.ramp,
        descent=descent,
        release=release,
    )


def _ceiling(turn: Turn, ramp_watts_per_minute: float) -> float | None:
    """The pre-event level until the last restore slot has ended; from there on by the ramp.

    The work may have grown during the event: what it draws more comes no faster than the rest.
    """
    state = turn.state
    if state.ceiling_watts is None or state.release_seconds is None:
        return None
    beyond = turn.now.seconds - state.release_seconds - state.slots_seconds
    return state.ceiling_watts + max(beyond, 0.0) * ramp_watts_per_minute / 60.0


def is_late(turn: Turn, event: GridEvent) -> bool:
    """Whether the time for the full response is over."""
    return turn.now.wall >= due_at(turn, event)


def due_at(turn: Turn, event: GridEvent) -> datetime:
    """When the full response is due."""
    programme = turn.state.site.rules_of(event)
    begun = max(event.request.start, event.received_at)
    return begun + timedelta(seconds=programme.deadline_seconds)


def question_of(turn: Turn, acting: list[GridEvent], due_seconds: float = float("inf")) -> Question:
    """Everything the strategy may look at, now.

    ``due_seconds``: after how long the answer must be obeyed, where no acting event says so.
    """
    state = turn.state
    gpus = {gpu.gpu_id: gpu for node in state.nodes.values() for gpu in node.node.gpus}
    by_job = _gpus_by_job(state)
    late = too_slow(turn, acting, due_seconds)
    views: list[JobView] = []
    gpus_of: dict[str, tuple[str, ...]] = {}
    for job_id, track in state.jobs.items():
        tracks = by_job.get(job_id, [])
        view = _view(turn, track, tracks, gpus)
        if view is not None:
            some_late = any(gpu.gpu_id in late for gpu in tracks)
            views.append(as_it_stands(view) if some_late else view)
            gpus_of[job_id] = tuple(gpu.gpu_id for gpu in tracks) or _awaited(turn, track)
    views = as_the_strictest(state, views, gpus_of)
    for view, gpu_id in _unmanaged(turn):
        views.append(as_it_stands(view) if gpu_id in late else view)
        gpus_of[view.job_id] = (gpu_id,)
    named = sum(view.draw_watts for view in views if view.state in _SEEN)
    target = target_of(turn)
    limit = target.limit_watts
    aim_watts = target.aim.watts if target.aim is not None else None
    hard = state.site.hard_limit is not None and limit is not None and limit != aim_watts
    asked = None if limit is None else state.tracker.asked_watts(limit)
    situation = Situation(
        jobs=tuple(views),
        other_gpu_watts=max(state.gpu_watts - named - _vanishing_watts(turn), 0.0),
        target_gpu_watts=None if asked is None else state.gpu_share_of(asked),
        horizon_seconds=_horizon(turn, acting),
        # The ramp of the way back binds as an obligation does.
        must=not acting or any(not event.voluntary for event in acting),
        rising=is_rising(target) and not hard,
        hard=hard,
        late=any(is_late(turn, event) for event in acting),
    )
    return Question(situation, gpus_of, target)


def _awaited(turn: Turn, track: JobTrack) -> tuple[str, ...]:
    """The GPUs on which a job that comes may appear: those that it had, else whichever are free.

    They are capped before it is there, or its first second would be uncapped.
    """
    if track.job.state not in _COMING and not _unseen(turn, track):
        return ()
    gpus = turn.state.gpus
    free = {g.gpu_id for g in gpus.values() if g.job_id is None and not g.unmanaged}
    had = tuple(gpu_id for gpu_id in track.job.gpu_ids if gpu_id in free)
    return had if len(had) == track.job.spec.gpus else tuple(g for g in gpus if g in free)


def _unseen(turn: Turn, track: JobTrack) -> bool:
    """Whether it is said to run and no reading has shown on which GPUs."""
    state = track.job.state
    came = turn.now.seconds - track.state_seconds < UNSEEN_SECONDS
    return state in {JobState.RUNNING, JobState.CAPPED} and came


def _view(
    turn: Turn, track: JobTrack, tracks: list[GpuTrack], gpus: dict[str, Gpu]
) -> JobView | None:
    """The job as the strategy sees it; None where it has nothing to give and nothing to ask.

    It counts with the GPUs that take limits. What the others draw stands among the watts that no
    plan changes; where none of them can be reached, the job does.
    """
    job, spec = track.job, track.job.spec
    by_event = track.paused_by in {"", "event"}
    unseen = not tracks and _unseen(turn, track)
    off = unseen or job.state in _COMING or (job.state is JobState.PAUSED and by_event)
    if not off:
        tracks = [gpu for gpu in tracks if turn.state.nodes[gpu.node_id].node.connected]
        if job.state not in _SEEN or not tracks or _left(track):
            return None
        tracks = [gpu for gpu in tracks if _takes_limits(gpu, gpus)] or tracks
    boards = [gpus[gpu.gpu_id] for gpu in tracks if gpu.gpu_id in gpus]
    boards = boards or [gpus[gpu_id] for gpu_id in job.gpu_ids if gpu_id in gpus]
    boards = boards or list(gpus.values())[:1]
    if not boards:
        return None
    found = min(board.found_limit_watts for board in boards)
    least = max(board.limits.least_watts for board in boards)
    settable = off or all(_takes_limits(gpu, gpus) for gpu in tracks)
    curve = _curve(turn, track, boards[0], found)
    if not off and any(gpu.astray for gpu in tracks):
        curve = _as_drawn(curve, tracks, found)
    now = turn.now.seconds
    return JobView(
        job_id=spec.job_id,
        tier=spec.tier,
        priority=spec.priority,
        state=JobState.STARTING if unseen else job.state,
        gpu_count=len(tracks) if tracks else spec.gpus,
        draw_watts=0.0 if off else sum(gpu.power_watts for gpu in tracks),
        cap_watts=found if job.cap_watts is None else min(job.cap_watts, found),
        found_watts=found,
        least_cap_watts=min(max(least, spec.min_cap_watts or 0.0), found) if settable else found,
        curve=curve,
        loss_budget_seconds=track.loss_budget_seconds,
        pausable=spec.pausable and spec.tier.pausable and now >= track.no_pause_until_seconds,
        pause_cost_seconds=PAUSE_OVERHEAD_SECONDS,
        since_change_seconds=now - track.changed_seconds,
    )


def _as_drawn(curve: Curve, tracks: list[GpuTrack], found_watts: float) -> Curve:
    """A job of which no GPU follows its cap draws what it draws, whatever is asked of it."""
    watts = max(sum(gpu.power_watts for gpu in tracks) / len(tracks), curve.idle_watts)
    return Curve(
        cap_watts=(0.5 * found_watts, found_watts),
        power_watts=(watts, watts),
        throughput=(1.0, 1.0),
        idle_watts=curve.idle_watts,
        quality="measured",
    )


def _takes_limits(gpu: GpuTrack, gpus: dict[str, Gpu]) -> bool:
    """Whether a limit asked of it is one that it obeys, as far as is said and measured."""
    board = gpus.get(gpu.gpu_id)
    return board is not None and board.can_set and gpu.error is None and not gpu.astray


def _left(track: JobTrack) -> bool:
    """Whether a pausing job has saved and has no process left: only the proof is awaited."""
    return track.job.state is JobState.PAUSING and track.saved and not track.staying


def _vanishing_watts(turn: Turn) -> float:
    """What readings still show of jobs that have just left: gone before it could be read.

    Not so on boards that smooth their power: there it is drawn until readings say otherwise.
    """
    gpus = turn.state.gpus
    leaving = [track for track in turn.state.jobs.values() if _left(track)]
    slow = smoothed(turn) if leaving else {}
    return sum(
        max(gpus[gpu_id].power_watts - turn.idle_watts_of(gpu_id), 0.0)
        for track in leaving
        for gpu_id in track.job.gpu_ids
        if gpu_id in gpus and gpu_id not in slow
    )


def _curve(turn: Turn, track: JobTrack, board: Gpu, found: float) -> Curve:
    made_for = f"{board.model} at {found:g} W"
    if track.curve is None or track.curve_of != made_for:
        of_class = turn.book.curve(board.model, track.job.spec.workload, board.limits)
        track.curve, track.curve_of = track.learner.curve(of_class, found), made_for
    return track.curve


def absorb_unmanaged(turn: Turn) -> None:
    """Let settled readings teach the curves of GPUs with processes that are not ours.

    Done as readings come in, so that a signal finds the curves made.
    """
    if turn.state.site.policy.unmanaged_tier is None:
        return
    for track, gpu in _cappable(turn):
        node = turn.state.nodes[track.node_id]
        if turn.now.seconds - node.lease_seconds < SETTLE_SECONDS and track.learner is not None:
            continue
        before = track.learner or CurveLearner()
        track.learner = before.observe(_cap_of(track, gpu), track.power_watts)
        if track.learner.differs(before):
            of_class = turn.book.curve(gpu.model, None, gpu.limits)
            track.curve = track.learner.curve(of_class, gpu.found_limit_watts)


def _cappable(turn: Turn) -> Iterator[tuple[GpuTrack, Gpu]]:
    """GPUs with processes that are not ours, whose limits can be set."""
    gpus = turn.state.gpus
    for node in turn.state.nodes.values():
        for gpu in node.node.gpus:
            track = gpus.get(gpu.gpu_id)
            if track is None or not track.unmanaged or track.job_id is not None:
                continue
            if node.node.connected and _takes_limits(track, {gpu.gpu_id: gpu}):
                yield track, gpu


def _cap_of(track: GpuTrack, gpu: Gpu) -> float:
    return min(track.enforced_watts or gpu.found_limit_watts, gpu.found_limit_watts)


def _unmanaged(turn: Turn) -> list[tuple[JobView, str]]:
    """GPUs with processes that are not ours, where the policy lets them be capped."""
    tier = turn.state.site.policy.unmanaged_tier
    if tier is None:
        return []
    views = []
    for track, gpu in _cappable(turn):
        of_class = turn.book.curve(gpu.model, None, gpu.limits)
        view = JobView(
            job_id=UNMANAGED + track.gpu_id,
            tier=tier,
            priority=0,
            state=JobState.RUNNING,
            gpu_count=1,
            draw_watts=track.power_watts,
            cap_watts=_cap_of(track, gpu),
            found_watts=gpu.found_limit_watts,
            least_cap_watts=gpu.limits.least_watts,
            curve=track.curve or of_class,
            loss_budget_seconds=tier.allowed_loss * LOSS_WINDOW_SECONDS,
            pausable=False,
        )
        views.append((view, track.gpu_id))
    return views


def _gpus_by_job(state: State) -> dict[str, list[GpuTrack]]:
    by_job: dict[str, list[GpuTrack]] = {}
    for gpu in state.gpus.values():
        if gpu.job_id is not None:
            by_job.setdefault(gpu.job_id, []).append(gpu)
    return by_job


def _horizon(turn: Turn, acting: list[GridEvent]) -> float:
    """How long what is asked will hold; open ends by their programme's longest, else 6 h."""
    seconds = []
    for event in acting:
        if event.request.end is not None:
            seconds.append((event.request.end - turn.now.wall).total_seconds())
        else:
            programme = turn.state.site.rules_of(event)
            seconds.append(programme.max_duration_seconds or LOSS_WINDOW_SECONDS)
    return max(max(seconds, default=60.0), 1.0)


def admissions(turn: Turn, *, closed: bool) -> tuple[Admission, ...]:
    """What becomes of every waiting job now; jobs paused for the grid come before any queue."""
    state = turn.state
    paused = set(waiting_jobs(state))
    queue = [
        Waiting(
            job_id=job_id,
            gpus=track.job.spec.gpus,
            placement=track.job.spec.placement,
            priority=PAUSED_PRIORITY if job_id in paused else track.job.spec.priority,
            arrival=track.job.submitted_at.timestamp(),
        )
        for job_id, track in state.jobs.items()
        if job_id in paused
        or (track.job.state is JobState.QUEUED and turn.now.seconds >= track.retry_seconds)
    ]
    return admit(queue, _room(turn), closed=closed) if queue else ()


def waiting_jobs(state: State) -> list[str]:
    """Jobs that were paused for the grid and are to run again."""
    return [
        job_id
        for job_id, track in state.jobs.items()
        if track.job.state is JobState.PAUSED and track.paused_by in {"", "event"}
    ]


def startable(turn: Turn, track: JobTrack) -> bool:
    """Whether a paused job's GPUs are free in Ray and on the nodes."""
    spec = track.job.spec
    waiting = Waiting(spec.job_id, spec.gpus, spec.placement, spec.priority, 0.0)
    return admit([waiting], _room(turn))[0].outcome == "start"


def _room(turn: Turn) -> Room:
    """Free GPUs: nobody's process on them, on nodes that answer and take jobs."""
    state = turn.state
    reserved = sum(
        track.job.spec.gpus
        for track in state.jobs.values()
        if track.job.state in _COMING and not track.nodes
    )
    free: dict[str, int] = {}
    total: dict[str, int] = {}
    for node_id, node in state.nodes.items():
        total[node_id] = len(node.node.gpus)
        if node.node.cordoned or not node.node.connected:
            continue
        free[node_id] = sum(
            1
            for gpu in node.node.gpus
            if (seen := state.gpus.get(gpu.gpu_id)) is not None
            and seen.job_id is None
            and not seen.unmanaged
            and turn.now.seconds - seen.seen_seconds <= STALE_SECONDS
        )
    cluster = state.ray_free_gpus
    return Room(free, total, None if cluster is None else max(cluster - reserved, 0.0))
