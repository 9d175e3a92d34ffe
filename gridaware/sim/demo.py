"""``gridaware demo``: the whole thing in two minutes, on simulated GPUs and a real Ray.

A local Ray cluster of two 8-GPU nodes with an agent each, the controller, three training jobs; a
signed webhook asks for 40 % less for 45 s; at the end stands the event report.
"""

import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from gridaware.client import Client
from gridaware.clock import SystemClock
from gridaware.domain.errors import GridawareError, TimedOut
from gridaware.service.render import report_of, report_table, write_report_files
from gridaware.settlement.event_report import EventReport
from gridaware.sim.cluster import SiteOptions, VirtualSite
from gridaware.sim.grid import send_signed
from gridaware.sim.screen import Picture, Screen

__all__ = ["run"]

EVENT_SECONDS = 45
REDUCE_PERCENT = 40
BASELINE_SECONDS = 20.0
TARGET_MISSED = 5
JOBS: tuple[dict[str, Any], ...] = (
    {"job_id": "firm-llm", "tier": "firm", "gpus": 2, "workload": "pretrain", "team": "search"},
    {
        "job_id": "flex-3-ablation",
        "tier": "flex-3",
        "gpus": 6,
        "workload": "pretrain",
        "team": "research",
    },
    {
        "job_id": "flex-2-finetune",
        "tier": "flex-2",
        "gpus": 8,
        "workload": "finetune",
        "team": "product",
    },
)
SETTINGS: dict[str, Any] = {
    "site": {
        "overhead": {"fixed_watts": 600.0, "slope": 1.1},
        "ramp": {"up_watts_per_minute": 15000.0},
        "reference_window_seconds": 15.0,
        "settle_after_seconds": 12.0,
    },
    "control": {"policy": "demo"},
    "programmes": [
        {
            "id": "demand-response",
            "deadline_seconds": 10.0,
            "settlement_interval_seconds": 15.0,
        }
    ],
}


class _Stopped(Exception):
    """Ctrl-C, or the order to end."""


def run(folder: Path) -> int:
    """Run the demo and write the event's report into ``folder``; an exit status.

    0: the target was met. 5: it was missed. Ctrl-C at any moment leaves no process and no changed
    limit behind.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise _Stopped

    before = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)}
    site: VirtualSite | None = None
    try:
        site = VirtualSite(SiteOptions(settings=SETTINGS))
        return _Demo(site, folder).play()
    except _Stopped:
        sys.stderr.write("\nstopped: ending every process and restoring every limit\n")
        return 130
    finally:
        for number in before:  # what is being put right is not stopped half way
            signal.signal(number, signal.SIG_IGN)
        if site is not None:
            site.end()
        for number, handler in before.items():
            signal.signal(number, handler)


class _Demo:
    def __init__(self, site: VirtualSite, folder: Path) -> None:
        self._site = site
        self._folder = folder
        self._clock = SystemClock()
        self._began = self._clock.monotonic_seconds()
        self._phase = "starting"
        self._full_watts = 1000.0
        self._client: Client | None = None
        self._event_id: str | None = None

    def play(self) -> int:
        with Screen() as screen:
            self._screen = screen
            self._start()
            self._submit()
            self._ask()
            self._watch_event()
            report = self._fetch_report()
        return self._finish(report)

    # The acts ----------------------------------------------------------------------------------

    def _start(self) -> None:
        self._say("DEMO: the GPUs are simulated, everything else is real")
        site = self._site
        site.start_plant()
        self._say("16 virtual A100 GPUs on two nodes are up")
        site.configure()
        serve = site.start_serve_soon()
        site.start_ray()
        self._say(f"Ray is up: two nodes with 8 GPUs each ({site.ray_url})")
        site.wait_for_api(serve)
        site.start_agents()
        self._client = Client(site.web_url, site.api_key)
        self._wait("both agents", lambda: self._status()["nodes"]["connected"] == 2, 30)
        self._say(f"controller and both agents are up ({site.web_url})")

    def _submit(self) -> None:
        self._phase = "starting jobs"
        assert self._client is not None
        script = self._site.example("train_loop.py")
        for job in JOBS:
            state_dir = self._site.home / "jobs" / job["job_id"]
            self._client.submit_job(
                entrypoint=f"{sys.executable} {script} --state-dir {state_dir} --steps 100000 "
                f"--step-seconds 0.25 --workload {job['workload']} --save-every 200",
                expected_seconds=600.0,
                checkpoint_grace_seconds=20.0,
                **job,
            )
        self._say("three jobs are submitted to Ray: one firm, one flex-2, one flex-3")
        self._wait("the jobs", lambda: self._states() == {"running"}, 90)
        self._phase = "measuring the baseline"
        self._pause(BASELINE_SECONDS)

    def _ask(self) -> None:
        watts = self._status()["power_watts"]
        self._full_watts = 1.05 * watts
        body = {
            "id": "demo-1",
            "start": "now",
            "duration": f"PT{EVENT_SECONDS}S",
            "target": {"reduce_percent": REDUCE_PERCENT},
        }
        secret = self._site.webhook_secret.encode()
        sent = send_signed(self._site.signals_url, secret, body, self._clock)
        if sent.status != 200:
            raise GridawareError("demo-refused", f"the signal was refused: {dict(sent.answer)}")
        self._event_id = str(sent.answer["event_id"])
        took = 1e3 * (sent.answered_seconds - sent.sent_seconds)
        self._say(
            f"a signed webhook asks for {REDUCE_PERCENT} % less for {EVENT_SECONDS} s; "
            f"taken in {took:.0f} ms"
        )

    def _watch_event(self) -> None:
        self._phase = "event"
        self._wait("the event's end", lambda: self._event_state() in _BACK, EVENT_SECONDS + 60)
        self._phase = "coming back"
        self._say("the event is over; limits come back within the ramp")
        self._wait("the restore", lambda: self._event_state() in _RESTORED, 120)
        self._say("every limit is back, the paused job has resumed")
        self._phase = "settling"
        self._wait("the report", lambda: self._event_state() == "settled", 60)

    def _fetch_report(self) -> Mapping[str, Any]:
        assert self._client is not None
        assert self._event_id is not None
        client, event_id = self._client, self._event_id
        end = self._clock.monotonic_seconds() + 20
        while True:
            report: Mapping[str, Any] = client.event_report(event_id)
            if report["final"] or self._clock.monotonic_seconds() > end:
                return report
            self._pause(0.5)

    def _finish(self, body: Mapping[str, Any]) -> int:
        report = report_of(body)
        assert isinstance(report, EventReport)
        files = write_report_files(report, self._folder)
        sys.stdout.write("\n" + report_table(report) + "\n")
        for path in files:
            sys.stdout.write(f"wrote {path}\n")
        missed = report.delivery.intervals_missed > 0 or report.unresolved_watts > 0
        return TARGET_MISSED if missed else 0

    # Looking -----------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._screen.say(self._seconds(), text)

    def _seconds(self) -> float:
        return self._clock.monotonic_seconds() - self._began

    def _status(self) -> Mapping[str, Any]:
        assert self._client is not None
        return self._client.status()

    def _jobs(self) -> list[Mapping[str, Any]]:
        assert self._client is not None
        return [self._client.job(job["job_id"]) for job in JOBS]

    def _states(self) -> set[str]:
        return {str(job["state"]) for job in self._jobs()}

    def _event(self) -> Mapping[str, Any] | None:
        if self._event_id is None:
            return None
        assert self._client is not None
        return self._client.event(self._event_id)

    def _event_state(self) -> str:
        event = self._event()
        return str(event["state"]) if event is not None else ""

    def _look(self) -> None:
        jobs = self._jobs() if self._phase != "starting" else []
        status = self._status()
        self._full_watts = max(self._full_watts, 1.05 * (status["power_watts"] or 0.0))
        self._screen.show(
            Picture(self._seconds(), self._phase, status, jobs, self._event(), self._full_watts)
        )

    def _pause(self, seconds: float) -> None:
        end = self._clock.monotonic_seconds() + seconds
        while self._clock.monotonic_seconds() < end:
            self._look()
            time.sleep(0.25)

    def _wait(self, what: str, ready: Callable[[], bool], seconds: float) -> None:
        end = self._clock.monotonic_seconds() + seconds
        while not ready():
            if self._clock.monotonic_seconds() > end:
                raise TimedOut("demo-slow", f"{what} took more than {seconds:.0f} s")
            self._look()
            time.sleep(0.25)


_BACK = {"ramping_up", "restored", "settled"}
_RESTORED = {"restored", "settled"}
