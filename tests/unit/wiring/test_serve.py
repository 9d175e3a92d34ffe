"""The supervisor of control and web, with stand-ins for both."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridaware.wiring import serve


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The supervisor takes over two signals of this process: give them back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("fate", "status", "words"),
    [
        ("import os; os.kill(os.getpid(), 9)", 137, "control was killed by SIGKILL"),
        ("raise SystemExit(4)", 4, "control ended with status 4"),
    ],
)
def test_an_end_of_control_is_told_and_passed_on(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    fate: str,
    status: int,
    words: str,
) -> None:
    programs = {"control": fate, "web": "import time; time.sleep(60)"}
    started: list[subprocess.Popen[bytes]] = []

    def start(_self: object, process: str) -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen([sys.executable, "-c", programs[process]]))
        return started[-1]

    monkeypatch.setattr(serve._Supervisor, "_start", start)
    settings = tmp_path / "site.yaml"
    settings.write_text("{}", encoding="utf-8")
    assert serve.run(settings) == status
    assert words in capsys.readouterr().err
    assert all(process.poll() is not None for process in started)
