"""Frequency meters on real sockets: a phasor unit over TCP and UDP, and datagrams."""

import socket
import struct
import tempfile
import threading
from binascii import crc_hqx
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Self

import pytest

from gridaware.devices import frequency_datagram, frequency_modbus, frequency_pmu
from gridaware.domain.errors import ConfigError, Unavailable

STOP, START, CONFIGURE = 1, 2, 5


def framed(kind: int, body: bytes, fraction: int = 0) -> bytes:
    head = struct.pack(">BBHHII", 0xAA, kind << 4 | 1, 16 + len(body), 7, 1_700_000_000, fraction)
    return head + body + struct.pack(">H", crc_hqx(head + body, 0xFFFF))


def configuration(name: str = "FEEDER", nominal: int = 1, phasors: int = 0) -> bytes:
    body = struct.pack(">IH", 1000, 1) + name.encode().ljust(16)
    body += struct.pack(">5H", 7, 0, phasors, 0, 0) + bytes(20 * phasors)
    return framed(3, body + struct.pack(">HHh", nominal, 0, 50))


def data(millihertz: int, milliseconds: int, status: int = 0, phasors: int = 0) -> bytes:
    body = struct.pack(">H", status) + bytes(4 * phasors) + struct.pack(">hh", millihertz, 0)
    return framed(0, body, milliseconds)


class Unit:
    """A phasor unit: answers commands as clause 6.5 has it, and sends what it was given."""

    def __init__(self, kind: socket.SocketKind, answers: list[bytes], frames: list[bytes]) -> None:
        self.commands: list[int] = []
        self._answers = answers
        self._frames = frames
        self._socket = socket.socket(socket.AF_INET, kind)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(10)
        if kind is socket.SOCK_STREAM:
            self._socket.listen()
        self.port = self._socket.getsockname()[1]
        serve = self._serve_stream if kind is socket.SOCK_STREAM else self._serve_datagrams
        self._thread = threading.Thread(target=serve)
        self._thread.start()

    def _serve_stream(self) -> None:
        with self._socket.accept()[0] as connection:
            connection.settimeout(10)
            while order := connection.recv(18, socket.MSG_WAITALL):
                for frame in self._react(order):
                    connection.sendall(frame)
                if not self._frames and not self._answers:
                    return

    def _serve_datagrams(self) -> None:
        while self._frames or self._answers:
            order, client = self._socket.recvfrom(100)
            for frame in self._react(order):
                self._socket.sendto(frame, client)

    def _react(self, frame: bytes) -> list[bytes]:
        (order,) = struct.unpack_from(">H", frame, 14)
        self.commands.append(order)
        if order == CONFIGURE and self._answers:
            return [self._answers.pop(0)]
        if order == START:
            frames, self._frames = self._frames, []
            if b"again" in frames:
                at = frames.index(b"again")
                self._frames = frames[at + 1 :]
                frames = frames[:at]
            return frames
        return []

    def end(self) -> None:
        self._thread.join(10)
        self._socket.close()


@contextmanager
def unit(kind: socket.SocketKind, answers: list[bytes], frames: list[bytes]) -> Iterator[Unit]:
    made = Unit(kind, answers, frames)
    try:
        yield made
    finally:
        made.end()


def source_of(made: Unit, **options: str) -> frequency_pmu.PmuFrequency:
    at = {"host": "127.0.0.1", "port": str(made.port), "idcode": "7"}
    return frequency_pmu.open_frequency(at | options)


@pytest.mark.parametrize(
    ("transport", "kind"), [("tcp", socket.SOCK_STREAM), ("udp", socket.SOCK_DGRAM)]
)
def test_a_phasor_unit_is_asked_for_its_configuration_and_then_for_data(transport, kind) -> None:
    broken = bytearray(data(-300, 40))
    broken[-1] ^= 1
    foreign = framed(0, struct.pack(">Hhh", 0, -900, 0)).replace(b"\0\7", b"\0\x08", 1)
    frames = [data(-150, 20), bytes(broken), foreign, data(-200, 60, 0x8000), data(-300, 80)]
    with unit(kind, [configuration()], frames) as made:
        source = source_of(made, transport=transport)
        samples = list(islice(source.samples(), 2))
    assert samples == [(1_700_000_000.02, 49.85), (1_700_000_000.08, 49.7)]
    assert made.commands[:3] == [STOP, CONFIGURE, START]


def test_a_unit_that_changes_its_configuration_is_asked_again_before_it_is_believed() -> None:
    before = [data(0, 20), data(0, 40, 0x0400)]
    changed = [data(100, 60, phasors=2), b"again", data(-10, 80, phasors=2)]
    with unit(
        socket.SOCK_STREAM, [configuration(), configuration(phasors=2)], before + changed
    ) as made:
        samples = list(islice(source_of(made).samples(), 3))
    assert [hz for _, hz in samples] == [50.0, 50.0, 49.99]
    assert made.commands == [STOP, CONFIGURE, START, CONFIGURE, START]


def test_the_station_that_was_named_is_the_one_that_is_heard() -> None:
    with (
        unit(socket.SOCK_STREAM, [configuration("OTHER")], []) as made,
        pytest.raises(Unavailable, match="OTHER"),
    ):
        next(source_of(made, station="FEEDER").samples())


def test_a_unit_that_hangs_up_is_unavailable() -> None:
    with unit(socket.SOCK_STREAM, [configuration()], [data(0, 20)]) as made:
        samples = source_of(made).samples()
        assert next(samples)[1] == 50.0
        with pytest.raises(Unavailable) as lost:
            next(samples)
    assert lost.value.code == "frequency-source"


def test_nobody_at_the_address_is_unavailable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = frequency_pmu.open_frequency({"host": "127.0.0.1", "port": str(port)})
    with pytest.raises(Unavailable):
        next(source.samples())


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (frequency_pmu, {}),
        (frequency_pmu, {"host": "h", "prot": "4712"}),
        (frequency_pmu, {"host": "h", "port": "0"}),
        (frequency_pmu, {"host": "h", "port": "4.7"}),
        (frequency_pmu, {"host": "h", "idcode": "65535"}),
        (frequency_pmu, {"host": "h", "transport": "serial"}),
        (frequency_modbus, {}),
        (frequency_modbus, {"host": "h"}),
        (frequency_modbus, {"host": "h", "register": "-1"}),
        (frequency_modbus, {"host": "h", "register": "1", "regster": "1"}),
        (frequency_modbus, {"host": "h", "register": "1", "type": "float16"}),
        (frequency_modbus, {"host": "h", "register": "1", "function": "6"}),
        (frequency_modbus, {"host": "h", "register": "1", "renewed_ms": "0"}),
        (frequency_modbus, {"host": "h", "register": "1", "scale": "nan"}),
        (frequency_datagram, {}),
        (frequency_datagram, {"listen": "udp:4711"}),
        (frequency_datagram, {"listen": "udp:h:99999"}),
        (frequency_datagram, {"listen": "unix:relative"}),
        (frequency_datagram, {"listen": "tcp:h:1"}),
        (frequency_datagram, {"listen": "udp:h:1", "peers": "x"}),
        (frequency_datagram, {"listen": "unix:/x", "peer": "127.0.0.1"}),
    ],
)
def test_options_that_mean_nothing_are_refused_at_once(module, options) -> None:
    with pytest.raises(ConfigError) as refused:
        module.open_frequency(options)
    assert refused.value.code == "frequency-options"


def _send_until(done: threading.Event, send) -> threading.Thread:
    """Sends over and over, since who listens may not have begun to."""

    def run() -> None:
        while not done.wait(0.01):
            try:
                send()
            except OSError:
                continue

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def _heard(options: dict[str, str], kind: socket.AddressFamily, place, count: int):
    """The first samples of a datagram source to which the same datagrams are sent for a while."""
    done = threading.Event()
    source = frequency_datagram.open_frequency(options)
    with socket.socket(kind, socket.SOCK_DGRAM) as sender:
        lines = [b"1.00,59.98\n1.02,59.97\n", b"garbage\n1,2,3\n\xff,1\n", b"x" * 5000, b"1.04,nan"]

        def send() -> None:
            for line in lines:
                sender.sendto(line, place)

        thread = _send_until(done, send)
        samples = list(islice(source.samples(), count))
        done.set()
        thread.join()
    return samples


def test_lines_of_datagrams_are_samples_and_anything_else_is_passed_over() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = ("127.0.0.1", port)
    samples = _heard({"listen": f"udp:127.0.0.1:{port}"}, socket.AF_INET, place, 6)
    assert str(samples[:4]) == "[(1.0, 59.98), (1.02, 59.97), (1.04, nan), (1.0, 59.98)]"


def test_a_unix_socket_is_for_its_owner_and_an_old_one_is_replaced() -> None:
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        path = Path(folder) / "f.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as old:
            old.bind(str(path))
        samples = _heard({"listen": f"unix:{path}"}, socket.AF_UNIX, str(path), 2)
        assert samples == [(1.0, 59.98), (1.02, 59.97)]
        assert path.stat().st_mode & 0o777 == 0o600


def test_only_the_peer_that_was_named_is_listened_to() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = frequency_datagram.open_frequency(
        {"listen": f"udp:127.0.0.1:{port}", "peer": "127.0.0.9"}
    )
    done = threading.Event()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
    ):
        peer.bind(("127.0.0.9", 0))

        def send() -> None:
            stranger.sendto(b"1.0,49.0", ("127.0.0.1", port))
            peer.sendto(b"2.0,50.0", ("127.0.0.1", port))

        thread = _send_until(done, send)
        samples = list(islice(source.samples(), 3))
        done.set()
        thread.join()
    assert samples == [(2.0, 50.0)] * 3


def test_a_listener_that_is_closed_comes_back() -> None:
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        path = Path(folder) / "f.sock"
        source = frequency_datagram.open_frequency({"listen": f"unix:{path}"})
        done = threading.Event()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            thread = _send_until(done, lambda: sender.sendto(b"1.0,50.0", str(path)))
            samples = source.samples()
            assert next(samples) == (1.0, 50.0)
            done.set()
            thread.join()
        threading.Timer(0.1, source.close).start()
        assert [hz for _, hz in samples if hz != 50.0] == []
        assert not path.exists()


class ModbusMeter:
    """Answers each read with the next of what it was given (PDUs), then hangs up."""

    def __init__(self, answers: list[bytes]) -> None:
        self.requests: list[bytes] = []
        self._answers = answers
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(10)
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._socket.accept()[0] as connection:
            connection.settimeout(10)
            for answer in self._answers:
                request = connection.recv(12, socket.MSG_WAITALL)
                if not request:
                    return
                self.requests.append(request)
                head = request[:4] + struct.pack(">HB", len(answer) + 1, request[6])
                connection.sendall(head + answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(10)
        self._socket.close()

    def read(self, count: int, **options: str) -> list[float]:
        at = {"host": "127.0.0.1", "port": str(self.port), "unit": "17", "renewed_ms": "20"}
        samples = frequency_modbus.open_frequency(at | options).samples()
        found = list(islice(samples, count))
        assert [t for t, _ in found] == sorted({t for t, _ in found})
        return [hz for _, hz in found]


def floats(*values: float) -> list[bytes]:
    return [b"\x03\x04" + struct.pack(">f", value) for value in values]


def test_a_modbus_meter_is_asked_as_the_protocol_has_it() -> None:
    # Modbus application protocol 1.1b3, §6.3: reading registers 108 to 110 is 03 00 6B 00 03, and
    # 03 06 02 2B 00 00 00 64 answers it; of three registers a value here takes the first two.
    with ModbusMeter([bytes.fromhex("0304022b0000")]) as meter:
        (hz,) = meter.read(1, register="107", type="int32", scale="0.000001")
    assert hz == pytest.approx(0x022B0000 / 1e6)
    assert meter.requests[0][2:] == bytes.fromhex("0000 0006 11 03 006b 0002")


@pytest.mark.parametrize(
    ("options", "answer", "hz"),
    [
        ({"type": "float32"}, "0304 4247eb85", 49.98),
        ({"type": "float32", "word_order": "little"}, "0304 eb854247", 49.98),
        ({"type": "uint16", "scale": "0.01", "function": "4"}, "0402 1386", 49.98),
        ({"type": "uint32", "scale": "0.001"}, "0304 0000c33c", 49.98),
    ],
)
def test_values_of_every_layout_are_hertz(options, answer, hz) -> None:
    with ModbusMeter([bytes.fromhex(answer)]) as meter:
        (found,) = meter.read(1, register="19050", **options)
    assert found == pytest.approx(hz, abs=1e-5)


def test_what_is_read_again_is_not_measured_again() -> None:
    values = [50.0, 50.0, 50.0, 49.5, 49.5, 49.25]
    with ModbusMeter(floats(*values)) as meter:
        assert meter.read(3, register="1", renewed_ms="400") == [50.0, 49.5, 49.25]


def test_a_value_that_stays_the_same_is_told_as_often_as_it_is_renewed() -> None:
    with ModbusMeter(floats(*[50.0] * 20)) as meter:
        assert meter.read(3, register="1") == [50.0] * 3
    assert len(meter.requests) > 3


def test_a_meter_that_finds_no_frequency_says_so_as_in_a_sag() -> None:
    with ModbusMeter([bytes.fromhex("0304 7fc00000"), *floats(50.0)]) as meter:
        assert str(meter.read(2, register="1")) == "[nan, 50.0]"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"\x83\x02", "exception 2"),
        (b"\x03\x02\x12\x34", "something else"),
        (b"\x03\x04\x12\x34", "something else"),
        (b"\x04\x04\x12\x34\x56\x78", "something else"),
        (b"", "bytes"),
    ],
)
def test_answers_that_are_none_make_a_meter_unavailable(answer: bytes, words: str) -> None:
    with ModbusMeter([answer]) as meter, pytest.raises(Unavailable, match=words):
        meter.read(1, register="1")
