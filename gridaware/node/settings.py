"""Settings of agent and relay: dataclasses checked by hand, since the agent has no pydantic.

Everything that is wrong is told at once, each with its line, and an unknown key with the nearest
known one. Relative paths start at the settings file's folder.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml

from gridaware.domain.errors import ConfigError

__all__ = [
    "AgentSettings",
    "ControllerSettings",
    "DriverSettings",
    "FrequencySettings",
    "ListenSettings",
    "RelaySettings",
    "TlsSettings",
    "load_relay_settings",
    "load_settings",
]

_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Where the controller listens for agents."""

    host: str
    port: int = 7443
    server_name: str = ""
    """Name to expect in its certificate; the host where empty."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files that ``gridaware init`` made for this node."""

    ca: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """What the driver child loads, and the only environment it gets."""

    module: str = "gridaware.devices.nvml"
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrequencySettings:
    """The meter that this node watches the frequency of the grid with."""

    module: str = ""
    """Import path of a module with ``open_frequency``; empty = the node has no meter."""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One node's agent."""

    node_id: str
    controller: ControllerSettings
    tls: TlsSettings
    driver: DriverSettings = DriverSettings()
    frequency: FrequencySettings = FrequencySettings()
    cluster_id: str = "default"
    state_dir: Path = Path("/var/lib/gridaware/agent")
    """The journal. Must survive restarts; a fresh one takes the limits that stand as found."""
    run_dir: Path = Path("/run/gridaware")
    """Sockets: ``agent.sock`` for jobs, ``admin.sock`` for root."""
    restore_on_stop: bool = False
    """Put found limits back when stopped (demo and tests); else limits and lease stand."""


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """Where a relay listens for agents."""

    host: str = "0.0.0.0"  # noqa: S104 - every interface: agents are other machines
    port: int = 7443


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """One relay."""

    relay_id: str
    """Common name of its certificate."""
    controller: ControllerSettings
    tls: TlsSettings
    listen: ListenSettings = ListenSettings()


_Settings = TypeVar("_Settings", AgentSettings, RelaySettings)


def load_settings(path: Path) -> AgentSettings:
    """Read and check an agent's settings file.

    Raises:
        ConfigError: it cannot be read (``settings-unreadable``) or something in it is wrong
            (``settings-invalid``; the message has one line for each thing).
    """
    return _load(path, AgentSettings)


def load_relay_settings(path: Path) -> RelaySettings:
    """Read and check a relay's settings file.

    Raises:
        ConfigError: as for an agent's.
    """
    return _load(path, RelaySettings)


def _load(path: Path, kind: type[_Settings]) -> _Settings:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError("settings-unreadable", f"{path} is larger than 1 MiB")
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError("settings-unreadable", f"cannot read {path}: {error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError("settings-unreadable", f"{path} is no YAML: {error}") from error
    reader = _Reader(path.parent)
    settings = reader.section(root, kind, "", 1)
    if reader.wrong or not isinstance(settings, kind):
        lines = "\n".join(f"{path}:{line}: {what}" for line, what in sorted(reader.wrong))
        raise ConfigError("settings-invalid", lines, count=len(reader.wrong))
    return settings


class _Reader:
    """Turns YAML nodes into dataclasses and collects what is wrong."""

    def __init__(self, folder: Path) -> None:
        self.wrong: list[tuple[int, str]] = []
        self._folder = folder
        self._readers: dict[object, Callable[[yaml.Node, str], object]] = {
            str: self._text,
            int: self._port,
            bool: self._flag,
            Path: self._path,
            Mapping[str, str]: self._texts,
        }

    def section(self, node: yaml.Node | None, kind: type, at: str, line: int) -> object:
        """A dataclass from a mapping; None where anything in it is wrong."""
        if not isinstance(node, yaml.MappingNode):
            self._say(node, line, f"{at or 'the file'} must be a mapping of settings")
            return None
        known: dict[str, Any] = {f.name: f for f in fields(kind)}
        values: dict[str, object] = {}
        complaints = len(self.wrong)
        for key, value in node.value:
            name = str(key.value)
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                self._say(key, line, f"unknown setting {at + name!r}{hint}")
            elif name in values:
                self._say(key, line, f"{at + name!r} is given twice")
            else:
                values[name] = self._value(value, known[name].type, at + name)
        for name, known_field in known.items():
            if name not in values and _required(known_field):
                self._say(node, line, f"{at + name!r} is missing")
        return kind(**values) if len(self.wrong) == complaints else None

    def _value(self, node: yaml.Node, kind: Any, at: str) -> object:
        reader = self._readers.get(kind)
        if reader is not None:
            return reader(node, at)
        return self.section(node, kind, f"{at}.", node.start_mark.line + 1)

    def _text(self, node: yaml.Node, at: str) -> str:
        if isinstance(node, yaml.ScalarNode) and node.value and not _null(node):
            return str(node.value)
        self._say(node, 1, f"{at!r} must be text")
        return ""

    def _port(self, node: yaml.Node, at: str) -> int:
        text = self._text(node, at)
        if text.isascii() and text.isdigit() and 0 < int(text) < 65536:
            return int(text)
        self._say(node, 1, f"{at!r} must be a port, 1 to 65535")
        return 0

    def _flag(self, node: yaml.Node, at: str) -> bool:
        text = self._text(node, at)
        if text not in {"true", "false"}:
            self._say(node, 1, f"{at!r} must be true or false")
        return text == "true"

    def _path(self, node: yaml.Node, at: str) -> Path:
        return self._folder / self._text(node, at)

    def _texts(self, node: yaml.Node, at: str) -> dict[str, str]:
        if not isinstance(node, yaml.MappingNode):
            self._say(node, 1, f"{at!r} must be a mapping of texts")
            return {}
        return {str(k.value): self._text(v, f"{at}.{k.value}") for k, v in node.value}

    def _say(self, node: yaml.Node | None, line: int, what: str) -> None:
        self.wrong.append((line if node is None else node.start_mark.line + 1, what))


def _null(node: yaml.ScalarNode) -> bool:
    return bool(node.tag.endswith(":null"))


def _required(known_field: Any) -> bool:
    return known_field.default is MISSING and known_field.default_factory is MISSING
