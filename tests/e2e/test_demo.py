"""``gridaware demo`` as a person runs it: its end, and Ctrl-C at any moment before."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from gridaware.clock import SystemClock
from gridaware.domain.errors import GridawareError
from gridaware.sim.window import Window

pytestmark = pytest.mark.usefixtures("no_site")
CLOCK = SystemClock()
END_SECONDS = 40.0
DEFAULT_WATTS = 400.0


@dataclass
class Demo:
    """A running demo, told from everything else on the machine by a mark in its environment."""

    process: "subprocess.Popen[bytes]"
    mark: str
    log: Path
    window: Window | None = field(default=None)

    def said(self) -> str:
        return self.log.read_text("utf-8", errors="replace")

    def family(self) -> set[psutil.Process]:
        """Every living process that carries the mark, however it was daemonised."""
        found = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if (
                    process.environ().get("GRIDAWARE_E2E_MARK") == self.mark
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.add(process)
        return found

    def limits(self) -> list[float]:
        """Of every GPU, once its plant is there; registers outlive the plant while mapped."""
        if self.window is None:
            for process in self.family():
                with contextlib.suppress(psutil.Error, GridawareError):
                    arguments = process.cmdline()
                    if "gridaware.sim.plant" in arguments:
                        path = arguments[arguments.index("--window") + 1]
                        self.window = Window.open(Path(path))
        if self.window is None:
            return []
        return [self.window.gpu(n).requested_watts for n in range(self.window.header.gpus)]


@pytest.fixture
def demo(tmp_path, request) -> Iterator[Demo]:
    mark = f"demo-{os.getpid()}-{request.node.name}"
    log = tmp_path / "demo.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "gridaware", "demo", "--folder", str(tmp_path / "report")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "GRIDAWARE_E2E_MARK": mark},
            start_new_session=True,
        )
    running = Demo(process, mark, log)
    yield running
    for left in running.family():  # only where the test has failed
        with contextlib.suppress(psutil.Error):
            left.kill()
    process.wait(10)


def until(demo: Demo, look: Callable[[], object], what: str, seconds: float) -> None:
    ends = CLOCK.monotonic_seconds() + seconds
    while not look():
        assert demo.process.poll() is None, f"it ended before {what}:\n{demo.said()[-3000:]}"
        assert CLOCK.monotonic_seconds() < ends, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


def leaves_nothing(demo: Demo, number: int) -> None:
    """It ends as interrupted, with every process gone and every limit as it was."""
    demo.limits()
    demo.process.send_signal(number)
    status = demo.process.wait(END_SECONDS)
    assert status == 130, demo.said()[-3000:]
    assert not demo.family(), [process.cmdline() for process in demo.family()]
    assert all(watts == DEFAULT_WATTS for watts in demo.limits())
    assert "Traceback" not in demo.said()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_stopped_while_it_starts_it_leaves_nothing(demo, number):
    until(demo, demo.limits, "the plant is up", 20)
    until(demo, lambda: len(demo.family()) > 6, "servers are coming up", 20)
    leaves_nothing(demo, number)


MOMENTS = {
    "as its first word is said": ("DEMO", 20),
    "when Ray is up": ("Ray is up", 60),
    "with jobs starting": ("three jobs are submitted", 90),
    "as the signal is taken": ("a signed webhook asks", 120),
    "while limits come back": ("the event is over", 200),
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("moment", MOMENTS)
def test_stopped_at_any_moment_it_leaves_nothing(demo, moment):
    said, seconds = MOMENTS[moment]
    until(demo, lambda: said in demo.said(), moment, seconds)
    if moment == "as the signal is taken":
        until(demo, lambda: min(demo.limits()) < DEFAULT_WATTS, "limits are lowered", 10)
    leaves_nothing(demo, signal.SIGINT)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_whole_demo_meets_its_target_and_writes_its_report(demo, tmp_path):
    until(demo, lambda: demo.process.poll() is not None or demo.limits(), "the plant is up", 20)
    assert demo.process.wait(300) == 0, demo.said()[-5000:]
    assert not demo.family()
    assert all(watts == DEFAULT_WATTS for watts in demo.limits())
    files = {path.name: path for path in (tmp_path / "report").iterdir()}
    assert {path.suffix for path in files.values()} == {".json", ".csv", ".html"}
    report = json.loads(next(p for n, p in files.items() if n.endswith(".json")).read_text())
    assert report["final"] is True
    assert report["delivery"]["intervals_missed"] == 0
    (pause,) = report["pauses"]
    assert pause["job_id"] == "flex-3-ablation"
    assert pause["step_saved"] == pause["step_resumed"]
    for words in ("a signed webhook asks for 40 % less", "the paused job has resumed", "wrote"):
        assert words in demo.said()
