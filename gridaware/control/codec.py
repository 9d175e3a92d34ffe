"""Stimuli, instructions and state as plain JSON values and back, by their type names."""

from functools import cache
from typing import Any, TypeVar

import msgspec

from gridaware.control.columns import from_columns, to_columns
from gridaware.control.instructions import INSTRUCTIONS, Instruction
from gridaware.control.stimuli import STIMULI, Stimulus, Tick
from gridaware.domain.errors import InvalidInput
from gridaware.domain.moment import Moment

__all__ = ["decode_instruction", "decode_stimulus", "encode", "from_builtins", "to_builtins"]

Value = TypeVar("Value")


def to_builtins(value: object) -> Any:
    """Plain dicts, lists, strings and numbers."""
    return msgspec.to_builtins(value)


def from_builtins(builtins: object, kind: type[Value]) -> Value:
    """The value of a type again.

    Raises:
        InvalidInput: it is not one (``value-malformed``).
    """
    try:
        return msgspec.convert(builtins, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput("value-malformed", f"not a {kind.__name__}: {error}") from error


def encode(thing: Stimulus | Instruction, moment: Moment) -> dict[str, Any]:
    """One ledger body: ``{"type", "moment", "value"}``; of a tick, the readings as columns."""
    if isinstance(thing, Tick):
        value: Any = {"observation": to_columns(thing.observation)}
    else:
        value = to_builtins(thing)
    return {"type": type(thing).__name__, "moment": to_builtins(moment), "value": value}


def decode_stimulus(body: dict[str, Any]) -> tuple[Stimulus, Moment]:
    """The stimulus of a ledger body, and when it came.

    Raises:
        InvalidInput: the body is none of ours.
    """
    kind = _by_name(STIMULI).get(body.get("type", ""))
    if kind is None:
        raise InvalidInput("stimulus-unknown", f"no stimulus is called {body.get('type')!r}")
    value = body["value"]
    if kind is Tick:
        value = {"observation": from_columns(value.get("observation", {}))}
    return from_builtins(value, kind), from_builtins(body["moment"], Moment)


def decode_instruction(body: dict[str, Any]) -> Instruction:
    """The instruction of a ledger body.

    Raises:
        InvalidInput: the body is none of ours.
    """
    kind = _by_name(INSTRUCTIONS).get(body.get("type", ""))
    if kind is None:
        raise InvalidInput("instruction-unknown", f"no instruction is called {body.get('type')!r}")
    instruction: Instruction = from_builtins(body["value"], kind)
    return instruction


@cache
def _by_name(kinds: tuple[type, ...]) -> dict[str, Any]:
    return {kind.__name__: kind for kind in kinds}
