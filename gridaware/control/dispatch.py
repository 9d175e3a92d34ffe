"""Carries instructions out: each goes to the one port that knows how. Nothing here decides."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from gridaware.clock import Clock
from gridaware.control.instructions import (
    Alarm,
    Decide,
    Instruction,
    Publish,
    SampleAt,
    SendArms,
    SendCheckpoint,
    SendLease,
    SendTrigger,
    SettleEvent,
    StopJob,
    SubmitJob,
    TellFeed,
)
from gridaware.control.ports import AgentLink
from gridaware.control.state import State
from gridaware.domain.event import GridEvent
from gridaware.domain.job import JobSpec
from gridaware.domain.wire import Armed, Desired, SampleRate

__all__ = ["Dispatcher", "Effects"]


class Effects(Protocol):
    """What the controller's process does beyond talking to agents. Calls return at once."""

    def submit(self, spec: JobSpec, attempt: int) -> None:
        """Start an attempt in the cluster."""
        ...

    def stop(self, job_id: str, attempt: int) -> None:
        """End an attempt in the cluster."""
        ...

    def tell(self, event: GridEvent, status: str, delivered_watts: float | None) -> None:
        """Answer the grid's side."""
        ...

    def alarm(self, alarm: Alarm) -> None:
        """Tell a person."""
        ...

    def settle(self, event_id: str, *, final: bool) -> None:
        """Compute an event's report."""
        ...

    def publish(self, kind: str, thing_id: str) -> None:
        """Write what people read."""
        ...


@dataclass(slots=True)
class Dispatcher:
    """Hands each instruction to its port, in order."""

    link: AgentLink
    effects: Effects
    clock: Clock

    def carry_out(self, instructions: Iterable[Instruction], state: State) -> str | None:
        """Do everything; the id of the last decision, if one was made."""
        decision: str | None = None
        for instruction in instructions:
            match instruction:
                case SendLease():
                    self._send_lease(instruction, state)
                case SendTrigger(node_id=node_id, trigger=trigger):
                    self.link.send(node_id, trigger)
                case SendArms():
                    self._send_arms(instruction, state)
                case SendCheckpoint(node_id=node_id, request=request):
                    self.link.send(node_id, request)
                case SampleAt(hz=hz):
                    rate = SampleRate(hz)  # one for all, so that it is encoded once
                    for node_id in self.link.connected():
                        self.link.send(node_id, rate)
                case Decide():
                    decision = instruction.decision_id
                case _:
                    self._affect(instruction, state)
        return decision

    def _affect(self, instruction: Instruction, state: State) -> None:
        match instruction:
            case SubmitJob(job_id=job_id, attempt=attempt):
                self.effects.submit(state.jobs[job_id].job.spec, attempt)
            case StopJob(job_id=job_id, attempt=attempt):
                self.effects.stop(job_id, attempt)
            case TellFeed(event_id=event_id, status=status):
                event = state.events[event_id].event
                reference = event.reference.watts if event.reference else None
                delivered = None if reference is None else reference - state.meter_watts
                self.effects.tell(event, status, delivered)
            case Alarm():
                self.effects.alarm(instruction)
            case SettleEvent(event_id=event_id, final=final):
                self.effects.settle(event_id, final=final)
            case Publish(kind=kind, id=thing_id):
                self.effects.publish(kind, thing_id)
            case _:
                pass  # an Answer goes back to whoever posted the stimulus

    def _send_lease(self, instruction: SendLease, state: State) -> None:
        lease, now = instruction.lease, self.clock.wall()
        duration = lease.duration_seconds
        self.link.send(
            instruction.node_id,
            Desired(
                controller_epoch=state.controller_epoch,
                sequence=instruction.sequence,
                decision_id=instruction.decision_id,
                sent_at=now,
                expires_at=None if duration is None else now + timedelta(seconds=duration),
                lease=lease,
                found_watts=_remembered(state, instruction.node_id),
            ),
        )

    def _send_arms(self, instruction: SendArms, state: State) -> None:
        now = self.clock.wall()
        self.link.send(
            instruction.node_id,
            Armed(
                controller_epoch=state.controller_epoch,
                revision=instruction.revision,
                sent_at=now,
                expires_at=now + timedelta(seconds=instruction.seconds),
                responses=instruction.responses,
                scheduled=instruction.scheduled,
            ),
        )


def _remembered(state: State, node_id: str) -> tuple[tuple[str, float], ...]:
    """Found limits, for an agent that has lost its journal."""
    node = state.nodes.get(node_id)
    if node is None or not node.forgetful:
        return ()
    return tuple((gpu.gpu_id, gpu.found_limit_watts) for gpu in node.node.gpus)
