"""What an event would do, before it does: the machine decides on a copy of its state."""

from dataclasses import replace
from typing import Any

from gridaware.control.armed import Armoury
from gridaware.control.codec import from_builtins, to_builtins
from gridaware.control.instructions import Answer, Decide, Decided
from gridaware.control.machine import Machine
from gridaware.control.state import State
from gridaware.control.stimuli import SignalReceived
from gridaware.domain.event import event_id_of
from gridaware.domain.moment import Moment
from gridaware.domain.reasons import names_of, sentence
from gridaware.domain.signal import Signal

__all__ = ["preview"]


def preview(machine: Machine, signal: Signal, now: Moment) -> dict[str, Any]:
    """The plan as if the event's window began now; nothing of the machine changes.

    Returns:
        ``disposition, code, message, power_watts, reference_watts, target_watts, expected_watts,
        unresolved_watts`` (watts at the site meter; the reference is what a reduction is taken off,
        None where the target does not need one) and ``jobs``: one row each with its action, cap
        and reason.
    """
    copy = Machine(machine.book, from_builtins(to_builtins(machine.state), State))
    copy.state.site = replace(copy.state.site, act=True)
    copy.state.armoury = Armoury()  # what is asked for is the plan, not what would bridge to it
    if signal.request is not None:
        asked = signal.request
        end = None if asked.end is None else now.wall + (asked.end - asked.start)
        signal = replace(signal, request=replace(asked, start=now.wall, end=end))
    # An event that is known already is previewed as if it were heard for the first time.
    copy.state.events.pop(event_id_of(signal.feed_id, signal.source_id), None)
    made = copy.handle(SignalReceived(signal), now)
    answer = next((i for i in made if isinstance(i, Answer)), Answer("refused"))
    decided = next((i for i in made if isinstance(i, Decide)), None)
    expected = None if decided is None else copy.state.meter_of(decided.expected_gpu_watts)
    return {
        "disposition": answer.disposition,
        "code": answer.code or None,
        "message": answer.message or None,
        "power_watts": round(machine.state.meter_watts, 1),
        "reference_watts": _reference_watts(copy, signal),
        "target_watts": None if decided is None else decided.target_watts,
        "expected_watts": None if expected is None else round(expected, 1),
        "unresolved_watts": 0.0 if decided is None else decided.unresolved_watts,
        "jobs": [] if decided is None else [_row(action) for action in decided.actions],
    }


def _reference_watts(machine: Machine, signal: Signal) -> float | None:
    track = machine.state.events.get(event_id_of(signal.feed_id, signal.source_id))
    reference = None if track is None else track.event.reference
    return None if reference is None else round(reference.watts, 1)


def _row(action: Decided) -> dict[str, Any]:
    job_id, kind, cap, watts, throughput, reason, numbers = action
    return {
        "job_id": job_id,
        "action": kind.lower(),
        "cap_watts": round(cap, 1),
        "expected_watts": round(watts, 1),
        "expected_throughput": round(throughput, 4),
        "reason": reason,
        "why": sentence(reason, dict(zip(names_of(reason), numbers, strict=False))),
    }
