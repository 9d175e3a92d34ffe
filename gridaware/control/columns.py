"""Observations as the ledger keeps them: a table of columns instead of an object for each GPU.

Every tick of every GPU stays in the ledger for good, so its size is the ledger's size. In a column

* a missing one holds the field's default for every GPU,
* a plain value holds it for every GPU,
* an object ``{"runs": [[value, count], …]}`` holds equal neighbours together,
* a list holds a value for each GPU.

Nothing is rounded and nothing depends on another entry: what comes out is what went in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from itertools import chain, groupby, islice, repeat
from typing import Any

import msgspec

from gridaware.domain.errors import InvalidInput
from gridaware.domain.reading import GpuObservation, Observation

__all__ = ["from_columns", "to_columns"]

MOST_GPUS = 1_000_000
"""In one observation that is read; more is no observation of ours."""
FEW_RUNS = 0.25
"""Runs are shorter than a list where there are at most this many for each value."""
_DEFAULTS: dict[str, Any] = {
    field.name: None if field.default is MISSING else msgspec.to_builtins(field.default)
    for field in fields(GpuObservation)
}
_OTHERS = tuple(field.name for field in fields(Observation) if field.name != "nodes")


def to_columns(observation: Observation) -> dict[str, Any]:
    """The observation as plain values: its GPUs, over all nodes, as columns."""
    gpus = list(chain.from_iterable(node.gpus for node in observation.nodes))
    rows = map(dict.values, msgspec.to_builtins(gpus))
    packed: dict[str, Any] = {}
    for (name, default), column in zip(_DEFAULTS.items(), zip(*rows, strict=True), strict=False):
        value = _packed(column)
        if value is not default and value != default:
            packed[name] = value
    plain = {name: msgspec.to_builtins(getattr(observation, name)) for name in _OTHERS}
    nodes = [[node.node_id, node.age_seconds, len(node.gpus)] for node in observation.nodes]
    return plain | {"nodes": nodes, "gpus": packed}


def from_columns(packed: Mapping[str, Any]) -> dict[str, Any]:
    """The observation's plain values again, ready to be converted to an ``Observation``.

    Raises:
        InvalidInput: this is none of ours (``value-malformed``).
    """
    try:
        count = sum(gpus for _, _, gpus in packed["nodes"])
        if not 0 <= count <= MOST_GPUS:
            raise ValueError(f"{count} GPUs")
        columns = packed["gpus"]
        unpacked = (
            _unpacked(columns.get(name, default), count) for name, default in _DEFAULTS.items()
        )
        rows = (dict(zip(_DEFAULTS, row, strict=True)) for row in zip(*unpacked, strict=True))
        nodes = [
            {"node_id": node_id, "age_seconds": age, "gpus": list(islice(rows, gpus))}
            for node_id, age, gpus in packed["nodes"]
        ]
        if next(rows, None) is not None:
            raise ValueError(f"more than {count} GPUs")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput("value-malformed", f"not an observation: {error}") from error
    # A field that the entry was written before has its default.
    plain = {name: packed[name] for name in _OTHERS if name in packed}
    return plain | {"nodes": nodes}


def _packed(column: tuple[Any, ...]) -> Any:
    first = column[0]
    if column.count(first) == len(column):
        return first
    if len(set(column)) <= FEW_RUNS * len(column):
        runs = [[value, sum(1 for _ in same)] for value, same in groupby(column)]
        if len(runs) <= FEW_RUNS * len(column):
            return {"runs": runs}
    return list(column)


def _unpacked(column: Any, count: int) -> Iterable[Any]:
    if isinstance(column, list):
        return column
    if isinstance(column, dict):
        runs = [(value, times) for value, times in column["runs"] if 0 < times <= count]
        return chain.from_iterable(repeat(value, times) for value, times in runs)
    return repeat(column, count)
