"""One real Ray head for the whole run, and an agent's job desk beside it."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import requests

from gridaware.clock import SystemClock
from gridaware.domain.job import JobSpec, submission_id
from gridaware.domain.wire import CheckpointReport, CheckpointRequest, JobGone, JobRegistered
from gridaware.jobs.ray_runner import RayRunner
from gridaware.jobs.status import RayStatus
from gridaware.node.desk import JobDesk

EXAMPLES = Path(__file__).parents[2] / "examples"
GPUS = 8
START_SECONDS = 60.0
WAIT_SECONDS = 40.0


def wait_until(look: Callable[[], object], what: str, seconds: float = WAIT_SECONDS):
    """The first true value of ``look()``."""
    ends = time.monotonic() + seconds  # noqa: TID251 - real processes take real time
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > ends:  # noqa: TID251
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.1)


@dataclass
class Desk:
    """A JobDesk on an event loop of its own thread, with everything it reported."""

    path: Path
    reports: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.desk = JobDesk(
            self.path, self.path.parent, SystemClock(), self.reports.append, node_id="n0"
        )
        self.desk.set_gpus([f"GPU-{i}" for i in range(GPUS)])
        asyncio.run_coroutine_threadsafe(self.desk.start(), self.loop).result(10)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.desk.stop(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    def ask(self, job_id: str, attempt: int = 1, *, pause: bool = True, seconds: float = 20) -> str:
        request = CheckpointRequest(f"r-{uuid.uuid4().hex[:8]}", job_id, attempt, pause, seconds)
        self.loop.call_soon_threadsafe(self.desk.request, request)
        return request.request_id

    def registered(self, job_id: str, attempt: int = 1, ranks: int = 1) -> list[JobRegistered]:
        def here() -> list[JobRegistered] | None:
            found = [
                r
                for r in self.reports
                if isinstance(r, JobRegistered) and (r.job_id, r.attempt) == (job_id, attempt)
            ]
            return found if len(found) >= ranks else None

        return wait_until(here, f"{ranks} processes of {job_id} register")

    def outcome(self, request_id: str, *outcomes: str) -> CheckpointReport:
        def here() -> CheckpointReport | None:
            for report in self.reports:
                if not isinstance(report, CheckpointReport):
                    continue
                if report.request_id == request_id and report.outcome in outcomes:
                    return report
            return None

        return wait_until(here, f"{outcomes} of {request_id}")

    def gone(self, job_id: str, attempt: int = 1) -> list[JobGone]:
        return [
            r
            for r in self.reports
            if isinstance(r, JobGone) and (r.job_id, r.attempt) == (job_id, attempt)
        ]


@dataclass
class Cluster:
    """The head, and what tests do with it."""

    address: str
    runner: RayRunner
    desk: Desk
    folder: Path
    specs: list[JobSpec] = field(default_factory=list)
    gpus: int = GPUS
    examples: Path = EXAMPLES
    wait_until: Callable[[Callable[[], object], str], object] = staticmethod(wait_until)

    def spec(self, entrypoint: str, gpus: int = 1, **more) -> JobSpec:
        self.specs.append(JobSpec(f"j{uuid.uuid4().hex[:8]}", entrypoint, gpus, **more))
        return self.specs[-1]

    def script(self, text: str, gpus: int = 1, **more) -> JobSpec:
        """A job that runs Python source; ``state`` there is a folder of its own."""
        name = uuid.uuid4().hex[:8]
        state = self.folder / f"state-{name}"
        path = self.folder / f"{name}.py"
        path.write_text(f"state = {str(state)!r}\n{text}")
        return self.spec(f"{sys.executable} {path}", gpus, **more)

    def status(self, job_id: str, attempt: int = 1) -> RayStatus | None:
        return self.runner.statuses().get(submission_id(job_id, attempt))

    def ended(self, job_id: str, attempt: int = 1) -> RayStatus:
        def here() -> RayStatus | None:
            status = self.status(job_id, attempt)
            return status if status and status.status not in ("pending", "running") else None

        return wait_until(here, f"{job_id} attempt {attempt} ends")


@pytest.fixture(autouse=True)
def _no_job_outlives_its_test(cluster: Cluster) -> Iterator[None]:
    yield
    known = cluster.runner.statuses()
    for spec in cluster.specs:
        for attempt in (1, 2):
            status = known.get(submission_id(spec.job_id, attempt))
            if status is not None and status.status in ("pending", "running"):
                cluster.runner.stop(spec.job_id, attempt)
    cluster.specs.clear()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    # Short: the names of Ray's UNIX sockets must fit into 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="gw", dir="/tmp"))
    desk = Desk(folder / "agent.sock")
    address = f"http://127.0.0.1:{_free_port()}"
    with (folder / "head.log").open("wb") as log:
        head = subprocess.Popen(
            _command(folder, address.rpartition(":")[2]),
            env=_environment(desk.path),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        runner = RayRunner(address)
        _wait_for_agent(address, head, folder)
        yield Cluster(address, runner, desk, folder)
    finally:
        _end(head)
        desk.close()
        shutil.rmtree(folder, ignore_errors=True)


def _command(folder: Path, dashboard_port: str) -> list[str]:
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        "--node-ip-address=127.0.0.2",  # 127.0.0.1 would be replaced by the real interface
        f"--port={_free_port()}",
        "--dashboard-host=127.0.0.1",
        f"--dashboard-port={dashboard_port}",
        f"--ray-client-server-port={_free_port()}",
        f"--dashboard-agent-listen-port={_free_port()}",
        "--num-cpus=8",
        f"--num-gpus={GPUS}",
        "--object-store-memory=80000000",
        f"--temp-dir={folder}",
        "--disable-usage-stats",
    ]


def _environment(agent_socket: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return kept | {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_enable_metrics_collection": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "no_proxy": "*",
        "GRIDAWARE_AGENT_SOCKET": str(agent_socket),
    }


def _wait_for_agent(address: str, head: subprocess.Popen, folder: Path) -> None:
    """Ray can take submissions once the dashboard knows a node with an agent."""

    def ready() -> bool:
        assert head.poll() is None, (folder / "head.log").read_text()[-2000:]
        try:
            answer = requests.get(f"{address}/nodes?view=summary", timeout=2).json()
        except (requests.RequestException, ValueError):
            return False
        return bool(answer["data"]["summary"])

    wait_until(ready, "Ray's head is up", START_SECONDS)


def _end(head: subprocess.Popen) -> None:
    """End the head and its descendants, each by its own pid; asked nicely it takes 15 s."""
    try:
        family = psutil.Process(head.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    head.kill()
    head.wait()
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
