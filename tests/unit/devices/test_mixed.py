"""A node of several vendors: one part that fails, hangs or goes away leaves the others alone."""

import threading
from dataclasses import dataclass

import pytest

from gridaware.clock import SystemClock
from gridaware.control.ports import Boards, ClockLocks, Paced, Parts
from gridaware.devices import mixed
from gridaware.devices.amd import AmdDriver
from gridaware.devices.mixed import MixedDriver
from gridaware.domain.errors import (
    ConfigError,
    DeviceLost,
    DeviceNotSupported,
    DriverGone,
)
from gridaware.domain.fleet import BoardState, ClockRange, Pace
from gridaware.domain.reading import Boundary
from gridaware.node.settings import load_settings
from gridaware.sim.driver import SimDriver
from gridaware.sim.plant import Plant
from gridaware.sim.site import NodeSpec, PlantSpec, build_window
from gridaware.sim.vendors.amdsmi import AmdSmi

SPEC = PlantSpec((NodeSpec("h100-700", 2), NodeSpec("a100-400", 2)))


@dataclass
class Site:
    """Node 0 is one vendor's half of a machine, node 1 the other's."""

    window: object
    nvidia: SimDriver
    amd: AmdDriver
    driver: MixedDriver

    def ids(self, node):
        return [slot.uuid.decode() for slot in self.window.gpus_of(node)]


@pytest.fixture
def site(clock, tmp_path):
    window = build_window(SPEC, 3)
    Plant(window, SPEC, 3).advance(5.0)
    nvidia = SimDriver(lambda: window, 0, clock)
    amd = AmdDriver(AmdSmi(window, 1), clock, module=tmp_path / "none")
    driver = MixedDriver({"nvidia": nvidia, "amd": amd}, SystemClock())
    driver.open()
    yield Site(window, nvidia, amd, driver)
    driver.close()


def test_gpus_of_both_parts_under_one_count(site):
    gpus = site.driver.gpus()
    assert [gpu.gpu_id for gpu in gpus] == site.ids(0) + site.ids(1)
    assert [gpu.index for gpu in gpus] == [0, 1, 2, 3]
    ranges = [site.driver.limit_range(gpu.gpu_id).greatest_watts for gpu in gpus]
    assert ranges == [700.0, 700.0, 400.0, 400.0]


def test_a_limit_goes_to_the_part_that_has_the_gpu(site):
    site.driver.gpus()
    site.driver.set_limit_watts(site.ids(1)[0], 250.0)
    limits = [slot.requested_watts for node in (0, 1) for slot in site.window.gpus_of(node)]
    assert limits == [700.0, 700.0, 250.0, 400.0]


def test_case_20_a_part_that_goes_away_takes_only_its_own_gpus_with_it(site):
    site.driver.gpus()
    site.window.node(1).driver_epoch += 1
    with pytest.raises(DeviceLost) as gone:
        site.driver.power_watts(site.ids(1)[0])
    assert gone.value.code == "driver-part-gone"
    assert site.driver.power_watts(site.ids(0)[0]).watts > 0
    assert [gpu.gpu_id for gpu in site.driver.gpus()] == site.ids(0)
    site.driver.open()
    assert len(site.driver.gpus()) == 4


def test_case_4_a_part_that_cannot_be_opened_is_absent_and_named(site):
    site.window.node(1).driver_gone = 1
    site.driver.open()
    assert [gpu.gpu_id for gpu in site.driver.gpus()] == site.ids(0)
    assert [code for code, _ in site.driver.faults()] == ["driver-not-loaded"]
    assert site.driver.faults()[0][1].startswith("amd: ")


def test_case_20_a_part_that_hangs_while_it_opens_holds_nobody_up(site, monkeypatch):
    leave = threading.Event()
    monkeypatch.setattr(site.amd, "open", lambda: leave.wait(30))
    driver = MixedDriver({"amd": site.amd, "nvidia": site.nvidia}, SystemClock(), open_seconds=0.05)
    driver.open()
    assert [gpu.gpu_id for gpu in driver.gpus()] == site.ids(0)
    assert driver.faults() == (("driver-slow", "amd: did not open in time"),)
    leave.set()


def test_a_part_that_fails_in_a_way_of_its_own_is_a_fault_too(site, monkeypatch):
    def broken():
        raise ZeroDivisionError("third parties make mistakes")

    monkeypatch.setattr(site.amd, "open", broken)
    site.driver.open()
    assert [code for code, _ in site.driver.faults()] == ["driver-failed"]
    assert len(site.driver.gpus()) == 2


def test_what_a_part_misses_of_its_own_is_told_with_its_name(site, monkeypatch):
    monkeypatch.setattr(site.amd, "faults", lambda: [("gpu-missing", "GPU 3")], raising=False)
    site.driver.open()
    assert site.driver.faults() == (("gpu-missing", "amd: GPU 3"),)


def test_without_any_part_the_driver_is_gone(site):
    for node in (0, 1):
        site.window.node(node).driver_gone = 1
    with pytest.raises(DriverGone) as gone:
        site.driver.open()
    assert gone.value.code == "driver-parts"


def test_the_last_part_that_lives_ends_the_process_when_it_goes(site):
    site.window.node(1).driver_gone = 1
    site.driver.open()
    site.driver.gpus()
    site.window.node(0).driver_epoch += 1
    with pytest.raises(DriverGone):
        site.driver.power_watts(site.ids(0)[0])


def test_case_11_a_gpu_that_two_parts_name_is_counted_once(site, clock):
    twin = SimDriver(lambda: site.window, 0, clock)
    driver = MixedDriver({"one": site.nvidia, "two": twin}, SystemClock())
    driver.open()
    assert [gpu.gpu_id for gpu in driver.gpus()] == site.ids(0)
    assert {code for code, _ in driver.faults()} == {"gpu-twice"}
    assert len(driver.faults()) == 2
    driver.gpus()
    assert len(driver.faults()) == 2


def test_case_9_a_module_beside_boards_keeps_its_own_label(site):
    for slot in site.window.gpus_of(0):
        slot.module_scope = 1
    site.driver.open()
    site.driver.gpus()
    assert site.driver.boundary == "module"
    boundaries = [site.driver.power_watts(gpu_id).boundary for gpu_id in site.ids(0) + site.ids(1)]
    assert boundaries == [Boundary.MODULE] * 2 + [Boundary.GPU] * 2


def test_the_epoch_names_each_parts_own(site):
    before = site.driver.epoch()
    assert before.startswith("nvidia=sim-0-")
    site.window.node(1).driver_epoch += 1
    assert "amd=gone" in site.driver.epoch()
    site.window.node(0).driver_epoch += 1
    site.driver.open()
    assert site.driver.epoch() != before


def test_it_has_whatever_one_of_its_parts_has(site):
    class Slow(SimDriver):
        def pace(self, gpu_id):
            return Pace(20.0, 40.0)

        def clock_range(self, gpu_id):
            return ClockRange(210.0, 1980.0)

        def lock_clocks(self, gpu_id, most_mhz):
            locked.append((gpu_id, most_mhz))

        def unlock_clocks(self, gpu_id):
            locked.append((gpu_id, None))

        def board_state(self, gpu_id):
            return BoardState(persistence=True)

    locked = []
    driver = MixedDriver(
        {"slow": Slow(lambda: site.window, 0, SystemClock()), "amd": site.amd}, SystemClock()
    )
    driver.open()
    driver.gpus()
    assert all(isinstance(driver, port) for port in (Paced, Parts, ClockLocks, Boards))
    slow, plain = site.ids(0)[0], site.ids(1)[0]
    assert (driver.pace(slow), driver.pace(plain)) == (Pace(20.0, 40.0), Pace())
    assert driver.board_state(slow).persistence is True
    assert driver.board_state(plain) == BoardState()
    driver.lock_clocks(slow, 900.0)
    driver.unlock_clocks(slow)
    assert locked == [(slow, 900.0), (slow, None)]
    with pytest.raises(DeviceNotSupported):
        driver.clock_range(plain)


def test_options_of_parts_are_told_apart_by_their_names(tmp_path):
    driver = mixed.open_driver(
        {
            "a": "gridaware.sim.driver",
            "a.window": str(tmp_path / "none"),
            "b": "gridaware.devices.amd",
            "b.library": "/none/libamd_smi.so",
        }
    )
    with pytest.raises(DriverGone) as gone:
        driver.open()
    # A part whose library is not installed is absent, as one that does not open.
    assert "b: /none/libamd_smi.so cannot be loaded" in gone.value.message
    assert "a: " in gone.value.message


def test_the_settings_that_its_page_shows_can_be_read(tmp_path):
    lines = mixed.__doc__.split("::")[1].splitlines()
    block = "\n".join(line[4:] for line in lines if line.startswith("    "))
    head = "node_id: n0\ncontroller: {host: c}\ntls: {ca: a, certificate: b, key: c}\n"
    (tmp_path / "agent.yaml").write_text(head + block + "\n")
    settings = load_settings(tmp_path / "agent.yaml").driver
    assert settings.module == "gridaware.devices.mixed"
    assert list(settings.options) == ["nvidia", "nvidia.library", "amd", "amd.library"]
    assert isinstance(mixed.open_driver(settings.options), MixedDriver)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "mixed-options"),
        ({"nvidia.library": "/a"}, "mixed-options"),
        ({"a": "gridaware.sim.driver", "a.": "x"}, "mixed-options"),
        ({"a": "gridaware.devices.mixed"}, "mixed-options"),
        ({"a": "gridaware.devices.none"}, "driver-import"),
        ({"a": "gridaware.devices.rapl"}, "driver-import"),
        ({"a": "gridaware.sim.driver", "a.windows": "/a"}, "sim-driver-options"),
    ],
)
def test_options_are_checked(options, code):
    with pytest.raises(ConfigError) as refused:
        mixed.open_driver(options)
    assert refused.value.code == code


def test_nothing_is_asked_of_a_driver_that_is_not_open(site):
    site.driver.close()
    for call in (site.driver.gpus, site.driver.epoch):
        with pytest.raises(DriverGone):
            call()
