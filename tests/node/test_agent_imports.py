"""The privileged agent stays small: nothing but the standard library and what DESIGN §2 names."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from importlib.abc import MetaPathFinder

ALLOWED = {"gridaware", "msgspec", "yaml", "_yaml", "pynvml"} | set(sys.stdlib_module_names)

class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ALLOWED:
            raise ImportError(f"the agent may not import {name}")
        parts = name.split(".")
        if parts[:2] == ["gridaware", "control"] and parts[2:] not in ([], ["ports"]):
            raise ImportError(f"the agent may not import {name}")
        room = parts[1] if parts[0] == "gridaware" and len(parts) > 1 else "node"
        if room not in {"node", "domain", "clock", "control", "devices", "wiring"}:
            raise ImportError(f"the agent may not import {name}")
        return None

sys.meta_path.insert(0, Refuse())
for module in sys.argv[1:]:
    __import__(module)
"""


@pytest.mark.parametrize(
    "modules",
    [
        ("gridaware.wiring.agent",),
        ("gridaware.node.child", "gridaware.devices.nvml"),
        ("gridaware.node.link",),
        ("gridaware.node.watch", "gridaware.devices.frequency_pmu"),
        ("gridaware.devices.frequency_modbus", "gridaware.devices.frequency_datagram"),
    ],
)
def test_nothing_else_is_imported(modules):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *modules], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_hook_does_refuse():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "numpy"], capture_output=True, text=True, check=False
    )
    assert "may not import numpy" in done.stderr
