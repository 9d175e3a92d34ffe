"""What people read, made from the machine's state: one JSON body a thing, the same everywhere."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from gridaware.control.codec import to_builtins
from gridaware.control.state import JobTrack, NodeTrack, State
from gridaware.domain.event import GridEvent
from gridaware.domain.fleet import Gpu
from gridaware.domain.job import JobState, submission_id
from gridaware.domain.reasons import names_of, sentence

__all__ = ["Projection", "project"]

Projection = tuple[str, dict[str, Any]]
"""(state, body) of a document."""


def project(state: State, kind: str, thing_id: str, at: datetime) -> Projection | None:
    """The document of one thing; None where it is gone.

    Raises:
        KeyError: there is no such kind of document here.
    """
    return _PROJECTIONS[kind](state, thing_id, at)


def _job(state: State, job_id: str, at: datetime) -> Projection | None:
    track = state.jobs.get(job_id)
    if track is None:
        return None
    job, spec = track.job, track.job.spec
    body = to_builtins(spec) | to_builtins(job)
    del body["spec"], body["numbers"]
    body["runtime_env"] = json.loads(body.pop("runtime_env_json"))
    body["metadata"] = dict(spec.metadata)
    planned = bool(track.plan_reason) and not job.state.terminal
    body |= {
        "submission_id": submission_id(job_id, job.attempt) if job.attempt else None,
        "why": _why(track),
        "plan_reason": track.plan_reason if planned else None,
        "plan_why": _plan_sentence(track) if planned else None,
        # The last reading of a job that has left was of GPUs on their way down.
        "draw_watts": round(track.draw_watts, 1) if job.state.on_gpus else 0.0,
        "steps_per_second": round(track.steps_per_second, 4),
        "paused_by": track.paused_by or None,
        "stopping_by": None if job.state.terminal else track.stopping or None,
        "loss_budget_seconds": round(track.loss_budget_seconds, 1),
        "lost_seconds": round(track.lost_seconds, 1),
        "updated_at": at,
    }
    return job.state.value, body


def _why(track: JobTrack) -> str:
    if track.plan_reason and track.job.state is JobState.QUEUED:
        return _plan_sentence(track)  # what it waits for says more than that it was submitted
    return sentence(track.job.reason, _job_numbers(track))


def _job_numbers(track: JobTrack) -> dict[str, Any]:
    job = track.job
    step = job.saved_step if job.saved_step is not None else job.step
    known: dict[str, Any] = {
        "gpus": job.spec.gpus,
        "attempt": job.attempt,
        "step": step,
        "exit_code": job.exit_code,
        "failures": job.failures,
        "cap_watts": job.cap_watts,
    }
    numbers: dict[str, Any] = dict(job.numbers)
    return known | numbers


def _plan_sentence(track: JobTrack) -> str:
    named = zip(names_of(track.plan_reason), track.plan_numbers, strict=False)
    return sentence(track.plan_reason, dict(named))


def _event(state: State, event_id: str, at: datetime) -> Projection | None:
    track = state.events.get(event_id)
    if track is None:
        return None
    event = track.event
    numbers: dict[str, Any] = {"limit_watts": event.limit_watts, "revision": event.revision}
    body = to_builtins(event)
    body |= {
        "why": sentence(event.reason, numbers),
        "latency_seconds": _latencies(event),
        "decision_id": track.decision_id or None,
        "power_watts": round(state.meter_watts, 1),
        "voluntary_why": sentence(event.voluntary) if event.voluntary else None,
        "updated_at": at,
    }
    return event.state.value, body


def _latencies(event: GridEvent) -> dict[str, float | None]:
    """Seconds from the signal's arrival to each later clock."""
    clocks = event.clocks

    def since(seconds: float | None) -> float | None:
        return None if seconds is None else round(seconds - clocks.received_seconds, 4)

    return {
        "decided": since(clocks.decided_seconds),
        "accepted": since(clocks.accepted_seconds),
        "confirmed": since(clocks.confirmed_seconds),
    }


def _node(state: State, node_id: str, at: datetime) -> Projection | None:
    track = state.nodes.get(node_id)
    if track is None:
        return None
    present = track.node.gpus
    body = {
        "node_id": node_id,
        "state": _node_state(track),
        "cluster_id": track.node.cluster_id,
        "connected": track.node.connected,
        "relay_id": track.node.relay_id or None,
        "cordoned": track.node.cordoned,
        "capabilities": list(track.node.capabilities),
        "boot_id": track.node.boot_id,
        "driver_epoch": track.node.driver_epoch,
        "decision_id": track.decision_id or None,
        "acknowledged": track.acked_sequence >= track.sequence,
        "armed": track.arms.revision > 0 and track.arms.acked == track.arms.revision,
        "armed_responses": len(track.arms.responses) + len(track.arms.scheduled),
        "power_watts": round(
            sum(state.gpus[g.gpu_id].power_watts for g in present if g.gpu_id in state.gpus), 1
        ),
        "gpus": [_gpu(state, track, gpu) for gpu in present],
        "updated_at": at,
    }
    return str(body["state"]), body


def _node_state(track: NodeTrack) -> str:
    if not track.node.connected:
        return "lost"
    return "cordoned" if track.node.cordoned else "ready"


def _gpu(state: State, node: NodeTrack, gpu: Gpu) -> dict[str, Any]:
    seen = state.gpus.get(gpu.gpu_id)
    asked = node.limits_watts.get(gpu.gpu_id)
    enforced = seen.enforced_watts if seen else None
    lock_mhz = dict(node.lease.clocks_mhz).get(gpu.gpu_id)
    result = node.results.get(gpu.gpu_id)
    lock = None if lock_mhz is None or result is None else result.lock
    return {
        "gpu_id": gpu.gpu_id,
        "node_id": node.node.node_id,
        "index": gpu.index,
        "model": gpu.model,
        "power_watts": round(seen.power_watts, 1) if seen else None,
        "asked_limit_watts": asked,
        "enforced_limit_watts": enforced,
        "found_limit_watts": gpu.found_limit_watts,
        "least_limit_watts": gpu.limits.least_watts,
        "greatest_limit_watts": gpu.limits.greatest_watts,
        "asked_clock_mhz": lock_mhz,
        "clock_lock": lock.state if lock else None,
        "clock_mhz": lock.clock_mhz if lock else None,
        "can_set": gpu.can_set,
        "job_id": seen.job_id if seen else None,
        "unmanaged": seen.unmanaged if seen else False,
        "error": seen.error if seen else None,
    }


def _feed(state: State, feed_id: str, at: datetime) -> Projection | None:
    spec = state.feeds.get(feed_id)
    if spec is None:
        return None
    body = to_builtins(spec)
    body["settings"] = json.loads(body.pop("settings_json"))
    body["updated_at"] = at
    return "registered", body


def _policy(state: State, name: str, at: datetime) -> Projection | None:
    policy = state.site.policy
    if policy.name != name:
        return None
    return "active", to_builtins(policy) | {"active": True, "updated_at": at}


def _reading(state: State) -> dict[str, Any] | None:
    """Whose word the site's power is, and how far it can be trusted."""
    reading = state.reading
    if reading is None:
        return None
    return {
        "meter": reading.meter or None,
        "method": reading.method,
        "boundary": reading.boundary,
        "quality": reading.quality,
        "accuracy_share": reading.accuracy_share,
        "age_seconds": reading.age_seconds,
    }


def _status(state: State, site: str, at: datetime) -> Projection:
    del site
    acting = [t.event.event_id for t in state.events.values() if t.event.state.acting]
    open_events = [t.event.event_id for t in state.events.values() if t.event.state.open]
    states: dict[str, int] = {}
    for track in state.jobs.values():
        states[track.job.state.value] = states.get(track.job.state.value, 0) + 1
    body = {
        "site": state.site.name,
        "act": state.site.act,
        "policy": state.site.policy.name,
        "controller_epoch": state.controller_epoch,
        "power_watts": round(state.meter_watts, 1),
        "gpu_power_watts": round(state.gpu_watts, 1),
        "meter": _reading(state),
        "meters": [to_builtins(meter) for meter in state.meters],
        "target_watts": None if state.target_watts is None else round(state.target_watts, 1),
        "unresolved_watts": state.unresolved_watts,
        "firm_floor_broken": state.firm_floor_broken,
        "acting_events": acting,
        "open_events": open_events,
        "jobs": states,
        "nodes": {
            "connected": sum(t.node.connected for t in state.nodes.values()),
            "total": len(state.nodes),
        },
        "gpus": {"total": len(state.gpus), "free": state.ray_free_gpus},
        "alarms": sorted(key.removesuffix("/") for key in state.alarms),
        "updated_at": at,
    }
    return ("acting" if acting else "idle"), body


_PROJECTIONS: Mapping[str, Callable[[State, str, datetime], Projection | None]] = MappingProxyType(
    {
        "job": _job,
        "event": _event,
        "node": _node,
        "feed": _feed,
        "policy": _policy,
        "status": _status,
    }
)
