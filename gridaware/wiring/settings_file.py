"""Reads a YAML settings file and remembers on which line each key stands."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gridaware.domain.errors import ConfigError

__all__ = ["KeyPath", "SettingsFile", "read_settings_file"]

KeyPath = tuple[str | int, ...]
"""Where a setting is: section, key, and the position in a list."""

_BYTES_MAX = 1 << 20
_NODES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What a file says, and where it says it."""

    path: Path
    values: Mapping[str, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    """Line of each key, counted from 1."""
    duplicates: tuple[tuple[KeyPath, int], ...] = ()
    """Keys given twice, with the line of the later one: YAML alone would drop the first."""

    def line_of(self, where: KeyPath) -> int | None:
        """The line of a key, or of the nearest key around it."""
        for length in range(len(where), 0, -1):
            if where[:length] in self.lines:
                return self.lines[where[:length]]
        return None


def read_settings_file(path: Path) -> SettingsFile:
    """Read a YAML file whose top is a table.

    Raises:
        ConfigError: the file is missing, unreadable, too large or not YAML.
    """
    text = _read_text(path)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a 13th month, 1000 brackets
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        problem = getattr(error, "problem", None) or "this is not YAML"
        if isinstance(error, ValueError):
            problem = str(error)  # says which part of a date is none
        place = str(path) if line is None else f"{path}:{line}"
        raise ConfigError(
            "config-yaml-malformed", f"{place}: {problem}", file=str(path), line=line
        ) from error
    if values is None:
        return SettingsFile(path, {})
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(
            "config-yaml-malformed",
            f"{path}:1: the file is not a table of sections",
            file=str(path),
        )
    lines: dict[KeyPath, int] = {}
    duplicates = []
    for where, line in _keys(root, path):
        if where in lines:
            duplicates.append((where, line))
        lines.setdefault(where, line)
    return SettingsFile(path, values, lines, tuple(duplicates))


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_BYTES_MAX + 1)
    except FileNotFoundError:
        raise ConfigError(
            "config-file-missing", f"there is no file {path}", file=str(path)
        ) from None
    except OSError as error:
        raise ConfigError(
            "config-file-unreadable", f"{path}: {error.strerror}", file=str(path)
        ) from error
    if len(raw) > _BYTES_MAX:
        raise ConfigError("config-yaml-malformed", f"{path} is larger than 1 MiB", file=str(path))
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            "config-yaml-malformed", f"{path} is not UTF-8", file=str(path)
        ) from error


def _keys(root: yaml.Node | None, path: Path) -> Iterator[tuple[KeyPath, int]]:
    """Every key and list item with its line, in the order of the file."""
    pending: list[tuple[KeyPath, yaml.Node]] = [] if root is None else [((), root)]
    seen = 0
    while pending:
        where, node = pending.pop(0)
        seen += 1
        if seen > _NODES_MAX:
            raise ConfigError(
                "config-yaml-malformed", f"{path} has more than {_NODES_MAX} values", file=str(path)
            )
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                inner = (*where, str(key.value))
                yield inner, key.start_mark.line + 1
                pending.append((inner, value))
        elif isinstance(node, yaml.SequenceNode):
            for position, value in enumerate(node.value):
                inner = (*where, position)
                yield inner, value.start_mark.line + 1
                pending.append((inner, value))
