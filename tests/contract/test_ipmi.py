"""The DCMI meter: what ipmitool prints is taken as a whole or not at all.

The texts are those of ``ipmitool dcmi power reading`` in public issues: openbmc#3257,
rabe-zabbix#101 (ipmitool 1.8.18) and phosphor-host-ipmid#167.
"""

import os
import sys

import pytest

from gridaware.clock import SystemClock
from gridaware.devices import ipmi
from gridaware.devices.ipmi import IpmiMeter, parse_reading
from gridaware.domain.errors import ConfigError, TimedOut, Unavailable
from gridaware.domain.reading import Boundary, Method

ACTIVATED = """
    Instantaneous power reading:                   197 Watts
    Minimum during sampling period:                175 Watts
    Maximum during sampling period:                242 Watts
    Average power reading over sample period:      190 Watts
    IPMI timestamp:                           Sun Mar  6 15:13:42 2022
    Sampling period:                          00123893 Seconds.
    Power reading state is:                   activated


"""
NEWER = """
    Instantaneous power reading              : 214      Watts
    Minimum during sampling period           : 2        Watts
    Maximum during sampling period           : 468      Watts
    Average power reading over sample period : 184      Watts
    IPMI timestamp                           : 2024-05-05 13:06:44 UTC
    Sampling period                          : 1000 Milliseconds
    Power reading state is                   : activated
"""
DEACTIVATED = ACTIVATED.replace("197", "319").replace("activated", "deactivated")


def test_both_layouts_of_ipmitool_are_read():
    assert parse_reading(ACTIVATED) == 197.0
    assert parse_reading(NEWER) == 214.0


def test_a_reading_that_is_not_activated_is_refused_unless_the_site_knows_better():
    with pytest.raises(Unavailable, match="deactivated"):
        parse_reading(DEACTIVATED)
    assert parse_reading(DEACTIVATED, any_state=True) == 319.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "DCMI request failed because: Unspecified error (ff)\n",
        "    A valid DCMI command was not returned! (80)\n",
        "Could not open device at /dev/ipmi0 or /dev/ipmi/0: No such file or directory\n",
        ACTIVATED.replace("197", "N/A"),
        ACTIVATED.replace("197", "[Unknown Error]"),
        ACTIVATED.replace("197", "-5"),
        ACTIVATED.replace("197", "1.97"),
        ACTIVATED.replace("197", "0"),
        ACTIVATED.replace("197", "65535"),
        ACTIVATED.replace("197", "123456"),
        ACTIVATED.replace("197 Watts", "197 Volts"),
        ACTIVATED + ACTIVATED,
        ACTIVATED.replace("Power reading state is:                   activated", ""),
    ],
)
def test_case_31_what_is_no_reading_is_never_taken_for_a_number(text):
    with pytest.raises(Unavailable) as refused:
        parse_reading(text, any_state=True)
    assert refused.value.code == "ipmi-answer"


@pytest.fixture
def tool(tmp_path):
    """Makes a program that stands in for ipmitool."""

    def make(program):
        path = tmp_path / "ipmitool"
        path.write_text(f"#!{sys.executable} -IS\nimport os, sys, time\n{program}\n")
        path.chmod(0o700)
        return path

    return make


def _meter(path, **more):
    return ipmi.open_meter({"tool": str(path), **more})


def test_the_tool_is_run_with_a_clean_environment_and_read(tool, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere")
    seen = tmp_path / "seen"
    path = tool(
        f"open({str(seen)!r}, 'w').write(repr((sys.argv[1:], sorted(os.environ), os.getcwd())))\n"
        f"print({ACTIVATED!r})"
    )
    reading, energy = _meter(path).read()
    assert (reading.watts, reading.boundary, reading.method) == (
        197.0,
        Boundary.NODE,
        Method.METER,
    )
    assert energy is None
    arguments, environment, folder = eval(seen.read_text())
    assert arguments == ["dcmi", "power", "reading"]
    assert set(environment) <= {"LC_ALL", "PATH", "LC_CTYPE"}
    assert folder == "/"


def test_another_machines_password_stands_in_a_file_and_not_in_the_arguments(tool, tmp_path):
    secret = tmp_path / "password"
    secret.write_text("hunter2\n")
    seen = tmp_path / "seen"
    path = tool(f"open({str(seen)!r}, 'w').write(repr(sys.argv[1:]))\nprint({NEWER!r})")
    _meter(path, host="10.0.0.7", username="admin", password_file=str(secret)).read()
    assert eval(seen.read_text()) == [
        *("-I", "lanplus", "-H", "10.0.0.7", "-U", "admin", "-f", str(secret)),
        *("dcmi", "power", "reading"),
    ]


def test_a_tool_that_fails_is_unavailable_whatever_it_printed(tool):
    with pytest.raises(Unavailable) as failed:
        _meter(tool(f"print({ACTIVATED!r})\nsys.exit(1)")).read()
    assert failed.value.code == "ipmi-failed"


def test_a_tool_that_is_late_is_killed(tool, tmp_path):
    pid = tmp_path / "pid"
    path = tool(f"open({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)")
    with pytest.raises(TimedOut):
        _meter(path, call_seconds="1").read()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_tool_that_talks_without_end_is_stopped(tool):
    with pytest.raises(Unavailable, match="without end"):
        _meter(tool("while True: print('x' * 1000)")).read()


def test_a_tool_that_does_not_die_is_not_started_again():
    class Stuck:
        pid = 7

        def poll(self):
            return None

    meter = IpmiMeter(["/none"], SystemClock(), seconds=1.0)
    meter._stuck = Stuck()
    with pytest.raises(TimedOut, match="process 7"):
        meter.read()


def test_no_tool_is_unavailable():
    with pytest.raises(Unavailable) as missing:
        ipmi.open_meter({"tool": "/none/ipmitool"}).read()
    assert missing.value.code == "ipmi-missing"


@pytest.mark.parametrize(
    "options",
    [
        {"tool": "ipmitool"},
        {"tools": "/usr/bin/ipmitool"},
        {"username": "admin"},
        {"host": "h"},
        {"host": "h", "username": "admin"},
        {"host": "-oProxy", "username": "admin", "password_file": "/a"},
        {"host": "h", "username": "-f", "password_file": "/a"},
        {"host": "h", "username": "admin", "password_file": "a"},
        {"state": "maybe"},
        {"call_seconds": "inf"},
    ],
    ids=str,
)
def test_options_are_checked(options):
    with pytest.raises(ConfigError) as refused:
        ipmi.open_meter(options)
    assert refused.value.code == "ipmi-options"
