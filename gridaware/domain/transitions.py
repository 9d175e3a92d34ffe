"""Life cycles as data: every edge with its trigger, guard, instruction and reason code."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from gridaware.domain.errors import Bug

__all__ = ["LifeCycle", "Transition"]

State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Transition(Generic[State]):
    """One edge of a life cycle."""

    source: State
    target: State
    trigger: str
    guard: str
    instruction: str
    reason: str
    """Stable PascalCase code; :mod:`gridaware.domain.reasons` has its sentence."""


class LifeCycle(Generic[State]):
    """A table of transitions, looked up by source state and reason code."""

    def __init__(self, name: str, transitions: tuple[Transition[State], ...]) -> None:
        self.name = name
        self.transitions = transitions
        self._by_key = {(edge.source, edge.reason): edge for edge in transitions}
        if len(self._by_key) != len(transitions):
            raise Bug("life-cycle-ambiguous", f"{name}: two edges share source and reason")

    def follow(self, source: State, reason: str) -> State:
        """The state that ``reason`` leads to from ``source``.

        Raises:
            Bug: the table has no such edge.
        """
        edge = self._by_key.get((source, reason))
        if edge is None:
            raise Bug("life-cycle-no-edge", f"{self.name}: no edge {reason!r} from {source.value}")
        return edge.target

    def allows(self, source: State, reason: str) -> bool:
        """Whether ``reason`` is an edge out of ``source``."""
        return (source, reason) in self._by_key

    def as_rows(self) -> tuple[tuple[str, str, str, str, str, str], ...]:
        """The table as text, for the docs."""
        return tuple(
            (t.source.value, t.target.value, t.trigger, t.guard, t.instruction, t.reason)
            for t in self.transitions
        )
