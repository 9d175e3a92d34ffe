"""Frequency from a power meter that speaks Modbus TCP: one register, read over and over.

Such meters renew their values only every 20 to 200 ms, whatever they are asked: what is read again
is not measured again. So a value counts once, when it changes or when it must have been renewed;
else the same two values would seem to lie closer together, and so to move faster, than they did.
Standard library only, since the agent loads it. Options:

* ``host``, ``port`` (502), ``unit`` (1): the meter.
* ``register``: its address on the wire, counted from 0; ``function``: ``3`` (holding, the default)
  or ``4`` (input registers).
* ``type``: ``float32`` (the default), ``int16``, ``uint16``, ``int32``, ``uint32`` or ``float64``;
  ``word_order``: ``big`` (the default) or ``little``; ``scale``: Hz for one unit of it (1).
* ``renewed_ms``: how often the meter renews it (200); it is read four times as often.
"""

import contextlib
import math
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from typing import Final

from gridaware.clock import Clock, SystemClock
from gridaware.devices.options import check_names, choice, needed, positive
from gridaware.devices.registers import Field
from gridaware.domain.errors import ConfigError, DeviceNotSupported, Unavailable

__all__ = ["ModbusFrequency", "open_frequency"]

_NAME = "frequency"
_KNOWN: Final = dict.fromkeys(
    ("host", "port", "unit", "register", "function", "type", "word_order", "scale", "renewed_ms"),
    "",
)
_TYPES = ("float32", "int16", "uint16", "int32", "uint32", "float64")
_READS_A_RENEWAL = 4
_LEAST_PAUSE_SECONDS = 0.005
_ANSWER_SECONDS = 1.0
_HEAD = struct.Struct(">HHHB")
"""Transaction, protocol 0, bytes that follow, unit (Modbus messaging on TCP/IP 1.0b, §3.1.3)."""
_REQUEST = struct.Struct(">BHH")
_EXCEPTION = 0x80
_MOST_BYTES = 254


def open_frequency(options: Mapping[str, str]) -> "ModbusFrequency":
    """A reader; it dials with the first sample.

    Raises:
        ConfigError: ``frequency-options``.
    """
    check_names(options, _KNOWN, _NAME)
    field = Field(
        _whole(options, "register", None, 0xFFFF),
        choice(options, "type", _TYPES, _NAME),
        positive(options, "scale", 1.0, _NAME),
    )
    return ModbusFrequency(
        (needed(options, "host", _NAME), _whole(options, "port", 502, 0xFFFF)),
        _whole(options, "unit", 1, 0xFF),
        int(choice(options, "function", ("3", "4"), _NAME)),
        field,
        little=choice(options, "word_order", ("big", "little"), _NAME) == "little",
        renewed_seconds=positive(options, "renewed_ms", 200.0, _NAME) / 1000.0,
        clock=SystemClock(),
    )


class ModbusFrequency:
    """One register of one meter. Implements :class:`gridaware.control.ports.FrequencySource`."""

    def __init__(
        self,
        address: tuple[str, int],
        unit: int,
        function: int,
        field: Field,
        *,
        little: bool,
        renewed_seconds: float,
        clock: Clock,
    ) -> None:
        self._address = address
        self._unit = unit
        self._function = function
        self._field = field
        self._little = little
        self._renewed_seconds = renewed_seconds
        self._clock = clock
        self._closed = threading.Event()
        self._socket: socket.socket | None = None
        self._transaction = 0

    def samples(self) -> Iterator[tuple[float, float]]:
        """Dial, and read for as long as the meter answers; the times are those of the readings.

        Raises:
            Unavailable: the meter does not answer, or refuses the register (``frequency-source``).
        """
        try:
            with socket.create_connection(self._address, _ANSWER_SECONDS) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket = connection
                yield from self._readings(connection)
        except (OSError, struct.error) as error:
            raise Unavailable("frequency-source", f"{self._where}: {error}") from error
        finally:
            self._socket = None

    def close(self) -> None:
        """Hang up; a call that waits for the meter comes back."""
        self._closed.set()
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def _where(self) -> str:
        return f"the meter at {self._address[0]}:{self._address[1]}"

    def _readings(self, connection: socket.socket) -> Iterator[tuple[float, float]]:
        pause = max(self._renewed_seconds / _READS_A_RENEWAL, _LEAST_PAUSE_SECONDS)
        last_hz, told_at = math.nan, -math.inf
        while not self._closed.is_set():
            asked = self._clock.monotonic_seconds()
            try:
                hz = self._field.scale * self._field.value(
                    self._read(connection), little=self._little
                )
            except DeviceNotSupported:
                hz = math.nan  # the meter finds none: what a voltage sag looks like
            answered = self._clock.monotonic_seconds()
            at = (asked + answered) / 2
            if hz != last_hz or at - told_at >= self._renewed_seconds:
                last_hz, told_at = hz, at
                yield at, hz
            self._closed.wait(max(asked + pause - self._clock.monotonic_seconds(), 0.0))

    def _read(self, connection: socket.socket) -> list[int]:
        """The field's registers."""
        self._transaction = (self._transaction + 1) & 0xFFFF
        count = self._field.registers
        request = _REQUEST.pack(self._function, self._field.register, count)
        head = _HEAD.pack(self._transaction, 0, 1 + len(request), self._unit)
        connection.sendall(head + request)
        transaction, protocol, length, unit = _HEAD.unpack(_exactly(connection, _HEAD.size))
        if (transaction, protocol, unit) != (self._transaction, 0, self._unit):
            raise Unavailable("frequency-source", f"{self._where} answers something else")
        if not 2 <= length - 1 <= _MOST_BYTES:
            raise Unavailable("frequency-source", f"{self._where} answers with {length} bytes")
        answer = _exactly(connection, length - 1)
        if answer[0] == self._function | _EXCEPTION:
            raise Unavailable(
                "frequency-source",
                f"{self._where} refuses register {self._field.register} (exception {answer[1]})",
            )
        if answer[0] != self._function or answer[1] != 2 * count or len(answer) != 2 + 2 * count:
            raise Unavailable("frequency-source", f"{self._where} answers something else")
        return list(struct.unpack(f">{count}H", answer[2:]))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise OSError("it hung up")
        data += part
    return data


def _whole(options: Mapping[str, str], key: str, default: int | None, most: int) -> int:
    text = options.get(key, "" if default is None else str(default))
    if not (text.isascii() and text.isdigit() and int(text) <= most):
        raise ConfigError(f"{_NAME}-options", f"{_NAME}: {key} must be 0 to {most}")
    return int(text)
