"""What is read: one Observation taken in, and what the loop learns from it.

Readings that a disturbed supply made are not believed (:mod:`gridaware.control.ridethrough`): until
they are sound again everything stays as the last sound ones left it.
"""

from gridaware.control.fleet import absorb_presence, absorb_readings
from gridaware.control.follow import absorb_following
from gridaware.control.metered import note_meters, take_meter, uncertain_share
from gridaware.control.power import FAST_SECONDS
from gridaware.control.ridethrough import SAG_SHARE
from gridaware.control.situation import absorb_jobs, absorb_unmanaged, due_at, target_of
from gridaware.control.state import METER_HISTORY, Turn
from gridaware.domain.job import JobState
from gridaware.domain.reading import Method, NodeObservation, Observation, Quality
from gridaware.planning.targets import is_rising

__all__ = ["absorb", "track_readings"]

RAY_SILENT_SECONDS = 15.0
METER_SETTLE_SECONDS = 2.0
RESPONSE_SECONDS = 3.0
"""After a large command meter and sensors do not yet tell of the same moment."""
UNHEARD_SECONDS = 60.0
"""What an earlier controller knew of a node stands for this long."""
OFFSET_SECONDS = 10.0
"""Time constant of what the overhead model leaves out."""


def absorb(turn: Turn, observation: Observation) -> None:
    """Take one reading of the world in."""
    state, now = turn.state, turn.now
    _take_ray(turn, observation)
    note_meters(turn, observation)
    if _disturbed(turn, observation):
        absorb_presence(turn, observation.nodes)
        return
    state.gpu_watts = observation.gpu_watts + _unheard_watts(turn, observation)
    take_meter(turn, observation)
    whole = observation.meter.quality is not Quality.MISSING
    if whole and (not state.meter or now.seconds - state.meter[-1][0] >= 0.9):
        state.meter.append((now.seconds, state.meter_watts))
        del state.meter[:-METER_HISTORY]
    absorb_readings(turn, observation.nodes)
    absorb_following(turn)
    absorb_jobs(turn, observation.jobs)
    absorb_unmanaged(turn)
    track_readings(turn)


def _disturbed(turn: Turn, observation: Observation) -> bool:
    """Whether the reading is, or follows too closely on, one that a disturbed supply made."""
    state, now = turn.state, turn.now.seconds
    before = state.ride
    state.ride = before.look(
        now,
        observation.meter,
        sags=_sags(turn, observation),
        known=bool(state.meter),
        responding=now < state.busy_until_seconds - FAST_SECONDS + RESPONSE_SECONDS,
    )
    frozen = state.ride.frozen(now)
    # A meter that is silent or has changed has alarms of its own.
    if state.ride.count > before.count and state.ride.cause != "meter-gap":
        turn.alarm(
            "supply-disturbed",
            f"readings are not believed ({state.ride.cause}): limits stay as they are",
            state.ride.cause,
        )
    return frozen


def _sags(turn: Turn, observation: Observation) -> bool:
    """Whether meter or sensors show far less than is drawn.

    What is drawn is what each GPU drew by the last sound reading, or the limit that it has got
    since; of one whose work has changed, what it draws now.
    """
    state = turn.state
    if not state.meter:
        return False
    metered = observation.meter.quality is Quality.GOOD
    metered &= observation.meter.method is not Method.DEVICE_SUM
    sensed = observation.gpu_watts
    low_meter = metered and observation.meter.watts < SAG_SHARE * state.meter_watts
    if not (low_meter or sensed < SAG_SHARE * state.gpu_watts):
        return False  # nothing has fallen: no need to look at each GPU
    drawn = sum(_drawn(turn, node) for node in observation.nodes)
    at_meter = state.meter_of(drawn) * (1.0 + state.tracker.bias)
    return sensed < SAG_SHARE * drawn or (
        metered and observation.meter.watts < SAG_SHARE * min(at_meter, state.meter_watts)
    )


def _drawn(turn: Turn, node: NodeObservation) -> float:
    """What the GPUs of one node draw at least, by all that is known but their sensors now."""
    state = turn.state
    track = state.nodes.get(node.node_id)
    limits = {} if track is None else track.limits_watts
    watts = 0.0
    for seen in node.gpus:
        gpu = state.gpus.get(seen.gpu_id)
        works = seen.quality is not Quality.MISSING and (seen.unmanaged or seen.job_id is not None)
        if gpu is None or not works or gpu.job_id != seen.job_id:
            watts += seen.power_watts
        elif _leaving(turn, gpu.job_id):
            watts += min(seen.power_watts, turn.idle_watts_of(seen.gpu_id))
        else:
            watts += min(gpu.power_watts, limits.get(seen.gpu_id, gpu.power_watts))
    return watts


def _leaving(turn: Turn, job_id: str | None) -> bool:
    """Whether the job may drop its load at any moment, of its own accord or asked to."""
    track = None if job_id is None else turn.state.jobs.get(job_id)
    return track is not None and track.job.state not in {
        JobState.RUNNING,
        JobState.CAPPED,
        JobState.STALLED,
    }


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
        until_seconds=None if aim is None else _until_seconds(turn, aim.event_ids),
        uncertain_share=uncertain_share(state),
    )


def _until_seconds(turn: Turn, event_ids: tuple[str, ...]) -> float | None:
    """When what binds ends; None = it has no end, or nothing is owed."""
    track = turn.state.events.get(event_ids[0]) if event_ids else None
    end = None if track is None else track.event.request.end
    return None if end is None else turn.now.seconds + (end - turn.now.wall).total_seconds()


def _ready_seconds(turn: Turn, event_ids: tuple[str, ...]) -> float | None:
    """When the first settlement interval of what binds begins: at the event's deadline."""
    track = turn.state.events.get(event_ids[0]) if event_ids else None
    if track is None:
        return None
    return turn.now.seconds + (due_at(turn, track.event) - turn.now.wall).total_seconds()


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
    if state.takeover.waiting:
        return  # who was not heard yet draws what is not known
    seen = state.meter_watts - state.site.overhead.meter_watts(state.gpu_watts)
    share = 1.0 if since > 60.0 else min(since / OFFSET_SECONDS, 1.0)
    state.offset_watts += share * (seen - state.offset_watts)
