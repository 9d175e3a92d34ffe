"""Synchrophasor frames: the standard's own examples, and what no unit should send."""

import struct
from binascii import crc_hqx
from math import isnan

import pytest

from gridaware.devices.c37118 import (
    COMMAND_CONFIGURATION_2,
    COMMAND_START,
    CONFIGURATION_2,
    DATA,
    Configuration,
    FrameCutter,
    command,
    configuration_of,
    frame_of,
)
from gridaware.domain.errors import InvalidInput

# IEEE C37.118.2-2011, annex D: the example frames, byte for byte.
CHANNELS = ["VA", "VB", "VC", "I1", "ANALOG1", "ANALOG2", "ANALOG3"]
BREAKERS = [f"BREAKER {n} STATUS" for n in "123456789ABCDEFG"]
CONFIGURATION = (
    bytes.fromhex("aa3101c61e36448527f056071098000f42400001")
    + b"Station A".ljust(16)
    + bytes.fromhex("1e360004000400030001")
    + b"".join(name.encode().ljust(16) for name in CHANNELS + BREAKERS)
    + bytes.fromhex(
        "000df847000df847000df8470100b2d00000000101000001020000010000ffff00000016001ed5d1"
    )
)
MEASUREMENT = bytes.fromhex(
    "aa0100341e3644853600000041b10000392b0000e36ace7ce36a3183"
    "0444000009c4000042c80000447a0000461c40003c12d43f"
)
START_COMMAND = bytes.fromhex("aa4100121e36448560300f0bbfd00002ce00")


def checked(data: bytes) -> bytes:
    """With its check sum, as Annex B has it (the C library's CRC-CCITT)."""
    return data + struct.pack(">H", crc_hqx(data, 0xFFFF))


def configuration(stations: list[tuple[str, int, int, int, int, int]], rate: int = 50) -> bytes:
    """A configuration frame 2: (name, layout, phasors, analogs, digitals, nominal) by station."""
    body = struct.pack(">IH", 1_000_000, len(stations))
    for name, layout, phasors, analogs, digitals, nominal in stations:
        channels = phasors + analogs + 16 * digitals
        body += name.encode().ljust(16) + struct.pack(">5H", 7, layout, phasors, analogs, digitals)
        body += b"channel".ljust(16) * channels + bytes(4 * (phasors + analogs + digitals))
        body += struct.pack(">HH", nominal, 1)
    body += struct.pack(">h", rate)
    return checked(struct.pack(">BBHHII", 0xAA, 0x31, 16 + len(body), 7, 0, 0) + body)


def data(body: bytes, second: int = 1_700_000_000, fraction: int = 500_000) -> bytes:
    return checked(struct.pack(">BBHHII", 0xAA, 0x01, 16 + len(body), 7, second, fraction) + body)


def parsed(frame: bytes) -> Configuration:
    return configuration_of(frame_of(frame))


def test_the_standards_configuration_is_station_a_of_60_hz_at_30_frames_a_second() -> None:
    frame = frame_of(CONFIGURATION)
    assert (frame.kind, frame.idcode) == (CONFIGURATION_2, 7734)
    config = configuration_of(frame)
    assert config.time_base == 1_000_000
    assert config.frames_per_second == 30.0
    (station,) = config.stations
    assert (station.name, station.idcode, station.nominal_hz) == ("Station A", 7734, 60.0)
    assert not station.frequency_is_float


def test_the_standards_measurement_is_62_5_hz_at_its_time() -> None:
    config, frame = parsed(CONFIGURATION), frame_of(MEASUREMENT)
    assert frame.kind == DATA
    assert config.frequency_hz(frame, config.stations[0]) == 62.5  # +2500 mHz
    assert config.seconds(frame) == 1149580800.016817


def test_a_command_differs_from_the_standards_only_in_its_time() -> None:
    ours = command(7734, COMMAND_START, 1149591600.77)
    assert len(ours) == len(START_COMMAND)
    assert ours[:10] == START_COMMAND[:10]
    assert ours[14:16] == START_COMMAND[14:16]
    assert frame_of(ours).body == frame_of(START_COMMAND).body
    assert frame_of(command(1, COMMAND_CONFIGURATION_2, 0.0)).body == b"\0\5"


@pytest.mark.parametrize(
    ("layout", "words", "hz"),
    [
        (0x0, struct.pack(">hh", -150, 0), 49.85),
        (0x8, struct.pack(">ff", 49.7, 0.0), 49.7),
        (0x8, struct.pack(">ff", 59.85, 0.0), 59.85),
        (0xF, struct.pack(">ff", 50.0, 0.0), 50.0),
    ],
)
def test_frequencies_are_found_behind_phasors_of_every_layout(layout, words, hz) -> None:
    config = parsed(configuration([("A", layout, 3, 2, 1, 1)]))
    phasors = bytes(3 * (8 if layout & 2 else 4))
    analogs = bytes(2 * (4 if layout & 4 else 2))
    frame = frame_of(data(b"\0\0" + phasors + words + analogs + b"\0\0"))
    assert config.frequency_hz(frame, config.stations[0]) == hz
    assert config.seconds(frame) == 1_700_000_000.5


def test_each_station_of_a_concentrator_has_its_own_frequency() -> None:
    config = parsed(configuration([("ONE", 0, 1, 0, 0, 0), ("TWO", 8, 0, 1, 2, 1)]))
    one = b"\0\0" + bytes(4) + struct.pack(">hh", 20, 0)
    two = b"\0\0" + struct.pack(">ff", 49.98, 0.0) + bytes(2) + bytes(4)
    frame = frame_of(data(one + two))
    assert [config.frequency_hz(frame, s) for s in config.stations] == [60.02, 49.98]


def test_what_a_unit_marks_as_no_data_is_not_used_and_what_it_lacks_is_no_number() -> None:
    config = parsed(configuration([("A", 0, 0, 0, 0, 1)]))
    (station,) = config.stations
    for status in (b"\x40\0", b"\x80\0", b"\xc0\0"):
        assert config.frequency_hz(frame_of(data(status + bytes(4))), station) is None
    absent = frame_of(data(b"\0\0" + struct.pack(">hh", -32768, -32768)))
    assert isnan(config.frequency_hz(absent, station) or 0.0)
    unlocked = frame_of(data(b"\x20\0" + struct.pack(">hh", 10, 0)))
    assert config.frequency_hz(unlocked, station) == 50.01, "a frequency needs no GPS"


@pytest.mark.parametrize("rate", [(30, 30.0), (-5, 0.2)])
def test_a_negative_rate_counts_seconds_a_frame(rate) -> None:
    assert parsed(configuration([("A", 0, 0, 0, 0, 1)], rate[0])).frames_per_second == rate[1]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\xaa",
        CONFIGURATION[:-1],
        CONFIGURATION[:100] + b"\0" + CONFIGURATION[101:],
        b"\0" + CONFIGURATION[1:],
        CONFIGURATION + b"\0",
    ],
)
def test_a_frame_that_does_not_check_is_refused(bad: bytes) -> None:
    with pytest.raises(InvalidInput) as refused:
        frame_of(bad)
    assert refused.value.code == "pmu-frame"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        struct.pack(">IH", 1_000_000, 1),
        struct.pack(">IHh", 1_000_000, 0, 50),
        struct.pack(">IH", 1_000_000, 65535) + bytes(200),
        struct.pack(">IH", 0, 1) + bytes(30) + struct.pack(">h", 50),
        struct.pack(">IH", 1_000_000, 1) + bytes(30) + struct.pack(">h", 0),
        struct.pack(">IH", 1_000_000, 1) + bytes(30) + struct.pack(">h", 50) + b"\0",
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(body: bytes) -> None:
    head = struct.pack(">BBHHII", 0xAA, 0x31, 16 + len(body), 7, 0, 0)
    with pytest.raises(InvalidInput) as refused:
        parsed(checked(head + body))
    assert refused.value.code == "pmu-frame"


def test_data_of_another_configuration_are_refused() -> None:
    config = parsed(configuration([("A", 0, 0, 0, 0, 1)]))
    with pytest.raises(InvalidInput):
        config.frequency_hz(frame_of(MEASUREMENT), config.stations[0])


@pytest.mark.parametrize("chunk", [1, 7, 100, 4096])
def test_frames_are_cut_from_a_stream_however_it_arrives(chunk: int) -> None:
    stream = b"noise\xaa\x00" + CONFIGURATION + MEASUREMENT + b"\xaa\x01\x00\x04" + MEASUREMENT
    cutter = FrameCutter()
    kinds = []
    for at in range(0, len(stream), chunk):
        kinds += [frame.kind for frame in cutter.feed(stream[at : at + chunk])]
    assert kinds == [CONFIGURATION_2, DATA, DATA]
