"""Meters over HTTP: a Redfish PDU and Prometheus, against local servers, well- and ill-behaved."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gridaware.clock import SystemClock
from gridaware.devices import prometheus, redfish_pdu
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceNoPermission,
    DeviceNotSupported,
    GridawareError,
    TimedOut,
    Unavailable,
)
from gridaware.domain.reading import Boundary, Method
from gridaware.wiring.identity import issue, make_ca

DEADLINE = 0.4
PATIENCE = 4.0
"""Less than those that hang do: whoever comes back by then gave up by itself."""
METRICS = "/redfish/v1/PowerEquipment/RackPDUs/1/Metrics"
SENSOR = "/redfish/v1/PowerEquipment/RackPDUs/1/Sensors/PDUPower"
PDU = {
    "@odata.id": METRICS,
    "@odata.type": "#PowerDistributionMetrics.v1_3_2.PowerDistributionMetrics",
    "Id": "Metrics",
    "Name": "Summary Metrics",
    "PowerWatts": {
        "DataSourceUri": SENSOR,
        "Reading": 6438,
        "ApparentVA": 6300,
        "ReactiveVAR": 100,
        "PowerFactor": 0.93,
    },
    "EnergykWh": {
        "DataSourceUri": "/redfish/v1/PowerEquipment/RackPDUs/1/Sensors/PDUEnergy",
        "Reading": 12,
        "LifetimeReading": 56438,
        "SensorResetTime": "2026-01-01T00:00:00Z",
    },
}
"""The shape of DMTF's rack PDU mock-up (DSP2043)."""
POWER_SENSOR = {
    "@odata.id": SENSOR,
    "@odata.type": "#Sensor.v1_9_0.Sensor",
    "Id": "PDUPower",
    "Name": "PDU power",
    "ReadingType": "Power",
    "ReadingUnits": "W",
    "Reading": 6440.5,
    "ReadingAccuracy": 64.4,
    "Status": {"State": "Enabled", "Health": "OK"},
}


class Server:
    """Answers what ``reply`` says; keeps what it was asked, and waits where it is told to."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.replies: dict[str, Any] = {}
        """Path → body, or (status, body)."""
        self.headers: dict[str, str] = {}
        self.seen: list[tuple[str, dict[str, list[str]], str]] = []
        self.hangs = False
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = parse_qs(url.query)
                outer.seen.append((url.path, query, self.headers.get("Authorization", "")))
                if outer.hangs:
                    outer.over.wait(10)
                reply = outer.replies.get(url.path, (404, {}))
                if callable(reply):
                    reply = reply(query)
                status, body = reply if isinstance(reply, tuple) else (200, reply)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response_only(status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                return

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    return  # the meter gave up, as it should

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("tls")
    make_ca(folder, SystemClock())
    return issue(folder, "pdu", SystemClock(), "controller", ("127.0.0.1",))


@pytest.fixture
def secret(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "secret"
        path.write_text(text + "\n", encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def pdu(identity) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    server = Server(context)
    server.replies = {METRICS: json.loads(json.dumps(PDU)), SENSOR: dict(POWER_SENSOR)}
    yield server
    server.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """Meters to be closed when the test is over."""
    meters: list[Any] = []
    yield meters
    for meter in meters:
        meter.close()


@pytest.fixture
def pdu_meter(pdu, identity, opened) -> Callable[..., Any]:
    def make(path: str = METRICS, **options: str):
        given = {
            "url": f"https://127.0.0.1:{pdu.port}{path}",
            "ca_file": str(identity.ca),
            "deadline_seconds": "20",  # a busy machine is no bad meter
        }
        opened.append(redfish_pdu.open_meter(given | options))
        return opened[-1]

    return make


def test_a_pdu_is_read_with_what_its_sensor_says_of_itself(pdu, pdu_meter, secret) -> None:
    meter = pdu_meter(user="ada", password_file=secret("a pass word"))
    reading, energy = meter.read()
    assert reading.watts == 6438.0
    assert (reading.boundary, reading.method) == (Boundary.SITE, Method.METER)
    assert reading.accuracy_share == pytest.approx(64.4 / 6438)
    assert energy.joules == pytest.approx(56438 * 3.6e6)  # not the one that anybody may set back
    named = "Basic " + base64.b64encode(b"ada:a pass word").decode()
    assert [(path, sent) for path, _, sent in pdu.seen] == [(METRICS, named), (SENSOR, named)]
    meter.read()
    assert [path for path, _, _ in pdu.seen] == [METRICS, SENSOR, METRICS]
    meter.close()


def test_a_single_sensor_is_read_with_the_age_on_its_own_clock(pdu, pdu_meter) -> None:
    wrong = datetime(2001, 1, 1, tzinfo=UTC)  # a PDU without NTP
    pdu.headers = {"Date": format_datetime(wrong + timedelta(seconds=4), usegmt=True)}
    pdu.replies[SENSOR] |= {"ReadingTime": "2001-01-01T00:00:00Z", "ReadingUnits": "kW"}
    reading, energy = pdu_meter(SENSOR).read()
    assert (reading.watts, reading.age_seconds, energy) == (6440500.0, 4.0, None)


@pytest.mark.parametrize(
    "spoil",
    [
        {"PowerWatts": {"Reading": None}},
        {"PowerWatts": {"Reading": "6438"}},
        {"PowerWatts": {"Reading": True}},
        {"PowerWatts": {}},
        {"PowerWatts": 6438},
    ],
)
def test_a_pdu_without_a_number_has_no_power(pdu, pdu_meter, spoil) -> None:
    pdu.replies[METRICS] |= spoil
    with pytest.raises(DeviceNotSupported):
        pdu_meter().read()


@pytest.mark.parametrize(
    "spoil",
    [
        {"ReadingType": "Temperature", "ReadingUnits": "Cel"},
        {"ReadingUnits": "V"},
        {"Status": {"State": "Absent"}},
    ],
)
def test_a_sensor_of_something_else_is_refused(pdu, pdu_meter, spoil) -> None:
    pdu.replies[SENSOR] |= spoil
    with pytest.raises(DeviceNotSupported):
        pdu_meter(SENSOR).read()


def test_an_energy_counter_that_was_set_back_begins_an_epoch(pdu, pdu_meter) -> None:
    meter = pdu_meter()
    pdu.replies[METRICS]["EnergykWh"] = {"Reading": 100.0}
    _, before = meter.read()
    pdu.replies[METRICS]["EnergykWh"] = {"Reading": 1.0}
    _, after = meter.read()
    assert before.epoch != after.epoch
    pdu.replies[METRICS]["EnergykWh"] = {"Reading": None}
    assert meter.read()[1] is None


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ((401, {}), DeviceNoPermission),
        ((403, {}), DeviceNoPermission),
        ((503, {}), DeviceError),
        ((200, []), DeviceError),
        ((200, b"<html>not found</html>"), GridawareError),
        ((200, b'{"PowerWatts": {"Reading": NaN}}'), GridawareError),
        ((302, {}), DeviceError),
    ],
)
def test_what_a_pdu_refuses_or_garbles_is_never_a_reading(pdu, pdu_meter, reply, error) -> None:
    pdu.replies[METRICS] = reply
    with pytest.raises(error):
        pdu_meter().read()


def test_a_pdu_that_hangs_is_given_up_within_its_deadline(pdu, pdu_meter) -> None:
    pdu.hangs = True
    clock = SystemClock()
    before = clock.monotonic_seconds()
    with pytest.raises(TimedOut):
        pdu_meter(deadline_seconds=str(DEADLINE)).read()
    assert clock.monotonic_seconds() - before < PATIENCE


def test_a_pdu_whose_certificate_nobody_vouches_for_is_not_asked(pdu) -> None:
    meter = redfish_pdu.open_meter({"url": f"https://127.0.0.1:{pdu.port}{METRICS}"})
    with pytest.raises(Unavailable):
        meter.read()
    assert pdu.seen == []


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://pdu/redfish/v1/x"},
        {"url": "https://pdu/status"},
        {"url": "https://pdu:port/redfish/v1/x"},
        {"user": "ada"},
        {"user": "ada", "token_file": "/nowhere"},
        {"ca_file": "/nowhere/ca.pem"},
        {"ca_file": "ca.pem"},
        {"verify": "no"},
    ],
)
def test_options_of_a_pdu_are_checked_before_it_is_dialled(options) -> None:
    with pytest.raises(ConfigError):
        redfish_pdu.open_meter({"url": "https://pdu/redfish/v1/x"} | options)


# Prometheus ------------------------------------------------------------------------------------

API = "/api/v1/query"
NOW = 1_780_000_000.5


def vector(*samples: tuple[float, str]) -> dict[str, Any]:
    result = [{"metric": {"__name__": "p"}, "value": [at, text]} for at, text in samples]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def series(server: Server, **values: str) -> None:
    """The server knows expressions; each has one value, evaluated when it is asked or told."""

    def reply(query: dict[str, list[str]]) -> Any:
        at = float(query.get("time", [str(NOW)])[0])
        text = values.get(query["query"][0])
        return vector() if text is None else vector((at, text))

    server.replies[API] = reply


@pytest.fixture
def prom(server, opened) -> Callable[..., Any]:
    def make(**options: str):
        given = {"url": f"http://127.0.0.1:{server.port}", "query": "watts"}
        opened.append(prometheus.open_meter(given | {"deadline_seconds": "20"} | options))
        return opened[-1]

    return make


def test_the_age_is_that_of_the_measurement_not_of_the_evaluation(server, prom) -> None:
    series(server, **{"watts": "81250.5", "timestamp(watts)": str(NOW - 12.25)})
    reading, energy = prom().read()
    assert (reading.watts, reading.age_seconds, energy) == (81250.5, pytest.approx(12.25), None)
    late = (SystemClock().wall() - reading.at).total_seconds()
    assert 12.0 < late < 15.0
    first, second = (query for _, query, _ in server.seen)
    assert "time" not in first
    assert float(second["time"][0]) == NOW  # both of one instant


def test_a_sum_of_series_names_its_own_age_and_may_have_a_counter(server, prom) -> None:
    series(
        server,
        **{
            "sum(watts)": "1000",
            "min(timestamp(watts))": str(NOW - 3),
            "sum(joules_total)": "5e9",
        },
    )
    meter = prom(
        query="sum(watts)",
        time_query="min(timestamp(watts))",
        energy_query="sum(joules_total)",
    )
    reading, energy = meter.read()
    assert (reading.age_seconds, energy.joules) == (pytest.approx(3.0), 5e9)
    with pytest.raises(ConfigError):
        prom(query="sum(watts)")


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (vector(), DeviceNotSupported),  # the series is stale, or was never there
        (vector((NOW, "1"), (NOW, "2")), DeviceNotSupported),
        (vector((NOW, "NaN")), DeviceNotSupported),
        (vector((NOW, "+Inf")), DeviceNotSupported),
        (vector((NOW, "many")), DeviceError),
        (
            {"status": "success", "data": {"resultType": "scalar", "result": [NOW, "1"]}},
            DeviceError,
        ),
        ({"status": "success", "data": {"resultType": "vector", "result": {}}}, DeviceError),
        ({"status": "success", "data": {"resultType": "vector", "result": [3]}}, DeviceError),
        ({"status": "success"}, DeviceError),
        ((400, {"status": "error", "error": "parse error"}), DeviceError),
        ((503, b"upstream down"), GridawareError),
        ((401, {}), DeviceNoPermission),
        ((200, b"{"), GridawareError),
        ((200, b"[" * 100_000), GridawareError),
    ],
)
def test_anything_but_one_finite_sample_is_refused(server, prom, reply, error) -> None:
    server.replies[API] = reply
    with pytest.raises(error):
        prom().read()


def test_a_server_that_hangs_is_given_up_within_one_deadline(server, prom) -> None:
    server.hangs = True
    clock = SystemClock()
    before = clock.monotonic_seconds()
    with pytest.raises(TimedOut):
        prom(deadline_seconds=str(DEADLINE)).read()
    assert clock.monotonic_seconds() - before < PATIENCE


def test_a_token_goes_over_tls_only(identity, secret, prom, opened) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    made = Server(context)
    try:
        series(made, **{"watts": "1", "timestamp(watts)": str(NOW)})
        token = secret("a-token")
        options = {"token_file": token, "ca_file": str(identity.ca)}
        prom(url=f"https://127.0.0.1:{made.port}", **options).read()
        assert {sent for _, _, sent in made.seen} == {"Bearer a-token"}
        with pytest.raises(ConfigError):
            prom(token_file=token)
    finally:
        for meter in opened:
            meter.close()
        made.close()
