"""Nodes and their GPUs: who is there, what they hold, what they read back, what they report."""

from dataclasses import replace

from gridaware.control.events import note_acknowledged
from gridaware.control.state import GpuTrack, NodeTrack, Turn
from gridaware.domain.fleet import Node
from gridaware.domain.lease import Lease
from gridaware.domain.reading import GpuObservation, NodeObservation, Quality
from gridaware.domain.wire import Acknowledged, Hello, NodeFault

__all__ = [
    "STALE_SECONDS",
    "absorb_presence",
    "absorb_readings",
    "on_acknowledged",
    "on_fault",
    "on_hello",
    "on_node_command",
    "on_node_lost",
]

STALE_SECONDS = 5.0
"""A node whose newest sample is older is not believed, and an alarm stands."""


_OVER = (
    "limit-not-set",
    "device-lost",
    "device-hung",
    "device-timeout",
    "driver-part-gone",
    "device-reset-required",
    "device-in-use",
    "device-no-permission",
)
"""Alarms of a GPU that are over once it answers, or may be set, again."""


def on_hello(turn: Turn, hello: Hello) -> bool:
    """An agent is there, perhaps again, perhaps holding what an earlier controller told it.

    Returns whether its lease is over and it is giving the limits back by itself, in its own slot
    of the ramp: then it is best left alone.
    """
    state = turn.state
    known = state.nodes.get(hello.node_id)
    node = Node(
        node_id=hello.node_id,
        boot_id=hello.boot_id,
        driver_epoch=hello.driver_epoch,
        gpus=hello.gpus,
        cluster_id=hello.cluster_id,
        connected=True,
        cordoned=known.node.cordoned if known else False,
        capabilities=hello.capabilities,
        relay_id=hello.relay_id,
    )
    held, restoring = _held(hello)
    if known is not None and _has_forgotten(known, hello):
        node, held = _remember(turn, known, node)
    if known is None:
        known = NodeTrack(node, held, decision_id=held.lease_id, agent_socket=hello.agent_socket)
        state.nodes[hello.node_id] = known
    else:
        known.node = node
        known.agent_socket = hello.agent_socket
        known.forgetful = hello.fresh
        if held.lease_id and held.lease_id != known.decision_id:
            # The agent obeyed a decision that the ledger lost in a crash, or it missed a later
            # one: either way it holds what it says.
            turn.alarm(
                "decision-recovered",
                f"{hello.node_id} holds {held.lease_id}; the last sent was {known.decision_id}",
                hello.node_id,
            )
            known.decision_id = held.lease_id
        known.lease = held
        known.acked_sequence = known.sequence if restoring else known.acked_sequence
    left = held.duration_seconds
    known.lease_ends_seconds = None if left is None else turn.now.seconds + left
    known.limits_watts = dict(held.standing_watts) | dict(held.limits_watts)
    known.standing_watts = dict(held.standing_watts)
    present = {gpu.gpu_id for gpu in hello.gpus}
    for gpu_id in [g for g, t in state.gpus.items() if t.node_id == hello.node_id]:
        if gpu_id not in present:
            turn.alarm("gpu-lost", f"{hello.node_id} no longer has {gpu_id}", gpu_id)
            del state.gpus[gpu_id]
    for gpu in hello.gpus:
        turn.calm("gpu-lost", gpu.gpu_id)
        track = state.gpus.setdefault(gpu.gpu_id, GpuTrack(gpu.gpu_id, hello.node_id))
        track.node_id, track.error = hello.node_id, None
        track.enforced_watts = track.enforced_watts or gpu.found_limit_watts
    if all(gpu.can_set for gpu in hello.gpus):
        turn.calm("device-no-permission", hello.node_id)
    for gpu in hello.gpus:
        if not gpu.can_set:
            turn.alarm(
                "device-no-permission",
                f"{hello.node_id} may not set limits: its jobs can only be paused",
                hello.node_id,
            )
    turn.calm("node-lost", hello.node_id)
    turn.publish("node", hello.node_id)
    return restoring


def _has_forgotten(known: NodeTrack, hello: Hello) -> bool:
    """Whether an agent lost its journal while limits of ours stood: they were not found."""
    same = (known.node.boot_id, known.node.driver_epoch) == (hello.boot_id, hello.driver_epoch)
    return hello.fresh and same and bool(known.limits_watts)


def _remember(turn: Turn, known: NodeTrack, node: Node) -> tuple[Node, Lease]:
    """The node with the limits that were found, and the lease that it has forgotten."""
    found = {gpu.gpu_id: gpu.found_limit_watts for gpu in known.node.gpus}
    gpus = tuple(
        replace(gpu, found_limit_watts=max(gpu.found_limit_watts, found[gpu.gpu_id]))
        if gpu.gpu_id in known.limits_watts and gpu.gpu_id in found
        else gpu
        for gpu in node.gpus
    )
    turn.alarm(
        "journal-lost",
        f"the agent of {node.node_id} has lost its journal; it is told what was found",
        node.node_id,
    )
    ends = known.lease_ends_seconds
    # One that is over is given for a moment more, so that its slot paces the way back.
    left = None if ends is None else max(ends - turn.now.seconds, 1.0)
    lease = replace(known.lease, duration_seconds=left) if known.lease.limits_watts else known.lease
    return replace(node, gpus=gpus), lease


def _held(hello: Hello) -> tuple[Lease, bool]:
    """What an agent holds, and whether it is on its own way back from it."""
    held = hello.lease or Lease(lease_id="")
    if held.duration_seconds is None:
        return held, False
    left = hello.lease_left_seconds or 0.0
    if held.limits_watts and left <= 0.0:
        return replace(held, limits_watts=(), duration_seconds=0.0), True
    return replace(held, duration_seconds=left), False


def on_node_lost(turn: Turn, node_id: str) -> None:
    """An agent's stream ended: it holds its lease alone; nothing is concluded about its jobs."""
    track = turn.state.nodes.get(node_id)
    if track is None:
        return
    track.node = replace(track.node, connected=False)
    turn.alarm("node-lost", f"the agent of {node_id} is not connected", node_id)
    turn.publish("node", node_id)


def on_acknowledged(turn: Turn, ack: Acknowledged) -> None:
    """What an agent read back after carrying out a desired state."""
    track = turn.state.nodes.get(ack.node_id)
    if track is None or ack.controller_epoch != turn.state.controller_epoch:
        return
    track.acked_sequence = max(track.acked_sequence, ack.sequence)
    for result in ack.results:
        before = track.results.get(result.gpu_id)
        track.results[result.gpu_id] = result
        if result.lock != (before.lock if before is not None else None):
            turn.publish("node", ack.node_id)
        gpu = turn.state.gpus.get(result.gpu_id)
        if gpu is None:
            continue
        gpu.error = result.error
        if result.enforced_watts is not None:
            gpu.enforced_watts = result.enforced_watts
        if result.error is not None:
            turn.alarm("limit-not-set", f"{result.gpu_id}: {result.error}", result.gpu_id)
        else:
            turn.calm("limit-not-set", result.gpu_id)
    note_acknowledged(turn, ack)


def on_fault(turn: Turn, fault: NodeFault) -> None:
    """An agent reports something a person should know."""
    subject = fault.gpu_id or fault.node_id
    if fault.over:
        turn.calm(fault.code, subject)
        return
    if fault.code in {"gpu-back", "permission-back"}:
        _gpu_back(turn, subject)
        return
    if fault.code == "frequency-blip":
        # Its frequency meter sits in the same supply as everything that is read here.
        turn.state.ride = turn.state.ride.declared(turn.now.seconds)
    if fault.code == "limit-obeyed":
        turn.calm("limit-ignored", subject)
        return
    turn.alarm(fault.code, f"{fault.node_id}: {fault.message}", subject)


def _gpu_back(turn: Turn, gpu_id: str) -> None:
    """A GPU that did not answer does so again: it can be capped again."""
    gpu = turn.state.gpus.get(gpu_id)
    if gpu is not None:
        gpu.error = None
    for code in _OVER:
        turn.calm(code, gpu_id)


def on_node_command(turn: Turn, node_id: str, verb: str) -> None:
    """Keep new jobs off a node, or let them on again."""
    track = turn.state.nodes.get(node_id)
    if track is None:
        turn.refuse("node-unknown", f"no node is called {node_id!r}", node_id)
        return
    track.node = replace(track.node, cordoned=verb == "cordon")
    turn.publish("node", node_id)
    turn.answer("accepted", node_id)


def absorb_readings(turn: Turn, nodes: tuple[NodeObservation, ...]) -> None:
    """Remember what every GPU drew, who is on it, and which nodes have gone quiet."""
    state = turn.state
    for node in nodes:
        if node.age_seconds > STALE_SECONDS:
            turn.alarm("node-silent", f"no readings from {node.node_id}", node.node_id)
            continue
        turn.calm("node-silent", node.node_id)
        for reading in node.gpus:
            gpu = state.gpus.get(reading.gpu_id)
            if gpu is None:
                continue
            if reading.quality is Quality.MISSING:
                gpu.power_watts = 0.0  # nobody knows; what it drew before is no better
                continue
            gpu.power_watts = reading.power_watts
            if reading.quality is Quality.GOOD:
                gpu.read_seconds = turn.now.seconds - node.age_seconds
            _see(turn, gpu, reading)


def absorb_presence(turn: Turn, nodes: tuple[NodeObservation, ...]) -> None:
    """Remember who is there and what holds, of a reading whose watts are not believed."""
    for node in nodes:
        if node.age_seconds > STALE_SECONDS:
            continue
        turn.calm("node-silent", node.node_id)
        for reading in node.gpus:
            gpu = turn.state.gpus.get(reading.gpu_id)
            if gpu is None or reading.quality is Quality.MISSING:
                continue
            if gpu.job_id != reading.job_id:  # other work draws otherwise
                gpu.power_watts = reading.power_watts
            _see(turn, gpu, reading)


def _see(turn: Turn, gpu: GpuTrack, reading: GpuObservation) -> None:
    gpu.enforced_watts = reading.enforced_limit_watts
    gpu.job_id = reading.job_id
    gpu.unmanaged = reading.unmanaged
    gpu.seen_seconds = turn.now.seconds
