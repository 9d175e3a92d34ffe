"""The desk and real processes over a real socket: honest jobs, restarts, and hostile neighbours."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from gridaware import train
from gridaware.clock import SystemClock
from gridaware.domain.errors import ConfigError, Refused
from gridaware.domain.jobword import Leaving, Progress, Register, encode_line
from gridaware.domain.wire import (
    CheckpointReport,
    CheckpointRequest,
    JobGone,
    JobProgress,
    JobRegistered,
)
from gridaware.node import desk as module
from gridaware.node.desk import JobDesk

BOARDS = ["GPU-a", "GPU-b", "GPU-c"]
LOOP = """
import os, subprocess, sys, time
from gridaware import train
with train.session(sys.argv[1]) as session:
    found = session.resume_from()
    step = found.step if found else 0
    print("start", step, flush=True)
    while True:
        time.sleep(0.01)
        step += 1
        session.step(step)
        request = session.should_checkpoint()
        if request:
            folder = session.checkpoint_dir / str(step)
            folder.mkdir(parents=True)
            (folder / "state").write_text(str(step))
            session.save_done(folder, step)
            if request.action == "pause":
                session.pause()
"""


class Bench:
    """One desk with its reports, and the processes that a test starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "s"
        self.reports: list[object] = []
        self.changed = asyncio.Event()
        self.desk = self.make()
        self.children: list[subprocess.Popen[str]] = []

    def make(self) -> JobDesk:
        return JobDesk(self.path, self.folder / "run", SystemClock(), self._heard, node_id="n0")

    async def start(self) -> None:
        await self.desk.start()
        self.desk.set_gpus(BOARDS)

    def _heard(self, report: object) -> None:
        self.reports.append(report)
        self.changed.set()

    def job(self, source: str = LOOP, *, job_id: str = "j", attempt: int = 1, **more: str):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GRIDAWARE_")}
        environment |= {
            "GRIDAWARE_JOB_ID": job_id,
            "GRIDAWARE_ATTEMPT": str(attempt),
            "GRIDAWARE_AGENT_SOCKET": str(self.path),
            "CUDA_VISIBLE_DEVICES": "0,GPU-c",
        }
        child = subprocess.Popen(
            [sys.executable, "-c", source, str(self.folder / "checkpoints")],
            env=environment | more,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        return child

    async def report(self, kind: type, **facts: object):
        """The first report of a kind with these facts, past or to come."""
        async with asyncio.timeout(20):
            while True:
                for report in self.reports:
                    if isinstance(report, kind) and all(
                        getattr(report, name) == value for name, value in facts.items()
                    ):
                        return report
                self.changed.clear()
                await self.changed.wait()

    async def exit_code(self, child: subprocess.Popen[str]) -> int:
        return await asyncio.to_thread(child.wait, 20)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gw", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def run(folder: Path) -> Callable[[Callable[[Bench], Awaitable[None]]], None]:
    async def main(scene: Callable[[Bench], Awaitable[None]]) -> None:
        bench = Bench(folder)
        await bench.start()
        try:
            await scene(bench)
        finally:
            await bench.desk.stop()
            for child in bench.children:
                if child.poll() is None:
                    child.kill()
                child.wait()
                child.stdout.close()

    return lambda scene: asyncio.run(main(scene))


async def ask(path: Path, *lines: bytes) -> list[bytes]:
    """What a client hears until it is hung up on."""
    reader, writer = await asyncio.open_unix_connection(path)
    heard = []
    try:
        for line in lines:
            writer.write(line)
        async with asyncio.timeout(10):
            while line := await reader.readline():
                heard.append(line)
    except ConnectionError:
        pass
    finally:
        writer.close()
    return heard


# --------------------------------------------------------------------------- honest jobs


def test_a_job_registers_steps_saves_and_leaves(run) -> None:
    async def scene(bench: Bench) -> None:
        child = bench.job()
        registered = await bench.report(JobRegistered)
        assert (registered.job_id, registered.attempt, registered.rank) == ("j", 1, 0)
        assert registered.pid == child.pid
        assert registered.gpu_ids == ("GPU-a", "GPU-c")
        assert bench.desk.owners() == {"GPU-a": ("j", 1), "GPU-c": ("j", 1)}
        assert child.pid in bench.desk.managed_pids()
        progress = await bench.report(JobProgress)
        assert progress.step > 0

        bench.desk.request(CheckpointRequest("r-0", "j", 1, False, 10))
        first = await bench.report(CheckpointReport, request_id="r-0")
        assert first.outcome == "saved"
        assert child.poll() is None

        bench.desk.request(CheckpointRequest("r-1", "j", 1, True, 10))
        left = await bench.report(CheckpointReport, request_id="r-1", outcome="left")
        assert left.step > first.step
        assert await bench.exit_code(child) == 42
        assert bench.desk.owners() == {}
        assert bench.desk.managed_pids() == frozenset()

        again = bench.job(attempt=2)
        resumed = await bench.report(JobRegistered, attempt=2)
        assert resumed.resumed_step == left.step
        assert again.stdout.readline() == f"start {left.step}\n"

    run(scene)


def test_a_job_comes_back_to_an_agent_that_restarted_and_hears_it(run) -> None:
    async def scene(bench: Bench) -> None:
        child = bench.job()
        await bench.report(JobRegistered)
        await bench.desk.stop()
        bench.reports.clear()
        bench.desk = bench.make()
        await bench.start()
        bench.desk.request(CheckpointRequest("r-1", "j", 1, True, 15))
        await bench.report(CheckpointReport, outcome="left")
        assert (await bench.report(JobRegistered)).pid == child.pid
        assert await bench.exit_code(child) == 42

    run(scene)


def test_a_job_that_wants_to_leave_waits_for_an_agent_that_restarts(run) -> None:
    source = """
import os, sys, time
from gridaware import train
with train.session(sys.argv[1]) as session:
    while not (request := session.should_checkpoint()):
        time.sleep(0.01)
    folder = session.checkpoint_dir / "7"
    folder.mkdir(parents=True)
    (folder / "state").write_text("7")
    session.save_done(folder, 7)
    while not os.path.exists(sys.argv[1] + "-go"):
        time.sleep(0.01)
    session.pause()
"""

    async def scene(bench: Bench) -> None:
        child = bench.job(source)
        await bench.report(JobRegistered)
        bench.desk.request(CheckpointRequest("r-1", "j", 1, True, 20))
        await bench.report(CheckpointReport, outcome="saved")
        await bench.desk.stop()
        (bench.folder / "checkpoints-go").touch()
        bench.reports.clear()
        bench.desk = bench.make()
        await bench.start()
        left = await bench.report(CheckpointReport, outcome="left")
        assert (left.request_id, left.step) == ("r-1", 7)
        assert await bench.exit_code(child) == 42

    run(scene)


def test_an_agent_that_was_killed_knows_its_jobs_at_once_and_misses_those_that_ended(run) -> None:
    async def scene(bench: Bench) -> None:
        stays, ends = bench.job(), bench.job(job_id="ends")
        for job_id in ("j", "ends"):
            await bench.report(JobRegistered, job_id=job_id)
            await bench.report(JobProgress, job_id=job_id)
        await bench.desk.stop()
        ends.kill()
        ends.wait()
        bench.reports.clear()
        bench.path = bench.folder / "nobody-comes-back-here"
        bench.desk = bench.make()
        await bench.start()
        assert bench.desk.managed_pids() >= {stays.pid}
        assert (await bench.report(JobGone)).pid == ends.pid
        assert set(bench.desk.owners().values()) == {("j", 1)}
        registered = [r for r in bench.reports if isinstance(r, JobRegistered)]
        assert ("j", ("GPU-a", "GPU-c")) in [(r.job_id, r.gpu_ids) for r in registered]

    run(scene)


def test_busy_and_refusals_reach_the_desk(run) -> None:
    source = """
import sys, time
from gridaware import train
with train.session(sys.argv[1]) as session, session.busy("eval"):
    while not (request := session.should_checkpoint()):
        time.sleep(0.01)
    session.refuse(f"not now, {request.reason}")
    time.sleep(30)
"""

    async def scene(bench: Bench) -> None:
        bench.job(source)
        await bench.report(JobProgress, busy="eval")
        bench.desk.request(CheckpointRequest("r-1", "j", 1, True, 10, "grid"))
        report = await bench.report(CheckpointReport)
        assert (report.outcome, report.message) == ("refused", "not now, grid")

    run(scene)


def test_a_fork_of_the_job_does_not_keep_it_alive(run) -> None:
    """DataLoader workers share the socket's descriptor unless they let go of it."""
    source = """
import os, sys, time
from gridaware import train
with train.session(sys.argv[1]) as session:
    time.sleep(0.5)
    if os.fork() == 0:
        session.step(5)
        session.close()
        time.sleep(60)
    time.sleep(1.5)
    os._exit(3)
"""

    async def scene(bench: Bench) -> None:
        child = bench.job(source)
        await bench.report(JobRegistered)
        async with asyncio.timeout(10):
            while len(bench.desk.managed_pids()) < 2:
                await asyncio.sleep(0.05)
        (fork,) = bench.desk.managed_pids() - {child.pid}
        gone = await bench.report(JobGone)
        assert gone.left_pids == (fork,)
        os.kill(fork, signal.SIGKILL)

    run(scene)


def test_the_word_cannot_be_written_by_the_job(run) -> None:
    source = """
import mmap, os, sys, time
from gridaware import train
from gridaware.train import line
caught = []
real = line.mmap.mmap
class Spy:
    PROT_READ = mmap.PROT_READ
    def mmap(self, fd, *a, **k):
        for attempt in (
            lambda: real(fd, 512),
            lambda: os.write(fd, b"x"),
            lambda: os.ftruncate(fd, 0),
            lambda: real(os.open(f"/proc/self/fd/{fd}", os.O_RDWR), 512),
            lambda: os.write(os.open(f"/proc/self/fd/{fd}", os.O_RDWR), b"x"),
        ):
            try:
                attempt()
                caught.append("written")
            except OSError as error:
                caught.append(type(error).__name__)
        return real(fd, *a, **k)
line.mmap = Spy()
with train.session(sys.argv[1]):
    time.sleep(1)
print(caught, flush=True)
"""

    async def scene(bench: Bench) -> None:
        child = bench.job(source)
        await bench.exit_code(child)
        answers = child.stdout.readline()
        assert answers.count("Error") == 5, answers
        assert "written" not in answers

    run(scene)


# --------------------------------------------------------------------------- nobody there


def test_without_gridaware_a_script_runs_as_ever(folder, monkeypatch, caplog) -> None:
    monkeypatch.delenv("GRIDAWARE_JOB_ID", raising=False)
    for expected in (None, 5):
        with train.session(folder / "ck") as session:
            found = session.resume_from()
            assert (found and found.step) == expected
            assert session.should_checkpoint() is None
            session.step(5)
            session.refuse("nobody asked")
            (folder / "ck").mkdir(exist_ok=True)
            (folder / "ck" / "a.pt").write_text("weights")
            session.save_done(folder / "ck" / "a.pt", 5)
            with session.busy("eval"), pytest.raises(SystemExit) as caught:
                session.pause()
            assert caught.value.code == 42
    lines = [r.message for r in caplog.records]
    assert lines == ["not started by gridaware: training runs as if nobody were watching"] * 2


def test_an_absent_agent_is_mentioned_once_and_disturbs_nothing(run, folder: Path) -> None:
    source = """
import logging, sys, time
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from gridaware import train
with train.session(sys.argv[1]) as session:
    for step in range(100):
        time.sleep(0.01)
        session.step(step)
        assert session.should_checkpoint() is None
"""

    async def scene(bench: Bench) -> None:
        child = bench.job(source, GRIDAWARE_AGENT_SOCKET=str(folder / "absent"))
        assert await bench.exit_code(child) == 0
        (line,) = child.stdout.read().splitlines()
        assert line.startswith(f"no gridaware agent at {folder}/absent")

    run(scene)


def test_a_checkpoint_where_nobody_would_look_is_refused(folder, monkeypatch) -> None:
    monkeypatch.delenv("GRIDAWARE_JOB_ID", raising=False)
    (folder / "elsewhere").write_text("x")
    with train.session(folder / "ck") as session, pytest.raises(Exception, match="directly in"):
        session.save_done(folder / "elsewhere", 1)


# --------------------------------------------------------------------------- hostile neighbours

CLAIM = """
import socket, sys
from gridaware.domain.jobword import Register, encode_line
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[2])
    connection.sendall(encode_line(Register(sys.argv[1], 1)))
    print(connection.recv(1000).decode(), flush=True)
"""


async def claim(bench: Bench, job_id: str, **environment: str) -> str:
    done = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLAIM, job_id, str(bench.path)),
        env={"PATH": os.environ["PATH"], **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await done.communicate()
    return out.decode()


def test_a_process_is_only_what_it_was_started_as(run) -> None:
    async def scene(bench: Bench) -> None:
        own = {"GRIDAWARE_JOB_ID": "a", "GRIDAWARE_ATTEMPT": "1"}
        assert '"registered"' in await claim(bench, "a", **own)
        assert "job-mismatch" in await claim(bench, "b", **own)
        assert "job-mismatch" in await claim(bench, "a", **own | {"GRIDAWARE_ATTEMPT": "2"})
        assert "job-unproven" in await claim(bench, "a")
        ray = '{"metadata": {"job_submission_id": "a-a1"}}'
        assert '"registered"' in await claim(bench, "a", RAY_JOB_CONFIG_JSON_ENV_VAR=ray)
        assert "job-mismatch" in await claim(bench, "b", RAY_JOB_CONFIG_JSON_ENV_VAR=ray)
        assert "job-unproven" in await claim(bench, "a", RAY_JOB_CONFIG_JSON_ENV_VAR="{")

    run(scene)


def test_a_job_cannot_become_another_by_changing_its_own_environment(run) -> None:
    async def scene(bench: Bench) -> None:
        source = f"""
import os, subprocess, sys
os.environ["GRIDAWARE_JOB_ID"] = "victim"
subprocess.run([sys.executable, "-c", {CLAIM!r}, "victim", {str(bench.path)!r}], check=True)
"""
        child = bench.job(source, job_id="attacker")
        await bench.exit_code(child)
        assert "job-mismatch" in child.stdout.read()
        assert bench.desk.owners() == {}

    run(scene)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([b"hello\n"], b"line-malformed"),
        ([b"x" * 20_000], b"line-malformed"),
        ([encode_line(Progress(1, 1.0))], b"line-unexpected"),
        ([encode_line(Leaving("r-1"))], b"line-unexpected"),
        ([encode_line(Register("j", 1))], b"job-unproven"),
    ],
)
def test_nonsense_is_answered_with_a_code_and_hung_up_on(run, lines, code) -> None:
    async def scene(bench: Bench) -> None:
        heard = await ask(bench.path, *lines)
        assert len(heard) == 1
        assert code in heard[0]
        assert bench.reports == []

    run(scene)


def test_whoever_says_nothing_is_hung_up_on(run, monkeypatch) -> None:
    monkeypatch.setattr(module, "REGISTER_SECONDS", 0.05)

    async def scene(bench: Bench) -> None:
        assert await ask(bench.path) == []

    run(scene)


def test_a_flood_of_lines_ends_the_connection_and_not_the_desk(run) -> None:
    source = """
import socket, sys, time
from gridaware.domain.jobword import Progress, Register, encode_line
import os
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(os.environ["GRIDAWARE_AGENT_SOCKET"])
    connection.sendall(encode_line(Register("j", 1)))
    connection.recv(1000)
    try:
        for step in range(100_000):
            connection.sendall(encode_line(Progress(step, 1.0)))
    except OSError:
        print("hung up", flush=True)
"""

    async def scene(bench: Bench) -> None:
        child = bench.job(source)
        await bench.exit_code(child)
        assert child.stdout.read() == "hung up\n"
        told = [r for r in bench.reports if isinstance(r, JobProgress)]
        assert len(told) <= 150
        bench.job(job_id="honest")
        await bench.report(JobRegistered, job_id="honest")

    run(scene)


def test_connections_beyond_the_most_are_closed_and_the_others_served(run, monkeypatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MOST", 3)

    async def scene(bench: Bench) -> None:
        bench.job()
        await bench.report(JobRegistered)
        idle = [await asyncio.open_unix_connection(bench.path) for _ in range(2)]
        assert await ask(bench.path) == []
        await bench.report(JobProgress)
        for _reader, writer in idle:
            writer.close()

    run(scene)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look as someone else")
def test_paths_are_looked_at_with_the_rights_of_the_job(run, folder: Path) -> None:
    """A job may not have root read what the job itself cannot."""
    nobody = 65534
    secret = folder / "secret"
    source = f"""
import os, sys, time
from gridaware.domain.jobword import SavedLine
from gridaware import train
train.session
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
with train.session(sys.argv[1]) as session:
    while not (request := session.should_checkpoint()):
        time.sleep(0.01)
    session._link.answer(SavedLine(request.request_id, {str(secret)!r}, 1))
    time.sleep(30)
"""
    folder.chmod(0o755)
    secret.mkdir(mode=0o700)

    async def scene(bench: Bench) -> None:
        bench.job(source)
        await bench.report(JobRegistered)
        bench.desk.request(CheckpointRequest("r-1", "j", 1, True, 10))
        report = await bench.report(CheckpointReport)
        assert report.outcome == "invalid"
        assert "Permission denied" in report.message

    run(scene)


# --------------------------------------------------------------------------- the socket itself


def test_a_second_agent_on_the_same_socket_is_refused(run) -> None:
    async def scene(bench: Bench) -> None:
        with pytest.raises(Refused) as caught:
            await bench.make().start()
        assert caught.value.code == "socket-in-use"

    run(scene)


def test_the_socket_of_a_killed_agent_is_taken_over(folder: Path) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(folder / "s"))
    stale.close()

    async def main() -> None:
        bench = Bench(folder)
        await bench.start()
        assert (folder / "s").stat().st_mode & 0o777 == 0o666
        await bench.desk.stop()
        assert not (folder / "s").exists()

    asyncio.run(main())


def test_a_path_too_long_for_a_socket_is_said_so(folder: Path) -> None:
    async def main() -> None:
        desk = JobDesk(folder / ("x" * 120), folder, SystemClock(), print)
        with pytest.raises(ConfigError) as caught:
            await desk.start()
        assert caught.value.code == "socket-path-long"

    asyncio.run(main())
