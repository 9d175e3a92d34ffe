"""The zeusd driver, against an imitation of its HTTP API over a UNIX socket."""

import pytest

from gridaware.clock import SystemClock
from gridaware.devices import zeusd as driver_module
from gridaware.devices.jsonhttp import JsonHttp, unix
from gridaware.devices.zeusd import ZeusdDriver
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceNoPermission,
    DeviceNotSupported,
    DriverGone,
)
from gridaware.domain.reading import Method
from gridaware.sim.driver import SimDriver
from gridaware.sim.plant import Plant
from gridaware.sim.site import NodeSpec, PlantSpec, build_window
from gridaware.sim.vendors.server import JsonServer, Reply
from gridaware.sim.vendors.zeusd import Zeusd, pci_address

SPEC = PlantSpec((NodeSpec("h100-700", 2),))


@pytest.fixture
def window():
    """Two idle GPUs, 5 s after their start."""
    window = build_window(SPEC, 3)
    Plant(window, SPEC, 3).advance(5.0)
    return window


@pytest.fixture
def daemon(window):
    return Zeusd(window)


@pytest.fixture
def served(tmp_path):
    """Serves an imitation at a socket and gives a driver for it."""
    servers = []

    def serve(reply, **arguments):
        path = tmp_path / f"{len(servers)}.sock"
        servers.append(JsonServer(reply, socket=path))
        servers[-1].__enter__()
        http = JsonHttp(unix(path), "localhost", SystemClock(), 5.0)
        made.append(ZeusdDriver(http, SystemClock(), proc=tmp_path / "proc", **arguments))
        return made[-1], servers[-1]

    made = []
    yield serve
    for driver in made:
        driver.close()
    for server in servers:
        server.__exit__(None, None, None)


def test_without_the_kernel_drivers_word_a_gpu_is_known_by_its_address(served, daemon):
    driver, _ = served(daemon.reply)
    driver.open()
    assert [gpu.gpu_id for gpu in driver.gpus()] == ["PCI-0000:10:00.0", "PCI-0000:11:00.0"]


def test_case_28_an_index_of_zeusd_is_found_by_the_address_and_not_by_its_place(
    served, daemon, window
):
    def shuffled(request):
        """zeusd lists its GPUs in another order: the index is in the entry."""
        answer = daemon.reply(request)
        if request.target == "/discover":
            answer.body["gpus"].reverse()
        return answer

    driver, _ = served(shuffled)
    driver.open()
    driver.set_limit_watts("PCI-0000:11:00.0", 300.0)
    assert (window.gpu(0).requested_watts, window.gpu(1).requested_watts) == (700.0, 300.0)


def test_a_limit_is_one_blocking_request_in_milliwatts(served, daemon):
    driver, server = served(daemon.reply)
    driver.open()
    driver.set_limit_watts("PCI-0000:10:00.0", 412.345)
    asked = [(r.method, r.target) for r in server.asked if r.method == "POST"]
    assert asked == [("POST", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=412345&block=true")]


def test_case_33_what_zeusd_calls_mj_and_mw_are_thousandths(served, daemon, window):
    driver, _ = served(daemon.reply)
    driver.open()
    window.gpu(0).energy_millijoules, window.gpu(0).instant_watts = 187_000, 95.0
    assert driver.energy_joules("PCI-0000:10:00.0").joules == 187.0
    reading = driver.power_watts("PCI-0000:10:00.0")
    assert (reading.watts, reading.method) == (95.0, Method.INSTANT)


def test_a_token_goes_along_and_what_it_may_not_is_no_permission(served, window):
    reads_only = Zeusd(window, token="t0ken", scopes=("gpu-read",))
    driver, _ = served(reads_only.reply, token="t0ken")
    driver.open()
    gpu_id = driver.gpus()[0].gpu_id
    assert driver.power_watts(gpu_id).watts > 0
    assert driver.can_set(gpu_id) is False
    with pytest.raises(DeviceNoPermission, match="lacks required scope"):
        driver.set_limit_watts(gpu_id, 300.0)
    stranger, _ = served(reads_only.reply)
    stranger.open()
    with pytest.raises(DeviceNoPermission):
        stranger.power_watts("PCI-0000:10:00.0")


def test_a_group_that_is_switched_off_can_be_read_and_not_set(served, daemon):
    daemon.groups = ("gpu-read",)
    driver, _ = served(daemon.reply)
    driver.open()
    gpu_id = driver.gpus()[0].gpu_id
    assert driver.can_set(gpu_id) is False
    with pytest.raises(DeviceNotSupported):
        driver.set_limit_watts(gpu_id, 300.0)


def test_case_1_a_gpu_without_a_counter_to_trust_is_integrated_instead(served, daemon, window):
    window.gpu(0).energy_unsupported = 1
    driver, server = served(daemon.reply)
    driver.open()
    with pytest.raises(DeviceNotSupported):
        driver.energy_joules("PCI-0000:10:00.0")
    assert not any("energy" in request.target for request in server.asked)
    assert driver.power_watts("PCI-0000:10:00.0").watts > 0


def test_a_zeusd_that_does_not_say_where_its_gpus_are_is_too_old(served, daemon):
    daemon.tells_addresses = False
    driver, _ = served(daemon.reply)
    with pytest.raises(DriverGone) as old:
        driver.open()
    assert old.value.code == "zeusd-too-old"


def test_an_older_zeusd_has_nvmls_order_and_needs_an_nvml_that_sees_as_many(served, daemon, window):
    daemon.tells_addresses = False
    driver, _ = served(daemon.reply, reader=SimDriver(lambda: window, 0, SystemClock()))
    driver.open()
    uuids = [window.gpu(which).uuid.decode() for which in (0, 1)]
    assert [gpu.gpu_id for gpu in driver.gpus()] == uuids
    driver.set_limit_watts(uuids[1], 300.0)
    assert (window.gpu(0).requested_watts, window.gpu(1).requested_watts) == (700.0, 300.0)
    window.gpu(0).lost = 1  # NVML numbers anew, zeusd does not: nobody knows which is which
    with pytest.raises(DriverGone) as lost:
        driver.open()
    assert lost.value.code == "zeusd-too-old"


def test_without_zeusd_nvml_goes_on_reading_and_limits_wait(daemon, window, tmp_path):
    for slot in window.gpus_of(0):
        place = tmp_path / "proc" / pci_address(slot)
        place.mkdir(parents=True)
        (place / "information").write_text(f"GPU UUID: {slot.uuid.decode()}\n")
    path = tmp_path / "z.sock"
    reader = SimDriver(lambda: window, 0, SystemClock())
    http = JsonHttp(unix(path), "localhost", SystemClock(), 5.0)
    driver = ZeusdDriver(http, SystemClock(), reader=reader, proc=tmp_path / "proc")
    with JsonServer(daemon.reply, socket=path):
        driver.open()
        gpu_id = driver.gpus()[0].gpu_id
        driver.set_limit_watts(gpu_id, 300.0)
    driver._daemon.close()
    with pytest.raises(DeviceError) as waits:
        driver.set_limit_watts(gpu_id, 400.0)
    assert (waits.value.code, type(waits.value)) == ("zeusd-unreachable", DeviceError)
    assert driver.power_watts(gpu_id).watts > 0
    assert driver.enforced_limit_watts(gpu_id) == 300.0
    driver.close()


def test_a_zeusd_that_is_not_there_is_gone(tmp_path):
    driver = driver_module.open_driver({"socket": str(tmp_path / "none"), "library": "none"})
    with pytest.raises(DriverGone) as gone:
        driver.open()
    assert gone.value.code == "zeusd-unreachable"
    with pytest.raises(DriverGone):
        driver.gpus()


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"gpus": {}, "enabled_api_groups": []},
        {"gpus": [1], "enabled_api_groups": []},
        {"gpus": [{"id": True, "pci_address": "0000:10:00.0"}], "enabled_api_groups": []},
        {"gpus": [{"id": "0", "pci_address": "0000:10:00.0"}], "enabled_api_groups": []},
    ],
)
def test_an_answer_that_is_not_as_its_api_says_is_a_device_error(served, body):
    driver, _ = served(lambda _request: Reply(200, body))
    with pytest.raises(DeviceError):
        driver.open()


@pytest.mark.parametrize(
    "options",
    [
        {"sockets": "/a"},
        {"socket": "zeusd.sock"},
        {"socket": "/a", "address": "h:1"},
        {"address": "host"},
        {"address": "host:70000"},
        {"address": ":4938"},
        {"token_file": "token"},
        {"token_file": "/none"},
    ],
)
def test_options_are_checked(options):
    with pytest.raises(ConfigError) as refused:
        driver_module.open_driver({"library": "none", **options})
    assert refused.value.code in {"zeusd-options", "zeusd-secret"}
