"""Relays: real processes that are killed, and peers that are hostile, doubled or slow."""

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from gridaware.clock import SystemClock
from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.domain.wire import (
    PROTOCOL_VERSION,
    Acknowledged,
    Desired,
    Fenced,
    Hello,
    RelayClosed,
    Relayed,
    RelayHello,
    RelayOpened,
    SampleBatch,
    SampleRate,
    Welcome,
)
from gridaware.node.frames import FrameReader, encode
from gridaware.node.relay import Relay
from gridaware.node.settings import (
    ControllerSettings,
    ListenSettings,
    RelaySettings,
    TlsSettings,
)
from gridaware.node.tls import agent_context, controller_context
from gridaware.sim.site import NodeSpec, PlantSpec, build_window
from gridaware.sim.window import Window
from gridaware.wiring.identity import issue, make_ca

CLOCK = SystemClock()
FOUND_WATTS = 400.0


class Fleet:
    """Two nodes of two GPUs whose agents dial a relay: files and processes."""

    def __init__(self, rig) -> None:
        self.rig, self.folder = rig, rig.folder
        spec = PlantSpec((NodeSpec("a100-400", 2), NodeSpec("a100-400", 2)), residuals=False)
        self.window: Window = build_window(spec, 1, self.folder / "plant")
        self.nodes = ("n0", "n1")
        self.sequence = 0
        self.relay: subprocess.Popen[bytes] | None = None
        self.agents: list[subprocess.Popen[bytes]] = []
        for name in self.nodes:
            issue(self.folder / "ca", name, CLOCK)
        issue(self.folder / "ca", "r1", CLOCK, "relay")

    def start_relay(self, controller: int, port: int) -> None:
        settings = {
            "relay_id": "r1",
            "controller": {"host": "localhost", "port": controller},
            "listen": {"host": "127.0.0.1", "port": port},
            "tls": self._tls("r1"),
        }
        self.relay = self._start("relay", "relay", settings)

    def start_agents(self, port: int) -> None:
        for number, name in enumerate(self.nodes):
            settings = {
                "node_id": name,
                "controller": {"host": "localhost", "port": port},
                "tls": self._tls(name),
                "driver": {
                    "module": "gridaware.sim.driver",
                    "options": {"window": str(self.folder / "plant"), "node": str(number)},
                },
                "state_dir": f"{name}/state",
                "run_dir": f"{name}/run",
            }
            self.agents.append(self._start(name, "agent", settings))

    def desired(self, node: int, watts: float, seconds: float, epoch: int = 1) -> Desired:
        self.sequence += 1
        limits = tuple((gpu.uuid.decode(), watts) for gpu in self.window.gpus_of(node))
        slot = RestoreSlot(0.0, 0.0)
        lease = Lease(f"l{self.sequence}", limits, seconds, slot)
        now = CLOCK.wall()
        return Desired(
            epoch, self.sequence, f"d{self.sequence}", now, now + timedelta(seconds=seconds), lease
        )

    def enforced(self) -> set[float]:
        return {g.enforced_watts for n in range(2) for g in self.window.gpus_of(n)}

    def kill_relay(self) -> None:
        assert self.relay is not None
        self.relay.kill()
        self.relay.wait(10)

    def close(self) -> None:
        for process in filter(None, (self.relay, *self.agents)):
            if process.poll() is None:
                process.kill()
            process.wait(10)
        self.window.close()

    def _tls(self, name: str) -> dict[str, str]:
        files = {"ca": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}
        return {kind: f"ca/{file}" for kind, file in files.items()}

    def _start(self, name: str, module: str, settings: dict) -> subprocess.Popen[bytes]:
        config = self.folder / f"{name}.yaml"
        config.write_text(json.dumps(settings))
        with (self.folder / "agent.log").open("ab") as log:
            command = [sys.executable, "-m", f"gridaware.wiring.{module}", "--config", str(config)]
            return subprocess.Popen(command, stderr=log)


@pytest.fixture
def port() -> int:
    """One that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def fleet(rig):
    made = Fleet(rig)
    yield made
    made.close()


async def _applied(fleet: Fleet, heard, server, watts: float, seconds: float) -> None:
    orders = [fleet.desired(n, watts, seconds) for n in range(2)]
    for name, order in zip(fleet.nodes, orders, strict=True):
        assert server.send(name, order)
    wanted = {order.sequence for order in orders}
    await heard.until(lambda: wanted <= {a.sequence for a in heard.of(Acknowledged) if a.complete})


async def _hung_up(port: int, context: ssl.SSLContext) -> None:
    """Dial until nobody shakes hands."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            except (ssl.SSLError, ConnectionError):
                return
            writer.transport.abort()
            await asyncio.sleep(0.05)


def test_limits_outlive_the_relay_and_nodes_come_back_through_it(fleet, heard, eventually, port):
    async def story() -> None:
        async with fleet.rig.link(heard) as (server, controller):
            fleet.start_relay(controller, port)
            fleet.start_agents(port)
            await heard.until(lambda: set(server.connected()) == set(fleet.nodes))
            assert {hello.relay_id for hello in heard.hellos} == {"r1"}
            await heard.until(lambda: heard.of(SampleBatch))

            # An event of ten minutes; the relay dies in it, and everybody notices.
            await _applied(fleet, heard, server, 200.0, 600.0)
            assert fleet.enforced() == {200.0}
            fleet.kill_relay()
            await heard.until(lambda: set(heard.lost) == set(fleet.nodes))
            assert not server.send("n0", SampleRate(10.0)), "and nobody pretends to hear"
            await asyncio.sleep(1.0)
            assert fleet.enforced() == {200.0}

            # It is started again: both say Hello, with the lease that they still hold.
            heard.hellos.clear()
            fleet.start_relay(controller, port)
            await heard.until(lambda: set(server.connected()) == set(fleet.nodes))
            assert {h.lease.lease_id for h in heard.hellos} == {"l1", "l2"}
            assert all(h.last_epoch == 1 for h in heard.hellos)

            # A short event, in which the relay dies for good: its end is kept without anybody.
            await _applied(fleet, heard, server, 150.0, 2.0)
            fleet.kill_relay()
            assert fleet.enforced() == {150.0}
            await eventually(lambda: fleet.enforced() == {FOUND_WATTS})

    asyncio.run(story())


def test_without_a_controller_there_is_no_relay_and_an_old_one_is_fenced(fleet, heard, port):
    async def story() -> None:
        async with fleet.rig.link(heard, epoch=2) as (server, controller):
            fleet.start_relay(controller, port)
            fleet.start_agents(port)
            await heard.until(lambda: set(server.connected()) == set(fleet.nodes))
        # The relay hangs up: an agent that dials hears nothing, not even a handshake.
        await _hung_up(port, _client(fleet.folder, "n0"))
        # A controller with an earlier epoch comes in its place; the agents do not obey it.
        async with fleet.rig.link(heard, epoch=1, port=controller) as (server, _):
            await heard.until(
                lambda: {"n0", "n1"} <= {node for node, m in heard.messages if type(m) is Fenced}
            )
            assert list(server.connected()) == []
        async with fleet.rig.link(heard, epoch=3, port=controller) as (server, _):
            await heard.until(lambda: set(server.connected()) == set(fleet.nodes))

    asyncio.run(story())


# The controller's end, against a relay that says exactly what it is told to ----------------------


class Talker:
    """One end of a stream whose every frame is written by the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = FrameReader()
        self._heard: list[object] = []

    @classmethod
    async def dial(cls, folder: Path, port: int, name: str = "r1") -> "Talker":
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=_client(folder, name)))

    def say(self, *messages: object) -> None:
        for message in messages:
            self.writer.write(encode(message))

    async def hear(self, *kinds: type) -> object:
        async with asyncio.timeout(10):
            while True:
                while self._heard:
                    message = self._heard.pop(0)
                    if isinstance(message, kinds):
                        return message
                data = await self.reader.read(65536)
                if not data:
                    return None
                self._heard += self._frames.feed(data)

    async def hear_node(self, channel: int) -> object:
        """The next message for one channel; everything else is passed over."""
        while True:
            relayed = await self.hear(Relayed)
            for channels, data in relayed.parcels:
                if channel in channels:
                    return next(iter(FrameReader().feed(data)))


def _client(folder: Path, name: str) -> ssl.SSLContext:
    return agent_context(
        folder / "ca" / "ca.pem", folder / "ca" / f"{name}.pem", folder / "ca" / f"{name}.key"
    )


def _der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def _hello(node_id: str, last_epoch: int = 0) -> Hello:
    return Hello(PROTOCOL_VERSION, node_id, "0", "boot", "e", (), (), last_epoch, None, None)


def _in(channel: int, message: object) -> Relayed:
    return Relayed((((channel,), encode(message)),))


GREETING = RelayHello(PROTOCOL_VERSION, "r1", "0")


@pytest.fixture
def pki(rig):
    for name in ("n1", "n2"):
        issue(rig.folder / "ca", name, CLOCK)
    issue(rig.folder / "ca", "r1", CLOCK, "relay")
    return rig.folder


def test_what_goes_to_many_nodes_of_a_relay_travels_once(pki, rig, heard):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            relay = await Talker.dial(pki, port)
            relay.say(GREETING)
            assert (await relay.hear(Welcome)).controller_epoch == 1
            for channel, name in enumerate(("n0", "n1", "n2"), start=1):
                relay.say(RelayOpened(channel, _der(pki / "ca" / f"{name}.pem")))
                relay.say(_in(channel, _hello(name)))
                assert isinstance(await relay.hear_node(channel), Welcome)
            rate = SampleRate(10.0)
            assert all(server.send(name, rate) for name in ("n0", "n1", "n2"))
            assert await relay.hear(Relayed) == Relayed((((1, 2, 3), encode(rate)),))
            assert {h.relay_id for h in heard.hellos} == {"r1"}
            # One node leaves, another falls silent with the relay: each is lost once.
            relay.say(RelayClosed(2))
            await heard.until(lambda: heard.lost == ["n1"])
            relay.writer.close()
            await heard.until(lambda: sorted(heard.lost) == ["n0", "n1", "n2"])

    asyncio.run(story())


def test_a_relay_speaks_only_for_nodes_whose_certificates_it_shows(pki, rig, heard):
    async def story() -> None:
        make_ca(pki / "other", CLOCK)
        foreign = issue(pki / "other", "n1", CLOCK)
        async with rig.link(heard) as (server, port):
            relay = await Talker.dial(pki, port)
            relay.say(GREETING)
            await relay.hear(Welcome)
            certificates = {
                1: b"no certificate",
                2: _der(foreign.certificate),
                3: _der(pki / "ca" / "r1.pem"),  # a relay behind a relay
                4: _der(pki / "ca" / "controller.pem"),
            }
            for channel, shown in certificates.items():
                relay.say(RelayOpened(channel, shown), _in(channel, _hello("n1")))
                refusal = await relay.hear_node(channel)
                assert isinstance(refusal, Fenced)
                assert refusal.code == "relay-identity"
                assert await relay.hear(RelayClosed) == RelayClosed(channel)
            # The certificate of one node does not let it speak for another.
            relay.say(RelayOpened(5, _der(pki / "ca" / "n2.pem")), _in(5, _hello("n1")))
            assert (await relay.hear_node(5)).code == "node-identity"
            assert await relay.hear(RelayClosed) == RelayClosed(5)
            # What is said for a node that never came is not heard; the others go on.
            relay.say(_in(77, _hello("n1")))
            relay.say(RelayOpened(6, _der(pki / "ca" / "n2.pem")), _in(6, _hello("n2")))
            assert isinstance(await relay.hear_node(6), Welcome)
            assert list(server.connected()) == ["n2"]
            relay.writer.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("identity", "says", "code"),
    [
        ("n1", [GREETING], "frame-direction"),
        ("r1", [_hello("r1")], "hello-missing"),
        ("r1", [RelayClosed(1)], "hello-missing"),
        ("r1", [RelayHello(PROTOCOL_VERSION, "r2", "0")], "relay-identity"),
        ("r1", [RelayHello(2, "r1", "0")], "protocol-version"),
        ("r1", [GREETING, _hello("r1")], "frame-direction"),
    ],
)
def test_nobody_passes_for_a_relay_and_a_relay_for_nobody(pki, rig, heard, identity, says, code):
    async def story() -> None:
        async with rig.link(heard) as (_server, port):
            peer = await Talker.dial(pki, port, identity)
            peer.say(*says)
            assert (await peer.hear(Fenced)).code == code
            assert await peer.hear(Fenced) is None, "and the stream is closed"
            assert heard.hellos == []
            peer.writer.close()

    asyncio.run(story())


def test_which_way_a_node_came_is_not_for_it_to_say(pki, rig, heard):
    async def story() -> None:
        async with rig.link(heard) as (_server, port):
            direct = await Talker.dial(pki, port, "n1")
            direct.say(replace(_hello("n1"), relay_id="r1"))
            await direct.hear(Welcome)
            assert [h.relay_id for h in heard.hellos] == [""]
            direct.writer.close()

    asyncio.run(story())


def test_the_newest_stream_of_a_node_wins_whichever_way_it_comes(pki, rig, heard):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            direct = await Talker.dial(pki, port, "n1")
            direct.say(_hello("n1"))
            await direct.hear(Welcome)
            relay = await Talker.dial(pki, port)
            relay.say(GREETING, RelayOpened(1, _der(pki / "ca" / "n1.pem")), _in(1, _hello("n1")))
            assert isinstance(await relay.hear_node(1), Welcome)
            assert (await direct.hear(Fenced)).code == "superseded"
            relay.say(RelayOpened(2, _der(pki / "ca" / "n1.pem")), _in(2, _hello("n1")))
            assert isinstance(await relay.hear_node(2), Welcome)
            assert await relay.hear(RelayClosed) == RelayClosed(1)
            rate = SampleRate(10.0)
            assert server.send("n1", rate)
            assert await relay.hear_node(2) == rate
            assert heard.lost == []
            for peer in (direct, relay):
                peer.writer.close()

    asyncio.run(story())


# The relay, between a controller and agents that say exactly what they are told to ---------------


@contextlib.asynccontextmanager
async def carried(folder: Path):
    """A relay in this process: the controller's end of its stream, welcomed, and its port."""
    files = folder / "ca"
    dialled: asyncio.Queue[Talker] = asyncio.Queue()
    server = await asyncio.start_server(
        lambda r, w: dialled.put_nowait(Talker(r, w)),
        "127.0.0.1",
        0,
        ssl=controller_context(
            files / "ca.pem", files / "controller.pem", files / "controller.key"
        ),
    )
    settings = RelaySettings(
        "r1",
        ControllerSettings("127.0.0.1", server.sockets[0].getsockname()[1]),
        TlsSettings(files / "ca.pem", files / "r1.pem", files / "r1.key"),
        ListenSettings("127.0.0.1", 0),
    )
    listen = controller_context(files / "ca.pem", files / "r1.pem", files / "r1.key")
    relay = Relay(settings, listen, _client(folder, "r1"), CLOCK, Random(1))
    port = await relay.listen()
    task = asyncio.ensure_future(relay.run())
    try:
        control = await dialled.get()
        assert (await control.hear(RelayHello)).relay_id == "r1"
        control.say(Welcome(PROTOCOL_VERSION, 1, CLOCK.wall(), 60.0, 1.0))
        while not relay.connected:
            await asyncio.sleep(0.01)
        yield control, port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        control.writer.transport.abort()
        server.close()
        await server.wait_closed()


def test_a_relay_passes_bytes_of_which_it_knows_nothing(pki):
    async def story() -> None:
        async with carried(pki) as (control, port):
            agents = [await Talker.dial(pki, port, name) for name in ("n0", "n1")]
            channels = []
            for name in ("n0", "n1"):
                opened = await control.hear(RelayOpened)
                assert opened.certificate == _der(pki / "ca" / f"{name}.pem")
                channels.append(opened.channel)
            # A frame of a kind that nobody has thought of yet, and one that is only half there.
            strange = b"\x00\x00\x00\x05\x01\xeeabc" + b"\x00\x00"
            control.say(Relayed(((tuple(channels), strange), ((channels[1],), b"!"))))
            assert await agents[0].reader.readexactly(len(strange)) == strange
            assert await agents[1].reader.readexactly(len(strange) + 1) == strange + b"!"
            agents[0].writer.write(strange)
            (parcel,) = (await control.hear(Relayed)).parcels
            assert parcel == ((channels[0],), strange)
            # The controller ends one of them, after a last word; the other ends itself.
            control.say(Relayed((((channels[0],), b"bye"),)), RelayClosed(channels[0]))
            assert await agents[0].reader.read() == b"bye"
            agents[1].writer.close()
            assert await control.hear(RelayClosed) == RelayClosed(channels[1])

    asyncio.run(story())


def test_an_agent_that_does_not_read_holds_nobody_up(pki):
    async def story() -> None:
        async with carried(pki) as (control, port):
            slow, quick = [await Talker.dial(pki, port, name) for name in ("n0", "n1")]
            first, second = [(await control.hear(RelayOpened)).channel for _ in range(2)]
            slow.writer.transport.pause_reading()
            for _ in range(200):  # 20 MB: more than kernel and relay are willing to keep
                control.say(Relayed((((first,), b"x" * 100_000),)))
            control.say(Relayed((((second,), b"prompt"),)))
            assert await quick.reader.readexactly(6) == b"prompt"
            assert await control.hear(RelayClosed) == RelayClosed(first)
            for agent in (slow, quick):
                agent.writer.transport.abort()

    asyncio.run(story())


def test_a_controller_that_does_not_read_is_felt_by_the_agents(pki):
    async def story() -> None:
        async with carried(pki) as (control, port):
            agent = await Talker.dial(pki, port, "n0")
            await control.hear(RelayOpened)
            control.writer.transport.pause_reading()
            with contextlib.suppress(TimeoutError):
                for _ in range(400):  # 40 MB
                    agent.writer.write(b"x" * 100_000)
                    await asyncio.wait_for(agent.writer.drain(), 0.5)
            held = agent.writer.transport.get_write_buffer_size()
            assert held > 0, "the agent keeps what it could not say, not the relay"
            control.writer.transport.resume_reading()
            last = asyncio.ensure_future(control.hear(RelayClosed))
            await asyncio.wait_for(agent.writer.drain(), 10)
            agent.writer.close()
            assert await last is not None

    asyncio.run(story())


def test_a_relay_that_cannot_listen_says_so_and_what_to_do(pki, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = {
            "relay_id": "r1",
            "controller": {"host": "localhost"},
            "listen": {"host": "127.0.0.1", "port": taken.getsockname()[1]},
            "tls": {
                "ca": str(pki / "ca" / "ca.pem"),
                "certificate": str(pki / "ca" / "r1.pem"),
                "key": str(pki / "ca" / "r1.key"),
            },
        }
        config = tmp_path / "relay.yaml"
        config.write_text(json.dumps(settings))
        done = subprocess.run(
            [sys.executable, "-m", "gridaware.wiring.relay", "--config", str(config)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error[relay-listen]: cannot listen on 127.0.0.1:")
    assert "\n  fix      Free the relay's port" in done.stderr
