"""The power meter in a node's BMC, by ``ipmitool dcmi power reading`` (DCMI 1.5 §6.6.1).

A command of the operating system with an absolute path, a clean environment, a deadline and a
bounded answer. Its text is taken only as a whole: every line that must be there, each as it must
be. ``ipmitool`` prints a number and exits 0 even where nothing is being measured, so a reading
whose state is not "activated" is refused (some OpenBMC firmwares say so of a working one: for
those, ``state: any``), and so are 0 W and 65535 W, which firmwares without a sensor show.
"""

import os
import re
import select
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from gridaware.clock import Clock, SystemClock
from gridaware.devices.options import absolute_path, check_names, choice, needed, positive
from gridaware.domain.errors import ConfigError, TimedOut, Unavailable
from gridaware.domain.reading import Boundary, EnergyReading, Method, Reading

__all__ = ["OPTIONS", "TESTED", "IpmiMeter", "open_meter", "parse_reading"]

OPTIONS: Final[Mapping[str, str]] = {
    "tool": "absolute path of ipmitool; default `/usr/bin/ipmitool`",
    "host": "a BMC over the network (`lanplus`); default: the BMC of this node",
    "username": "whom to sign in as at `host`",
    "password_file": "absolute path of a file that holds the password for `host`",
    "state": "`activated` (default) or `any`: whether a reading that is said to be deactivated is "
    "taken",
    "call_seconds": "how long one reading may take; default 5",
}
TOOL: Final = "/usr/bin/ipmitool"
TESTED: Final = "a program that prints what ipmitool prints; no real BMC has been read yet"
CALL_SECONDS: Final = 5.0
MOST_BYTES: Final = 16 * 1024
LEAST_WATTS, MOST_WATTS = 1, 65534
"""What 16 bits can show, but for the two values that mean nothing."""
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:\-]{0,252}")
_USER: Final = re.compile(r"[A-Za-z0-9_.@][A-Za-z0-9_.@\-]{0,63}")
_WATTS: Final = re.compile(
    r"^ *Instantaneous power reading *: *([0-9]{1,5}) +Watts *$", re.MULTILINE
)
_STATE: Final = re.compile(r"^ *Power reading state is *: *([a-z]+) *$", re.MULTILINE)


def open_meter(options: Mapping[str, str]) -> "IpmiMeter":
    """The DCMI power meter of a node; nothing is run yet.

    Args:
        options: see ``OPTIONS``.

    Raises:
        ConfigError: an option is unknown, missing or malformed.
    """
    check_names(options, OPTIONS, "ipmi")
    command = [str(absolute_path(options.get("tool", TOOL), "tool", "ipmi"))]
    remote = options.keys() & {"username", "password_file"}
    if "host" in options:
        host, user = options["host"], needed(options, "username", "ipmi")
        if _HOST.fullmatch(host) is None or _USER.fullmatch(user) is None:
            raise ConfigError("ipmi-options", "ipmi: host or username has characters of no name")
        secret = absolute_path(needed(options, "password_file", "ipmi"), "password_file", "ipmi")
        # By file: the arguments of a process are there for everyone to read.
        command += ["-I", "lanplus", "-H", host, "-U", user, "-f", str(secret)]
    elif remote:
        raise ConfigError("ipmi-options", f"ipmi: {', '.join(sorted(remote))} without host")
    return IpmiMeter(
        [*command, "dcmi", "power", "reading"],
        SystemClock(),
        seconds=positive(options, "call_seconds", CALL_SECONDS, "ipmi"),
        any_state=choice(options, "state", ("activated", "any"), "ipmi") == "any",
    )


class IpmiMeter:
    """Power of a node as its BMC measures it; most BMCs refresh it once a second or slower.

    Args:
        command: what to run.
        clock: for the deadline, and to stamp the readings.
        seconds: how long one reading may take.
        any_state: take readings that are said to be deactivated, too.
    """

    pace_seconds = 1.0

    def __init__(
        self, command: Sequence[str], clock: Clock, *, seconds: float, any_state: bool = False
    ) -> None:
        self._command = tuple(command)
        self._clock = clock
        self._seconds = seconds
        self._any_state = any_state
        self._stuck: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        """Nothing is held open."""

    def read(self) -> tuple[Reading, EnergyReading | None]:
        """Power now; DCMI has no energy counter.

        Raises:
            TimedOut: ``ipmi-timeout``; a tool that does not even die is not started again until it
                has.
            Unavailable: ``ipmi-missing``, ``ipmi-failed`` or ``ipmi-answer``.
        """
        if self._stuck is not None and self._stuck.poll() is None:
            raise TimedOut("ipmi-timeout", f"process {self._stuck.pid} of ipmitool does not end")
        self._stuck = None
        text = self._run()
        watts = parse_reading(text, any_state=self._any_state)
        return Reading(watts, self._clock.wall(), Boundary.NODE, Method.METER), None

    def _run(self) -> str:
        try:
            process = subprocess.Popen(  # noqa: S603 - an absolute path of the operator's, no shell
                self._command,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable("ipmi-missing", f"cannot run {self._command[0]}: {error}") from error
        assert process.stdout is not None
        with process.stdout:
            data = self._collect(process, process.stdout.fileno())
        if process.returncode != 0:
            raise Unavailable("ipmi-failed", f"ipmitool ended with {process.returncode}")
        return data.decode("ascii", "replace")

    def _collect(self, process: "subprocess.Popen[bytes]", descriptor: int) -> bytes:
        """All that it prints; a tool that is late or talks too much is killed."""
        until = self._clock.monotonic_seconds() + self._seconds
        data = bytearray()
        try:
            while True:
                left = until - self._clock.monotonic_seconds()
                if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                    raise TimedOut("ipmi-timeout", f"ipmitool: no answer in {self._seconds:g} s")
                more = os.read(descriptor, 4096)
                data += more
                if len(data) > MOST_BYTES:
                    raise Unavailable("ipmi-answer", "ipmitool talks without end")
                if not more:
                    process.wait(max(0.01, until - self._clock.monotonic_seconds()))
                    return bytes(data)
        except subprocess.TimeoutExpired as error:
            raise TimedOut("ipmi-timeout", "ipmitool does not end") from error
        finally:
            self._end(process)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill it where it still runs; one stuck in the kernel is left to itself."""
        if process.poll() is None:
            process.kill()
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                self._stuck = process


def parse_reading(text: str, *, any_state: bool = False) -> float:
    """Watts, from what ``ipmitool dcmi power reading`` printed.

    Raises:
        Unavailable: ``ipmi-answer``: a line is missing, doubled or not as it must be, nothing is
            being measured, or the number is one that stands for nothing.
    """
    watts, states = _WATTS.findall(text), _STATE.findall(text)
    if len(watts) != 1 or len(states) != 1:
        raise Unavailable("ipmi-answer", "ipmitool printed no power reading")
    if states[0] != "activated" and not any_state:
        raise Unavailable("ipmi-answer", f"the BMC's power reading is {states[0]}")
    if not LEAST_WATTS <= int(watts[0]) <= MOST_WATTS:
        raise Unavailable("ipmi-answer", f"the BMC shows {watts[0]} W, which is no measurement")
    return float(watts[0])
