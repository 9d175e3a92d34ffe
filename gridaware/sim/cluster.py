"""A whole small site on one machine, as child processes: plant, Ray, agents, control and web.

Everything is started by its own command line, as an operator would; only the GPUs are virtual.
Used by the demo, by end-to-end tests and by benchmarks.
"""

import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import requests
import yaml

from gridaware.clock import SystemClock
from gridaware.domain.errors import Unavailable
from gridaware.sim.processes import Child, Children
from gridaware.sim.window import Window
from gridaware.wiring.data import data_path
from gridaware.wiring.initialise import initialise

__all__ = ["SiteOptions", "VirtualSite"]

RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_enable_metrics_collection": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_DEDUP_LOGS": "0",
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",  # how old Ray's count of free GPUs may be
}
OBJECT_STORE_BYTES = 80_000_000
RAY_GRACE_SECONDS = 2.0
"""Asked to end, `ray start --block` waits ten seconds and more for jobs that are over anyway."""
AGENT_GRACE_SECONDS = 15.0
"""It restores every limit first."""


@dataclass(frozen=True, slots=True)
class SiteOptions:
    """What the site is made of."""

    nodes: int = 2
    gpus_per_node: int = 8
    gpu: str = "a100-400"
    overheads: float = 0.2
    seed: int = 1
    driver_call_seconds: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Sections of the site's settings file, over what is set here."""
    serve_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of control and web alone, such as a wall clock that steps."""
    agent_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the agents alone."""
    frequency_meters: bool = False
    """Whether each agent hears a frequency meter, at :meth:`VirtualSite.meter_place`."""


class VirtualSite:
    """Starts and ends the processes of a site. ``webhook_secret`` signs for its feed ``grid``."""

    def __init__(self, options: SiteOptions, home: Path | None = None) -> None:
        self.options = options
        self._own_home = home is None
        # Short: UNIX sockets allow paths of 107 bytes, and Ray puts its own below.
        self.home = home or Path(tempfile.mkdtemp(prefix="gw-", dir="/tmp"))
        self.clock = SystemClock()
        self.children = Children(self.home / "logs")
        self.children.folder.mkdir(parents=True)
        self.webhook_secret = secrets.token_hex(16)
        self.window_file = self.home / "plant.window"
        names = ("signals", "agents", "web", "ray", "gcs", "client")
        self.ports = dict(zip(names, _free_ports(len(names)), strict=True))
        self.api_key = ""
        self.nodes = [f"node-{n + 1}" for n in range(options.nodes)]
        self._agents: dict[str, Child] = {}
        self.ray: list[Child] = []
        self.agents_dial_port = self.ports["agents"]
        """Where agents find control; a test puts a proxy in between."""

    # Addresses ---------------------------------------------------------------------------------

    @property
    def web_url(self) -> str:
        """Where the API is."""
        return f"http://127.0.0.1:{self.ports['web']}"

    @property
    def signals_url(self) -> str:
        """Where signed signals of the feed ``grid`` are heard: control's own listener."""
        return f"http://127.0.0.1:{self.ports['signals']}/api/v1/signals/grid"

    @property
    def ray_url(self) -> str:
        """Ray's dashboard."""
        return f"http://127.0.0.1:{self.ports['ray']}"

    @property
    def settings_file(self) -> Path:
        """The site's settings."""
        return self.home / "site" / "site.yaml"

    def window(self) -> Window:
        """The plant's window: the truth."""
        return Window.open(self.window_file)

    # Starting ----------------------------------------------------------------------------------

    def start_plant(self) -> None:
        """Start the virtual GPUs."""
        options = self.options
        argv = [sys.executable, "-m", "gridaware.sim.plant", "--window", str(self.window_file)]
        argv += ["--nodes", str(options.nodes), "--gpus-per-node", str(options.gpus_per_node)]
        argv += ["--gpu", options.gpu, "--overheads", str(options.overheads)]
        plant = self.children.start("plant", [*argv, "--seed", str(options.seed)])
        self.children.wait_for("the plant", self.window_file.exists, 20, plant)

    def start_ray(self) -> None:
        """Start one Ray node for each node of the site; on each, Ray's GPU index is the agent's."""
        head = self._start_ray_node(0)
        self.children.wait_for("Ray's dashboard", lambda: self._ray_answers(1), 90, head)
        others = [self._start_ray_node(n) for n in range(1, self.options.nodes)]
        for n, child in enumerate(others):
            ready = partial(self._ray_answers, n + 2)
            self.children.wait_for("a Ray node", ready, 90, child)

    def _start_ray_node(self, n: int) -> Child:
        ports = _free_ports(4)
        argv = [
            str(Path(sys.executable).with_name("ray")),
            "start",
            "--block",
            f"--node-ip-address={_address(n)}",
            f"--num-gpus={self.options.gpus_per_node}",
            "--num-cpus=8",
            f"--object-store-memory={OBJECT_STORE_BYTES}",
            "--disable-usage-stats",
            f"--dashboard-agent-listen-port={ports[0]}",
            f"--dashboard-agent-grpc-port={ports[1]}",
            f"--runtime-env-agent-port={ports[2]}",
            f"--metrics-export-port={ports[3]}",
        ]
        if n == 0:
            argv += [
                "--head",
                f"--port={self.ports['gcs']}",
                "--dashboard-host=127.0.0.1",
                f"--dashboard-port={self.ports['ray']}",
                f"--ray-client-server-port={self.ports['client']}",
                f"--temp-dir={self.home / 'ray'}",
            ]
        else:
            argv += [f"--address={_address(0)}:{self.ports['gcs']}"]
        environment = {
            **RAY_ENVIRONMENT,
            "GRIDAWARE_SIM_WINDOW": str(self.window_file),
            "GRIDAWARE_SIM_NODE": str(n),
            "GRIDAWARE_AGENT_SOCKET": str(self._run_dir(self.nodes[n]) / "agent.sock"),
        }
        name = f"ray-{n + 1}"
        ray = self.children.start(name, argv, environment, grace_seconds=RAY_GRACE_SECONDS)
        self.ray.append(ray)
        return ray

    def _ray_answers(self, nodes: int) -> bool:
        try:
            answer = requests.get(f"{self.ray_url}/nodes?view=summary", timeout=2).json()
            summary = answer["data"]["summary"]
        except (requests.RequestException, ValueError, KeyError, TypeError):
            return False
        alive = [n for n in summary if n.get("raylet", {}).get("state") == "ALIVE"]
        return len(alive) >= nodes

    def configure(self) -> None:
        """Write the site's settings, its CA, the nodes' identities and the API key."""
        secret_file = self.home / "webhook-secret"
        secret_file.write_text(self.webhook_secret, encoding="ascii")
        secret_file.chmod(0o600)
        self.settings_file.parent.mkdir(parents=True, exist_ok=True)
        self.settings_file.write_text(yaml.safe_dump(self._settings(secret_file)), "utf-8")
        made = initialise(self.settings_file.parent, self.clock, nodes=tuple(self.nodes))
        self.api_key = made.api_key or ""

    def _settings(self, secret_file: Path) -> dict[str, Any]:
        ours: dict[str, Any] = {
            "site": {
                "name": "virtual site",
                "meter": {
                    "module": "gridaware.sim.meter",
                    "options": {"window": str(self.window_file)},
                },
            },
            "control": {
                "act": True,
                "signals_port": self.ports["signals"],
                "agents_port": self.ports["agents"],
            },
            "web": {"port": self.ports["web"]},
            "ray": {"address": self.ray_url},
            "programmes": [{"id": "demand-response"}],
            "feeds": [
                {
                    "id": "grid",
                    "kind": "webhook",
                    "programme": "demand-response",
                    "settings": {"secrets": [f"file:{secret_file}"]},
                }
            ],
        }
        return _merged(ours, self.options.settings)

    def start_serve(self) -> Child:
        """Start control and web, and wait until the API answers."""
        serve = self.start_serve_soon()
        self.wait_for_api(serve)
        return serve

    def start_serve_soon(self) -> Child:
        """Start control and web without waiting for them."""
        argv = [sys.executable, "-m", "gridaware", "serve", "--config"]
        environment = self.options.serve_environment
        return self.children.start("serve", [*argv, str(self.settings_file)], environment)

    def wait_for_api(self, serve: Child) -> None:
        """Wait until the API answers."""
        self.children.wait_for("the API", self._api_answers, 60, serve)

    def _api_answers(self) -> bool:
        try:
            return requests.get(f"{self.web_url}/readyz", timeout=1).ok
        except requests.RequestException:
            return False

    def start_agents(self) -> None:
        """Start every node's agent."""
        for n in range(len(self.nodes)):
            self.start_agent(n)

    def start_agent(self, n: int) -> Child:
        """Start (or start again) the agent of one node."""
        node = self.nodes[n]
        folder = self.settings_file.parent / "nodes" / node
        options = {"window": str(self.window_file), "node": str(n)}
        if self.options.driver_call_seconds:
            options["call_seconds"] = str(self.options.driver_call_seconds)
        settings = yaml.safe_load((folder / "agent.yaml").read_text("utf-8"))
        settings |= {
            "driver": {"module": "gridaware.sim.driver", "options": options},
            "state_dir": str(self.agent_state_dir(n)),
            "run_dir": str(self._run_dir(node)),
            "restore_on_stop": True,
        }
        if self.options.frequency_meters:
            settings["frequency"] = {
                "module": "gridaware.devices.frequency_datagram",
                "options": {"listen": f"unix:{self.meter_place(n)}"},
            }
        settings["controller"]["port"] = self.agents_dial_port
        self._run_dir(node).mkdir(parents=True, exist_ok=True)
        path = folder / "agent.virtual.yaml"
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        argv = [sys.executable, "-m", "gridaware.wiring.agent", "--config", str(path)]
        boot = {"GRIDAWARE_TEST_BOOT_FILE": str(self.boot_file(n))}
        environment = {**self.options.agent_environment, **boot}
        self._agents[node] = self.children.start(
            f"agent-{node}", argv, environment, grace_seconds=AGENT_GRACE_SECONDS
        )
        return self._agents[node]

    def meter_place(self, n: int) -> Path:
        """The socket at which an agent hears its frequency meter."""
        return self._run_dir(self.nodes[n]) / "frequency.sock"

    def agent_state_dir(self, n: int) -> Path:
        """Where an agent keeps its journal."""
        return self.home / "agents" / self.nodes[n]

    def boot_file(self, n: int) -> Path:
        """What says that a node has booted since, once a test has written it."""
        return self.home / f"boot-{self.nodes[n]}"

    def _run_dir(self, node: str) -> Path:
        return self.home / "run" / node

    def example(self, name: str) -> Path:
        """An example script, as shipped."""
        return data_path("examples") / name

    # Ending ------------------------------------------------------------------------------------

    def end(self) -> None:
        """End everything, put every limit back, and leave nothing behind."""
        # Agents first: they restore what they found while driver and plant still answer.
        for child in self._agents.values():
            child.process.terminate()
        for child in self._agents.values():
            child.end()
        self.children.end_all()
        if self._own_home:
            shutil.rmtree(self.home, ignore_errors=True)

    def unrestored(self) -> list[str]:
        """GPUs whose requested limit is not the default they started with."""
        try:
            window = self.window()
        except Unavailable:
            return []
        slots = [slot for n in range(len(self.nodes)) for slot in window.gpus_of(n)]
        return [s.uuid.decode() for s in slots if abs(s.requested_watts - s.default_watts) > 0.5]


def _address(n: int) -> str:
    """A loopback address of its own for each Ray node; the first would be replaced by Ray."""
    return f"127.0.0.{n + 2}"


def _merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        if isinstance(known, dict) and isinstance(value, Mapping):
            merged[key] = _merged(known, value)
        else:
            merged[key] = value
    return merged


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = []
    for _ in range(count):
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        opened.bind(("127.0.0.1", 0))
        sockets.append(opened)
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports
