"""A rack PDU, a floor PDU or a power shelf that speaks Redfish: its power and its energy.

The resource named is a ``PowerDistributionMetrics`` (``PowerWatts``, ``EnergykWh``), or a single
power ``Sensor``. A metrics resource holds excerpts: how sure its power sensor is, is read from the
sensor itself, now and then. Times are compared on the PDU's own clock, which need not be right.

Source: DMTF DSP0268 2024.3, schemas PowerDistributionMetrics 1.3 and Sensor 1.9; DSP0266 §13 (HTTP
Basic authentication over TLS).
"""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, cast
from urllib.parse import urlsplit

from gridaware.clock import Clock, SystemClock
from gridaware.devices import credentials
from gridaware.devices.credentials import authorization, tls_context
from gridaware.devices.jsonhttp import Answer, JsonHttp, tls
from gridaware.devices.options import check_names, needed, positive
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceNoPermission,
    DeviceNotSupported,
)
from gridaware.domain.reading import Boundary, EnergyReading, Method, Reading

__all__ = ["OPTIONS", "TESTED", "RedfishPdu", "open_meter"]

NAME: Final = "redfish-pdu"
OPTIONS: Final[Mapping[str, str]] = {
    "url": "`https://HOST/redfish/v1/PowerEquipment/RackPDUs/1/Metrics`: its metrics, or a sensor",
    **credentials.OPTIONS,
    "server_name": "the name in its certificate, where that is not the host's",
    "deadline_seconds": "for one whole reading; default `2`",
    "pace_seconds": "read it no more often than this; default `1`",
}
TESTED: Final = "a local server with the payloads of DMTF's rack PDU mock-up, over TLS; no real PDU"
MOST_EXCHANGES: Final = 2
"""Of one reading: the resource, and now and then its sensor."""
JOULES_PER_KWH: Final = 3.6e6
_UNITS: Final[Mapping[str, float]] = {"W": 1.0, "kW": 1000.0}
SENSOR_SECONDS: Final = 300.0
"""How often the sensor behind the metrics is asked what it is."""


def open_meter(options: Mapping[str, str]) -> "RedfishPdu":
    """The meter that the options (:data:`OPTIONS`) name; it is dialled when it is first read.

    Raises:
        ConfigError: an option is wrong, or a file it names cannot be read.
    """
    check_names(options, OPTIONS, NAME)
    url = urlsplit(needed(options, "url", NAME))
    if url.scheme != "https" or not url.hostname or not url.path.startswith("/redfish/"):
        raise ConfigError(
            "redfish-pdu-options", "redfish-pdu: url is https://HOST/redfish/v1/…, with TLS"
        )
    try:
        port = 443 if url.port is None else url.port
    except ValueError as error:
        raise ConfigError("redfish-pdu-options", f"redfish-pdu: url: {error}") from error
    clock = SystemClock()
    http = JsonHttp(
        tls(
            url.hostname, port, tls_context(options, NAME), options.get("server_name", url.hostname)
        ),
        url.netloc.rpartition("@")[2],
        clock,
        positive(options, "deadline_seconds", 2.0, NAME) / MOST_EXCHANGES,
    )
    pace = positive(options, "pace_seconds", 1.0, NAME)
    return RedfishPdu(http, url.path, clock, authorization(options, NAME), pace)


class RedfishPdu:
    """Reads a PDU's metrics, or one power sensor."""

    def __init__(
        self,
        http: JsonHttp,
        target: str,
        clock: Clock,
        headers: Mapping[str, str],
        pace_seconds: float = 1.0,
    ) -> None:
        self.pace_seconds = pace_seconds
        self._http = http
        self._target = target
        self._clock = clock
        self._headers = headers
        self._sensor: Mapping[str, object] = {}
        """The power sensor behind the metrics, as last looked at."""
        self._asked_seconds: float | None = None
        self._last_joules = 0.0
        self._epoch = 0

    def read(self) -> tuple[Reading, EnergyReading | None]:
        """Power now, and the energy counter where the PDU has one.

        Raises:
            Unavailable: it does not answer, or not in time.
            DeviceError: it refuses, or what it answers is no power.
            InvalidInput: it answers no JSON.
        """
        answer = self._get(self._target)
        resource, at = _resource(answer), self._clock.wall()
        if "PowerWatts" not in resource:
            return _of_sensor(resource, answer.headers, at), None
        power, energy = _table(resource, "PowerWatts"), _table(resource, "EnergykWh")
        self._look_at_sensor(power)
        watts = _number(power.get("Reading"), "PowerWatts")
        share = _accuracy(self._sensor, watts)
        reading = Reading(watts, at, Boundary.SITE, Method.METER, accuracy_share=share)
        kwh = energy.get("LifetimeReading")
        if kwh is None:  # this one may be set back
            kwh = energy.get("Reading")
        if kwh is None:
            return reading, None
        return reading, self._counter(_number(kwh, "EnergykWh"), energy, at)

    def close(self) -> None:
        """Give the connection up; a later reading dials again."""
        self._http.close()

    def _counter(
        self, kwh: float, energy: Mapping[str, object], at: datetime
    ) -> EnergyReading | None:
        joules = kwh * JOULES_PER_KWH
        if joules < self._last_joules:
            self._epoch += 1
        self._last_joules = joules
        since = energy.get("SensorResetTime", "")
        return EnergyReading(joules, f"{self._target}/{since}/{self._epoch}", at, Boundary.SITE)

    def _look_at_sensor(self, power: Mapping[str, object]) -> None:
        """Ask the power sensor what it is; one that may not be looked at is nothing special."""
        now, uri = self._clock.monotonic_seconds(), power.get("DataSourceUri")
        if self._asked_seconds is not None and now - self._asked_seconds < SENSOR_SECONDS:
            return
        self._asked_seconds = now
        if isinstance(uri, str) and uri.startswith("/redfish/"):
            try:
                self._sensor = _resource(self._get(uri))
            except DeviceError:
                self._sensor = {}

    def _get(self, target: str) -> Answer:
        answer = self._http.ask("GET", target, headers=self._headers)
        if answer.status in {401, 403}:
            raise DeviceNoPermission("meter-denied", f"it refuses the user ({answer.status})")
        if answer.status != 200:
            raise DeviceError("meter-answer", f"{target}: it answered {answer.status}")
        return answer


def _resource(answer: Answer) -> Mapping[str, object]:
    if not isinstance(answer.body, dict):
        raise DeviceError("meter-answer", "it answered no Redfish resource")
    return cast("Mapping[str, object]", answer.body)


def _of_sensor(sensor: Mapping[str, object], headers: Mapping[str, str], at: datetime) -> Reading:
    """The reading of a ``Sensor`` resource, which says itself what it measures, and when."""
    kind, units = sensor.get("ReadingType", "Power"), sensor.get("ReadingUnits", "W")
    if kind != "Power" or units not in _UNITS:
        raise DeviceNotSupported("meter-value-absent", f"it reads {kind} in {units}, not power")
    state = _table(sensor, "Status").get("State", "Enabled")
    if state != "Enabled":
        raise DeviceNotSupported("meter-value-absent", f"its power sensor is {state}")
    reading = _number(sensor.get("Reading"), "Reading")
    age = _age_seconds(sensor.get("ReadingTime"), headers.get("date"))
    return Reading(
        reading * _UNITS[str(units)],
        at - timedelta(seconds=age),
        Boundary.SITE,
        Method.METER,
        accuracy_share=_accuracy(sensor, reading),
        age_seconds=age,
    )


def _table(resource: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = resource.get(key)
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DeviceNotSupported("meter-value-absent", f"{what} is {value!r}, no number")
    return float(value)


def _accuracy(sensor: Mapping[str, object], reading: float) -> float | None:
    """What the sensor says of itself: ± in its own unit, or ± percent."""
    absolute, percent = sensor.get("ReadingAccuracy"), sensor.get("Accuracy")
    if isinstance(absolute, int | float) and absolute > 0 and reading > 0:
        return min(float(absolute) / reading, 1.0)
    if isinstance(percent, int | float) and percent > 0:
        return min(float(percent) / 100.0, 1.0)
    return None


def _age_seconds(taken: object, now: str | None) -> float:
    """Between two times of the PDU's clock; 0 where it does not tell both."""
    try:
        instant = datetime.fromisoformat(str(taken))
        return max((parsedate_to_datetime(now or "") - instant).total_seconds(), 0.0)
    except (TypeError, ValueError, OverflowError):
        return 0.0
