"""Frequency from a phasor measurement unit: a client of IEEE C37.118.2 over TCP or UDP.

Such a unit measures every one or two cycles and stamps each value by GPS; many relays and power
quality meters speak the protocol, too. Options:

* ``host``, ``port``: the unit; by default 4712 for TCP and 4713 for UDP.
* ``transport``: ``tcp``, or ``udp`` (commanded: the unit answers where the command came from).
* ``idcode``: of the stream, 1 to 65534; 1 where unset.
* ``station``: which of its stations; the first where unset.

Its data error bits are obeyed; a value that it marks as absent goes on as NaN, since that is what
a voltage sag looks like. A configuration that changes is asked for again before more is believed.
"""

import contextlib
import logging
import socket
from collections.abc import Iterator, Mapping

from gridaware.clock import Clock, SystemClock
from gridaware.devices.c37118 import (
    COMMAND_CONFIGURATION_2,
    COMMAND_START,
    COMMAND_STOP,
    CONFIGURATION_2,
    CONFIGURATION_CHANGES,
    DATA,
    Configuration,
    Frame,
    FrameCutter,
    Station,
    command,
    configuration_of,
    frame_of,
)
from gridaware.domain.errors import ConfigError, InvalidInput, TimedOut, Unavailable

__all__ = ["PmuFrequency", "open_frequency"]

_log = logging.getLogger(__name__)

_KNOWN = {"host", "port", "transport", "idcode", "station"}
_PORTS = {"tcp": 4712, "udp": 4713}
"""Registered for the protocol (IEEE C37.118.2-2011, annex F)."""
_SILENCE_SECONDS = 2.0
_MOST_IDCODE = 65534
_READ_BYTES = 65536


def open_frequency(options: Mapping[str, str]) -> "PmuFrequency":
    """A client; it dials with the first sample.

    Raises:
        ConfigError: ``frequency-options``.
    """
    odd = options.keys() - _KNOWN
    if odd or not options.get("host"):
        what = f"unknown: {', '.join(sorted(odd))}" if odd else "host is missing"
        raise ConfigError("frequency-options", f"options of frequency_pmu: {what}")
    transport = options.get("transport", "tcp")
    if transport not in _PORTS:
        raise ConfigError("frequency-options", "frequency_pmu: transport must be tcp or udp")
    return PmuFrequency(
        options["host"],
        _whole(options, "port", _PORTS[transport], 65535),
        datagrams=transport == "udp",
        idcode=_whole(options, "idcode", 1, _MOST_IDCODE),
        station=options.get("station"),
        clock=SystemClock(),
    )


class PmuFrequency:
    """One stream of one unit. Implements :class:`gridaware.control.ports.FrequencySource`."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        datagrams: bool,
        idcode: int,
        station: str | None,
        clock: Clock,
    ) -> None:
        self._address = (host, port)
        self._datagrams = datagrams
        self._idcode = idcode
        self._station = station
        self._clock = clock
        self._socket: socket.socket | None = None
        self._silence_seconds = _SILENCE_SECONDS

    def samples(self) -> Iterator[tuple[float, float]]:
        """Dial, ask for the configuration, and give every measurement of the station.

        Raises:
            Unavailable: the unit does not answer, is silent, or hung up (``frequency-source``).
        """
        try:
            with self._dial() as connection:
                self._socket = connection
                yield from self._measurements(connection)
        except OSError as error:
            raise Unavailable("frequency-source", f"{self._where}: {error}") from error
        finally:
            self._socket = None

    def close(self) -> None:
        """Hang up; a call that waits for the unit comes back."""
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def _where(self) -> str:
        return f"the PMU at {self._address[0]}:{self._address[1]}"

    def _dial(self) -> socket.socket:
        if not self._datagrams:
            connection = socket.create_connection(self._address, _SILENCE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        family, kind, protocol, _, address = socket.getaddrinfo(
            *self._address, type=socket.SOCK_DGRAM
        )[0]
        connection = socket.socket(family, kind, protocol)
        connection.connect(address)
        return connection

    def _measurements(self, connection: socket.socket) -> Iterator[tuple[float, float]]:
        configuration: Configuration | None = None
        station: Station | None = None
        changes = False
        self._silence_seconds = _SILENCE_SECONDS
        self._ask(connection, COMMAND_STOP)
        self._ask(connection, COMMAND_CONFIGURATION_2)
        for frame in self._frames(connection):
            if frame.kind == CONFIGURATION_2:
                configuration, station = self._configured(frame)
                changes = False
                self._ask(connection, COMMAND_START)
            elif frame.kind == DATA and configuration is not None and station is not None:
                try:
                    hz = configuration.frequency_hz(frame, station)
                    announced = configuration.status(frame, station) & CONFIGURATION_CHANGES
                except InvalidInput:
                    announced, changes, hz = 0, True, None
                if changes and not announced:
                    configuration = None
                    self._ask(connection, COMMAND_CONFIGURATION_2)
                    continue
                changes = bool(announced)
                if hz is not None:
                    yield configuration.seconds(frame), hz

    def _configured(self, frame: Frame) -> tuple[Configuration, Station]:
        try:
            configuration = configuration_of(frame)
        except InvalidInput as error:
            raise Unavailable("frequency-source", f"{self._where}: {error.message}") from error
        names = [station.name for station in configuration.stations]
        if self._station is not None and self._station not in names:
            raise Unavailable("frequency-source", f"{self._where} has the stations {names}")
        station = configuration.stations[names.index(self._station) if self._station else 0]
        rate = configuration.frames_per_second
        self._silence_seconds = max(_SILENCE_SECONDS, 3.0 / rate)
        _log.info("%s: station %s, %g frames a second", self._where, station.name, rate)
        return configuration, station

    def _frames(self, connection: socket.socket) -> Iterator[Frame]:
        """Checked frames of our stream, for as long as they keep coming."""
        cutter = FrameCutter()
        until = self._clock.monotonic_seconds() + self._silence_seconds
        while True:
            left = until - self._clock.monotonic_seconds()
            if left <= 0:
                raise TimedOut("frequency-source", f"{self._where} is silent")
            connection.settimeout(left)
            data = connection.recv(_READ_BYTES)
            if not data and not self._datagrams:
                raise Unavailable("frequency-source", f"{self._where} hung up")
            for frame in _whole_frames(data) if self._datagrams else cutter.feed(data):
                if frame.idcode == self._idcode:
                    yield frame
                    until = self._clock.monotonic_seconds() + self._silence_seconds

    def _ask(self, connection: socket.socket, order: int) -> None:
        connection.sendall(command(self._idcode, order, self._clock.wall().timestamp()))


def _whole_frames(datagram: bytes) -> Iterator[Frame]:
    """The frame that is a datagram, if it is one."""
    with contextlib.suppress(InvalidInput):
        yield frame_of(datagram)


def _whole(options: Mapping[str, str], key: str, default: int, most: int) -> int:
    text = options.get(key, str(default))
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise ConfigError("frequency-options", f"frequency_pmu: {key} must be 1 to {most}")
    return int(text)
