"""Which GPUs follow their caps, read by read, and the rungs that are taken for those that do not.

The rules are those of :mod:`gridaware.control.escalation`; here they meet state, jobs and alarms.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from gridaware.control.escalation import (
    RETRY_SECONDS,
    Astray,
    Follow,
    Rung,
    Sight,
    last_rung,
)
from gridaware.control.instructions import StopJob
from gridaware.control.jobs import GRID, request_pause
from gridaware.control.shortfall import above_watts
from gridaware.control.situation import Question
from gridaware.control.state import GpuTrack, JobTrack, NodeTrack, Turn
from gridaware.domain.event import Escalation, GridEvent
from gridaware.domain.fleet import Gpu
from gridaware.domain.job import JOB_LIFE, JobState
from gridaware.domain.plan import Plan

__all__ = ["absorb_following", "escalate", "keep_astray"]

NAMED_GPUS = 16
"""Ids that an escalation names; their number stands beside them."""
MOST_ESCALATIONS = 200
"""Of one event; the oldest are kept, since they tell how it began."""
_REASONS = {
    Rung.DEEPER_CAP: "CapDeeper",
    Rung.LOCK_CLOCKS: "LockClocks",
    Rung.PAUSE: "PauseNotFollowing",
    Rung.STOP: "StopNotFollowing",
}


@dataclass(slots=True)
class _Group:
    """The GPUs of one job that went astray; or one with processes that are not ours."""

    job_id: str
    subject: str
    gpus: list[GpuTrack] = field(default_factory=list)
    excess_watts: float = 0.0
    cap_watts: float = 0.0
    rung: Rung = Rung.NONE
    """The highest that one of its GPUs has just taken."""
    spent: bool = True
    """None of those that draw too much has a rung of its own left."""
    over: bool = False
    """One of them draws too much now: what was done is not enough."""
    cause: str = ""
    """Why the first of them does not follow."""


def absorb_following(turn: Turn) -> None:
    """See who follows, in the readings just taken; plan at once where somebody went astray."""
    state = turn.state
    for node in state.nodes.values():
        for gpu_id in node.limits_watts:
            gpu = state.gpus.get(gpu_id)
            if gpu is None or gpu.follow is None or gpu.read_seconds <= gpu.judged_seconds:
                continue  # nothing new was read of it
            gpu.judged_seconds = gpu.read_seconds
            before = gpu.follow
            quiet = before.over_seconds is None and not before.astray
            if quiet and gpu.power_watts <= before.cap_watts:
                continue  # nearly all of them, nearly always
            gpu.follow = before.see(_sight(turn, node, gpu), gpu.read_seconds)
            if gpu.follow.astray and not before.astray:
                state.planned_seconds = -1e9


def _sight(turn: Turn, node: NodeTrack, gpu: GpuTrack) -> Sight:
    board = _board(node, gpu.gpu_id)
    track = None if gpu.job_id is None else turn.state.jobs.get(gpu.job_id)
    workload = None if track is None else track.job.spec.workload
    return Sight(
        power_watts=gpu.power_watts,
        enforced_watts=gpu.enforced_watts,
        acknowledged=node.acked_sequence >= node.sequence,
        error=gpu.error,
        draw_at=partial(_draw_at, turn, board, workload),
    )


def _draw_at(turn: Turn, board: Gpu | None, workload: str | None, cap_watts: float) -> float:
    if board is None:
        return cap_watts
    return turn.book.curve(board.model, workload, board.limits).power_at(cap_watts)


def _board(node: NodeTrack, gpu_id: str) -> Gpu | None:
    return next((gpu for gpu in node.node.gpus if gpu.gpu_id == gpu_id), None)


def keep_astray(turn: Turn, plan: Plan, question: Question, caps: dict[str, float]) -> None:
    """Let GPUs that went astray keep their cap, which no plan gives them any longer.

    On the way back each is let go once there is room for all that it may then draw more.
    """
    situation = question.situation
    if situation.target_gpu_watts is None:
        return
    room = situation.target_gpu_watts - plan.expected_at_once_watts
    for gpu in turn.state.gpus.values():
        strays = gpu.follow is not None and (gpu.follow.astray or gpu.error)
        if gpu.follow is None or not strays or _is_capped(turn, gpu, caps):
            continue
        if situation.rising:
            more = _regained_watts(turn, gpu)
            if more <= room:
                room -= more
                continue
        caps[gpu.gpu_id] = gpu.follow.cap_watts


def _is_capped(turn: Turn, gpu: GpuTrack, caps: Mapping[str, float]) -> bool:
    """Whether the plan gives it a cap below its found limit, with the rest of its job."""
    board = _board(turn.state.nodes[gpu.node_id], gpu.gpu_id)
    found = float("inf") if board is None else board.found_limit_watts
    return caps.get(gpu.gpu_id, float("inf")) < found - 0.5


def _regained_watts(turn: Turn, gpu: GpuTrack) -> float:
    """What it may draw more once neither a deeper cap nor a clock lock holds it."""
    node = turn.state.nodes[gpu.node_id]
    board = _board(node, gpu.gpu_id)
    if board is None or gpu.follow is None:
        return 0.0
    if gpu.follow.deeper_watts is None and gpu.follow.lock_mhz is None:
        return 0.0  # nothing holds it
    track = None if gpu.job_id is None else turn.state.jobs.get(gpu.job_id)
    workload = None if track is None else track.job.spec.workload
    full = _draw_at(turn, board, workload, board.found_limit_watts)
    return max(full - gpu.power_watts, 0.0)


def escalate(
    turn: Turn,
    plan: Plan,
    question: Question,
    limits: dict[str, float],
    acting: list[GridEvent],
) -> dict[str, float]:
    """Note what is wanted of every GPU, and take the next rung for those that went astray.

    Args:
        turn: now.
        plan: what was just planned.
        question: what it answers.
        limits: to hold, by GPU; those of GPUs that went astray are lowered here.
        acting: events that owe something.

    Returns:
        Clocks that GPUs must not exceed, by GPU.
    """
    rising = question.situation.rising
    groups = {} if rising else _unreachable(turn)
    for gpu in turn.state.gpus.values():
        _want(turn, gpu, limits.get(gpu.gpu_id))
        if gpu.follow is not None and gpu.follow.astray:
            subject = gpu.job_id or gpu.gpu_id
            group = groups.setdefault(subject, _Group(gpu.job_id or "", subject))
            _climb(turn, gpu, group, climbs=not rising, locks=bool(acting))
    _calm_others(turn, groups)
    _retry_one(turn, groups)
    late = question.situation.late or question.situation.hard
    for group in groups.values():
        if not rising:
            _act_on(turn, plan, question, group, acting, late=late)
    follows = [(g.gpu_id, g.follow) for each in groups.values() for g in each.gpus if g.follow]
    limits |= {
        gpu_id: min(limits[gpu_id], follow.deeper_watts)
        for gpu_id, follow in follows
        if follow.deeper_watts is not None
    }
    # A connection limit that stands without an event stands by caps alone.
    return {
        gpu_id: follow.lock_mhz
        for gpu_id, follow in follows
        if follow.lock_mhz is not None and (acting or rising)
    }


def _want(turn: Turn, gpu: GpuTrack, cap_watts: float | None) -> None:
    now = turn.now.seconds
    if cap_watts is None:
        gpu.follow = None
    elif gpu.follow is not None:
        gpu.follow = gpu.follow.want(cap_watts, now)
    else:
        before = max(gpu.enforced_watts, gpu.power_watts, cap_watts)
        gpu.follow = Follow.of(cap_watts, before, now)


def _climb(turn: Turn, gpu: GpuTrack, group: _Group, *, climbs: bool, locks: bool) -> None:
    """Take the GPU's own next rung, and count it to its group."""
    now = turn.now.seconds
    node = turn.state.nodes[gpu.node_id]
    board = _board(node, gpu.gpu_id)
    assert gpu.follow is not None
    group.gpus.append(gpu)
    group.cause = group.cause or gpu.follow.astray
    group.excess_watts += max(gpu.power_watts - gpu.follow.cap_watts, 0.0)
    group.cap_watts = max(group.cap_watts, gpu.follow.cap_watts)
    if board is None or not climbs or not node.node.connected:
        return
    owner = None if gpu.job_id is None else turn.state.jobs.get(gpu.job_id)
    floor = 0.0 if owner is None else owner.job.spec.min_cap_watts or 0.0
    least = max(board.limits.least_watts, floor)
    range_mhz = board.clocks if locks else None
    gpu.follow, rung = gpu.follow.climb(gpu.power_watts, least, range_mhz, now)
    group.rung = max(group.rung, rung)
    if gpu.follow.over_seconds is not None:
        group.over = True
        group.spent = group.spent and gpu.follow.spent(least, range_mhz, now)


def _unreachable(turn: Turn) -> dict[str, _Group]:
    """Jobs at work on nodes alone whose agents are away and hold nothing of theirs."""
    state = turn.state
    groups: dict[str, _Group] = {}
    for job_id, track in state.jobs.items():
        gpus = [state.gpus[gpu_id] for gpu_id in track.job.gpu_ids if gpu_id in state.gpus]
        nodes = [(gpu, state.nodes[gpu.node_id]) for gpu in gpus]
        if not track.job.state.on_gpus or not gpus:
            continue
        if any(node.node.connected or gpu.gpu_id in node.limits_watts for gpu, node in nodes):
            continue
        watts = sum(gpu.power_watts for gpu in gpus)
        group = _Group(job_id, job_id, gpus, watts, over=True, cause=Astray.UNREACHABLE.value)
        groups[job_id] = group
    return groups


def _retry_one(turn: Turn, groups: dict[str, _Group]) -> None:
    """Let go of one lock that has held for long: its GPU may obey its cap by now.

    One at a time, and only where nothing is short: who does not obey draws too much until it is
    locked again.
    """
    locked = [
        gpu
        for group in groups.values()
        for gpu in group.gpus
        if gpu.follow is not None and gpu.follow.lock_mhz is not None
    ]
    oldest = min(locked, key=lambda gpu: gpu.follow.rung_seconds if gpu.follow else 0, default=None)
    if oldest is None or oldest.follow is None or turn.state.unresolved_watts > 0:
        return
    if turn.now.seconds - oldest.follow.rung_seconds >= RETRY_SECONDS:
        oldest.follow = oldest.follow.retried(turn.now.seconds)


def _act_on(
    turn: Turn,
    plan: Plan,
    question: Question,
    group: _Group,
    acting: list[GridEvent],
    *,
    late: bool,
) -> None:
    """Alarm, and take the job's own rungs where its GPUs have none left."""
    if group.cause != Astray.UNREACHABLE:  # that has the alarm of its node
        turn.alarm(
            "gpu-not-following",
            f"{len(group.gpus)} GPUs of {group.subject} draw {group.excess_watts:.0f} W more "
            f"than their caps allow ({group.cause})",
            group.subject,
        )
    above = above_watts(turn, question.target.limit_watts)
    track = turn.state.jobs.get(group.job_id)
    rung = group.rung
    if track is not None and above > 0 and group.over and group.spent and not rung:
        rung = last_rung(
            late=late,
            short=plan.shortfall_watts > 0,
            pausable=_pausable(turn, track),
            may_stop=track.job.spec.may_stop and track.job.state.on_gpus and not track.stopping,
        )
    if track is not None:
        _explain(track, group)
    if rung:
        _take(turn, group, rung, above, acting)
    if track is not None and rung is Rung.PAUSE:
        request_pause(turn, track, by=GRID)
    elif track is not None and rung is Rung.STOP:
        track.stopping = GRID
        turn.emit(StopJob(group.job_id, track.job.attempt))
        turn.publish("job", group.job_id)


def _pausable(turn: Turn, track: JobTrack) -> bool:
    spec = track.job.spec
    if not any(turn.state.nodes[node_id].node.connected for node_id in track.nodes):
        return False  # nobody could ask it
    asked = turn.now.seconds < track.no_pause_until_seconds
    allowed = JOB_LIFE.allows(track.job.state, "PauseRequested")
    return spec.pausable and spec.tier.pausable and allowed and not asked


def _take(
    turn: Turn, group: _Group, rung: Rung, above_watts: float, acting: list[GridEvent]
) -> None:
    """Write a rung down: on the events, on the job, and for the ledger."""
    step = Escalation(
        at=turn.now.wall,
        job_id=group.job_id,
        rung=rung.word,
        cause=group.cause,
        gpu_count=len(group.gpus),
        gpu_ids=tuple(gpu.gpu_id for gpu in group.gpus[:NAMED_GPUS]),
        excess_watts=round(group.excess_watts, 1),
        above_watts=round(above_watts, 1),
    )
    for event in acting:
        track = turn.state.events[event.event_id]
        if len(track.event.escalations) < MOST_ESCALATIONS:
            track.event = replace(track.event, escalations=(*track.event.escalations, step))
            turn.publish("event", event.event_id)
    turn.alarm(
        "escalated",
        f"{step.rung} for {step.gpu_count} GPUs of {group.subject}: {step.cause}",
        f"{group.subject}/{step.rung}",
    )
    job = turn.state.jobs.get(group.job_id)
    if job is not None and rung >= Rung.PAUSE:
        job.plan_reason = _REASONS[rung]
        job.plan_numbers = (float(len(group.gpus)), group.excess_watts, above_watts)
    if job is not None:
        turn.publish("job", group.job_id)


def _explain(track: JobTrack, group: _Group) -> None:
    """Say on the job which of its GPUs' rungs is in force, in place of what the plan made of it."""
    if track.job.state is JobState.PAUSING or track.stopping:
        return  # that says more
    follows = [gpu.follow for gpu in group.gpus if gpu.follow is not None]
    if any(follow.lock_mhz is not None for follow in follows):
        track.plan_reason = _REASONS[Rung.LOCK_CLOCKS]
    elif any(follow.deeper_watts is not None for follow in follows):
        track.plan_reason = _REASONS[Rung.DEEPER_CAP]
    else:
        if group.cause != Astray.UNREACHABLE and len(group.gpus) == len(track.job.gpu_ids):
            track.plan_reason, track.plan_numbers = "SpareNotFollowing", (track.draw_watts,)
        return
    track.plan_numbers = (float(len(group.gpus)), group.excess_watts, group.cap_watts)


def _calm_others(turn: Turn, groups: dict[str, _Group]) -> None:
    """Take the alarm down of whoever follows again."""
    name = "gpu-not-following"
    for key in [k for k in turn.state.alarms if k.startswith(f"{name}/")]:
        subject = key.partition("/")[2]
        if subject not in groups:
            turn.calm(name, subject)
