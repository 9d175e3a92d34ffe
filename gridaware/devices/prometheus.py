"""A meter that Prometheus scrapes: one PromQL expression, asked for at every reading.

The answer must be an instant vector with exactly one sample. Its time is that of the evaluation,
not of the measurement, and a series lives on for five minutes after its last sample; so the age
comes from a second expression, ``timestamp(…)``, and both are evaluated at one instant of the
server's own clock.

Source: Prometheus HTTP API v1 (instant queries) and its querying basics (staleness).
"""

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, cast
from urllib.parse import urlencode, urlsplit

from gridaware.clock import Clock, SystemClock
from gridaware.devices import credentials
from gridaware.devices.credentials import authorization, tls_context
from gridaware.devices.jsonhttp import Connect, JsonHttp, tcp, tls
from gridaware.devices.options import check_names, needed, positive
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceNoPermission,
    DeviceNotSupported,
)
from gridaware.domain.reading import Boundary, EnergyReading, Method, Reading

__all__ = ["OPTIONS", "TESTED", "PrometheusMeter", "open_meter"]

NAME: Final = "prometheus"
OPTIONS: Final[Mapping[str, str]] = {
    "url": "of the server, `https://HOST:9090`; a path before /api/v1 is kept",
    "query": "PromQL that gives one sample, in watts",
    "time_query": "PromQL that gives the time of the oldest measurement in it, Unix seconds; "
    "`timestamp(QUERY)` where `query` is a plain series",
    "energy_query": "PromQL that gives an energy counter, in joules",
    **credentials.OPTIONS,
    "deadline_seconds": "for one whole reading; default `2`",
    "pace_seconds": "ask no more often than this; default `1`",
}
TESTED: Final = "a local server that answers as the HTTP API is documented; no real Prometheus"
SERIES: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\s*(\{[^{}]*\})?\Z")
"""A plain series: only of such a one does ``timestamp`` tell when it was measured."""


def open_meter(options: Mapping[str, str]) -> "PrometheusMeter":
    """The meter that the options (:data:`OPTIONS`) name; nothing is asked yet.

    Raises:
        ConfigError: an option is wrong, or a file it names cannot be read.
    """
    check_names(options, OPTIONS, NAME)
    query = needed(options, "query", NAME).strip()
    if "time_query" not in options and not SERIES.match(query):
        raise ConfigError(
            "prometheus-options",
            "prometheus: query is more than one series, so time_query must say how old it is",
        )
    clock = SystemClock()
    connect, host, path = _server(options)
    exchanges = 2 + ("energy_query" in options)
    seconds = positive(options, "deadline_seconds", 2.0, NAME) / exchanges
    http = JsonHttp(connect, host, clock, seconds)
    return PrometheusMeter(
        http,
        f"{path}/api/v1/query",
        query,
        options.get("time_query", f"timestamp({query})"),
        options.get("energy_query"),
        clock,
        authorization(options, NAME),
        positive(options, "pace_seconds", 1.0, NAME),
    )


class PrometheusMeter:
    """Asks one Prometheus server for one site's power."""

    def __init__(
        self,
        http: JsonHttp,
        target: str,
        query: str,
        time_query: str,
        energy_query: str | None,
        clock: Clock,
        headers: Mapping[str, str],
        pace_seconds: float = 1.0,
    ) -> None:
        self.pace_seconds = pace_seconds
        self._http = http
        self._target = target
        self._query = query
        self._time_query = time_query
        self._energy_query = energy_query
        self._clock = clock
        self._headers = headers
        self._last_joules = 0.0
        self._epoch = 0

    def read(self) -> tuple[Reading, EnergyReading | None]:
        """The newest measurement, with its age, and the energy counter where one is asked for.

        Raises:
            Unavailable: it does not answer, or not in time.
            DeviceError: it refuses, or the answer is not one number.
            InvalidInput: it answers no JSON.
        """
        evaluated, watts = self._ask(self._query, None)
        _, taken = self._ask(self._time_query, evaluated)
        age = max(evaluated - taken, 0.0)
        at = self._clock.wall() - timedelta(seconds=min(age, 1e9))
        power = Reading(watts, at, Boundary.SITE, Method.METER, age_seconds=age)
        if self._energy_query is None:
            return power, None
        try:
            _, joules = self._ask(self._energy_query, evaluated)
        except DeviceNotSupported:
            return power, None
        if joules < self._last_joules:
            self._epoch += 1
        self._last_joules = joules
        return power, EnergyReading(joules, f"counter/{self._epoch}", at, Boundary.SITE)

    def close(self) -> None:
        """Give the connection up; a later reading dials again."""
        self._http.close()

    def _ask(self, query: str, at: float | None) -> tuple[float, float]:
        """(when it was evaluated, the one value that came), by the server's clock."""
        asked = {"query": query} if at is None else {"query": query, "time": f"{at:.3f}"}
        answer = self._http.ask("GET", f"{self._target}?{urlencode(asked)}", headers=self._headers)
        if answer.status in {401, 403}:
            raise DeviceNoPermission("meter-denied", f"it refuses the user ({answer.status})")
        body = answer.body if isinstance(answer.body, dict) else {}
        if answer.status != 200 or body.get("status") != "success":
            raise DeviceError(
                "meter-answer", f"it answered {answer.status}: {str(body.get('error', ''))[:100]}"
            )
        return _one_sample(body.get("data"))


def _one_sample(data: object) -> tuple[float, float]:
    if not isinstance(data, dict) or data.get("resultType") != "vector":
        raise DeviceError("meter-answer", "it answered no instant vector")
    result = data.get("result")
    if not isinstance(result, list):
        raise DeviceError("meter-answer", "its vector is no list")
    if len(result) != 1:
        raise DeviceNotSupported("meter-value-absent", f"{len(result)} series match, not one")
    try:
        at, text = cast("dict[str, list[object]]", result[0])["value"]
        when, value = float(cast("float", at)), float(str(text))
    except (KeyError, TypeError, ValueError) as error:
        raise DeviceError("meter-answer", "its sample is none") from error
    if not (math.isfinite(when) and math.isfinite(value)):
        raise DeviceNotSupported("meter-value-absent", f"its value is {text}")
    return when, value


def _server(options: Mapping[str, str]) -> tuple[Connect, str, str]:
    """How to reach it, its name, and the path before the API's."""
    url = urlsplit(needed(options, "url", NAME))
    try:
        port = url.port
    except ValueError as error:
        raise ConfigError("prometheus-options", f"prometheus: url: {error}") from error
    if url.scheme not in {"http", "https"} or not url.hostname or url.query or url.username:
        raise ConfigError("prometheus-options", "prometheus: url is https://HOST:PORT")
    host, path = url.netloc, url.path.rstrip("/")
    if url.scheme == "http":
        if authorization(options, NAME):
            raise ConfigError("prometheus-options", "prometheus: a secret is sent over TLS only")
        return tcp(url.hostname, 80 if port is None else port), host, path
    context = tls_context(options, NAME)
    return tls(url.hostname, 443 if port is None else port, context, url.hostname), host, path
