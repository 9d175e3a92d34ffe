"""What is read: one Observation taken in, and what the loop learns from it.

Readings that a disturbed supply made are not believed (:mod:`gridaware.control.ridethrough`): until
they are sound again everything stays as the last sound ones left it.
"""

from gridaware.control.fleet import absorb_readings
from gridaware.control.metered import take_meter, uncertain_share
from gridaware.control.situation import absorb_jobs, absorb_unmanaged, target_of
from gridaware.control.state import METER_HISTORY, Turn
from gridaware.domain.reading import Observation, Quality
from gridaware.planning.targets import is_rising

__all__ = ["absorb", "track_readings"]

RAY_SILENT_SECONDS = 15.0
METER_SETTLE_SECONDS = 2.0
UNHEARD_SECONDS = 60.0
"""What an earlier controller knew of a node stands for this long."""
OFFSET_SECONDS = 10.0
"""Time constant of what the overhead model leaves out."""


def absorb(turn: Turn, observation: Observation) -> None:
    """Take one reading of the world in."""
    state, now = turn.state, turn.now
    state.gpu_watts = observation.gpu_watts + _unheard_watts(turn, observation)
    take_meter(turn, observation)
    _take_ray(turn, observation)
    whole = observation.meter.quality is not Quality.MISSING
    if whole and (not state.meter or now.seconds - state.meter[-1][0] >= 0.9):
        state.meter.append((now.seconds, state.meter_watts))
        del state.meter[:-METER_HISTORY]
    absorb_readings(turn, observation.nodes)
    absorb_jobs(turn, observation.jobs)
    absorb_unmanaged(turn)
    track_readings(turn)


def _take_ray(turn: Turn, observation: Observation) -> None:
    """What Ray says is free; its silence matters as soon as there is a job."""
    state, now = turn.state, turn.now.seconds
    state.ray_free_gpus = observation.ray_free_gpus
    state.ray_total_gpus = observation.ray_total_gpus
    open_jobs = any(not track.job.state.terminal for track in state.jobs.values())
    if observation.ray_free_gpus is not None or not open_jobs:
        state.ray_seconds = now
        turn.calm("ray-silent")
    elif now - state.ray_seconds > RAY_SILENT_SECONDS:
        turn.alarm("ray-silent", "Ray does not answer: jobs run on, none starts, resumes or stops")


def _unheard_watts(turn: Turn, observation: Observation) -> float:
    """What GPUs drew that this controller has not heard of yet, since it has just been started."""
    heard = {node.node_id for node in observation.nodes}
    return sum(
        gpu.power_watts
        for gpu in turn.state.gpus.values()
        if gpu.node_id not in heard and turn.now.seconds - gpu.seen_seconds < UNHEARD_SECONDS
    )


def track_readings(turn: Turn) -> None:
    """Let the loop learn from the reading just taken how far the site is from its plan."""
    state = turn.state
    target = target_of(turn)
    _learn_offset(turn)
    aim, hard = target.aim, target.hard_limit
    interval = aim.settlement_interval_seconds if aim is not None else 60.0
    if hard is not None:
        interval = min(interval, hard.averaging_seconds)
    state.tracker = state.tracker.follow(
        turn.now.seconds,
        measured_watts=state.meter_watts,
        # Without the meter nothing can be learned of what lies between it and the GPUs.
        expected_watts=(
            state.meter_watts / (1.0 + state.tracker.bias)
            if state.meter_silent
            else state.expected_watts
        ),
        target_watts=None if is_rising(target) and hard is None else target.limit_watts,
        interval_seconds=interval,
        interval_from_seconds=None if aim is None else _ready_seconds(turn, aim.event_ids),
        uncertain_share=uncertain_share(state),
    )


def _ready_seconds(turn: Turn, event_ids: tuple[str, ...]) -> float | None:
    """When the first settlement interval of what binds begins: at the event's deadline."""
    track = turn.state.events.get(event_ids[0]) if event_ids else None
    if track is None:
        return None
    event, now = track.event, turn.now
    deadline = turn.state.site.programme(event.programme_id).deadline_seconds
    since = (max(event.request.start, event.received_at) - now.wall).total_seconds()
    return now.seconds + since + deadline


def _learn_offset(turn: Turn) -> None:
    """Learn what the overhead model leaves out, while no limits of ours are in force.

    Under limits the tracker learns it, together with what the curves leave out; two that learn the
    same error would chase each other.
    """
    state, now = turn.state, turn.now.seconds
    changed = max((node.lease_seconds for node in state.nodes.values()), default=-1e9)
    since, state.offset_seconds = now - state.offset_seconds, now
    limited = any(node.limits_watts for node in state.nodes.values())
    if limited or now - changed < METER_SETTLE_SECONDS or not state.gpus or state.meter_silent:
        return
    seen = state.meter_watts - state.site.overhead.meter_watts(state.gpu_watts)
    share = 1.0 if since > 60.0 else min(since / OFFSET_SECONDS, 1.0)
    state.offset_watts += share * (seen - state.offset_watts)
