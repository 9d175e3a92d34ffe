"""Synchrophasor frames of IEEE C37.118.2-2011 (and -2005), as far as a frequency needs them.

Layouts: clause 6.2 (what every frame begins with), 6.3 (data), 6.4 (configuration 2), 6.5
(commands), Annex B (CRC-CCITT). Big endian. A frame that does not check is refused whole.
"""

import math
import struct
from binascii import crc_hqx
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gridaware.domain.errors import InvalidInput

__all__ = [
    "COMMAND_CONFIGURATION_2",
    "COMMAND_START",
    "COMMAND_STOP",
    "CONFIGURATION_2",
    "DATA",
    "Configuration",
    "Frame",
    "FrameCutter",
    "Station",
    "command",
    "configuration_of",
    "frame_of",
]

DATA: Final = 0
CONFIGURATION_2: Final = 3
"""Types of frames: bits 6 to 4 of SYNC's second byte."""
_COMMAND: Final = 4
_LAST_KIND: Final = 5
_VERSION: Final = 1

COMMAND_STOP: Final = 1
COMMAND_START: Final = 2
COMMAND_CONFIGURATION_2: Final = 5

CONFIGURATION_CHANGES: Final = 0x0400
"""Bit 10 of STAT: set for a minute before the configuration changes."""
_NO_DATA: Final = 0xC000
"""Bits 15 and 14 of STAT: an error of the PMU, a test, or no data at all."""
_ABSENT: Final = -0x8000

_SYNC = 0xAA
_HEAD = struct.Struct(">BBHHII")
_CHECK = struct.Struct(">H")
_CONFIGURATION = struct.Struct(">IH")
_STATION = struct.Struct(">16sHHHHH")
_STATION_END = struct.Struct(">HH")
_RATE = struct.Struct(">h")
_SHORT = struct.Struct(">h")
_WORD = struct.Struct(">H")
_FLOAT = struct.Struct(">f")
_NAME_BYTES = 16
_ALL_ONES = 0xFFFF
"""Where CRC-CCITT begins (annex B); the polynomial is that of ``crc_hqx``."""
_LEAST_BYTES = _HEAD.size + _CHECK.size
_FLOAT_FREQUENCY, _FLOAT_ANALOGS, _FLOAT_PHASORS = 0x8, 0x4, 0x2
_DECIMALS = 5
"""A float of 32 bits knows 60 Hz to 4 µHz: 49.7 Hz must not arrive as a little more."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One checked frame. ``fraction`` counts parts of a second, as many as the time base says."""

    kind: int
    idcode: int
    second: int
    fraction: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Station:
    """One PMU of a stream: where its words lie in a data frame's body."""

    name: str
    idcode: int
    nominal_hz: float
    offset: int
    """Of STAT."""
    frequency_offset: int
    frequency_is_float: bool
    """Then FREQ is the frequency in Hz, else its deviation from nominal in mHz (table 6)."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a stream's data frames look like."""

    time_base: int
    stations: tuple[Station, ...]
    body_bytes: int
    frames_per_second: float

    def seconds(self, frame: Frame) -> float:
        """When a frame was measured, in seconds of UTC since 1970."""
        return frame.second + frame.fraction / self.time_base

    def frequency_hz(self, frame: Frame, station: Station) -> float | None:
        """What a station measured; NaN = it found no frequency; None = it says not to use it.

        Raises:
            InvalidInput: the frame is not of this configuration (``pmu-frame``).
        """
        if len(frame.body) != self.body_bytes:
            raise InvalidInput("pmu-frame", "a data frame is not as the configuration says")
        if self.status(frame, station) & _NO_DATA:
            return None
        if station.frequency_is_float:
            (hz,) = _FLOAT.unpack_from(frame.body, station.frequency_offset)
            return round(hz, _DECIMALS) if math.isfinite(hz) else math.nan
        (millihertz,) = _SHORT.unpack_from(frame.body, station.frequency_offset)
        return math.nan if millihertz == _ABSENT else station.nominal_hz + millihertz / 1000

    def status(self, frame: Frame, station: Station) -> int:
        """STAT of a station."""
        (word,) = _WORD.unpack_from(frame.body, station.offset)
        return int(word)


class FrameCutter:
    """Cuts a stream of bytes into frames; what is none is passed over to the next that checks."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take what arrived; every frame that is complete, in order. It keeps 64 KiB at most."""
        buffer = self._buffer
        buffer += data
        while True:
            start = buffer.find(_SYNC)
            del buffer[: len(buffer) if start < 0 else start]
            if len(buffer) < _LEAST_BYTES:
                return
            size = int.from_bytes(buffer[2:4], "big")
            if _may_begin(buffer[1], size) and len(buffer) < size:
                return
            try:
                frame = frame_of(bytes(buffer[:size]))
            except InvalidInput:
                del buffer[:1]
                continue
            del buffer[:size]
            yield frame


def _may_begin(second_byte: int, size: int) -> bool:
    """Whether SYNC and FRAMESIZE can be those of a frame, which is then worth waiting for."""
    kind, version = second_byte >> 4, second_byte & 0xF
    return kind <= _LAST_KIND and version > 0 and size >= _LEAST_BYTES


def frame_of(data: bytes) -> Frame:
    """One frame that is all of ``data``, as in a datagram.

    Raises:
        InvalidInput: it does not check (``pmu-frame``).
    """
    if len(data) < _LEAST_BYTES or data[0] != _SYNC:
        raise InvalidInput("pmu-frame", "that is no synchrophasor frame")
    _, second_byte, size, idcode, second, fraction = _HEAD.unpack_from(data)
    if size != len(data):
        raise InvalidInput("pmu-frame", f"a frame of {len(data)} bytes says that it has {size}")
    (check,) = _CHECK.unpack_from(data, size - _CHECK.size)
    if check != crc_hqx(data[: -_CHECK.size], _ALL_ONES):
        raise InvalidInput("pmu-frame", "a frame's check sum is wrong")
    body = data[_HEAD.size : -_CHECK.size]
    return Frame((second_byte >> 4) & 0x7, idcode, second, fraction & 0xFFFFFF, body)


def configuration_of(frame: Frame) -> Configuration:
    """What a configuration frame 2 says.

    Raises:
        InvalidInput: it is cut off or contradicts itself (``pmu-frame``).
    """
    body = frame.body
    try:
        base, count = _CONFIGURATION.unpack_from(body)
        at, offset = _CONFIGURATION.size, 0
        stations = []
        for _ in range(count):
            station, at, offset = _station(body, at, offset)
            stations.append(station)
        (rate,) = _RATE.unpack_from(body, at)
    except struct.error as error:
        raise InvalidInput("pmu-frame", f"a configuration is cut off: {error}") from error
    time_base = base & 0xFFFFFF
    if at + _RATE.size != len(body) or not stations or time_base == 0 or rate == 0:
        raise InvalidInput("pmu-frame", "a configuration contradicts itself")
    per_second = float(rate) if rate > 0 else -1.0 / rate
    return Configuration(time_base, tuple(stations), offset, per_second)


def _station(body: bytes, at: int, offset: int) -> tuple[Station, int, int]:
    """A station, where the next begins in the configuration, and in a data frame's body."""
    name, idcode, layout, phasors, analogs, digitals = _STATION.unpack_from(body, at)
    at += _STATION.size + _NAME_BYTES * (phasors + analogs + 16 * digitals)
    at += 4 * (phasors + analogs + digitals)
    nominal, _changes = _STATION_END.unpack_from(body, at)
    frequency = offset + 2 + phasors * (8 if layout & _FLOAT_PHASORS else 4)
    is_float = bool(layout & _FLOAT_FREQUENCY)
    analog_bytes = analogs * (4 if layout & _FLOAT_ANALOGS else 2)
    end = frequency + (8 if is_float else 4) + analog_bytes + 2 * digitals
    text = name.decode("ascii", errors="replace").rstrip("\0 ")
    hz = 50.0 if nominal & 1 else 60.0
    station = Station(text, idcode, hz, offset, frequency, is_float)
    return station, at + _STATION_END.size, end


def command(idcode: int, order: int, seconds: float) -> bytes:
    """A command frame to the stream ``idcode``, stamped with ``seconds`` of UTC since 1970.

    A client that has no configuration yet knows no time base, so its fraction is 0.
    """
    size = _HEAD.size + 4
    head = _HEAD.pack(_SYNC, _COMMAND << 4 | _VERSION, size, idcode, int(seconds), 0)
    data = head + _WORD.pack(order)
    return data + _CHECK.pack(crc_hqx(data, _ALL_ONES))
