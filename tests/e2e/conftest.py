"""Whole sites of real processes, one at a time, and the plant's own registers as the truth."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from gridaware.client import Client
from gridaware.clock import SystemClock
from gridaware.control.machine import Machine
from gridaware.control.replay import Replayed, replay
from gridaware.domain.errors import GridawareError, Unavailable
from gridaware.sim.cluster import SiteOptions, VirtualSite
from gridaware.sim.grid import Sent, send_signed
from gridaware.sim.processes import Child
from gridaware.sim.proxy import Proxy
from gridaware.sim.window import GpuSlot, Window
from gridaware.sim.workloads import keep_busy
from gridaware.store.chain import LedgerEntry, genesis_hash, seal
from gridaware.store.reader import StoreReader
from gridaware.wiring.config import load_settings
from gridaware.wiring.curves import load_curves

FOUND_STEP_WATTS = 10.0
"""Each GPU's limit is found this much lower than its neighbour's: not the vendor's default."""
METER_ERROR = 0.005
"""What the meter that the controller follows may differ from the truth by."""
FIRST_ERROR = 0.015
"""A settlement interval of three seconds begins before one reading of the new caps has settled."""
SECOND = 0.85
"""Limits rise once a second. The two timers that make two steps, and the probe that sees them, may
each be late by this much less than one."""
STALL_SECONDS = 0.4
"""The probe looks every 0.05 s. Where it could not for this long, nobody had the processor ..."""
STALLED_ERROR = 0.05
"""... and what is judged is the promise alone, not how closely the loop follows it."""
UNSEEN_SECONDS = 1.0
"""Power that nobody looked at for this long may have been anything: a wait begins again."""
LOG_LINES = 40
CONTROL_DISK, AGENTS_DISK = "128m", "8m"
"""File systems of their own for what control and the agents keep, so that they can be filled."""
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


class GridClock(SystemClock):
    """The clock of whoever sends signals."""

    def __init__(self, offset_seconds: float) -> None:
        super().__init__()
        self._grid_offset = timedelta(seconds=offset_seconds)

    def wall(self) -> datetime:
        return super().wall() + self._grid_offset


class LedgerReader:
    """Reads a site's ledger on from where it was: chain, replay, and what came of the events."""

    def __init__(self, site: "Site") -> None:
        self._settings = load_settings(site.virtual.settings_file)
        self._hash = genesis_hash(self._settings.site.name)
        self._run = Replayed(Machine(load_curves()))
        self._seq = 0

    def follow(self) -> Machine:
        """The machine again, from every entry up to the last stimulus.

        Asserts that no hash of the chain is broken, and that each decision is made again as it was.
        """
        entries = self._entries()
        stimuli = [n for n, entry in enumerate(entries) if entry.kind == "stimulus"]
        whole = entries[: stimuli[-1]] if stimuli else []  # its decisions may still be on their way
        for entry in whole:
            assert entry.seq == self._seq + 1, f"entry {self._seq + 1} is missing"
            assert entry.prev_hash == self._hash, f"entry {entry.seq} does not follow"
            again = seal(entry.prev_hash, entry.seq, entry.at, entry.kind, entry.body)
            assert again == entry.hash, f"entry {entry.seq} was altered"
            self._seq, self._hash = entry.seq, entry.hash
        replay(self._run, [(entry.kind, json.loads(entry.body)) for entry in whole])
        assert self._run.differences == []
        return self._run.machine

    def _entries(self) -> list[LedgerEntry]:
        reader = StoreReader(self._settings.store_url)
        found: list[LedgerEntry] = []
        try:
            while page := reader.ledger(from_seq=self._seq + len(found) + 1, limit=1000):
                found += page
        finally:
            reader.close()
        return found


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
    looked_at: float = 0.0
    """When power was last looked at: what it did since is not known."""
    grid_offset_seconds: float = 0.0
    """How far the grid's wall clock is from the machine's."""
    proxy: Proxy | None = None
    """Between the agents and control."""
    as_made_watts: tuple[float, ...] = ()
    """Every limit as it was before anything happened."""
    mounted: list[Path] = field(default_factory=list)
    reading: LedgerReader | None = None
    until: Callable[..., Any] = staticmethod(until)

    @property
    def ramp_watts_per_minute(self) -> float:
        """How fast the site may rise at its meter."""
        return self.virtual.options.settings["site"]["ramp"]["up_watts_per_minute"]

    # Starting and ending -----------------------------------------------------------------------

    def start(self, *, ray: bool, loaded: bool) -> None:
        """Start everything; ``loaded``: this process keeps every GPU busy."""
        virtual = self.virtual
        virtual.start_plant()
        self.window = virtual.window()
        for number, slot in enumerate(self.slots()):
            slot.requested_watts = slot.default_watts - FOUND_STEP_WATTS * (number + 1)
            if loaded:
                keep_busy(slot, "pretrain")
        self.found_watts = self.limits()
        self.as_made_watts = tuple(self.found_watts.values())
        virtual.configure()
        self._mount(virtual.settings_file.parent / "state", CONTROL_DISK)
        self._mount(virtual.home / "agents", AGENTS_DISK)
        if not ray:
            self.proxy = Proxy(virtual.ports["agents"])
            virtual.agents_dial_port = self.proxy.port
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
        if self.proxy is not None:
            self.proxy.close()
        for path in self.mounted:
            subprocess.run(["umount", "-l", str(path)], check=False)
        shutil.rmtree(self.virtual.home, ignore_errors=True)

    def heal(self) -> None:
        """Whatever a test has done: every process runs, no fault is left, nothing is acting."""
        self.heal_faults()
        self.come_to_rest()

    def heal_faults(self) -> None:
        """Every process runs, and no fault is left."""
        for slot in self.slots():
            slot.hang_seconds, slot.lost = 0.0, 0
        self.window.header.meter_fault = 0
        if self.proxy is not None:
            self.proxy.mend()
        self.set_wall_offset("serve", 0.0)
        self.set_wall_offset("agents", 0.0)
        self.grid_offset_seconds = 0.0
        if not self.serve.alive:
            self.restart_serve()
        for n, agent in enumerate(self.agents):
            if not agent.alive:
                self.restart_agent(n)
        self.all_connected()
        until(self.every_gpu_answers, "every GPU answers its agent", 40)

    def every_gpu_answers(self) -> bool:
        """Whether control knows every GPU, and no limit that cannot be set."""
        known = self.client.gpus()
        return len(known) == len(self.slots()) and not any(gpu["error"] for gpu in known)

    def come_to_rest(self) -> None:
        """Nothing is acting, and everything is as it was made."""
        for event in self.client.events():
            if event["state"] in {"announced", "scheduled", "ramping_down", "holding"}:
                self.client.opt_out(event["event_id"])
        until(self.is_restored, lambda: f"found {self.found_watts}, now {self.limits()}", 30)
        until(self.is_idle, "no event acts", 30)
        if tuple(self.found_watts.values()) != self.as_made_watts:
            for slot, watts in zip(self.slots(), self.as_made_watts, strict=True):
                slot.requested_watts = watts
            self.found_watts, self.full_watts = self.limits(), 0.0
            time.sleep(1.5)  # the agents read what stands once a second
        until(self.is_steady, "power is back for as long as a reference takes", 30)

    def _mount(self, path: Path, size: str) -> None:
        """A small file system of its own, where this user may make one."""
        path.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)],
            capture_output=True,
            check=False,
        )
        if made.returncode == 0:
            self.mounted.append(path)

    def ledger(self) -> LedgerReader:
        """What is written, read on from where it was last read to."""
        if self.reading is None:
            self.reading = LedgerReader(self)
        return self.reading

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

    def kill_ray(self) -> None:
        """SIGKILL to every process of Ray, and to what runs on it."""
        for ray in self.virtual.ray:
            family = psutil.Process(ray.process.pid).children(recursive=True)
            ray.process.kill()
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            ray.process.wait(10)
        self.virtual.ray.clear()

    def kill_serve_for_good(self) -> None:
        """Control and web at once, and nobody starts them again."""
        os.killpg(self.serve.process.pid, signal.SIGKILL)
        self.serve.process.wait(15)

    def wall_offset(self, whose: str) -> float:
        """How far that wall clock is stepped."""
        return float((self.virtual.home / f"{whose}-offset").read_text("ascii"))

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
        is_full = 0.98 * self.full_watts <= watts <= 1.02 * self.full_watts
        if not is_full or now - self.looked_at > UNSEEN_SECONDS:
            self.steady_since = now
        self.looked_at = now
        self.full_watts = max(self.full_watts, watts)
        window = self.virtual.options.settings["site"]["reference_window_seconds"]
        return now - self.steady_since > window + 0.3

    def now(self) -> float:
        """Monotonic seconds, as samples have them."""
        return CLOCK.monotonic_seconds()

    def wall(self) -> datetime:
        """The instant, by this machine's clock."""
        return CLOCK.wall()

    def watching(self) -> Truth:
        return Truth(self.window, self.slots())

    # The grid ----------------------------------------------------------------------------------

    def send(self, body: Mapping[str, object] | bytes, url: str = "") -> Sent:
        """Post a signed webhook, by the grid's own clock."""
        secret = self.virtual.webhook_secret.encode()
        clock = GridClock(self.grid_offset_seconds)
        return send_signed(url or self.virtual.signals_url, secret, body, clock)

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
        given = {k: value for k, value in body.items() if value is not None}
        sent = until(lambda: self._accepted(given, url), "it is accepted", 5)
        assert sent.status == 200, sent.answer
        event_id = str(sent.answer["event_id"])
        limit = until(lambda: self.client.event(event_id)["limit_watts"], "its limit", 5)
        ends = sent.sent_seconds + seconds
        return Promise(event_id, sent.sent_seconds, ends, limit, tuple(self.found_watts.values()))

    def _accepted(self, body: Mapping[str, object], url: str) -> Sent | None:
        """What a sender does: it repeats what could not be made durable."""
        sent = self.send(body, url)
        return None if sent.status == 503 else sent

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

    def was_kept(
        self,
        promise: Promise,
        truth: Truth,
        *,
        error: float | None = None,
        under_caps: bool = True,
    ) -> None:
        """In each settlement interval the mean of true power met the target, under caps.

        Args:
            promise: what is owed.
            truth: what was seen.
            error: share of the target by which a mean may be above it, where that is not usual.
            under_caps: limits are below the found ones all the time; False where less work is left
                than the target allows.
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
            let_go = sample.limits_watts == promise.found_watts
            assert not (let_go and under_caps), "every cap was let go early"

    def rose_within_ramp(self, promise: Promise, truth: Truth) -> None:
        """True power stayed below the line that the ramp draws from the end of the event.

        And in no second it rose by more than a second's ramp. What it may be beside that is what
        the meter that the controller follows may differ from it by.
        """
        per_second = self.ramp_watts_per_minute / 60
        back = truth.between(promise.ends_seconds - 0.1, float("inf"))
        at_end = back[0]
        for sample in back:
            error = METER_ERROR * sample.site_watts
            line = at_end.site_watts + per_second * (sample.seconds - at_end.seconds)
            assert sample.site_watts <= line + error, truth.told(promise)
            within = [s for s in back if 0.0 <= s.seconds - sample.seconds <= SECOND]
            rose = max(s.site_watts for s in within) - sample.site_watts
            assert rose <= per_second + error or truth.stalled, truth.told(promise)

    def comes_back(self, promise: Promise, *, seconds: float = 20.0) -> None:
        """Every found limit stands again, and the event says so."""
        until(self.is_restored, f"found limits; now {self.limits()}", seconds)
        self.reaches(promise, "restored", "settled", seconds=10)


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
CEILING_WATTS, CEILING_SECONDS = 1450.0, 3.0
UNDER_A_CEILING = SiteOptions(
    nodes=2,
    gpus_per_node=2,
    settings={
        **BARE.settings,
        "site": {
            **BARE.settings["site"],
            "hard_limit": {"watts": CEILING_WATTS, "averaging_seconds": CEILING_SECONDS},
        },
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


@pytest.fixture
def ceiling_site(sites: Sites) -> Site:
    """The same, at a connection that allows less than its work would draw."""
    site = sites.get("ceiling", UNDER_A_CEILING, ray=False, loaded=True)
    site.heal_faults()
    below = 0.99 * CEILING_WATTS
    until(lambda: site.window.header.true_site_watts < below, "it is below its ceiling", 20)
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
