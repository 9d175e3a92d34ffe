"""What is wrong with a setting, in words: the nearest known key, the unit that was meant."""

import os
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from gridaware.domain.errors import ConfigError
from gridaware.wiring.settings_file import KeyPath, SettingsFile

__all__ = ["ENVIRONMENT_PREFIX", "Complaint", "complaints_of", "refusal", "unknown_key"]

ENVIRONMENT_PREFIX = "GRIDAWARE__"
_UNITS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("kw", "kilowatt", "kilowatts"), ("watts", "1 kW = 1000 W")),
    **dict.fromkeys(("mw", "megawatt", "megawatts"), ("watts", "1 MW = 1000000 W")),
    **dict.fromkeys(("w", "watt"), ("watts", "in W")),
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), ("seconds", "1000 ms = 1 s")),
    **dict.fromkeys(("s", "sec", "secs", "second"), ("seconds", "in s")),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), ("seconds", "1 min = 60 s")),
    **dict.fromkeys(("h", "hour", "hours"), ("seconds", "1 h = 3600 s")),
    **dict.fromkeys(("percent", "pct"), ("", "a share of 1: 5 % = 0.05")),
}
_WITH_UNIT = re.compile(r"\s*[-+]?[\d.,_]+\s*[A-Za-z%µ]+\s*")


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong with one setting."""

    where: KeyPath
    what: str
    variable: str | None = None
    """The environment variable it came from, where that is known."""

    def __str__(self) -> str:
        name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in self.where).lstrip(".")
        return f"{name or 'the file'} {self.what}"


def complaints_of(error: ValidationError, model: type[BaseModel]) -> list[Complaint]:
    """Every complaint of a validation, with the nearest known key for each unknown one."""
    complaints = []
    for detail in error.errors(include_url=False):
        where = detail["loc"]
        if detail["type"] == "extra_forbidden":
            known = _fields_at(model, where[:-1])
            complaints.append(Complaint(where, unknown_key(str(where[-1]), known)))
        else:
            complaints.append(Complaint(where, _in_words(dict(detail))))
    return complaints


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say about a key that nobody knows."""
    names = list(known)
    stem, unit = _split_unit(key)
    if unit is not None:
        right, meaning = _UNITS[unit]
        same = [name for name in names if _same_quantity(name, stem, right)]
        if same:
            return f"is unknown; did you mean {same[0]!r} ({meaning})?"
    near = get_close_matches(key, names, n=1, cutoff=0.6)
    if near:
        return f"is unknown; did you mean {near[0]!r}?"
    return f"is unknown; known here: {', '.join(names)}" if names else "is unknown"


def refusal(file: SettingsFile, complaints: Iterable[Complaint]) -> ConfigError:
    """All complaints about a file as one error, each with its line or its variable."""
    lines = []
    twice = [
        Complaint(where, f"is given twice, again on line {line}") for where, line in file.duplicates
    ]
    for complaint in (*twice, *complaints):
        line = file.line_of(complaint.where)
        variable = complaint.variable or _variable_of(complaint.where)
        place = variable or (f"line {line}" if line is not None else "flag or default")
        lines.append((line or 0, f"{place}: {complaint}"))
    what = "1 setting is" if len(lines) == 1 else f"{len(lines)} settings are"
    source = f" in {file.path}" if file.path != Path() else ""
    body = "\n".join(text for _, text in sorted(lines))
    return ConfigError(
        "config-invalid", f"{what} wrong{source}\n{body}", file=str(file.path), count=len(lines)
    )


def _variable_of(where: KeyPath) -> str | None:
    """The environment variable that set a key, if one did."""
    for length in range(len(where), 0, -1):
        name = ENVIRONMENT_PREFIX + "__".join(str(part) for part in where[:length]).upper()
        if name in os.environ:
            return name
    return None


def _split_unit(key: str) -> tuple[str, str | None]:
    """``down_kw_per_minute`` is (``down_per_minute``, ``kw``)."""
    parts = key.lower().split("_")
    for position in range(len(parts) - 1, -1, -1):
        if parts[position] in _UNITS and not (position and parts[position - 1] == "per"):
            return "_".join(parts[:position] + parts[position + 1 :]), parts[position]
    return key, None


def _same_quantity(name: str, stem: str, unit: str) -> bool:
    parts = name.split("_")
    if not unit:
        return name == stem
    return unit in parts and "_".join(part for part in parts if part != unit) == stem


def _in_words(detail: Mapping[str, Any]) -> str:
    given = detail.get("input")
    kind = str(detail["type"])
    if kind in {"float_parsing", "int_parsing"} and isinstance(given, str):
        if _WITH_UNIT.fullmatch(given):
            return f"is {given!r}; write the bare number in the unit that the key names"
        return f"is {given!r}, not a number"
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return str(detail["msg"]).removeprefix("Value error, ")
    message = str(detail["msg"]).removeprefix("Input ")
    shown = f"is {given!r}" if isinstance(given, str | int | float | bool) else ""
    return f"{shown}: {message}" if shown else message


def _fields_at(model: type[BaseModel], where: KeyPath) -> list[str]:
    """The keys that are known in the section at ``where``."""
    current: Any = model
    for part in where:
        if isinstance(part, str):
            fields = current.model_fields if _is_section(current) else {}
            if part not in fields:
                return []
            current = fields[part].annotation
        current = _section_in(current)
    return list(current.model_fields) if _is_section(current) else []


def _section_in(annotation: Any) -> Any:
    """The section inside ``Section | None`` or ``tuple[Section, ...]``."""
    if get_origin(annotation) in {Union, types.UnionType, tuple, list}:
        for argument in get_args(annotation):
            if _is_section(argument):
                return argument
    return annotation


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
