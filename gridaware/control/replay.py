"""The state again, from what was written: after a crash, and to check an event by its ledger."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gridaware.control.codec import decode_stimulus, encode, from_builtins, to_builtins
from gridaware.control.instructions import Decide, SendArms, SendLease, SendTrigger
from gridaware.control.loop import Watch
from gridaware.control.machine import Machine
from gridaware.control.state import State
from gridaware.domain.moment import Moment
from gridaware.planning.model import CurveBook

__all__ = ["Replayed", "Snapshot", "rebuild", "replay", "snapshot_of"]

_COMPARED = (Decide, SendLease, SendTrigger, SendArms)
_COMPARED_NAMES = {kind.__name__ for kind in _COMPARED}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The machine's state after a ledger entry, so that a start replays minutes, not months."""

    seq: int
    """Of the last ledger entry that is in it."""
    moment: Moment
    state: dict[str, Any]


@dataclass(slots=True)
class Replayed:
    """What replaying a stretch of the ledger showed."""

    machine: Machine
    last: Moment | None = None
    stimuli: int = 0
    decisions: int = 0
    differences: list[str] = field(default_factory=list)
    """Ledgered decisions that the machine did not make again, in words; empty = the same."""


def snapshot_of(machine: Machine, seq: int, moment: Moment) -> dict[str, Any]:
    """The state as a plain value, to be kept beside the ledger."""
    return {"seq": seq, "moment": to_builtins(moment), "state": to_builtins(machine.state)}


def rebuild(
    book: CurveBook,
    snapshot: Mapping[str, Any] | None,
    bodies: Iterable[tuple[str, Mapping[str, Any]]],
    watch: Watch | None = None,
) -> Replayed:
    """The machine as it was after the last durable stimulus; its instructions are not repeated.

    Args:
        book: the curves.
        snapshot: of :func:`snapshot_of`, or None to begin with nothing.
        bodies: (kind, body) of every ledger entry after the snapshot, in order.
        watch: sees each stimulus again, as it did when it came.

    Raises:
        InvalidInput: an entry or the snapshot is none of ours.
    """
    state, last = None, None
    if snapshot is not None:
        kept = from_builtins(dict(snapshot), Snapshot)
        state, last = from_builtins(kept.state, State), kept.moment
    return replay(Replayed(Machine(book, state), last), bodies, watch)


def replay(
    run: Replayed,
    bodies: Iterable[tuple[str, Mapping[str, Any]]],
    watch: Watch | None = None,
) -> Replayed:
    """Hand every ledgered stimulus to the machine again and compare the decisions.

    Decisions after the last durable stimulus, and stimuli whose decisions a crash cut off, are no
    differences: only a decision that is there and is not made again is one.
    """
    made: list[dict[str, Any]] = []
    for kind, body in bodies:
        if kind == "stimulus":
            stimulus, moment = decode_stimulus(dict(body))
            instructions = run.machine.handle(stimulus, moment)
            if watch is not None:
                watch(stimulus, moment, run.machine.state)
            made = [encode(i, moment) for i in instructions if isinstance(i, _COMPARED)]
            run.stimuli += 1
            run.last = moment
        elif kind == "decision" and body.get("type") in _COMPARED_NAMES:
            run.decisions += 1
            again = _next_of(body["type"], made)
            if again is None or _plain(again["value"]) != _plain(body["value"]):
                run.differences.append(_difference(body, again))
    return run


def _next_of(name: str, made: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Take the first decision of that type: a ledger may be older than a type that is made now."""
    for index, decision in enumerate(made):
        if decision["type"] == name:
            return made.pop(index)
    return None


def _plain(value: Any) -> Any:
    """As the ledger's JSON gives it back: lists for tuples, numbers as they were written."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _difference(ledgered: Mapping[str, Any], again: Mapping[str, Any] | None) -> str:
    name = f"{ledgered.get('type')} at {ledgered.get('moment', {}).get('wall')}"
    return f"{name}: {'was not made again' if again is None else 'came out differently'}"
