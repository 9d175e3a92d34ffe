"""A power meter that speaks Modbus TCP; what its registers mean is data (``configs/meters``).

One connection, kept. One deadline covers a whole reading, whatever the other side does: after any
trouble the connection is given up, since a late answer would be taken for the next one's.

Source: Modbus application protocol 1.1b3; SunSpec Device Information Model Specification 1.1, §6.
"""

import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Final

from gridaware.clock import Clock, SystemClock
from gridaware.devices.options import absolute_path, check_names, choice, needed, positive
from gridaware.devices.registers import Field, RegisterMap, load_map, ten_to
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceNotSupported,
    TimedOut,
    Unavailable,
)
from gridaware.domain.reading import Boundary, EnergyReading, Method, Reading

__all__ = ["OPTIONS", "TESTED", "ModbusMeter", "open_meter"]

OPTIONS: Final[Mapping[str, str]] = {
    "host": "name or address of the meter or its gateway",
    "port": "default `502`",
    "unit": "unit id behind a gateway, 0 to 255; default `1`",
    "map": "name of a file in configs/meters, or the absolute path of one of your own",
    "sign": "`-1` where its transformers are mounted the other way round; default `1`",
    "deadline_seconds": "for one whole reading; default `1`",
    "pace_seconds": "read it no more often than this; default `0.2`",
}
TESTED: Final = (
    "a pymodbus server in the test process, with the registers of each map, and peers that hang, "
    "drip and answer garbage; no real meter"
)
SUNSPEC_BASES: Final = (40000, 50000, 0)
SUNSPEC_MARKER: Final = [0x5375, 0x6E53]
SUNSPEC_END: Final = 0xFFFF
MOST_MODELS: Final = 100


def open_meter(options: Mapping[str, str]) -> "ModbusMeter":
    """The meter that the options (:data:`OPTIONS`) name; it is dialled when it is first read.

    Raises:
        ConfigError: an option or the map is wrong, or pymodbus is not installed.
    """
    check_names(options, OPTIONS, "modbus")
    if find_spec("pymodbus") is None:
        raise ConfigError("modbus-missing", "pymodbus is not installed")
    # It tells every failure by itself, over and over; ours are told once.
    logging.getLogger("pymodbus").setLevel(logging.CRITICAL)
    link = _Link(
        needed(options, "host", "modbus"),
        _whole(options, "port", 502, 65535),
        _whole(options, "unit", 1, 255),
        positive(options, "deadline_seconds", 1.0, "modbus"),
        SystemClock(),
    )
    path = absolute_path(needed(options, "map", "modbus"), "map", "modbus")
    sign = int(choice(options, "sign", ("1", "-1"), "modbus"))
    pace = positive(options, "pace_seconds", 0.2, "modbus")
    return ModbusMeter(link, load_map(path), SystemClock(), sign, pace)


class ModbusMeter:
    """Reads power and the energy counter by a register map."""

    def __init__(
        self,
        link: "_Link",
        registers: RegisterMap,
        clock: Clock,
        sign: int = 1,
        pace_seconds: float = 0.2,
    ) -> None:
        self.pace_seconds = pace_seconds
        self._link = link
        self._map = registers
        self._clock = clock
        self._sign = sign
        self._base: int | None = None if registers.sunspec_model is not None else 0
        self._counter = _Counter()

    def read(self) -> tuple[Reading, EnergyReading | None]:
        """Power now, and the energy counter where the map has one.

        Raises:
            Unavailable: it does not answer, or not in time.
            DeviceError: it answers with an error, with no value, or with garbage.
        """
        with self._link.in_time():
            if self._base is None:
                self._base = self._find_model()
            read = self._read_together if self._map.together else self._read_apart
            at = self._clock.wall()
            watts = self._sign * self._scaled(self._map.power, read)
            power = Reading(
                watts,
                at,
                Boundary.SITE,
                Method.METER,
                accuracy_share=self._map.accuracy_share,
            )
            field = self._map.energy
            if field is None:
                return power, None
            try:
                raw = self._value(field, read)
            except DeviceNotSupported:  # a meter without this counter still has its power
                return power, None
            joules = self._counter.joules(raw, field) * self._power_of_ten(field, read)
        epoch = f"{self._link.name}/{self._counter.epoch}"
        return power, EnergyReading(joules, epoch, at, Boundary.SITE)

    def close(self) -> None:
        """Give the connection up; a later reading dials again."""
        self._link.close()

    def _read_apart(self, register: int, count: int) -> list[int]:
        assert self._base is not None
        return self._link.read(self._map.function, self._base + register, count)

    def _read_together(self, register: int, count: int) -> list[int]:
        first, size = self._map.span()
        if self._link.block is None:
            self._link.block = self._read_apart(first, size)
        return self._link.block[register - first : register - first + count]

    def _value(self, field: Field, read: Callable[[int, int], list[int]]) -> float:
        words = read(field.register, field.registers)
        return field.value(words, little=self._map.little)

    def _scaled(self, field: Field, read: Callable[[int, int], list[int]]) -> float:
        return self._value(field, read) * field.scale * self._power_of_ten(field, read)

    def _power_of_ten(self, field: Field, read: Callable[[int, int], list[int]]) -> float:
        if field.scale_register is None:
            return 1.0
        return ten_to(read(field.scale_register, 1)[0])

    def _find_model(self) -> int:
        """Where the SunSpec model begins, found along the chain of models."""
        for base in SUNSPEC_BASES:
            try:
                marker = self._link.read(self._map.function, base, 2)
            except DeviceError:
                continue  # no register there
            if marker != SUNSPEC_MARKER:
                continue
            at = base + 2
            for _ in range(MOST_MODELS):
                model, length = self._link.read(self._map.function, at, 2)
                if model == self._map.sunspec_model:
                    return at
                if model == SUNSPEC_END or at + 2 + length > 0xFFFF:
                    break
                at += 2 + length
            raise DeviceNotSupported(
                "meter-model-absent", f"it has no SunSpec model {self._map.sunspec_model}"
            )
        raise DeviceNotSupported("meter-model-absent", "it does not speak SunSpec")


class _Counter:
    """An energy register that wraps, or starts anew."""

    def __init__(self) -> None:
        self.epoch = 0
        self._last: float | None = None
        self._turns = 0

    def joules(self, raw: float, field: Field) -> float:
        """What it has counted in this epoch, with the turns that were seen."""
        last, self._last = self._last, raw
        if last is not None and raw < last:
            if field.wraps_at is not None and last - raw > field.wraps_at / 2:
                self._turns += 1
            else:
                self.epoch, self._turns = self.epoch + 1, 0
        return (raw + self._turns * (field.wraps_at or 0)) * field.scale


class _Link:
    """One connection to one unit, and the deadline of the reading under way."""

    def __init__(
        self, host: str, port: int, unit: int, deadline_seconds: float, clock: Clock
    ) -> None:
        from pymodbus.client import ModbusTcpClient

        self.name = f"{host}:{port}/{unit}"
        self.block: list[int] | None = None
        """What this reading has read in one request."""
        self._address = (host, port)
        self._unit = unit
        self._seconds = deadline_seconds
        self._clock = clock
        self._until = 0.0
        self._late = False
        self._client = ModbusTcpClient(host, port=port, timeout=deadline_seconds, retries=0)

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """One reading: when its deadline has passed the connection is cut under it."""
        self._until = self._clock.monotonic_seconds() + self._seconds
        self._late, self.block = False, None
        timer = threading.Timer(self._seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        except DeviceError:
            raise
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()

    def close(self) -> None:
        """Give the connection up."""
        self._client.close()  # type: ignore[no-untyped-call]

    def read(self, function: int, address: int, count: int) -> list[int]:
        """Registers from ``address`` on.

        Raises:
            Unavailable: no connection, or no answer in time.
            DeviceError: an error in answer, or too few registers.
        """
        from pymodbus.exceptions import ModbusException

        if self._client.socket is None:
            self._client.socket = self._dial()
        ask = (
            self._client.read_holding_registers
            if function == 3
            else self._client.read_input_registers
        )
        try:
            answer = ask(address, count=count, device_id=self._unit)
        except (ModbusException, OSError, ValueError, IndexError, KeyError) as error:
            self.close()
            raise self._translated(error) from error
        if answer.isError():
            raise DeviceError("meter-answer", f"{self.name}: register {address}: {answer}")
        if len(answer.registers) != count:
            self.close()
            raise DeviceError(
                "meter-answer",
                f"{self.name}: {len(answer.registers)} registers came, {count} were asked for",
            )
        return list(answer.registers)

    def _dial(self) -> socket.socket:
        """Connect to the first of its addresses that answers, within what is left of the time."""
        failure: OSError = OSError("it has no address")
        try:
            found = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        except OSError as error:
            raise self._translated(error) from error
        for family, kind, protocol, _, address in found:
            left = self._until - self._clock.monotonic_seconds()
            if left <= 0:
                break
            dialled = socket.socket(family, kind, protocol)
            dialled.settimeout(left)
            try:
                dialled.connect(address)
            except OSError as error:
                dialled.close()
                failure = error
                continue
            return dialled
        raise self._translated(failure)

    def _cut(self) -> None:
        self._late = True
        held = self._client.socket
        if held is not None:
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

    def _translated(self, error: Exception) -> Unavailable:
        if self._late or isinstance(error, TimeoutError):
            return TimedOut("meter-timeout", f"{self.name} did not answer in time")
        return Unavailable("meter-unreachable", f"{self.name}: {error}")


def _whole(options: Mapping[str, str], key: str, default: int, most: int) -> int:
    text = options.get(key, str(default))
    if not (text.isascii() and text.isdigit() and int(text) <= most):
        raise ConfigError(
            "modbus-options", f"modbus: {key} is a number from 0 to {most}, not {text!r}"
        )
    return int(text)
