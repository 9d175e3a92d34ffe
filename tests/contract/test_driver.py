"""What every GPU driver owes its callers, held against each driver that we have.

All stand on the same registers, so what one does the others must see. Behind NVML is a library of
ours, behind AMD SMI, zeusd and the BMC are imitations: they hold our drivers to the documented
interfaces, and say nothing about real devices.
"""

import math
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from gridaware.clock import SystemClock
from gridaware.control.ports import Boards, ClockLocks, Driver
from gridaware.devices import mixed, nvml
from gridaware.devices.amd import AmdDriver
from gridaware.devices.jsonhttp import JsonHttp, tls, unix
from gridaware.devices.redfish import RedfishDriver
from gridaware.devices.redfish_bmc import Bmc
from gridaware.devices.zeusd import ZeusdDriver
from gridaware.domain.errors import (
    DeviceError,
    DeviceLost,
    DeviceNoPermission,
    DeviceNotSupported,
    DeviceOutOfRange,
    DeviceResetRequired,
    DriverGone,
)
from gridaware.domain.fleet import Smoothing
from gridaware.domain.reading import Boundary, Method, Quality
from gridaware.sim import driver as simulated
from gridaware.sim.nvml.build import build
from gridaware.sim.plant import Plant
from gridaware.sim.site import NodeSpec, PlantSpec, build_window
from gridaware.sim.vendors import amdsmi, bmc, zeusd
from gridaware.sim.vendors.server import JsonServer
from gridaware.wiring.identity import issue, make_ca

SPEC = PlantSpec((NodeSpec("h100-700", 2),))
CALL_SECONDS = 10.0
EVERYTHING = frozenset(
    {"averages", "binding", "instant", "modules", "others", "processes", "reloads", "resets"}
)
"""What a driver may be unable to tell: that it is averaged, whether the cap binds, other limiters,
that the driver was reloaded, that a reset is needed, …"""


@dataclass(frozen=True)
class Kind:
    """One driver of the suite, and what it owes less than NVML does."""

    make: Callable[..., Driver]
    tells: frozenset[str] = EVERYTHING
    step_watts: float = 0.001


def _nvml(rig) -> Driver:
    return nvml.open_driver({"library": str(rig.library)})


def _simulated(rig) -> Driver:
    return simulated.open_driver({"window": str(rig.folder / "window"), "node": "0"})


def _mixed(rig) -> Driver:
    library = {"nvidia.library": str(rig.library)}
    return mixed.open_driver({"nvidia": "gridaware.devices.nvml", **library})


def _amd(rig) -> Driver:
    return AmdDriver(amdsmi.AmdSmi(rig.window), SystemClock(), module=rig.folder / "none")


def _zeusd(rig, reader: Driver | None) -> Driver:
    """The UUIDs stand where the NVIDIA kernel driver puts them."""
    for slot in rig.window.gpus_of(0):
        place = rig.folder / "proc" / zeusd.pci_address(slot)
        place.mkdir(parents=True)
        text = f"Model: \t\t {slot.model.decode()}\nGPU UUID: \t {slot.uuid.decode()}\n"
        (place / "information").write_text(text)
    path = rig.folder / "z.sock"
    rig.stack.enter_context(JsonServer(zeusd.Zeusd(rig.window).reply, socket=path))
    http = JsonHttp(unix(path), "localhost", SystemClock(), CALL_SECONDS)
    return ZeusdDriver(http, SystemClock(), reader=reader, proc=rig.folder / "proc")


def _redfish(rig) -> Driver:
    make_ca(rig.folder, SystemClock())
    files = issue(rig.folder, "bmc", SystemClock(), "controller")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    server = rig.stack.enter_context(JsonServer(bmc.Bmc(rig.window).reply, tls=context))
    trust = ssl.create_default_context(cafile=str(files.ca))
    connect = tls("127.0.0.1", server.port, trust, "localhost")
    http = JsonHttp(connect, "localhost", SystemClock(), CALL_SECONDS)
    service = Bmc(http, bmc.USERNAME, bmc.PASSWORD, SystemClock())
    return RedfishDriver(service, same_seconds=0.0)


KINDS = {
    "nvml": Kind(_nvml),
    "sim": Kind(_simulated),
    "mixed": Kind(_mixed),
    "amd": Kind(_amd, EVERYTHING - {"modules", "others", "resets"}, step_watts=1.0),
    "zeusd": Kind(lambda rig: _zeusd(rig, _nvml(rig)), EVERYTHING - {"modules"}),
    "zeusd-alone": Kind(lambda rig: _zeusd(rig, None), frozenset({"instant"})),
    "redfish": Kind(_redfish, frozenset(), step_watts=1.0),
}


@dataclass
class Rig:
    """What a driver is made on."""

    window: object
    library: object
    folder: object
    stack: ExitStack


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def window(tmp_path, monkeypatch):
    window = build_window(SPEC, 3, tmp_path / "window")
    Plant(window, SPEC, 3).advance(5.0)
    monkeypatch.setenv("GRIDAWARE_SIM_WINDOW", str(tmp_path / "window"))
    monkeypatch.setenv("GRIDAWARE_SIM_NODE", "0")
    return window


@pytest.fixture(params=KINDS)
def kind(request) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def driver(kind, window, tmp_path, library) -> Iterator[Driver]:
    with ExitStack() as stack:
        driver = kind.make(Rig(window, library, tmp_path, stack))
        driver.open()
        yield driver
        driver.close()


@pytest.fixture
def gpu_id(driver):
    return driver.gpus()[0].gpu_id


@pytest.fixture
def needs(kind):
    """Leaves a test out for a driver that cannot tell what it is about."""

    def check(what: str) -> None:
        assert what in EVERYTHING
        if what not in kind.tells:
            pytest.skip(f"this driver cannot tell: {what}")

    return check


def test_identity_is_the_uuid_in_driver_order(driver, window):
    assert [gpu.gpu_id for gpu in driver.gpus()] == [window.gpu(w).uuid.decode() for w in (0, 1)]
    assert [gpu.index for gpu in driver.gpus()] == [0, 1]
    assert driver.gpus()[0].model == "NVIDIA H100 80GB HBM3"
    assert driver.boundary == "gpu"


def test_limits_are_watts(driver, gpu_id):
    limits = driver.limit_range(gpu_id)
    assert (limits.least_watts, limits.greatest_watts, limits.default_watts) == (200, 700, 700)


def test_a_limit_reads_back_as_it_was_set(driver, gpu_id, window, kind):
    close = pytest.approx(412.345, abs=kind.step_watts / 2 + 1e-6)
    driver.set_limit_watts(gpu_id, 412.345)
    assert driver.requested_limit_watts(gpu_id) == close
    assert driver.enforced_limit_watts(gpu_id) == close
    assert window.gpu(0).requested_watts == close
    assert window.gpu(1).requested_watts == 700.0


@pytest.mark.parametrize("watts", [199.0, 701.0, -1.0, math.nan, math.inf])
def test_a_limit_out_of_range_is_refused(driver, gpu_id, watts):
    with pytest.raises(DeviceOutOfRange):
        driver.set_limit_watts(gpu_id, watts)
    assert driver.requested_limit_watts(gpu_id) == 700.0


def test_asking_whether_a_limit_can_be_set_changes_nothing(driver, gpu_id, window):
    window.gpu(0).requested_watts = 555.0
    assert driver.can_set(gpu_id) is True
    window.gpu(0).permission_denied = 1
    assert driver.can_set(gpu_id) is False
    with pytest.raises(DeviceNoPermission):
        driver.set_limit_watts(gpu_id, 300.0)
    assert window.gpu(0).requested_watts == 555.0


def test_the_least_limiter_is_in_force(driver, gpu_id, window, needs):
    needs("others")
    window.gpu(0).out_of_band_watts = 500.0
    assert driver.requested_limit_watts(gpu_id) == 700.0
    assert driver.enforced_limit_watts(gpu_id) == 500.0


def test_power_and_energy_say_what_they_are(driver, gpu_id, window, kind):
    power, energy = driver.power_watts(gpu_id), driver.energy_joules(gpu_id)
    assert power.watts == pytest.approx(window.gpu(0).true_watts, rel=0.065)
    method = Method.INSTANT if "instant" in kind.tells else Method.AVERAGED
    assert (power.boundary, power.method) == (Boundary.GPU, method)
    assert power.quality is Quality.GOOD
    assert energy.joules == pytest.approx(5 * 95.0, rel=0.03)
    assert (SystemClock().wall() - power.at).total_seconds() < 60


def test_a_gpu_without_the_instant_field_gives_the_average(driver, gpu_id, window, needs):
    needs("averages")
    window.gpu(0).instant_unsupported = 1
    assert driver.power_watts(gpu_id).method is Method.AVERAGED


def test_a_module_is_labelled(driver, window, needs):
    needs("modules")
    for which in (0, 1):
        window.gpu(which).module_scope = 1
    driver.close()
    driver.open()
    gpu_id = driver.gpus()[0].gpu_id
    assert driver.boundary == "module"
    assert driver.power_watts(gpu_id).boundary is Boundary.MODULE
    driver.set_limit_watts(gpu_id, 400.0)
    assert driver.enforced_limit_watts(gpu_id) == 400.0


def test_what_a_gpu_lacks_is_not_supported_and_works_again_if_it_had_worked(driver, gpu_id, window):
    assert driver.energy_joules(gpu_id).joules > 0
    window.gpu(0).energy_unsupported = 1
    with pytest.raises(DeviceNotSupported):
        driver.energy_joules(gpu_id)
    window.gpu(0).energy_unsupported = 0
    assert driver.energy_joules(gpu_id).joules > 0


def test_one_bad_gpu_leaves_the_other_alone(driver, window, kind):
    bad, good = (gpu.gpu_id for gpu in driver.gpus())
    window.gpu(0).error_code = 16
    with pytest.raises(DeviceResetRequired if "resets" in kind.tells else DeviceError):
        driver.power_watts(bad)
    window.gpu(0).error_code = 0
    window.gpu(0).lost = 1
    with pytest.raises(DeviceLost if "resets" in kind.tells else DeviceError):
        driver.enforced_limit_watts(bad)
    assert driver.power_watts(good).watts > 0
    assert [gpu.gpu_id for gpu in driver.gpus()] == [good]


def test_an_unknown_gpu_is_lost(driver):
    with pytest.raises(DeviceLost):
        driver.power_watts("GPU-00000000-0000-0000-0000-000000000000")


def test_processes_and_binding_cap_are_the_registers(driver, gpu_id, window, needs):
    needs("processes")
    needs("binding")
    assert driver.processes(gpu_id) == ()
    assert driver.cap_binds(gpu_id) is False
    window.gpu(0).load(1).pid = 99
    window.gpu(0).load(1).state = 1
    window.gpu(0).cap_binds = 1
    assert driver.processes(gpu_id) == (99,)
    assert driver.cap_binds(gpu_id) is True


def test_a_driver_that_was_reloaded_is_gone_until_it_is_opened_again(driver, gpu_id, window, needs):
    needs("reloads")
    window.node(0).driver_epoch += 1
    for call in (driver.power_watts, driver.enforced_limit_watts, driver.processes):
        with pytest.raises(DriverGone):
            call(gpu_id)
    with pytest.raises(DriverGone):
        driver.gpus()
    driver.open()
    assert driver.power_watts(gpu_id).watts > 0


def test_a_driver_that_is_not_loaded_says_so_at_once(driver, gpu_id, window, needs):
    needs("reloads")
    window.node(0).driver_gone = 1
    with pytest.raises(DriverGone):
        driver.power_watts(gpu_id)
    driver.close()
    with pytest.raises(DriverGone):
        driver.open()


def test_every_call_of_a_broken_gpu_raises_a_device_error_and_nothing_else(
    driver, gpu_id, window, kind
):
    calls = [
        driver.can_set,
        driver.requested_limit_watts,
        driver.enforced_limit_watts,
        lambda gpu: driver.set_limit_watts(gpu, 300.0),
        driver.power_watts,
        driver.energy_joules,
        driver.processes,
        *([driver.cap_binds] if "binding" in kind.tells else []),
    ]
    for code in (1, 2, 6, 8, 9, 10, 15, 16, 18, 19, 28, 999):
        window.gpu(0).error_code = code
        for call in calls:
            with pytest.raises(DeviceError):
                call(gpu_id)


def test_a_clock_lock_is_set_at_the_step_below_and_given_back(driver, gpu_id, window):
    """Only of drivers that have locks: those are an interface of their own."""
    if not isinstance(driver, ClockLocks):
        pytest.skip("this driver has no clock locks")
    limits = driver.clock_range(gpu_id)
    assert (limits.least_mhz, limits.greatest_mhz) == (210.0, 1980.0)
    driver.lock_clocks(gpu_id, 1004.0)
    assert window.gpu(0).locked_mhz == 990.0
    for mhz in (209.0, 1981.0, math.nan):
        with pytest.raises(DeviceOutOfRange):
            driver.lock_clocks(gpu_id, mhz)
    driver.unlock_clocks(gpu_id)
    assert (window.gpu(0).locked_mhz, window.gpu(1).locked_mhz) == (0.0, 0.0)
    window.gpu(0).permission_denied = 1
    for write in (lambda: driver.lock_clocks(gpu_id, 900.0), lambda: driver.unlock_clocks(gpu_id)):
        with pytest.raises(DeviceNoPermission):
            write()


def test_the_state_of_a_board_is_what_the_registers_say(driver, gpu_id, window):
    if not isinstance(driver, Boards):
        pytest.skip("this driver does not tell the state of its boards")
    slot = window.gpu(0)
    slot.persistence, slot.mig_slices, slot.smoothing = 0, 2, 2
    slot.smoothing_floor_watts, slot.smoothing_hysteresis_seconds = 300.0, 1.5
    slot.smoothing_down_watts, slot.smoothing_up_watts = 50.0, 40.0
    state = driver.board_state(gpu_id)
    assert state.persistence is False
    assert state.slices == (slot.slice_uuid(1), slot.slice_uuid(2))
    assert state.smoothing == Smoothing(300.0, 1.5, 50.0, 40.0)
    assert driver.board_state(driver.gpus()[1].gpu_id).smoothing is None
