"""A meter on Modbus TCP, against a real pymodbus server and against peers that are none."""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pymodbus.constants import ExcCodes
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from gridaware.clock import SystemClock
from gridaware.devices.modbus import ModbusMeter, open_meter
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceNotSupported,
    GridawareError,
    TimedOut,
    Unavailable,
)
from gridaware.domain.reading import Boundary, Method

MAPS = Path(__file__).parents[2] / "configs" / "meters"
DEADLINE = 0.4
PATIENCE = 4.0
"""Less than those that hang do: whoever comes back by then gave up by itself."""


def float32(value: float) -> list[int]:
    return list(struct.unpack(">HH", struct.pack(">f", value)))


def int64(value: int) -> list[int]:
    return list(struct.unpack(">HHHH", struct.pack(">q", value)))


class Device:
    """The registers of one unit, behind a real server; what is not there is an illegal address."""

    def __init__(self) -> None:
        self.registers: dict[int, int] = {}
        self.asked: list[tuple[int, int, int]] = []
        self.refuses: ExcCodes | None = None
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def put(self, address: int, words: list[int]) -> None:
        self.registers |= {address + i: word for i, word in enumerate(words)}

    def start(self) -> "Device":
        self._thread.start()
        assert self._ready.wait(5)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(5)

    async def _answer(self, function, start, address, count, current, new) -> ExcCodes | None:
        self.asked.append((function, address, count))
        for i in range(count):
            current[address - start + i] = self.registers[address + i]
        return self.refuses

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        blocks: list[SimData] = []
        for address in sorted(self.registers):
            last = blocks[-1] if blocks else None
            if last is not None and address == last.address + len(last.values):
                last.values.append(0)
            else:
                blocks.append(SimData(address, values=[0], datatype=DataType.REGISTERS))
        device = SimDevice(7, blocks, action=self._answer)
        server = ModbusTcpServer(device, address=("127.0.0.1", 0))
        await server.serve_forever(background=True)
        self.port = server.transport.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        await server.shutdown()


@pytest.fixture
def device() -> Iterator[Device]:
    made = Device()
    yield made
    if made.port:
        made.stop()


@pytest.fixture
def meter_at() -> Iterator[Callable[..., ModbusMeter]]:
    opened: list[ModbusMeter] = []

    def make(port: int, name: str = "janitza-umg96rm", **options: str) -> ModbusMeter:
        given = {
            "host": "127.0.0.1",
            "port": str(port),
            "unit": "7",
            "map": str(MAPS / f"{name}.yaml"),
            "deadline_seconds": "20",  # a busy machine is no bad meter
        }
        opened.append(open_meter(given | options))
        return opened[-1]

    yield make
    for meter in opened:
        meter.close()


def test_a_janitza_is_read_in_watts_and_joules(device, meter_at) -> None:
    device.put(19026, float32(123456.0))
    device.put(19068, float32(2048.0))
    meter = meter_at(device.start().port)
    reading, energy = meter.read()
    assert reading.watts == pytest.approx(123456.0)
    assert (reading.boundary, reading.method) == (Boundary.SITE, Method.METER)
    assert reading.accuracy_share == 0.005
    assert energy.joules == pytest.approx(2048.0 * 3600)
    assert {function for function, _, _ in device.asked} == {3}
    again, _ = meter.read()  # the connection is kept
    assert again.watts == reading.watts


def test_a_schneider_counts_from_1_in_kilowatts_and_64_bits(device, meter_at) -> None:
    device.put(3060 - 1, float32(87.5))
    device.put(3204 - 1, int64(9_000_000_000_001))
    reading, energy = meter_at(device.start().port, "schneider-pm5000").read()
    assert reading.watts == pytest.approx(87_500.0)
    assert energy.joules == pytest.approx(9_000_000_000_001 * 3600)


def test_transformers_mounted_the_other_way_round_are_turned_by_an_option(device, meter_at) -> None:
    device.put(19026, float32(-5000.0))
    device.put(19068, float32(1.0))
    assert meter_at(device.start().port, sign="-1").read()[0].watts == pytest.approx(5000.0)


def test_a_schneider_without_a_value_says_so_instead_of_reading_nothing(device, meter_at) -> None:
    device.put(3059, [0xFFC0, 0x0000])
    device.put(3203, int64(1))
    with pytest.raises(DeviceNotSupported):
        meter_at(device.start().port, "schneider-pm5000").read()


def test_a_meter_without_the_counter_still_has_its_power(device, meter_at) -> None:
    device.put(3059, float32(10.0))
    device.put(3203, [0x8000, 0, 0, 0])
    reading, energy = meter_at(device.start().port, "schneider-pm5000").read()
    assert (reading.watts, energy) == (pytest.approx(10_000.0), None)


def sunspec(device: Device, at: int) -> None:
    """SunS, common model 1, then model 203 at 100 W x 10^1 and 4.2 kWh."""
    device.put(40000, [0x5375, 0x6E53])
    device.put(40002, [1, 66, *([0] * 66)])
    device.put(at, [203, 105, *([0] * 105)])
    device.put(at + 18, [1234])
    device.put(at + 22, [1])
    device.put(at + 46, [0, 4200])
    device.put(at + 54, [0])
    device.put(at + 107, [0xFFFF, 0])


def test_a_sunspec_meter_is_found_along_its_chain_and_scaled_as_it_says(device, meter_at) -> None:
    sunspec(device, 40070)
    meter = meter_at(device.start().port, "sunspec-203")
    reading, energy = meter.read()
    assert (reading.watts, energy.joules) == (12340.0, pytest.approx(4200 * 3600.0))
    device.asked.clear()
    device.put(40070 + 18, [0xFFFF & -200, 0, 0, 0, 0xFFFF & -1])  # -200 x 10^-1
    assert meter.read()[0].watts == pytest.approx(-20.0)
    assert device.asked == [(3, 40070 + 18, 37)]  # value and scale factor of one moment


def test_a_sunspec_meter_without_the_model_or_a_value_is_refused(device, meter_at) -> None:
    sunspec(device, 40070)
    device.put(40070, [204])
    meter = meter_at(device.start().port, "sunspec-203")
    with pytest.raises(DeviceNotSupported) as refused:
        meter.read()
    assert refused.value.code == "meter-model-absent"
    device.put(40070, [203])
    device.put(40070 + 18, [0x8000])
    with pytest.raises(DeviceNotSupported) as absent:
        meter.read()
    assert absent.value.code == "meter-value-absent"


def test_an_address_that_is_not_there_is_an_answer_not_a_silence(device, meter_at) -> None:
    device.put(1, [0])
    with pytest.raises(DeviceError) as refused:
        meter_at(device.start().port).read()
    assert refused.value.code == "meter-answer"


def test_another_unit_behind_the_gateway_does_not_answer_for_ours(device, meter_at) -> None:
    device.put(19026, float32(1.0))
    device.put(19068, float32(1.0))
    with pytest.raises(GridawareError):
        meter_at(device.start().port, unit="8").read()


class Peer:
    """Accepts connections and does with each what a test says."""

    def __init__(self, act: Callable[[socket.socket, int], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.over = threading.Event()
        self._act, self._held = act, []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for number in range(100):
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            self._held.append(taken)
            threading.Thread(target=self._serve, args=(taken, number), daemon=True).start()

    def _serve(self, taken: socket.socket, number: int) -> None:
        try:
            self._act(taken, number)
        except OSError:
            return  # the meter gave up, as it should

    def close(self) -> None:
        self.over.set()
        self._listener.close()
        for held in self._held:
            held.close()


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    made: list[Peer] = []

    def make(act: Callable[[socket.socket, int], None]) -> Peer:
        made.append(Peer(act))
        return made[-1]

    yield make
    for each in made:
        each.close()


def answer(request: bytes, words: list[int]) -> bytes:
    body = bytes([3, 2 * len(words)]) + b"".join(word.to_bytes(2) for word in words)
    return request[:4] + (1 + len(body)).to_bytes(2) + request[6:7] + body


def test_a_meter_that_hangs_is_given_up_within_its_deadline(peer, meter_at) -> None:
    hung = peer(lambda taken, _: taken.recv(1) and hung.over.wait(10))
    before = SystemClock().monotonic_seconds()
    with pytest.raises(TimedOut):
        meter_at(hung.port, deadline_seconds=str(DEADLINE)).read()
    assert SystemClock().monotonic_seconds() - before < PATIENCE


def test_a_meter_that_drips_is_given_up_within_one_deadline_too(peer, meter_at) -> None:
    def drip(taken: socket.socket, _: int) -> None:
        request = taken.recv(64)
        for byte in answer(request, float32(1.0)):
            taken.sendall(bytes([byte]))
            dripping.over.wait(DEADLINE / 2)

    dripping = peer(drip)
    before = SystemClock().monotonic_seconds()
    with pytest.raises(Unavailable):
        meter_at(dripping.port, deadline_seconds=str(DEADLINE)).read()
    assert SystemClock().monotonic_seconds() - before < PATIENCE


@pytest.mark.parametrize("junk", [b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(300), b"\x00"])
def test_garbage_is_refused_and_the_next_connection_is_a_fresh_one(peer, meter_at, junk) -> None:
    def act(taken: socket.socket, number: int) -> None:
        while request := taken.recv(64):
            taken.sendall(junk if number == 0 else answer(request, float32(7.0)))

    meter = meter_at(peer(act).port, deadline_seconds="1")
    with pytest.raises(GridawareError):
        meter.read()
    assert meter.read()[0].watts == 7.0


def test_a_late_answer_is_never_taken_for_the_next_readings(peer, meter_at) -> None:
    def act(taken: socket.socket, number: int) -> None:
        while request := taken.recv(64):
            if number == 0:
                late.over.wait(1.5)
            taken.sendall(answer(request, float32(111.0 if number == 0 else 222.0)))

    late = peer(act)
    meter = meter_at(late.port, deadline_seconds="1")
    with pytest.raises(TimedOut):
        meter.read()
    assert meter.read()[0].watts == 222.0


def test_too_few_registers_are_no_value(peer, meter_at) -> None:
    def act(taken: socket.socket, _: int) -> None:
        while request := taken.recv(64):
            taken.sendall(answer(request, [1]))

    with pytest.raises(GridawareError):
        meter_at(peer(act).port).read()


def test_nobody_there_is_unavailable(meter_at) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Unavailable) as refused:
        meter_at(port).read()
    assert refused.value.code == "meter-unreachable"


@pytest.mark.parametrize(
    "options",
    [
        {"port": "modbus"},
        {"unit": "256"},
        {"sign": "2"},
        {"map": "janitza-umg96rm"},
        {"deadline_seconds": "0"},
        {"hots": "x"},
    ],
)
def test_options_are_checked_before_anything_is_dialled(options) -> None:
    good = {"host": "127.0.0.1", "map": str(MAPS / "sunspec-203.yaml")}
    with pytest.raises(ConfigError):
        open_meter(good | options)
