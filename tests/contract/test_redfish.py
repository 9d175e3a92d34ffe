"""The Redfish driver and meter, against an imitation of a BMC over TLS."""

import ssl

import pytest

from gridaware.clock import SystemClock
from gridaware.devices import redfish
from gridaware.devices.redfish import RedfishDriver, RedfishMeter
from gridaware.devices.redfish_bmc import Resource, bmc_from
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceLost,
    DeviceNoPermission,
    DeviceNotSupported,
    DriverGone,
    Unavailable,
)
from gridaware.domain.fleet import Pace
from gridaware.domain.reading import Boundary, Method
from gridaware.sim.plant import Plant
from gridaware.sim.site import NodeSpec, PlantSpec, build_window
from gridaware.sim.vendors import bmc as imitation
from gridaware.sim.vendors.server import JsonServer
from gridaware.wiring.identity import issue, make_ca

SPEC = PlantSpec((NodeSpec("h100-700", 2),))


@pytest.fixture
def window():
    """Two idle GPUs, 5 s after their start."""
    window = build_window(SPEC, 3)
    Plant(window, SPEC, 3).advance(5.0)
    return window


@pytest.fixture(scope="module")
def identity(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bmc")
    make_ca(folder, SystemClock())
    return issue(folder, "bmc", SystemClock(), "controller")


@pytest.fixture
def service(window):
    return imitation.Bmc(window)


@pytest.fixture
def server(service, identity):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    with JsonServer(service.reply, tls=context) as server:
        yield server


@pytest.fixture
def options(server, identity, tmp_path):
    secret = tmp_path / "password"
    secret.write_text(f"{imitation.PASSWORD}\n")
    return {
        "address": f"https://127.0.0.1:{server.port}",
        "ca": str(identity.ca),
        "username": imitation.USERNAME,
        "password_file": str(secret),
    }


@pytest.fixture
def opened(options):
    """Makes a driver and closes it at the end."""
    made = []

    def make(cls=RedfishDriver, more=(), **arguments):
        bmc = bmc_from({**options, **dict(more)}, "redfish")
        made.append((bmc, cls(bmc, **arguments)))
        if cls is RedfishDriver:
            made[-1][1].open()
        return made[-1][1]

    yield make
    for bmc, _ in made:
        bmc.close()


def patches(server):
    return [request for request in server.asked if request.method == "PATCH"]


def test_only_gpus_among_the_processors_and_under_nvmls_names(opened, window):
    driver = opened()
    uuids = [window.gpu(which).uuid.decode() for which in (0, 1)]
    assert [gpu.gpu_id for gpu in driver.gpus()] == uuids


def test_case_28_gpus_stand_in_the_kernels_order_and_not_in_the_bmcs(opened, window, tmp_path):
    # The BMC numbers by socket; jobs number by PCI address, and here those run the other way.
    for address, which in (("0000:10:00.0", 1), ("0000:11:00.0", 0)):
        place = tmp_path / "gpus" / address
        place.mkdir(parents=True)
        uuid = window.gpu(which).uuid.decode()
        (place / "information").write_text(f"Model: \t\t H100\nGPU UUID: \t {uuid}\n")
    driver = opened(proc=tmp_path / "gpus")
    uuids = [window.gpu(which).uuid.decode() for which in (1, 0)]
    assert [(gpu.gpu_id, gpu.index) for gpu in driver.gpus()] == [(uuids[0], 0), (uuids[1], 1)]


def test_a_gpu_that_the_bmc_names_and_does_not_tell_of_is_a_fault(opened, window):
    window.gpu(0).error_code = 999
    driver = opened()
    assert [gpu.gpu_id for gpu in driver.gpus()] == [window.gpu(1).uuid.decode()]
    ((code, words),) = driver.faults()
    assert code == "redfish-failed"
    assert "internal service error" in words


def test_a_limit_is_a_set_point_in_whole_watts_with_the_entity_tag(opened, server, window):
    driver = opened()
    gpu_id = driver.gpus()[1].gpu_id
    driver.set_limit_watts(gpu_id, 412.345)
    (patch,) = patches(server)
    assert patch.body == {"PowerLimitWatts": {"SetPoint": 412}}
    assert patch.headers["if-match"] == '"0"'
    assert (window.gpu(0).requested_watts, window.gpu(1).requested_watts) == (700.0, 412.0)
    assert driver.enforced_limit_watts(gpu_id) == 412.0


def test_a_resource_that_changed_meanwhile_is_read_again_and_then_set(opened, server, window):
    driver = opened()
    first, second = (gpu.gpu_id for gpu in driver.gpus())
    driver.set_limit_watts(first, 400.0)  # the service has one tag for all: now it is another
    driver.set_limit_watts(second, 300.0)
    assert [p.headers["if-match"] for p in patches(server)] == ['"0"', '"0"', '"1"']
    assert window.gpu(1).requested_watts == 300.0


def test_one_read_serves_every_question_for_a_second(opened, server):
    driver = opened()
    gpu_id = driver.gpus()[0].gpu_id
    before = len(server.asked)
    driver.limit_range(gpu_id)
    driver.power_watts(gpu_id)
    driver.energy_joules(gpu_id)
    driver.can_set(gpu_id)
    assert len(server.asked) == before


def test_it_declares_how_slow_it_is(opened):
    driver = opened(more={"call_seconds": "3"}, latency_seconds=25.0)
    assert driver.pace(driver.gpus()[0].gpu_id) == Pace(12.0, 25.0)
    assert Pace() == Pace(1.0, 0.0)


def test_a_session_that_ran_out_is_renewed_once_and_deleted_at_the_end(opened, service, server):
    driver = opened(same_seconds=0.0)
    service.tokens.clear()
    assert driver.power_watts(driver.gpus()[0].gpu_id).watts > 0
    assert len(service.tokens) == 1
    driver.close()
    assert service.tokens == set()
    assert [r.method for r in server.asked].count("DELETE") == 1


def test_basic_sign_in_for_a_bmc_without_sessions(opened, service):
    service.has_sessions = False
    with pytest.raises(DeviceError):
        opened()
    driver = opened(more={"sign_in": "basic"})
    assert len(driver.gpus()) == 2


def test_a_wrong_password_is_no_permission_and_is_in_no_message(opened, tmp_path):
    other = tmp_path / "other"
    other.write_text("hunter2\n")
    with pytest.raises(DeviceNoPermission) as refused:
        opened(more={"password_file": str(other)})
    assert "hunter2" not in refused.value.message


def test_a_bmc_with_a_strange_certificate_is_not_talked_to(options, server, tmp_path):
    make_ca(tmp_path, SystemClock())
    driver = redfish.open_driver({**options, "ca": str(tmp_path / "ca.pem")})
    with pytest.raises(DriverGone, match="certificate"):
        driver.open()
    wrong = redfish.open_driver({**options, "server_name": "bmc.example"})
    with pytest.raises(DriverGone, match="certificate"):
        wrong.open()
    assert server.asked == []
    pinned = redfish.open_driver({**options, "server_name": "bmc.example", "name_check": "no"})
    pinned.open()
    assert len(pinned.gpus()) == 2
    pinned.close()
    make_ca(tmp_path, SystemClock())
    other = {**options, "ca": str(tmp_path / "ca.pem"), "name_check": "no"}
    with pytest.raises(DriverGone, match="certificate"):
        redfish.open_driver(other).open()


def test_a_slow_bmc_is_hung_after_one_deadline(opened, server):
    driver = opened(more={"call_seconds": "0.2"}, same_seconds=0.0)
    gpu_id = driver.gpus()[0].gpu_id
    server.delay_seconds = 0.6
    with pytest.raises(DeviceError) as hung:
        driver.power_watts(gpu_id)
    assert (hung.value.code, hung.value.retryable) == ("device-hung", True)


def test_a_limit_that_is_switched_off_holds_nothing_and_cannot_be_set(opened, service, window):
    window.gpu(0).requested_watts = 300.0
    service.control_mode = "Disabled"
    driver = opened()
    gpu_id = driver.gpus()[0].gpu_id
    assert driver.requested_limit_watts(gpu_id) == 700.0
    assert driver.can_set(gpu_id) is False


def test_case_27_a_policy_of_the_node_manager_is_another_limiter(opened, service):
    service.gpu_policy_watts = 900.0
    driver = opened(node_manager=imitation.NODE_MANAGER)
    gpu_id = driver.gpus()[0].gpu_id
    assert driver.requested_limit_watts(gpu_id) == 700.0
    assert driver.enforced_limit_watts(gpu_id) == 450.0  # 900 W over two GPUs


def test_no_node_manager_is_no_limiter(opened):
    driver = opened(node_manager=imitation.NODE_MANAGER)
    assert driver.enforced_limit_watts(driver.gpus()[0].gpu_id) == 700.0


def test_case_9_a_module_is_labelled_as_what_it_encloses(opened):
    path = f"{imitation.PROCESSORS}/GPU_SXM_1"
    driver = opened(paths=(path,), boundary=Boundary.MODULE)
    assert driver.boundary == "module"
    gpu_id = driver.gpus()[0].gpu_id
    assert driver.power_watts(gpu_id).boundary is Boundary.MODULE
    assert driver.energy_joules(gpu_id).boundary is Boundary.MODULE


def test_energy_in_kilowatt_hours_is_joules_here(opened, service, window):
    service.energy_in_kwh = True
    window.gpu(0).energy_millijoules = 3_600_000_000  # 1 kWh
    driver = opened()
    assert driver.energy_joules(driver.gpus()[0].gpu_id).joules == pytest.approx(3.6e6)


def test_an_empty_list_for_the_energy_is_no_counter(opened, window):
    window.gpu(0).energy_unsupported = 1
    driver = opened()
    with pytest.raises(DeviceNotSupported):
        driver.energy_joules(driver.gpus()[0].gpu_id)


def test_a_gpu_that_left_is_lost_and_the_other_stays(opened, window):
    driver = opened(same_seconds=0.0)
    gone, there = (gpu.gpu_id for gpu in driver.gpus())
    window.gpu(0).lost = 1
    with pytest.raises(DeviceLost):
        driver.power_watts(gone)
    assert driver.power_watts(there).watts > 0


def test_the_meter_of_a_node_reads_its_chassis(opened, window):
    meter = opened(RedfishMeter, path=imitation.CHASSIS, clock=SystemClock())
    power, energy = meter.read()
    expected = window.gpu(0).average_watts + window.gpu(1).average_watts + 1000.0
    assert power.watts == pytest.approx(expected, abs=0.01)
    assert (power.boundary, power.method) == (Boundary.NODE, Method.METER)
    assert energy.boundary is Boundary.NODE


def test_a_bmc_that_does_not_answer_is_a_silent_meter(options, server):
    meter = redfish.open_meter({**options, "path": "/redfish/v1/Chassis/none"})
    with pytest.raises(Unavailable) as silent:
        meter.read()
    assert silent.value.code == "meter-silent"
    meter.close()


@pytest.mark.parametrize(
    "change",
    [
        {"address": "http://127.0.0.1"},
        {"address": "https://user@127.0.0.1"},
        {"address": "https://127.0.0.1:99999"},
        {"address": ""},
        {"ca": "ca.pem"},
        {"ca": "/none"},
        {"password_file": "/none"},
        {"username": ""},
        {"sign_in": "kerberos"},
        {"name_check": "maybe"},
        {"call_seconds": "-1"},
        {"latency_seconds": "nan"},
        {"boundary": "node"},
        {"paths": "/redfish/v1/Chassis/a", "boundary": "site"},
        {"paths": "http://elsewhere/"},
        {"node_manager": "NodeManager"},
        {"colour": "red"},
    ],
    ids=str,
)
def test_options_are_checked(options, change):
    with pytest.raises(ConfigError) as refused:
        redfish.open_driver({**options, **change})
    assert refused.value.code in {"redfish-options", "redfish-secret"}


def test_references_that_lead_elsewhere_are_not_followed():
    members = [
        {"@odata.id": "/redfish/v1/Systems/1"},
        {"@odata.id": "http://elsewhere/redfish/"},
        {"@odata.id": "/redfish/v1/a b"},
        {"@odata.id": "/redfish/v1/a\r\nX: y"},
        {"@odata.id": 7},
        "x",
    ]
    resource = Resource("/redfish/v1/Systems", {"Members": members}, None, None)
    assert resource.members() == ["/redfish/v1/Systems/1"]
