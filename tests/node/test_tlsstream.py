"""Our end of a TLS stream, against asyncio's own at the other: large, slow, hostile, half-open."""

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from gridaware.clock import SystemClock
from gridaware.node import tlsstream
from gridaware.node.tls import agent_context, controller_context, peer_name
from gridaware.node.tlsstream import TlsStream, listen, read_buffer
from gridaware.wiring.identity import issue, make_ca

CLOCK = SystemClock()


class Recorder(TlsStream):
    """Keeps what happens to it."""

    def __init__(self, context: ssl.SSLContext, buffer: memoryview, name: str | None = None):
        super().__init__(context, buffer, name)
        self.heard = bytearray()
        self.flows: list[bool] = []
        self.news = asyncio.Event()
        self.is_secure = self.is_gone = False

    def secured(self) -> None:
        self.is_secure = True
        self.news.set()

    def received(self, data: memoryview) -> None:
        self.heard += data
        self.news.set()

    def flow(self, *, paused: bool) -> None:
        self.flows.append(paused)
        self.news.set()

    def gone(self) -> None:
        self.is_gone = True
        self.news.set()

    async def until(self, ready) -> None:
        async with asyncio.timeout(10):
            while not ready():
                self.news.clear()
                await self.news.wait()


@pytest.fixture
def pki(tmp_path):
    make_ca(tmp_path, CLOCK)
    issue(tmp_path, "control", CLOCK, "controller")
    issue(tmp_path, "n0", CLOCK)
    return tmp_path


def _contexts(pki):
    server = controller_context(pki / "ca.pem", pki / "control.pem", pki / "control.key")
    return server, agent_context(pki / "ca.pem", pki / "n0.pem", pki / "n0.key")


@contextlib.asynccontextmanager
async def listening(pki):
    """A server of ours: its port, and the streams that came."""
    came: list[Recorder] = []
    context, buffer = _contexts(pki)[0], read_buffer()

    def accept() -> Recorder:
        came.append(Recorder(context, buffer))
        return came[-1]

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], came
    finally:
        server.close()
        for stream in came:
            stream.abort()
        await server.wait_closed()


async def _dial(pki, port: int):
    return await asyncio.open_connection("127.0.0.1", port, ssl=_contexts(pki)[1])


def test_both_ends_prove_who_they_are_and_megabytes_pass_both_ways(pki):
    async def story() -> None:
        large = bytes(range(256)) * 20_000  # 5 MB, some 320 records of TLS
        async with listening(pki) as (port, came):
            reader, writer = await _dial(pki, port)
            writer.write(large)
            (ours,) = came
            await ours.until(lambda: len(ours.heard) == len(large))
            assert ours.heard == large
            assert peer_name(ours.certificate()) == "n0"
            assert ours.certificate_bytes() == ssl.PEM_cert_to_DER_cert(
                (pki / "n0.pem").read_text()
            )
            ours.write(large)
            assert ours.flows == [True], "the kernel did not take 5 MB at once"
            assert await reader.readexactly(len(large)) == large
            await ours.until(lambda: ours.flows == [True, False])
            assert ours.unsent_bytes == 0
            writer.close()
            await ours.until(lambda: ours.is_gone)

    asyncio.run(story())


def test_streams_that_share_a_buffer_do_not_mix(pki):
    async def story() -> None:
        async with listening(pki) as (port, came):
            writers = [(await _dial(pki, port))[1] for _ in range(5)]
            for turn in range(50):
                for number, writer in enumerate(writers):
                    writer.write(bytes([number]) * (1 + 97 * turn))
            total = sum(1 + 97 * turn for turn in range(50))
            for stream in came:
                await stream.until(lambda stream=stream: len(stream.heard) == total)
                assert len(set(stream.heard)) == 1
            for writer in writers:
                writer.close()

    asyncio.run(story())


def test_what_was_written_before_the_close_arrives_though_the_peer_goes_on_talking(pki):
    async def story() -> None:
        async with listening(pki) as (port, came):
            reader, writer = await _dial(pki, port)
            (ours,) = came
            await ours.until(lambda: ours.is_secure)
            # What lies unread in a socket that is closed makes the kernel reset the connection.
            ours.pause_reading()
            writer.write(b"x" * 100_000)
            await asyncio.sleep(0.05)
            ours.write(b"the last word")
            ours.close()
            ours.resume_reading()
            assert await reader.read() == b"the last word"
            await ours.until(lambda: ours.is_gone)
            assert not ours.heard, "and after the close nothing is heard"
            writer.close()

    asyncio.run(story())


def test_a_peer_that_never_agrees_to_close_is_cut_off(pki, monkeypatch):
    monkeypatch.setattr(tlsstream, "_CLOSE_SECONDS", 0.1)

    async def story() -> None:
        async with listening(pki) as (port, came):
            _, writer = await _dial(pki, port)
            (ours,) = came
            await ours.until(lambda: ours.is_secure)
            writer.transport.pause_reading()
            ours.write(b"x" * 20_000_000)
            ours.close()
            await ours.until(lambda: ours.is_gone)
            writer.transport.abort()

    asyncio.run(story())


@pytest.mark.parametrize(
    "says",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\x00" * 100],
    ids=["nothing", "http", "garbage"],
)
def test_whoever_does_not_shake_hands_is_dropped(pki, monkeypatch, says):
    monkeypatch.setattr(tlsstream, "_HANDSHAKE_SECONDS", 0.2)

    async def story() -> None:
        async with listening(pki) as (port, came):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(says)
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 10)
            (ours,) = came
            await ours.until(lambda: ours.is_gone)
            assert not ours.is_secure
            ours.write(b"to nobody")  # harmless
            writer.close()

    asyncio.run(story())


def test_a_whole_fleet_may_dial_in_one_moment(pki):
    most = int(Path("/proc/sys/net/core/somaxconn").read_text())
    if most < 300:
        pytest.skip(f"this system queues {most} connections")

    async def story() -> None:
        came: list[Recorder] = []
        context, buffer = _contexts(pki)[0], read_buffer()

        def accept() -> Recorder:
            came.append(Recorder(context, buffer))
            return came[-1]

        server = await listen(accept, "127.0.0.1", 0)
        # While the event loop is held up nobody is turned away.
        dialled = [
            socket.create_connection(server.sockets[0].getsockname(), timeout=0.5)
            for _ in range(300)
        ]
        async with asyncio.timeout(10):
            while len(came) < len(dialled):
                await asyncio.sleep(0.01)
        for peer in dialled:
            peer.close()
        server.close()
        await server.wait_closed()

    asyncio.run(story())


def test_as_client_it_takes_no_other_name_and_no_other_ca(pki, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    make_ca(other, CLOCK)
    issue(other, "n0", CLOCK)
    foreign = agent_context(other / "ca.pem", other / "n0.pem", other / "n0.key")

    async def story() -> None:
        async with listening(pki) as (port, _came):
            loop = asyncio.get_running_loop()
            ours = _contexts(pki)[1]
            for context, name, trusted in (
                (ours, "localhost", True),
                (ours, "127.0.0.1", True),
                (ours, "somewhere.example", False),
                (foreign, "localhost", False),
            ):
                dialled = Recorder(context, read_buffer(), name)
                await loop.create_connection(lambda dialled=dialled: dialled, "127.0.0.1", port)
                await dialled.until(lambda dialled=dialled: dialled.is_secure or dialled.is_gone)
                assert dialled.is_secure is trusted, name
                dialled.abort()

    asyncio.run(story())
