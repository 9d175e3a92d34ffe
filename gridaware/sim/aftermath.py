"""What only the end of a world shows: everything given back, told once, and written down."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Any

from gridaware.control.codec import to_builtins
from gridaware.control.replay import rebuild
from gridaware.control.takeover import LONGEST_SECONDS
from gridaware.sim.world import World

__all__ = ["given_back", "replayed", "results", "resumed", "taken_over", "told"]

ENDS = {"completed", "cancelled", "opted-out", "failed"}


def resumed(world: World, paused_steps: Mapping[tuple[str, int], int]) -> Iterator[str]:
    """Jobs that did not begin again at exactly the step they had saved."""
    for job_id, attempt, step in world.ray.starts:
        saved = paused_steps.get((job_id, attempt - 1))
        if saved is not None and saved != step:
            yield f"{job_id}-a{attempt} began at step {step}, saved was {saved}"


def given_back(world: World, found_watts: Mapping[str, float]) -> Iterator[str]:
    """GPUs that are not left as they were found, and leases that nobody needs any more."""
    if world.spec.site.hard_limit is not None and not world.control.alive:
        return  # a connection limit stands without a controller, until a person releases it
    for slot in world.gpus():
        gpu_id, watts = slot.uuid.decode(), slot.requested_watts
        if abs(watts - found_watts[gpu_id]) > 0.01:
            yield (
                f"{gpu_id} of node-{slot.node + 1} is left at {watts:.1f} W, "
                f"found were {found_watts[gpu_id]:.1f} W"
            )
    for node in world.nodes.values():
        if node.holder.lease is not None or node.holder.holding:
            yield f"{node.node_id} still holds {node.holder.lease}"
    for node_id, track in world.control.machine.state.nodes.items():
        if world.control.alive and not track.lease.empty:
            yield f"control still has {track.lease} for {node_id}"


def results(world: World, acted: AbstractSet[str], *, crashed: bool) -> Iterator[str]:
    """Events that acted and have not one final result.

    A controller that crashed between computing one and writing that down computes it once more.
    """
    finals = [event_id for event_id, final in world.settled if final]
    for event_id in sorted(acted):
        count = finals.count(event_id)
        if count != 1 and not (crashed and count == 2):
            state = world.control.machine.state.events[event_id].event.state.value
            yield f"{event_id} ({state}) has {count} final results"


def told(world: World, acted: AbstractSet[str]) -> Iterator[str]:
    """Events whose sender did not hear one end, and nothing after it."""
    for event_id in world.control.machine.state.events:
        heard = [status for who, status in world.told if who == event_id]
        heard = [one for one, other in pairwise([*heard, ""]) if one != other]
        ends = [status for status in heard if status in ENDS]
        if len(ends) > 1 or (ends and heard[-1] != ends[0]):
            yield f"{event_id} was told {heard}"
        if event_id in acted and not ends:
            yield f"{event_id} acted and never heard an end: {heard}"


def replayed(world: World, half: tuple[dict[str, Any], int] | None) -> Iterator[str]:
    """Where the ledger, whole or after a snapshot half way, tells another story."""
    live = to_builtins(world.control.machine.state)
    whole = rebuild(world.book, None, world.ledger.entries)
    yield from (f"replayed: {difference}" for difference in whole.differences[:3])
    yield from _differs("from the ledger", live, to_builtins(whole.machine.state))
    if half is not None:
        snapshot, seq = half
        rest = rebuild(world.book, snapshot, world.ledger.entries[seq:])
        yield from _differs("from a snapshot", live, to_builtins(rest.machine.state))


def taken_over(world: World) -> Iterator[str]:
    """Decisions of a controller that had not heard every node yet, though no event had just come.

    Read from the ledger alone: whom the controller before spoke with, and who has said hello since.
    """
    connected: set[str] = set()
    awaited: set[str] = set()
    decided: set[str] = set()
    until: float | None = None
    for _, body in world.ledger.entries:
        value, seconds = body["value"], body["moment"]["seconds"]
        if until is not None and seconds >= until:
            awaited.clear()
        match body["type"]:
            case "Started":
                awaited, connected, until = awaited | connected, set(), None
            case "Tick" if until is None:
                until = seconds + LONGEST_SECONDS
            case "Hello":
                connected.add(value["node_id"])
                awaited.discard(value["node_id"])
            case "NodeLost":
                connected.discard(value["node_id"])
            case "Decide":
                if awaited and decided.issuperset(value["event_ids"]):
                    yield f"{value['decision_id']} did not wait for {', '.join(sorted(awaited))}"
                decided.update(value["event_ids"])


def _differs(how: str, live: dict[str, Any], again: dict[str, Any]) -> Iterator[str]:
    odd = [name for name in live if live[name] != again.get(name)]
    if odd:
        yield f"the state {how} differs in {', '.join(odd)}"
