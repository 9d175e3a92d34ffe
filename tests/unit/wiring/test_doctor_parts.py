"""The doctor names the parts of a mixed node that are missing, and shows the others."""

from datetime import UTC, datetime

from gridaware.clock import ManualClock
from gridaware.devices.mixed import MixedDriver
from gridaware.domain.errors import Unavailable
from gridaware.sim.driver import SimDriver
from gridaware.sim.site import NodeSpec, PlantSpec, build_window
from gridaware.wiring.doctor_driver import examine


def test_a_part_that_is_missing_fails_and_the_gpus_of_the_others_are_shown():
    window = build_window(PlantSpec((NodeSpec("h100-700", 2),)), 3)
    clock = ManualClock(datetime(2026, 7, 1, tzinfo=UTC))
    missing = Unavailable("amd-library-missing", "there is no libamd_smi.so below /opt/rocm")
    driver = MixedDriver({"nvidia": SimDriver(lambda: window, 0, clock)}, clock, {"amd": missing})
    driver.open()
    lines = list(examine(driver))
    verdict, code, words, fix = lines[0]
    assert (verdict, code) == ("fail", "amd-library-missing")
    assert words == "amd: there is no libamd_smi.so below /opt/rocm"
    assert "amd-smi-lib" in fix
    assert ("ok", "gpus", "2 x NVIDIA H100 80GB HBM3", "") in lines
