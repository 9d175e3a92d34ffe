"""Prepares a site: settings with comments, the CA, certificates, and one API key.

What is there already is kept, byte for byte: running it again adds what is missing, such as the
identity of a further node.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from gridaware.clock import Clock
from gridaware.domain.errors import ConfigError, InvalidInput
from gridaware.service.keys import api_key_line, new_api_key
from gridaware.wiring.config import load_settings
from gridaware.wiring.data import data_path
from gridaware.wiring.identity import issue, make_ca

__all__ = ["Made", "initialise"]

ADMIN = "admin"
LOOPBACK = "127.0.0.1"
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
    folder: Path, clock: Clock, *, nodes: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
) -> Made:
    """Make whatever of a site is missing in ``folder``.

    Args:
        folder: the site's own; made where it is missing.
        clock: gives the day from which certificates are valid.
        nodes: node ids; each gets ``nodes/ID/``, which is all that its agent needs.
        hosts: names and addresses under which agents reach the controller; it then listens on
            every interface.

    Raises:
        ConfigError: files cannot be written, or the settings that are there cannot be read.
        InvalidInput: a node id cannot be an identity, or the site listens for other machines and
            no host is given.
    """
    made = Made(folder / "site.yaml")
    _write(made, made.settings, _settings_text(public=bool(hosts)), mode=0o644)
    settings = load_settings(made.settings)
    if nodes and not hosts and settings.control.agents_host != LOOPBACK:
        raise InvalidInput("init-host-missing", "agents of other machines need a name to dial")
    tls = settings.tls_dir
    before = set(tls.glob("*"))
    make_ca(tls, clock)
    issue(tls, "controller", clock, "controller", hosts)
    for node in nodes:
        _make_node(
            made, folder / "nodes" / node, node, tls, clock, hosts, settings.control.agents_port
        )
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
    made: Made,
    folder: Path,
    node: str,
    tls: Path,
    clock: Clock,
    hosts: tuple[str, ...],
    port: int,
) -> None:
    """Everything that the agent of ``node`` needs, in one folder to be copied there."""
    identity = issue(tls, node, clock)
    for source in (identity.ca, identity.certificate, identity.key):
        _write(made, folder / source.name, source.read_text(encoding="ascii"), mode=0o600)
    settings = {
        "node_id": node,
        "controller": {"host": hosts[0] if hosts else LOOPBACK, "port": port},
        "tls": {
            "ca": identity.ca.name,
            "certificate": identity.certificate.name,
            "key": identity.key.name,
        },
        "driver": {"module": "gridaware.devices.nvml"},
    }
    remark = f"# The agent of {node}: run `gridaware agent --config agent.yaml` there, as root.\n"
    text = remark + yaml.safe_dump(settings, sort_keys=False)
    _write(made, folder / "agent.yaml", text, mode=0o644)


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
