"""Prepares a site: settings with comments, the CA, certificates, and one API key.

What is there already is kept, byte for byte: running it again adds what is missing, such as the
identity of a further node.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from gridaware.clock import Clock
from gridaware.domain.errors import ConfigError, InvalidInput
from gridaware.service.keys import api_key_line, new_api_key
from gridaware.wiring.config import load_settings
from gridaware.wiring.data import data_path
from gridaware.wiring.identity import Identity, issue, make_ca

__all__ = ["Made", "initialise"]

ADMIN = "admin"
LOOPBACK = "127.0.0.1"
NO_RELAYS: Mapping[str, str] = MappingProxyType({})
KEY_REMARK = "# One key a line: NAME sha256:HEX. Remove a line to take its key back.\n"


@dataclass(slots=True)
class Made:
    """What ``init`` did."""

    settings: Path
    written: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    api_key: str | None = None
    """Shown once; None where the site has keys already."""


def initialise(
    folder: Path,
    clock: Clock,
    *,
    nodes: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    relays: Mapping[str, str] = NO_RELAYS,
    via: str | None = None,
) -> Made:
    """Make whatever of a site is missing in ``folder``.

    Args:
        folder: the site's own; made where it is missing.
        clock: gives the day from which certificates are valid.
        nodes: node ids; each gets ``nodes/ID/``, which is all that its agent needs.
        hosts: names and addresses under which agents reach the controller; it then listens on
            every interface.
        relays: relay id to the name or address under which agents reach it; each gets
            ``relays/ID/``, which is all that it needs.
        via: the name or address of the relay that ``nodes`` dial in the controller's place.

    Raises:
        ConfigError: files cannot be written, or the settings that are there cannot be read.
        InvalidInput: an id cannot be an identity, or the site listens for other machines and
            no host is given.
    """
    made = Made(folder / "site.yaml")
    _write(made, made.settings, _settings_text(public=bool(hosts)), mode=0o644)
    settings = load_settings(made.settings)
    direct = (nodes and via is None) or relays
    alone = not hosts and settings.control.agents_host != LOOPBACK
    if (direct and alone) or not all(relays.values()):
        raise InvalidInput("init-host-missing", "other machines need a name to dial")
    tls = settings.tls_dir
    before = set(tls.glob("*"))
    make_ca(tls, clock)
    issue(tls, "controller", clock, "controller", hosts)
    controller = {
        "host": hosts[0] if hosts else LOOPBACK,
        "port": settings.control.agents_port,
    }
    for node in nodes:
        dialled = controller if via is None else controller | {"host": via}
        _make_node(made, folder / "nodes" / node, issue(tls, node, clock), node, dialled)
    for relay, host in relays.items():
        identity = issue(tls, relay, clock, "relay", (host,))
        _make_relay(made, folder / "relays" / relay, identity, relay, controller)
    after = set(tls.glob("*"))
    made.written += sorted(after - before)
    made.kept += sorted(after & before)
    if settings.api_key_file.exists():
        made.kept.append(settings.api_key_file)
    else:
        key = new_api_key()
        line = f"{KEY_REMARK}{api_key_line(ADMIN, key)}\n"
        _write(made, settings.api_key_file, line, mode=0o600)
        made.api_key = key
    return made


def _settings_text(*, public: bool) -> str:
    text = (data_path("configs") / "site.example.yaml").read_text(encoding="utf-8")
    if public:
        text = text.replace(f"agents_host: {LOOPBACK}", "agents_host: 0.0.0.0")
    return text


def _make_node(
    made: Made, folder: Path, identity: Identity, node: str, dialled: Mapping[str, Any]
) -> None:
    """Everything that the agent of ``node`` needs, in one folder to be copied there."""
    settings = {
        "node_id": node,
        "controller": dict(dialled),
        "tls": _copied(made, folder, identity),
        "driver": {"module": "gridaware.devices.nvml"},
    }
    remark = f"# The agent of {node}: run `gridaware agent --config agent.yaml` there, as root.\n"
    text = remark + yaml.safe_dump(settings, sort_keys=False)
    _write(made, folder / "agent.yaml", text, mode=0o644)


def _make_relay(
    made: Made, folder: Path, identity: Identity, relay: str, controller: Mapping[str, Any]
) -> None:
    """Everything that a relay needs, in one folder to be copied to its machine."""
    settings = {
        "relay_id": relay,
        "controller": dict(controller),
        "tls": _copied(made, folder, identity),
        "listen": {"host": "0.0.0.0", "port": controller["port"]},  # noqa: S104 - other machines
    }
    remark = f"# Relay {relay}: run `gridaware relay --config relay.yaml` on its machine.\n"
    text = remark + yaml.safe_dump(settings, sort_keys=False)
    _write(made, folder / "relay.yaml", text, mode=0o644)


def _copied(made: Made, folder: Path, identity: Identity) -> dict[str, str]:
    """Copies of an identity's files, and the settings that name them."""
    for source in (identity.ca, identity.certificate, identity.key):
        _write(made, folder / source.name, source.read_text(encoding="ascii"), mode=0o600)
    return {
        "ca": identity.ca.name,
        "certificate": identity.certificate.name,
        "key": identity.key.name,
    }


def _write(made: Made, path: Path, text: str, *, mode: int) -> None:
    """Write a new file; one that is there is kept."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        made.kept.append(path)
        return
    except OSError as error:
        raise ConfigError("init-files", f"cannot write {path}: {error.strerror}") from error
    made.written.append(path)
