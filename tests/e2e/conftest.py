"""Whole sites of real processes, one at a time, and the plant's own registers as the truth."""

import contextlib
import math
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from gridaware.client import Client
from gridaware.clock import SystemClock
from gridaware.domain.errors import GridawareError, Unavailable
from gridaware.sim.cluster import SiteOptions, VirtualSite
from gridaware.sim.grid import Sent, send_signed
from gridaware.sim.processes import Child
from gridaware.sim.window import GpuSlot, Window, process_started_ticks

FOUND_STEP_WATTS = 10.0
"""Each GPU's limit is found this much lower than its neighbour's: not the vendor's default."""
METER_ERROR = 0.005
"""What the meter that the controller follows may differ from the truth by."""
FIRST_ERROR = 0.015
"""A settlement interval of three seconds begins before one reading of the new caps has settled."""
STALL_SECONDS = 0.4
"""The probe looks every 0.05 s. Where it could not for this long, nobody had the processor ..."""
STALLED_ERROR = 0.05
"""... and what is judged is the promise alone, not how closely the loop follows it."""
LOG_LINES = 40
CLOCK = SystemClock()


def until(look: Callable[[], Any], what: str | Callable[[], str], seconds: float) -> Any:
    """The first true value of ``look()``; an API that does not answer just now is no answer."""
    ends = CLOCK.monotonic_seconds() + seconds
    while True:
        with contextlib.suppress(Unavailable):
            if found := look():
                return found
        if CLOCK.monotonic_seconds() > ends:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {seconds:g} s: {told}")
        time.sleep(0.05)


@dataclass(frozen=True)
class Sample:
    """The truth at one moment."""

    seconds: float
    site_watts: float
    limits_watts: tuple[float, ...]
    gpu_watts: tuple[float, ...]


class Truth(threading.Thread):
    """Twenty times a second the plant's true power and every limit; a context manager."""

    def __init__(self, window: Window, slots: list[GpuSlot]) -> None:
        super().__init__(daemon=True)
        self.samples: list[Sample] = []
        self._window, self._slots = window, slots
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.05):
            limits = tuple(slot.requested_watts for slot in self._slots)
            watts = self._window.header.true_site_watts
            gpu_watts = tuple(slot.true_watts for slot in self._slots)
            self.samples.append(Sample(CLOCK.monotonic_seconds(), watts, limits, gpu_watts))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._done.set()
        self.join(5)

    def between(self, start: float, end: float) -> list[Sample]:
        found = [s for s in list(self.samples) if start <= s.seconds < end]
        assert found, "nothing was seen"
        return found

    def told(self, promise: "Promise") -> str:
        """Four lines a second, for an error message."""
        lines = [
            f"{s.seconds - promise.sent_seconds:+6.2f} s {s.site_watts:7.1f} W "
            + " ".join(f"{watts:.1f}" for watts in s.limits_watts)
            for s in self.samples[::5]
        ]
        return "\n".join(lines)

    @property
    def stalled(self) -> bool:
        """Whether the machine was too busy for a site that runs in real time."""
        times = [sample.seconds for sample in self.samples]
        return any(b - a > STALL_SECONDS for a, b in pairwise(times))

    def means_watts(self, seconds: float, start: float, end: float) -> list[float]:
        """True power in each whole interval of ``seconds`` from ``start`` on."""
        means = []
        while start + seconds <= end:
            watts = [s.site_watts for s in self.between(start, start + seconds)]
            means.append(sum(watts) / len(watts))
            start += seconds
        assert means, "the period is shorter than the interval"
        return means


@dataclass
class Promise:
    """An event that was accepted: what is owed, and when on the monotonic clock."""

    event_id: str
    sent_seconds: float
    ends_seconds: float
    limit_watts: float
    found_watts: tuple[float, ...]


@dataclass
class Site:
    """A virtual site, with what a test does to it and sees of it."""

    virtual: VirtualSite
    deadline_seconds: float
    interval_seconds: float
    window: Window = field(init=False)
    client: Client = field(init=False)
    found_watts: dict[str, float] = field(default_factory=dict)
    serve: Child = field(init=False)
    agents: list[Child] = field(default_factory=list)
    events: int = 0
    controllers: int = 0
    """Started so far, each with an epoch of its own."""
    ledger_seq: int = 0
    full_watts: float = 0.0
    steady_since: float = 0.0
    until: Callable[..., Any] = staticmethod(until)

    @property
    def ramp_watts_per_minute(self) -> float:
        """How fast the site may rise at its meter."""
        return self.virtual.options.settings["site"]["ramp"]["up_watts_per_minute"]

    def limit_sum_watts(self, sample: Sample) -> float:
        """What the meter would show if every GPU drew its limit, less what is fixed."""
        slope = self.virtual.options.settings["site"]["overhead"]["slope"]
        return slope * sum(sample.limits_watts)

    # Starting and ending -----------------------------------------------------------------------

    def start(self, *, ray: bool, loaded: bool) -> None:
        """Start everything; ``loaded``: this process keeps every GPU busy."""
        virtual = self.virtual
        virtual.start_plant()
        self.window = virtual.window()
        for number, slot in enumerate(self.slots()):
            slot.requested_watts = slot.default_watts - FOUND_STEP_WATTS * (number + 1)
            if loaded:
                keep_busy(slot)
        self.found_watts = self.limits()
        virtual.configure()
        self.client = Client(virtual.web_url, virtual.api_key)
        self._start_serve()
        if ray:
            virtual.start_ray()
        self.agents = [virtual.start_agent(n) for n in range(len(virtual.nodes))]
        virtual.wait_for_api(self.serve)
        self.all_connected()

    def end(self) -> None:
        self.client.close()
        self.virtual.end()
        shutil.rmtree(self.virtual.home, ignore_errors=True)

    def heal(self) -> None:
        """Whatever a test has done: every process runs, no fault is left, nothing is acting."""
        for slot in self.slots():
            slot.hang_seconds, slot.lost = 0.0, 0
        self.set_wall_offset("serve", 0.0)
        self.set_wall_offset("agents", 0.0)
        if not self.serve.alive:
            self.restart_serve()
        for n, agent in enumerate(self.agents):
            if not agent.alive:
                self.restart_agent(n)
        self.all_connected()
        for event in self.client.events():
            if event["state"] in {"announced", "scheduled", "ramping_down", "holding"}:
                self.client.opt_out(event["event_id"])
        until(self.is_restored, lambda: f"found {self.found_watts}, now {self.limits()}", 30)
        until(self.is_idle, "no event acts", 30)
        until(self.is_steady, "power is back for as long as a reference takes", 30)

    def restart_serve(self) -> None:
        """What its supervisor does."""
        self.serve.process.wait(15)
        self._start_serve()

    def _start_serve(self) -> None:
        self.serve = self.virtual.start_serve_soon()
        self.controllers += 1

    def restart_agent(self, n: int) -> None:
        self.agents[n].process.wait(15)
        self.agents[n] = self.virtual.start_agent(n)

    def all_connected(self) -> None:
        nodes = len(self.virtual.nodes)

        def look() -> bool:
            status = self.client.status()  # of the newest controller, not what an old one left
            newest = status["controller_epoch"] == self.controllers
            return newest and status["nodes"]["connected"] == nodes

        until(look, "all agents are connected", 30)

    # Processes ---------------------------------------------------------------------------------

    def pid_of(self, module: str, of: Child) -> int:
        """The process of that module among the descendants of a child."""

        def look() -> int | None:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in psutil.Process(of.process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if module in process.cmdline():
                            return process.pid
            return None

        return until(look, f"{module} runs", 15)

    def kill(self, victim: str) -> None:
        """SIGKILL for one kind of process; whatever supervises it starts it again."""
        match victim:
            case "agent":
                self.agents[0].process.kill()
                self.restart_agent(0)
            case "driver child":
                os.kill(self.pid_of("gridaware.node.child", self.agents[0]), signal.SIGKILL)
            case "control":
                os.kill(self.pid_of("gridaware.wiring.control", self.serve), signal.SIGKILL)
                self.restart_serve()
            case "web":
                os.kill(self.pid_of("gridaware.wiring.web", self.serve), signal.SIGKILL)
            case "serve":
                control = psutil.Process(self.pid_of("gridaware.wiring.control", self.serve))
                self.serve.process.kill()
                control.wait(15)  # it ends with its parent
                self.restart_serve()
            case _:
                raise AssertionError(victim)

    def kill_serve_for_good(self) -> None:
        """Control and web at once, and nobody starts them again."""
        os.killpg(self.serve.process.pid, signal.SIGKILL)
        self.serve.process.wait(15)

    def set_wall_offset(self, whose: str, seconds: float) -> None:
        """Step the wall clock of ``serve`` or of the ``agents``."""
        path = self.virtual.home / f"{whose}-offset"
        draft = path.with_suffix(".new")
        draft.write_text(str(seconds), encoding="ascii")
        draft.rename(path)

    # The truth ---------------------------------------------------------------------------------

    def slots(self) -> list[GpuSlot]:
        """Every GPU of the site, node by node."""
        nodes = range(len(self.virtual.nodes))
        return [slot for n in nodes for slot in self.window.gpus_of(n)]

    def limits(self) -> dict[str, float]:
        """The limit requested of every GPU, in its register."""
        return {slot.uuid.decode(): slot.requested_watts for slot in self.slots()}

    def is_restored(self) -> bool:
        now = self.limits()
        return all(abs(now[gpu] - watts) < 0.01 for gpu, watts in self.found_watts.items())

    def is_idle(self) -> bool:
        return all(
            event["state"] not in {"ramping_down", "holding", "ramping_up"}
            for event in self.client.events()
        )

    def is_steady(self) -> bool:
        """Whether power is where it was before anything happened, and has been long enough."""
        now, watts = CLOCK.monotonic_seconds(), self.window.header.true_site_watts
        if not 0.98 * self.full_watts <= watts <= 1.02 * self.full_watts:
            self.steady_since = now
        self.full_watts = max(self.full_watts, watts)
        window = self.virtual.options.settings["site"]["reference_window_seconds"]
        return now - self.steady_since > window + 0.3

    def watching(self) -> Truth:
        return Truth(self.window, self.slots())

    # The grid ----------------------------------------------------------------------------------

    def send(self, body: Mapping[str, object] | bytes, url: str = "") -> Sent:
        """Post a signed webhook."""
        secret = self.virtual.webhook_secret.encode()
        return send_signed(url or self.virtual.signals_url, secret, body, CLOCK)

    def ask(
        self, *, seconds: float, reduce_percent: float = 20.0, url: str = "", **more: object
    ) -> Promise:
        """A signed signal that is accepted, with the limit that it sets."""
        self.events += 1
        body = {
            "id": f"e{self.events}",
            "start": "now",
            "duration": f"PT{seconds:g}S",
            "target": {"reduce_percent": reduce_percent},
            **more,
        }
        sent = self.send({k: value for k, value in body.items() if value is not None}, url)
        assert sent.status == 200, sent.answer
        event_id = str(sent.answer["event_id"])
        limit = until(lambda: self.client.event(event_id)["limit_watts"], "its limit", 5)
        ends = sent.sent_seconds + seconds
        return Promise(event_id, sent.sent_seconds, ends, limit, tuple(self.found_watts.values()))

    def refusal(self, code: str, source: str = "") -> dict[str, Any]:
        """The ledger's entry of a refusal since the last that was asked for."""

        def look() -> dict[str, Any] | None:
            for entry in self.client.ledger(from_seq=self.ledger_seq + 1):
                self.ledger_seq = entry["seq"]
                value = entry["body"]["value"]
                refused = entry["body"]["type"] == "InputRefused" or (
                    entry["body"]["type"] == "Answer" and value["disposition"] == "refused"
                )
                if refused and value["code"] == code and source in value.get("source", ""):
                    return value
            return None

        return until(look, f"{code} is in the ledger", 5)

    def reaches(self, promise: Promise, *states: str, seconds: float = 20.0) -> None:
        """Wait for a state of the event."""

        def look() -> bool:
            return self.client.event(promise.event_id)["state"] in states

        until(look, f"{promise.event_id} is {' or '.join(states)}", seconds)

    def was_kept(self, promise: Promise, truth: Truth, *, error: float | None = None) -> None:
        """In each settlement interval the mean of true power met the target, under caps.

        ``error``: share of the target by which a mean may be above it, where that is not usual.
        """
        ready = promise.sent_seconds + self.deadline_seconds
        end = promise.ends_seconds
        highest = max(truth.means_watts(self.interval_seconds, ready, end))
        if error is None:
            error = METER_ERROR if self.interval_seconds >= 5 else FIRST_ERROR
            error = STALLED_ERROR if truth.stalled else error
        assert highest <= promise.limit_watts * (1 + error), (
            f"{highest:.0f} W where {promise.limit_watts:.0f} W are owed\n{truth.told(promise)}"
        )
        for sample in truth.between(ready, end - 0.1):
            assert sample.limits_watts != promise.found_watts, "every cap was let go early"

    def comes_back(self, promise: Promise, *, seconds: float = 20.0) -> None:
        """Every found limit stands again, and the event says so."""
        until(self.is_restored, f"found limits; now {self.limits()}", seconds)
        self.reaches(promise, "restored", "settled", seconds=10)


def keep_busy(slot: GpuSlot, workload: str = "pretrain") -> None:
    """Let this process keep work queued on a GPU for good: a process that is not ours."""
    started = process_started_ticks(os.getpid())
    assert started is not None
    load = slot.load(0)
    load.claim(workload, os.getpid(), started)
    load.until_seconds = math.inf


# Sites -------------------------------------------------------------------------------------------

# Overheads are near what the plant draws beside its GPUs, as commissioning would have measured it.
BARE = SiteOptions(
    nodes=2,
    gpus_per_node=2,
    settings={
        "site": {
            "overhead": {"fixed_watts": 100.0, "slope": 1.13},
            "ramp": {"up_watts_per_minute": 24000.0},
            "reference_window_seconds": 1.0,
            "settle_after_seconds": 0.3,
        },
        "control": {"policy": "unmanaged", "silence_seconds": 2.0},
        "programmes": [
            {
                "id": "demand-response",
                "deadline_seconds": 1.5,
                "settlement_interval_seconds": 3.0,
                "signal_loss": {"hold_seconds": 3.0},
            }
        ],
    },
)
WITH_RAY = SiteOptions(
    nodes=1,
    gpus_per_node=8,
    settings={
        "site": {
            "overhead": {"fixed_watts": 255.0, "slope": 1.115},
            "ramp": {"up_watts_per_minute": 24000.0},
            "reference_window_seconds": 3.0,
            "settle_after_seconds": 2.0,
        },
        "control": {"policy": "demo"},
        "programmes": [
            {
                "id": "demand-response",
                "deadline_seconds": 5.0,
                "settlement_interval_seconds": 6.0,
            }
        ],
    },
)


class Sites:
    """Starts a site when a test asks for it, and ends the one before."""

    def __init__(self) -> None:
        self.now: Site | None = None
        self._name = ""

    def get(self, name: str, options: SiteOptions, *, ray: bool, loaded: bool) -> Site:
        if self.now is not None and self._name == name:
            return self.now
        self.close()
        home = Path(tempfile.mkdtemp(prefix="ge", dir="/tmp"))
        self.now, self._name = Site(with_offsets(options, home), 0.0, 0.0), name
        programme = options.settings["programmes"][0]
        self.now.deadline_seconds = programme["deadline_seconds"]
        self.now.interval_seconds = programme["settlement_interval_seconds"]
        self.now.start(ray=ray, loaded=loaded)
        return self.now

    def close(self) -> None:
        site, self.now = self.now, None
        if site is not None:
            site.end()


def with_offsets(options: SiteOptions, home: Path) -> VirtualSite:
    """A site whose wall clocks follow files."""

    def follow(whose: str) -> dict[str, str]:
        return {"GRIDAWARE_TEST_WALL_OFFSET_FILE": str(home / f"{whose}-offset")}

    return VirtualSite(
        SiteOptions(
            nodes=options.nodes,
            gpus_per_node=options.gpus_per_node,
            settings=options.settings,
            serve_environment=follow("serve"),
            agent_environment=follow("agents"),
        ),
        home,
    )


SITES = pytest.StashKey[Sites]()


@pytest.fixture(scope="session")
def sites(request: pytest.FixtureRequest) -> Iterator[Sites]:
    """At most one site at a time."""
    made = request.config.stash[SITES] = Sites()
    yield made
    made.close()


@pytest.fixture
def bare_site(sites: Sites) -> Site:
    """Two nodes of two GPUs without Ray, busy with a process that is not ours but may be capped."""
    site = sites.get("bare", BARE, ray=False, loaded=True)
    site.heal()
    return site


@pytest.fixture(scope="session")
def ray_options() -> SiteOptions:
    """One node of eight GPUs, for a real Ray."""
    return WITH_RAY


@pytest.fixture
def no_site(sites: Sites) -> None:
    """For a test that starts one itself."""
    sites.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """With a failure, the end of what every process has said."""
    report = yield
    made = item.config.stash.get(SITES, None)
    if report.failed and made is not None and made.now is not None:
        for name, child in {c.name: c for c in made.now.virtual.children.started}.items():
            with contextlib.suppress(OSError, GridawareError):
                report.sections.append((f"log of {name}", child.tail(LOG_LINES)))
    return report
