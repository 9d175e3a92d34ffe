"""``gridaware serve``: starts the control and the web process and keeps both going.

The web process may die or stall: control does not notice, and it is started again. When control
ends, everything ends; its supervisor starts it again, and agents hold their leases meanwhile. When
this process itself is killed, both end too: a control left alone would keep the store locked.
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from gridaware.clock import Clock, SystemClock
from gridaware.wiring.config import load_settings

__all__ = ["run"]

RESTART_SECONDS = (0.5, 1.0, 2.0, 5.0)
STOP_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1  # prctl(2)


def run(config: Path, clock: Clock | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit code of control.

    Raises:
        ConfigError: something in the settings is wrong; nothing was started.
    """
    load_settings(config)
    return _Supervisor(config, clock or SystemClock()).run()


class _Supervisor:
    def __init__(self, config: Path, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._stopping = False

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        control = self._start("control")
        web: subprocess.Popen[bytes] | None = self._start("web")
        failures, due = 0, 0.0
        try:
            while control.poll() is None and not self._stopping:
                if web is not None and web.poll() is not None:
                    wait = RESTART_SECONDS[min(failures, len(RESTART_SECONDS) - 1)]
                    web, failures = None, failures + 1
                    due = self._clock.monotonic_seconds() + wait
                elif web is None and self._clock.monotonic_seconds() >= due:
                    web = self._start("web")
                _pause(0.2)
        finally:
            for process in (web, control):
                if process is not None:
                    _end(process)
        return 0 if self._stopping else _told(control.returncode)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stopping = True

    def _start(self, process: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", f"gridaware.wiring.{process}", "--config"]
        return subprocess.Popen(  # noqa: S603 - our own module
            [*command, str(self._config)],
            stdin=subprocess.DEVNULL,
            env=dict(os.environ),
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - one system call, no locks
        )


def _told(code: int) -> int:
    """Say how control ended, which it could not when it was killed; the exit status to pass on."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    sys.stderr.write(f"control {how}; web was stopped, and agents keep their leases\n")
    return 128 - code if code < 0 else code  # as a shell tells a signal


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _pause(seconds: float) -> None:
    signal.sigtimedwait([], seconds)


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
